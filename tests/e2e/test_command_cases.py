"""What has gone wrong with commands elsewhere, tried on every way to run one."""

import base64
import concurrent.futures
import contextlib
import os
import signal
import time

import pytest

import ws
from kit import (background, command_state, errors_of, execute, finished, inside, output,
                 sandbox_pid, until)
from ws import Exec, Terminal

MIB = 1 << 20


# Every way answers (exit code, signal, reason, stdout).

def by_exec(instance, sandbox, **fields):
    done = execute(instance, sandbox, **fields)
    out = (base64.b64decode(done["stdout_base64"]) if "stdout_base64" in done
           else done["stdout"].encode())
    return done["exit_code"], done.get("signal"), done["reason"], out


def by_background(instance, sandbox, **fields):
    answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/commands", fields)
    assert answer.status == 201, answer
    done = finished(instance, sandbox, answer.json, 120)
    return (done["exit_code"], done.get("signal"), done["reason"],
            output(instance, sandbox, answer.json))


def by_socket(instance, sandbox, **fields):
    session = ws.run(instance, sandbox, **fields)
    done = session.exit
    assert done and session.code == ws.DONE, session.summary()
    return done["exit_code"], done.get("signal"), done["reason"], session.out


def by_socket_tcp(instance, sandbox, **fields):
    return by_socket(instance, sandbox, unix=False, **fields)


def by_terminal(instance, sandbox, **fields):
    code, name, reason, out = by_socket(instance, sandbox, tty=True, **fields)
    return code, name, reason, out.replace(b"\r\n", b"\n")


PLAIN = pytest.mark.parametrize("way", [by_exec, by_background, by_socket, by_socket_tcp])
EVERY = pytest.mark.parametrize("way", [by_exec, by_background, by_socket, by_socket_tcp,
                                        by_terminal])


# --- input is at its end unless given ------------------------------------------------------------

@PLAIN
@pytest.mark.parametrize("command,out", [
    ("cat; echo $?", b"0\n"), ('read x; echo "$? [$x]"', b"1 []\n"), ("wc -c", b"0\n"),
    ("python3 -c 'input()' 2>/dev/null; echo $?", b"1\n"), ("test -t 0; echo $?", b"1\n"),
    ("readlink /proc/self/fd/0 | cut -c1-4", b"/dev\n")])
def test_input_is_at_its_end(instance, box, way, command, out):
    assert way(instance, box, command=command, timeout=20) == (0, None, "EXITED", out)


# --- how it ended --------------------------------------------------------------------------------

@EVERY
@pytest.mark.parametrize("command,code,name", [
    ("true", 0, None), ("exit 255", 255, None), ("exit 300", 44, None),
    ("no-such-program 2>/dev/null", 127, None), ("kill -9 $$", 137, "SIGKILL"),
    ("kill -SEGV $$", 139, "SIGSEGV"), ("kill -TERM $$", 143, "SIGTERM"),
    ("kill -PIPE $$", 141, "SIGPIPE"), ("bash -c 'kill -9 $$' 2>/dev/null; exit $?", 137, None)])
def test_ends_are_told_alike(instance, box, way, command, code, name):
    got = way(instance, box, command=command)
    assert got[:3] == (code, name, "SIGNALED" if name else "EXITED")


@EVERY
def test_limits_are_told_alike(instance, box, way):
    start = time.monotonic()
    got = way(instance, box, command="echo before; setsid sleep 4710 & sleep 4710; echo after",
              timeout=1)
    assert 0.9 < time.monotonic() - start < 3
    assert got == (137, "SIGKILL", "TIMED_OUT", b"before\n")
    assert inside(instance, box, "sleep 4710") == []


def test_which_limits_there_are(instance, box):
    """One by default where a client waits and cannot tell that it hangs; told in the answer."""
    assert execute(instance, box, "true")["timeout"] == 60
    assert ws.run(instance, box, "true").started["timeout"] == 60
    assert "timeout" not in ws.run(instance, box, "true", tty=True).started
    assert ws.run(instance, box, "true", tty=True, timeout=5).started["timeout"] == 5
    with Terminal(instance, box) as shell:
        shell.say("true")
        assert "timeout" not in shell.started
        shell.type("exit\r")
        shell.finish()


@pytest.mark.long
def test_the_default_limit(instance, box):
    ways = (by_exec, by_socket)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        start = time.monotonic()
        long = pool.submit(by_background, instance, box, command="sleep 65; echo on")
        shell = pool.submit(ws.run, instance, box, "sleep 65; echo on", tty=True, patience=90)
        cut = [pool.submit(lambda way: way(instance, box, command="echo a; sleep 4711")
                           if way is by_exec else ws.run(instance, box, "echo a; sleep 4711",
                                                         patience=90), way) for way in ways]
        assert cut[0].result() == (137, "SIGKILL", "TIMED_OUT", b"a\n")
        assert cut[1].result().exit["timed_out"] is True
        assert 59 < time.monotonic() - start < 120
        record = instance.api("GET", f"/sandboxes/{box['id']}/commands?limit=10").json["commands"]
        assert sum(r["status"] == "INPROGRESS" for r in record) == 2
        assert shell.result().out == b"on\r\n"
        assert long.result()[0] == 0


