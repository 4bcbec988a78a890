"""shell, command signal and command stdin of the command line tool; the first part against a fake API,
the second against a real instance."""

import json
import os
import signal
import subprocess
import threading
import time
import termios

import pytest

from cli_kit import (CM, SKERRY, W, Cli, Terminal, cli, fake, finish, json_error,  # noqa: F401
                     terminal, wait_for)
from fake_api import error

TERMINAL = W + "/sandboxes/hello/terminal"
EXEC = W + "/sandboxes/hello/exec"
COMMAND = f"{W}/sandboxes/hello/commands/{CM['id']}"


class Shell:
    """The other end: echoes what is typed; ! breaks the connection, ctrl-D ends it."""

    def __init__(self, fake, greeting=b"prompt> "):
        self.sizes, self.typed, self.greeting, self.signals = [], b"", greeting, []
        fake.socket(TERMINAL, lambda request, ws: self.talk(request, ws, b""))
        fake.socket(EXEC, self.again)
        fake.route("POST", COMMAND + "/signal", self.signalled)

    def signalled(self, request):
        self.signals.append(request.json["signal"])
        return 204, {}, b""

    def again(self, request, ws):
        request.first = ws.next_json()
        self.talk(request, ws, b"\1")

    def talk(self, request, ws, channel):
        ws.json("started", id=CM["id"], warnings=[])
        ws.bytes(channel + self.greeting)
        while True:
            opcode, data = ws.next()
            if not opcode or opcode == 8:
                return
            if opcode == 1:
                self.sizes.append(json.loads(data))
                continue
            assert not channel or data[:1] == b"\0"
            data = data[len(channel):]
            self.typed += data
            if b"!" in data:
                return ws.cut()
            if b"\4" in data:
                return finish(ws, 6)
            ws.bytes(channel + data)


def open_shell(terminal, *words):
    t = terminal("shell", "hello", *words)
    t.read_until(b"prompt> ")
    wait_for(t.raw)
    return t


def test_a_shell(fake, terminal):
    shell = Shell(fake)
    t = open_shell(terminal, "--user", "dev", "--cwd", "/a b")
    assert fake.requests[0].query == {
        "cols": "100", "rows": "30", "term": "screen", "user": "dev", "cwd": "/a b"}
    t.type(b"\x03\x1aab\r")
    t.read_until(b"ab\r")
    termios.tcsetwinsize(t.side, (40, 120))
    wait_for(lambda: shell.sizes)
    assert shell.sizes == [{"type": "resize", "cols": 120, "rows": 40}]
    t.type(b"\4")
    assert t.wait() == 6 and t.restored()
    assert shell.typed == b"\x03\x1aab\r\4"


def test_only_on_a_terminal(fake, cli):
    p = cli("shell", "hello")
    assert p.returncode == 125
    assert b"not a terminal" in p.stderr and b"skerry exec hello -- COMMAND" in p.stderr
    assert fake.requests == []


def test_usage(fake, terminal):
    for words, hint in ((["--attach", "cm1", "--user", "x"], b"--attach"),
                        (["--format", "json"], b"JSON"),
                        (["--detach-keys", "ctrl-"], b"ctrl-p,ctrl-q"),
                        (["--detach-keys", "F1"], b"ctrl-p,ctrl-q")):
        t = terminal("shell", "hello", *words)
        assert t.wait() == 125 and hint in t.out, words
        assert t.restored()
    assert fake.requests == []


def test_refusals(fake, terminal):
    fake.route("GET", TERMINAL,
               lambda r: error(409, "the sandbox is STOPPED", code="sandbox_stopped"))
    t = terminal("shell", "hello")
    assert t.wait() == 125 and b"skerry start hello" in t.out and t.restored()


def test_a_break_shows_nothing_twice(fake, terminal):
    """By offsets, which the terminal's own way of attaching does not have."""
    shell = Shell(fake)
    t = open_shell(terminal)
    t.type(b"abc")
    t.read_until(b"abc")
    t.type(b"!")
    t.read_until(b"abcprompt> ")
    wait_for(lambda: shell.sizes)
    assert fake.requests[1].first == {"id": CM["id"], "offset": {"stdout": 11, "stderr": 0}}
    t.type(b"x\4")
    assert t.wait() == 6 and t.restored()


