"""cp of directories: in a real sandbox, and against what a hostile one could answer."""

import io
import os
import pathlib
import signal
import socket
import stat
import subprocess
import tarfile
import time

import pytest

from cli_kit import SKERRY, cli, fake, wait_for  # noqa: F401
from fake_api import answer, error
from kit import execute
from test_cli_files import FILES, MIB, real, well, work  # noqa: F401

NAMES = [b"plain", "测试 é.txt".encode(), "e\u0301".encode(), b"new\nline", b"\xff\xfe", b"\xed\xa0\x80",
         b" space ", b"-n", b"a:b", b"\xe9" + 60 * b"long", 60 * "ö".encode() + b"x" * 100]
DIR = {"type": "DIR", "name": "d", "path": "/tmp/d", "size": 0, "mode": "0755"}


def member(name, data=b"", **fields):
    m = tarfile.TarInfo(name)
    m.size = len(data)
    for key, value in fields.items():
        setattr(m, key, value)
    return m, data


def link(name, target, kind=tarfile.SYMTYPE):
    return member(name, type=kind, linkname=target)


def tar_of(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for m, data in members:
            tar.addfile(m, io.BytesIO(data))
    return out.getvalue()


def nothing_more(path):
    assert not [n for n in os.listdir(path) if "skerry-" in n]


def picture(root):
    """What a directory has: name -> kind, mode, content."""
    seen = {}
    root = os.fsencode(root)
    for at, directories, files in os.walk(root):
        for name in [*directories, *files, b"."]:
            path = os.path.join(at, name)
            st = os.lstat(path)
            key = os.path.relpath(path, root)
            if stat.S_ISLNK(st.st_mode):
                seen[key] = "link", os.readlink(path)
            elif stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    seen[key] = stat.S_IMODE(st.st_mode), st.st_nlink, int(st.st_mtime), f.read()
            else:
                seen[key] = stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode)
    return seen


@pytest.fixture
def tree(tmp_path):
    old = os.umask(0o022)
    root = tmp_path / "tree"
    (root / "a/b/c").mkdir(parents=True)
    (root / "empty").mkdir(mode=0o700)
    (root / "a/file").write_bytes(b"text\n")
    os.chmod(root / "a/file", 0o640)
    os.utime(root / "a/file", (1_000_000_000, 1_000_000_000))
    os.link(root / "a/file", root / "a/b/hard")
    (root / "run").write_bytes(b"#!/bin/sh\n")
    os.chmod(root / "run", 0o4755)
    (root / "nothing").touch()
    for name, target in (("relative", "a/file"), ("absolute", "/etc/passwd"), ("missing", "no/such"),
                         ("to-dir", "a"), ("up", "../../..")):
        (root / name).symlink_to(target)
    for name in NAMES:
        with open(os.fsencode(root) + b"/a/b/c/" + name, "wb") as f:
            f.write(name)
        os.symlink(name, os.fsencode(root) + b"/a/b/c/l" + name[:200])
    with open(root / "sparse", "wb") as f:
        f.seek(64 * MIB)
        f.write(b"end")
        f.truncate(80 * MIB)
    (root / "none/in").mkdir(parents=True)
    (root / "none/in/file").write_bytes(b"shut")
    os.chmod(root / "none", 0)
    os.chmod(root / "a/b", 0o555)
    yield root
    os.chmod(root / "a/b", 0o755)
    os.chmod(root / "none", 0o755)
    os.umask(old)


# --- in a sandbox --------------------------------------------------------------------------------

def test_a_tree_there_and_back(instance, box, real, work, tree, tmp_path):
    well(real("cp", tree, work + "/new"))
    well(real("cp", tree, work))
    well(real("cp", tree, work + "/"))
    assert execute(instance, box, "cd /tmp/work; diff -r --no-dereference new tree && ls; "
                   "stat -c '%a %U' new/a/file new/run new/empty new/a/b new/none; "
                   "du -m new/sparse | cut -f1; readlink new/up", user="root")["stdout"] == (
        "new\ntree\n640 skerry\n755 skerry\n700 skerry\n555 skerry\n0 skerry\n1\n../../..\n")
    wanted = picture(tree)
    wanted[b"run"] = (0o755,) + wanted[b"run"][1:]
    well(real("cp", work + "/new", tmp_path / "back"))
    assert picture(tmp_path / "back") == wanted
    assert (tmp_path / "back/sparse").stat().st_blocks * 512 < MIB
    (tmp_path / "into").mkdir()
    well(real("cp", work + "/new", tmp_path / "into"))
    assert picture(tmp_path / "into/new") == wanted
    well(real("cp", work + "/new/empty", f"{tmp_path}/bare//"))
    assert os.listdir(tmp_path / "bare") == []
    nothing_more(tmp_path)


