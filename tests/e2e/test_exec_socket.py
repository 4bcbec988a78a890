"""GET exec: a command whose output streams over a WebSocket while it runs."""

import base64
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import threading
import time

import pytest

import ws
from kit import (background, command_state, errors_of, execute, finished, inside, output,
                 resident, sandbox_pid, split_answer, until, usage)
from ws import BINARY, CLOSE, CONT, PING, PONG, STDERR, STDOUT, TEXT, Exec

MIB = 1 << 20
BOTH = pytest.mark.parametrize("unix", [True, False], ids=["unix", "tcp"])


@pytest.fixture
def open_exec(instance, box):
    """Sessions that end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda command=None, unix=True, **first: stack.enter_context(
            Exec(instance, box, unix, **({"command": command} if command else {}), **first))


@pytest.fixture
def run(instance, box):
    return lambda command=None, **first: ws.run(instance, box, command, **first)


def ordinary_end(session, code=0):
    assert session.exit and session.exit["exit_code"] == code, session.summary()
    assert session.code == ws.DONE and session.error is None, session.summary()


def refused(session, status=400, field=None, code=None):
    """The one error, and the close."""
    session.finish()
    assert [e["type"] for e in session.events] == ["error"], session.summary()
    error = session.error
    assert error["status"] == status and error["message"] and error["code"], error
    assert set(error) <= {"type", "status", "message", "code", "field", "hint"}, error
    assert error.get("field") == field, error
    assert code is None or error["code"] == code, error
    assert session.code == ws.REFUSED, session.summary()
    return error


# --- how a command ends --------------------------------------------------------------------------

@pytest.mark.parametrize("command,code,signal,reason", [
    ("true", 0, None, "EXITED"), ("exit 3", 3, None, "EXITED"), ("exit 255", 255, None, "EXITED"),
    ("no-such-program", 127, None, "EXITED"), ("kill -9 $$", 137, "SIGKILL", "SIGNALED"),
    ("kill -TERM $$", 143, "SIGTERM", "SIGNALED"), ("kill -SEGV $$", 139, "SIGSEGV", "SIGNALED"),
    ("exec 1>&- 2>&-; exit 4", 4, None, "EXITED")])
def test_exit_records(instance, box, run, command, code, signal, reason):
    session = run(command)
    started, done = session.started, session.exit
    assert [e["type"] for e in session.events] == ["started", "exit"], session.summary()
    assert started["status"] == "INPROGRESS" and started["pid"] > 1, started
    assert started["command"] == command and started["id"] == done["id"], started
    assert started["warnings"] == [] and started["timeout"] == 60, started
    want = (code, signal, reason, "FAILED" if code else "SUCCESSFUL")
    assert (done["exit_code"], done.get("signal"), done["reason"], done["status"]) == want, done
    assert done["timed_out"] is False and done["oom_killed"] is False, done
    assert done["duration_ms"] >= 0 and done["finish_date"] >= done["start_date"], done
    record = command_state(instance, box, started)
    assert {k: done[k] for k in record} == record
    assert session.code == ws.DONE


@BOTH
def test_a_time_limit(instance, box, run, unix):
    start = time.monotonic()
    session = run("echo before; echo err >&2; setsid sleep 4510 & sleep 4510", unix=unix,
                  timeout=1.5)
    took = time.monotonic() - start
    assert 1.4 < took < 3.5, took
    done = session.exit
    assert (done["timed_out"], done["reason"], done["exit_code"]) == (True, "TIMED_OUT", 137), done
    assert session.started["timeout"] == 1.5 and session.code == ws.DONE
    assert (session.out, session.err) == (b"before\n", b"err\n")
    assert inside(instance, box, "sleep 4510") == []


def test_programs_that_do_not_exist(run):
    for args in (["no-such-program"], ["/etc/passwd"], ["/"]):
        error = refused(run(args=args), field="args")
        assert args[0] in error["message"], error


def test_memory_that_ran_out(instance, new_sandbox):
    session = ws.run(instance, new_sandbox(memory_mb=128), "exec tail /dev/zero")
    done = session.exit
    assert (done["reason"], done["exit_code"], done["oom_killed"]) == ("OOM", 137, True), done


def test_a_child_left_behind_does_not_hold_the_exit(instance, box, run):
    start = time.monotonic()
    session = run("(sleep 4511; echo late) & echo now")
    assert time.monotonic() - start < 5
    ordinary_end(session)
    assert session.out == b"now\n"
    assert inside(instance, box, "sleep 4511")
    answer = instance.api("POST", f"/sandboxes/{box['id']}/commands/{session.exit['id']}/terminate",
                          {"grace": 0})
    assert answer.status == 200, answer


def test_terminating_from_elsewhere(instance, box, open_exec):
    session = open_exec("echo up; exec sleep 4512").until_out(b"up\n")
    path = f"/sandboxes/{box['id']}/commands/{session.started['id']}/terminate"
    assert instance.api("POST", path, {}).status == 200
    assert session.finish()["exit_code"] == 143 and session.code == ws.DONE, session.summary()


def test_a_sandbox_that_is_stopped(instance, new_sandbox):
    sandbox = new_sandbox()
    with Exec(instance, sandbox, command="echo up; exec sleep 4513") as session:
        session.until_out(b"up\n")
        assert instance.api("POST", f"/sandboxes/{sandbox['id']}/stop", {"grace": 1}).status == 200
        done = session.finish()
    assert done["status"] == "FAILED" and session.code == ws.DONE, session.summary()
    record = command_state(instance, sandbox, session.started)
    assert record.get("exit_code") == done.get("exit_code") and record["reason"] == done["reason"]


def test_a_sandbox_that_is_deleted(instance, new_sandbox):
    sandbox = new_sandbox()
    with Exec(instance, sandbox, command="echo up; exec sleep 4513") as session:
        session.until_out(b"up\n")
        assert instance.api("DELETE", f"/sandboxes/{sandbox['id']}").status == 204
        session.finish()
    assert session.exit or session.error, session.summary()
    assert not session.exit or session.exit["status"] == "FAILED", session.summary()


# --- output --------------------------------------------------------------------------------------

EXACT = [b"", b"\n", b"a", b"a\n\n\nb\r\nc", "ü測🙂\n".encode(), b"\x00a\x00\n", b"\xff\xfe\xc3\n(\xc3",
         bytes(range(256)), bytes(range(256)) * 300 + b"end"]
WRITE = ("import sys, base64\nd = base64.b64decode(sys.stdin.read())\n"
         "sys.stdout.buffer.write(d); sys.stdout.buffer.flush()\n"
         "sys.stderr.buffer.write(d[::-1])\n")


@BOTH
@pytest.mark.parametrize("data", EXACT, ids=lambda d: repr(d[:12]))
def test_both_channels_are_byte_exact(run, unix, data):
    session = run(WRITE, runtime="PYTHON", stdin=base64.b64encode(data).decode(), unix=unix)
    ordinary_end(session)
    assert session.out == data and session.err == data[::-1]
    assert session.exit["stdout_bytes"] == session.exit["stderr_bytes"] == len(data)


@BOTH
def test_eight_megabytes_are_byte_exact(run, unix):
    session = run("head -c 8M /dev/urandom >/tmp/random; sha256sum </tmp/random >&2; cat /tmp/random;"
                  " rm /tmp/random", unix=unix)
    ordinary_end(session)
    assert len(session.out) == 8 * MIB and session.dropped == []
    assert session.err.split()[0].decode() == hashlib.sha256(session.out).hexdigest()


def test_both_channels_at_once(run):
    session = run("(for i in $(seq 20000); do echo out $i; done) & "
                  "(for i in $(seq 20000); do echo err $i; done) >&2; wait")
    ordinary_end(session)
    assert session.out == b"".join(b"out %d\n" % i for i in range(1, 20001))
    assert session.err == b"".join(b"err %d\n" % i for i in range(1, 20001))


def test_output_comes_while_it_runs(instance, box, open_exec):
    session = open_exec("printf one; while [ ! -e /tmp/go ]; do sleep 0.02; done; rm /tmp/go; "
                        "printf two")
    session.until_out(b"one")
    assert not session.exit
    execute(instance, box, "touch /tmp/go")
    session.finish()
    ordinary_end(session)
    assert session.out == b"onetwo"


# --- the first frame -----------------------------------------------------------------------------

def test_what_is_run(instance, box, run):
    words = ["", "a b", "-n", "$(id)", "'\"'", "a\nb", "ü🙂"]
    session = run(args=["python3", "-c", "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))",
                        *words])
    assert session.out.decode().split("\0") == words
    assert run("import sys; print(sys.version_info[0])", runtime="PYTHON").out == b"3\n"
    assert run("echo \"$A|$B\"", env={"A": "a b\n", "B": ""}).out == b"a b\n|\n"
    assert run("pwd", cwd="/tmp").out == b"/tmp\n"
    session = run("id -un", user="root")
    assert session.out == b"root\n" and session.started["user"] == "root"
    assert run("cat", stdin="given ü\n").out == "given ü\n".encode()
    assert run("#" + "x" * 900_000 + "\necho long").out == b"long\n"


def test_the_default_directory_is_gone(instance, new_sandbox):
    sandbox = new_sandbox()
    execute(instance, sandbox, "sudo rmdir /workspace")
    session = ws.run(instance, sandbox, "pwd")
    assert session.out == b"/home/skerry\n", session.summary()
    assert "/workspace" in session.started["warnings"][0], session.started


@pytest.mark.parametrize("fields,field", [
    ({"command": "true", "nonsense": 1}, "nonsense"), ({"command": 1}, "command"),
    ({"command": ""}, "command"), ({"command": "true", "args": ["true"]}, "command"),
    ({"args": []}, "args"), ({"args": ["true", 1]}, "args[1]"),
    ({"command": "true", "timeout": 0}, "timeout"), ({"command": "true", "timeout": -1}, "timeout"),
    ({"command": "true", "timeout": "1"}, "timeout"), ({"command": "true", "tty": "yes"}, "tty"),
    ({"command": "true", "stdin_open": 1}, "stdin_open"),
    ({"command": "true", "runtime": "COBOL"}, "runtime"),
    ({"command": "true", "user": "ghost"}, "user"), ({"command": "true", "cwd": "x"}, "cwd"),
    ({"command": "true", "cwd": "/no/such"}, "cwd"),
    ({"command": "true", "env": {"A=B": "c"}}, "env"), ({"command": "true", "env": []}, "env"),
    ({"command": "true", "tty": True, "cols": 4097}, "cols"),
    ({"command": "true", "tty": True, "rows": -1}, "rows"),
    ({"command": "true", "tty": True, "rows": 1.5}, "rows"),
    ({"id": "cm" + "a" * 20, "command": "true"}, "command"),
    ({"id": "cm" + "a" * 20, "stdin_open": True}, "stdin_open"),
    ({"id": "cm" + "a" * 20, "offset": 3}, "offset"),
    ({"id": "cm" + "a" * 20, "offset": {"stdout": -1}}, "offset.stdout"),
    ({"id": "cm" + "a" * 20, "offset": {"x": 1}}, "offset.x"), ({"id": ""}, "id"),
], ids=lambda v: json.dumps(v) if isinstance(v, dict) else v)
def test_fields_are_refused_by_name(instance, box, run, fields, field):
    before = instance.api("GET", f"/sandboxes/{box['id']}/commands?limit=1").json["commands"]
    session = run(**fields)
    assert session.error["field"].startswith(field), session.summary()
    refused(session, field=session.error["field"])
    after = instance.api("GET", f"/sandboxes/{box['id']}/commands?limit=1").json["commands"]
    assert before == after, "nothing was started"


def test_a_first_frame_without_anything(instance, box):
    with Exec(instance, box) as session:
        session.wire.text({})
        refused(session, field="command")


@pytest.mark.parametrize("text", ["", "x", "[]", "null", "1", '"a"', "{", '{"command":"true"',
                                  '{"command":"true"}{}', '{"command":"true","command":"false"}',
                                  '{"command":"a\\u0000b"}', "[" * 20000, "\ufeff{}"],
                         ids=lambda t: repr(t[:30]))
def test_a_first_frame_that_is_garbage(instance, box, text):
    with Exec(instance, box) as session:
        session.wire.text(text)
        session.finish()
        refused(session, field=session.error.get("field"))


@pytest.mark.parametrize("data", [b"", b"\0", b"\0abc", b'{"command":"true"}'])
def test_a_first_frame_that_is_binary(instance, box, data):
    with Exec(instance, box) as session:
        session.wire.send(BINARY, data)
        refused(session)


def test_a_first_frame_that_never_comes(instance, box):
    start = time.monotonic()
    with Exec(instance, box) as session:
        session.finish()
        refused(session, 408, code="request_timeout")
    assert 9.5 < time.monotonic() - start < 20


def test_a_first_frame_in_pieces(instance, box):
    with Exec(instance, box) as session:
        text = json.dumps({"command": "echo ü"}, ensure_ascii=False).encode()
        for at in range(len(text)):
            session.wire.send(CONT if at else TEXT, text[at:at + 1], fin=at == len(text) - 1)
        session.finish()
        ordinary_end(session)
        assert session.out == "ü\n".encode()


@BOTH
def test_a_first_frame_sent_with_the_request(instance, box, unix):
    first = ws.frame(TEXT, b'{"command":"echo early"}')
    with Exec(instance, box, unix, early=first) as session:
        session.finish()
    ordinary_end(session)
    assert session.out == b"early\n"


# --- the upgrade ---------------------------------------------------------------------------------

def answer_to(instance, box, unix=True, token="own", what="exec", **headers):
    with pytest.raises(ws.Refused) as caught:
        ws.upgrade(instance, ws.path_of(box, what), unix, token, **headers).abort()
    answer = caught.value
    assert answer.headers["content-type"] == "application/json" and answer.error["message"]
    assert answer.headers["x-request-id"]
    return answer


@pytest.mark.parametrize("what", ["exec", "terminal"])
@BOTH
def test_what_is_no_upgrade(instance, box, unix, what):
    for headers in ({"Upgrade": None}, {"Connection": "keep-alive"}, {"Upgrade": "h2c"},
                    {"Upgrade": None, "Connection": None}, {"Sec-WebSocket-Version": "8"},
                    {"Sec-WebSocket-Version": None}):
        if not unix and "Sec-WebSocket-Version" not in headers:
            headers = {"Upgrade": None, "Connection": None}
        answer = answer_to(instance, box, unix, what=what, **headers)
        assert answer.status == 426 and answer.error["code"] == "upgrade_required", answer
        assert answer.error["hint"], answer


def test_keys_that_are_none(instance, box):
    for key in (None, "", "x", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQAA"):
        answer = answer_to(instance, box, Sec_WebSocket_Key=key)
        assert answer.status == 400 and answer.error["field"] == "Sec-WebSocket-Key", answer


@pytest.mark.parametrize("what", ["exec", "terminal"])
@BOTH
def test_who_may_not(instance, box, unix, what):
    for token in (None, "", "skry_wrong", instance.token[:-1]):
        answer = answer_to(instance, box, unix, token=token, what=what)
        assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer", answer
    answer = answer_to(instance, "sb" + "a" * 20, unix, what=what)
    assert answer.status == 404, answer
    answer = answer_to(instance, "../" + box["id"], unix, what=what)
    assert answer.status in (400, 404), answer


@pytest.mark.parametrize("what", ["exec", "terminal"])
def test_a_sandbox_that_does_not_run(instance, new_sandbox, what):
    sandbox = new_sandbox()
    instance.api("POST", f"/sandboxes/{sandbox['id']}/stop", {"grace": 0})
    answer = answer_to(instance, sandbox, what=what)
    assert answer.status == 409 and "start" in answer.error["message"] + answer.error.get(
        "hint", ""), answer


def test_stopped_between_the_upgrade_and_the_first_frame(instance, new_sandbox):
    sandbox = new_sandbox()
    with Exec(instance, sandbox) as session:
        instance.api("POST", f"/sandboxes/{sandbox['id']}/stop", {"grace": 0})
        session.wire.text({"command": "true"})
        refused(session, status=409)


def test_unknown_parameters(instance, box):
    for what in ("exec", "terminal"):
        answer = answer_to(instance, box, what=what + "?nonsense=1")
        assert answer.status == 400 and answer.error["field"] == "nonsense", answer


def test_the_connection_serves_requests_before(instance, box):
    """An upgrade need not be the first request of its connection."""
    with ws.dial(instance) as sock:
        sock.sendall(f"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {instance.token}"
                     "\r\n\r\n".encode())
        got = b""
        while b"\r\n\r\n" not in got:
            got += sock.recv(4096)
        status, headers, body = split_answer(got)
        while len(body) < int(headers["content-length"]):
            body += sock.recv(4096)
        assert status == 200
        with ws.upgrade(instance, ws.path_of(box, "exec"), sock=sock) as wire:
            wire.text({"command": "true"})
            assert wire.message()[0] == TEXT


def test_half_open_handshakes_do_not_hold_others(instance, box, run):
    key = base64.b64encode(os.urandom(16)).decode()
    head = ws.request(ws.path_of(box, "exec"), key, instance.token)
    before = usage(instance.children["daemon"].pid)
    with contextlib.ExitStack() as stack:
        for number in range(100):
            sock = stack.enter_context(ws.dial(instance, unix=number % 2 == 0))
            sock.sendall(head[:len(head) - 2 - number])
        for _ in range(5):
            ordinary_end(run("true"))
            assert execute(instance, box, "true")["exit_code"] == 0
    until(lambda: usage(instance.children["daemon"].pid) <= before, "they are forgotten")


# --- standard input ------------------------------------------------------------------------------

def feed(instance, box, amount, unix=True):
    block = os.urandom(MIB)
    with Exec(instance, box, unix, command="sha256sum", stdin_open=True, timeout=600) as session:
        sum_of = hashlib.sha256()
        for _ in range(amount // MIB):
            session.input(block)
            sum_of.update(block)
        session.eof()
        session.finish(300)
    ordinary_end(session)
    assert session.out.split()[0].decode() == sum_of.hexdigest()


@BOTH
def test_much_input(instance, box, unix):
    feed(instance, box, 8 * MIB, unix)


@pytest.mark.long
@BOTH
def test_very_much_input(instance, box, unix):
    pid = instance.children["daemon"].pid
    before = resident(pid)
    feed(instance, box, 64 * MIB, unix)
    assert resident(pid) - before < 16 * MIB


def test_input_is_echoed(open_exec):
    session = open_exec("cat", stdin_open=True)
    for data in (b"a", b"\0\xff\r\n", bytes(range(256)), b"", b"\n" * 70_000, b"end"):
        had = len(session.out)
        session.wire.send(BINARY, b"\0" + data)
        session.until(lambda s: len(s.out) >= had + len(data))
        assert session.out[had:] == data
    session.eof()
    session.finish()
    ordinary_end(session)


def test_input_and_output_at_once(open_exec):
    """More than all buffers hold, both ways."""
    data = os.urandom(8 * MIB)
    session = open_exec("cat", stdin_open=True)

    def send():
        session.input(data)
        session.eof()

    thread = threading.Thread(target=send)
    thread.start()
    session.finish(120)
    thread.join(60)
    ordinary_end(session)
    assert hashlib.sha256(session.out).digest() == hashlib.sha256(data).digest()


def test_input_before_a_close_arrives(instance, box, open_exec):
    """What was said before the goodbye is heard."""
    data = os.urandom(100_000)
    session = open_exec("cat >/tmp/said; sha256sum </tmp/said", stdin_open=True)
    session.until(lambda s: s.started)
    session.input(data)
    session.eof()
    session.wire.close()
    record = finished(instance, box, session.started, 10)
    assert record["exit_code"] == 0, record
    assert output(instance, box, session.started)[:64].decode() == hashlib.sha256(data).hexdigest()


def test_many_small_writes_keep_their_order(open_exec):
    session = open_exec("cat", stdin_open=True)
    text = b"".join(b"%d\n" % i for i in range(1100))[:5000]
    session.wire.raw(b"".join(ws.frame(BINARY, b"\0" + text[i:i + 1]) for i in range(len(text))))
    session.eof()
    session.finish()
    ordinary_end(session)
    assert session.out == text


def test_the_field_comes_before_the_frames(open_exec):
    session = open_exec("cat", stdin="first ", stdin_open=True)
    session.input(b"second")
    session.eof()
    session.finish()
    ordinary_end(session)
    assert session.out == b"first second"


def test_an_end_at_once(open_exec):
    session = open_exec("cat; echo end", stdin_open=True)
    session.eof()
    session.finish()
    ordinary_end(session)
    assert session.out == b"end\n"


def test_input_that_is_not_ended_is_no_end(open_exec):
    session = open_exec("read -t 1 x; echo $?", stdin_open=True)
    session.finish()
    ordinary_end(session)
    assert int(session.out) > 128, session.summary()


def test_input_behind_the_end(open_exec):
    session = open_exec("cat; echo end; sleep 0.5", stdin_open=True)
    session.input(b"x")
    session.eof()
    session.input(b"y")
    session.eof()
    session.finish()
    assert session.exit["exit_code"] == 0 and session.out == b"xend\n", session.summary()


@BOTH
def test_a_reader_that_wants_no_more(instance, box, open_exec, unix):
    session = open_exec("head -c 10", unix, stdin_open=True)
    with contextlib.suppress(OSError):  # the session may be over before all is sent
        session.input(b"0123456789" + b"x" * 4 * MIB)
        session.eof()
    session.finish()
    ordinary_end(session)
    assert session.out == b"0123456789"


def test_a_reader_that_closes_and_goes_on(open_exec):
    session = open_exec("head -c 10; exec <&-; sleep 1; echo on", stdin_open=True)
    session.input(b"0123456789" + b"x" * 3 * MIB)
    session.finish()
    ordinary_end(session)
    assert session.out == b"0123456789on\n"


def test_nobody_reads(open_exec):
    session = open_exec("sleep 1; exit 5", stdin_open=True)
    with contextlib.suppress(OSError):
        session.input(b"x" * 4 * MIB)
    session.finish()
    ordinary_end(session, 5)


@pytest.mark.parametrize("given", [None, "given"])
def test_input_nobody_asked_for(open_exec, given):
    session = open_exec("cat; sleep 1; echo on; exit 2", **({"stdin": given} if given else {}))
    session.input(b"x")
    session.until(lambda s: s.error)
    assert session.error["code"] == "stdin_closed", session.error
    assert 400 <= session.error["status"] < 500, session.error
    assert session.finish()["exit_code"] == 2 and session.code == ws.DONE
    assert session.out == (given or "").encode() + b"on\n"


def test_other_channels_are_refused(open_exec):
    for data in (b"", b"\1x", b"\2x", b"\3x", b"x"):
        session = open_exec("sleep 4520", stdin_open=True, kill_on_disconnect=True)
        session.until(lambda s: s.started)
        session.wire.send(BINARY, data)
        session.finish()
        assert session.error["status"] == 400 and session.code == ws.REFUSED, session.summary()


def test_input_by_request_and_by_frame(instance, box, open_exec):
    session = open_exec("cat", stdin_open=True)
    session.input(b"one ")
    session.until_out(b"one ")
    path = f"/sandboxes/{box['id']}/commands/{session.started['id']}/stdin"
    kind = {"Content-Type": "application/octet-stream"}
    answer = instance.raw("POST", f"/workspaces/default{path}", b"two ", kind)
    assert answer.status == 204, answer
    session.until_out(b"two ")
    answer = instance.raw("POST", f"/workspaces/default{path}?eof=true", b"three", kind)
    assert answer.status == 204, answer
    session.finish()
    ordinary_end(session)
    assert session.out == b"one two three"


# --- words of the client -------------------------------------------------------------------------

# no process of its own is started meanwhile: bash may take a signal that comes just then for the
# child's alone
TRAP = ("trap 'echo got; exit 7' {}; exec 9<> <(:); echo up; "
        "while :; do read -rt 0.05 -u 9; done")


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1", "SIGUSR2"])
def test_signals(open_exec, name):
    session = open_exec(TRAP.format(name.removeprefix("SIG"))).until_out(b"up\n")
    session.signal(name)
    session.finish()
    ordinary_end(session, 7)
    assert session.out == b"up\ngot\n"


def test_a_signal_ends_the_command_only_where_it_does(instance, box, open_exec):
    session = open_exec("echo up; exec sleep 4530").until_out(b"up\n")
    session.signal("KILL")
    done = session.finish()
    assert (done["exit_code"], done["signal"], done["reason"]) == (137, "SIGKILL", "SIGNALED"), done
    session = open_exec("trap '' INT; echo up; sleep 1; echo still").until_out(b"up\n")
    session.signal("INT")
    session.finish()
    ordinary_end(session)
    assert session.out == b"up\nstill\n"


def test_a_signal_by_request(instance, box, open_exec):
    session = open_exec(TRAP.format("INT")).until_out(b"up\n")
    path = f"/sandboxes/{box['id']}/commands/{session.started['id']}/signal"
    assert instance.api("POST", path, {"signal": "INT"}).status == 204
    session.finish()
    ordinary_end(session, 7)
    answer = instance.api("POST", path, {"signal": "INT"})
    assert answer.status == 409 and errors_of(answer), answer


def test_a_signal_behind_input_nobody_reads(instance, box, open_exec):
    """The frame waits its turn; the request does not."""
    session = open_exec(TRAP.format("INT"), stdin_open=True).until_out(b"up\n")

    def send():
        with contextlib.suppress(OSError):
            session.input(b"x" * 4 * MIB)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    time.sleep(0.5)
    path = f"/sandboxes/{box['id']}/commands/{session.started['id']}/signal"
    assert instance.api("POST", path, {"signal": "INT"}).status == 204
    session.finish()
    assert session.exit["exit_code"] == 7, session.summary()
    thread.join(30)


@pytest.mark.parametrize("word", [
    {}, {"type": "nonsense"}, {"type": "signal", "signal": "NONE"}, {"type": "signal", "signal": 9},
    {"type": "eof", "more": 1}, {"type": "resize", "cols": 4097}, {"type": "resize", "cols": "9"},
    {"type": "exit"}, [], "x", None], ids=json.dumps)
def test_words_that_are_none(open_exec, word):
    session = open_exec("sleep 4531", kill_on_disconnect=True)
    session.until(lambda s: s.started)
    session.wire.text(json.dumps(word))
    session.finish()
    assert session.error["status"] == 400 and session.code == ws.REFUSED, session.summary()


def test_what_cannot_be_done_ends_nothing(open_exec):
    session = open_exec("sleep 1; echo on")
    session.until(lambda s: s.started)
    session.resize(90, 30)
    session.wire.text({"type": "signal"})
    session.until(lambda s: sum(e["type"] == "error" for e in s.events) == 2)
    assert session.finish()["exit_code"] == 0 and session.out == b"on\n", session.summary()
    assert session.code == ws.DONE


# --- attaching again -----------------------------------------------------------------------------

NUMBERS = ("import os, time\nfor n in range({}):\n os.write(1 + n % 2, b'%015d\\n' % n)\n"
           " if n % 100 == 0: time.sleep(0.002)\n")


def numbers_of(count, stream):
    return b"".join(b"%015d\n" % n for n in range(stream - 1, count, 2))


@pytest.mark.parametrize("unix,reset", [(True, False), (False, False), (False, True)])
def test_a_broken_session_is_taken_up(instance, box, unix, reset):
    """Broken thrice, at places that the client does not choose: together it is all, once."""
    count = 60_000
    got = {STDOUT: b"", STDERR: b""}
    first = {"command": NUMBERS.format(count), "runtime": "PYTHON"}
    for limit in (100_000, 400_000, 700_000, None):
        with Exec(instance, box, unix, **first) as session:
            if limit:
                session.until(lambda s: sum(map(len, got.values())) + len(s.out) + len(s.err)
                              > limit)
                session.wire.abort(reset)
            else:
                session.finish()
            assert session.started["id"] == first.get("id", session.started["id"])
            got[STDOUT] += session.out
            got[STDERR] += session.err
            first = {"id": session.started["id"],
                     "offset": {"stdout": len(got[STDOUT]), "stderr": len(got[STDERR])}}
    ordinary_end(session)
    assert got == {s: numbers_of(count, s) for s in (STDOUT, STDERR)}
    assert session.exit["stdout_bytes"] == len(got[STDOUT])


def test_attaching_to_what_has_ended(instance, box, run):
    ended = run("echo out; echo err >&2; exit 6")
    again = run(id=ended.started["id"])
    assert (again.out, again.err) == (b"out\n", b"err\n") and again.code == ws.DONE
    assert {k: v for k, v in again.exit.items()} == ended.exit
    again = run(id=ended.started["id"], offset={"stdout": 2})
    assert (again.out, again.err) == (b"t\n", b"err\n")
    again = run(id=ended.started["id"], offset={"stdout": 4, "stderr": 4})
    assert (again.out, again.err) == (b"", b"") and again.exit["exit_code"] == 6
    made = background(instance, box, "echo other")
    finished(instance, box, made)
    assert run(id=made["id"]).out == b"other\n"


def test_an_offset_beyond_the_end(instance, box, run):
    ended = run("echo out")
    for stream, offset in (("stdout", 5), ("stderr", 1 << 60)):
        refused(run(id=ended.started["id"], offset={stream: offset}), field=f"offset.{stream}")


def test_an_offset_ahead_of_what_runs(instance, box, open_exec):
    """Bytes that come later are not passed over, or the offset is refused."""
    session = open_exec("echo out; while [ ! -e /tmp/ahead ]; do sleep 0.02; done; rm /tmp/ahead; "
                        "echo more").until_out(b"out\n")
    again = open_exec(id=session.started["id"], offset={"stdout": 1000})
    again.until(lambda s: s.events)
    execute(instance, box, "touch /tmp/ahead")
    again.finish()
    session.finish()
    if not again.error:
        assert again.exit["stdout_bytes"] == session.exit["stdout_bytes"] == 9, again.summary()


def test_what_is_not_kept_is_told(instance, box, run):
    made = background(instance, box, "seq -f %015.0f 0 262143")  # 4 MiB
    finished(instance, box, made)
    whole = b"".join(b"%015d\n" % n for n in range(4 * MIB // 16))
    again = run(id=made["id"])
    assert [(e["stream"], e["bytes"]) for e in again.dropped] == [("stdout", 2 * MIB)]
    assert again.out == whole[:MIB] + whole[-MIB:] and again.exit["stdout_bytes"] == 4 * MIB
    again = run(id=made["id"], offset={"stdout": 2 * MIB})
    assert [e["bytes"] for e in again.dropped] == [MIB] and again.out == whole[-MIB:]


def test_attaching_to_what_is_not_there(instance, box, new_sandbox, run):
    refused(run(id="cm" + "a" * 20), status=404)
    other = new_sandbox()
    made = background(instance, other, "true")
    refused(run(id=made["id"]), status=404)


def test_two_clients_see_the_same(instance, box, open_exec):
    first = open_exec("while [ ! -e /tmp/go2 ]; do sleep 0.02; done; rm /tmp/go2\n"
                      "head -c 3M /dev/urandom | tee /tmp/both; head -c 1M /dev/urandom >&2; exit 9")
    first.until(lambda s: s.started)
    others = [open_exec(unix=unix, id=first.started["id"]) for unix in (True, False, True)]
    for other in others:
        other.until(lambda s: s.started)
    execute(instance, box, "touch /tmp/go2")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda s: s.finish(), [first, *others]))
    for session in (first, *others):
        ordinary_end(session, 9)
        assert session.dropped == [] and len(session.out) == 3 * MIB and len(session.err) == MIB
        assert session.out == first.out and session.err == first.err
        assert session.exit == first.exit


def test_input_of_a_second_client(open_exec):
    first = open_exec("cat", stdin_open=True)
    first.until(lambda s: s.started)
    second = open_exec(id=first.started["id"])
    second.until(lambda s: s.started)
    first.input(b"one\n")
    second.until_out(b"one\n")
    second.input(b"two\n")
    first.until_out(b"two\n")
    second.eof()
    for session in (first, second):
        session.finish()
        ordinary_end(session)
        assert session.out == b"one\ntwo\n"


# --- clients that leave, or do not listen --------------------------------------------------------

def leave(session, how):
    if how == "close":
        session.wire.close()
        session.finish()
    else:
        session.wire.abort(reset=how == "reset")


LEAVING = pytest.mark.parametrize("unix,how", [(True, "gone"), (False, "gone"), (False, "reset"),
                                               (True, "close"), (False, "close")])


@LEAVING
def test_a_client_that_leaves_ends_nothing(instance, box, open_exec, unix, how):
    session = open_exec("echo a; sleep 1; echo b; exit 7", unix).until_out(b"a\n")
    leave(session, how)
    record = finished(instance, box, session.started, 20)
    assert record["exit_code"] == 7 and record["reason"] == "EXITED", record
    assert output(instance, box, session.started) == b"a\nb\n"


@LEAVING
def test_unless_it_asked_for_that(instance, box, open_exec, unix, how):
    session = open_exec("echo a; trap '' TERM; setsid sleep 4540 & sleep 4540", unix,
                        kill_on_disconnect=True).until_out(b"a\n")
    leave(session, how)
    record = finished(instance, box, session.started, 20)
    assert record["status"] == "FAILED" and record["exit_code"] in (137, 143), record
    until(lambda: inside(instance, box, "sleep 4540") == [], "all of it is gone")


def test_a_viewer_that_leaves_ends_nothing(instance, box, open_exec):
    session = open_exec("echo a; sleep 1; exit 7", kill_on_disconnect=True).until_out(b"a\n")
    viewer = open_exec(id=session.started["id"]).until_out(b"a\n")
    viewer.wire.abort()
    session.finish()
    ordinary_end(session, 7)


def deaf(instance, box, amount, seconds, unix):
    """A client that reads nothing for a while: what becomes of the command, the daemon, others."""
    pid = instance.children["daemon"].pid
    before = resident(pid)
    with Exec(instance, box, unix, timeout=300,
              command=f"head -c {amount} /dev/zero | tr '\\0' x; echo last") as session:
        most, slowest = 0, 0
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            began = time.monotonic()
            assert execute(instance, box, "true")["exit_code"] == 0
            slowest = max(slowest, time.monotonic() - began)
            most = max(most, resident(pid))
            time.sleep(0.2)
        listed = instance.api("GET", f"/sandboxes/{box['id']}/commands?limit=1000").json["commands"]
        record = next(c for c in listed if c["command"].startswith(f"head -c {amount} "))
        assert record["status"] == "SUCCESSFUL", record
        session.finish()
    ordinary_end(session)
    assert most - before < 16 * MIB, (before, most)
    assert slowest < 2, slowest
    gap = sum(e["bytes"] for e in session.dropped)
    assert gap > 0 and len(session.out) + gap == amount + 5, session.summary()
    assert session.out.endswith(b"xlast\n") and session.exit["stdout_bytes"] == amount + 5


@BOTH
def test_a_client_that_does_not_read(instance, box, unix):
    deaf(instance, box, 16 * MIB, 14, unix)


@pytest.mark.long
@BOTH
def test_a_client_that_does_not_read_for_long(instance, box, unix):
    deaf(instance, box, 64 * MIB, 30, unix)


def test_a_short_pause_loses_nothing(open_exec):
    session = open_exec("head -c 8M /dev/urandom | tee /tmp/paused | sha256sum >&2; cat /tmp/paused")
    session.until(lambda s: s.started)
    time.sleep(3)
    session.finish()
    ordinary_end(session)
    assert session.dropped == []
    assert session.err.split()[0].decode() == hashlib.sha256(session.out).hexdigest()


# --- frames --------------------------------------------------------------------------------------

@pytest.fixture
def wire(open_exec):
    """A session under way, which ends with its client."""
    session = open_exec("sleep 4550", kill_on_disconnect=True)
    session.until(lambda s: s.started)
    return session.wire


def closed_with(wire, *codes):
    kind, code = wire.message()
    assert kind == CLOSE and code in codes, (kind, code)


WRONG = {
    "unmasked text": (ws.frame(TEXT, b'{"type":"eof"}', mask=False), ws.GARBAGE),
    "unmasked ping": (ws.frame(PING, b"", mask=False), ws.GARBAGE),
    "opcode 3": (ws.frame(3, b"x"), ws.GARBAGE),
    "opcode 7": (ws.frame(7), ws.GARBAGE),
    "opcode 11": (ws.frame(11), ws.GARBAGE),
    "opcode 15": (ws.frame(15), ws.GARBAGE),
    "RSV1": (ws.frame(TEXT, b'{"type":"eof"}', rsv=4), ws.GARBAGE),
    "RSV2": (ws.frame(BINARY, b"\0", rsv=2), ws.GARBAGE),
    "RSV3 on a ping": (ws.frame(PING, rsv=1), ws.GARBAGE),
    "ping in parts": (ws.frame(PING, b"x", fin=False), ws.GARBAGE),
    "close in parts": (ws.frame(CLOSE, b"\3\xe8", fin=False), ws.GARBAGE),
    "long ping": (ws.frame(PING, b"x" * 126), ws.GARBAGE),
    "long close": (ws.frame(CLOSE, b"\3\xe8" + b"x" * 124), ws.GARBAGE),
    "two lengths": (b"\x82\xfe\x00\x05" + b"\0\0\0\0" + b"\0abcd", ws.GARBAGE),
    "eight byte length": (b"\x82\xff" + bytes(7) + b"\x05" + b"\0\0\0\0" + b"\0abcd", ws.GARBAGE),
    "length above 2^63": (b"\x82\xff\x80" + bytes(7) + b"\0\0\0\0", ws.GARBAGE),
    "continuation of nothing": (ws.frame(CONT, b"x"), ws.GARBAGE),
    "text within text": (ws.frame(TEXT, b"{", fin=False) + ws.frame(TEXT, b"}"), ws.GARBAGE),
    "binary within text": (ws.frame(TEXT, b"{", fin=False) + ws.frame(BINARY, b"\0"), ws.GARBAGE),
    "length 2^62": (b"\x82\xff\x40" + bytes(7) + b"\0\0\0\0" + b"\0x", ws.TOO_BIG),
    "not UTF-8": (ws.frame(TEXT, b'{"type":"\xff"}'), ws.NOT_UTF8),
    "overlong UTF-8": (ws.frame(TEXT, b'{"type":"\xc0\xaf"}'), ws.NOT_UTF8),
    "a surrogate": (ws.frame(TEXT, b'{"type":"\xed\xa0\x80"}'), ws.NOT_UTF8),
    "half a character": (ws.frame(TEXT, b'{"type":"\xc3'), ws.NOT_UTF8),
    "half a character in parts": (ws.frame(TEXT, b'{"', fin=False) + ws.frame(CONT, b"\xc3"),
                                  ws.NOT_UTF8),
    "too long": (ws.frame(BINARY, bytes(ws.MESSAGE_MAX + 1)), ws.TOO_BIG),
    "too long, in parts": (b"".join(ws.frame(CONT if n else BINARY, bytes(65536), fin=False)
                                    for n in range(17)), ws.TOO_BIG),
    "close with one byte": (ws.frame(CLOSE, b"\3"), ws.NO_CODE),
    "close 1005": (ws.frame(CLOSE, b"\3\xed"), ws.GARBAGE),
    "close 999": (ws.frame(CLOSE, b"\3\xe7"), ws.GARBAGE),
    "close 5000": (ws.frame(CLOSE, b"\x13\x88"), ws.GARBAGE),
    "close with a reason that is not UTF-8": (ws.frame(CLOSE, b"\3\xe8\xff"), ws.NOT_UTF8),
    "a length longer than it need be": (b"\x81\xfe\0\2\0\0\0\0{}", ws.GARBAGE),
    "no WebSocket at all": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ws.GARBAGE),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_frames(wire, name):
    data, code = WRONG[name]
    with contextlib.suppress(OSError):  # it may be closed before all is sent
        wire.raw(data)
    closed_with(wire, code, ws.GARBAGE)


def test_wrong_frames_do_not_harm_the_command(instance, box, open_exec):
    session = open_exec("echo a; sleep 0.5; exit 7").until_out(b"a\n")
    session.wire.raw(ws.frame(3))
    session.finish()
    assert session.code == ws.GARBAGE and session.exit is None, session.summary()
    assert finished(instance, box, session.started, 20)["exit_code"] == 7


def test_the_longest_message(open_exec):
    for parts in (1, 17, 1000):
        session = open_exec("cat | wc -c", stdin_open=True)
        data = b"\0" + bytes(ws.MESSAGE_MAX - 1)
        step = -(-len(data) // parts)
        pieces = [data[at:at + step] for at in range(0, len(data), step)]
        for n, piece in enumerate(pieces):
            session.wire.send(CONT if n else BINARY, piece, fin=n == len(pieces) - 1)
            if n % 50 == 0:
                session.wire.send(PING, b"between")
        session.eof()
        session.finish()
        ordinary_end(session)
        assert int(session.out) == MIB
        assert session.wire.pongs == [b"between"] * len(session.wire.pongs) != []


def test_empty_parts(open_exec):
    session = open_exec("cat", stdin_open=True)
    for n in range(5000):
        session.wire.send(CONT if n else BINARY, b"\0" if n == 7 else b"", fin=False)
    session.wire.send(CONT, b"abc", fin=True)
    session.eof()
    session.finish()
    ordinary_end(session)
    assert session.out == b"abc"


def test_pings_are_answered(wire):
    for data in (b"", b"x", os.urandom(125)):
        wire.send(PING, data)
        wire.send(PONG, b"unasked")
        while not wire.pongs:
            wire.control()
        assert wire.pongs.pop() == data


@pytest.mark.parametrize("code,reason", [(1000, b""), (1001, b"leaving"), (3000, b""), (4999, b""),
                                         (None, b""), (1000, "ü".encode() * 61)])
def test_a_close_is_answered(wire, code, reason):
    wire.close(code, reason)
    kind, answer = wire.message()
    assert kind == CLOSE and answer == (code or ws.NO_CODE), answer


def test_what_comes_behind_a_close_is_not_heard(instance, box, open_exec):
    session = open_exec("cat; echo $?; exit 3", stdin_open=True)
    session.until(lambda s: s.started)
    session.wire.close()
    with contextlib.suppress(OSError):
        session.wire.send(BINARY, b"\0late")
        session.eof()
    session.finish()
    record = command_state(instance, box, session.started)
    assert record["status"] == "INPROGRESS", record
    assert output(instance, box, session.started) == b""
    instance.api("POST", f"/sandboxes/{box['id']}/commands/{record['id']}/terminate", {"grace": 0})


def test_a_client_that_does_not_answer_the_close(instance, box, open_exec):
    before = usage(instance.children["daemon"].pid)
    session = open_exec("true")
    session.wire.silent = True
    session.finish()
    ordinary_end(session)
    start = time.monotonic()
    with contextlib.suppress(ConnectionError):
        session.wire.sock.settimeout(30)
        assert session.wire.sock.recv(1) == b""
    assert time.monotonic() - start < 10
    until(lambda: usage(instance.children["daemon"].pid) <= before, "it is forgotten")


@pytest.mark.long
@BOTH
def test_silence(open_exec, unix):
    """Pings come; who answers them stays, who does not is given up."""
    session = open_exec("sleep 135; echo on; exit 3", unix, timeout=300)
    mute = open_exec("sleep 4560", unix, timeout=300, kill_on_disconnect=True)
    mute.wire.pong = False
    mute.until(lambda s: s.started)
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answering = pool.submit(session.finish, 250)
        with pytest.raises(ws.Ended):
            mute.finish(250)
        assert 115 < time.monotonic() - started < 240
        answering.result(250)
    ordinary_end(session, 3)
    assert session.out == b"on\n" and len(session.wire.pings) >= 2, session.wire.pings


# --- many ----------------------------------------------------------------------------------------

def test_many_at_once(instance, box):
    def one(number):
        unix = number % 2 == 0
        return ws.run(instance, box, f"echo {number}; sleep 0.1; exit {number}", unix)

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        sessions = list(pool.map(one, range(90)))
    for number, session in enumerate(sessions):
        ordinary_end(session, number)
        assert session.out == b"%d\n" % number


def misbehave(instance, box, number):
    """One session of many kinds."""
    kind = number % 8
    unix = number % 3 > 0
    if kind == 0:
        ordinary_end(ws.run(instance, box, "true", unix))
    elif kind == 1:
        ordinary_end(ws.run(instance, box, "head -c 300k /dev/zero", unix))
    elif kind == 2:
        ws.run(instance, box, unix=unix, nonsense=1)
    elif kind == 3:
        with pytest.raises(ws.Refused):
            ws.upgrade(instance, ws.path_of("sb" + "a" * 20, "exec"), unix)
    else:
        with Exec(instance, box, unix) as session:
            if kind == 4:
                session.wire.raw(ws.frame(3))
                session.finish()
            elif kind > 4:
                session.wire.text({"command": "echo a; sleep 0.2", "stdin_open": kind == 6,
                                   "kill_on_disconnect": kind == 7})
                session.until_out(b"a\n")
                session.wire.abort(reset=kind == 5)


def test_sessions_leave_nothing_in_the_daemon(instance, box):
    pid = instance.children["daemon"].pid
    for number in range(16):
        misbehave(instance, box, number)
    until(lambda: inside(instance, box, "sleep 0.2") == [], "rest")
    time.sleep(1)
    before = usage(pid)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: misbehave(instance, box, n), range(200)))
    with contextlib.suppress(TimeoutError):
        # the edge lets go of its idle connections one after the other
        until(lambda: usage(pid) <= before, "back to what it was", 90)
    assert usage(pid) <= before


def zombies_below(pid):
    """Children of a process that it did not wait for."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{int(entry)}/stat") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == pid:
                found.append(int(entry))
    return found


