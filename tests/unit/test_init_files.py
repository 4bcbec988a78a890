"""skerry-init from outside: files, but for archives, searching and watching.

usage: test_init_files.py <skerry-init> [unittest arguments]
"""

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import file_driver as f  # noqa: E402
import init_driver as d  # noqa: E402
from test_init import MIB, Case, wait_for  # noqa: E402

ODD = [b"plain", "\u6d4b\u8bd5 \u0444.txt".encode(), b"new\nline", b"\xff\xfe\x80", b"a'b\"c;d%2F",
       b" space ", b"trailing.", b"-n", "\U0001f642".encode(), b"x" * 255]


class Files(Case):
    ROOM = None

    def setUp(self):
        super().setUp()
        self.dir = tempfile.mkdtemp(prefix="skerry-files-", dir=self.ROOM).encode()
        self.addCleanup(subprocess.run, ["rm", "-rf", self.dir])

    def path(self, *names):
        return os.path.join(self.dir, *[f.raw(n) for n in names])

    def refused(self, code, function, *args, **kw):
        with self.assertRaises(d.Failed) as caught:
            function(*args, **kw)
        self.assertEqual(errno.errorcode[caught.exception.code], errno.errorcode[code],
                         caught.exception)
        return caught.exception

    def helpers(self):
        """Processes of file calls."""
        found = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                name = d.read(f"/proc/{pid}/comm")
                inside = os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(
                    f"/proc/{self.a.pid}/ns/pid")
            except OSError:
                continue
            found += inside and name == "skerry-files\n"
        return found