def test_a_tree_of_the_caller(instance, box, real, work, tree):
    well(real("cp", tree, work + "/t", "--user", "root"))
    assert execute(instance, box, "find /tmp/work/t ! -user root | wc -l")["stdout"] == "0\n"
    os.symlink(tree, tree.parent / "by-link")
    well(real("cp", tree.parent / "by-link", work + "/u"))
    assert execute(instance, box, "cat /tmp/work/u/a/file")["stdout"] == "text\n"
    well(real("cp", "-r", f"{tree}/.", work + "/v"))
    assert execute(instance, box, "cat /tmp/work/v/a/file")["stdout"] == "text\n"


def test_what_is_in_a_directory(instance, box, real, work, tmp_path):
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/file").write_text("new\n")
    execute(instance, box, "mkdir /tmp/work/there; echo old > /tmp/work/there/kept")
    well(real("cp", f"{tmp_path}/d/.", work + "/there"))
    well(real("cp", f"{tmp_path}/d/", work + "/new/"))
    shown = execute(instance, box, "cd /tmp/work; ls there new; cat there/file")["stdout"]
    assert shown == "new:\nfile\nsub\n\nthere:\nfile\nkept\nsub\nnew\n"
    (tmp_path / "here").mkdir()
    well(real("cp", work + "/there/.", tmp_path / "here"))
    well(real("cp", work + "/there/.", tmp_path / "fresh"))
    for name in ("here", "fresh"):
        assert sorted(os.listdir(tmp_path / name)) == ["file", "kept", "sub"]
    p = real("cp", work + "/there/file/.", tmp_path / "here")
    assert p.returncode == 1 and b"no directory" in p.stderr


def test_times(instance, box, real, work, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/file").touch()
    os.utime(tmp_path / "d/file", ns=(1, 1_234_567_890_123_456_789))
    well(real("cp", tmp_path / "d", work))
    assert execute(instance, box, "stat -c %.9Y /tmp/work/d/file")["stdout"] == "1234567890.123456789\n"
    well(real("cp", work + "/d", tmp_path / "back"))
    assert (tmp_path / "back/file").stat().st_mtime_ns == 1_234_567_890_123_456_789


def test_as_a_tar(instance, box, real, work, tree):
    well(real("cp", tree, work + "/t"))
    p = real("cp", work + "/t", "-")
    names = tarfile.open(fileobj=io.BytesIO(p.stdout)).getnames()
    assert p.returncode == 0 and any(n.endswith("a/file") for n in names)


def test_many_files(instance, box, real, work, tmp_path):
    (tmp_path / "many").mkdir()
    for n in range(5000):
        (tmp_path / f"many/{n}").write_text(str(n))
    well(real("cp", tmp_path / "many", work))
    assert execute(instance, box, "ls /tmp/work/many | wc -l; cat /tmp/work/many/4711"
                   )["stdout"] == "5000\n4711"
    well(real("cp", work + "/many", tmp_path / "back"))
    assert picture(tmp_path / "back") == picture(tmp_path / "many")


def test_depth(instance, box, real, work, tmp_path):
    execute(instance, box, "cd /tmp/work; mkdir deep; cd deep; for i in $(seq 400); do mkdir directory;"
            " cd directory; done; echo x > file")
    well(real("cp", work + "/deep", tmp_path))
    assert subprocess.check_output(["find", tmp_path / "deep", "-name", "file"]).count(b"/dir") == 400
    subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)


def test_sockets_are_left_out(instance, box, real, work, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/file").touch()
    os.mkfifo(tmp_path / "d/fifo")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "d/sock"))
    p = real("cp", tmp_path / "d", work)
    assert p.returncode == 0 and b"'./sock' is a socket" in p.stderr
    assert execute(instance, box, "ls /tmp/work/d")["stdout"] == "fifo\nfile\n"


