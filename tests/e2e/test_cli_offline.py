"""The command line tool against a fake API: bytes, exit codes, errors, names, escapes, completion.

No daemon and no sandbox is needed; what is checked is what leaves the tool and what it prints.
"""

import base64
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import termios
import threading
import time
import urllib.parse

import pytest

from cli_kit import (CM, SB, SKERRY, TOKEN, TREE, W, Cli, cli, command, fake, json_error,  # noqa: F401
                     serve)
from fake_api import FakeApi, answer, error


# --- requests ------------------------------------------------------------------------------------

def test_create_sends_what_was_given_only(fake, cli):
    serve(fake, "POST", "/sandboxes", SB, 201)
    p = cli("create", "hello")
    assert (p.returncode, p.stdout, p.stderr) == (0, SB["id"].encode() + b"\n", b"")
    assert fake.requests[0].json == {"name": "hello"}
    assert fake.requests[0].target == W + "/sandboxes"
    assert fake.requests[0].headers["Authorization"] == "Bearer " + TOKEN
    p = cli("sb", "create", "--name", "x", "--image", "ubuntu:24.04", "--cpus", "1.5", "--memory",
            "4G", "--disk=20", "--tag", "a", "--tag", "b", "--wait", "running", "--wait-timeout", "5",
            "--project", "p q")
    assert p.returncode == 0, p.stderr
    assert fake.requests[1].json == {
        "name": "x", "os": "ubuntu:24.04", "cpus": 1.5, "memory_mb": 4096, "disk_gb": 20,
        "tags": ["a", "b"]}
    assert fake.requests[1].query == {"project_name": "p q", "wait": "running",
                                      "wait_timeout": "5"}
    assert b"its identifier is 'hello'" in p.stderr  # not the name that was asked for


ODD = ["a/b", "../x", "%2e%2e", "a b", "a?b=c", "a#b", "é日", "a%00", "'\"\\", "a\nb", "&;|"]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("words", [("get",), ("stop",), ("destroy",), ("command", "list")])
def test_odd_names_stay_one_segment(fake, cli, name, words):
    p = cli(*words, name)
    assert p.returncode == 1
    [request] = fake.requests
    parts = request.path.split("/")
    assert parts[:4] == ["", "workspaces", "default", "sandboxes"]
    assert len(parts) == 5 + (words[0] in ("stop", "command"))
    assert urllib.parse.unquote(parts[4]) == name
    assert re.fullmatch(r"[A-Za-z0-9._~%-]+", parts[4])


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_cannot_be(fake, cli, name):
    p = cli("get", name)
    assert p.returncode == 2
    assert fake.requests == []


def test_unix_socket(tmp_path):
    server = FakeApi(str(tmp_path / "api.sock"))
    try:
        serve(server, "GET", "/sandboxes", {"sandboxes": [SB]})
        p = Cli(tmp_path, server.url)("list", "-q")
        assert p.stdout.decode() == SB["id"] + "\n"
        # a proxy from the environment is not asked
        p = Cli(tmp_path, server.url)("list", "-q", env={"http_proxy": "http://127.0.0.1:1"})
        assert p.returncode == 0
    finally:
        server.close()


def test_proxy_is_not_asked_for_loopback(fake, cli):
    serve(fake, "GET", "/sandboxes", {"sandboxes": []})
    assert cli("list", env={"http_proxy": "http://127.0.0.1:1"}).returncode == 0


def test_redirects_are_not_followed(fake, cli):
    other = FakeApi()
    try:
        fake.route("GET", W + "/sandboxes/hello", lambda r: (
            302, {"Location": other.url + "/steal", "Content-Type": "text/plain"}, b""))
        assert cli("get", "hello").returncode == 1
        assert other.requests == []
    finally:
        other.close()


def test_pages_are_followed(fake, cli):
    def page(request):
        cursor = request.query.get("cursor")
        at = int(cursor or 0)
        more = {"next_cursor": str(at + 2)} if at < 4 else {}
        return answer({"sandboxes": [dict(SB, identifier=f"s{at + i}") for i in range(2)], **more})

    fake.route("GET", W + "/sandboxes", page)
    p = cli("list")
    assert [line.split("\t")[0] for line in p.stdout.decode().splitlines()] == [
        "s0", "s1", "s2", "s3", "s4", "s5"]
    p = cli("list", "--format", "json")
    assert len(json.loads(p.stdout)["sandboxes"]) == 6
    p = cli("list", "--limit", "2", "--format", "json")
    assert len(json.loads(p.stdout)["sandboxes"]) == 2
    assert fake.requests[-1].query == {"limit": "2"}


