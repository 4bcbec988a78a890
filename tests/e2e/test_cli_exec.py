"""exec and run of the command line tool against a fake API: streams, exit codes, signals, connections
that break, terminals."""

import json
import os
import select
import signal
import subprocess
import sys
import termios
import threading
import time

import pytest

from cli_kit import (CM, SB, SKERRY, W, Terminal, cli, command, fake, finish,  # noqa: F401
                     json_error, play, serve, terminal, wait_for)
from fake_api import FakeApi, answer, error

EXEC = W + "/sandboxes/hello/exec"
COMMAND = f"{W}/sandboxes/hello/commands/{CM['id']}"


# --- what is asked for ---------------------------------------------------------------------------

def test_words_are_exact(fake, cli):
    command(fake)
    words = ["-n", "\\t", "a b", "$(id)", "`id`", "'\"'", "x\ny", "=x", "😀", "", "--", "--help",
             "-d", "--format"]
    p = cli("exec", "hello", "--user", "dev", "--env", "A=b=c", "-e", "B=", "--cwd", "/tmp",
            "--timeout", "2.5", "--", "prog", *words)
    assert p.returncode == 0, p.stderr
    assert fake.requests[0].first == {
        "args": ["prog", *words], "user": "dev", "env": {"A": "b=c", "B": ""}, "cwd": "/tmp",
        "timeout": 2.5, "stdin_open": True}
    assert fake.requests[0].headers["Authorization"].startswith("Bearer ")
    cli("exec", "hello", "ls", "-la", "--user", "x")
    assert fake.requests[1].first["args"] == ["ls", "-la", "--user", "x"]


def test_shell_forms(fake, cli):
    command(fake)
    cli("exec", "hello", "-c", "a | b")
    cli("exec", "hello", "--shell", "a | b")
    cli("exec", "hello", "--runtime", "python", "-c", "print(1)")
    assert [{k: v for k, v in r.first.items() if k != "stdin_open"} for r in fake.requests] == [
        {"command": "a | b"}, {"command": "a | b"}, {"command": "print(1)", "runtime": "PYTHON"}]
    p = cli("exec", "hello", "ls -la")
    assert p.returncode == 125 and b"-c" in p.stderr
    cli("exec", "hello", "--", "my prog")
    assert fake.requests[-1].first["args"] == ["my prog"]
    assert len(fake.requests) == 4


def test_too_large_a_command(fake, cli):
    """Each argument of a program has a ceiling of its own in Linux, so several make it."""
    p = cli("exec", "hello", "--", "echo", *['"' * 100000] * 6)
    assert p.returncode == 125 and b"1200" in p.stderr and b"twice" in p.stderr
    assert fake.requests == []


def test_unix_socket(tmp_path, cli):
    server = FakeApi(str(tmp_path / "api.sock"))
    try:
        command(server, stdout=b"there\n")
        p = cli("exec", "hello", "x", env={"SKERRY_URL": server.url})
        assert (p.returncode, p.stdout) == (0, b"there\n")
    finally:
        server.close()


def test_url_with_a_path(fake, cli):
    def route(request, ws):
        ws.next_json()
        play(ws, stdout=b"x")

    fake.socket("/deep/er" + EXEC, route)
    assert cli("exec", "hello", "x", env={"SKERRY_URL": fake.url + "/deep/er/"}).stdout == b"x"


# --- output and exit codes -----------------------------------------------------------------------

BYTES = bytes(range(256)) * 3 + b"\x1b[31mred\n\0\0no newline"


def test_bytes_are_exact(fake, cli):
    command(fake, stdout=BYTES, stderr=b"a\n\n\nb\r\nc\0d \xc3\xa9")
    p = cli("exec", "hello", "x")
    assert (p.returncode, p.stdout, p.stderr) == (0, BYTES, b"a\n\n\nb\r\nc\0d \xc3\xa9")


def test_large_output(fake, cli):
    out, err = os.urandom(8 * 1024 * 1024), os.urandom(2 * 1024 * 1024)
    command(fake, stdout=out, stderr=err)
    p = cli("exec", "hello", "x")
    assert p.stdout == out and p.stderr == err


def test_a_slow_reader_holds_the_server_up(fake, cli):
    """What waits is bounded, on our side; and nothing of it is lost."""
    data, sent = os.urandom(1024 * 1024), [0]

    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        for _ in range(64):
            ws.out(data)
            sent[0] += 1
        finish(ws)

    fake.socket(EXEC, route)
    p = cli.start("exec", "hello", "x")
    assert p.stdout.read(10) == data[:10]
    time.sleep(1)
    assert sent[0] < 32
    with open(f"/proc/{p.pid}/stat") as f:
        ticks = sum(map(int, f.read().rsplit(")")[1].split()[11:13]))
    time.sleep(1)
    with open(f"/proc/{p.pid}/stat") as f:
        assert sum(map(int, f.read().rsplit(")")[1].split()[11:13])) - ticks < 20  # it sleeps
    assert p.communicate(timeout=60)[0] == (data * 64)[10:] and p.returncode == 0


def test_a_break_while_nobody_reads(fake, cli):
    """It waits for the reader, without turning round and round, and goes on behind it."""
    data, firsts = os.urandom(4 * 1024 * 1024), []

    def route(request, ws):
        firsts.append(ws.next_json())
        ws.json("started", id=CM["id"])
        at = firsts[-1].get("offset", {}).get("stdout", 0)
        if len(firsts) == 1:
            ws.connection.settimeout(1)
            try:
                ws.out(data)
            except OSError:
                pass
            ws.cut(hard=True)
        else:
            ws.out(data[at:])
            finish(ws)

    fake.socket(EXEC, route)
    p = cli.start("exec", "hello", "x")
    head = p.stdout.read(10)
    time.sleep(2)
    with open(f"/proc/{p.pid}/stat") as f:
        assert sum(map(int, f.read().rsplit(")")[1].split()[11:13])) < 50
    assert head + p.communicate(timeout=60)[0] == data and p.returncode == 0
    assert len(firsts) == 2


