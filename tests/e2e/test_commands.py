"""Commands: how they start, end, are limited, what becomes of their output."""

import base64
import concurrent.futures
import http.client
import json
import pathlib
import re
import socket
import time

import pytest

from kit import (JSONL, background, command_state, errors_of, execute, finished, inside, logs,
                 output, split_answer, until)

MIB = 1 << 20


@pytest.fixture
def sh(instance, box):
    return lambda command=None, **fields: execute(instance, box, command, **fields)


def refused(instance, box, fields, field):
    answer = instance.api("POST", f"/sandboxes/{box['id']}/exec", fields)
    assert answer.status == 400, answer
    error = errors_of(answer)[0]
    assert error["field"] == field, error
    return error


# --- how a command ends --------------------------------------------------------------------------

@pytest.mark.parametrize("command,code,signal,reason", [
    ("true", 0, None, "EXITED"), ("false", 1, None, "EXITED"), ("exit 255", 255, None, "EXITED"),
    ("exit 300", 44, None, "EXITED"), ("exit -1", 255, None, "EXITED"),
    ("exit 130", 130, None, "EXITED"), ("no-such-program", 127, None, "EXITED"),
    ("/etc/passwd", 126, None, "EXITED"), ("kill -9 $$", 137, "SIGKILL", "SIGNALED"),
    ("kill -SEGV $$", 139, "SIGSEGV", "SIGNALED"), ("kill -TERM $$", 143, "SIGTERM", "SIGNALED"),
    ("kill -HUP $$", 129, "SIGHUP", "SIGNALED"), ("kill -USR1 $$", 138, "SIGUSR1", "SIGNALED"),
    ("kill -PIPE $$", 141, "SIGPIPE", "SIGNALED"), ("kill -ABRT $$", 134, "SIGABRT", "SIGNALED"),
    ("bash -c 'kill -9 $$'; exit $?", 137, None, "EXITED"),
])
def test_exit_codes(instance, box, sh, command, code, signal, reason):
    done = sh(command)
    want = (code, signal, reason, "SUCCESSFUL" if code == 0 else "FAILED")
    assert (done["exit_code"], done.get("signal"), done["reason"], done["status"]) == want, done
    record = command_state(instance, box, done)
    assert (record["exit_code"], record.get("signal"), record["reason"],
            record["status"]) == want, record
    assert record["finish_date"] >= record["start_date"]
    cli = instance.cli("exec", box["id"], "-c", command)
    assert cli.returncode == code, cli
    again = finished(instance, box, background(instance, box, command))
    assert (again["exit_code"], again.get("signal"), again["reason"], again["status"]) == want


def test_a_time_limit_ends_the_whole_tree(instance, box):
    for child in ("sleep 4321", "setsid sleep 4321 & sleep 4321",
                  "trap '' TERM INT HUP; (trap '' TERM; setsid sleep 4321) & sleep 4321; sleep 4321"):
        start = time.monotonic()
        done = execute(instance, box, f"echo before; echo err >&2; {child}; echo after", timeout=1.5)
        took = time.monotonic() - start
        assert 1.4 < took < 3.5, took
        assert done["timed_out"] is True and done["reason"] == "TIMED_OUT", done
        assert done["exit_code"] == 137 and done["status"] == "FAILED", done
        assert done["stdout"] == "before\n" and done["stderr"] == "err\n", done
        assert done["timeout"] == 1.5 and 1400 < done["duration_ms"] < 3500, done
        assert inside(instance, box, "sleep 4321") == []
        assert command_state(instance, box, done)["reason"] == "TIMED_OUT"


def test_a_limit_in_the_background(instance, box):
    command = background(instance, box, "echo before; exec sleep 4322", timeout=0.5)
    record = finished(instance, box, command, 20)
    assert record["reason"] == "TIMED_OUT" and record["exit_code"] == 137, record
    assert output(instance, box, command) == b"before\n"
    assert inside(instance, box, "sleep 4322") == []


def test_a_command_that_ends_in_time_is_not_timed_out(sh):
    done = sh("exit 137", timeout=30)
    assert done["timed_out"] is False and done["reason"] == "EXITED", done
    assert sh("true", timeout=0.9)["timeout"] == 0.9