# --- values --------------------------------------------------------------------------------------

WORDS = ["-n", "\\t", "a b", "$(id)", "`id`", "'\"'", "a\nb", "=x", "🙂", "", "--", "*", "~", "\\",
         "\x01\x1b\x7f", "%s", "!!", " lead", "trail ", "\u202e"]
SHOW = "import sys, os; sys.stdout.buffer.write(b'\\0'.join(os.fsencode(a) for a in sys.argv[1:]))"


@EVERY
def test_words_are_byte_exact(instance, box, way):
    code, _, _, out = way(instance, box, args=["python3", "-c", SHOW, *WORDS])
    assert code == 0 and out.decode().split("\0") == WORDS


@EVERY
def test_variables_are_byte_exact(instance, box, way):
    env = {f"V{i}": word for i, word in enumerate(WORDS)}
    code, _, _, out = way(instance, box, runtime="PYTHON", env=env, command=(
        "import os, sys\n"
        "sys.stdout.buffer.write(b'\\0'.join(k + b'=' + v for k, v in os.environb.items()))"))
    assert code == 0
    got = dict(pair.split("=", 1) for pair in out.decode().split("\0"))
    assert {k: got.get(k) for k in env} == env


# --- output --------------------------------------------------------------------------------------

def test_nobody_drains(instance, box):
    """More on one stream than all buffers hold, while nobody reads the other."""
    for fields in ({"command": "head -c 50M /dev/zero >&2; echo done"},
                   {"command": "head -c 50M /dev/zero; echo done >&2"}):
        done = execute(instance, box, **fields)
        assert done["exit_code"] == 0, done["reason"]
        assert "done\n" in (done["stdout"][-5:], done["stderr"][-5:])
        session = ws.run(instance, box, **fields)
        assert session.exit["exit_code"] == 0 and session.dropped == [], session.summary()
        assert {len(session.out), len(session.err)} == {50 * MIB, 5}


@pytest.mark.parametrize("way", [by_background, by_socket, by_socket_tcp])
def test_characters_written_one_byte_at_a_time(instance, box, way):
    """As they come: nothing is held back, split by replacement, or added."""
    code, _, _, out = way(instance, box, runtime="PYTHON", command=(
        "import os\n"
        "text = ('測🙂' * 1000 + '\\r\\n\\n').encode()\n"
        "for i in range(len(text)): os.write(1, text[i:i+1])\n"
        "for i in range(149): os.write(1, text)\nos.write(1, '測'.encode())\n"))
    assert code == 0 and out.decode() == ("測🙂" * 1000 + "\r\n\n") * 150 + "測"


def test_a_slow_client_does_not_hold_another(instance, box):
    """Both follow one command; one of them reads nothing."""
    with Exec(instance, box, command="head -c 2M /dev/zero; sleep 0.3; head -c 2M /dev/zero; "
                                     "echo last >&2", timeout=120) as first:
        first.until(lambda s: s.started)
        with Exec(instance, box, id=first.started["id"]) as deaf:
            first.finish()
            assert first.exit["exit_code"] == 0 and len(first.out) == 4 * MIB, first.summary()
            deaf.finish()
            gap = sum(e["bytes"] for e in deaf.dropped)
            assert deaf.exit["exit_code"] == 0 and len(deaf.out) + gap == 4 * MIB


# --- a broken stream is not a success ------------------------------------------------------------

SLOW = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; exit 7"


def dies(session):
    """The session as far as it comes; never an exit that nobody knows."""
    with contextlib.suppress(ws.Ended, OSError):
        session.finish()
    assert session.exit is None, session.summary()


@pytest.mark.parametrize("how", ["kill9_daemon", "restart_daemon"])
@pytest.mark.parametrize("tty", [False, True], ids=["plain", "tty"])
def test_the_daemon_goes_and_comes(instance, sandbox, how, tty):
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Exec(instance, sandbox, unix, command=SLOW, tty=tty))
                    for unix in (True, False)]
        for session in sessions:
            session.until(lambda s: b"1" in s.out)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ends = [pool.submit(dies, session) for session in sessions]
            getattr(instance, how)()
            for end in ends:
                end.result(60)
    for session in sessions:
        with Exec(instance, sandbox, id=session.started["id"],
                  offset={"stdout": len(session.out)}) as again:
            done = again.finish()
        assert done["exit_code"] == 7 and done["reason"] == "EXITED", again.summary()
        assert (session.out + again.out).replace(b"\r", b"") == b"1\n2\n3\n4\n5\n6\n"


@pytest.mark.parametrize("how", ["kill9_daemon", "restart_daemon"])
def test_a_terminal_outlives_the_daemon(instance, sandbox, how):
    with Terminal(instance, sandbox) as shell:
        shell.say("kept=yes")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            end = pool.submit(dies, shell)
            getattr(instance, how)()
            end.result(60)
    with Terminal(instance, sandbox, id=shell.started["id"], cols=90, rows=30) as again:
        assert again.say("echo $kept; stty size") == "yes\r\n30 90\r\n"
        assert again.out.startswith(shell.out)
        again.type("exit 4\r")
        assert again.finish()["exit_code"] == 4