def test_what_cannot_be_read(instance, box, real, work, tmp_path):
    """Root of the machine reads everything, but for a directory whose device is gone."""
    p = real("cp", "/proc/self/task/no-such", work)
    assert p.returncode == 1 and b"No such file" in p.stderr
    p = real("cp", f"/proc/{os.getpid()}/map_files", work + "/maps")
    assert p.returncode in (0, 1)
    (tmp_path / "d").mkdir()
    for target, text in (("no-such-box:/tmp/x", b"no-such-box"), (work + "/no/such/../x", b".."),
                         ("x:relative", b"x:/relative")):
        p = real("cp", tmp_path / "d", target)
        assert p.returncode and text in p.stderr, p
    execute(instance, box, "echo > /tmp/work/file")
    p = real("cp", tmp_path / "d", work + "/file")
    assert p.returncode == 1 and b"file" in p.stderr, p
    p = real("cp", tmp_path / "d", work, "--user", "nobody-at-all")
    assert p.returncode == 1 and b"nobody-at-all" in p.stderr, p


def test_a_sandbox_without_room(instance, box, real, work, tmp_path):
    execute(instance, box, "mkdir -p /tmp/work/small; mount -t tmpfs -o size=1m none /tmp/work/small",
            user="root")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/big").write_bytes(os.urandom(8 * MIB))
    p = real("cp", tmp_path / "d", work + "/small")
    execute(instance, box, "umount /tmp/work/small", user="root")
    assert p.returncode == 1 and b"no space" in p.stderr.lower(), p


# --- into what is there --------------------------------------------------------------------------

def test_a_merge(instance, box, real, work, tmp_path):
    execute(instance, box, "cd /tmp/work; mkdir -p d/sub/deep d/ro; echo new > d/sub/file; "
            "echo new > d/other; echo new > d/was-link; chmod 555 d/ro; mkdir d/ro/x")
    execute(instance, box, "mkdir -p /tmp/work/d/ro/x", user="root")
    old = tmp_path / "d"
    (old / "sub").mkdir(parents=True)
    (old / "ro").mkdir()
    (old / "sub/file").write_text("old")
    (old / "sub/kept").write_text("old")
    (tmp_path / "outside").write_text("old")
    (old / "was-link").symlink_to(tmp_path / "outside")
    os.chmod(old / "sub", 0o750)
    for _ in range(2):
        well(real("cp", work + "/d", tmp_path))
        assert (old / "sub/file").read_text() == (old / "was-link").read_text() == "new\n"
        assert (old / "sub/kept").read_text() == (tmp_path / "outside").read_text() == "old"
        assert (old / "ro/x").is_dir() and (old / "sub/deep").is_dir()
        assert not (old / "was-link").is_symlink()
        assert stat.S_IMODE((old / "sub").stat().st_mode) == 0o750
    nothing_more(tmp_path)


@pytest.mark.parametrize("mine,text", [("link", "link"), ("file", "file"), ("dir", "dir")])
def test_nothing_is_written_through_a_link(instance, box, real, work, tmp_path, mine, text):
    """Nor half of what comes, where a directory meets something else."""
    execute(instance, box, "cd /tmp/work; mkdir d; echo new > d/1; mkdir d/link d/file; "
            "echo new > d/link/f; echo new > d/dir; echo new > d/zz; rm -rf d/{link,file,dir}; "
            + {"link": "mkdir d/link; echo new > d/link/f", "file": "mkdir d/file",
               "dir": "echo new > d/dir"}[mine])
    (tmp_path / "outside").mkdir()
    old = tmp_path / "d"
    old.mkdir()
    (old / "link").symlink_to(tmp_path / "outside")
    (old / "file").write_text("old")
    (old / "dir").mkdir()
    before = picture(tmp_path)
    p = real("cp", work + "/d", tmp_path)
    assert p.returncode == 1 and text in p.stderr.decode(), p
    assert picture(tmp_path) == before


def test_a_target_that_is_no_directory(real, work, tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "gone").symlink_to("no-such")
    for name in ("file", "gone"):
        p = real("cp", work, tmp_path / name)
        assert p.returncode == 1 and name in p.stderr.decode(), p
    assert (tmp_path / "file").read_text() == "old" and (tmp_path / "gone").is_symlink()
    p = real("cp", work, tmp_path / "no/such/place")
    assert p.returncode == 1 and b"No such file" in p.stderr
    nothing_more(tmp_path)


# --- with no more rights than those of an owner ---------------------------------------------------

def plainly(cli, *args):
    """Root without capabilities is anybody."""
    drop = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] if os.geteuid() == 0 else []
    return subprocess.run([*drop, SKERRY, *args], env=cli.env, capture_output=True, timeout=60)


def directory(name, mode):
    return member(name, type=tarfile.DIRTYPE, mode=mode)