def test_background_has_no_limit_and_foreground_sixty_seconds(instance, box, sh):
    assert sh("true")["timeout"] == 60
    command = background(instance, box, "exec python3 -m http.server 8123")
    until(lambda: sh("exec 3<>/dev/tcp/127.0.0.1/8123")["exit_code"] == 0, "it serves")
    assert command_state(instance, box, command)["status"] == "INPROGRESS"
    instance.api("POST", f"/sandboxes/{box['id']}/commands/{command['id']}/terminate", {"grace": 0})


@pytest.mark.long
def test_a_server_in_the_background_lives_on(instance, box, sh):
    command = background(instance, box, "exec python3 -m http.server 8124")
    time.sleep(180)
    assert command_state(instance, box, command)["status"] == "INPROGRESS"
    assert sh("exec 3<>/dev/tcp/127.0.0.1/8124")["exit_code"] == 0


def test_a_child_left_behind_does_not_hold_the_answer(instance, box, sh):
    start = time.monotonic()
    done = sh("(sleep 4323; echo late) & echo now")
    assert time.monotonic() - start < 5
    assert done["stdout"] == "now\n" and done["exit_code"] == 0, done
    assert inside(instance, box, "sleep 4323")
    answer = instance.api("POST", f"/sandboxes/{box['id']}/commands/{done['id']}/terminate",
                          {"grace": 0})
    assert answer.status == 200 and answer.json["status"] == "SUCCESSFUL", answer
    until(lambda: inside(instance, box, "sleep 4323") == [], "what it left is gone")
    answer = instance.api("POST", f"/sandboxes/{box['id']}/commands/{done['id']}/terminate",
                          {"grace": 0})
    assert answer.status == 409, answer
    assert errors_of(answer)[0]["message"]


def test_durations(sh):
    done = sh("sleep 0.3")
    assert 290 <= done["duration_ms"] < 3000, done


# --- standard input ------------------------------------------------------------------------------

@pytest.mark.parametrize("command,out", [
    ("cat; echo $?", "0\n"), ('read x; echo "$? [$x]"', "1 []\n"),
    ("python3 -c 'input()' 2>/dev/null; echo $?", "1\n"), ("wc -c", "0\n"),
    ("test -t 0; echo $?", "1\n"), ("(sleep 0.1; cat) & wait; echo end", "end\n")])
def test_stdin_is_at_its_end(instance, box, sh, command, out):
    assert sh(command, timeout=20)["stdout"] == out
    made = background(instance, box, command, timeout=20)
    assert finished(instance, box, made)["reason"] == "EXITED"
    assert output(instance, box, made).decode() == out


def test_the_cli_does_not_take_our_stdin(instance, box):
    read, write = socket.socketpair()
    with read, write:
        done = instance.cli("exec", box["id"], "--", "cat", stdin=read, timeout=30)
    assert done.returncode == 0 and done.stdout == "", done


@pytest.mark.parametrize("text", ["", "x", "line\n", "no newline", "a\n\n\nb\r\n", "ü測🙂",
                                  "x" * 900_000], ids=lambda s: ascii(s)[:12])
def test_stdin_is_given(instance, box, sh, text):
    done = sh("cat", stdin=text)
    assert done["stdout"] == text and done["exit_code"] == 0
    made = background(instance, box, "cat", stdin=text)
    assert finished(instance, box, made)["exit_code"] == 0
    assert output(instance, box, made) == text.encode()


def test_stdin_nobody_reads(sh):
    assert sh("exit 3", stdin="x" * 900_000)["exit_code"] == 3
    assert sh("head -c 3", stdin="abc" * 200_000)["stdout"] == "abc"


# --- words, variables, users ---------------------------------------------------------------------

WORDS = ["-n", "\\t", "a b", "$(id)", "`id`", "'\"'", "a\nb", "=x", "🙂", "", "-", "--", "*", "~",
         "\\", "a\\", "\x01\x1b\x7f", "%s", "!!", " lead", "trail ", "\n", "\u202e", "x" * 100_000]