def test_states(fake, cli):
    for verb, state in (("start", "RUNNING"), ("stop", "STOPPED"), ("restart", "RUNNING")):
        serve(fake, "POST", f"/sandboxes/hello/{verb}", dict(SB, status=state))
        p = cli(verb, "hello")
        assert (p.returncode, p.stdout.decode()) == (0, f"hello\t{state}\n")
        assert fake.requests[-1].body == b""
    cli("stop", "hello", "--grace", "0")
    assert fake.requests[-1].json == {"grace": 0}


def test_several_arguments_all_tried(fake, cli):
    fake.route("DELETE", W + "/sandboxes/a", lambda r: (204, {}, b""))
    fake.route("DELETE", W + "/sandboxes/c", lambda r: (204, {}, b""))
    p = cli("rm", "a", "b", "c")
    assert p.returncode == 1
    assert [r.path.rsplit("/", 1)[1] for r in fake.requests] == ["a", "b", "c"]
    assert p.stderr.count(b"skerry:") == 1
    assert cli("rm", "a", "c").returncode == 0


# --- commands ------------------------------------------------------------------------------------

def log_line(stream, data, offset, **more):
    return json.dumps({"type": stream, "data": data, "offset": offset, **more}).encode() + b"\n"


def logs_path():
    return f"{W}/sandboxes/hello/commands/{CM['id']}/logs"


def jsonl(*pieces):
    return lambda request: (200, {"Content-Type": "application/jsonl"}, iter(pieces))


def test_logs_bytes(fake, cli):
    lines = (log_line("STDOUT", "a", 0) + log_line("STDOUT", "", 2) + log_line("STDERR", "e", 0) +
             log_line("STDOUT", "�", 3, data_base64=base64.b64encode(b"\xff\0").decode()) +
             log_line("STDOUT", "é\r", 6, partial=True) +
             json.dumps({"type": "EXIT", **CM}).encode() + b"\n")
    # pieces end anywhere, inside lines and characters
    fake.route("GET", logs_path(), jsonl(*[lines[i:i + 7] for i in range(0, len(lines), 7)]))
    p = cli("command", "logs", "hello", CM["id"])
    assert (p.returncode, p.stderr) == (0, b"e\n")
    assert p.stdout == b"a\n\n\xff\0\n\xc3\xa9\r"


