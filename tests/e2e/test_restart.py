"""The daemons end and come back, in order and by kill -9: sandboxes and their commands go on."""

import concurrent.futures
import os
import signal
import time

import pytest

from kit import (IMAGE, back_to, background, command_state, errors_of, execute, finished, link_number,
                 link_of, output, sandbox_pid, settled, until)

COUNT = "n=0; while [ ! -e /tmp/stop ]; do n=$((n+1)); echo $n; sleep 0.01; done; exit 9"


def both(instance, how):
    """Both daemons down at the same time, the keeper back first."""
    for service in ("daemon", "keeper"):
        instance._end(service, how)
    for service in ("keeper", "daemon"):
        instance._spawn(service)
    instance.wait_ready()


RESTARTS = {
    "daemon": lambda i: i.restart_daemon(),
    "daemon-9": lambda i: i.kill9_daemon(),
    "keeper": lambda i: i.restart_keeper(),
    "keeper-9": lambda i: i.kill9_keeper(),
    "both": lambda i: both(i, signal.SIGTERM),
    "both-9": lambda i: both(i, signal.SIGKILL),
}
ALL = pytest.mark.parametrize("how", RESTARTS)


def status(instance, sandbox):
    answer = instance.api("GET", f"/sandboxes/{sandbox['id']}")
    assert answer.status == 200, answer
    return answer.json


def counted(instance, sandbox, command):
    return [int(line) for line in output(instance, sandbox, command).split()]


def no_gap(numbers):
    assert numbers == list(range(1, len(numbers) + 1)), "no line is lost or doubled"
    return len(numbers)


@ALL
def test_a_counting_command_goes_on(instance, new_sandbox, how):
    sandbox = new_sandbox()
    pid = sandbox_pid(instance, sandbox)
    command = background(instance, sandbox, COUNT)
    until(lambda: counted(instance, sandbox, command), "it counts")
    inner = command_state(instance, sandbox, command)["pid"]
    RESTARTS[how](instance)
    assert sandbox_pid(instance, sandbox) == pid, "the same PID 1"
    assert status(instance, sandbox)["status"] == "RUNNING"
    record = command_state(instance, sandbox, command)
    assert record["status"] == "INPROGRESS" and record["pid"] == inner, record
    before = len(counted(instance, sandbox, command))
    until(lambda: len(counted(instance, sandbox, command)) > before + 10, "output goes on")
    assert execute(instance, sandbox, "touch /tmp/stop; echo ok")["stdout"] == "ok\n"
    record = finished(instance, sandbox, command, 30)
    assert record["exit_code"] == 9 and record["reason"] == "EXITED", record
    assert no_gap(counted(instance, sandbox, command)) > before + 10


@ALL
def test_everything_works_after(instance, new_sandbox, how):
    running, stopped = new_sandbox(), new_sandbox()
    execute(instance, running, "echo kept > ~/a")
    execute(instance, stopped, "echo kept > ~/a")
    done = execute(instance, running, "echo out; exit 3")
    instance.api("POST", f"/sandboxes/{stopped['id']}/stop", {"grace": 0})
    RESTARTS[how](instance)
    assert status(instance, stopped)["status"] == "STOPPED"
    assert "exit_reason" not in status(instance, stopped)
    assert command_state(instance, running, done)["exit_code"] == 3
    assert output(instance, running, done) == b"out\n"
    path = f"/sandboxes/{running['id']}"
    gateway = execute(instance, running, "ip route | sed -n 's/default via \\([^ ]*\\).*/\\1/p'; "
                      "ping -c1 -W2 $(ip route | sed -n 's/default via \\([^ ]*\\).*/\\1/p') "
                      ">/dev/null 2>&1; getent hosts localhost >/dev/null; echo $?")
    assert gateway["stdout"].endswith("0\n"), gateway
    assert instance.api("POST", f"{path}/stop", {"grace": 1}).json["status"] == "STOPPED"
    for sandbox in (running, stopped):
        answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/start")
        assert answer.status == 200 and answer.json["status"] == "RUNNING", answer
        assert execute(instance, sandbox, "cat ~/a")["stdout"] == "kept\n"
    fresh = new_sandbox()
    assert execute(instance, fresh, "echo new")["stdout"] == "new\n"


@ALL
def test_delete_after_leaves_nothing(instance, new_sandbox, how):
    before = settled(instance)
    sandbox = new_sandbox()
    background(instance, sandbox, "setsid sleep 1000 & exec sleep 1000")
    link = link_of(instance, sandbox)
    number = link_number(link)
    RESTARTS[how](instance)
    assert instance.api("DELETE", f"/sandboxes/{sandbox['id']}").status == 204
    # the new processes make slots ahead anew
    back_to(instance, before, but=("mounts", "links", "routes"))
    until(lambda: link_number(link) != number, "the link is gone")


