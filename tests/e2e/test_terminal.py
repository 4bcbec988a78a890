"""Terminals: GET terminal, and GET exec with `tty`."""

import concurrent.futures
import contextlib
import hashlib
import os
import re
import time

import pytest

import ws
from kit import (background, command_state, execute, finished, inside, output, sandbox_pid,
                 until, usage)
from ws import BINARY, STDERR, TEXT, Exec, Terminal

BOTH = pytest.mark.parametrize("unix", [True, False], ids=["unix", "tcp"])


def terminate(instance, box, session, grace=0):
    return instance.api("POST", f"/sandboxes/{box['id']}/commands/{session.started['id']}/terminate",
                        {"grace": grace})


@pytest.fixture
def terminal(instance, box):
    """Terminals that end with the test, whatever became of their clients."""
    made = []

    def make(unix=True, **query):
        session = Terminal(instance, box, unix, **query)
        made.append(session)
        return session.until(lambda s: s.started)

    yield make
    for session in made:
        session.wire.abort()
        if session.started:
            terminate(instance, box, session)


@pytest.fixture
def tty(instance, box):
    """Sessions of GET exec with a terminal, which end with their clients."""
    with contextlib.ExitStack() as stack:
        yield lambda command=None, unix=True, **first: stack.enter_context(
            Exec(instance, box, unix, tty=True, kill_on_disconnect=True,
                 **({"command": command} if command else {}), **first))


def refused(instance, box, unix=True, **query):
    """The answer instead of the upgrade."""
    with pytest.raises(ws.Refused) as caught:
        Terminal(instance, box, unix, **query).wire.abort()
    return caught.value