def test_order_of_the_streams(fake, cli):
    """What goes to one place keeps its order, also when its reader is slow."""
    lines = [b"%06d\n" % i for i in range(20000)]

    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        for i, line in enumerate(lines):
            ws.out(line, 1 + i % 2)
        finish(ws)

    fake.socket(EXEC, route)
    p = subprocess.Popen([SKERRY, "exec", "hello", "x"], env=cli.env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    time.sleep(0.3)
    assert p.communicate(timeout=60)[0] == b"".join(lines)


def test_output_comes_as_it_is_written(fake, cli):
    go = threading.Event()

    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.out(b"first")
        assert go.wait(30)
        ws.out(b"second", 2)
        finish(ws)

    fake.socket(EXEC, route)
    p = cli.start("exec", "hello", "x")
    assert os.read(p.stdout.fileno(), 100) == b"first"
    go.set()
    assert p.communicate(timeout=30) == (b"", b"second")


@pytest.mark.parametrize("code", [0, 1, 2, 7, 125, 126, 127, 137, 255])
def test_code_is_the_commands(fake, cli, code):
    command(fake, code=code)
    assert cli("exec", "hello", "x").returncode == code
    serve(fake, "POST", "/sandboxes/hello/exec", {"exit_code": code})
    assert cli("--format", "json", "exec", "hello", "x").returncode == code


def test_time_out_and_warnings(fake, cli):
    command(fake, stdout=b"part", code=137, timed_out=True, oom_killed=True,
            started={"timeout": 2, "warnings": ["cwd \x1b[2J is gone"]})
    p = cli("exec", "hello", "x")
    assert (p.returncode, p.stdout) == (137, b"part")
    assert b"time limit of 2 s" in p.stderr and b"out of memory" in p.stderr
    assert b"\x1b" not in p.stderr and b"\\x1b[2J is gone" in p.stderr


def test_dropped_is_told(fake, cli):
    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.out(b"a")
        ws.json("dropped", stream="stdout", bytes=12345)
        ws.out(b"z")
        finish(ws)

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x")
    assert (p.returncode, p.stdout) == (0, b"az")
    assert b"12345 bytes of stdout" in p.stderr


def test_unknown_outcome_is_no_success(fake, cli):
    command(fake, stdout=b"x", code=None, status="FAILED", reason="LOST")
    p = cli("exec", "hello", "x")
    assert (p.returncode, p.stdout) == (125, b"x")
    assert b"nobody knows" in p.stderr and CM["id"].encode() in p.stderr


def test_output_nobody_reads_ends_both(fake, cli):
    """As `yes | head`: no word, the code of SIGPIPE, and the command is ended."""
    ended = threading.Event()

    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        try:
            while not ended.is_set():
                ws.out(b"y\n" * 10000)
        except OSError:
            pass

    def terminate(request):
        ended.set()
        return answer(CM)

    fake.socket(EXEC, route)
    fake.route("POST", COMMAND + "/terminate", terminate)
    p = cli.start("exec", "hello", "yes")
    os.read(p.stdout.fileno(), 10)
    p.stdout.close()
    assert p.wait(30) == 128 + signal.SIGPIPE
    assert p.stderr.read() == b"" and ended.is_set()
    p.stderr.close()


def test_output_that_cannot_be_written(fake, cli):
    command(fake, stdout=b"x" * 100)
    serve(fake, "POST", COMMAND.removeprefix(W) + "/terminate", CM)
    with open("/dev/full", "wb") as full:
        p = subprocess.run([SKERRY, "exec", "hello", "x"], env=cli.env, stdin=subprocess.DEVNULL,
                           stdout=full, stderr=subprocess.PIPE, timeout=30)
    assert p.returncode == 125 and b"No space left" in p.stderr


@pytest.mark.parametrize("closed", [0, 1, 2, (0, 1, 2)])
def test_closed_standard_streams(fake, cli, closed):
    """None of them becomes the connection."""
    got = []

    def route(request, ws):
        got.append(ws.next_json())
        ws.json("started", id=CM["id"])
        assert json.loads(ws.next()[1])["type"] == "eof"
        finish(ws, 7)

    fake.socket(EXEC, route)
    redirect = " ".join(f"{fd}{'<' if not fd else '>'}&-" for fd in
                        (closed if isinstance(closed, tuple) else (closed,)))
    p = subprocess.run(["sh", "-c", f'"$0" exec hello x {redirect}', SKERRY], env=cli.env,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert p.returncode == 7, p.stderr
    assert got == [{"args": ["x"], "stdin_open": True}]


# --- standard input ------------------------------------------------------------------------------

def echo(request, ws):
    """cat: what comes goes back, its end is the end."""
    request.first = ws.next_json()
    ws.json("started", id=CM["id"])
    size = 0
    while True:
        opcode, data = ws.next()
        if opcode != 2:
            break
        assert data[:1] == b"\0"
        size += len(data) - 1
        ws.out(data[1:])
    assert json.loads(data) == {"type": "eof"}
    finish(ws, 0, size=size)


@pytest.mark.parametrize("size", [0, 1, 65536, 64 * 1024 * 1024])
def test_stdin_is_passed_on(fake, cli, size):
    fake.socket(EXEC, echo)
    data = os.urandom(size)
    p = cli("exec", "hello", "--", "cat", input=data)
    assert p.returncode == 0 and p.stdout == data, p.stderr


def test_stdin_from_a_file_and_null(fake, cli, tmp_path):
    fake.socket(EXEC, echo)
    (tmp_path / "in").write_bytes(BYTES)
    for path, data in ((tmp_path / "in", BYTES), ("/dev/null", b"")):
        with open(path, "rb") as f:
            p = subprocess.run([SKERRY, "exec", "hello", "cat"], env=cli.env, stdin=f,
                               capture_output=True, timeout=30)
        assert (p.returncode, p.stdout) == (0, data)
    fd = os.open(tmp_path, os.O_RDONLY)
    p = subprocess.run([SKERRY, "exec", "hello", "cat"], env=cli.env, stdin=fd,
                       capture_output=True, timeout=30)
    os.close(fd)
    assert p.returncode == 0 and b"directory" in p.stderr


def test_stdin_that_stays_open(fake, cli):
    """A command that ends does not wait for it."""
    command(fake, stdout=b"x", code=3)
    r, w = os.pipe()
    p = subprocess.run([SKERRY, "exec", "hello", "x"], env=cli.env, stdin=r, capture_output=True,
                       timeout=30)
    os.close(r)
    os.close(w)
    assert (p.returncode, p.stdout, p.stderr) == (3, b"x", b"")


def test_stdin_nobody_reads(fake, cli):
    """A reader that quits early is an ordinary end."""
    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.next()
        ws.json("error", status=409, code="stdin_closed", message="it has ended")
        time.sleep(0.2)
        ws.out(b"done")
        finish(ws)

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x", input=b"x" * 4_000_000)
    assert (p.returncode, p.stdout, p.stderr) == (0, b"done", b"")


def test_stdin_that_goes_nowhere(fake, cli):
    """The command would wait for the rest for ever."""
    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.next()
        ws.json("error", status=500, code="internal", message="no way to the sandbox")
        while ws.next()[0]:
            pass

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x", input=b"x" * 1000)
    assert p.returncode == 125
    assert b"standard input was not passed on: no way to the sandbox" in p.stderr


def test_terminal_input_is_not_read_unasked(fake, cli):
    command(fake, stdout=b"x")
    out, code = cli.on_terminal("exec", "hello", "x")
    assert (out, code) == (b"x", 0)
    assert "stdin_open" not in fake.requests[0].first
    cli.on_terminal("exec", "-i", "hello", "x")
    assert fake.requests[1].first["stdin_open"] is True
    assert "tty" not in fake.requests[1].first


def test_json_and_background_take_stdin_when_asked(fake, cli):
    serve(fake, "POST", "/sandboxes/hello/exec", {"exit_code": 0})
    serve(fake, "POST", "/sandboxes/hello/commands", CM, 201)
    for words in (["--format", "json"], ["-d"]):
        cli("exec", "hello", "-i", *words, "--", "cat", input="é\0\n\nlast".encode())
        assert fake.requests[-1].json == {"args": ["cat"], "stdin": "é\0\n\nlast"}
        cli("exec", "hello", *words, "--", "cat", input=b"not read")
        assert fake.requests[-1].json == {"args": ["cat"]}
        for data in (b"x" * (1024 * 1024 + 1), b"\xff\xfe", b'"' * (600 * 1024)):
            p = cli("exec", "hello", "-i", *words, "--", "cat", input=data)
            assert p.returncode == 125 and b"request" in p.stderr
        assert b"614400 bytes, which take 1228802" in p.stderr and b"twice" in p.stderr
    assert len(fake.requests) == 4


def test_detached(fake, cli):
    serve(fake, "POST", "/sandboxes/hello/commands", CM, 201)
    p = cli("exec", "-d", "hello", "--", "make")
    assert (p.returncode, p.stdout.decode()) == (0, CM["id"] + "\n")
    assert fake.requests[0].json == {"args": ["make"]}


def test_json(fake, cli):
    data = {"exit_code": 7, "stdout": "a\n", "stderr": "", "stdout_truncated": True,
            "stdout_bytes": 5000000}
    serve(fake, "POST", "/sandboxes/hello/exec", data)
    p = cli("exec", "hello", "--format", "json", "x")
    assert p.returncode == 7 and json.loads(p.stdout) == data
    assert b"5000000 bytes" in p.stderr and b"gone" in p.stderr


@pytest.mark.parametrize("body", [
    [b'{"exit_code": 0, "std', None], [b"not json"], [b'{"exit_code": "0"}'], [b"[]"]])
def test_json_broken_answers(fake, cli, body):
    fake.route("POST", EXEC, lambda r: (200, {"Content-Type": "application/json"}, iter(body)))
    p = cli("exec", "hello", "--format", "json", "x")
    assert p.returncode == 125 and json_error(p)["message"]


# --- refusals ------------------------------------------------------------------------------------

def test_failures_are_125(fake, cli):
    fake.route("GET", EXEC,
               lambda r: error(409, "the sandbox is STOPPED", code="sandbox_stopped", hint="start it"))
    p = cli("exec", "hello", "x")
    assert p.returncode == 125
    assert p.stderr == b"skerry: the sandbox is STOPPED\n  hint: start it: skerry start hello\n"
    for words in (["exec"], ["exec", "hello"], ["exec", "hello", "--nope", "x"],
                  ["exec", "hello", "-c", "a", "b"], ["exec", "hello", "-e", "novalue", "x"],
                  ["exec", "hello", "--timeout", "soon", "x"], ["run", "img"]):
        assert cli(*words).returncode == 125, words
    assert len(fake.requests) == 1


@pytest.mark.parametrize("code, status, expected", [
    ("command_not_found", 400, 127), ("command_not_executable", 400, 126),
    ("command_not_found", 404, 125), ("invalid_field", 400, 125)])
def test_programs_that_cannot_be_begun(fake, cli, code, status, expected):
    def refuse(request, ws):
        ws.next_json()
        ws.json("error", status=status, message="program 'x'", code=code, field="args")
        ws.close(1008)

    fake.socket(EXEC, refuse)
    fake.route("POST", W + "/sandboxes/hello/commands",
               lambda r: error(status, "program 'x'", code=code, field="args"))
    p = cli("exec", "hello", "x")
    assert p.returncode == expected and b"program 'x'" in p.stderr
    p = cli("exec", "-d", "hello", "x", "--format", "json")
    assert p.returncode == expected
    alive = run_routes(fake, refuse)
    p = cli("run", "debian:12", "--", "x")
    assert p.returncode == expected and alive == []


@pytest.mark.parametrize("status, body, words", [
    (426, b'{"errors":[{"message":"no upgrade","code":"upgrade_required"}]}', b"no upgrade"),
    (401, b'{"errors":[{"message":"bad token","code":"unauthorized"}]}', b"skerryd --add-token"),
    (503, b"<html>no server</html>", b"sudo make up"),
    (200, b"welcome", b"answered with status 200"),
])
def test_refused_before_the_handshake(fake, cli, status, body, words):
    fake.route("GET", EXEC, lambda r: (status, {}, body))
    p = cli("exec", "hello", "x")
    assert p.returncode == 125 and words in p.stderr, p.stderr


def raw_server(answers):
    """A server that says `answers` to whatever comes, connection by connection."""
    import socket
    server = socket.create_server(("127.0.0.1", 0))

    def serve_all():
        for text in answers:
            connection, _ = server.accept()
            connection.recv(65536)
            connection.sendall(text)
            connection.close()

    threading.Thread(target=serve_all, daemon=True).start()
    return server


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize("text, words", [
    (SWITCH + b"Upgrade: websocket\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
     b"does not speak WebSocket"),
    (SWITCH + b"Upgrade: websocket\r\n\r\n", b"does not speak WebSocket"),
    (SWITCH + b"\r\n", b"does not speak WebSocket"),
    (b"", b"lost"),
    (b"HTTP/1.1 101", b"lost"),
    (b"SSH-2.0-x\r\n\r\n", b"no HTTP"),
    (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 4000, b"no HTTP"),
    (b"HTTP/1.0 503 No\r\n\r\nno length", b"status 503"),
])
def test_odd_handshakes(cli, text, words):
    server = raw_server([text])
    try:
        p = cli("exec", "hello", "x", env={"SKERRY_URL": "http://127.0.0.1:%d"
                                           % server.getsockname()[1]})
        assert p.returncode == 125 and words in p.stderr, p.stderr
    finally:
        server.close()


def test_no_api(cli):
    p = cli("exec", "hello", "x", env={"SKERRY_URL": "http://127.0.0.1:1"})
    assert p.returncode == 125 and b"cannot reach" in p.stderr and b"skerry doctor" in p.stderr


def test_garbage_is_no_success(fake, cli):
    def route(request, ws):
        ws.next_json()
        ws.frame(1, b"not json")

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x")
    assert p.returncode == 125 and b"not JSON" in p.stderr


def test_a_fault_after_the_start(fake, cli):
    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.out(b"part")
        ws.json("error", status=500, code="internal", message="the disk is gone")
        ws.close(1011)

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x")
    assert (p.returncode, p.stdout) == (125, b"part") and b"the disk is gone" in p.stderr


def test_an_error_that_ends_nothing(fake, cli):
    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.json("error", status=400, code="invalid_field", message="no such size")
        ws.out(b"whole")
        finish(ws, 5)

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x")
    assert (p.returncode, p.stdout) == (5, b"whole") and b"no such size" in p.stderr


# --- connections that break ----------------------------------------------------------------------

class Breaking:
    """A command whose connections break: the n-th is cut behind cuts[n] bytes of each stream."""

    def __init__(self, fake, out, err, cuts, hard):
        self.hard = hard
        self.fake, self.data, self.cuts, self.firsts = fake, (out, err), cuts, []
        fake.socket(EXEC, self.route)

    def route(self, request, ws):
        first = ws.next_json()
        self.firsts.append(first)
        offset = first.get("offset", {"stdout": 0, "stderr": 0})
        at = [offset["stdout"], offset["stderr"]]
        n = len(self.firsts) - 1
        ws.json("started", id=CM["id"], warnings=["told once"])
        for stream, data in enumerate(self.data):
            end = self.cuts[n][stream] if n < len(self.cuts) else len(data)
            ws.out(data[at[stream]:end], stream + 1)
        if n < len(self.cuts):
            ws.cut(self.hard)
        else:
            finish(ws, 9)


@pytest.mark.parametrize("hard", [False, True])
def test_no_byte_twice_none_lost(fake, cli, hard):
    out, err = os.urandom(1_000_000), os.urandom(300_000)
    cuts = [(0, 0), (70_000, 1), (70_001, 1), (900_000, 300_000)]
    broken = Breaking(fake, out, err, cuts, hard)
    p = cli("exec", "hello", "x")
    assert p.returncode == 9 and p.stdout == out
    assert p.stderr.replace(b"skerry: told once\n", b"", 1) == err
    assert broken.firsts[0] == {"args": ["x"], "stdin_open": True}
    offsets = [(f["offset"]["stdout"], f["offset"]["stderr"]) for f in broken.firsts[1:]]
    assert len(offsets) == 4 and offsets == sorted(offsets)
    assert hard or offsets == cuts
    assert all(a <= c and b <= d for (a, b), (c, d) in zip(offsets, cuts))
    assert {f["id"] for f in broken.firsts[1:]} == {CM["id"]}


def test_dropped_counts_for_offsets(fake, cli):
    firsts = []

    def route(request, ws):
        firsts.append(ws.next_json())
        ws.json("started", id=CM["id"])
        if len(firsts) == 1:
            ws.out(b"abc")
            ws.json("dropped", stream="stdout", bytes=1000)
            ws.json("dropped", stream="stderr", bytes=7)
            ws.cut()
        else:
            ws.out(b"z")
            finish(ws)

    fake.socket(EXEC, route)
    assert cli("exec", "hello", "x").stdout == b"abcz"
    assert firsts[1]["offset"] == {"stdout": 1003, "stderr": 7}


@pytest.mark.parametrize("code", [1000, 1001, 1011])
def test_a_close_without_an_end_is_a_break(fake, cli, code):
    """The daemon goes away in order, and comes back."""
    firsts = []

    def route(request, ws):
        firsts.append(ws.next_json())
        ws.json("started", id=CM["id"])
        if len(firsts) == 1:
            ws.out(b"a")
            ws.close(code)
        else:
            ws.out(b"b")
            finish(ws, 4)

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x")
    assert (p.returncode, p.stdout) == (4, b"ab") and len(firsts) == 2


def test_daemon_that_is_away_for_a_while(fake, cli):
    """Refusals of what stands before it, and silence of its port, are waited out."""
    firsts = []

    def route(request, ws):
        firsts.append(ws.next_json())
        ws.json("started", id=CM["id"])
        if len(firsts) == 1:
            del fake.routes["WS", EXEC]
            fake.route("GET", EXEC, lambda r: (503, {}, b"no server"))
            threading.Timer(1, lambda: fake.socket(EXEC, route)).start()
            ws.out(b"a")
            ws.cut()
        else:
            ws.out(b"b")
            finish(ws)

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x")
    assert (p.returncode, p.stdout) == (0, b"ab")
    assert b"trying again" in p.stderr and b"connected again" in p.stderr


def test_a_command_that_is_gone_ends_it(fake, cli):
    asked = []

    def route(request, ws):
        asked.append(ws.next_json())
        if len(asked) == 1:
            ws.json("started", id=CM["id"])
            ws.cut()
        else:
            ws.json("error", status=404, code="command_not_found", message="no such command")
            ws.close(1008)

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x")
    assert p.returncode == 125 and b"no such command" in p.stderr and len(asked) == 2


def test_a_break_before_the_start_is_told(fake, cli):
    fake.socket(EXEC, lambda request, ws: ws.next_json())
    p = cli("exec", "hello", "x")
    assert p.returncode == 125 and b"may have begun" in p.stderr
    assert len(fake.requests) == 1  # it is not run a second time


def test_input_that_may_be_lost_is_told(fake, cli):
    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.out(b"x")
        ws.next()
        ws.cut()

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x", input=b"y" * 1000)
    assert (p.returncode, p.stdout) == (125, b"x")
    assert b"standard input may not have arrived" in p.stderr
    assert f"skerry command logs hello {CM['id']}".encode() in p.stderr
    assert len(fake.requests) == 1


def test_output_before_an_error_is_whole(fake, cli):
    """Also where its reader is slow."""
    data = os.urandom(200_000)

    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.out(data)
        ws.next()
        ws.cut()

    fake.socket(EXEC, route)
    p = cli.start("exec", "hello", "x", stdin=subprocess.PIPE)
    p.stdin.write(b"lost")
    wait_for(lambda: select.select([p.stdout], [], [], 0)[0])
    time.sleep(1)
    out, err = p.communicate(timeout=30)
    assert out == data and p.returncode == 125 and b"may not have arrived" in err


def test_input_that_arrived_is_at_no_risk(fake, cli):
    """A little that was given long ago, and its end: the end is said again, the rest is not."""
    firsts, ends = [], []

    def route(request, ws):
        firsts.append(ws.next_json())
        ws.json("started", id=CM["id"])
        if len(firsts) == 1:
            assert ws.next() == (2, b"\0y")
            ends.append(ws.next_json())
            ws.connection.settimeout(10)
            threading.Timer(3, lambda: ws.connection.shutdown(2)).start()
            ws.next()
            assert ws.pings == 1
        else:
            ends.append(ws.next_json())
            finish(ws, 6)

    fake.socket(EXEC, route)
    p = cli("exec", "hello", "x", input=b"y")
    assert p.returncode == 6, p.stderr
    assert ends == [{"type": "eof"}] * 2


# --- signals -------------------------------------------------------------------------------------

class Signalled:
    """A command that notes the signals it is sent, and ends as `answers` says."""

    def __init__(self, fake, answers):
        self.running, self.ended, self.signals, self.code = (
            threading.Event(), threading.Event(), [], 0)
        self.terminated = []

        def route(request, ws):
            request.first = ws.next_json()
            ws.json("started", id=CM["id"])
            self.running.set()
            while not self.ended.wait(0.01):
                pass
            try:
                finish(ws, self.code)
            except OSError:
                pass

        def signalled(request):
            self.signals.append(request.json["signal"])
            if self.signals[-1] in answers:
                self.code = answers[self.signals[-1]]
                self.ended.set()
            return 204, {}, b""

        def terminate(request):
            self.terminated.append(request.json)
            self.ended.set()
            return answer(CM)

        fake.socket(EXEC, route)
        fake.route("POST", COMMAND + "/signal", signalled)
        fake.route("POST", COMMAND + "/terminate", terminate)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT"])
def test_signals_are_the_commands(fake, cli, name):
    number = getattr(signal, "SIG" + name)
    c = Signalled(fake, {name: 128 + number})
    p = cli.start("exec", "hello", "x")
    assert c.running.wait(30)
    p.send_signal(number)
    assert p.communicate(timeout=30) == (b"", b"")
    assert p.returncode == 128 + number and c.signals == [name] and not c.terminated


def test_a_signal_may_end_nothing(fake, cli):
    c = Signalled(fake, {"TERM": 3})
    p = cli.start("exec", "hello", "x")
    assert c.running.wait(30)
    p.send_signal(signal.SIGINT)
    wait_for(lambda: c.signals == ["INT"])
    time.sleep(2.1)
    p.send_signal(signal.SIGINT)
    wait_for(lambda: c.signals == ["INT", "INT"])
    p.send_signal(signal.SIGHUP)
    wait_for(lambda: c.signals[-1] == "HUP")
    assert p.poll() is None
    time.sleep(2.1)
    p.send_signal(signal.SIGTERM)
    assert p.wait(30) == 3 and not c.terminated
    p.communicate()


def test_twice_means_us(fake, cli):
    c = Signalled(fake, {})
    p = cli.start("exec", "hello", "x")
    assert c.running.wait(30)
    p.send_signal(signal.SIGINT)
    wait_for(lambda: c.signals)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 130 and b"interrupted; the command was ended" in err
    assert c.signals == ["INT"] and c.terminated


def test_ignored_signals_stay_ignored(fake, cli):
    c = Signalled(fake, {"INT": 1})
    p = subprocess.Popen(["nohup", SKERRY, "exec", "hello", "x"], env=cli.env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert c.running.wait(30)
    p.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=30)
    assert p.returncode == 1 and c.signals == ["INT"]


def test_interrupted_before_the_start(fake, cli):
    asked, go = threading.Event(), threading.Event()

    def slow(request, ws):
        ws.next_json()
        asked.set()
        go.wait(30)

    fake.socket(EXEC, slow)
    for number in (signal.SIGINT, signal.SIGTERM):
        asked.clear()
        p = cli.start("exec", "hello", "x")
        assert asked.wait(30)
        p.send_signal(number)
        out, err = p.communicate(timeout=30)
        assert p.returncode == 128 + number
        assert out == b"" and b"runs on" in err and b"skerry command list hello" in err
    go.set()


def test_interrupted_while_connecting(fake, cli):
    asked, go = threading.Event(), threading.Event()

    def slow(request):
        asked.set()
        go.wait(30)
        return error(409, "x")

    fake.route("GET", EXEC, slow)
    p = cli.start("exec", "hello", "x")
    assert asked.wait(30)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=30)
    assert p.returncode == 130
    go.set()


def test_interrupted_while_lost(fake, cli):
    lost = threading.Event()

    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        del fake.routes["WS", EXEC]
        fake.route("GET", EXEC, lambda r: lost.set() or (503, {}, b""))
        ws.cut()

    fake.socket(EXEC, route)
    p = cli.start("exec", "hello", "x")
    assert lost.wait(30)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 130 and b"the command runs on" in err and CM["id"].encode() in err


def test_interrupted_while_nobody_reads(fake, cli):
    """A full pipe does not keep signals from us."""
    full = threading.Event()

    def route(request, ws):
        ws.next_json()
        ws.json("started", id=CM["id"])
        ws.out(b"x" * 200_000)
        full.set()
        while ws.next()[0]:
            pass

    def signalled(request):
        got.append(request.json)
        return 204, {}, b""

    got = []
    fake.socket(EXEC, route)
    fake.route("POST", COMMAND + "/signal", signalled)
    serve(fake, "POST", COMMAND.removeprefix(W) + "/terminate", CM)
    p = cli.start("exec", "hello", "x")
    assert full.wait(30)
    time.sleep(0.2)
    p.send_signal(signal.SIGINT)
    wait_for(lambda: got)
    p.send_signal(signal.SIGINT)
    assert p.wait(30) == 130
    p.communicate()


# --- terminals -----------------------------------------------------------------------------------

class RemoteTerminal:
    """What runs at the other end: echoes, notes sizes, ends with ctrl-D."""

    def __init__(self, fake):
        self.sizes, self.typed, self.running, self.cut = [], b"", threading.Event(), False
        self.end = threading.Event()
        fake.socket(EXEC, self.route)

    def route(self, request, ws):
        request.first = ws.next_json()
        ws.json("started", id=CM["id"])
        ws.out(b"prompt> ")
        self.running.set()
        while not self.end.is_set():
            opcode, data = ws.next()
            if not opcode:
                return
            if opcode == 1:
                self.sizes.append(json.loads(data))
                continue
            self.typed += data[1:]
            if b"!" in data:
                ws.cut()
                return
            if b"\4" in data:
                break
            ws.out(data[1:])
        finish(ws, 5)


def test_a_terminal(fake, cli, terminal):
    remote = RemoteTerminal(fake)
    t = terminal("exec", "-it", "hello", "--", "bash")
    t.read_until(b"prompt> ")
    assert fake.requests[0].first == {
        "args": ["bash"], "tty": True, "stdin_open": True, "cols": 100, "rows": 30,
        "env": {"TERM": "screen"}}
    wait_for(t.raw)
    t.type(b"\x03\x1a\x1cab\r")  # the keys that make signals are keys there
    t.read_until(b"ab\r")
    termios.tcsetwinsize(t.side, (40, 120))
    wait_for(lambda: remote.sizes)
    assert remote.sizes == [{"type": "resize", "cols": 120, "rows": 40}]
    t.type(b"\x04")
    assert t.wait() == 5 and t.restored()
    assert remote.typed == b"\x03\x1a\x1cab\r\x04"


def end_by_signal(number):
    def end(t, remote):
        t.p.send_signal(number)
    return end


@pytest.mark.parametrize("end, code", [
    (lambda t, remote: t.type(b"!"), 125),       # the connection is lost and the command unknown
    (end_by_signal(signal.SIGUSR1), -signal.SIGUSR1),
    (end_by_signal(signal.SIGALRM), -signal.SIGALRM),
    (end_by_signal(signal.SIGABRT), -signal.SIGABRT),
], ids=["lost", "usr1", "alrm", "abrt"])
def test_the_terminal_is_restored(fake, cli, terminal, end, code):
    remote = RemoteTerminal(fake)
    t = terminal("exec", "-it", "hello", "--", "bash")
    t.read_until(b"prompt> ")
    wait_for(t.raw)
    del fake.routes["WS", EXEC]
    end(t, remote)
    assert t.wait() == code and t.restored(), t.out


def test_the_terminal_is_restored_when_interrupted(fake, cli, terminal):
    RemoteTerminal(fake)
    fake.route("POST", COMMAND + "/signal", lambda r: (204, {}, b""))
    serve(fake, "POST", COMMAND.removeprefix(W) + "/terminate", CM)
    t = terminal("exec", "-it", "hello", "--", "bash")
    t.read_until(b"prompt> ")
    wait_for(t.raw)
    for number in (signal.SIGTERM, signal.SIGTERM):
        t.p.send_signal(number)
        time.sleep(0.3)
    assert t.wait() == 128 + signal.SIGTERM and t.restored()


def test_stopped_and_continued(fake, cli, terminal):
    remote = RemoteTerminal(fake)
    t = terminal("exec", "-it", "hello", "--", "bash")
    t.read_until(b"prompt> ")
    wait_for(t.raw)
    t.p.send_signal(signal.SIGSTOP)
    termios.tcsetattr(t.side, termios.TCSANOW, t.before)  # as shells do
    t.p.send_signal(signal.SIGCONT)
    wait_for(t.raw)
    wait_for(lambda: remote.sizes)
    t.type(b"\x04")
    assert t.wait() == 5 and t.restored()


STOPPER = """
import os, signal, subprocess, sys, termios, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
p = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: (os.setpgid(0, 0),
                     os.tcsetpgrp(0, os.getpgrp()), signal.signal(signal.SIGTTOU, signal.SIG_DFL)))
_, status = os.waitpid(p.pid, os.WUNTRACED)
assert os.WIFSTOPPED(status), status
os.tcsetpgrp(0, os.getpgrp())
print("stopped, lflag", bool(termios.tcgetattr(0)[3] & termios.ICANON), flush=True)
sys.stdin.buffer.raw.read(1)
os.tcsetpgrp(0, p.pid)
os.kill(p.pid, signal.SIGCONT)
_, status = os.waitpid(p.pid, 0)
os.tcsetpgrp(0, os.getpgrp())
print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""


def test_stopped_by_request(fake, terminal):
    """Under a shell with job control: as it was while stopped, raw again afterwards."""
    RemoteTerminal(fake)
    t = terminal("exec", "-it", "hello", "bash", program=(sys.executable, "-c", STOPPER, SKERRY))
    t.read_until(b"prompt> ")
    wait_for(t.raw)
    os.kill(os.tcgetpgrp(t.main), signal.SIGTSTP)
    t.read_until(b"stopped, lflag True")
    assert t.restored()
    t.type(b"\n")
    wait_for(t.raw)
    t.type(b"\x04")
    t.read_until(b"ended 5")
    assert t.restored()


def test_a_broken_connection_of_a_terminal(fake, cli, terminal):
    """It is taken up again, and what was typed is no reason not to."""
    remote = RemoteTerminal(fake)
    t = terminal("exec", "-it", "hello", "bash")
    t.read_until(b"prompt> ")
    wait_for(t.raw)
    t.type(b"abc")
    t.read_until(b"abc")
    t.type(b"!")
    wait_for(lambda: len(fake.requests) == 2)
    t.read_until(b"prompt> abcprompt> ")
    wait_for(lambda: remote.sizes)  # drawn anew
    assert fake.requests[1].first == {"id": CM["id"], "offset": {"stdout": 11, "stderr": 0}}
    t.type(b"\x04")
    assert t.wait() == 5 and t.restored()


def test_a_terminal_without_input(fake, cli, terminal):
    """Keys make signals as ever."""
    c = Signalled(fake, {"INT": 130})
    t = terminal("exec", "-t", "hello", "top")
    assert c.running.wait(30)
    assert not t.raw() and "stdin_open" not in fake.requests[0].first
    t.type(b"\x03")
    assert t.wait() == 130 and c.signals == ["INT"] and t.restored()


def test_usage_of_terminals(fake, cli):
    for words, hint in ((["-it"], b"leave -t out"), (["-t", "-d"], b"background"),
                        (["-t", "--format", "json"], b"JSON")):
        p = cli("exec", *words, "hello", "bash")
        assert p.returncode == 125 and hint in p.stderr, words
    assert fake.requests == []
    p = cli("run", "debian:12")
    assert p.returncode == 125
    assert b"skerry run IMAGE -- COMMAND" in p.stderr and b"exec" not in p.stderr
    assert b"skerry exec SANDBOX -- COMMAND" in cli("exec", "hello").stderr


def test_piped_into_a_terminal(fake, cli):
    fake.socket(EXEC, echo)
    p = cli("exec", "-t", "hello", "cat", input=b"x")
    assert (p.returncode, p.stdout) == (0, b"x")
    assert fake.requests[0].first["tty"] is True and "cols" not in fake.requests[0].first


# --- run -----------------------------------------------------------------------------------------

def plays(**what):
    def route(request, ws):
        request.first = ws.next_json()
        play(ws, **what)
    return route


def run_routes(fake, exec_route):
    """A world of one sandbox with a route of GET exec; answers what is alive."""
    alive = []

    def create(request):
        alive.append(request.json["identifier"])
        name = alive[-1]
        fake.socket(f"{W}/sandboxes/{name}/exec", exec_route)
        fake.route("DELETE", f"{W}/sandboxes/{name}", destroy)
        return answer(dict(SB, identifier=name), 201)

    def destroy(request):
        name = request.path.rsplit("/", 1)[1]
        if name not in alive:
            return error(404, "no such sandbox", code="not_found")
        alive.remove(name)
        return 204, {}, b""

    fake.route("POST", W + "/sandboxes", create)
    return alive


def refuses(status, message, **more):
    def route(request, ws):
        ws.next_json()
        ws.json("error", status=status, message=message, **more)
        ws.close(1008)
    return route


def test_run_destroys(fake, cli):
    alive = run_routes(fake, plays(code=3, stdout=b"out", stderr=b"err"))
    p = cli("run", "debian:12", "--cpus", "2", "--user", "dev", "--", "make", "-j", "--keep")
    assert (p.returncode, p.stdout, p.stderr) == (3, b"out", b"err")
    create, call, destroy = fake.requests
    assert create.json["os"] == "debian:12" and create.json["cpus"] == 2
    assert create.query["wait"] == "running"
    assert call.first == {"args": ["make", "-j", "--keep"], "user": "dev", "stdin_open": True}
    assert destroy.method == "DELETE" and alive == []


def test_run_keeps(fake, cli):
    alive = run_routes(fake, plays())
    p = cli("run", "--keep", "debian:12", "--", "true")
    assert p.returncode == 0
    assert len(alive) == 1 and alive[0].encode() in p.stderr


def test_run_destroys_after_errors(fake, cli):
    alive = run_routes(fake, refuses(500, "broken"))
    assert cli("run", "debian:12", "--", "true").returncode == 125
    assert alive == []
    alive = run_routes(fake, lambda request, ws: ws.next_json())
    assert cli("run", "debian:12", "--", "true").returncode == 125
    assert alive == []
    # refused at once: nothing was made, nothing is to be destroyed
    fake.requests.clear()
    fake.route("POST", W + "/sandboxes", lambda r: error(400, "no such image"))
    assert cli("run", "nope", "--", "true").returncode == 125
    assert [r.method for r in fake.requests if r.method == "POST"] == ["POST"]


def test_run_tells_what_it_could_not_destroy(fake, cli):
    def dies(request, ws):
        ws.next_json()
        fake.server.server_close()

    alive = run_routes(fake, dies)
    p = cli("run", "debian:12", "--", "true")
    assert p.returncode == 125
    assert b"could not be destroyed" in p.stderr and alive[0].encode() in p.stderr


def test_run_without_an_api(cli):
    p = cli("run", "debian:12", "--", "true", env={"SKERRY_URL": "http://127.0.0.1:1"})
    assert p.returncode == 125 and p.stderr.count(b"skerry:") == 1


def test_run_destroys_a_failed_start(fake, cli):
    alive = run_routes(fake, plays())
    made = fake.routes["POST", W + "/sandboxes"]

    def fails(request):
        made(request)
        return answer(dict(SB, status="FAILED", exit_reason={"code": "x", "text": "no disk"}), 201)

    fake.route("POST", W + "/sandboxes", fails)
    p = cli("run", "debian:12", "--", "true")
    assert p.returncode == 125 and b"no disk" in p.stderr
    assert alive == []
    assert not any(r.path.endswith("/exec") for r in fake.requests)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_interrupted_destroys(fake, cli, number):
    asked, go = threading.Event(), threading.Event()

    def slow(request, ws):
        ws.next_json()
        asked.set()
        go.wait(30)

    alive = run_routes(fake, slow)
    p = cli.start("run", "debian:12", "--", "sleep", "60")
    assert asked.wait(30)
    assert len(alive) == 1
    p.send_signal(number)
    p.communicate(timeout=30)
    assert p.returncode == 128 + number
    assert alive == []
    go.set()


def test_run_interrupted_while_creating(fake, cli):
    """The sandbox comes into being after its maker was interrupted: it goes all the same."""
    asked, go = threading.Event(), threading.Event()
    alive = run_routes(fake, plays())
    made = fake.routes["POST", W + "/sandboxes"]

    def slow(request):
        asked.set()
        go.wait(30)
        return made(request)

    fake.route("POST", W + "/sandboxes", slow)
    p = cli.start("run", "debian:12", "--", "true")
    assert asked.wait(30)
    p.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 30
    while not any(r.method == "DELETE" for r in fake.requests):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    go.set()
    p.communicate(timeout=60)
    assert p.returncode == 130
    assert alive == []


def test_run_names_its_own_error(fake, cli):
    """A sandbox that cannot be destroyed either does not change what the error was."""
    run_routes(fake, refuses(400, "no program", code="command_not_found"))
    create = fake.routes["POST", W + "/sandboxes"]

    def made(request):
        answered = create(request)
        name = request.json["identifier"]
        fake.route("DELETE", f"{W}/sandboxes/{name}", lambda r: error(500, "x", code="broken"))
        return answered

    fake.route("POST", W + "/sandboxes", made)
    p = cli("run", "debian:12", "--", "x")
    assert p.returncode == 127
    assert b"no program" in p.stderr