@pytest.mark.long
def test_ten_thousand_commands(instance, new_sandbox):
    sandbox = new_sandbox()
    daemon, init = instance.children["daemon"].pid, sandbox_pid(instance, sandbox)

    def one(number):
        if number % 2:
            assert execute(instance, sandbox, "true")["exit_code"] == 0
        else:
            ordinary_end(ws.run(instance, sandbox, "(true & ) ; true", number % 4 == 0))

    def some(numbers):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(one, numbers))
        return resident(init), resident(daemon)

    some(range(500))
    time.sleep(1)
    before, (init_before, daemon_before) = usage(daemon, init), some(range(2000))
    init_after, daemon_after = some(range(10_000))
    with contextlib.suppress(TimeoutError):
        until(lambda: usage(daemon, init) <= before, "descriptors and threads are as before", 30)
    assert usage(daemon, init) <= before
    assert init_after - init_before < 2 * MIB, (init_before, init_after)
    # the address sanitizer keeps what was freed
    sanitized = "libasan" in pathlib.Path(f"/proc/{daemon}/maps").read_text()
    assert sanitized or daemon_after - daemon_before < 16 * MIB, (daemon_before, daemon_after)
    assert zombies_below(init) == []


def test_an_offset_belongs_to_an_id(run):
    refused(run("true", offset={"stdout": 0}), field="offset")