def test_the_keeper_goes_and_comes(instance, sandbox):
    with Exec(instance, sandbox, command=SLOW) as session:
        session.until_out(b"1\n")
        instance.kill9_keeper()
        session.finish()
    assert session.exit["exit_code"] == 7 and session.out == b"1\n2\n3\n4\n5\n6\n"


def test_the_agent_dies(instance, new_sandbox):
    sandbox = new_sandbox()
    with contextlib.ExitStack() as stack:
        plain, deaf = (stack.enter_context(Exec(instance, sandbox, unix, stdin_open=True,
                                                command="echo up; sleep 60; exit 7"))
                       for unix in (True, False))
        shell = stack.enter_context(Terminal(instance, sandbox))
        shell.say("true")
        for session in (plain, deaf):
            session.until_out(b"up\n")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(instance.api, "POST", f"/sandboxes/{sandbox['id']}/exec",
                                  {"command": "sleep 60; exit 7"})
            until(lambda: len(inside(instance, sandbox, "^sleep 60")) == 3, "all run")
            os.kill(sandbox_pid(instance, sandbox), signal.SIGKILL)
            for session in (plain, deaf, shell):
                session.finish()
                record = session.exit
                assert record["reason"] == "LOST" and record["status"] == "FAILED", record
                assert "exit_code" not in record and "signal" not in record, record
                assert session.code == ws.DONE, session.summary()
            answer = waiting.result(30)
    if answer.status == 200:
        assert answer.json["reason"] == "LOST" and "exit_code" not in answer.json, answer
    else:
        assert answer.status in (409, 503) and errors_of(answer), answer
    record = command_state(instance, sandbox, plain.started)
    assert record["reason"] == "LOST" and "exit_code" not in record, record
    assert output(instance, sandbox, plain.started) == b"up\n"


# --- a sandbox that is used up -------------------------------------------------------------------

def test_a_busy_sandbox_answers(instance, new_sandbox):
    """A promise of one second for what controls it, at twice its value."""
    sandbox = new_sandbox(cpus=1, memory_mb=256)
    background(instance, sandbox, "for i in $(seq 16); do while :; do :; done & done; wait")
    hog = background(instance, sandbox, "import time\nb = bytearray(200 << 20)\n"
                                        "for i in range(0, len(b), 4096): b[i] = 1\n"
                                        "print('full', flush=True)\ntime.sleep(600)\n",
                     runtime="PYTHON")
    until(lambda: output(instance, sandbox, hog) == b"full\n", "memory is used", 60)

    def timed(what):
        start = time.monotonic()
        what()
        return time.monotonic() - start

    def shell():
        with Terminal(instance, sandbox) as session:
            session.type("exit\r")
            session.finish()

    def kill():
        answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/commands/{hog['id']}/terminate",
                              {"grace": 0})
        assert answer.status == 200 and answer.json["status"] == "FAILED", answer

    took = {
        "exec": timed(lambda: execute(instance, sandbox, "true")),
        "socket": timed(lambda: ws.run(instance, sandbox, "true")),
        "terminal": timed(shell),
        "get": timed(lambda: instance.api("GET", f"/sandboxes/{sandbox['id']}")),
        "kill": timed(kill),
        "stop": timed(lambda: instance.api("POST", f"/sandboxes/{sandbox['id']}/stop",
                                           {"grace": 0})),
    }
    assert max(took.values()) < 2, took


BURN = ("trap '' TERM HUP INT\n"
        "for i in 1 2; do setsid bash -c 'trap \"\" TERM HUP INT; while :; do :; done' & done\n"
        "(setsid setsid bash -c 'while :; do (:) & wait; done' &)\n"
        "while :; do (:) & wait; done")


def cpu_ns(instance, sandbox):
    answer = instance.api("GET", f"/sandboxes/{sandbox['id']}")
    assert answer.status == 200, answer
    return answer.json["usage"]["cpu_ns"]


def quiet_after(instance, sandbox):
    """Seconds until the sandbox took less than a twentieth of a CPU for a quarter of a second."""
    start = time.monotonic()
    while True:
        begin, used = time.monotonic(), cpu_ns(instance, sandbox)
        time.sleep(0.25)
        if cpu_ns(instance, sandbox) - used < 0.05e9 * (time.monotonic() - begin):
            return begin - start
        assert begin - start < 20, "it still burns"


@EVERY
def test_the_cpu_comes_back_after_a_limit(instance, box, way):
    """Promised within two seconds."""
    assert way(instance, box, command=BURN, timeout=1)[2] == "TIMED_OUT"
    assert quiet_after(instance, box) < 4


def test_the_cpu_comes_back_after_terminate(instance, box):
    record = background(instance, box, BURN)
    used = cpu_ns(instance, box)
    until(lambda: cpu_ns(instance, box) - used > 0.5e9, "it burns")
    answer = instance.api("POST", f"/sandboxes/{box['id']}/commands/{record['id']}/terminate",
                          {"grace": 1})
    assert answer.status == 200, answer
    assert quiet_after(instance, box) < 4
