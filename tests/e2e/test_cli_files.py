"""cp and ls of the command line tool, in a real sandbox; streams that break against a fake API."""

import json
import os
import signal
import stat
import subprocess
import time

import pytest

from cli_kit import Cli, SKERRY, cli, fake, wait_for  # noqa: F401
from fake_api import answer, error
from files_kit import Files
from kit import execute

MIB = 1 << 20
FILES = "/workspaces/default/sandboxes/hello"
ODD = [b"plain", "测试 é.txt".encode(), b"new\nline", b"\xff\xfe", b"%2F", b" space ", b"-n", b"a:b"]
ITEM = {"type": "FILE", "name": "f", "path": "/tmp/f", "size": 4, "mode": "0640"}


@pytest.fixture
def real(instance, tmp_path):
    tool = Cli(tmp_path, f"http://127.0.0.1:{instance.port}")
    tool.env["SKERRY_TOKEN"] = instance.token
    return tool


@pytest.fixture
def work(instance, box):
    """An empty directory of the sandbox, as SANDBOX:/path."""
    execute(instance, box, "rm -rf /tmp/work; mkdir -m 777 /tmp/work", user="root")
    return f"{box['identifier']}:/tmp/work"


def well(p, out=b""):
    assert (p.returncode, p.stdout, p.stderr) == (0, out, b""), p


# --- in a sandbox --------------------------------------------------------------------------------

def test_there_and_back(instance, box, real, work, tmp_path):
    data = os.urandom(3 * MIB + 1)
    (tmp_path / "file").write_bytes(data)
    os.chmod(tmp_path / "file", 0o750)
    well(real("cp", tmp_path / "file", work + "/new"))
    well(real("cp", tmp_path / "file", work))
    well(real("cp", tmp_path / "file", work + "/"))
    shown = execute(instance, box, "cd /tmp/work; ls; stat -c '%a %U' new")["stdout"]
    assert shown == "file\nnew\n750 skerry\n"
    well(real("cp", work + "/new", tmp_path / "back"))
    (tmp_path / "dir").mkdir()
    well(real("cp", work + "/new", tmp_path / "dir"))
    for name in ("back", "dir/new"):
        assert (tmp_path / name).read_bytes() == data
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o750
    assert sorted(os.listdir(tmp_path / "dir")) == ["new"]


def test_standard_streams(instance, box, real, work):
    data = os.urandom(2 * MIB)
    well(real("cp", "-", work + "/in", "--user", "root", input=data))
    assert execute(instance, box, "stat -c %U /tmp/work/in")["stdout"] == "root\n"
    well(real("cp", work + "/in", "-"), data)
    well(real("cp", "-", work + "/empty"))
    well(real("cp", work + "/empty", "-"))
    p = real("cp", "-", work)
    assert p.returncode == 2 and b"name" in p.stderr


@pytest.mark.parametrize("name", ODD)
def test_names_of_any_bytes(real, work, tmp_path, name):
    local = os.fsencode(tmp_path) + b"/" + name
    with open(local, "wb") as out:
        out.write(name)
    well(real("cp", local, work))
    well(real("ls", work), name + b"\n")
    well(real("ls", "-0", work), name + b"\0")
    well(real("ls", "-R", work), b"/tmp/work/" + name + b"\n")
    well(real("cp", os.fsencode(work) + b"/" + name, "-"), name)
    os.unlink(local)
    well(real("cp", os.fsencode(work) + b"/" + name, tmp_path))
    with open(local, "rb") as file:
        assert file.read() == name


