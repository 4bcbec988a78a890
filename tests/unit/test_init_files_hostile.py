"""skerry-init from outside: files of a sandbox that does not want to be looked at, and large trees.

usage: test_init_files_hostile.py <skerry-init> [unittest arguments]
"""

import errno
import os
import platform
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import file_driver as f  # noqa: E402
import init_driver as d  # noqa: E402
from test_init import SANITIZED, wait_for  # noqa: E402
from test_init_files import Files  # noqa: E402

KERNEL = tuple(int(n) for n in platform.release().split(".")[:2])


def make_deep(root, levels, names=()):
    """Directories "d", one in the other, with empty files `names` in each."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(b"d", dir_fd=here)
        for name in names:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open(b"d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


class Peak:
    """The most that the agent's processes of file calls hold while it is open: descriptors, KiB of
    memory."""

    def __init__(self, agent):
        self.space = os.readlink(f"/proc/{agent.pid}/ns/pid")
        self.fds = self.rss = 0
        self.over = False

    def __enter__(self):
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *a):
        self.over = True
        self.thread.join()

    def look(self, pid):
        try:
            if (d.read(f"/proc/{pid}/comm") != "skerry-files\n"
                    or os.readlink(f"/proc/{pid}/ns/pid") != self.space):
                return
            fds = len(os.listdir(f"/proc/{pid}/fd"))
            rss = [n for n in d.read(f"/proc/{pid}/status").splitlines() if n.startswith("VmRSS")]
        except OSError:
            return
        self.fds = max(self.fds, fds)
        if rss:
            self.rss = max(self.rss, int(rss[0].split()[1]))

    def watch(self):
        while not self.over:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                self.look(pid)
            time.sleep(0.005)


class Swapping:
    """Runs `turn` again and again while it is open."""

    def __init__(self, turn):
        self.turn, self.over, self.thread = turn, False, threading.Thread(target=self.run)

    def run(self):
        while not self.over:
            self.turn()

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *a):
        self.over = True
        self.thread.join()


class Proc(Files):
    def test_its_own_is_not_read(self):
        os.symlink(b"/proc/self/maps", self.path("link"))
        os.symlink(b"/proc/self", self.path("dir"))
        for path in ("/proc/self/maps", "/proc/self/mem", "/proc/self/environ", "/proc/self/auxv",
                     "/proc/thread-self/maps", "/proc/self/net/../maps", self.path("link"),
                     self.path("dir/smaps")):
            self.refused(errno.EPERM, f.read, self.a, path)
        self.refused(errno.EPERM, f.read, self.a, "/proc/self/mem", 0x400000, 16)

    def test_nor_by_its_number(self):
        """The next process has the next number, as a rule."""
        for _ in range(20):
            mine = int(f.stat(self.a, "/proc/self").target)
            try:
                f.read(self.a, f"/proc/{mine + 1}/task/{mine + 1}/maps")
                self.fail("it was read")
            except d.Failed as e:
                if e.code == errno.EPERM:
                    return
                self.assertEqual(e.code, errno.ENOENT)
        self.fail("never met")

    def test_nor_where_its_links_lead(self):
        for path in ("/proc/self/exe", "/proc/self/root", "/proc/thread-self/cwd", "/proc/self/fd/0",
                     "/proc/self/ns/mnt"):
            self.assertEqual(f.stat(self.a, path).target, b"", path)
        listed = f.ls(self.a, "/proc/self/fd") + f.ls(self.a, "/proc/self")
        self.assertEqual({n.target for n in listed}, {b""})

    def test_nor_where_it_is_mounted(self):
        open(self.path("over"), "w").close()
        script = f"sleep 100 & mount --bind /proc/$!/maps {self.path('over').decode()}"
        self.assertEqual(self.a.sh(script).exit.code, 0)
        self.refused(errno.EPERM, f.read, self.a, self.path("over"))
        self.refused(errno.EPERM, f.write, self.a, self.path("over"), b"x")

    def test_what_is_the_sandbox_s_is_read(self):
        for path, text in (("/proc/mounts", b" /proc proc "), ("/proc/self/mountinfo", b" /proc "),
                           ("/proc/net/dev", b"lo:"), ("/proc/1/status", b"Pid:"),
                           ("/proc/sys/kernel/ostype", b"Linux")):
            self.assertIn(text, f.read(self.a, path), path)

    def test_parts(self):
        whole = f.read(self.a, "/proc/version")
        self.assertEqual(f.read(self.a, "/proc/version", 0, 10), whole[:10])
        self.assertEqual(f.read(self.a, "/proc/version", 5, 10), whole[5:15])
        self.assertEqual(f.read(self.a, "/proc/version", 1 << 20, 10), b"")

    def test_sizes_that_are_none(self):
        about, data = f.Call(self.a, f.READ, "/sys/kernel/mm/transparent_hugepage/enabled").data()
        self.assertEqual(about.size, 0)
        self.assertIn(b"never", data)

    def test_nothing_is_written(self):
        with open(self.path("kept"), "w") as out:
            out.write("kept")
        c = self.a.conn().run([f"exec 5>>{self.path('kept').decode()}; exec sleep 100"],
                              runtime=d.BASH, wait=False)
        wait_for(lambda: os.path.exists(f"/proc/{c.pid}/fd/5"), 5)  # where it is seen by this number
        inside = next(line for line in d.read(f"/proc/{c.pid}/status").splitlines()
                      if line.startswith("NSpid")).split()[-1] if os.path.exists(
                          f"/proc/{c.pid}/fd/5") else str(c.pid)
        for path in ("/proc/self/mem", "/proc/self/oom_score_adj", "/proc/sys/kernel/hostname",
                     "/proc/new", "/proc/self/new"):
            self.refused(errno.EPERM, f.write, self.a, path, b"x")
        for path in (f"/proc/{inside}/fd/5", f"/proc/{inside}/root", "/proc/self/cwd"):
            self.refused(errno.ELOOP, f.write, self.a, path, b"x")
        self.assertEqual(d.read(self.path("kept")), "kept")
        c.close()

    def test_an_empty_file_that_grows(self):
        open(self.path("file"), "w").close()
        call = f.Call(self.a, f.READ, self.path("file"))
        self.assertEqual(f.entry(call.recv(f.ENTRY)[1]).size, 0)
        with open(self.path("file"), "w") as out:
            out.write("more than was told")
        call.c.send(f.GO, d.struct.pack("<QQ", 0, f.EVERYTHING))
        call.recv(f.END)


class Names(Files):
    """Of users, where the sandbox makes what it likes of its files."""

    def over_passwd(self, path):
        self.assertEqual(self.a.sh(f"mount --bind {path.decode()} /etc/passwd").exit.code, 0)

    def test_a_fifo(self):
        os.mkfifo(self.path("fifo"))
        self.over_passwd(self.path("fifo"))
        self.assertEqual(f.stat(self.a, "/").owner, b"")
        self.refused(errno.EINVAL, lambda: f.Call(self.a, f.SET, self.path("fifo"),
                                                  owner="nobody").one())
        self.assertEqual(f.Call(self.a, f.SET, self.path("fifo"), owner="7").one().uid, 7)

    def test_a_large_one(self):
        with open(self.path("passwd"), "wb") as out:
            out.write(b"root:x:0:0:::\n" + b"\n" * (5 << 20))
        self.over_passwd(self.path("passwd"))
        self.assertEqual(f.stat(self.a, "/").owner, b"")

    def test_odd_lines(self):
        with open(self.path("passwd"), "wb") as out:
            out.write(b"\n:::\n::0:\nlong" + b"x" * 300 + b":x:0:0\n-1:x:-1:0\nbig:x:4294967295:0\n"
                      b"half\n\xffr:x:0:0:::\nroot:x:0:0:::\n12:x:77:0:::\nlast:x:78:0")
        self.over_passwd(self.path("passwd"))
        self.assertEqual(f.stat(self.a, "/").owner, b"\xffr")
        os.mkdir(self.path("a"))
        for owner, uid, name in (("12", 77, b"12"), ("last", 78, b"last"), ("13", 13, b"")):
            got = f.Call(self.a, f.SET, self.path("a"), owner=owner).one()
            self.assertEqual((got.uid, got.owner), (uid, name))
        for owner in ("big", "-1", "4294967295"):
            self.refused(errno.EINVAL, lambda: f.Call(self.a, f.SET, self.path("a"),
                                                      owner=owner).one())


class Paths(Files):
    def test_the_longest(self):
        path = self.dir
        while len(path) + 201 < 4095 - 255:
            path += b"/" + b"p" * 200
        path += b"/" + b"q" * (4095 - 255 - 2 - len(path)) + b"/" + b"f" * 255
        self.assertEqual(len(path), 4095)
        f.write(self.a, path, b"far")
        self.assertEqual(f.read(self.a, path), b"far")
        self.assertEqual(f.stat(self.a, path).path, path)
        listed = f.ls(self.a, self.dir, flags=f.RECURSIVE)
        self.assertEqual(self.dir + b"/" + listed[-1].path, path)
        f.Call(self.a, f.MOVE, path, to=path[:-1] + b"g").one()
        f.Call(self.a, f.REMOVE, path[:-1] + b"g").done()
        self.refused(errno.ENOENT, f.stat, self.a, path)

    def test_dots(self):
        os.mkdir(self.path("a"))
        f.write(self.a, self.path("a/../b/./c"), b"x")
        self.assertEqual(f.read(self.a, self.path("b/c")), b"x")
        for path in ("a/..", "a/.", "a/../", "."):
            self.assertEqual(f.stat(self.a, self.path(path)).kind, "dir")
            self.refused(errno.EISDIR, f.write, self.a, self.path(path))
            self.refused(errno.EINVAL, lambda: f.Call(self.a, f.REMOVE, self.path(path)).done())
        self.refused(errno.EISDIR, f.write, self.a, "/")
        self.assertEqual(sorted(os.listdir(self.dir)), [b"a", b"b"])

    def test_attributes_of_a_replaced_file(self):
        f.write(self.a, self.path("file"), b"old", mode=0o755)
        capability = d.struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
        try:
            os.setxattr(self.path("file"), "user.colour", b"blue\0")
            os.setxattr(self.path("file"), "security.capability", capability)
        except OSError as e:
            self.skipTest(f"no attributes here: {e}")
        f.write(self.a, self.path("file"), b"new")
        self.assertEqual(os.listxattr(self.path("file")), ["user.colour"])
        self.assertEqual(os.getxattr(self.path("file"), "user.colour"), b"blue\0")


class Removed(Files):
    def test_ten_thousand_deep(self):
        os.mkdir(self.path("t"))
        make_deep(self.path("t"), 10_000, [b"x"])
        with Peak(self.a) as peak:
            f.Call(self.a, f.REMOVE, self.path("t")).done()
        self.assertEqual(os.listdir(self.dir), [])
        self.assertTrue(0 < peak.fds < 100, peak.fds)

    def test_wide_below_deep(self):
        """Above what is held open there are names left when it comes back."""
        os.mkdir(self.path("t"))
        make_deep(self.path("t"), 200, [b"a", b"z"])
        here = self.path("t", *["d"] * 200)
        for i in range(1500):
            os.makedirs(os.path.join(here, b"%d/e" % i))
        f.Call(self.a, f.REMOVE, self.path("t")).done()
        self.assertEqual(os.listdir(self.dir), [])

    def test_mounts_below_keep_everything(self):
        for name in ("t/a", "t/b/c", "t/z/m/x", "other/file", "t2/file"):
            f.write(self.a, self.path(name), b"kept")
        other = self.path("other").decode()
        self.assertEqual(self.a.sh(
            f"mount --bind {other} {other}/../t/z/m && mkdir {other}/../t2/m").exit.code, 0)
        e = self.refused(errno.EBUSY, lambda: f.Call(self.a, f.REMOVE, self.path("t")).done())
        self.assertEqual(f.read(self.a, self.path("other/file")), b"kept")
        self.assertIn("t/z/m", e.text)
        if KERNEL >= (6, 8):
            self.assertEqual(f.read(self.a, self.path("t/a")), b"kept")
        self.refused(errno.EBUSY, lambda: f.Call(self.a, f.REMOVE, self.path("t/z/m")).done())
        f.Call(self.a, f.REMOVE, self.path("t2")).done()

    def test_a_file_that_is_a_mount_point(self):
        for name in ("t/file", "other"):
            f.write(self.a, self.path(name), b"kept")
        self.assertEqual(self.a.sh("mount --bind {} {}".format(
            self.path("other").decode(), self.path("t/file").decode())).exit.code, 0)
        for name in ("t", "t/file"):
            self.refused(errno.EBUSY, lambda: f.Call(self.a, f.REMOVE, self.path(name)).done())

    def test_what_cannot_go_is_named(self):
        if self.a.sh("mkdir {0}/t {0}/t/d && touch {0}/t/d/stays && chattr +i {0}/t/d/stays".format(
                self.dir.decode())).exit.code:
            self.skipTest("no immutable files here")
        self.addCleanup(subprocess.run, ["chattr", "-i", self.path("t/d/stays")])
        e = self.refused(errno.EPERM, lambda: f.Call(self.a, f.REMOVE, self.path("t")).done())
        self.assertIn("t/d/stays", e.text)

    def test_a_directory_swapped_for_a_link(self):
        f.write(self.a, self.path("kept/file"), b"kept")
        f.write(self.a, self.path("kept/sub/file"), b"kept")
        os.symlink(b"../kept", self.path("link"))

        def turn():
            try:
                os.makedirs(self.path("t/d/sub"), exist_ok=True)
                os.rename(self.path("t/d"), self.path("aside"))
                os.rename(self.path("link"), self.path("t/d"))
                os.rename(self.path("t/d"), self.path("link"))
            except OSError:
                if not os.path.islink(self.path("link")):
                    os.symlink(b"../kept", self.path("link"))
            d.shutil.rmtree(self.path("aside"), ignore_errors=True)

        with Swapping(turn):
            for _ in range(300):
                try:
                    f.Call(self.a, f.REMOVE, self.path("t")).done()
                except d.Failed as e:
                    self.assertIn(e.code, (errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY), e)
        for name in ("kept/file", "kept/sub/file"):
            self.assertEqual(f.read(self.a, self.path(name)), b"kept")

    def test_one_that_is_filled_all_the_time(self):
        os.mkdir(self.path("t"))

        def turn():
            try:
                os.makedirs(self.path("t/%d/x" % (time.monotonic_ns() % 100)), exist_ok=True)
            except OSError:
                pass

        with Swapping(turn):
            for _ in range(30):
                try:
                    f.Call(self.a, f.REMOVE, self.path("t")).done()
                except d.Failed as e:
                    self.assertIn(e.code, (errno.ENOENT, errno.ENOTEMPTY), e)
        self.assertTrue(wait_for(lambda: self.helpers() == 0))


class Large(Files):
    ROOM = "/dev/shm"  # quick to fill

    def test_deep_and_wide_is_listed_with_little(self):
        levels, wide = 1200, 60
        make_deep(self.dir, levels, [b"x%03d" % i + b"n" * 240 for i in range(wide)])
        with Peak(self.a) as peak:
            got, _ = f.pages(self.a, self.dir, 10_000, flags=f.RECURSIVE)
        self.assertEqual((len(got), len({n.path for n in got})), (levels * (wide + 1),) * 2)
        self.assertTrue(0 < peak.fds < 100, peak.fds)
        if not SANITIZED:
            self.assertLess(peak.rss, 16 * 1024)
        small, _ = f.pages(self.a, self.path(*["d"] * 1100), 70, flags=f.RECURSIVE)
        self.assertEqual(len(small), 100 * (wide + 1))

    def test_three_hundred_thousand(self):
        os.mkdir(self.path("flat"))
        for i in range(200_000):
            os.mknod(self.path("flat", b"%x" % i))
        for i in range(500):
            os.mkdir(self.path("flat", b"dir%d" % i))
            for k in range(199):
                os.mknod(self.path("flat", b"dir%d" % i, b"%d" % k))
        with Peak(self.a) as peak:
            flat, _ = f.pages(self.a, self.path("flat"), 10_000)
            got, pages = f.pages(self.a, self.path("flat"), 10_000, flags=f.RECURSIVE)
        self.assertEqual(len({n.path for n in flat}), 200_500)
        self.assertEqual((len(got), len({n.path for n in got}), pages), (300_000, 300_000, 30))
        if not SANITIZED:
            self.assertLess(peak.rss, 16 * 1024)

    def test_peers_that_leave_in_the_middle(self):
        make_deep(self.dir, 2000, [b"%d" % i for i in range(5)])
        for op, flags in ((f.LIST, f.RECURSIVE), (f.SEARCH, 0), (f.READ, 0), (f.STAT, 0),
                          (f.SET, 0), (f.MAKE, 0), (f.MOVE, 0), (f.REMOVE, 0)):
            f.Call(self.a, op, self.path("d"), flags, to=self.path("d") if op == f.MOVE else "",
                   name="*").close()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(77)  # meson: skipped
    unittest.main()