def test_attach(fake, terminal):
    Shell(fake)
    t = open_shell(terminal, "--attach", CM["id"])
    assert fake.requests[0].query == {"cols": "100", "rows": "30", "id": CM["id"]}
    t.type(b"!")
    t.read_until(b"prompt> prompt> ")
    assert fake.requests[1].query["id"] == CM["id"]
    t.type(b"\4")
    assert t.wait() == 6 and t.restored()


def test_a_shell_that_is_gone(fake, terminal):
    Shell(fake)
    t = open_shell(terminal)
    del fake.routes["WS", EXEC]
    t.type(b"!")
    assert t.wait() == 125 and t.restored()
    assert f"skerry shell hello --attach {CM['id']}".encode() in t.out


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_ended_from_outside(fake, terminal, name):
    """Shells do not heed SIGTERM: the command hears of a terminal that hung up, and we go."""
    shell = Shell(fake)
    t = open_shell(terminal)
    number = getattr(signal, "SIG" + name)
    t.p.send_signal(number)
    assert t.wait() == 128 + number and t.restored() and shell.signals == ["HUP"]


def test_a_terminal_that_hangs_up(fake, terminal):
    """A closed window."""
    shell = Shell(fake)
    t = open_shell(terminal)
    os.close(t.side)
    os.close(t.main)
    assert t.p.wait(30) == 128 + signal.SIGHUP
    assert shell.signals == ["HUP"]
    t.main, t.side = os.pipe()


def test_detach_keys(fake, terminal):
    shell = Shell(fake)
    t = open_shell(terminal, "--detach-keys", "ctrl-p,ctrl-q")
    t.type(b"a\x10b\x10\x10c")  # no sequence yet
    t.read_until(b"a\x10b\x10\x10c")
    t.type(b"\x10")
    time.sleep(0.2)
    t.type(b"\x11")
    assert t.wait() == 0 and t.restored()
    assert f"skerry shell hello --attach {CM['id']}".encode() in t.out
    assert shell.typed == b"a\x10b\x10\x10c"


def test_no_detach_keys_unless_asked_for(fake, terminal):
    shell = Shell(fake)
    t = open_shell(terminal)
    t.type(b"\x10\x11\4")
    assert t.wait() == 6 and shell.typed == b"\x10\x11\4"


# --- command signal and command stdin ------------------------------------------------------------

@pytest.mark.parametrize("word", ["USR1", "usr1", "SIGUSR1", "sigusr1"])
def test_signal(fake, cli, word):
    fake.route("POST", COMMAND + "/signal", lambda r: (204, {}, b""))
    p = cli("command", "signal", "hello", CM["id"], word)
    assert (p.returncode, p.stdout, p.stderr) == (0, b"", b"")
    assert fake.requests[0].json == {"signal": "USR1"}


def test_signal_refused(fake, cli):
    fake.route("POST", COMMAND + "/signal",
               lambda r: error(409, "it has ended", code="command_ended"))
    p = cli("command", "signal", "hello", CM["id"], "INT", "--format", "json")
    assert p.returncode == 1 and json_error(p)["code"] == "command_ended"
    assert cli("command", "signal", "hello", CM["id"]).returncode == 2


@pytest.mark.parametrize("data", [b"", b"a\n", bytes(range(256)) * 40000])
def test_stdin(fake, cli, data):
    fake.route("POST", COMMAND + "/stdin", lambda r: (204, {}, b""))
    p = cli("command", "stdin", "hello", CM["id"], input=data)
    assert (p.returncode, p.stdout, p.stderr) == (0, b"", b"")
    assert fake.requests[0].body == data and fake.requests[0].query == {}
    assert fake.requests[0].headers["Content-Type"] == "application/octet-stream"
    cli("command", "stdin", "--eof", "hello", CM["id"], input=data)
    assert fake.requests[1].query == {"eof": "true"}


# --- against a real instance ---------------------------------------------------------------------

@pytest.fixture
def real(instance, tmp_path):
    cli = Cli(tmp_path, f"http://127.0.0.1:{instance.port}")
    cli.env["SKERRY_TOKEN"] = instance.token
    return cli


