"""Limits that change while a sandbox runs, each found by running into it, and what they are on a
machine that starts later."""

import re
import threading
import time

import pytest

from kit import errors_of, execute, sandbox_pid, until

MIB = 1 << 20


@pytest.fixture
def small(instance, new_sandbox):
    sandbox = new_sandbox(cpus=1, memory_mb=256, pids=64, disk_gb=1)
    if not sandbox["limits"]["enforced"]:
        pytest.skip("this host cannot enforce limits")
    return sandbox


def patch(instance, sandbox, status=200, **body):
    answer = instance.api("PATCH", f"/sandboxes/{sandbox['id']}", body)
    assert answer.status == status, answer
    return answer.json if status == 200 else errors_of(answer)[0]


def get(instance, sandbox):
    return instance.api("GET", f"/sandboxes/{sandbox['id']}").json


def say(instance, sandbox, command, **fields):
    return execute(instance, sandbox, command, timeout=60, **fields)["stdout"].strip()


def eat(instance, sandbox, mib):
    """Whether so much memory can be had; the agent lives either way."""
    done = execute(instance, sandbox, f"head -c {mib}M /dev/zero | tail -c {mib}M > /dev/null",
                   timeout=60)
    assert execute(instance, sandbox, "true")["exit_code"] == 0
    return done["exit_code"] == 0


def forks(instance, sandbox, count):
    """How many of them there were at once: a shell that cannot fork gives up."""
    execute(instance, sandbox, args=["sh", "-c", f"for i in $(seq {count}); do sleep 4 & done"])
    return get(instance, sandbox)["usage"]["pids"] - 1


def test_memory(instance, small):
    assert not eat(instance, small, 400)
    assert patch(instance, small, memory_mb=700)["limits"]["memory_bytes"] == 700 * MIB
    assert eat(instance, small, 400)
    patch(instance, small, memory_mb=256)
    assert not eat(instance, small, 400)


def test_memory_in_use_stays(instance, small):
    """Nothing is killed for a limit that comes late; what can be reclaimed is no use."""
    patch(instance, small, memory_mb=512)
    execute(instance, small, "head -c 200M /dev/zero > /tmp/file; cat /tmp/file > /dev/null")
    record = instance.api("POST", f"/sandboxes/{small['id']}/commands",
                          {"command": "head -c 150M /dev/zero > /dev/shm/kept; sleep 300"}).json
    until(lambda: say(instance, small, "stat -c %s /dev/shm/kept") == str(150 * MIB), "it holds it")
    refused = patch(instance, small, 409, memory_mb=128, cpus=2)
    assert refused["code"] == "memory_in_use" and "128" in refused["message"], refused
    now = get(instance, small)
    assert (now["limits"]["memory_bytes"], now["limits"]["cpus"]) == (512 * MIB, 1), now["limits"]
    assert say(instance, small, "nproc") == "1" and eat(instance, small, 250)
    command = f"/sandboxes/{small['id']}/commands/{record['id']}"
    assert instance.api("GET", command).json["status"] == "INPROGRESS"
    assert patch(instance, small, memory_mb=250)["limits"]["memory_bytes"] == 250 * MIB
    instance.api("POST", f"{command}/terminate", {"grace": 0})
    execute(instance, small, "rm /dev/shm/kept")
    assert patch(instance, small, memory_mb=128)["limits"]["memory_bytes"] == 128 * MIB


def test_pids(instance, small):
    def rest():
        until(lambda: get(instance, small)["usage"]["pids"] < 5, "they have ended")

    assert 30 < forks(instance, small, 150) <= 64
    rest()
    patch(instance, small, pids=300)
    assert forks(instance, small, 150) >= 150
    patch(instance, small, pids=64)
    rest()
    assert forks(instance, small, 150) <= 64


def burn(instance, sandbox):
    """Processors that two busy processes got."""
    before = get(instance, sandbox)["usage"]["cpu_ns"], time.monotonic()
    execute(instance, sandbox, "for i in 1 2; do timeout 2 sh -c 'while :; do :; done' & done; wait")
    return ((get(instance, sandbox)["usage"]["cpu_ns"] - before[0]) / 1e9
            / (time.monotonic() - before[1]))


def test_cpus(instance, small):
    sleeper = sandbox_pid(instance, small)
    assert say(instance, small, "nproc") == "1" and burn(instance, small) < 1.2
    record = instance.api("POST", f"/sandboxes/{small['id']}/commands",
                          {"command": "sleep 1; echo $BASHPID; sleep 60"}).json
    patch(instance, small, cpus=2)
    assert say(instance, small, "nproc") == "2"
    assert sandbox_pid(instance, small) == sleeper
    running = say(instance, small, f"grep Cpus_allowed_list /proc/{record['pid']}/status")
    assert re.search(r"\d-\d|\d,\d", running), running
    patch(instance, small, resources="1x2")
    assert get(instance, small)["resources"] == "1x2" and say(instance, small, "nproc") == "1"
    assert burn(instance, small) < 1.2