SHUT = [directory(".", 0o755), directory("none", 0), directory("none/in", 0o555),
        member("none/in/f", b"x", mode=0), directory("ro", 0o555), member("ro/f", b"y", mode=0o444),
        member("f", b"z", mode=0o400)]


def serve_tree(fake, body):
    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: (200, {}, body))


def test_modes_that_shut_us_out(fake, cli, tmp_path):
    serve_tree(fake, tar_of(SHUT))
    (tmp_path / "here/d").mkdir(parents=True)
    for at in (tmp_path / "d", tmp_path / "here/d"):
        well(plainly(cli, "cp", "hello:/tmp/d", tmp_path if at.parent == tmp_path else at.parent))
        seen = picture(at)
        assert seen[b"none"][1] == 0 and seen[b"none/in"][1] == seen[b"ro"][1] == 0o555
        assert [seen[n][0] for n in (b"none/in/f", b"ro/f", b"f")] == [0, 0o444, 0o400]
    serve_tree(fake, tar_of([*SHUT, member("../x", b"x")]))
    p = plainly(cli, "cp", "hello:/tmp/d", tmp_path / "new")
    assert p.returncode == 1 and not (tmp_path / "new").exists(), p
    nothing_more(tmp_path)
    fake.route("GET", FILES + "/stat/t", lambda r: error(404, "no", code="file_not_found"))
    fake.route("POST", FILES + "/content/upload/t", lambda r: answer(DIR, 201))
    p = plainly(cli, "cp", tmp_path / "d", "hello:/t")
    assert p.returncode == 1 and b"none" in p.stderr, p


@pytest.mark.parametrize("shut", ["ro", "ro/more"])
def test_nothing_of_what_cannot_be_whole(fake, cli, tmp_path, shut):
    """A directory of ours that takes nothing is found before anything is replaced."""
    serve_tree(fake, tar_of([member("a", b"new"), directory("ro", 0o755), member("ro/a", b"new"),
                             directory("ro/more", 0o755), member("ro/more/a", b"new"),
                             member("z", b"new")]))
    (tmp_path / "d/ro/more").mkdir(parents=True)
    for name in ("a", "ro/a", "z"):
        (tmp_path / "d" / name).write_text("old")
    os.chmod(tmp_path / "d" / shut, 0o555)
    before = picture(tmp_path)
    p = plainly(cli, "cp", "hello:/tmp/d", tmp_path)
    assert p.returncode == 1 and b"'a' in its place: Permission denied" in p.stderr, p
    assert picture(tmp_path) == before
    os.chmod(tmp_path / "d" / shut, 0o755)
    well(plainly(cli, "cp", "hello:/tmp/d", tmp_path))
    assert (tmp_path / "d/ro/more/a").read_text() == (tmp_path / "d/z").read_text() == "new"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_nothing_onto_another_file_system(fake, cli, tmp_path):
    serve_tree(fake, tar_of([member("a", b"new"), directory("m", 0o755), member("m/a", b"new")]))
    (tmp_path / "d/m").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path / "d/m"], check=True)
    try:
        p = cli("cp", "hello:/tmp/d", tmp_path)
        assert p.returncode == 1 and b"in 'm': put 'a'" in p.stderr, p
        assert os.listdir(tmp_path / "d") == ["m"] and os.listdir(tmp_path / "d/m") == []
    finally:
        subprocess.run(["umount", tmp_path / "d/m"], check=True)
    nothing_more(tmp_path)


# --- what a hostile sandbox could say ------------------------------------------------------------