@pytest.fixture
def real_shell(real, sandbox):
    made = []

    def make(*words):
        made.append(Terminal(real, *words))
        return made[-1]

    make.name = sandbox["identifier"]
    yield make
    for t in made:
        t.close()


def words_of(t, line, end):
    """Types a line whose result, not the line itself, has `end` in it."""
    t.type(line)
    t.read_until(end)


def test_real_shell(real, real_shell):
    t = real_shell("shell", real_shell.name)
    words_of(t, b"stty size; echo $TERM-$((6*7))\r", b"screen-42")
    assert b"30 100" in t.out
    termios.tcsetwinsize(t.side, (40, 120))
    time.sleep(0.3)
    words_of(t, b"stty size; echo $((7*7))\r", b"49")
    assert b"40 120" in t.out
    words_of(t, b"sleep 600 || echo woken-$((2*2))\r", b"600")
    time.sleep(0.5)
    t.type(b"\x03")
    words_of(t, b"echo alive-$((3*3))\r", b"alive-9")
    t.type(b"exit 17\r")
    assert t.wait() == 17 and t.restored()


def test_real_shell_is_left_and_taken_up(real, real_shell):
    name = real_shell.name
    t = real_shell("shell", name, "--detach-keys", "ctrl-p,ctrl-q")
    words_of(t, b"x=kept; echo seen-$((5*5))\r", b"seen-25")
    t.type(b"\x10\x11")
    assert t.wait() == 0 and t.restored()
    command = real("command", "list", name, "-q", "--limit", "1").stdout.decode().strip()
    assert command.encode() in t.out
    t = real_shell("shell", name, "--attach", command)
    t.read_until(b"seen-25")  # the replay
    words_of(t, b"echo $x-$((8*8))\r", b"kept-64")
    t.type(b"exit 3\r")
    assert t.wait() == 3
    t = real_shell("shell", name, "--attach", command)  # ended: its end is told again
    assert t.wait() == 3 and t.restored()


def test_real_shell_hang_up_ends_it(real, real_shell):
    name = real_shell.name
    t = real_shell("shell", name)
    words_of(t, b"echo $((9*9))\r", b"81")
    t.p.send_signal(signal.SIGHUP)
    assert t.wait() == 129 and t.restored()
    command = real("command", "list", name, "-q", "--limit", "1").stdout.decode().strip()
    shown = real("command", "status", name, command, "--wait", "10").stdout
    assert b"INPROGRESS" not in shown, shown


def test_real_exec_on_a_terminal(real, real_shell):
    t = real_shell("exec", "-it", real_shell.name, "--", "sh", "-c",
                   "tty; stty size; read x; echo got-$x; exit 4")
    t.read_until(b"30 100")
    t.type(b"line\r")
    assert t.wait() == 4 and b"got-line" in t.out and t.restored()
    assert b"/dev/pts/" in t.out


def test_real_signal_and_stdin(real, instance, sandbox):
    name = sandbox["identifier"]
    answer = instance.api("POST", f"/sandboxes/{name}/commands", {
        "command": "trap 'echo caught' USR1; while read x; do echo got $x; done; sleep 1; echo over",
        "stdin_open": True})
    command = answer.json["id"]
    log = lambda: real("command", "logs", name, command).stdout
    assert real("command", "stdin", name, command, input=b"one\n").returncode == 0
    wait_for(lambda: log() == b"got one\n")
    assert real("command", "signal", name, command, "usr1").returncode == 0
    # a typed line arrives when it is typed
    p = subprocess.Popen([SKERRY, "command", "stdin", "--eof", name, command], env=real.env,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b"two\n")
    p.stdin.flush()
    wait_for(lambda: b"got two\n" in log())
    assert p.communicate(b"three\n", timeout=30) == (b"", b"") and p.returncode == 0
    assert b"exit code\t0\n" in real("command", "status", name, command, "--wait", "30").stdout
    assert log().endswith(b"got three\nover\n") and b"caught" in log()
    p = real("command", "signal", name, command, "INT")
    assert p.returncode == 1 and b"ended" in p.stderr
