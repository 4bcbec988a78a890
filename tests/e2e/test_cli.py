"""The command line tool against a real instance: what a user at a shell sees."""

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

    call.program, call.env = instance.program("skerry"), env
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
    assert skerry("exec", name, "--", "cat", input=b"not given").stdout == b""
    assert skerry("exec", name, "-c", "kill -9 $$").returncode == 137
    done = skerry("exec", name, "--timeout", "1", "-c", "echo part; sleep 60")
    assert (done.returncode, done.stdout) == (137, b"part\n")
    assert b"time limit" in done.stderr
    assert skerry("exec", "no-such-sandbox", "--", "true").returncode == 125
    assert skerry("exec", name, "--", "no-such-program").returncode == 127
    assert skerry("exec", name, "-d", "--", "no-such-program").returncode == 127
    assert skerry("exec", name, "--", "/etc/passwd").returncode == 126
    assert skerry("exec", name, "-c", "no-such-program").returncode == 127  # the shell's own


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