HOSTILE = {
    "above": [member("../victim/x", b"x")],
    "above, inside": [member("a/../../victim/x", b"x")],
    "absolute": [member("{victim}/x", b"x")],
    "through a link": [link("l", "{victim}"), member("l/x", b"x")],
    "through a relative link": [link("l", "../victim"), member("l/x", b"x")],
    "through two links": [member("d", type=tarfile.DIRTYPE), link("d/l", ".."), link("d/m", "l/../victim"),
                          member("d/m/x", b"x")],
    "over a link": [link("l", "{victim}/f"), member("l", b"x")],
    "a directory over a link": [link("l", "{victim}"), member("l", type=tarfile.DIRTYPE, mode=0o777),
                                member("l/x", b"x")],
    "a mode through a link": [link("l", "{victim}/f"), member("l", type=tarfile.DIRTYPE, mode=0o777)],
    "a hard link above": [link("h", "../victim/f", tarfile.LNKTYPE), member("h", b"x")],
    "an absolute hard link": [link("h", "{victim}/f", tarfile.LNKTYPE), member("h", b"x")],
    "a hard link through a link": [link("l", "../victim"), link("h", "l/f", tarfile.LNKTYPE),
                                   member("h", b"x")],
    "a hard link to a link": [link("l", "../victim/f"), link("h", "l", tarfile.LNKTYPE),
                              member("h", b"x")],
    "the directory itself": [link(".", "../victim"), member("./x", b"x")],
    "the parent itself": [member("..", type=tarfile.DIRTYPE, mode=0o777)],
    "a link in the place of a directory": [member("d/f", b"x"), link("d", "{victim}"), member("d/x", b"x")],
    "a link in the place of an empty one": [member("d", type=tarfile.DIRTYPE), link("d", "{victim}"),
                                            member("d/x", b"x")],
    "a file in the place of a directory": [member("d/f", b"x"), member("d", b"x")],
    "a directory in the place of a file": [member("d", b"x"), member("d", type=tarfile.DIRTYPE)],
    "a device": [member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives(fake, cli, tmp_path, case):
    victim, here = tmp_path / "victim", tmp_path / "here"
    victim.mkdir(mode=0o700)
    (victim / "f").write_bytes(b"mine")
    os.chmod(victim / "f", 0o600)
    here.mkdir()
    before = picture(victim)
    for m, _ in HOSTILE[case]:
        m.name = m.name.replace("{victim}", str(victim))
        m.linkname = m.linkname.replace("{victim}", str(victim))
    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: (200, {}, tar_of(HOSTILE[case])))
    for target in ("new", "here"):
        p = cli("cp", "hello:/tmp/d", tmp_path / target)
        assert picture(victim) == before and (victim / "f").stat().st_nlink == 1, (case, p)
        assert p.returncode in (0, 1) and (p.returncode == 0 or p.stderr), p
    everywhere = [f for at in ("new", "here") for f in (tmp_path / at).rglob("*")]
    assert not [f for f in everywhere if not f.is_symlink() and (
        f.is_char_device() or f.stat().st_ino == (victim / "f").stat().st_ino)]
    assert not {n for n in os.listdir(tmp_path) if n[0] != "."} - {"victim", "here", "new"}
    assert set(os.listdir(here)) <= {"d"}


def test_no_more_rights_than_ours(fake, cli, tmp_path):
    tar = tar_of([member("s", b"x", mode=0o6777), member("t", type=tarfile.DIRTYPE, mode=0o7777),
                  member("f", b"x", mode=0o666, uid=1234, gid=1234)])
    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: (200, {}, tar))
    old = os.umask(0o027)
    try:
        well(cli("cp", "hello:/tmp/d", tmp_path / "d"))
    finally:
        os.umask(old)
    for name, mode in (("s", 0o750), ("t", 0o750), ("f", 0o640)):
        st = (tmp_path / "d" / name).stat()
        assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (mode, os.getuid(), os.getgid())


def test_words_of_a_sandbox_are_text(fake, cli, tmp_path):
    tar = tar_of([member("\x1b[31m" + "é" * 600, type=tarfile.CHRTYPE), member("a\x1b[31m/../x", b"x")])
    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: (200, {}, tar))
    p = cli("cp", "hello:/tmp/d", tmp_path / "new")
    assert p.returncode == 1 and b"left out" in p.stderr and b".." in p.stderr and b"\x1b" not in p.stderr
    p.stderr.decode()
    nothing_more(tmp_path)


def test_what_is_deep_is_removed_too(fake, cli, tmp_path):
    """Deeper than a path may be, or a process may have files open."""
    tar = tar_of([member("/".join(["1" * 200] * 400 + ["d"] * 4000 + ["f"]), b"x"), member("../x", b"x")])
    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: (200, {}, tar))
    p = cli("cp", "hello:/tmp/d", tmp_path / "new")
    left = list(tmp_path.glob("*skerry-*"))
    subprocess.run(["rm", "-rf", *left], check=True)  # too deep for what clears up behind tests
    assert p.returncode == 1 and b".." in p.stderr and not left, p


WHOLE = tar_of([member("a", b"x" * 5000), member("b/c", b"y" * 5000), member("z", b"z" * 50000)])


LONG = tar_of([member("zeros", bytes(5120)), member("n" * 200, b"x")])