def test_words_are_byte_exact(instance, box, sh):
    show = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))"
    done = sh(args=["python3", "-c", show, *WORDS])
    assert done["stdout"].split("\0") == WORDS
    few = [w for w in WORDS if len(w) < 1000]
    cli = instance.cli("exec", box["id"], "--", "python3", "-c", show, *few)
    assert cli.stdout.split("\0") == few, cli


def test_variables_are_byte_exact(sh):
    env = {f"V{i}": word for i, word in enumerate(WORDS)}
    done = sh("import os, json; print(json.dumps({k: v for k, v in os.environ.items() "
              "if k[0] == 'V'}))", runtime="PYTHON", env=env)
    assert json.loads(done["stdout"]) == env


def test_variables_of_the_machine(box, sh):
    done = sh("echo $SKERRY_SANDBOX $SKERRY_PROJECT $SKERRY_WORKSPACE $HOME $USER $PWD $SHELL; "
              "locale charmap; echo $PATH; echo ${SECRET-none}")
    lines = done["stdout"].split("\n")
    assert lines[0] == f"{box['id']} default default /home/skerry skerry /workspace /bin/bash"
    assert lines[1] == "UTF-8" and "/usr/bin" in lines[2].split(":") and lines[3] == "none"
    assert sh("echo $PATH $HOME", env={"PATH": "/bin", "HOME": "/x"})["stdout"] == "/bin /x\n"


def test_users(instance, box, sh):
    assert sh("id -un; id -u; id -g; pwd")["stdout"] == "skerry\n1000\n1000\n/workspace\n"
    assert sh("id -un; echo $HOME", user="root")["stdout"] == "root\n/root\n"
    assert sh("id -un", user="0")["stdout"] == "root\n"
    assert sh("sudo -n id -u; sudo -n cat /etc/shadow >/dev/null; echo $?")["stdout"] == "0\n0\n"
    assert "ghost" in refused(instance, box, {"command": "true", "user": "ghost"}, "user")[
        "message"]


def test_runtimes(instance, box, sh):
    done = sh("import sys; print(sys.version_info[0]); sys.exit(5)", runtime="PYTHON")
    assert (done["stdout"], done["exit_code"], done["runtime"]) == ("3\n", 5, "PYTHON"), done
    assert sh("echo ${BASH_VERSION%%.*}; x=(1 2); echo ${#x[@]}")["stdout"] == "5\n2\n"
    assert sh("# comment\n\ncd /tmp\nX='multi\nline'\necho \"$PWD $X\" # end\n")[
        "stdout"] == "/tmp multi\nline\n"
    for runtime, program in (("JAVASCRIPT", "node"), ("TYPESCRIPT", "tsx")):
        if sh(f"command -v {program}")["exit_code"] == 0:
            continue
        error = refused(instance, box, {"command": "1", "runtime": runtime}, "runtime")
        assert program in error["message"], error


def test_programs_that_do_not_exist(instance, box):
    for args in (["no-such-program"], ["/no/such"], ["/etc/passwd"], ["/"], ["./x"]):
        error = refused(instance, box, {"args": args}, "args")
        assert args[0] in error["message"], error
    commands = instance.api("GET", f"/sandboxes/{box['id']}/commands").json["commands"]
    assert not any("no-such" in c["command"] for c in commands[:5]), "no record of what never ran"