def test_logs_keep_order(fake, cli):
    lines = b"".join(log_line("STDOUT" if i % 3 else "STDERR", str(i), (i // 3 if i % 3 == 0 else
                     i - 1 - i // 3) * 2) for i in range(9))
    fake.route("GET", logs_path(), jsonl(lines))
    p = subprocess.run([SKERRY, "command", "logs", "hello", CM["id"]], env=cli.env,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert p.stdout == b"".join(b"%d\n" % i for i in range(9))


def test_logs_dropped_and_json(fake, cli):
    lines = [{"type": "STDOUT", "data": "a\x9b", "offset": 0},
             {"type": "DROPPED", "stream": "stdout", "bytes": 4000},
             {"type": "STDOUT", "data": "z", "offset": 4003}]
    fake.route("GET", logs_path(),
               jsonl(b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)))
    p = cli("command", "logs", "hello", CM["id"])
    assert p.stdout == "a\x9b\nz\n".encode()
    assert b"4000 bytes of stdout" in p.stderr
    p = cli("command", "logs", "hello", CM["id"], "--format", "json")
    assert [json.loads(line) for line in p.stdout.splitlines()] == lines
    assert b"\xc2\x9b" not in p.stdout


def test_logs_cut_stream_is_an_error(fake, cli):
    fake.route("GET", logs_path(), jsonl(log_line("STDOUT", "a", 0), None))
    for follow in ([], ["--follow"]):
        p = cli("command", "logs", "hello", CM["id"], *follow)
        assert (p.returncode, p.stdout) == (1, b"a\n"), p.stderr
    # ended cleanly, but without the event that ends a followed one
    fake.route("GET", logs_path(), jsonl(log_line("STDOUT", "a", 0)))
    assert cli("command", "logs", "hello", CM["id"]).returncode == 0
    p = cli("command", "logs", "hello", CM["id"], "-f")
    assert (p.returncode, p.stdout) == (1, b"a\n") and b"--follow" in p.stderr


def test_logs_follow_without_the_server(fake, cli):
    """The server follows not yet and knows no events: what grows is printed once."""
    rounds = [log_line("STDOUT", "on", 0, partial=True),
              log_line("STDOUT", "one", 0) + log_line("STDERR", "e", 0),
              log_line("STDOUT", "one", 0) + log_line("STDERR", "e", 0) +
              log_line("STDOUT", "two", 4, partial=True)]
    at = [0]

    def logs(request):
        for field in ("events", "follow"):
            if field in request.query:
                return error(400, f"{field}: not available", code="not_available", field=field)
        return 200, {"Content-Type": "application/jsonl"}, rounds[min(at[0], 2)]

    def status(request):
        at[0] += 1
        return answer(dict(CM, status="INPROGRESS" if at[0] < 2 else "SUCCESSFUL"))

    fake.route("GET", logs_path(), logs)
    fake.route("GET", f"{W}/sandboxes/hello/commands/{CM['id']}", status)
    p = cli("command", "logs", "hello", CM["id"], "--follow")
    assert (p.returncode, p.stdout, p.stderr) == (0, b"one\ntwo", b"e\n")


def test_command_status_list_kill(fake, cli):
    serve(fake, "GET", "/sandboxes/hello/commands", {"commands": [dict(CM, command="a\tb\x1b")]})
    serve(fake, "GET", f"/sandboxes/hello/commands/{CM['id']}", CM)
    serve(fake, "POST", f"/sandboxes/hello/commands/{CM['id']}/terminate",
          dict(CM, status="FAILED", exit_code=137, signal="KILL"))
    p = cli("command", "list", "hello")
    assert p.stdout.decode() == (f"{CM['id']}\tSUCCESSFUL\t0\tEXITED\t2026-01-02T03:04:05Z\t"
                                 "a\\tb\\x1b\n")
    p = cli("command", "status", "hello", CM["id"], "--wait", "5")
    assert b"exit code\t0\n" in p.stdout
    assert fake.requests[-1].query == {"wait": "5"}
    p = cli("sb", "command", "kill", "hello", CM["id"], "--signal", "int", "--grace", "1")
    assert p.returncode == 0
    assert fake.requests[-1].json == {"signal": "INT", "grace": 1}


# --- wait, images --------------------------------------------------------------------------------

def test_wait(fake, cli):
    states = iter(["STARTING", "STARTING", "RUNNING", "STOPPING", "STOPPED", "STARTING", "FAILED"])
    fake.route("GET", W + "/sandboxes/hello", lambda r: answer(
        dict(SB, status=next(states), exit_reason={"code": "x", "text": "no disk"})))
    assert cli("wait", "hello").returncode == 0
    assert cli("wait", "hello", "--state", "stopped").returncode == 0
    p = cli("wait", "hello")
    assert p.returncode == 1 and b"no disk" in p.stderr
    serve(fake, "GET", "/sandboxes/hello", dict(SB, status="STARTING"))
    p = cli("wait", "hello", "--timeout", "0.3")
    assert p.returncode == 1 and b"STARTING, not RUNNING" in p.stderr
    assert cli("wait", "hello", "--state", "happy").returncode == 2
    assert cli("wait", "gone").returncode == 1


def test_image_import_streams(fake, cli, tmp_path):
    data = os.urandom(5 * 1024 * 1024)
    serve(fake, "POST", "/images", {"name": "box:1"}, 201)
    p = cli("image", "import", "box:1", "--user", "dev", "--work-dir", "/s r c", input=data)
    assert (p.returncode, p.stdout) == (0, b"box:1\n"), p.stderr
    assert fake.requests[0].body == data
    assert fake.requests[0].query == {"name": "box:1", "user": "dev", "work_dir": "/s r c"}
    assert fake.requests[0].headers["Content-Type"] == "application/x-tar"
    assert fake.requests[0].headers["Transfer-Encoding"] == "chunked"
    file = tmp_path / "root.tar"
    file.write_bytes(data)
    assert cli("image", "import", "box:1", str(file)).returncode == 0
    assert fake.requests[1].body == data
    assert fake.requests[1].headers["Content-Length"] == str(len(data))
    p = cli("image", "import", "box:1", str(tmp_path / "none"))
    assert p.returncode == 1 and b"No such file" in p.stderr


def test_image_import_memory(fake, cli):
    """A tar of any size passes through a small process."""
    fake.route("POST", W + "/images", lambda r: answer({"name": "x"}, 201))
    size = 200 * 1024 * 1024
    script = f'ulimit -v 400000; head -c {size} /dev/zero | "$0" image import x'
    if cli.env.keys() & {"ASAN_OPTIONS"}:
        pytest.skip("the address sanitizer reserves more than the limit")
    p = subprocess.run(["bash", "-c", script, SKERRY], env=cli.env, capture_output=True, timeout=120)
    assert p.returncode == 0, p.stderr
    assert len(fake.requests[0].body) == size


def test_image_list_and_rm(fake, cli):
    serve(fake, "GET", "/images", {"images": [{"name": "debian:12", "size_bytes": 104857600}]})
    assert cli("image", "ls").stdout == b"debian:12\t100 MiB\t-\t-\t-\n"
    fake.route("DELETE", W + "/images/debian%3A12", lambda r: (204, {}, b""))
    assert cli("image", "rm", "debian:12").returncode == 0


# --- output --------------------------------------------------------------------------------------

EVIL = dict(SB, identifier="日本", os="\x1b[31m\n\u202e", resources="a\tb", status="\x9b31m")


def test_table_elsewhere(fake, cli):
    serve(fake, "GET", "/sandboxes", {"sandboxes": [SB, EVIL, {}]})
    p = cli("list")
    lines = p.stdout.decode().split("\n")
    assert lines[0] == "\t".join(["hello", "RUNNING", "SUCCESS", "debian:12", "2x4",
                                  "2026-01-02T03:04:05Z", SB["id"]])
    assert lines[1].split("\t")[:5] == ["日本", "\\u009b31m", "SUCCESS", "\\x1b[31m\\n\\u202e",
                                        "a\\tb"]
    assert lines[2] == "\t".join("-" * 7)
    assert len(lines) == 4


def test_table_on_a_terminal(fake, cli):
    serve(fake, "GET", "/sandboxes", {"sandboxes": [SB, EVIL]})
    out, status = cli.on_terminal("list")
    assert status == 0
    assert b"\x1b" not in out and b"\xc2\x9b" not in out
    header, first, second, last = out.decode().split("\n")
    column = header.index("STATUS")
    assert first.index("RUNNING") == column
    assert second.index("\\u009b") == column - 2  # two characters that are two columns wide each
    assert not header.endswith(" ") and last == ""


def test_long_commands_in_lists(fake, cli):
    """On a terminal the last column ends with the line; elsewhere it is whole."""
    long = "echo é日" * 20000
    serve(fake, "GET", "/sandboxes/hello/commands", {"commands": [dict(CM, command=long), CM]})
    p = cli("command", "list", "hello")
    assert p.returncode == 0 and p.stdout.decode().splitlines()[0].endswith("\t" + long)
    out, status = cli.on_terminal("command", "list", "hello", columns=120)
    assert status == 0
    header, first, second, _ = out.decode().split("\n")
    wide = sum(2 if c == "日" else 1 for c in first)
    assert first.endswith("…") and 118 <= wide <= 120
    assert header.endswith("COMMAND") and second.endswith("  make")
    out, status = cli.on_terminal("command", "list", "hello", columns=20)  # too narrow for it
    assert status == 0 and out.decode().split("\n")[1].endswith("…")
    serve(fake, "GET", "/sandboxes/hello/commands/" + CM["id"], dict(CM, command=long))
    assert f"command\t{long}\n" in cli("command", "status", "hello", CM["id"]).stdout.decode()


def test_errors_on_a_terminal_are_escaped(fake, cli):
    fake.route("GET", W + "/sandboxes/hello",
               lambda r: error(404, "no \x1b]0;title\x07 here\nskerry: forged", code="not_found"))
    out, status = cli.on_terminal("get", "hello")
    assert status == 1
    assert out == b"skerry: no \\x1b]0;title\\a here\\nskerry: forged\n"


def test_json_is_the_servers_object(fake, cli):
    odd = dict(EVIL, extra={"deep": [1, 2.5, True, None, "\0\x7f\x9b"]}, big=2 ** 53)
    serve(fake, "GET", "/sandboxes/hello", odd)
    p = cli("get", "hello", "--format", "json")
    assert json.loads(p.stdout) == odd
    assert list(json.loads(p.stdout)) == list(odd)
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", p.stdout)


def test_full_disk_is_an_error(fake, cli):
    serve(fake, "GET", "/sandboxes", {"sandboxes": [SB]})
    command(fake, stdout=b"x")
    for words, status in ((["list"], 1), (["exec", "hello", "x"], 125), (["--help"], 1)):
        with open("/dev/full", "wb") as full:
            p = subprocess.run([SKERRY, *words], env=cli.env, stdout=full, stderr=subprocess.PIPE)
        assert p.returncode == status
        assert b"No space left" in p.stderr


# --- errors --------------------------------------------------------------------------------------

def test_json_errors(fake, cli):
    fake.route("GET", W + "/sandboxes/hello", lambda r: error(
        409, "busy", code="sandbox_busy", hint="wait", field="x"))  # a hint we have none for
    p = cli("get", "hello", "--format", "json")
    assert (p.returncode, p.stdout) == (1, b"")
    assert json_error(p) == {"code": "sandbox_busy", "message": "busy", "hint": "wait"}
    for words, code in ((["--format=json", "crate"], "usage"),
                        (["get", "--format", "json"], "usage"),
                        (["get", "a", "--nope", "--format", "json"], "usage")):
        p = cli(*words)
        assert p.returncode == 2
        assert json_error(p)["code"] == code
    p = cli("list", "--format", "json", "--url", "http://127.0.0.1:1")
    assert p.returncode == 1
    assert json_error(p)["code"] == "connection_failed"
    assert "skerry doctor" in json_error(p)["hint"]


@pytest.mark.parametrize("status, body", [
    (500, b"<html>\x1b[31m</html>"), (502, b""), (400, b'{"errors":[]}'), (404, b'{"errors":3}'),
    (503, b'{"errors":[{"message":7}]}'), (200, b"<html>"), (200, b"\xff")])
def test_answers_from_elsewhere(fake, cli, status, body):
    fake.route("GET", W + "/sandboxes/hello", lambda r: (status, {"Content-Type": "text/html"}, body))
    p = cli("get", "hello")
    assert p.returncode == 1 and p.stdout == b""
    assert p.stderr.startswith(b"skerry: ") and b"\x1b" not in p.stderr
    json_error(cli("get", "hello", "--format", "json"))


@pytest.mark.parametrize("status, code, hint, words", [
    (400, "image_not_found", "GET …/images", b"skerry image list"),
    (404, "sandbox_not_found", None, b"skerry list"),
    (409, "sandbox_stopping", "wait", b"skerry wait hello --state stopped"),
    (409, "sandbox_failed", "POST", b"skerry get hello; then: skerry start hello, or skerry destroy hello"),
    (401, "unauthorized", "send 'Authorization: Bearer skry_…'", b"--add-token"),
    (401, None, None, b"config set token"),
    (429, "too_many_requests", None, b"a little later"),
    (502, None, None, b"sudo make up"), (503, None, None, b"/var/log/skerry"),
    (503, "host_full", "stop a sandbox", b"hint: stop a sandbox\n")])
def test_hints_are_of_this_tool(fake, cli, status, code, hint, words):
    more = {name: value for name, value in (("code", code), ("hint", hint)) if value}
    fake.route("POST", W + "/sandboxes/hello/restart", lambda r: error(status, "no", **more))
    p = cli("restart", "hello")
    assert p.returncode == 1 and words in p.stderr
    assert not re.search(rb"\b(GET|POST|Bearer)\b", p.stderr)


def test_connection_failures_name_url_and_remedy(cli, tmp_path):
    for url in ("http://127.0.0.1:1", f"unix://{tmp_path}/none.sock"):
        p = cli("list", env={"SKERRY_URL": url})
        assert p.returncode == 1
        assert url.encode() in p.stderr and b"skerry doctor" in p.stderr
        assert b"sudo make up" in p.stderr and b"/var/log/skerry" in p.stderr
    p = cli("list", env={"SKERRY_URL": "ftp://x"})
    assert p.returncode == 1 and b"ftp://x" in p.stderr


def test_endless_answer_is_bounded(fake, cli):
    def endless():
        while True:
            yield b" " * 65536

    fake.route("GET", W + "/sandboxes/hello",
               lambda r: (200, {"Content-Type": "application/json"}, endless()))
    p = cli("get", "hello")
    assert p.returncode == 1 and b"larger than" in p.stderr


def test_suggestions(cli):
    p = cli("sb", "crate")
    assert p.returncode == 2 and b"did you mean: skerry create" in p.stderr
    p = cli("comand")
    assert b"did you mean: skerry command" in p.stderr


def test_alone(cli):
    p = cli()
    assert (p.returncode, p.stdout) == (2, b"")
    assert b"skerry create NAME" in p.stderr and b"skerry help" in p.stderr
    assert len(p.stderr) < len(cli("--help").stdout) / 2
    assert json_error(cli("--format", "json"))["code"] == "usage"
    version = cli("version").stdout.split(b"\n")[0].split(b"\t")[1]
    for words in (["--version"], ["-V"]):
        p = cli(*words, env={"SKERRY_URL": "http://127.0.0.1:1"})
        assert (p.returncode, p.stdout) == (0, b"skerry " + version + b"\n")
    assert json.loads(cli("-V", "--format", "json").stdout) == {"version": version.decode()}
    assert b"skerry help command logs" in cli("help", "command").stdout
    assert cli("list", "--version").returncode == 2


# --- configuration -------------------------------------------------------------------------------

def test_config_others_can_read_is_refused(fake, cli, tmp_path):
    serve(fake, "GET", "/sandboxes", {"sandboxes": []})
    path = tmp_path / ".config" / "skerry" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"contexts": {"default": {"token": TOKEN}}}))
    path.chmod(0o644)
    p = cli("list")
    assert p.returncode == 1 and b"chmod 600" in p.stderr
    assert fake.requests == []
    path.chmod(0o600)
    assert cli("list").returncode == 0