def test_sizes_belong_to_a_terminal(run):
    for field in ("cols", "rows"):
        refused(run("true", **{field: 10}), field=field)


def test_the_control_path_is_not_used_up(instance, new_sandbox):
    """However many commands run, what ends them works."""
    sandbox = new_sandbox()
    path = f"/sandboxes/{sandbox['id']}/commands"
    made = []
    while len(made) < 300:
        answer = instance.api("POST", path, {"command": "exec sleep 4640"})
        if answer.status != 201:
            break
        made.append(answer.json)
    answer = instance.api("POST", f"{path}/{made[0]['id']}/terminate", {"grace": 0})
    assert answer.status == 200, answer
    assert execute(instance, sandbox, "true")["exit_code"] == 0


def test_a_fraction_comes_back_as_it_was_given(instance, box):
    for limit in (0.2, 1.1, 12.345):
        answer = instance.api("POST", f"/sandboxes/{box['id']}/exec",
                              {"command": "true", "timeout": limit})
        assert f'"timeout":{limit},'.encode() in answer.body + b",", answer.body
        assert ws.run(instance, box, "true", timeout=limit).started["timeout"] == limit


def test_input_behind_its_end_is_refused(open_exec):
    session = open_exec("cat; sleep 0.5", stdin_open=True)
    session.input(b"in time")
    session.eof()
    session.input(b"late")
    session.until(lambda s: s.error or s.exit)
    assert session.error and session.error["code"] == "stdin_closed", session.summary()
    assert session.finish()["exit_code"] == 0 and session.out == b"in time"