def test_a_long_script(sh):
    lines = 60_000
    script = "n=0\n" + "n=$((n+1)) # ü\n" * (lines // 2) + "echo $n\n"
    assert sh(script)["stdout"] == f"{lines // 2}\n"


# --- work directory ------------------------------------------------------------------------------

def test_work_directory(instance, box, sh):
    assert sh("pwd", cwd="/tmp")["stdout"] == "/tmp\n"
    sh("mkdir -p '/tmp/wd/a b ü'; ln -sfn '/tmp/wd/a b ü' /tmp/wd/link; touch /tmp/wd/file; "
       "sudo mkdir -p -m 700 /root/secret")
    assert sh("pwd -P", cwd="/tmp/wd/link")["stdout"] == "/tmp/wd/a b ü\n"
    for bad in ("/tmp/wd/missing", "/tmp/wd/file", "/root/secret", "/tmp/wd/file/x"):
        error = refused(instance, box, {"command": "pwd", "cwd": bad}, "cwd")
        assert bad in error["message"], error
    assert sh("pwd", cwd="/root/secret", user="root")["stdout"] == "/root/secret\n"


def test_the_default_directory_is_gone(instance, sandbox, run):
    run("sudo rmdir /workspace")
    done = run("pwd")
    assert done["stdout"] == "/home/skerry\n" and done["exit_code"] == 0, done
    assert done["warnings"] and "/workspace" in done["warnings"][0], done
    run("sudo ln -s /var/tmp /workspace")
    done = run("pwd -P")
    assert done["stdout"] == "/var/tmp\n" and done["warnings"] == [], done
    run("sudo ln -sfn /nowhere /workspace")
    done = run("pwd")
    assert done["stdout"] == "/home/skerry\n" and done["warnings"], done


# --- output --------------------------------------------------------------------------------------

EXACT = [b"", b"\n", b"a", b"a\n\n\nb\r\nc", b"\r\n\r\n", b"\n\nx\n\n", "ü測🙂\n".encode(), b"\x00a\x00\n",
         b"\xff\xfe\xc3\n(\xc3", b"tab\there\n", bytes(range(256)), b"x" * 70_000 + b"\nend"]


@pytest.mark.parametrize("data", EXACT, ids=lambda d: repr(d[:12]))
def test_output_is_byte_exact(instance, box, sh, data):
    script = "import sys, base64; sys.stdout.buffer.write(base64.b64decode(sys.stdin.read()))"
    text = base64.b64encode(data).decode()
    done = sh(script, runtime="PYTHON", stdin=text)
    assert done["stdout_bytes"] == len(data) and not done["stdout_truncated"], done
    try:
        assert done["stdout"] == data.decode()
        assert "stdout_base64" not in done
    except UnicodeDecodeError:
        assert base64.b64decode(done["stdout_base64"]) == data
        assert "\ufffd" in done["stdout"]
    assert output(instance, box, done) == data
    assert output(instance, box, done, "stderr") == b""
    lines = logs(instance, box, done)
    joined = b"".join((base64.b64decode(line["data_base64"]) if "data_base64" in line
                       else line["data"].encode()) + (b"" if line.get("partial") else b"\n")
                      for line in lines)
    assert joined == data
    at = 0
    for line in lines:
        assert line["offset"] == at and line["type"] == "STDOUT", line
        raw = (base64.b64decode(line["data_base64"]) if "data_base64" in line
               else line["data"].encode())
        assert len(raw) <= 65536 and b"\n" not in raw
        at += len(raw) + (not line.get("partial"))
    cli = instance.cli("exec", box["id"], "-i", "--runtime", "python", "-c", script,
                       stdin=None, input=text) if b"\xff" not in data and b"\r" not in data else None
    assert cli is None or cli.stdout.encode() == data, cli


def test_characters_are_not_cut(instance, box):
    """A megabyte of long characters, flushed one byte at a time in part, in whole for the rest."""
    command = background(
        instance, box, "import sys, os\n"
        "text = ('測🙂' * 1000 + '\\n').encode()\n"
        "for i in range(len(text)): os.write(1, text[i:i+1])\n"
        "for i in range(140): os.write(1, text)\n", runtime="PYTHON")
    got = []
    for line in logs(instance, box, command, "?follow=true"):
        assert "data_base64" not in line and "\ufffd" not in line["data"]
        got.append(line["data"] + ("" if line.get("partial") else "\n"))
    assert "".join(got) == ("測🙂" * 1000 + "\n") * 141


def test_both_streams_are_apart(instance, box, sh):
    done = sh("for i in 1 2 3; do echo out$i; echo err$i >&2; done")
    assert done["stdout"] == "out1\nout2\nout3\n" and done["stderr"] == "err1\nerr2\nerr3\n"
    assert [x["data"] for x in logs(instance, box, done, "?stream=stderr")] == [
        "err1", "err2", "err3"]
    assert len(logs(instance, box, done)) == 6


def pattern(start, size):
    """Bytes of the stream of numbered lines that test_head_and_tail prints."""
    first = start // 16
    text = "".join(f"{n:015d}\n" for n in range(first, (start + size) // 16 + 1)).encode()
    return text[start - first * 16:start - first * 16 + size]


@pytest.mark.parametrize("stream,size", [("stdout", 2 * MIB), ("stdout", 2 * MIB + 16),
                                         ("stderr", 40 * MIB)])
def test_head_and_tail_are_kept(instance, box, sh, stream, size):
    fd = 1 if stream == "stdout" else 2
    done = sh("import os\n"
              f"size = {size}\n"
              "for at in range(0, size // 16, 4096):\n"
              " block = ''.join('%015d\\n' % n for n in range(at, min(at + 4096, size // 16)))\n"
              " data = block.encode()\n"
              f" while data: data = data[os.write({fd}, data):]\n", runtime="PYTHON", timeout=120)
    assert done["exit_code"] == 0 and done[f"{stream}_bytes"] == size, {
        k: v for k, v in done.items() if not k.startswith("std")}
    cut = size > 2 * MIB
    assert done[f"{stream}_truncated"] is cut
    want = pattern(0, MIB) + pattern(size - MIB, MIB)
    assert done[stream].encode() == want
    assert output(instance, box, done, stream)[:MIB] == pattern(0, MIB)
    assert output(instance, box, done, stream, size - 1000) == pattern(size - 1000, 1000)
    events = logs(instance, box, done, "?events=true")
    dropped = [e for e in events if e["type"] == "DROPPED"]
    assert dropped == ([{"type": "DROPPED", "stream": stream, "bytes": size - 2 * MIB}]
                       if cut else []), dropped
    assert events[-1]["type"] == "EXIT" and events[-1]["exit_code"] == 0, events[-1]
    offsets = [e["offset"] for e in events if e["type"].startswith("STD")]
    assert offsets == sorted(offsets)
    tail = next(e for e in events if e.get("offset", 0) >= size - MIB)
    assert tail["data"].encode() == pattern(tail["offset"], 16)[:len(tail["data"])]


def resident(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) << 10


def print_much(instance, sandbox, amount):
    pid = instance.children["daemon"].pid
    execute(instance, sandbox, "head -c 8M /dev/zero")
    before, most = resident(pid), 0
    command = background(instance, sandbox, f"head -c {amount} /dev/zero | tr '\\0' x; echo; "
                                            "echo last")
    while command_state(instance, sandbox, command)["status"] == "INPROGRESS":
        most = max(most, resident(pid))
        time.sleep(0.05)
    record = finished(instance, sandbox, command)
    assert record["exit_code"] == 0, record
    assert most - before < 16 * MIB, (before, most)
    assert output(instance, sandbox, command).endswith(b"xx\nlast\n")
    events = logs(instance, sandbox, command, "?events=true")
    assert sum(e["bytes"] for e in events if e["type"] == "DROPPED") == \
        amount + len("\nlast\n") - 2 * MIB


def test_much_output_costs_no_memory(instance, box):
    print_much(instance, box, 128 * MIB)


@pytest.mark.long
def test_two_gigabytes_of_output(instance, box):
    print_much(instance, box, 2048 * MIB)


def test_a_reader_that_stops_does_not_hold_the_command(instance, box):
    """Who follows and does not read loses nothing but time; the command is not slowed."""
    command = background(instance, box, "head -c 30M /dev/zero | tr '\\0' y >&2; echo done")
    path = f"/workspaces/default/sandboxes/{box['id']}/commands/{command['id']}/logs?follow=true"
    with socket.create_connection(("127.0.0.1", instance.port)) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {instance.token}\r\n"
                  "Connection: close\r\n\r\n".encode())
        assert finished(instance, box, command, 30)["exit_code"] == 0
        text = b""
        s.settimeout(60)
        while piece := s.recv(1 << 20):
            text += piece
    assert b'"data":"done"' in text and text.endswith(b"0\r\n\r\n")


def test_follow_shows_lines_as_they_come(instance, box, sh):
    command = background(instance, box, "echo one; while [ ! -e /tmp/go ]; do sleep 0.05; done; "
                                        "echo two; printf three")
    connection = http.client.HTTPConnection("127.0.0.1", instance.port, timeout=30)
    connection.request("GET", f"/workspaces/default/sandboxes/{box['id']}/commands/"
                              f"{command['id']}/logs?follow=true&events=true",
                       headers={"Authorization": f"Bearer {instance.token}"})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["Content-Type"] == JSONL
    assert json.loads(answer.readline())["data"] == "one"
    sh("touch /tmp/go")
    rest = [json.loads(line) for line in answer.read().splitlines()]
    connection.close()
    assert [r.get("data") for r in rest[:-1]] == ["two", "three"], rest
    assert rest[1]["partial"] is True and rest[-1]["type"] == "EXIT", rest


def test_a_follower_that_leaves_ends_nothing(instance, box):
    command = background(instance, box, "echo one; sleep 1; echo two")
    data = (f"GET /workspaces/default/sandboxes/{box['id']}/commands/{command['id']}/logs"
            f"?follow=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {instance.token}\r\n\r\n")
    with socket.create_connection(("127.0.0.1", instance.port)) as s:
        s.sendall(data.encode())
        s.recv(100)
    assert finished(instance, box, command)["exit_code"] == 0
    assert output(instance, box, command) == b"one\ntwo\n"


# --- terminate -----------------------------------------------------------------------------------

TREES = [
    "exec sleep 4400",
    "sleep 4400 & sleep 4400 & wait",
    "setsid sleep 4400 & setsid setsid sleep 4400 & sleep 4400",
    "trap '' TERM INT HUP QUIT; setsid sh -c 'trap \"\" TERM INT HUP; while :; do sleep 4400; done' & "
    "while :; do sleep 4400; done",
    "(setsid nohup sh -c 'sleep 4400 & sleep 4400' >/dev/null 2>&1 &) ; sleep 4400",
    "sudo sh -c 'trap \"\" TERM; sleep 4400'",
    "sudo unshare -fp --mount-proc sh -c 'setsid sleep 4400 & sleep 4400'",
]


@pytest.mark.parametrize("tree", TREES)
def test_terminate_ends_the_whole_tree(instance, box, tree):
    other = background(instance, box, "exec sleep 4411")
    command = background(instance, box, tree)
    until(lambda: inside(instance, box, "sleep 4400"), "it runs")
    time.sleep(0.1)
    start = time.monotonic()
    answer = instance.api("POST",
                          f"/sandboxes/{box['id']}/commands/{command['id']}/terminate",
                          {"grace": 1})
    took = time.monotonic() - start
    assert answer.status == 200 and took < 5, (took, answer)
    record = answer.json
    assert record["status"] == "FAILED" and record["exit_code"] in (137, 143), record
    assert record["reason"] in ("KILLED", "SIGNALED"), record
    assert inside(instance, box, "sleep 4400") == []
    assert len(inside(instance, box, "sleep 4411")) == 1, "others are left alone"
    instance.api("POST", f"/sandboxes/{box['id']}/commands/{other['id']}/terminate", {"grace": 0})


def test_terminate_lets_a_handler_finish(instance, box, sh):
    command = background(instance, box, "trap 'sleep 0.5; echo bye; exit 7' TERM; echo up; "
                                        "while :; do sleep 0.05; done")
    until(lambda: output(instance, box, command) == b"up\n", "it is up")
    answer = instance.api("POST",
                          f"/sandboxes/{box['id']}/commands/{command['id']}/terminate", {})
    assert answer.status == 200 and answer.json["exit_code"] == 7, answer
    assert output(instance, box, command) == b"up\nbye\n"


def test_terminate_with_another_signal(instance, box):
    for signal in ("INT", "SIGINT"):
        command = background(instance, box, "trap 'echo int; exit 3' INT; echo up; "
                                            "while :; do sleep 0.05; done")
        until(lambda: output(instance, box, command) == b"up\n", "it is up")
        answer = instance.api("POST",
                              f"/sandboxes/{box['id']}/commands/{command['id']}/terminate",
                              {"signal": signal})
        assert answer.status == 200 and answer.json["exit_code"] == 3, answer
        assert output(instance, box, command) == b"up\nint\n"


def test_terminate_by_the_cli(instance, box):
    command = background(instance, box, "exec sleep 4420")
    done = instance.cli("command", "kill", box["id"], command["id"], "--signal", "KILL")
    assert done.returncode == 0, done
    assert command_state(instance, box, command)["exit_code"] == 137


def test_terminate_in_the_middle_of_an_exec(instance, box):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(execute, instance, box, "echo begun; exec sleep 4430")
        until(lambda: inside(instance, box, "sleep 4430"), "it runs")
        running = instance.api("GET", f"/sandboxes/{box['id']}/commands?limit=1").json["commands"][0]
        assert running["status"] == "INPROGRESS", running
        answer = instance.api("POST",
                              f"/sandboxes/{box['id']}/commands/{running['id']}/terminate", {})
        assert answer.status == 200, answer
        done = waiting.result(20)
    assert done["id"] == running["id"] and done["status"] == "FAILED", done
    assert done["exit_code"] == 143 and done["stdout"] == "begun\n" and not done["timed_out"], done


def test_a_fork_bomb_is_contained_and_ended(instance, new_sandbox, box):
    bombed = new_sandbox(pids=200)
    command = background(instance, bombed, ":(){ :|:& };:; wait", timeout=60)
    time.sleep(1)
    start = time.monotonic()
    assert execute(instance, box, "echo fine")["stdout"] == "fine\n"
    assert instance.api("GET", f"/sandboxes/{bombed['id']}").status == 200
    answer = instance.api("POST",
                          f"/sandboxes/{bombed['id']}/commands/{command['id']}/terminate",
                          {"grace": 0})
    assert answer.status in (200, 409), answer
    assert time.monotonic() - start < 20
    until(lambda: execute(instance, bombed, "echo back")["stdout"] == "back\n", "it is back")


# --- clients that leave --------------------------------------------------------------------------

def exec_request(instance, box, fields, *headers):
    body = json.dumps(fields).encode()
    head = [f"POST /workspaces/default/sandboxes/{box['id']}/exec HTTP/1.1", "Host: x",
            f"Authorization: Bearer {instance.token}", "Content-Type: application/json",
            f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def tcp(instance):
    return socket.create_connection(("127.0.0.1", instance.port))


def unix(instance):
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(instance.base / "run/api.sock"))
    return s


def leave_an_exec(instance, box, fields, connect, reset):
    with connect(instance) as s:
        s.sendall(exec_request(instance, box, fields))
        until(lambda: inside(instance, box, "sleep 1.44"), "it runs")
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    return instance.api("GET", f"/sandboxes/{box['id']}/commands?limit=1").json["commands"][0]


LEAVING = pytest.mark.parametrize("connect,reset", [(tcp, False), (tcp, True), (unix, False)],
                                  ids=["closed", "reset", "unix"])


@LEAVING
def test_a_client_that_leaves_ends_nothing(instance, box, connect, reset):
    left = leave_an_exec(instance, box, {"command": "echo a; sleep 1.44; echo b; exit 7"}, connect,
                         reset)
    assert left["status"] == "INPROGRESS", left
    record = finished(instance, box, left, 20)
    assert record["exit_code"] == 7 and record["reason"] == "EXITED", record
    assert output(instance, box, left) == b"a\nb\n"


@LEAVING
def test_unless_it_asked_for_that(instance, box, connect, reset):
    left = leave_an_exec(instance, box, {"command": "echo a; sleep 1.44; sleep 4440",
                                         "kill_on_disconnect": True}, connect, reset)
    record = finished(instance, box, left, 20)
    assert record["status"] == "FAILED" and record["exit_code"] in (137, 143), record
    assert inside(instance, box, "sleep 4440") == []


@pytest.mark.parametrize("connect", [tcp, unix])
def test_a_half_closed_client_is_served(instance, box, connect):
    with connect(instance) as s:
        s.sendall(exec_request(instance, box, {"command": "sleep 0.3; echo late"},
                               "Connection: close"))
        s.shutdown(socket.SHUT_WR)
        got = b""
        while piece := s.recv(65536):
            got += piece
    status, _, answer = split_answer(got)
    assert status == 200 and json.loads(answer)["stdout"] == "late\n", answer


# --- records -------------------------------------------------------------------------------------

def test_waiting_on_a_record(instance, box):
    command = background(instance, box, "sleep 1.2; exit 4")
    start = time.monotonic()
    record = command_state(instance, box, command, "?wait=1")
    assert record["status"] == "INPROGRESS" and time.monotonic() - start < 4
    record = command_state(instance, box, command, "?wait=30")
    assert record["status"] == "FAILED" and record["exit_code"] == 4, record
    assert time.monotonic() - start < 10


def test_what_a_record_tells(instance, box):
    record = finished(instance, box, background(instance, box, "true", cwd="/tmp", user="root"))
    assert record["cwd"] == "/tmp" and record["user"] == "root" and record["pid"] > 1, record
    assert record["command"] == "true" and record["runtime"] == "BASH", record


def test_many_commands_at_once(instance, box):
    def one(number):
        if number % 2:
            return execute(instance, box, f"echo {number}; sleep 0.1")["stdout"]
        made = background(instance, box, f"echo {number}; sleep 0.1")
        finished(instance, box, made)
        return output(instance, box, made).decode()

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        assert list(pool.map(one, range(80))) == [f"{n}\n" for n in range(80)]


def test_no_trace_of_values_in_the_logs(instance, box, sh):
    sh("true", env={"TOKEN": "geheim-in-env"}, stdin="geheim-in-stdin")
    text = instance.logs()
    assert "geheim" not in text and instance.token not in text


def test_memory_that_ran_out(instance, new_sandbox):
    sandbox = new_sandbox(memory_mb=128)
    child = execute(instance, sandbox, "head -c 1G /dev/zero | tail >/dev/null; "
                    "exit ${PIPESTATUS[1]}", timeout=60)
    assert (child["reason"], child["exit_code"], child["oom_killed"]) == ("EXITED", 137, True)
    own = execute(instance, sandbox, "exec tail /dev/zero", timeout=60)
    assert (own["reason"], own["exit_code"], own["oom_killed"]) == ("OOM", 137, True)
    other = execute(instance, sandbox, "kill -9 $$")
    assert (other["reason"], other["exit_code"], other["oom_killed"]) == ("SIGNALED", 137, False)


def test_more_out_than_in(instance, sandbox):
    done = execute(instance, sandbox, "sed 's/x/xxxxxxxxxxxxxxxxxxxx/g' | wc -c",
                   stdin="x" * 900000, timeout=60)
    assert done["stdout"] == f"{900000 * 20}\n", done


def test_records_are_bounded(instance, new_sandbox):
    """The newest 1,000 are kept, with their output, and what runs."""
    sandbox = new_sandbox()
    running = background(instance, sandbox, "exec sleep 1000")
    first = background(instance, sandbox, "echo first")
    finished(instance, sandbox, first)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: execute(instance, sandbox, args=["/bin/true"]), range(1100)))

    def kept():
        found, query = [], ""
        while True:
            page = instance.api("GET", f"/sandboxes/{sandbox['id']}/commands?limit=100{query}").json
            found += [c["id"] for c in page["commands"]]
            if "next_cursor" not in page:
                return found
            query = f"&cursor={page['next_cursor']}"

    until(lambda: len(kept()) == 1000, "the oldest are gone", 20)
    assert running["id"] in kept() and first["id"] not in kept()
    assert command_state(instance, sandbox, running)["status"] == "INPROGRESS"
    assert not [p for p in (instance.base / "state").rglob(f"*{first['id']}*")]
    assert instance.api("GET", f"/sandboxes/{sandbox['id']}/commands/{first['id']}").status == 404