def test_config_set_and_show(fake, cli, tmp_path):
    serve(fake, "GET", "/sandboxes", {"sandboxes": []})
    del cli.env["SKERRY_TOKEN"], cli.env["SKERRY_URL"]
    assert cli("config", "set", "url", fake.url).returncode == 0
    assert cli("config", "set", "token", "-", input=TOKEN.encode() + b"\n").returncode == 0
    assert cli("config", "set", "project", "p").returncode == 0
    path = tmp_path / ".config" / "skerry" / "config.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {"current": "default", "contexts": {
        "default": {"url": fake.url, "token": TOKEN, "project": "p"}}}
    p = cli("list")
    assert p.returncode == 0
    assert fake.requests[0].headers["Authorization"] == "Bearer " + TOKEN
    assert fake.requests[0].query == {"project_name": "p"}
    p = cli("config")
    assert b"token\t(set, not shown)\tconfiguration file\n" in p.stdout
    p = cli("config", "--format", "json")
    assert json.loads(p.stdout)["token"] == {"set": True, "source": "configuration file"}
    assert cli("config", "set", "colour", "red").returncode == 2
    assert cli("config", "set", "url", "gopher://x").returncode == 2
    # another context comes into being by being set, not by being named
    p = cli("config", "set", "current", "far")
    assert p.returncode == 1 and b"no context 'far'" in p.stderr
    assert json.loads(path.read_text())["current"] == "default"
    assert cli("config", "set", "url", "http://127.0.0.1:1", "--context", "far").returncode == 0
    assert cli("list", "--context", "far").returncode == 1
    assert cli("list", "--context", "none").returncode == 1
    assert cli("list").returncode == 0
    assert cli("config", "set", "current", "far").returncode == 0
    assert cli("list").returncode == 1
    assert cli("config", "set", "current", "default").returncode == 0


