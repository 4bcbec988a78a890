"""The command line tool against a real instance: what a user at a shell sees."""

import hashlib
import os
import signal
import subprocess
import time

import pytest

from kit import IMAGE


@pytest.fixture
def skerry(instance, tmp_path):
    """skerry(*words, input=b""): the finished process, bytes as output."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8",
           "SKERRY_URL": f"http://127.0.0.1:{instance.port}", "SKERRY_TOKEN": instance.token}

    def call(*words, input=b""):
        return subprocess.run([instance.program("skerry"), *words], env=env, input=input,
                              capture_output=True, timeout=120)

    def start(*words, stdin=subprocess.DEVNULL):
        return subprocess.Popen([instance.program("skerry"), *words], env=env, stdin=stdin, bufsize=0,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    call.program, call.env, call.start = instance.program("skerry"), env, start
    return call


def identifiers(skerry):
    done = skerry("list")
    assert done.returncode == 0, done.stderr
    return {line.split("\t")[0] for line in done.stdout.decode().splitlines()}


def test_life_of_a_sandbox(skerry):
    done = skerry("create", "cli-life", "--image", IMAGE, "--tag", "a", "--wait", "running")
    assert done.returncode == 0, done.stderr
    sandbox_id = done.stdout.decode().strip()
    try:
        assert "cli-life" in identifiers(skerry)
        assert skerry("status", sandbox_id).stdout.startswith(b"status\tRUNNING\n")
        assert skerry("stop", "cli-life", "--grace", "1").stdout == b"cli-life\tSTOPPED\n"
        assert skerry("wait", "cli-life", "--state", "stopped").returncode == 0
        assert skerry("start", "cli-life").returncode == 0
        assert skerry("wait", "cli-life", "--timeout", "60").returncode == 0
    finally:
        assert skerry("rm", "cli-life").returncode == 0
    assert "cli-life" not in identifiers(skerry)
    assert skerry("get", "cli-life").returncode == 1


def test_exec(skerry, sandbox):
    name = sandbox["identifier"]
    done = skerry("exec", name, "-c", r"printf 'a\377\0b\n'; printf 'e\n' >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"a\xff\0b\n", b"e\n")
    words = ["-n", "\\t", "a b", "$(id)", "'\"'", "x\ny", "=x", "😀", ""]
    done = skerry("exec", name, "--env", "A=b c", "--", "sh", "-c",
                  'printf "%s\\0" "$A" "$@"', "sh", *words)
    assert done.stdout.decode().split("\0")[:-1] == ["b c", *words]
    assert skerry("exec", name, "-i", "--", "cat", input="é\n\n".encode()).stdout == b"\xc3\xa9\n\n"
    assert skerry("exec", name, "--", "cat").stdout == b""
    assert skerry("exec", name, "-c", "kill -9 $$").returncode == 137
    done = skerry("exec", name, "--timeout", "1", "-c", "echo part; sleep 60")
    assert (done.returncode, done.stdout) == (137, b"part\n")
    assert b"time limit" in done.stderr
    assert skerry("exec", "no-such-sandbox", "--", "true").returncode == 125
    assert skerry("exec", name, "--", "no-such-program").returncode == 127
    assert skerry("exec", name, "-d", "--", "no-such-program").returncode == 127
    assert skerry("exec", name, "--", "/etc/passwd").returncode == 126
    assert skerry("exec", name, "-c", "no-such-program").returncode == 127  # the shell's own


def test_exec_streams(skerry, sandbox):
    """Output comes while the command runs, and its input while it reads."""
    p = skerry.start("exec", sandbox["identifier"], "-c", "while read x; do echo got $x; done; exit 5",
                     stdin=subprocess.PIPE)
    for word in (b"one", b"two"):
        p.stdin.write(word + b"\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"got " + word + b"\n"
    assert p.communicate(timeout=60) == (b"", b"") and p.returncode == 5


def test_exec_carries_much(skerry, sandbox):
    name, data = sandbox["identifier"], os.urandom(64 * 1024 * 1024)
    done = skerry("exec", name, "--", "cat", input=data)
    assert done.returncode == 0 and done.stdout == data, done.stderr
    assert hashlib.sha256(data).hexdigest().encode() in skerry(
        "exec", name, "--", "sha256sum", input=data).stdout


def test_exec_with_readers_that_quit(skerry, sandbox):
    name = sandbox["identifier"]
    done = skerry("exec", name, "--", "head", "-c", "3", input=b"x" * (8 * 1024 * 1024))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"xxx", b"")
    done = skerry("exec", name, "-c", "exec <&-; sleep 1; echo there", input=b"x" * (1024 * 1024))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"there\n", b"")
    p = skerry.start("exec", name, "--", "yes")
    p.stdout.read(10)
    p.stdout.close()
    assert p.wait(60) == 141 and p.stderr.read() == b""
    shown = skerry("command", "list", name, "--limit", "1").stdout
    assert b"INPROGRESS" not in shown, shown


def test_exec_ends_with_its_command(skerry, sandbox):
    """Standard input that stays open holds nothing up."""
    p = skerry.start("exec", sandbox["identifier"], "--", "true", stdin=subprocess.PIPE)
    assert p.wait(60) == 0


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT"])
def test_exec_passes_signals_on(skerry, sandbox, name):
    number = getattr(signal, "SIG" + name)
    p = skerry.start("exec", sandbox["identifier"], "-c",
                     f"trap 'echo caught; exit 33' {name}; echo ready; while :; do sleep 0.1; done")
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(number)
    assert p.communicate(timeout=60)[0] == b"caught\n" and p.returncode == 33
    p = skerry.start("exec", sandbox["identifier"], "--", "sh", "-c", "echo ready; exec sleep 600")
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(number)
    assert p.wait(60) == 128 + number


def test_exec_twice_means_us(skerry, sandbox):
    name = sandbox["identifier"]
    p = skerry.start("exec", name, "-c", "trap '' INT; echo ready; while :; do sleep 0.1; done")
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGINT)
    time.sleep(0.3)
    p.send_signal(signal.SIGINT)
    assert p.wait(60) == 130 and b"was ended" in p.stderr.read()
    assert b"INPROGRESS" not in skerry("command", "list", name).stdout


def test_exec_lives_through_a_restart_of_the_daemon(skerry, instance, sandbox):
    """No byte is lost and none comes twice."""
    p = skerry.start("exec", sandbox["identifier"], "--timeout", "100", "-c",
                     "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 8")
    first = p.stdout.readline()
    instance.restart_daemon()
    rest, err = p.communicate(timeout=120)
    assert first + rest == b"".join(b"line %d\n" % i for i in range(400)), err
    assert p.returncode == 8


def test_stopped_says_how_to_start(skerry, new_sandbox):
    name = new_sandbox()["identifier"]
    assert skerry("stop", name).returncode == 0
    done = skerry("exec", name, "--", "true")
    assert done.returncode == 125 and f"skerry start {name}\n".encode() in done.stderr


def test_background_command(skerry, sandbox):
    name = sandbox["identifier"]
    command = skerry("exec", name, "-d", "-c",
                     "for i in 1 2 3; do echo o$i; echo e$i >&2; sleep 0.2; done").stdout.decode().strip()
    done = skerry("command", "logs", name, command, "--follow")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"o1\no2\no3\n", b"e1\ne2\ne3\n")
    assert command in skerry("command", "list", name).stdout.decode()
    assert b"exit code\t0\n" in skerry("command", "status", name, command, "--wait", "60").stdout
    command = skerry("exec", name, "-d", "--", "sleep", "600").stdout.decode().strip()
    assert b"reason\tKILLED\n" in skerry("command", "kill", name, command, "--grace", "1").stdout


def test_run(skerry):
    done = skerry("run", IMAGE, "--cpus", "1", "-c", "nproc; exit 9")
    assert (done.returncode, done.stdout) == (9, b"1\n"), done.stderr
    assert skerry("run", "no-such-image", "--", "true").returncode == 125
    assert not [name for name in identifiers(skerry) if name.startswith("run-")]


def test_run_interrupted(skerry):
    running = subprocess.Popen([skerry.program, "run", IMAGE, "--", "sleep", "600"],
                               env=skerry.env, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not [name for name in identifiers(skerry) if name.startswith("run-")]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGINT
    assert not [name for name in identifiers(skerry) if name.startswith("run-")]


# Options the API answers with not_available: they are shown once they work.
ABSENT = {
    ("create",): ["--boot", "--app", "--app-dir", "--note", "--timeout", "--auto-delete",
                  "--no-auto-start", "--snapshot", "--user"],
    ("exec",): ["--keep-awake"],
}


@pytest.mark.parametrize("field", [
    {"first_boot_commands": "x"}, {"apps": ["x"]}, {"app_dir": "/"}, {"note": "x"},
    {"timeout": 60}, {"auto_delete": 60}, {"auto_start": False}, {"snapshot_id": "x"},
    {"user": "root"}])
def test_what_create_does_not_show_is_not_available(api, field):
    answer = api("POST", "/sandboxes", {"name": "cli-absent", "os": IMAGE, **field})
    assert answer.status == 400
    assert answer.json["errors"][0]["code"] == "not_available"


def test_help_shows_what_works_only(skerry):
    for words, options in ABSENT.items():
        shown = skerry(*words, "--help").stdout.decode().split("Examples")[0].split()
        assert not set(options) & {word.rstrip(",") for word in shown}


def test_doctor(skerry):
    done = skerry("doctor")
    assert b"ok\tAPI\t" in done.stdout and b"ok\ttoken\t" in done.stdout, done.stdout