@pytest.mark.parametrize("body", [
    WHOLE[:3000], WHOLE[:-20000], b"no tar at all" * 1000, [WHOLE[:20000], None], b"",
    WHOLE[:5632] + b"\xff" * 512 + WHOLE[6144:],
    # between two entries, behind one of zeros, behind the longer name of one
    WHOLE[:5632], WHOLE[:11264], LONG[:5632], LONG[:6656]],
    ids=["short", "cut", "else", "broken", "nothing", "damaged", "two", "one", "zeros", "name"])
def test_a_broken_archive_leaves_nothing(fake, cli, tmp_path, body):
    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: (200, {"Connection": "close"}, body))
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("old")
    before = picture(tmp_path)
    for target in (tmp_path, tmp_path / "new"):
        p = cli("cp", "hello:/tmp/d", target)
        assert p.returncode == 1 and p.stderr, p
        assert picture(tmp_path) == before


def test_a_refusal_is_told(fake, cli, tmp_path):
    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/stat/tmp/d/d", lambda r: error(404, "no", code="file_not_found"))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: error(409, "it stops", code="state"))
    fake.route("POST", FILES + "/content/upload/tmp/d/d", lambda r: error(507, "the pool is full"))
    p = cli("cp", "hello:/tmp/d", tmp_path / "new")
    assert p.returncode == 1 and b"it stops" in p.stderr and not (tmp_path / "new").exists()
    (tmp_path / "d").mkdir()
    (tmp_path / "d/big").write_bytes(os.urandom(4 * MIB))
    p = cli("cp", tmp_path / "d", "hello:/tmp/d")
    assert p.returncode == 1 and b"the pool is full" in p.stderr, p
    fake.route("POST", FILES + "/content/upload/tmp/d/d", lambda r: (201, {}, [b"{", None]))
    p = cli("cp", tmp_path / "d", "hello:/tmp/d")
    assert p.returncode == 1 and b"lost" in p.stderr, p
    nothing_more(tmp_path)


def test_an_interrupt_leaves_nothing_of_a_tree(fake, cli, tmp_path):
    def slow():
        yield WHOLE[:20000]
        time.sleep(30)

    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: (200, {}, slow()))
    p = cli.start("cp", "hello:/tmp/d", str(tmp_path / "d"))
    wait_for(lambda: list(tmp_path.glob("d.skerry-*/a")))
    p.send_signal(signal.SIGINT)
    assert p.wait(10) == 128 + signal.SIGINT
    assert not [n for n in os.listdir(tmp_path) if n[0] != "."]


def test_an_interrupt_while_nothing_comes(fake, cli, tmp_path):
    """Standard input that is silent holds no signal up."""
    fake.route("GET", FILES + "/stat/f", lambda r: error(404, "no", code="file_not_found"))
    fake.route("POST", FILES + "/content/upload/f", lambda r: answer({}, 201))
    p = cli.start("cp", "-", "hello:/f", stdin=subprocess.PIPE)
    wait_for(lambda: "GET" in [r.method for r in fake.requests])
    time.sleep(0.3)
    p.send_signal(signal.SIGINT)
    assert p.wait(10) == 128 + signal.SIGINT


def test_a_bar_for_trees(fake, cli, tmp_path):
    def slow():
        for at in range(0, len(WHOLE), 8192):
            yield WHOLE[at:at + 8192]
            time.sleep(0.2)

    fake.route("GET", FILES + "/stat/tmp/d", lambda r: answer(DIR))
    fake.route("GET", FILES + "/download/tmp/d", lambda r: (200, {}, slow()))
    out, code = cli.on_terminal("cp", "hello:/tmp/d", str(tmp_path / "d"))
    assert code == 0 and b"MiB" in out and out.endswith(b"\r\x1b[K"), out[-200:]
    assert (tmp_path / "d/b/c").read_bytes() == b"y" * 5000


def test_what_is_sent(fake, cli, tree):
    fake.route("GET", FILES + "/stat/t", lambda r: error(404, "no", code="file_not_found"))
    fake.route("POST", FILES + "/content/upload/t", lambda r: answer(DIR, 201))
    well(cli("cp", tree, "hello:/t", "--user", "dev"))
    asked = fake.requests[-1]
    assert asked.query == {"userName": "dev"}
    assert asked.headers["Content-Type"] == "application/x-tar"
    assert len(asked.body) < 2 * MIB, "holes are left out"
    tar = tarfile.open(fileobj=io.BytesIO(asked.body))
    assert {m.uname for m in tar} == {""} and {m.uid for m in tar} == {0}
    assert pathlib.Path(tree / "a/file").exists()