def test_config_get(cli):
    assert cli("config", "get", "url").stdout.decode() == cli.env["SKERRY_URL"] + "\n"
    assert cli("config", "get", "workspace", "--format", "json").stdout == b"default\n"
    p = cli("config", "get", "project")
    assert (p.returncode, p.stdout) == (1, b"") and b"not set" in p.stderr
    for words in (["colour"], [], ["url", "more"], ["token"]):  # the fixture looks for the token
        p = cli("config", "get", *words)
        assert (p.returncode, p.stdout) == (2, b""), words
    assert b"--reveal" in p.stderr and b"secret" in p.stderr
    p = subprocess.run([SKERRY, "config", "get", "token", "--reveal"], env=cli.env,
                       capture_output=True)
    assert (p.returncode, p.stdout, p.stderr) == (0, TOKEN.encode() + b"\n", b"")


def test_doctor_without_a_daemon(cli):
    p = cli("doctor", "--format", "json", env={"SKERRY_URL": "http://127.0.0.1:1"})
    assert p.returncode == 1
    checks = {c["name"]: c for c in json.loads(p.stdout)["checks"]}
    assert checks["API"]["status"] == "fail" and checks["API"]["hint"]
    assert checks["kernel"]["text"].startswith(os.uname().release)
    assert {c["status"] for c in checks.values()} <= {"ok", "warn", "fail"}
    for check in checks.values():
        assert check["status"] == "ok" or check.get("hint"), check
    p = cli("doctor", env={"SKERRY_URL": "http://127.0.0.1:1"})
    assert p.returncode == 1 and b"\x1b" not in p.stdout
    for line in p.stdout.decode().splitlines():
        assert len(line.split("\t")) == (3 if line.startswith("ok\t") else 4), line


