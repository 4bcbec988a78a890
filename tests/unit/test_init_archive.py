"""skerry-init from outside: directories as archives, and archives as directories.

usage: test_init_archive.py <skerry-init> [unittest arguments]
"""

import errno
import io
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import file_driver as f  # noqa: E402
import init_driver as d  # noqa: E402
from test_init import MIB, wait_for  # noqa: E402
from test_init_files import ODD, Files  # noqa: E402

# puts a file where a link is made, over and over: <file> <temporary name> <link>
SWAPPER = """
import contextlib, os, sys
file, new, link = sys.argv[1:]
while True:
    with contextlib.suppress(OSError):
        os.link(file, new)
        os.rename(new, link)
    with contextlib.suppress(OSError):  # it was the same file already
        os.unlink(new)
"""


def tar(*entries):
    """Of (name, kind, content or link, further attributes)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, rest, *more in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, 0o644
            for key, value in (more[0] if more else {}).items():
                setattr(entry, key, value)
            if kind == tarfile.REGTYPE:
                entry.size = len(rest)
                archive.addfile(entry, io.BytesIO(rest))
            else:
                entry.linkname = rest or ""
                archive.addfile(entry)
    return out.getvalue()


def unpack(a, path, data, **kw):
    return f.Call(a, f.UNPACK, path, f.PARENTS, **kw).ready().put(data).end()


def look(path):
    """Everything below a path that an archive keeps."""
    found = {}
    for at, dirs, files in os.walk(path):
        for name in dirs + files:
            full = os.path.join(at, name)
            st = os.lstat(full)
            link = os.readlink(full) if os.path.islink(full) else None
            content = None
            if os.path.isfile(full) and not link:
                with open(full, "rb") as file:
                    content = file.read()
            found[os.path.relpath(full, path)] = (
                st.st_mode, st.st_uid, st.st_gid, int(st.st_mtime), link, content)
    return found


class Archives(Files):
    def tree(self):
        """One of everything that can be kept."""
        at = self.path("tree")
        for name in (b"empty", b"sub/deep/er"):
            os.makedirs(os.path.join(at, name))
        for name in ODD:
            with open(os.path.join(at, name), "wb") as out:
                out.write(name * 100)
        long = os.path.join(at, b"n" * 200, b"m" * 200)
        os.makedirs(long)
        with open(os.path.join(long, b"\xff" * 150), "wb") as out:
            out.write(b"far away")
        with open(os.path.join(at, b"sub/large"), "wb") as out:
            out.write(random.randbytes(300_000))
        os.symlink(b"sub/large", os.path.join(at, b"link"))
        os.symlink(b"x" * 300, os.path.join(at, b"sub/dangling"))
        os.mkfifo(os.path.join(at, b"fifo"), 0o640)
        os.chmod(os.path.join(at, b"plain"), 0o4751)
        os.chmod(os.path.join(at, b"empty"), 0o1777)
        os.chown(os.path.join(at, b"sub/large"), 65534, 12345)
        for below, dirs, files in os.walk(at, topdown=False):
            for name in dirs + files:
                os.utime(os.path.join(below, name), (10**9, 10**9), follow_symlinks=False)
        return at

    def test_gnu_tar_and_python_read_it(self):
        tree = self.tree()
        data = f.read(self.a, tree)
        os.mkdir(self.path("gnu"))
        subprocess.run(["tar", "-xpf", "-", "-C", self.path("gnu")], input=data, check=True)
        self.assertEqual(look(self.path("gnu")), look(tree))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            names = {n.name.encode("utf-8", "surrogateescape") for n in archive}
        self.assertEqual(names, set(look(tree)) | {b"."})

    def test_back_again(self):
        tree = self.tree()
        unpack(self.a, self.path("back"), f.read(self.a, tree), user="root")
        mine, theirs = look(self.path("back")), look(tree)
        self.assertEqual(set(mine), set(theirs))
        for name, (mode, _, _, mtime, link, content) in theirs.items():
            self.assertEqual(mine[name], (mode, 0, 0, mtime, link, content), name)

    def test_what_gnu_tar_writes(self):
        tree = self.tree()
        for form in ("gnu", "posix"):
            data = subprocess.run(["tar", "-cf", "-", f"--format={form}", "-C", tree, "."],
                                  check=True, capture_output=True).stdout
            unpack(self.a, self.path(form), data, user="root")
            mine = look(self.path(form))
            for name, (mode, *_, link, content) in look(tree).items():
                self.assertEqual((mine[name][0], *mine[name][4:]), (mode, link, content), name)

    def test_hard_links(self):
        f.write(self.a, self.path("t/one"), b"x" * MIB)
        os.link(self.path("t/one"), self.path("t/two"))
        data = f.read(self.a, self.path("t"))
        self.assertLess(len(data), 1.1 * MIB)
        unpack(self.a, self.path("u"), data)
        self.assertTrue(os.path.samefile(self.path("u/one"), self.path("u/two")))

    def test_holes(self):
        os.mkdir(self.path("t"))
        with open(self.path("t/hole"), "wb") as out:
            out.truncate(100 << 30)
            os.pwrite(out.fileno(), b"middle", 50 << 30)
            os.pwrite(out.fileno(), b"start", 0)
        with open(self.path("t/end"), "wb") as out:
            os.pwrite(out.fileno(), b"end", 1 << 30)
        with open(self.path("t/nothing"), "wb") as out:
            out.truncate(1 << 30)
        data = f.read(self.a, self.path("t"))
        self.assertLess(len(data), MIB)
        unpack(self.a, self.path("u"), data)
        os.mkdir(self.path("g"))
        subprocess.run(["tar", "-xf", "-", "-C", self.path("g")], input=data, check=True)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            self.assertEqual(archive.getmember("hole").size, 100 << 30)
            self.assertTrue(archive.getmember("hole").issparse())
            end = archive.extractfile("end")
            end.seek(1 << 30)
            self.assertEqual(end.read(), b"end")
        for to in ("u", "g"):
            for name, size in (("hole", 100 << 30), ("end", (1 << 30) + 3), ("nothing", 1 << 30)):
                st = os.stat(self.path(to, name))
                self.assertEqual(st.st_size, size, (to, name))
                self.assertLess(st.st_blocks * 512, MIB)
            with open(self.path(to, "hole"), "rb") as file:
                self.assertEqual(os.pread(file.fileno(), 6, 50 << 30), b"middle")
                self.assertEqual(os.pread(file.fileno(), 6, 0), b"start\0")

    def test_attributes(self):
        f.write(self.a, self.path("t/file"), b"x")
        try:
            os.setxattr(self.path("t/file"), b"user.note", b"a\0=b\n")
        except OSError:
            self.skipTest("no attributes here")
        os.setxattr(self.path("t/file"), b"user.a=b%3Dc", b"odd")
        unpack(self.a, self.path("u"), f.read(self.a, self.path("t")))
        self.assertEqual(os.getxattr(self.path("u/file"), b"user.note"), b"a\0=b\n")
        self.assertEqual(os.getxattr(self.path("u/file"), b"user.a=b%3Dc"), b"odd")

    def test_many_attributes(self):
        """Names that fill more than a page or two, and more of them than one header holds."""
        try:
            tree = tempfile.mkdtemp(dir="/dev/shm").encode()
        except OSError:
            self.skipTest("no memory file system here")
        self.addCleanup(subprocess.run, ["rm", "-rf", tree])
        f.write(self.a, os.path.join(tree, b"t/file"), b"x")
        try:
            for i in range(200):
                os.setxattr(os.path.join(tree, b"t/file"), b"user.%d." % i + b"n" * 200,
                            b"v" * 10_000)
        except OSError:
            self.skipTest("no attributes here")
        unpack(self.a, os.path.join(tree, b"u"), f.read(self.a, os.path.join(tree, b"t")))
        self.assertGreater(len(os.listxattr(os.path.join(tree, b"u/file"))), 40)

    def test_times(self):
        """To the nanosecond, before 1970 too, by every reader."""
        os.mkdir(self.path("t"))
        times = [0, 1, 10**9, 1234567890123456789, -1, -10**9, -1_500_000_000]
        for i, ns in enumerate(times):
            f.write(self.a, self.path("t", str(i)))
            os.utime(self.path("t", str(i)), ns=(0, ns))
        os.utime(self.path("t"), ns=(0, 5_000_000_007))
        data = f.read(self.a, self.path("t"))
        unpack(self.a, self.path("u/t"), data)
        os.mkdir(self.path("g"))
        subprocess.run(["tar", "-xf", "-", "-C", self.path("g")], input=data, check=True)
        for to in ("u/t", "g"):
            got = [os.stat(self.path(to, str(i))).st_mtime_ns for i in range(len(times))]
            self.assertEqual(got, times, to)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for i, ns in enumerate(times):
                self.assertAlmostEqual(archive.getmember(str(i)).mtime, ns / 1e9, 6)

    def test_deep(self):
        at = os.open(self.dir, os.O_RDONLY)
        for name in ["t"] + ["a"] * 500:
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(at)
        data = f.read(self.a, self.path("t"))
        unpack(self.a, self.path("u"), data)
        self.assertTrue(os.path.isdir(self.path("u", *["a"] * 500)))

    def test_what_is_left_out(self):
        os.makedirs(self.path("t/proc"))
        self.assertEqual(self.a.sh(f"mount -t proc none {self.path('t/proc').decode()}; "
                                   f"mknod {self.path('t/null').decode()} c 1 3").exit.code, 0)
        with tarfile.open(fileobj=io.BytesIO(f.read(self.a, self.path("t")))) as archive:
            self.assertEqual(archive.getnames(), [".", "proc"])

    def test_cut_while_it_is_packed(self):
        f.write(self.a, self.path("t/file"), b"x" * (8 * MIB))
        call = f.Call(self.a, f.READ, self.path("t"))
        call.recv(f.ENTRY)
        call.c.send(f.GO, d.struct.pack("<QQ", 0, 0))
        call.recv(f.DATA)
        os.truncate(self.path("t/file"), 100)
        with self.assertRaises(d.Failed) as caught:
            while True:
                call.recv(f.DATA)
        self.assertEqual(caught.exception.code, errno.EIO)

    def test_many_small_files(self):
        for i in range(20):
            os.makedirs(self.path("t", str(i)))
            for k in range(1000):
                with open(self.path("t", str(i), str(k)), "w") as out:
                    out.write(f"{i}.{k}")
        data = f.read(self.a, self.path("t"))
        unpack(self.a, self.path("u"), data)
        self.assertEqual(subprocess.run(["diff", "-r", self.path("t"), self.path("u")]).returncode,
                         0)


class Broken(Files):
    """A file of an archive is there whole or not at all."""

    def refused_at(self, code, data, path="u"):
        with self.assertRaises(d.Failed) as got:
            unpack(self.a, self.path(path), data)
        self.assertEqual(got.exception.code, code, got.exception)
        return got.exception

    def kept(self):
        names = os.listdir(self.path("u"))
        self.assertEqual([n for n in names if n.startswith((b".skerry-", b"#"))], [])
        return names

    def test_cut(self):
        data = tar(("first", tarfile.REGTYPE, b"1" * 1000), ("old", tarfile.REGTYPE, b"2" * MIB),
                   ("late", tarfile.REGTYPE, b"3"))
        os.mkdir(self.path("u"))
        f.write(self.a, self.path("u/old"), b"precious", user="nobody")
        self.refused_at(errno.EBADMSG, data[:300_000])
        self.assertEqual(sorted(self.kept()), [b"first", b"old"])
        self.assertEqual(f.read(self.a, self.path("u/old")), b"precious")
        self.assertEqual(f.stat(self.a, self.path("u/old")).uid, 65534)
        os.unlink(self.path("u/old"))
        self.refused_at(errno.EBADMSG, data[:300_000])
        self.assertEqual(self.kept(), [b"first"])
        unpack(self.a, self.path("u"), data)
        self.assertEqual(sorted(self.kept()), [b"first", b"late", b"old"])
        self.assertEqual(f.stat(self.a, self.path("u/old")).size, MIB)

    def test_killed(self):
        os.mkdir(self.path("u"))
        f.write(self.a, self.path("u/old"), b"precious")
        data = tar(("new", tarfile.REGTYPE, b"1" * 1000), ("old", tarfile.REGTYPE, b"2" * (4 * MIB)))
        call = f.Call(self.a, f.UNPACK, self.path("u")).ready()
        call.put(data[:MIB])
        self.assertTrue(wait_for(lambda: b"new" in os.listdir(self.path("u"))))
        for pid in [p for p in self.children() if d.read(f"/proc/{p}/comm") == "skerry-files\n"]:
            os.kill(int(pid), 9)
        self.assertTrue(wait_for(lambda: self.helpers() == 0))
        self.assertEqual(sorted(self.kept()), [b"new", b"old"])
        self.assertEqual(f.read(self.a, self.path("u/old")), b"precious")

    def test_kinds_stay(self):
        os.makedirs(self.path("u/dir"))
        f.write(self.a, self.path("u/file"), b"precious")
        os.symlink(b"dir", self.path("u/link"))
        for kind, link in ((tarfile.REGTYPE, b""), (tarfile.SYMTYPE, "x"), (tarfile.FIFOTYPE, None),
                           (tarfile.LNKTYPE, "file")):
            e = self.refused_at(errno.EISDIR, tar(("dir", kind, link)))
            self.assertIn("'dir'", e.text)
        self.refused_at(errno.ENOTDIR, tar(("file", tarfile.DIRTYPE, None)))
        self.assertEqual(f.read(self.a, self.path("u/file")), b"precious")
        unpack(self.a, self.path("u"), tar(("link", tarfile.DIRTYPE, None)))
        self.assertTrue(os.path.isdir(self.path("u/link")) and not os.path.islink(self.path("u/link")))
        self.assertEqual(os.listdir(self.path("u/dir")), [])

    def test_one_name_twice(self):
        unpack(self.a, self.path("u"), tar(("a", tarfile.REGTYPE, b"1"), ("b", tarfile.LNKTYPE, "a"),
                                           ("a", tarfile.REGTYPE, b"2")))
        self.assertEqual((f.read(self.a, self.path("u/a")), f.read(self.a, self.path("u/b"))),
                         (b"2", b"1"))


class Hostile(Files):
    def refused_archive(self, data, reason="file_failed", code=None):
        with self.assertRaises(d.Failed) as caught:
            unpack(self.a, self.path("u"), data)
        self.assertEqual(caught.exception.reason, reason, caught.exception)
        self.assertTrue(code is None or caught.exception.code == code, caught.exception)

    def test_never_out_of_the_target(self):
        secret = self.path("secret")
        f.write(self.a, secret, b"secret")
        out = os.fsdecode(self.path("out"))
        for entries in (
                [("../out", tarfile.REGTYPE, b"x")],
                [("a/../../out", tarfile.REGTYPE, b"x")],
                [("d", tarfile.SYMTYPE, ".."), ("d/out", tarfile.REGTYPE, b"x")],
                [("d", tarfile.SYMTYPE, os.fsdecode(self.dir)), ("d/out", tarfile.REGTYPE, b"x")],
                [("d", tarfile.DIRTYPE, None, {"mode": 0o755}), ("d/e", tarfile.SYMTYPE, "../.."),
                 ("d/e/out", tarfile.REGTYPE, b"x")],
                [("l", tarfile.LNKTYPE, "../secret")],
                [("s", tarfile.SYMTYPE, "../secret"), ("l", tarfile.LNKTYPE, "s/x")]):
            subprocess.run(["rm", "-rf", self.path("u")], check=True)
            self.refused_archive(tar(*entries))
            self.assertFalse(os.path.exists(out), entries)
        unpack(self.a, self.path("u"), tar((os.fsdecode(secret), tarfile.REGTYPE, b"absolute"),
                                           ("s", tarfile.SYMTYPE, "../secret"),
                                           ("s", tarfile.REGTYPE, b"in place of the link")))
        self.assertEqual(f.read(self.a, secret), b"secret")
        self.assertEqual(f.read(self.a, self.path("u") + secret), b"absolute")
        self.assertEqual(f.read(self.a, self.path("u/s")), b"in place of the link")
        self.assertEqual(os.stat(secret).st_nlink, 1)

    def test_no_archive(self):
        good = tar(("file", tarfile.REGTYPE, b"x" * 10_000))
        for data in (b"", b"x" * 512, random.randbytes(100_000), good[:5000], good[:512]):
            self.refused_archive(data, "bad_archive")

    def test_owner_and_bits(self):
        data = tar(("file", tarfile.REGTYPE, b"x", {"mode": 0o6755, "uid": 7, "gid": 7}),
                   ("d/below", tarfile.REGTYPE, b"x", {"mode": 0o600}),
                   (".wh.name", tarfile.REGTYPE, b"x"),
                   ("dev", tarfile.BLKTYPE, None, {"devmajor": 8}))
        got = unpack(self.a, self.path("u"), data, user="nobody")
        self.assertEqual((got.kind, got.uid), ("dir", 65534))
        found = look(self.path("u"))
        self.assertEqual({n: v[:2] for n, v in found.items()}, {
            b"file": (0o100755, 65534), b"d": (0o40755, 65534), b"d/below": (0o100600, 65534),
            b".wh.name": (0o100644, 65534)})
        unpack(self.a, self.path("r"), data, user="root")
        self.assertEqual(look(self.path("r"))[b"file"][:2], (0o106755, 0))

    def test_into_what_is_there(self):
        f.write(self.a, self.path("u/file"), b"old", mode=0o600)
        os.makedirs(self.path("u/dir/kept"))
        os.chown(self.path("u/dir"), 7, 8)
        os.chmod(self.path("u"), 0o1777)
        unpack(self.a, self.path("u"), tar((".", tarfile.DIRTYPE, None, {"mode": 0o700}),
                                           ("file", tarfile.REGTYPE, b"new"),
                                           ("dir", tarfile.DIRTYPE, None, {"mode": 0o750})))
        self.assertEqual(os.stat(self.path("u")).st_mode & 0o7777, 0o1777)
        self.assertEqual(f.read(self.a, self.path("u/file")), b"new")
        st = os.stat(self.path("u/dir"))
        self.assertEqual((st.st_mode & 0o7777, st.st_uid, st.st_gid), (0o750, 7, 8))
        self.assertTrue(os.path.isdir(self.path("u/dir/kept")))
        f.write(self.a, self.path("plain"))
        self.refused(errno.ENOTDIR, lambda: f.Call(self.a, f.UNPACK, self.path("plain"),
                                                   f.PARENTS).ready())
        self.refused(errno.ENOENT, lambda: f.Call(self.a, f.UNPACK, self.path("no")).ready())

    def test_a_client_that_leaves(self):
        call = f.Call(self.a, f.UNPACK, self.path("u"), f.PARENTS).ready()
        call.put(tar(("file", tarfile.REGTYPE, b"x" * MIB))[:MIB // 2]).close()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))

    def test_links_that_are_replaced(self):
        """Who puts another's file in the place of a link that was just made is not given that."""
        try:
            at = tempfile.mkdtemp(dir="/dev/shm")  # fast, so that they meet
        except OSError:
            self.skipTest("no memory file system here")
        self.addCleanup(subprocess.run, ["rm", "-rf", at])
        f.write(self.a, at + "/secret", b"secret", mode=0o600)
        os.mkdir(at + "/u")
        swappers = [subprocess.Popen([sys.executable, "-c", SWAPPER, at + "/secret",
                                      f"{at}/u/new{i}", at + "/u/l"]) for i in range(2)]
        data = tar(*[("l", tarfile.SYMTYPE, "x")] * 2000)
        until = time.monotonic() + 4
        try:
            while time.monotonic() < until and os.stat(at + "/secret").st_uid == 0:
                try:
                    unpack(self.a, at + "/u", data, user="nobody")
                except d.Failed as e:
                    self.assertIn(e.code, (errno.EBUSY, errno.EEXIST, errno.ENOENT), e)
            self.assertEqual([p.poll() for p in swappers], [None, None])
        finally:
            for p in swappers:
                p.kill()
                p.wait()
        self.assertEqual(os.stat(at + "/secret").st_uid, 0)

    def test_swaps(self):
        """Directories become links and come back while they are packed and unpacked."""
        os.makedirs(self.path("u/d"))
        os.mkdir(self.path("outside"))
        over = threading.Event()

        def swap():
            while not over.is_set():
                try:
                    os.rename(self.path("u/d"), self.path("u/e"))
                    os.symlink(self.path("outside"), self.path("u/d"))
                    os.unlink(self.path("u/d"))
                    os.rename(self.path("u/e"), self.path("u/d"))
                except OSError:  # another one was made there
                    subprocess.run(["rm", "-rf", self.path("u/d"), self.path("u/e")])
                    os.makedirs(self.path("u/d"), exist_ok=True)

        thread = threading.Thread(target=swap)
        thread.start()
        data = tar(*[(f"d/{i}", tarfile.REGTYPE, b"x" * 100) for i in range(50)])
        try:
            for i in range(60):
                try:
                    if i % 2:
                        unpack(self.a, self.path("u"), data)
                    else:
                        f.read(self.a, self.path("u"))
                except d.Failed as e:
                    self.assertIn(e.code, (errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.EEXIST,
                                           errno.EXDEV), e)
        finally:
            over.set()
            thread.join()
        self.assertEqual(os.listdir(self.path("outside")), [])


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(77)  # meson: skipped
    unittest.main()