@BOTH
def test_terminate_waits_for_nobody(instance, box, open_exec, unix):
    """The record is final also where the client that started the command does not read."""
    session = open_exec("yes", unix)
    session.until(lambda s: s.started)
    time.sleep(1)
    path = f"/sandboxes/{box['id']}/commands/{session.started['id']}/terminate"
    answer = instance.api("POST", path, {"signal": "KILL"})
    assert answer.status == 200 and answer.json["reason"] == "KILLED", answer
    assert instance.api("POST", path).status == 409


def test_many_words_do_not_hold_the_output(instance, box, open_exec):
    session = open_exec("while :; do echo x; sleep 0.05; done")
    session.until(lambda s: s.started)
    other = open_exec(id=session.started["id"])
    other.until_out(b"x\n")
    with contextlib.suppress(OSError):
        session.wire.sock.settimeout(0.2)
        for _ in range(3000):
            session.wire.raw(ws.frame(TEXT, b'{"type":"signal","signal":"CONT"}'))
    seen = len(other.out)
    other.until(lambda s: len(s.out) > seen + 20, 20)
    instance.api("POST", f"/sandboxes/{box['id']}/commands/{session.started['id']}/terminate",
                 {"grace": 0})


def test_one_that_leaves_with_input_on_its_way_is_noticed(instance, box, open_exec):
    """On the Unix socket: over TCP the edge holds that back behind the input."""
    session = open_exec("sleep 1000", stdin_open=True, kill_on_disconnect=True, timeout=1000)
    session.until(lambda s: s.started)
    session.wire.sock.settimeout(0.5)
    with contextlib.suppress(OSError):
        for _ in range(200):
            session.wire.raw(ws.frame(BINARY, b"\0" + b"x" * 60000))
    session.wire.abort()
    record = finished(instance, box, session.started, 30)
    assert record["reason"] == "KILLED", record