def test_doctor_with_a_daemon(fake, cli):
    version = cli("version").stdout.decode().split("\t")[1].split("\n")[0]
    fake.route("GET", "/version", lambda r: answer({"version": version}))
    fake.route("GET", "/healthz", lambda r: answer({"status": "ok"}))
    serve(fake, "GET", "/sandboxes", {"sandboxes": []})
    serve(fake, "GET", "/images", {"images": [{"name": "debian:12", "size_bytes": 1 << 27}]})

    def checks():
        out = json.loads(cli("doctor", "--format", "json").stdout)
        return {c["name"]: c["status"] for c in out["checks"]}

    assert [checks()[n] for n in ("configuration", "API", "daemon", "token", "image")] == ["ok"] * 5
    assert b"debian:12 is there, 128 MiB" in cli("doctor").stdout
    serve(fake, "GET", "/images", {"images": [{"name": "debian:12-slim"}]})
    assert checks()["image"] == "warn"
    fake.route("GET", "/version", lambda r: answer({"version": "9.9.9"}))
    assert checks()["API"] == "warn"
    fake.route("GET", W + "/sandboxes", lambda r: error(401, "bad token"))
    assert checks()["token"] == "fail"


def test_doctor_colours(cli):
    url = {"SKERRY_URL": "http://127.0.0.1:1"}
    assert b"\x1b[31m" in cli.on_terminal("doctor", env=url)[0]
    assert b"\x1b" not in cli.on_terminal("doctor", env={**url, "NO_COLOR": "1"})[0]