@ALL
def test_the_network_goes_on(instance, new_sandbox, how):
    """A connection to the resolver's address works before and after."""
    sandbox = new_sandbox()
    ask = ("import socket\n"
           "gw = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('names')][0]\n"
           "s = socket.create_connection((gw, 53), 5)\nprint('there')")
    assert execute(instance, sandbox, ask, runtime="PYTHON")["stdout"] == "there\n"
    RESTARTS[how](instance)
    assert execute(instance, sandbox, ask, runtime="PYTHON")["stdout"] == "there\n"


def test_an_end_while_the_daemon_is_away_is_told(instance, new_sandbox):
    sandbox = new_sandbox()
    command = background(instance, sandbox, "echo a; sleep 0.5; echo b; exit 5")
    until(lambda: output(instance, sandbox, command) == b"a\n", "it runs")
    instance._end("daemon", signal.SIGKILL)
    time.sleep(1.5)
    instance._spawn("daemon")
    instance.wait_ready()
    record = finished(instance, sandbox, command, 20)
    # the outcome or the truth that nobody knows it, never another one
    assert (record["reason"], record.get("exit_code")) in (("EXITED", 5), ("LOST", None)), record
    assert output(instance, sandbox, command) == b"a\nb\n", record
    assert record["reason"] == "EXITED", record


def test_output_while_the_daemon_is_away_is_kept(instance, new_sandbox):
    sandbox = new_sandbox()
    command = background(instance, sandbox, "echo go; sleep 0.5; for i in $(seq 20000); do "
                                            "echo line $i; done; echo end; sleep 1")
    until(lambda: output(instance, sandbox, command), "it runs")
    instance._end("daemon", signal.SIGKILL)
    time.sleep(2.5)
    instance._spawn("daemon")
    instance.wait_ready()
    assert finished(instance, sandbox, command, 20)["exit_code"] == 0
    lines = output(instance, sandbox, command).decode().split("\n")
    assert lines == ["go"] + [f"line {i}" for i in range(1, 20001)] + ["end", ""]


def test_an_exec_during_a_restart_is_answered_truly(instance, new_sandbox):
    sandbox = new_sandbox()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(instance.api, "POST", f"/sandboxes/{sandbox['id']}/exec",
                              {"command": "echo begun; sleep 2; exit 7"})
        until(lambda: b"sleep" in execute(instance, sandbox, "cat /proc/[0-9]*/comm")[
            "stdout"].encode(), "it runs")
        instance.kill9_daemon()
        answer = waiting.result(30)
    # the connection is gone: the client is told so, not that all went well
    assert answer.status in (502, 503, 504) or answer.json["exit_code"] == 7, answer
    listed = instance.api("GET", f"/sandboxes/{sandbox['id']}/commands").json["commands"]
    record = next(c for c in listed if c["command"].startswith("echo begun"))
    record = finished(instance, sandbox, record, 20)
    assert record["exit_code"] == 7 and record["reason"] == "EXITED", record


@pytest.mark.parametrize("service", ["daemon", "edge"])
@pytest.mark.parametrize("words, code", [([], 7), (["--format", "json"], 125)],
                         ids=["stream", "json"])
def test_the_cli_goes_on_or_says_that_nobody_knows(instance, new_sandbox, service, words, code):
    sandbox = new_sandbox()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(instance.cli, "exec", *words, sandbox["id"], "-c",
                              "sleep 2.5; exit 7")
        until(lambda: "sleep" in execute(instance, sandbox, "cat /proc/[0-9]*/comm")["stdout"],
              "it runs")
        instance._end(service, signal.SIGKILL)
        instance._spawn(service)
        instance.wait_ready()
        done = waiting.result(30)
    assert done.returncode == code, done
    if not words:
        assert done.stdout == ""
    listed = instance.api("GET", f"/sandboxes/{sandbox['id']}/commands").json["commands"]
    record = next(c for c in listed if c["command"].startswith("sleep 2.5"))
    record = finished(instance, sandbox, record, 20)
    assert record["exit_code"] == 7 and record["reason"] == "EXITED", record


def test_output_of_nobody_is_removed(instance):
    """As a daemon leaves it that is killed between the row and the files of a deleted sandbox."""
    kept = instance.base / "state/commands"
    stray = kept / ("sb" + "a" * 20)
    stray.mkdir()
    (stray / ("cm" + "a" * 20 + ".1")).write_text("x")
    owner = kept.stat()
    for p in (stray, *stray.iterdir()):
        os.chown(p, owner.st_uid, owner.st_gid)
    instance.restart_daemon()
    assert not stray.exists()


def test_while_the_keeper_is_away(instance, new_sandbox):
    sandbox = new_sandbox()
    instance._end("keeper", signal.SIGKILL)
    try:
        answer = instance.api("POST", "/sandboxes?wait=running", {"name": "x", "os": IMAGE})
        assert answer.status == 503 and int(answer.headers["Retry-After"]) > 0, answer
        assert errors_of(answer)[0]["hint"], answer
        assert instance.api("GET", "/sandboxes").status == 200
        assert status(instance, sandbox)["status"] == "RUNNING"
        assert instance.raw("GET", "/healthz", token=None).status == 503
    finally:
        instance._spawn("keeper")
        instance.wait_ready()
    assert execute(instance, sandbox, "echo ok")["stdout"] == "ok\n"
    names = [s["name"] for s in instance.api("GET", "/sandboxes").json["sandboxes"]]
    assert "x" not in names, "what was refused was not made"