def fill(instance, sandbox, mib):
    done = execute(instance, sandbox, f"head -c {mib}M /dev/zero > /tmp/fill", timeout=120)
    return done["exit_code"] == 0


def test_disk(instance, small):
    assert not fill(instance, small, 1300)
    assert patch(instance, small, disk_gb=2)["limits"]["disk_bytes"] == 2 << 30
    assert fill(instance, small, 1300)
    execute(instance, small, "sync")
    refused = patch(instance, small, 409, disk_gb=1)
    assert refused["code"] == "disk_in_use", refused
    execute(instance, small, "rm /tmp/fill; sync")
    until(lambda: instance.api("PATCH", f"/sandboxes/{small['id']}", {"disk_gb": 1}).status == 200,
          "the space is free")
    assert not fill(instance, small, 1300)


def test_what_is_refused(instance, small):
    before = get(instance, small)["limits"]
    for body, code, field in (({"cpus": 1000}, "above_host", "cpus"),
                              ({"resources": "12x24"}, "above_host", "resources"),
                              ({"memory_mb": 16 * MIB}, "above_host", "memory_mb"),
                              ({"memory_mb": 1}, "invalid_field", "memory_mb"),
                              ({"pids": 1}, "invalid_field", "pids"),
                              ({"disk_gb": 0}, "invalid_field", "disk_gb"),
                              ({"cpus": 1.5}, "invalid_field", "cpus")):
        error = patch(instance, small, 400, name="new", **body)
        assert (error["code"], error["field"]) == (code, field), error
    now = get(instance, small)
    assert now["limits"] == before and now["name"] != "new"


def test_of_one_that_is_stopped(instance, small):
    path = f"/sandboxes/{small['id']}"
    assert instance.api("POST", f"{path}/stop", {"grace": 0}).status == 200
    after = patch(instance, small, cpus=2, memory_mb=700, pids=300, disk_gb=2)
    assert after["limits"] | {"enforced": True} == {
        "cpus": 2, "memory_bytes": 700 * MIB, "disk_bytes": 2 << 30, "pids": 300, "enforced": True}
    assert instance.api("POST", f"{path}/start").status == 200
    assert say(instance, small, "nproc") == "2"
    assert eat(instance, small, 400) and forks(instance, small, 150) >= 150
    assert fill(instance, small, 1300)


def test_they_outlive_the_daemons(instance, small):
    patch(instance, small, memory_mb=700, pids=300, cpus=2)
    for restart in (instance.restart_daemon, instance.kill9_keeper, instance.kill9_daemon):
        restart()
        now = get(instance, small)
        assert now["status"] == "RUNNING" and now["limits"]["enforced"] is True
        assert now["limits"]["memory_bytes"] == 700 * MIB and say(instance, small, "nproc") == "2"
        assert eat(instance, small, 400)
    patch(instance, small, memory_mb=256)
    assert not eat(instance, small, 400)


def test_changes_at_once(instance, small):
    """Each is whole, none is lost: neither of limits nor of what else a sandbox has."""
    answers = []

    def change(body):
        answers.append(instance.api("PATCH", f"/sandboxes/{small['id']}", body))

    for n in range(10):
        bodies = [{"name": f"name {n}"}, {"tags": [f"tag {n}"]}, {"pids": 100 + n},
                  {"memory_mb": 300 + n}]
        threads = [threading.Thread(target=change, args=(b,)) for b in bodies]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        now = get(instance, small)
        assert (now["name"], now["tags"], now["limits"]["pids"], now["limits"]["memory_bytes"]) == (
            f"name {n}", [f"tag {n}"], 100 + n, (300 + n) * MIB), now
    assert {a.status for a in answers} == {200}, answers


def test_while_it_is_busy(instance, small):
    path = f"/sandboxes/{small['id']}"
    instance.api("POST", f"{path}/commands", {
        "command": "trap '' TERM; touch /tmp/ready; while :; do sleep 1; done"})
    until(lambda: say(instance, small, "ls /tmp/ready 2>/dev/null"), "it is deaf")
    stopping = threading.Thread(target=instance.api, args=("POST", f"{path}/stop", {"grace": 3}))
    stopping.start()
    until(lambda: get(instance, small)["status"] == "STOPPING", "it is being stopped")
    assert patch(instance, small, 409, memory_mb=300)["code"] == "sandbox_busy"
    assert patch(instance, small, name="meanwhile")["name"] == "meanwhile"
    stopping.join()
    assert get(instance, small)["status"] == "STOPPED"
