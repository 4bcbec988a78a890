"""The command line tool as tests without a daemon run it: against a fake API, on pipes and terminals."""

import fcntl
import json
import os
import pathlib
import pty
import select
import subprocess
import termios
import time

import pytest

from fake_api import FakeApi, answer

TREE = pathlib.Path(__file__).resolve().parents[2]
SKERRY = TREE / os.environ.get("SKERRY_TEST_BUILD", "build") / "src" / "cli" / "skerry"
W = "/workspaces/default"
TOKEN = "skry_very_secret_token"
SB = {"id": "sb" + "a" * 20, "identifier": "hello", "name": "hello", "status": "RUNNING",
      "setup_status": "SUCCESS", "os": "debian:12", "resources": "2x4",
      "create_date": "2026-01-02T03:04:05Z", "url": "u", "html_url": "h"}
CM = {"id": "cm" + "b" * 20, "command": "make", "runtime": "BASH", "status": "SUCCESSFUL",
      "exit_code": 0, "reason": "EXITED", "start_date": "2026-01-02T03:04:05Z"}


@pytest.fixture
def fake():
    server = FakeApi()
    yield server
    server.close()


class Cli:
    def __init__(self, home, url):
        self.home = home
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "SKERRY_TOKEN": TOKEN,
                    "LANG": "C.UTF-8"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        if url:
            self.env["SKERRY_URL"] = url

    def __call__(self, *args, input=b"", env=None, timeout=60):
        p = subprocess.run([SKERRY, *args], input=input, capture_output=True, timeout=timeout,
                           env={**self.env, **(env or {})})
        assert TOKEN.encode() not in p.stdout + p.stderr
        assert b"Sanitizer" not in p.stderr, p.stderr
        return p

    def start(self, *args, stdin=subprocess.DEVNULL):
        return subprocess.Popen([SKERRY, *args], env=self.env, stdin=stdin, bufsize=0,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def on_terminal(self, *args, env=None, columns=0):
        """Output (both streams) and status with a terminal as stdin, stdout and stderr."""
        main, side = pty.openpty()
        if columns:
            termios.tcsetwinsize(side, (25, columns))
        p = subprocess.Popen([SKERRY, *args], env={**self.env, "TERM": "xterm", **(env or {})},
                             stdin=side, stdout=side, stderr=side, start_new_session=True)
        os.close(side)
        out = b""
        try:
            while piece := os.read(main, 65536):
                out += piece
        except OSError:
            pass
        os.close(main)
        return out.replace(b"\r\n", b"\n"), p.wait(60)


@pytest.fixture
def cli(tmp_path, fake):
    return Cli(tmp_path, fake.url)


def serve(fake, method, path, obj, status=200):
    fake.route(method, W + path, lambda request: answer(obj, status))


def json_error(p):
    lines = p.stderr.decode().splitlines()
    assert len(lines) == 1, p.stderr
    return json.loads(lines[0])["error"]


def play(ws, stdout=b"", stderr=b"", started=(), code=0, **end):
    """A command that has been asked for: it writes, and ends."""
    ws.json("started", id=CM["id"], **dict(started))
    ws.out(stdout)
    ws.out(stderr, 2)
    finish(ws, code, **end)


def finish(ws, code=0, **end):
    ws.json("exit", **{"id": CM["id"], "exit_code": code, **end})
    ws.close()
    while ws.next()[0]:
        pass


def command(fake, name="hello", **what):
    """GET exec of a sandbox runs a command that does what play() is told."""
    def route(request, ws):
        request.first = ws.next_json()
        play(ws, **what)

    fake.socket(f"{W}/sandboxes/{name}/exec", route)


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Terminal:
    """The tool on a terminal of its own, as a shell would have it."""

    def __init__(self, cli, *words, size=(30, 100), program=(SKERRY,)):
        self.main, self.side = pty.openpty()
        termios.tcsetwinsize(self.side, size)
        self.before = termios.tcgetattr(self.side)
        self.out = b""
        self.p = subprocess.Popen(
            [*program, *words], env={**cli.env, "TERM": "screen"}, stdin=self.side, stdout=self.side,
            stderr=self.side, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def raw(self):
        return not termios.tcgetattr(self.side)[3] & (termios.ICANON | termios.ECHO)

    def restored(self):
        return termios.tcgetattr(self.side) == self.before

    def type(self, data):
        os.write(self.main, data)

    def read_until(self, data, seconds=30):
        deadline = time.monotonic() + seconds
        while data not in self.out:
            assert time.monotonic() < deadline, self.out
            if select.select([self.main], [], [], 0.1)[0]:
                self.out += os.read(self.main, 65536)

    def wait(self, seconds=30):
        deadline = time.monotonic() + seconds
        while self.p.poll() is None:
            assert time.monotonic() < deadline, self.out
            if select.select([self.main], [], [], 0.05)[0]:
                self.out += os.read(self.main, 65536)
        while select.select([self.main], [], [], 0.1)[0]:
            self.out += os.read(self.main, 65536)
        return self.p.returncode

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        os.close(self.main)
        os.close(self.side)


@pytest.fixture
def terminal(cli):
    made = []

    def make(*words, **more):
        made.append(Terminal(cli, *words, **more))
        return made[-1]

    yield make
    for t in made:
        t.close()