# --- sandboxes that die behind our back ----------------------------------------------------------

def died(instance, sandbox, within=10):
    start = time.monotonic()
    until(lambda: status(instance, sandbox)["status"] == "STOPPED", "its death is seen", 30)
    assert time.monotonic() - start < within
    return status(instance, sandbox)["exit_reason"]


def test_killed_from_outside(instance, new_sandbox):
    sandbox = new_sandbox()
    command = background(instance, sandbox, "echo up; exec sleep 1000")
    until(lambda: output(instance, sandbox, command), "it runs")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(instance.api, "POST", f"/sandboxes/{sandbox['id']}/exec",
                              {"command": "sleep 1000"})
        time.sleep(0.3)
        os.kill(sandbox_pid(instance, sandbox), signal.SIGKILL)
        reason = died(instance, sandbox)
        answer = waiting.result(20)
    assert reason["code"] and reason["text"], reason
    if answer.status == 200:
        assert answer.json["reason"] == "LOST" and "exit_code" not in answer.json, answer
    else:
        assert answer.status in (409, 503), answer
    record = finished(instance, sandbox, command, 10)
    assert record["reason"] == "LOST" and record["status"] == "FAILED", record
    assert "exit_code" not in record and record["finish_date"], record
    assert output(instance, sandbox, command) == b"up\n"
    refused = instance.api("POST", f"/sandboxes/{sandbox['id']}/exec", {"command": "true"})
    assert refused.status == 409 and "STOPPED" in errors_of(refused)[0]["message"], refused
    assert instance.api("POST", f"/sandboxes/{sandbox['id']}/start").status == 200
    assert "exit_reason" not in status(instance, sandbox)
    assert execute(instance, sandbox, "echo back")["stdout"] == "back\n"


@pytest.mark.parametrize("away", ["daemon", "keeper", "both"])
def test_killed_while_a_daemon_was_away(instance, new_sandbox, away):
    sandbox = new_sandbox()
    command = background(instance, sandbox, "exec sleep 1000")
    pid = sandbox_pid(instance, sandbox)
    services = ["daemon", "keeper"] if away == "both" else [away]
    for service in services:
        instance._end(service, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    for service in reversed(services):
        instance._spawn(service)
    instance.wait_ready()
    assert died(instance, sandbox)["code"]
    assert finished(instance, sandbox, command, 10)["reason"] == "LOST"
    assert instance.api("POST", f"/sandboxes/{sandbox['id']}/start").status == 200
    assert execute(instance, sandbox, "echo back")["stdout"] == "back\n"


def test_killed_by_itself(instance, new_sandbox):
    """Root inside ends its own machine: PID 1 cannot be killed from inside, or it is told."""
    sandbox = new_sandbox()
    done = execute(instance, sandbox, "kill -9 1; kill -9 -1; echo $?", user="root")
    assert done["reason"] in ("EXITED", "SIGNALED", "KILLED"), done
    assert status(instance, sandbox)["status"] == "RUNNING"
    assert execute(instance, sandbox, "echo ok")["stdout"] == "ok\n"


@pytest.mark.long
@pytest.mark.parametrize("service", ["daemon", "keeper"])
def test_kills_at_random_points(instance, service):
    """Whatever was under way, afterwards the states are true and everything can be deleted."""
    before = settled(instance)
    for round_ in range(20):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            def life(number):
                try:
                    made = instance.api("POST", "/sandboxes?wait=running",
                                        {"name": f"r{round_}-{number}", "os": IMAGE,
                                         "memory_mb": 64}, timeout=60)
                    sid = made.json["id"]
                    instance.api("POST", f"/sandboxes/{sid}/exec", {"command": "echo x"})
                    instance.api("POST", f"/sandboxes/{sid}/restart", {"grace": 0})
                    instance.api("DELETE", f"/sandboxes/{sid}")
                except (OSError, KeyError, TypeError):
                    pass
            lives = [pool.submit(life, n) for n in range(6)]
            time.sleep(0.02 * round_)
            instance._end(service, signal.SIGKILL)
            instance._spawn(service)
            for one in lives:
                one.result(120)
        instance.wait_ready()
        for sandbox in instance.api("GET", "/sandboxes").json["sandboxes"]:
            path = f"/sandboxes/{sandbox['id']}"

            def at_rest():  # or undone: its creation was cut off
                answer = instance.api("GET", path)
                return answer.status == 404 or answer.json["status"] in ("RUNNING", "STOPPED",
                                                                         "FAILED")

            until(at_rest, "it comes to rest", 60)
            answer = instance.api("DELETE", path)
            assert answer.status in (204, 404), f"{answer}\n{instance.logs()}"
    back_to(instance, before, but=("mounts", "links", "routes"))
