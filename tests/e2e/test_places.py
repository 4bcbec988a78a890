"""Places for requests: who left gives its place back, and what ends something always finds one."""

import socket

import pytest

from kit import background, errors_of, execute, until

HELD = 300  # more than one sandbox may have under way


def ask(instance, path):
    c = socket.create_connection(("127.0.0.1", instance.port))
    c.sendall(f"GET /workspaces/default{path} HTTP/1.1\r\nHost: x\r\n"
              f"Authorization: Bearer {instance.token}\r\n\r\n".encode())
    return c


def paths(sandbox, command):
    at = f"/sandboxes/{sandbox['id']}/commands/{command}"
    return [f"{at}?wait=3600", f"{at}/logs?follow=true"]


def test_who_left_holds_no_place(instance, sandbox):
    command = background(instance, sandbox, "sleep 1000")["id"]
    for i in range(HELD):
        ask(instance, paths(sandbox, command)[i % 2]).close()
    until(lambda: instance.api("POST", f"/sandboxes/{sandbox['id']}/exec",
                               {"args": ["true"]}).status == 200, "a place for exec")


def test_what_ends_something_finds_a_place(instance, sandbox):
    command = background(instance, sandbox, "sleep 1000")["id"]
    waiting = [ask(instance, paths(sandbox, command)[0]) for _ in range(HELD)]
    try:
        at = f"/sandboxes/{sandbox['id']}"
        full = until(lambda: (a := instance.api("GET", at)).status == 429 and a, "no place left")
        assert full.headers["Retry-After"]
        assert instance.api("POST", f"{at}/commands/{command}/terminate").status == 200
        assert instance.api("POST", f"{at}/stop", {"grace": 0}).status == 200
        assert instance.api("DELETE", at).status == 204
    finally:
        for c in waiting:
            c.close()


@pytest.mark.parametrize("body", [
    b'{"stdin":"%s","kill_on_disconnect":true,"command":"cat"}' % (b"x" * 100000),
    b'{"kill_on_d\\u0069sconnect":true,"command":"true"}',
], ids=["far behind", "in disguise"])
def test_a_wish_that_cannot_be_kept_is_refused(instance, sandbox, body):
    answer = instance.raw("POST", f"/workspaces/default/sandboxes/{sandbox['id']}/exec", body,
                          {"Content-Type": "application/json"})
    assert answer.status == 400 and errors_of(answer)[0]["field"] == "kill_on_disconnect", answer


def test_the_same_wish_is_kept_where_it_can_be(instance, sandbox):
    assert execute(instance, sandbox, "echo hi", kill_on_disconnect=True)["stdout"] == "hi\n"