def screen(session):
    """What a person would read: no escape sequences, no carriage returns."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\].*?(\x07|\x1b\\)|\r", "",
                  session.out.decode(errors="replace"))


# --- what it is ----------------------------------------------------------------------------------

@BOTH
def test_it_is_a_terminal(instance, box, terminal, unix):
    shell = terminal(unix)
    assert shell.started["status"] == "INPROGRESS" and "timeout" not in shell.started
    assert re.fullmatch(r"/dev/pts/\d+\r\n", shell.say("tty"))
    assert shell.say("test -t 0 && test -t 1 && test -t 2; echo $?") == "0\r\n"
    assert shell.say("echo through >/dev/tty; read -t 0.01 x </dev/tty") == "through\r\n"
    assert shell.say("[ $(ps -o sid= -p $$) = $$ ]; echo $?") == "0\r\n"
    assert shell.say("ps -o tty= -p $$").strip() == shell.say("tty").strip()[5:]
    assert shell.say("stat -c %U $(tty)") == "skerry\r\n"
    assert command_state(instance, box, shell.started)["status"] == "INPROGRESS"


def test_defaults(terminal):
    shell = terminal()
    assert shell.say("stty size") == "24 80\r\n"
    assert shell.say("id -un; pwd; echo $HOME $TERM $SHELL") == \
        "skerry\r\n/workspace\r\n/home/skerry xterm-256color /bin/bash\r\n"
    assert shell.say("locale charmap; shopt -q login_shell; echo $?") == "UTF-8\r\n0\r\n"


def test_parameters(terminal):
    shell = terminal(user="root", cwd="/var/tmp", term="vt100", cols=132, rows=43)
    assert shell.started["user"] == "root" and shell.started["cwd"] == "/var/tmp", shell.started
    assert shell.say("id -un; pwd; echo $TERM; stty size") == \
        "root\r\n/var/tmp\r\nvt100\r\n43 132\r\n"


@pytest.mark.parametrize("field,values", [
    ("cols", ["-1", "4097", "x", "1.5", "", "99999999999999999999", " 80", "0x50"]),
    ("rows", ["-1", "4097", "x"]), ("user", ["", "x" * 65]), ("cwd", ["", "relative", "/" + "x" * 1100]),
    ("term", ["", "a b", "x;y", "../x", "é", "x" * 65]), ("id", ["", "x", "cm", "sb" + "a" * 20]),
    ("nonsense", ["1"])])
def test_bad_parameters(instance, box, field, values):
    for value in values:
        answer = refused(instance, box, **{field: value})
        assert answer.status == 400 and answer.error["field"] == field, (value, answer)


@pytest.mark.parametrize("field,value", [("user", "ghost"), ("cwd", "/no/such"),
                                         ("cwd", "/etc/passwd"), ("cwd", "/root")])
def test_what_only_the_sandbox_knows(instance, box, field, value):
    with Terminal(instance, box, **{field: value}) as session:
        session.finish()
    assert [e["type"] for e in session.events] == ["error"], session.summary()
    assert session.error["status"] == 400 and session.error["field"] == field, session.error
    assert value in session.error["message"] and session.code == ws.REFUSED, session.summary()


def test_job_control(terminal):
    shell = terminal()
    shell.say("set -o | grep monitor")
    assert re.search(r"monitor\s+on", screen(shell)), shell.summary()
    assert "job control" not in screen(shell) and "process group" not in screen(shell)
    shell.say("sleep 4600 & sleep 0.1")
    assert re.search(r"\[1\].*Running.*sleep 4600", shell.say("jobs"))
    shell.type("fg\r")
    time.sleep(0.3)
    shell.type("\x1a")
    shell.until(lambda s: re.search(r"\[1\]\+\s+Stopped", screen(s)))
    assert "Stopped" in shell.say("jobs")
    shell.say("kill %1; wait")


def test_ctrl_c_reaches_the_foreground_only(instance, box, terminal):
    shell = terminal()
    shell.say("sleep 4601 & sleep 0.1")
    shell.type("sleep 4602\r")
    until(lambda: inside(instance, box, "^sleep 4602"), "it runs")
    shell.type("\x03")
    until(lambda: not inside(instance, box, "^sleep 4602"), "it is ended")
    shell.type("code=$?\r")
    assert shell.say("echo $code") == "130\r\n"
    assert len(inside(instance, box, "^sleep 4601")) == 1
    shell.say("sleep 4603 & disown; sleep 0.1")
    assert len(inside(instance, box, "^sleep 4603")) == 1


def test_signals_reach_the_foreground_only(instance, box, terminal):
    shell = terminal()
    path = f"/sandboxes/{box['id']}/commands/{shell.started['id']}/signal"
    shell.say("sleep 4604 & sleep 0.1")
    for way in (lambda: shell.signal("TERM"),
                lambda: instance.api("POST", path, {"signal": "SIGTERM"})):
        shell.type("sleep 4605\r")
        until(lambda: inside(instance, box, "^sleep 4605"), "it runs")
        way()
        until(lambda: not inside(instance, box, "^sleep 4605"), "it is ended")
        shell.type("code=$?\r")
        assert shell.say("echo $code") == "143\r\n"
    assert len(inside(instance, box, "^sleep 4604")) == 1


# --- its size ------------------------------------------------------------------------------------

@pytest.mark.parametrize("cols,rows", [(200, 50), (1, 1), (4096, 4096), (80, 24), (1, 4096)])
def test_the_size_is_right_at_the_first_byte(instance, box, terminal, tty, cols, rows):
    session = tty("stty size", cols=cols, rows=rows)
    session.finish()
    assert session.out == f"{rows} {cols}\r\n".encode(), session.summary()
    path = "/home/skerry/.bash_profile"
    execute(instance, box, f"echo 'stty size >/tmp/size' >{path}")
    try:
        terminal(cols=cols, rows=rows)
        until(lambda: execute(instance, box, "cat /tmp/size")["stdout"] == f"{rows} {cols}\n",
              "the size that the first program saw")
    finally:
        execute(instance, box, f"rm -f {path} /tmp/size")


def test_no_size_is_the_usual_one(terminal, tty):
    for query in ({"cols": 0, "rows": 0}, {"cols": 0}, {}):
        assert terminal(**query).say("stty size") == "24 80\r\n"
        session = tty("stty size", **query)
        session.finish()
        assert session.out == b"24 80\r\n"


def test_resizing(terminal):
    shell = terminal(cols=200, rows=50)
    assert shell.say("stty size") == "50 200\r\n"
    shell.say("trap 'seen=$((seen+1))' WINCH")
    for cols, rows in ((90, 30), (1, 1), (4096, 4096), (80, 25)):
        before = int(shell.say("echo $((seen))"))
        shell.resize(cols, rows)
        seen = []

        def as_asked():
            """Readline writes back the size that it read at a prompt, over one that came between."""
            seen.append(shell.say("stty size"))
            if len(seen) == 20:
                shell.resize(cols, rows)
            return seen[-1] == f"{rows} {cols}\r\n"

        with contextlib.suppress(TimeoutError):
            until(as_asked, "the new size")
        assert seen[-1] == f"{rows} {cols}\r\n", (seen[-3:], shell.summary())
        assert int(shell.say("echo $((seen))")) > before
    shell.resize(0, 0)
    until(lambda: shell.say("stty size; echo $COLUMNS") == "24 80\r\n80\r\n", "the usual size")


def test_resizing_is_told_to_what_runs(tty):
    session = tty("trap 'stty size' WINCH; echo up; while :; do sleep 0.02; done", cols=200, rows=50)
    session.until_out(b"up\r\n")
    start = time.monotonic()
    session.resize(90, 30)
    session.until_out(b"up\r\n30 90\r\n")
    assert time.monotonic() - start < 0.2
    for n in range(200):
        session.resize(100 + n, 40)
    session.until_out(b"40 299\r\n")


def test_bad_sizes_end_the_session_only(instance, box, terminal):
    shell = terminal()
    shell.resize(4097, 1)
    shell.finish()
    assert shell.error["field"] == "cols" and shell.code == ws.REFUSED, shell.summary()
    assert command_state(instance, box, shell.started)["status"] == "INPROGRESS"


# --- what is typed -------------------------------------------------------------------------------

def ready_to_take(session, size):
    session.type(f"stty raw -echo; echo re''ady; head -c {size} | sha256sum; stty sane\r")
    return session.until_out(b"ready\n")


@BOTH
def test_a_paste_is_byte_exact(terminal, unix):
    shell = ready_to_take(terminal(unix), 200_000)
    data = os.urandom(200_000)
    shell.type(data)
    shell.until_out(hashlib.sha256(data).hexdigest().encode())
    assert shell.say("echo on") == "on\r\n"


def test_a_large_paste_is_byte_exact(tty):
    size = 4 << 20
    session = tty(f"stty raw -echo; echo ready; head -c {size} | sha256sum").until_out(b"ready\n")
    data = os.urandom(size)
    session.input(data)
    done = session.finish()
    assert done["exit_code"] == 0 and hashlib.sha256(data).hexdigest().encode() in session.out


def test_typed_before_a_close(instance, box, terminal):
    shell = terminal()
    shell.say("true")
    shell.type("exit 3\r")
    shell.wire.close()
    assert finished(instance, box, shell.started, 10)["exit_code"] == 3


@BOTH
def test_single_keys_keep_their_order(terminal, unix):
    shell = ready_to_take(terminal(unix), 5000)
    keys = bytes(os.urandom(5000))
    for key in keys:
        shell.type(bytes([key]))
    shell.until_out(hashlib.sha256(keys).hexdigest().encode())


def test_typed_with_the_request(instance, box):
    with Terminal(instance, box, early=ws.frame(BINARY, b"echo ear''ly; exit 4\r")) as session:
        done = session.finish()
    assert done["exit_code"] == 4 and b"early\r\n" in session.out, session.summary()


def test_empty_frames(terminal):
    shell = terminal()
    for _ in range(10):
        shell.wire.send(BINARY, b"")
    assert shell.say("echo on") == "on\r\n"


def test_characters(terminal):
    shell = terminal()
    assert shell.say("printf '┌─┐ 測🙂\\n'") == "┌─┐ 測🙂\r\n"
    shell.type("read x; echo \"[$x]\"\r")
    time.sleep(0.3)
    shell.type("aé測\x7f\x7fb\r")
    shell.until_out(b"[ab]\r\n")


def test_raw_output_is_byte_exact(tty):
    data = bytes(range(256)) * 40
    session = tty("import os, tty\ntty.setraw(1)\nd = bytes(range(256)) * 40\n"
                  "while d: d = d[os.write(1, d):]\n", runtime="PYTHON")
    done = session.finish()
    assert done["exit_code"] == 0 and session.out == data
    assert done["stdout_bytes"] == len(data) and done["stderr_bytes"] == 0, done


@BOTH
def test_much_output(tty, unix):
    session = tty("stty raw; head -c 8M /dev/urandom >/tmp/pr; cat /tmp/pr; sha256sum /tmp/pr", unix)
    session.finish()
    size = 8 << 20
    assert session.dropped == [] and len(session.out) > size
    assert session.out[size:size + 64].decode() == hashlib.sha256(session.out[:size]).hexdigest()


# --- its end -------------------------------------------------------------------------------------

@pytest.mark.parametrize("typed,code", [("exit 7\r", 7), ("\x04", 0), ("exec true\r", 0),
                                        ("exec false\r", 1), ("kill -9 $$\r", 137),
                                        ("kill -HUP $$\r", 129)])
def test_exit_codes(instance, box, terminal, typed, code):
    shell = terminal()
    shell.say("true")
    shell.type(typed)
    done = shell.finish()
    assert done["exit_code"] == code and shell.code == ws.DONE, shell.summary()
    assert command_state(instance, box, shell.started)["exit_code"] == code


@pytest.mark.parametrize("child", [
    "sleep 4610 & disown", "nohup sleep 4610 >/dev/null 2>&1 & disown",
    "setsid sleep 4610 & sleep 0.2", "(trap '' HUP TERM; setsid sleep 4610 &) ; sleep 0.2",
    "(trap '' HUP; exec setsid nohup sh -c 'while :; do echo noise; sleep 4610; done' &); sleep 0.2"])
def test_a_child_that_holds_the_terminal_does_not_hold_the_exit(instance, box, terminal, child):
    shell = terminal()
    shell.say(child)
    start = time.monotonic()
    shell.type("exit 5\r")
    done = shell.finish()
    assert time.monotonic() - start < 5
    assert done["exit_code"] == 5 and shell.code == ws.DONE, shell.summary()
    answer = terminate(instance, box, shell)
    assert answer.status in (200, 409), answer
    until(lambda: not inside(instance, box, "sleep 4610"), "what it left is gone")


def test_terminating(instance, box, terminal):
    shell = terminal()
    shell.say("(trap '' HUP TERM INT; setsid sleep 4611 &) ; sleep 4611 & sleep 0.2")
    assert len(inside(instance, box, "^sleep 4611")) == 2
    answer = terminate(instance, box, shell, grace=1)
    assert answer.status == 200 and answer.json["status"] == "FAILED", answer
    done = shell.finish()
    assert done["exit_code"] in (129, 137, 143) and shell.code == ws.DONE, shell.summary()
    assert inside(instance, box, "sleep 4611") == []
    assert inside(instance, box, r"^-?(/bin/)?bash( -l|$)") == []


def test_a_sandbox_that_is_stopped(instance, new_sandbox):
    sandbox = new_sandbox()
    with Terminal(instance, sandbox) as shell:
        shell.say("true")
        assert instance.api("POST", f"/sandboxes/{sandbox['id']}/stop", {"grace": 1}).status == 200
        done = shell.finish()
    assert done["status"] == "FAILED" and shell.code == ws.DONE, shell.summary()
    assert refused(instance, sandbox).status == 409


def terminals_inside(instance, box):
    names = execute(instance, box, "ls /dev/pts")["stdout"].split()
    return sorted(n for n in names if n != "ptmx")


def test_ends_at_any_moment(instance, box, terminal):
    before = terminals_inside(instance, box)
    daemon, init = instance.children["daemon"].pid, sandbox_pid(instance, box)
    usages = usage(daemon, init)
    shell = terminal()
    shell.type("yes | head -c 100M\r")
    shell.until_out(b"y\r\ny\r\n")
    shell.wire.close()
    terminate(instance, box, shell)
    shell = terminal()
    shell.type("yes\r")
    shell.until_out(b"y\r\ny\r\n")
    shell.wire.abort()
    assert terminate(instance, box, shell).status == 200
    shell = terminal()
    shell.wire.close()
    with contextlib.suppress(OSError):
        shell.wire.close()
    terminate(instance, box, shell)
    shell = terminal()
    shell.type("exit\r")
    shell.until_out(b"exit\r\n")
    shell.wire.close()
    finished(instance, box, shell.started, 20)
    shell = terminal()
    shell.wire.abort()
    terminate(instance, box, shell)
    assert execute(instance, box, "true")["exit_code"] == 0
    until(lambda: terminals_inside(instance, box) == before, "no terminal is left")
    until(lambda: usage(daemon, init) <= usages, "nor a descriptor")


def many(instance, box, count):
    before, init = terminals_inside(instance, box), sandbox_pid(instance, box)
    usages = usage(init)
    with contextlib.ExitStack() as stack:
        def one(number):
            shell = Terminal(instance, box, unix=number % 2 == 0)
            stack.callback(shell.wire.abort)
            return shell.until(lambda s: s.started)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            shells = list(pool.map(one, range(count)))
            names = list(pool.map(lambda s: s.say("tty", 120), shells))
            assert len(set(names)) == count
            for number, shell in enumerate(shells):
                shell.type(f"exit {number % 200}\r")
            codes = list(pool.map(lambda s: s.finish(120)["exit_code"], shells))
            assert codes == [n % 200 for n in range(count)]
    assert terminals_inside(instance, box) == before
    until(lambda: usage(init) <= usages, "no descriptor is left")


def test_forty_terminals(instance, box):
    many(instance, box, 40)


@pytest.mark.long
def test_five_hundred_terminals(instance, box):
    for _ in range(5):
        many(instance, box, 100)


# --- attaching again -----------------------------------------------------------------------------

@pytest.mark.parametrize("unix,reset", [(True, False), (False, False), (False, True)])
def test_detached_and_taken_up(instance, box, terminal, unix, reset):
    shell = terminal(unix)
    shell.say("marker=kept; cd /tmp")
    shell.type("sleep 1; echo la''ter\r")
    shell.until_out(b"sleep 1")
    shell.wire.abort(reset)
    time.sleep(1.5)
    again = terminal(unix, id=shell.started["id"])
    assert again.started["id"] == shell.started["id"]
    again.until_out(b"later\r\n")
    assert again.out.startswith(shell.out), "the replay shows what was there"
    assert again.say("echo $marker; pwd") == "kept\r\n/tmp\r\n"
    again.type("exit 6\r")
    assert again.finish()["exit_code"] == 6


def test_taken_up_with_another_size(terminal):
    shell = terminal(cols=100, rows=40)
    shell.say("true")
    again = terminal(id=shell.started["id"], cols=90, rows=30)
    until(lambda: again.say("stty size") == "30 90\r\n", "the size of who came last")
    again.say("trap 'echo win''ch' WINCH")
    third = terminal(id=shell.started["id"], cols=90, rows=30)
    again.until_out(b"winch\r\n")
    third.until_out(b"winch\r\n")


def test_the_replay_is_bounded(terminal):
    shell = terminal()
    shell.say("for i in $(seq 20000); do echo line $i; done")
    shell.wire.abort()
    again = terminal(id=shell.started["id"])
    again.until_out(b"line 20000\r\n")
    assert 32 * 1024 < len(again.out) <= 64 * 1024 + 100
    assert re.match(rb"line \d+\r\nline \d+\r\n", again.out), again.out[:50]
    assert again.dropped == [] and again.say("echo on") == "on\r\n"


def test_two_viewers_see_the_same(terminal):
    first = terminal()
    first.say("true")
    others = [terminal(unix, id=first.started["id"]) for unix in (True, False)]
    first.say("head -c 300k /dev/urandom | base64")
    others[0].type("echo typed by an''other\r")
    for session in (first, *others):
        session.until_out(b"typed by another\r\n")
    first.type("exit 9\r")
    for session in (first, *others):
        assert session.finish()["exit_code"] == 9 and session.dropped == [], session.summary()
        assert session.out == first.out


def test_a_viewer_that_leaves_ends_nothing(terminal):
    first = terminal()
    second = terminal(id=first.started["id"])
    second.wire.abort()
    assert first.say("echo on") == "on\r\n"


def test_taken_up_after_the_end(instance, box, terminal):
    shell = terminal()
    shell.say("echo out")
    shell.type("exit 3\r")
    shell.finish()
    with Terminal(instance, box, id=shell.started["id"]) as again:
        assert again.finish()["exit_code"] == 3 and again.code == ws.DONE
    assert again.out == shell.out
    assert output(instance, box, shell.started) == shell.out


def test_ids_that_are_none(instance, box, new_sandbox):
    answer = refused(instance, box, id="cm" + "a" * 20)
    assert answer.status == 404, answer
    made = background(instance, box, "sleep 4620")
    answer = refused(instance, box, id=made["id"])
    assert answer.status == 400 and answer.error["code"] == "not_a_terminal", answer
    assert answer.error["field"] == "id", answer
    instance.api("POST", f"/sandboxes/{box['id']}/commands/{made['id']}/terminate", {"grace": 0})
    other = new_sandbox()
    with Terminal(instance, other) as shell:
        shell.say("true")
        assert refused(instance, box, id=shell.started["id"]).status == 404


# --- GET exec with a terminal --------------------------------------------------------------------

@BOTH
def test_exec_with_a_terminal(tty, unix):
    session = tty("test -t 0 && test -t 1 && test -t 2 && tty; echo err >&2; echo $TERM; exit 3",
                  unix)
    done = session.finish()
    assert done["exit_code"] == 3 and session.code == ws.DONE, session.summary()
    assert re.fullmatch(rb"/dev/pts/\d+\r\nerr\r\nxterm-256color\r\n", session.out), session.out
    assert session.data[STDERR] == b"" and "timeout" not in session.started, session.started


def test_exec_with_a_terminal_takes_input(tty):
    session = tty("read x; echo \"[$x]\"; cat; exit 4")
    session.until(lambda s: s.started)
    session.input(b"one\r")
    session.until_out(b"[one]\r\n")
    session.input(b"two\r")
    session.until_out(b"two\r\ntwo\r\n")
    session.input(b"\x04")
    done = session.finish()
    assert done["exit_code"] == 4 and session.error is None, session.summary()


def test_exec_with_a_terminal_and_arguments(tty):
    session = tty(args=["python3", "-c", "import os; print(os.isatty(0), os.get_terminal_size())"],
                  cols=99, rows=33, env={"TERM": "vt220"}, cwd="/tmp", user="root")
    session.finish()
    assert session.out == b"True os.terminal_size(columns=99, lines=33)\r\n", session.summary()
    session = tty("echo $TERM; pwd; id -un", env={"TERM": "vt220"}, cwd="/tmp", user="root")
    session.finish()
    assert session.out == b"vt220\r\n/tmp\r\nroot\r\n", session.summary()


def test_exec_with_a_terminal_and_a_limit(tty):
    session = tty("echo up; sleep 4630", timeout=1)
    done = session.finish()
    assert done["timed_out"] is True and done["exit_code"] == 137, session.summary()
    assert session.started["timeout"] == 1 and session.out == b"up\r\n"


def test_exec_with_a_terminal_ends_with_its_client(instance, box, tty):
    session = tty("trap '' HUP TERM INT; echo up; sleep 4631").until_out(b"up\r\n")
    session.wire.abort()
    record = finished(instance, box, session.started, 20)
    assert record["status"] == "FAILED", record
    until(lambda: inside(instance, box, "sleep 4631") == [], "all of it is gone")


def test_ctrl_c_in_exec_with_a_terminal(tty):
    session = tty("trap 'echo caught; exit 8' INT; echo up; while :; do sleep 0.02; done")
    session.until_out(b"up\r\n")
    session.input(b"\x03")
    done = session.finish()
    assert done["exit_code"] == 8 and session.out.endswith(b"caught\r\n"), session.summary()


def test_a_terminal_taken_up_by_exec(terminal, tty, instance, box):
    """A terminal is a command like others: its bytes are channel 1."""
    shell = terminal()
    shell.say("echo before")
    with Exec(instance, box, id=shell.started["id"]) as other:
        other.until_out(shell.out)
        other.input(b"exit 2\r")
        assert other.finish()["exit_code"] == 2
    shell.finish()
    assert other.out == shell.out and other.err == b""


def test_a_command_of_exec_taken_up_as_a_terminal(tty, terminal):
    session = tty("read x; echo \"<$x>\"").until(lambda s: s.started)
    viewer = terminal(id=session.started["id"])
    viewer.type("from the viewer\r")
    for each in (session, viewer):
        assert each.finish()["exit_code"] == 0 and each.out.endswith(b"<from the viewer>\r\n")


def test_words_that_are_none(terminal):
    shell = terminal()
    shell.wire.send(TEXT, b"ls\r")
    shell.finish()
    assert shell.error["status"] == 400 and shell.code == ws.REFUSED, shell.summary()


def test_an_id_says_all(instance, box, terminal):
    """What was decided at the start cannot be said again."""
    shell = terminal()
    for query in ({"user": "root"}, {"cwd": "/tmp"}, {"term": "vt100"}):
        answer = refused(instance, box, id=shell.started["id"], **query)
        assert answer.status == 400 and answer.error["field"] == next(iter(query)), answer


def test_exec_with_a_terminal_and_an_end_of_input(tty):
    session = tty("cat; echo end")
    session.until(lambda s: s.started)
    session.input(b"x\r")
    session.until_out(b"x\r\nx\r\n")
    session.eof()
    done = session.finish(10)
    assert done["exit_code"] == 0 and session.out.endswith(b"end\r\n"), session.summary()


def test_many_terminals_do_not_use_up_the_control_path(instance, new_sandbox):
    sandbox = new_sandbox()
    with contextlib.ExitStack() as stack:
        shells = []
        for _ in range(140):
            shell = ws.Terminal(instance, sandbox)
            stack.callback(shell.wire.abort)
            shell.until(lambda s: s.events)
            if shell.error:
                break
            shells.append(shell)
            shell.type("echo ty''ped\r")
            shell.until(lambda s: b"typed\r\n" in s.out or s.error)
        answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/commands/"
                                      f"{shells[0].started['id']}/terminate", {"grace": 0})
        assert answer.status == 200, answer