def test_what_is_there_keeps_its_mode(real, work, tmp_path):
    well(real("cp", "-", work + "/file", input=b"new"))
    (tmp_path / "file").write_bytes(b"old" * 100)
    os.chmod(tmp_path / "file", 0o600)
    (tmp_path / "link").symlink_to("file")
    well(real("cp", work + "/file", tmp_path / "link"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    well(real("cp", work + "/file", "/dev/null"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_refusals(real, work, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    for words, code, text in [
            (("a", "b"), 2, "SANDBOX"), ((work, work), 2, "a file here"),
            ((work + "/no", "x"), 1, "/tmp/work/no"), ((tmp_path / "no", work), 1, "No such file"),
            ((tmp_path / "file", "no-such-box:/tmp/x"), 1, "no-such-box"),
            ((tmp_path / "file", work + "/f", "--user", "nobody-at-all"), 1, "nobody-at-all"),
            ((work + "/x", "-", "--user", "root"), 2, "--user")]:
        p = real("cp", *words)
        assert p.returncode == code and text in p.stderr.decode(), (words, p)
    assert sorted(os.listdir(tmp_path)) == ["file"]
    name = work.split(":")[0]
    for words, text in (((tmp_path / "file", name + ":relative"), f"{name}:/relative"),
                        ((work, work + "/x"), "from a sandbox")):
        p = real("cp", *words)
        assert p.returncode == 2 and text in p.stderr.decode(), p
    # the whole message, whatever bytes are in it
    p = real("ls", os.fsencode(work) + b"/b\xffd")
    assert p.stderr.rstrip().endswith(f"in sandbox '{name}'".encode()), p
    p = real("cp", work + "/no", tmp_path / "x", "--format", "json")
    assert json.loads(p.stderr)["error"]["code"] == "file_not_found", p
    p = real("ls", work + "/no")
    assert p.returncode == 1 and b"/tmp/work/no" in p.stderr
    for words in (("-l",), (work, "--tag", "x"), (work, "-q")):
        assert real("ls", *words).returncode == 2


def test_ls(instance, box, real, work):
    execute(instance, box, "cd /tmp/work; umask 022; mkdir -p d/e; echo 12345 > d/f; ln -s d/f l;"
            " mkfifo p; chmod 4711 d/f; chmod 1777 d")
    well(real("ls", work), b"d\nl\np\n")
    well(real("ls", "-R", work), b"/tmp/work/d\n/tmp/work/d/e\n/tmp/work/d/f\n/tmp/work/l\n"
         b"/tmp/work/p\n")
    rows = [line.split("\t") for line in real("ls", "-l", work).stdout.decode().splitlines()]
    assert [(r[0], r[1], r[3], r[5]) for r in rows if r[5] != "d"] == [
        ("lrwxrwxrwx", "skerry", "6", "l -> d/f"), ("prw-r--r--", "skerry", "0", "p")]
    assert rows[0][0] == "drwxrwxrwt"
    (row,) = [line.split("\t") for line in
              real("ls", "-l", work + "/d/f").stdout.decode().splitlines()]
    assert (row[0], row[3], row[5]) == ("-rws--x--x", "6", "f")
    names = [n["name"] for n in json.loads(
        real("ls", work, "--format", "json").stdout)["contents"]]
    assert names == ["d", "l", "p"]
    assert box["identifier"].encode() in real("ls").stdout


def test_pages(instance, box, real, work):
    execute(instance, box, "cd /tmp/work; seq 12000 | xargs touch")
    assert len(real("ls", work).stdout.splitlines()) == 12000


def test_names_on_a_terminal(instance, box, real, work):
    Files(instance, box).put(b"/tmp/work/\x1b[31m\n", b"")
    out, code = real.on_terminal("ls", work)
    assert code == 0 and b"\x1b" not in out and b"x1b[31m" in out.replace(b"\\", b""), out


# --- streams that break --------------------------------------------------------------------------

class Short(bytes):
    """Says that it is longer than it is."""

    def __len__(self):
        return 400


@pytest.mark.parametrize("body", [Short(b"half"), [b"half", None]])
def test_a_cut_stream_leaves_nothing(fake, cli, tmp_path, body):
    fake.route("GET", FILES + "/stat/tmp/f", lambda r: answer(ITEM))
    fake.route("GET", FILES + "/download/tmp/f", lambda r: (200, {"Connection": "close"}, body))
    (tmp_path / "f").write_bytes(b"as it was")
    p = cli("cp", "hello:/tmp/f", tmp_path / "f")
    assert p.returncode == 1 and p.stderr
    assert (tmp_path / "f").read_bytes() == b"as it was"
    assert cli("cp", "hello:/tmp/f", tmp_path / "new").returncode == 1
    assert sorted(n for n in os.listdir(tmp_path) if n[0] != ".") == ["f"]
    assert not [n for n in os.listdir(tmp_path) if "skerry-" in n]


def test_an_error_is_never_content(fake, cli, tmp_path):
    fake.route("GET", FILES + "/stat/tmp/f", lambda r: answer(ITEM))
    fake.route("GET", FILES + "/download/tmp/f", lambda r: error(409, "it stops", code="state"))
    p = cli("cp", "hello:/tmp/f", tmp_path / "f")
    assert p.returncode == 1 and b"it stops" in p.stderr and b"it stops" not in p.stdout
    assert not (tmp_path / "f").exists()
    assert cli("cp", "hello:/tmp/f", "-").stdout == b""


def test_an_interrupt_leaves_nothing(fake, cli, tmp_path):
    def slow(request):
        time.sleep(30)
        return answer({})

    fake.route("GET", FILES + "/stat/tmp/f", lambda r: answer(ITEM))
    fake.route("GET", FILES + "/download/tmp/f", slow)
    p = cli.start("cp", "hello:/tmp/f", str(tmp_path / "f"))
    wait_for(lambda: [n for n in os.listdir(tmp_path) if "skerry-" in n])
    p.send_signal(signal.SIGINT)
    assert p.wait(10) == 128 + signal.SIGINT
    assert not [n for n in os.listdir(tmp_path) if n[0] != "."]


def test_a_fifo_waits_for_its_other_end(fake, cli, tmp_path):
    os.mkfifo(tmp_path / "p")
    fake.route("GET", FILES + "/stat/f", lambda r: error(404, "no", code="file_not_found"))
    fake.route("POST", FILES + "/content/upload/f", lambda r: answer(ITEM, 201))
    fake.route("GET", FILES + "/stat/tmp/f", lambda r: answer(ITEM))
    fake.route("GET", FILES + "/download/tmp/f", lambda r: (200, {}, b"text"))
    up, down = ("cp", str(tmp_path / "p"), "hello:/f"), ("cp", "hello:/tmp/f", str(tmp_path / "p"))
    for words in (up, down):
        p = cli.start(*words)
        with pytest.raises(subprocess.TimeoutExpired):
            p.wait(0.5)
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == 128 + signal.SIGINT
    p = cli.start(*up)
    with open(tmp_path / "p", "wb") as end:
        end.write(b"two ")
        end.flush()
        time.sleep(0.3)
        end.write(b"pieces")
    assert p.wait(10) == 0 and fake.requests[-1].body == b"two pieces"
    p = cli.start(*down)
    with open(tmp_path / "p", "rb") as end:
        assert end.read() == b"text"
    assert p.wait(10) == 0


def test_what_is_asked_for(fake, cli, tmp_path):
    (tmp_path / "f").write_bytes(b"text")
    os.chmod(tmp_path / "f", 0o4755)
    fake.route("GET", FILES + "/stat/a%20b/%FF", lambda r: error(404, "no", code="file_not_found"))
    fake.route("POST", FILES + "/content/upload/a%20b/%FF", lambda r: answer(ITEM, 201))
    p = cli("cp", tmp_path / "f", b"hello:/a b/\xff", "--user", "dev", "--format", "json")
    assert p.returncode == 0, p.stderr
    asked = fake.requests[-1]
    assert asked.body == b"text" and asked.query == {"userName": "dev", "mode": "0755"}
    assert asked.headers["Content-Type"] == "application/octet-stream"


def test_a_bar_on_a_terminal_only(fake, cli, tmp_path):
    with open(tmp_path / "f", "wb") as out:
        out.truncate(300 * MIB)
    fake.route("GET", FILES + "/stat/f", lambda r: error(404, "no", code="file_not_found"))
    fake.route("POST", FILES + "/content/upload/f", lambda r: answer(ITEM, 201))
    out, code = cli.on_terminal("cp", str(tmp_path / "f"), "hello:/f")
    assert code == 0 and b"MiB/s" in out and out.endswith(b"\r\x1b[K"), out[-200:]
    out, code = cli.on_terminal("cp", "-q", str(tmp_path / "f"), "hello:/f")
    assert (out, code) == (b"", 0)
    p = subprocess.run([SKERRY, "cp", tmp_path / "f", "hello:/f"], env=cli.env, capture_output=True)
    assert (p.returncode, p.stdout, p.stderr) == (0, b"", b"")