# --- help and completion -------------------------------------------------------------------------

def every_command(cli):
    names = []
    for line in cli("--help").stdout.decode().splitlines():
        if m := re.match(r"  ([a-z]+(?: [a-z]+)?)(?:, [a-z]+)? {2,}\S", line):
            names.append(m[1].split())
    return names


def test_help_of_every_command(cli):
    names = every_command(cli)
    assert ["create"] in names and ["command", "logs"] in names and len(names) > 20
    for words in names:
        p = cli("help", *words)
        text = p.stdout.decode()
        assert p.returncode == 0 and "usage: skerry " + " ".join(words) in text, words
        assert "Examples" in text, words
        assert cli(*words, "--help").stdout == p.stdout


def test_help_needs_no_configuration(tmp_path):
    path = tmp_path / ".config" / "skerry" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text("broken")
    path.chmod(0o644)
    for words in (["--help"], ["exec", "--help"], ["help", "run"], ["completion", "bash"]):
        assert Cli(tmp_path, None)(*words).returncode == 0


def complete_in_bash(cli, line):
    """What bash offers for the line with the cursor at its end."""
    script = f"""
        PATH={SKERRY.parent}:$PATH
        source <(skerry completion bash) || exit 9
        COMP_LINE=$1 COMP_POINT=${{#1}}
        read -ra COMP_WORDS <<<"$2"
        [[ $1 == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _skerry
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    # as bash splits: at blanks, with : and = words of their own
    words = re.sub(r"([:=]+)", r" \1 ", line)
    p = subprocess.run(["bash", "-c", script, "bash", line, words], env=cli.env,
                       capture_output=True, text=True)
    assert p.returncode == 0 and p.stderr == "", p.stderr
    return p.stdout.split()


def test_completion_parses(cli):
    script = cli("completion", "bash").stdout
    assert subprocess.run(["bash", "-n"], input=script).returncode == 0
    for shell in ("zsh", "fish"):
        script = cli("completion", shell).stdout
        assert script
        try:
            assert subprocess.run([shell, "-n"], input=script).returncode == 0
        except FileNotFoundError:
            pass
    assert cli("completion", "csh").returncode == 2


def test_completion_in_bash(fake, cli):
    serve(fake, "GET", "/sandboxes", {"sandboxes": [
        SB, dict(SB, identifier="help-me"), dict(SB, identifier="x; rm -rf /")]})
    serve(fake, "GET", "/sandboxes/hello/commands", {"commands": [CM]})
    serve(fake, "GET", "/images", {"images": [{"name": "debian:12"}, {"name": "debian:12-slim"}]})
    assert "create" in complete_in_bash(cli, "skerry cr")
    assert set(complete_in_bash(cli, "skerry ")) >= {"create", "list", "exec", "command", "image"}
    assert complete_in_bash(cli, "skerry command ") == ["list", "status", "logs", "signal",
                                                        "stdin", "kill"]
    assert complete_in_bash(cli, "skerry command signal hello cm… U") == ["USR1", "USR2"]
    assert complete_in_bash(cli, "skerry exec ") == ["hello", "help-me"]
    assert complete_in_bash(cli, "skerry sb exec hell") == ["hello"]
    assert complete_in_bash(cli, "skerry command logs hello ") == [CM["id"]]
    assert complete_in_bash(cli, "skerry stop hello ") == ["hello", "help-me"]
    assert complete_in_bash(cli, "skerry get hello ") == []
    assert "--env" in complete_in_bash(cli, "skerry exec --e")
    assert complete_in_bash(cli, "skerry list --format j") == ["json"]
    assert complete_in_bash(cli, "skerry list --format=j") == ["json"]
    assert complete_in_bash(cli, "skerry --format json li") == ["list"]
    # after a colon bash replaces the last part only
    assert complete_in_bash(cli, "skerry run debian:12-") == ["12-slim"]
    assert complete_in_bash(cli, "skerry create x --image deb") == ["debian:12", "debian:12-slim"]
    # what follows is the other program's
    assert complete_in_bash(cli, "skerry exec hello ls --us") == []


def test_completion_in_fish(fake, cli):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    serve(fake, "GET", "/sandboxes", {"sandboxes": [SB]})
    p = subprocess.run(
        ["fish", "-c", "source (skerry completion fish | psub); "
         "for l in 'skerry cr' 'skerry get ' 'skerry list --format j'; complete -C $l; end"],
        env={**cli.env, "PATH": f"{SKERRY.parent}:{cli.env['PATH']}"}, capture_output=True, text=True)
    assert [line.split("\t")[0] for line in p.stdout.splitlines()] == ["create", "hello", "json"]


def test_completion_is_silent_without_an_api(cli):
    cli.env["SKERRY_URL"] = "http://127.0.0.1:1"
    assert complete_in_bash(cli, "skerry get ") == []
    assert "create" in complete_in_bash(cli, "skerry cr")


FOREIGN = """
table ip filter {
	chain FORWARD { type filter hook forward priority filter; policy drop; }
	chain INPUT { type filter hook input priority filter; policy drop; }
}
table inet other {
	chain f { type filter hook forward priority filter; policy accept; }
	chain g { type filter hook forward priority filter; policy drop; iifname "eth-*" accept; }
}
table inet box {
	chain from_sandbox { accept; }
}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_doctor_on_firewalls_of_others(cli):
    """In a network of its own; what the hints say makes it well."""
    script = """
nft -f -
skerry doctor --format json
skerry doctor --format json | python3 -c 'import json, sys
for check in json.load(sys.stdin)["checks"]:
    if check["name"] == "firewall": print(check["hint"])' | sh
skerry doctor --format json
"""
    path = f"{os.path.dirname(SKERRY)}:{os.environ['PATH']}:/usr/sbin"
    p = subprocess.run(["unshare", "--net", "sh", "-c", script], input=FOREIGN.encode(),
                       env={**cli.env, "PATH": path, "SKERRY_URL": "http://127.0.0.1:1"},
                       capture_output=True)
    decoder, text, found = json.JSONDecoder(), p.stdout.decode(), []
    while text.strip():
        report, end = decoder.raw_decode(text.lstrip())
        text = text.lstrip()[end:]
        found.append([c for c in report["checks"] if c["name"] == "firewall"])
    assert [c["status"] for c in found[0]] == ["warn", "warn"], p
    assert "chain ip filter FORWARD" in found[0][0]["text"]
    assert "chain inet other g" in found[0][1]["text"] and '"box-*"' in found[0][1]["hint"]
    assert [c["status"] for c in found[1]] == ["ok"], (found, p.stderr)
    p = subprocess.run(["unshare", "--net", SKERRY, "doctor"], capture_output=True,
                       env={**cli.env, "SKERRY_URL": "http://127.0.0.1:1"})
    assert b"no chain of others" in p.stdout