class Objects(Files):
    def test_stat(self):
        with open(self.path("file"), "wb") as out:
            out.write(b"12345")
        os.chmod(self.path("file"), 0o4751)
        os.utime(self.path("file"), ns=(0, 1234567890123456789))
        os.chown(self.path("file"), 65534, 12345)
        os.chmod(self.path("file"), 0o4751)
        got = f.stat(self.a, self.path("file"))
        self.assertEqual(got, f.Entry("file", "file", 0o4751, 65534, 12345, 5, 1234567890123456789,
                                      self.path("file"), b"nobody", b"", b""))
        os.mkfifo(self.path("fifo"))
        socket.socket(socket.AF_UNIX).bind(self.path("socket"))
        os.symlink(b"file", self.path("link"))
        os.symlink(b".", self.path("up"))
        os.symlink(b"nowhere", self.path("dangling"))
        os.symlink(b"round", self.path("round"))
        for name, kind, leads_to, size, target in [
                ("fifo", "fifo", "fifo", 0, b""), ("socket", "socket", "socket", 0, b""),
                ("link", "link", "file", 5, b"file"), ("dangling", "link", "file", 0, b"nowhere"),
                ("round", "link", "file", 0, b"round")]:
            got = f.stat(self.a, self.path(name))
            self.assertEqual((got.kind, got.leads_to, got.size, got.target),
                             (kind, leads_to, size, target), name)
        self.assertEqual(f.stat(self.a, self.path("up")).leads_to, "dir")
        self.assertEqual(f.stat(self.a, "/").kind, "dir")
        self.assertEqual(f.stat(self.a, "/dev/null").kind, "char")
        self.assertEqual(f.stat(self.a, self.path("")).kind, "dir")

    def test_names_of_any_bytes(self):
        for name in ODD:
            with self.subTest(name):
                f.write(self.a, self.path(name), name)
                self.assertEqual(f.read(self.a, self.path(name)), name)
                f.Call(self.a, f.MOVE, self.path(name), to=self.path("moved")).one()
                got = f.Call(self.a, f.MOVE, self.path("moved"), to=self.path(name)).one()
                self.assertEqual(got.path, self.path(name))
        self.assertEqual([n.path for n in f.ls(self.a, self.dir)], sorted(ODD))
        for name in ODD:
            f.Call(self.a, f.REMOVE, self.path(name)).done()
        self.assertEqual(os.listdir(self.dir), [])
        self.refused(errno.ENAMETOOLONG, f.stat, self.a, self.path("x" * 256))

    def test_missing(self):
        for path in (self.path("no"), self.path("no", "such")):
            for op in (f.STAT, f.LIST, f.READ, f.SET, f.REMOVE):
                self.refused(errno.ENOENT, lambda: f.Call(self.a, op, path).entries())
        f.write(self.a, self.path("file"))
        for op in (f.STAT, f.LIST, f.READ, f.SET, f.REMOVE, f.MAKE):
            self.refused(errno.ENOTDIR, lambda: f.Call(self.a, op, self.path("file/x")).entries())
        self.refused(errno.ENOTDIR, f.ls, self.a, self.path("file"))

    def test_make(self):
        got = f.Call(self.a, f.MAKE, self.path("one"), user="nobody").one()
        self.assertEqual((got.kind, got.mode, got.uid), ("dir", 0o755, 65534))
        self.refused(errno.EEXIST, lambda: f.Call(self.a, f.MAKE, self.path("one")).one())
        self.refused(errno.EEXIST, lambda: f.Call(self.a, f.MAKE, "/").one())
        self.refused(errno.ENOENT, lambda: f.Call(self.a, f.MAKE, self.path("a/b/c")).one())
        got = f.Call(self.a, f.MAKE, self.path("a/b/c"), f.PARENTS, mode=0o1777, user="65534").one()
        self.assertEqual((got.mode, got.uid), (0o1777, 65534))
        self.assertEqual(f.stat(self.a, self.path("a/b")).uid, 65534)
        f.Call(self.a, f.MAKE, self.path("a/b/c"), f.PARENTS).one()
        f.Call(self.a, f.MAKE, "/", f.PARENTS).one()
        f.write(self.a, self.path("file"))
        self.refused(errno.EEXIST, lambda: f.Call(self.a, f.MAKE, self.path("file"),
                                                  f.PARENTS).one())
        e = self.refused(errno.EINVAL, lambda: f.Call(self.a, f.MAKE, self.path("x"),
                                                      user="no-such-user").one())
        self.assertEqual((e.reason, e.field), ("user_not_found", "userName"))

    def test_set(self):
        f.write(self.a, self.path("file"))
        got = f.Call(self.a, f.SET, self.path("file"), mode=0o6755, owner="nobody:root").one()
        self.assertEqual((got.mode, got.uid, got.gid), (0o6755, 65534, 0))
        got = f.Call(self.a, f.SET, self.path("file"), owner=":12345").one()
        self.assertEqual((got.uid, got.gid), (65534, 12345))
        got = f.Call(self.a, f.SET, self.path("file"), owner="4321").one()
        self.assertEqual((got.uid, got.gid), (4321, 12345))
        for owner in ("no-such-user", "root:no-such-group"):
            e = self.refused(errno.EINVAL, lambda: f.Call(self.a, f.SET, self.path("file"),
                                                          owner=owner).one())
            self.assertEqual((e.reason, e.field), ("user_not_found", "owner"))
        os.symlink(b"file", self.path("link"))
        got = f.Call(self.a, f.SET, self.path("link"), mode=0o600).one()
        self.assertEqual((got.kind, got.mode), ("file", 0o600))
        self.assertEqual(f.stat(self.a, self.path("file")).mode, 0o600)
        os.mkfifo(self.path("fifo"))
        f.Call(self.a, f.SET, self.path("fifo"), mode=0o640).one()
        self.assertEqual(f.stat(self.a, self.path("fifo")).mode, 0o640)

    def test_move(self):
        f.write(self.a, self.path("a/file"), b"a")
        f.write(self.a, self.path("b/file"), b"b")
        move = lambda frm, to, flags=0: f.Call(  # noqa: E731
            self.a, f.MOVE, self.path(frm), flags, to=self.path(to)).one()
        self.refused(errno.EBUSY, lambda: f.Call(self.a, f.MOVE, "/", to=self.path("x")).one())
        self.refused(errno.EEXIST, move, "a/file", "b/file")
        self.refused(errno.ENOENT, move, "a/file", "c/file")
        self.refused(errno.EINVAL, move, "a", "a/below", f.OVERWRITE)
        self.refused(errno.ENOTEMPTY, move, "a", "b", f.OVERWRITE)
        self.refused(errno.EISDIR, move, "a/file", "b", f.OVERWRITE)
        self.assertEqual(move("a/file", "a/file", f.OVERWRITE).path, self.path("a/file"))
        self.assertEqual(move("a/file", "b/file", f.OVERWRITE).path, self.path("b/file"))
        self.assertEqual(f.read(self.a, self.path("b/file")), b"a")
        self.refused(errno.EXDEV, lambda: f.Call(self.a, f.MOVE, self.path("b/file"),
                                                 to="/dev/shm/skerry-moved").one())
        os.symlink(b"nowhere", self.path("link"))
        self.assertEqual(move("link", "link2").kind, "link")

    def test_remove(self):
        f.write(self.a, self.path("kept"), b"kept")
        for name in ("t/a/b/c", "t/a/x", "t/y"):
            f.write(self.a, self.path(name))
        os.symlink(self.path("kept"), self.path("t/link"))
        os.symlink(self.dir, self.path("t/a/up"))
        os.mkfifo(self.path("t/fifo"))
        f.Call(self.a, f.REMOVE, self.path("t")).done()
        self.assertEqual(f.read(self.a, self.path("kept")), b"kept")
        self.assertEqual(os.listdir(self.dir), [b"kept"])
        for path in ("/", "//", "/proc", "/dev/shm"):
            self.refused(errno.EBUSY, lambda: f.Call(self.a, f.REMOVE, path).done())
        self.assertTrue(os.path.exists("/proc/self"))

    def test_remove_deep_and_wide(self):
        here = os.open(self.dir, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir(b"d", dir_fd=here)
            below = os.open(b"d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        os.mkdir(self.path("wide"))
        for i in range(3000):
            os.mkdir(self.path("wide", str(i)))
            open(self.path("wide", str(i), "f"), "w").close()
        for name in ("d", "wide"):
            f.Call(self.a, f.REMOVE, self.path(name)).done()
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_mount_point_is_not_entered(self):
        f.write(self.a, self.path("t/below/file"), b"kept")
        os.mkdir(self.path("t/mounted"))
        script = f"mount --bind {self.path('t/below').decode()} {self.path('t/mounted').decode()}"
        self.assertEqual(self.a.sh(script).exit.code, 0)
        os.rename(self.path("t/below"), self.path("below"))
        self.refused(errno.EBUSY, lambda: f.Call(self.a, f.REMOVE, self.path("t")).done())
        self.assertEqual(f.read(self.a, self.path("below/file")), b"kept")


class Lists(Files):
    def test_order_and_pages(self):
        names = [b"b", b"a", b"a/x", b"a/x/y", b"a.b", b"a/z", b"b/c", b"\xff", b"\xff/\n", b"c"]
        dirs = {b"a", b"a/x", b"b", b"\xff"}
        for name in sorted(names):
            if name in dirs:
                os.mkdir(self.path(name))
            else:
                open(self.path(name), "w").close()
        os.symlink(self.dir, self.path(b"a/loop"))
        names.append(b"a/loop")
        top = [n for n in names if b"/" not in n]
        self.assertEqual([n.path for n in f.ls(self.a, self.dir)], sorted(top))
        deep = sorted(names, key=lambda n: n.split(b"/"))
        for limit in range(1, len(names) + 2):
            got, count = f.pages(self.a, self.dir, limit, flags=f.RECURSIVE)
            self.assertEqual([n.path for n in got], deep, limit)
            self.assertEqual(count, -(-len(names) // limit))
            got, _ = f.pages(self.a, self.dir + b"/", limit)
            self.assertEqual([n.path for n in got], sorted(top), limit)
        kinds = {n.path: n.kind for n in f.ls(self.a, self.dir, flags=f.RECURSIVE)}
        self.assertEqual((kinds[b"a"], kinds[b"a/x/y"], kinds[b"a/loop"]), ("dir", "file", "link"))

    def test_the_root(self):
        names = [n.path for n in f.ls(self.a, "/")]
        self.assertEqual(names, sorted(os.listdir(b"/")))
        below = [n.path for n in f.ls(self.a, "/", flags=f.RECURSIVE, to="proc/slabinfo", limit=20)]
        self.assertIn(b"proc/stat", below)
        self.assertNotIn(b"proc/self", below)

    def test_complete_while_it_changes(self):
        """What is there all the time is listed exactly once."""
        stay = {b"stay%04d" % i for i in range(2000)}
        for name in stay:
            open(self.path(name), "w").close()
        over = threading.Event()

        def churn():
            while not over.is_set():
                name = self.path(b"stay%04d-come" % random.randrange(2000))
                open(name, "w").close()
                os.unlink(name)

        thread = threading.Thread(target=churn)
        thread.start()
        got, _ = f.pages(self.a, self.dir, 37)
        over.set()
        thread.join()
        found = [n.path for n in got]
        self.assertEqual(len(found), len(set(found)))
        self.assertLessEqual(stay, set(found))

    def test_many(self):
        os.mkdir(self.path("deep"))
        for i in range(30000):
            os.close(os.open(self.path(b"f%d" % i), os.O_CREAT | os.O_WRONLY))
        for i in range(600):
            os.mkdir(self.path("deep", b"%d" % i))
            os.close(os.open(self.path("deep", b"%d" % i, "f"), os.O_CREAT | os.O_WRONLY))
        got, count = f.pages(self.a, self.dir, 10000, flags=f.RECURSIVE)
        self.assertEqual(len({n.path for n in got}), 30000 + 1200 + 1)
        self.assertEqual((len(got), count), (31201, 4))

    def test_too_deep(self):
        here = os.open(self.dir, os.O_RDONLY)
        for _ in range(40):
            os.mkdir(b"d" * 120, dir_fd=here)
            below = os.open(b"d" * 120, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        self.refused(errno.ENAMETOOLONG, f.ls, self.a, self.dir, flags=f.RECURSIVE)
        f.Call(self.a, f.REMOVE, self.path("d" * 120)).done()


class Reads(Files):
    def test_bytes_and_ranges(self):
        data = random.randbytes(3 * MIB + 7)
        f.write(self.a, self.path("file"), data)
        about, got = f.Call(self.a, f.READ, self.path("file")).data()
        self.assertEqual((about.size, got == data), (len(data), True))
        for offset, length in ((0, 0), (0, 1), (5, 100_000), (len(data) - 1, 5), (len(data), 5),
                               (1 << 40, 5), (3, (1 << 63) - 1)):
            self.assertEqual(f.read(self.a, self.path("file"), offset, length),
                             data[offset:offset + length])
        self.assertEqual(f.write(self.a, self.path("empty")).size, 0)
        self.assertEqual(f.read(self.a, self.path("empty")), b"")

    def test_files_of_the_kernel(self):
        self.assertIn(b"processor", f.read(self.a, "/proc/cpuinfo"))

    def test_no_file(self):
        os.mkfifo(self.path("fifo"))
        os.symlink(b"fifo", self.path("link"))
        os.symlink(b"round", self.path("round"))
        for path, code in ((self.path("fifo"), errno.EINVAL), (self.path("link"), errno.EINVAL),
                           ("/dev/zero", errno.EINVAL), (self.path("round"), errno.ELOOP)):
            self.refused(code, f.read, self.a, path)
            self.refused(code, f.write, self.a, path)

    def test_nothing_of_the_process(self):
        for path in ("/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/self/fd/3",
                     "/proc/self/exe", "/proc/1/fd/3", "/proc/1/root"):
            self.refused(errno.ELOOP, f.read, self.a, path)

    def test_cut_while_it_is_read(self):
        f.write(self.a, self.path("file"), b"x" * (8 * MIB))
        call = f.Call(self.a, f.READ, self.path("file"))
        call.recv(f.ENTRY)
        os.truncate(self.path("file"), 100)
        call.c.send(f.GO, d.struct.pack("<QQ", 0, f.EVERYTHING))
        with self.assertRaises(d.Failed) as caught:
            while True:
                call.recv(f.DATA)
        self.assertEqual(caught.exception.code, errno.EIO)

    def test_swaps(self):
        """The name is a file, a FIFO, a link to /dev/zero in turn."""
        over = threading.Event()

        def swap():
            while not over.is_set():
                for make in (lambda p: os.symlink(b"/dev/zero", p), os.mkfifo,
                             lambda p: open(p, "wb").close()):
                    make(self.path("next"))
                    os.rename(self.path("next"), self.path("it"))

        open(self.path("it"), "w").close()
        thread = threading.Thread(target=swap)
        thread.start()
        try:
            for i in range(300):
                try:
                    if i % 2:
                        f.write(self.a, self.path("it"), b"")
                    else:
                        self.assertEqual(f.read(self.a, self.path("it")), b"")
                except d.Failed as e:
                    self.assertIn(e.code, (errno.EINVAL, errno.EBUSY), e)
        finally:
            over.set()
            thread.join()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))


class Writes(Files):
    def test_new(self):
        got = f.write(self.a, self.path("a/b/file"), b"text", user="nobody")
        self.assertEqual((got.kind, got.mode, got.uid, got.size), ("file", 0o644, 65534, 4))
        self.assertEqual(f.stat(self.a, self.path("a")).uid, 65534)
        self.assertEqual(f.write(self.a, self.path("x"), mode=0o6755).mode, 0o6755)
        self.refused(errno.ENOENT, f.write, self.a, self.path("no/file"), b"x", 0)
        self.refused(errno.EISDIR, f.write, self.a, self.path("a"))
        self.refused(errno.ENOTDIR, f.write, self.a, self.path("x/y"))

    def test_default_user(self):
        self.assertEqual(f.write(self.a, self.path("f"), default_user="nobody").uid, 65534)
        self.assertEqual(f.write(self.a, self.path("g"), default_user="not-there").uid, 0)

    def test_existing_keeps_owner_and_mode(self):
        f.write(self.a, self.path("file"), b"old" * 1000, mode=0o4750, user="nobody")
        inode = os.stat(self.path("file")).st_ino
        got = f.write(self.a, self.path("file"), b"new", mode=0o600, user="root")
        self.assertEqual((got.mode, got.uid, got.size), (0o4750, 65534, 3))
        self.assertNotEqual(os.stat(self.path("file")).st_ino, inode)
        self.assertEqual(os.listdir(self.dir), [b"file"])

    def test_links_are_followed(self):
        f.write(self.a, self.path("d/file"), b"old")
        os.symlink(b"d/file", self.path("link"))
        os.symlink(self.path("link"), self.path("link2"))
        os.symlink(b"d/made", self.path("dangling"))
        os.symlink(b"d", self.path("dir"))
        f.write(self.a, self.path("link2"), b"new")
        self.assertEqual(f.read(self.a, self.path("d/file")), b"new")
        f.write(self.a, self.path("dangling"), b"made")
        self.assertEqual(f.read(self.a, self.path("d/made")), b"made")
        self.assertTrue(os.path.islink(self.path("link2")) and os.path.islink(self.path("link")))
        self.refused(errno.EISDIR, f.write, self.a, self.path("dir"))

    def test_hard_links_and_mount_points_in_place(self):
        f.write(self.a, self.path("one"), b"a long old text")
        os.link(self.path("one"), self.path("two"))
        f.write(self.a, self.path("one"), b"new")
        self.assertEqual(f.read(self.a, self.path("two")), b"new")
        f.write(self.a, self.path("below"), b"old")
        f.write(self.a, self.path("over"), b"")
        done = self.a.sh(f"mount --bind {self.path('below').decode()} {self.path('over').decode()}")
        self.assertEqual(done.exit.code, 0)
        f.write(self.a, self.path("over"), b"through")
        self.assertEqual(f.read(self.a, self.path("below")), b"through")

    def test_a_broken_one_leaves_nothing(self):
        f.write(self.a, self.path("old"), b"old")
        for name in ("old", "new"):
            call = f.Call(self.a, f.WRITE, self.path(name), f.PARENTS).ready()
            call.put(b"x" * MIB)
            call.close()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))
        self.assertEqual(os.listdir(self.dir), [b"old"])
        self.assertEqual(f.read(self.a, self.path("old")), b"old")

    def test_two_writers(self):
        for _ in range(20):
            calls = [f.Call(self.a, f.WRITE, self.path("file"), f.PARENTS).ready()
                     for _ in range(2)]
            for i in range(20):
                for call, letter in zip(calls, b"ab"):
                    call.put(bytes([letter]) * (10_000 + letter))
            for call in calls:
                call.end()
            data = f.read(self.a, self.path("file"))
            self.assertEqual(data, data[:1] * (20 * (10_000 + data[0])))
            self.assertEqual(os.listdir(self.dir), [b"file"])

    def test_no_room(self):
        self.assertEqual(self.a.sh(
            f"mount -t tmpfs -o size=1m none {self.dir.decode()}").exit.code, 0)
        f.write(self.a, self.path("old"), b"old")
        call = f.Call(self.a, f.WRITE, self.path("new"), f.PARENTS).ready()
        with self.assertRaises(d.Failed) as caught:
            call.put(b"x" * (4 * MIB)).end()
        self.assertEqual(caught.exception.code, errno.ENOSPC)
        self.assertEqual([n.path for n in f.ls(self.a, self.dir)], [b"old"])
        f.write(self.a, self.path("small"), b"fits again")

    def test_a_file_system_without_nameless_files(self):
        """The temporary name goes whatever happens."""
        if self.a.sh("grep -q ramfs /proc/filesystems && mount -t ramfs none "
                     + self.dir.decode()).exit.code:
            self.skipTest("no ramfs")
        f.write(self.a, self.path("file"), b"one")
        f.write(self.a, self.path("file"), b"two")
        call = f.Call(self.a, f.WRITE, self.path("file"), f.PARENTS).ready().put(b"x" * MIB)
        call.close()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))
        self.assertEqual([n.path for n in f.ls(self.a, self.dir)], [b"file"])
        self.assertEqual(f.read(self.a, self.path("file")), b"two")

    def test_file_as_large_as_memory_does_not_matter(self):
        call = f.Call(self.a, f.WRITE, self.path("file"), f.PARENTS).ready()
        for _ in range(64):
            call.put(b"x" * MIB)
        largest = max(int(line.split()[1]) for pid in filter(str.isdigit, os.listdir("/proc"))
                      for line in self.status_of(pid) if line.startswith("VmRSS"))
        self.assertLess(largest, 16 * 1024)
        self.assertEqual(call.end().size, 64 * MIB)

    def status_of(self, pid):
        try:
            text = d.read(f"/proc/{pid}/status")
        except OSError:
            return []
        return text.splitlines() if "Name:\tskerry-files\n" in text else []


class Calls(Files):
    def test_so_many_at_once(self):
        calls = [f.Call(self.a, f.WRITE, self.path(b"%d" % i), f.PARENTS).ready()
                 for i in range(64)]
        e = self.refused(errno.EAGAIN, f.stat, self.a, "/")
        self.assertEqual(e.reason, "too_many_file_calls")
        calls.pop().end()
        self.assertTrue(wait_for(lambda: self.helpers() == 63))
        f.stat(self.a, "/")
        for call in calls:
            call.close()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))
        self.assertEqual(os.listdir(self.dir), [b"63"])

    def test_peers_that_leave(self):
        f.write(self.a, self.path("file"), b"x" * (4 * MIB))
        for op in (f.STAT, f.LIST, f.READ, f.WRITE, f.UNPACK, f.WATCH):
            f.Call(self.a, op, self.path("file")).close()
        call = f.Call(self.a, f.READ, self.path("file"))
        call.c.send(f.GO, d.struct.pack("<QQ", 0, f.EVERYTHING))
        call.recv(f.ENTRY)
        call.close()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))
        self.assertEqual(self.a.sh("echo alive").out[0], b"alive\n")

    def test_one_that_hangs_is_ended(self):
        """A peer that leaves takes it along, even where it cannot notice."""
        call = f.Call(self.a, f.WRITE, self.path("new"), f.PARENTS).ready()
        pid = next(int(p) for p in self.children() if d.read(f"/proc/{p}/comm") == "skerry-files\n")
        os.kill(pid, signal.SIGSTOP)
        call.close()
        start = time.monotonic()
        self.assertTrue(wait_for(lambda: self.helpers() == 0, 10))
        self.assertLess(time.monotonic() - start, 2 * 2 + 1)

    def test_stop_does_not_wait_for_them(self):
        call = f.Call(self.a, f.WRITE, self.path("new"), f.PARENTS).ready()
        self.a.conn().stop(8000)
        start = time.monotonic()
        self.assertEqual(self.a.wait(), 0)
        self.assertLess(time.monotonic() - start, 6)
        call.close()
        self.assertEqual(os.listdir(self.dir), [])

    def test_garbage(self):
        whole = d.struct.pack("<BIII", f.STAT, 0, 0, 0) + d.enc_str("/") + 6 * d.enc_str("")
        for payload in (b"", whole[:-1], whole + b"x", b"\0" + whole[1:], b"\x0c" + whole[1:],
                        whole.replace(d.enc_str("/"), d.enc_str("x")),
                        d.struct.pack("<BIII", f.LIST, 0, 0, 0) + whole[13:],
                        d.struct.pack("<BIII", f.STAT, 16, 0, 0) + whole[13:],
                        d.struct.pack("<BIII", f.STAT, 0, 0o10000, 0) + whole[13:]):
            c = self.a.conn()
            c.send(f.FILE, payload)
            with self.assertRaises((d.Closed, ConnectionError)):
                while True:
                    self.assertEqual(c.recv()[0], d.HELLO)
        self.assertEqual(self.helpers(), 0)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(77)  # meson: skipped
    unittest.main()
