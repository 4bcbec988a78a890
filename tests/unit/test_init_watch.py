"""skerry-init from outside: changes as they happen.

usage: test_init_watch.py <skerry-init> [unittest arguments]
"""

import ctypes
import errno
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import file_driver as f  # noqa: E402
from test_init import wait_for  # noqa: E402
from test_init_files import ODD, Files  # noqa: E402

RENAME_EXCHANGE = 2


class Watched(Files):
    def watch(self, path=None, make=False):
        self.root = path or self.path("root")
        if make or not path:
            os.mkdir(self.root)
        call = f.Call(self.a, f.WATCH, self.root).ready()
        self.addCleanup(call.close)
        return call

    def at(self, *names):
        return os.path.join(self.root, *[f.raw(n) for n in names])

    def until(self, call, name):
        """The events until a file `name`, made for this, shows: short forms of them."""
        open(self.at(name), "x").close()
        return self.events(call, lambda v: v.path == self.at(name))[:-1]

    def events(self, call, last):
        found = []
        while not found or not last(found[-1]):
            found.append(call.event())
            self.assertIsNotNone(found[-1], found)
        return found

    def short(self, events):
        rel = lambda p: os.path.relpath(p, self.root).decode() if p else ""  # noqa: E731
        return [(v.change, rel(v.path)) + ((rel(v.frm),) if v.frm else ()) for v in events]

    def told(self, call, name="end"):
        return self.short(self.until(call, name))


class Watch(Watched):
    def test_a_file(self):
        call = self.watch()
        with open(self.at("file"), "w") as out:
            for _ in range(100):
                out.write("x")
                out.flush()
        got = self.told(call)
        self.assertEqual(got[0], ("CREATED", "file"))
        self.assertIn(("MODIFIED", "file"), got)
        self.assertLess(len(got), 20)
        self.assertEqual(set(got[1:]), {("MODIFIED", "file")})
        with open(self.at("file"), "w") as one, open(self.at("two"), "w") as two:
            for _ in range(500):  # by turns: the kernel keeps them apart
                for out in (one, two):
                    out.write("x")
                    out.flush()
        self.assertLess(self.told(call, "end1").count(("MODIFIED", "two")), 250)
        os.chmod(self.at("file"), 0o600)
        os.unlink(self.at("file"))
        self.assertEqual(self.told(call, "end2")[-2:], [("ATTRIBUTES", "file"),
                                                        ("DELETED", "file")])

    def test_names_of_any_bytes(self):
        call = self.watch()
        for name in ODD:
            os.mkdir(self.at(name))
        made = [v for v in self.until(call, "end") if v.change == "CREATED"]
        self.assertEqual([(v.path, v.dir) for v in made], [(self.at(n), True) for n in ODD])

    def test_what_was_there(self):
        os.makedirs(self.path("root/a/b/c"))
        call = self.watch(self.path("root"))
        open(self.at("a/b/c/file"), "x").close()
        os.chmod(self.at("a/b"), 0o700)
        got = self.told(call)
        self.assertEqual(got[0], ("CREATED", "a/b/c/file"))
        self.assertEqual(got.count(("ATTRIBUTES", "a/b")), 1)

    def test_directories_made_at_speed(self):
        """Each of them and what is in them is told once, whoever is faster."""
        for i in range(20):
            call = self.watch(self.path())
            top = f"top{i}"
            os.makedirs(self.at(top, "/".join("abcdefgh")))
            for at in ("a", "a/b/c", "a/b/c/d/e/f/g/h"):
                open(self.at(top, at, "file"), "x").close()
            want = {os.path.join(top, "/".join("abcdefgh"[:n])).rstrip("/") for n in range(9)}
            want |= {f"{top}/{at}/file" for at in ("a", "a/b/c", "a/b/c/d/e/f/g/h")}
            got = [v for v in self.told(call, f"end{i}") if v[0] == "CREATED"]
            self.assertEqual(sorted(v[1] for v in got), sorted(want))
            call.close()

    def test_many_made_at_speed(self):
        call = self.watch()

        def make(k):
            for i in range(100):
                os.makedirs(self.at(f"{k}-{i}/x/y"))
                open(self.at(f"{k}-{i}/x/y/file"), "x").close()

        threads = [threading.Thread(target=make, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        got = [v[1] for v in self.told(call) if v[0] == "CREATED"]
        want = [f"{k}-{i}{rest}" for k in range(4) for i in range(100)
                for rest in ("", "/x", "/x/y", "/x/y/file")]
        self.assertEqual(sorted(got), sorted(want))

    def test_moves(self):
        os.makedirs(self.path("root/a/sub"))
        os.makedirs(self.path("outside/deep/er"))
        open(self.path("outside/deep/file"), "x").close()
        call = self.watch(self.path("root"))
        os.rename(self.at("a"), self.at("b"))
        open(self.at("b/sub/in"), "x").close()
        got = self.told(call, "end1")
        self.assertEqual(got[:2], [("MOVED", "b", "a"), ("CREATED", "b/sub/in")])
        os.rename(self.at("b/sub"), self.path("outside/gone"))
        time.sleep(0.2)
        open(self.path("outside/gone/unseen"), "x").close()
        self.assertEqual(self.told(call, "end2")[-1], ("DELETED", "b/sub"))
        os.rename(self.path("outside/deep"), self.at("came"))
        open(self.at("came/er/x"), "x").close()
        got = self.told(call, "end3")
        self.assertEqual(sorted(v for v in got if v[0] == "CREATED"), [
            ("CREATED", "came"), ("CREATED", "came/er"), ("CREATED", "came/er/x"),
            ("CREATED", "came/file")])

    def test_a_name_that_is_taken_again(self):
        """What went is told before what came in its place."""
        os.mkdir(self.path("root"))
        for name in ("x", "y", "z"):
            open(self.path("root", name), "x").close()
        call = self.watch(self.path("root"))
        os.rename(self.at("x"), self.path("away"))
        os.rename(self.at("y"), self.at("x"))
        os.rename(self.at("z"), self.path("away2"))
        os.mkdir(self.at("z"))
        got = self.told(call)
        self.assertLess(got.index(("DELETED", "x")), got.index(("MOVED", "x", "y")))
        self.assertLess(got.index(("DELETED", "z")), got.index(("CREATED", "z")))

    def test_two_that_change_places(self):
        for name in ("a/in-a", "b/in-b"):
            os.makedirs(self.path("root", name))
        call = self.watch(self.path("root"))
        libc = ctypes.CDLL(None, use_errno=True)
        self.assertEqual(libc.renameat2(-100, self.at("a"), -100, self.at("b"), RENAME_EXCHANGE), 0)
        self.events(call, lambda v: v.change == "OVERFLOW")
        open(self.at("b/in-a/file"), "x").close()
        self.assertIn(("CREATED", "b/in-a/file"), self.told(call))

    def test_one_file(self):
        f.write(self.a, self.path("file"), b"x")
        os.symlink(b"file", self.path("link"))
        for name in ("file", "link"):
            call = self.watch(self.path(name))
            open(self.path("other" + name), "x").close()
            with open(self.path("file"), "a") as out:
                out.write("x")
            self.assertEqual(self.short([call.event()]), [("MODIFIED", ".")])
            f.write(self.a, self.path("file"), b"replaced")
            self.assertEqual(call.event().change, "MODIFIED")
        os.unlink(self.path("file"))
        while (v := call.event()) and v.change == "MODIFIED":
            pass
        self.assertEqual((v.change, call.event()), ("DELETED", None))

    def ends(self, end):
        call = self.watch(self.path("root"))
        end()
        while call.event():
            pass

    def test_the_end(self):
        for end in (os.rmdir, lambda root: os.rename(root, root + b"-")):
            os.mkdir(self.path("root"))
            inside = os.open(self.path("root"), os.O_RDONLY)  # somebody is in it
            self.ends(lambda: end(self.root))
            os.close(inside)
        self.assertTrue(wait_for(lambda: self.helpers() == 0))
        self.refused(errno.ENOENT, lambda: f.Call(self.a, f.WATCH, self.path("no")).ready())

    def test_the_end_by_a_link_without_a_name(self):
        os.mkdir(self.path("root"))
        os.symlink(b".", self.path("root/self"))
        os.mkdir(self.path("root/d"))
        call = self.watch(self.path("root/self"))
        os.unlink(self.path("root/self"))
        os.rmdir(self.path("root/d"))
        os.rmdir(self.path("root"))
        self.assertEqual([v[:2] for v in self.short(iter(call.event, None))],
                         [("DELETED", "self"), ("DELETED", "d")])

    def test_unmounted(self):
        os.mkdir(self.path("root"))
        root = self.path("root").decode()
        self.assertEqual(self.a.sh(f"mount -t tmpfs none {root}").exit.code, 0)
        self.ends(lambda: self.assertEqual(self.a.sh(f"umount -l {root}").exit.code, 0))

    def test_two_watchers(self):
        one = self.watch()
        two = self.watch(self.root)
        os.makedirs(self.at("a/b"))
        want = self.told(one)
        self.assertEqual([v for v in want if v[0] == "CREATED"],
                         [("CREATED", "a"), ("CREATED", "a/b")])
        got = self.short(self.events(two, lambda v: v.path == self.at("end")))[:-1]
        self.assertEqual(got, want)

    def test_a_client_that_leaves(self):
        call = self.watch()
        self.assertEqual(self.helpers(), 1)
        call.close()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))
        os.mkdir(self.at("after"))

    def burst(self, count):
        for i in range(count):
            open(self.at(f"file-with-a-longer-name-{i}"), "x").close()

    def check_burst(self, call, count):
        """All of them, or it is told that some are missing."""
        seen, lost = set(), False
        while True:
            v = call.event()
            if v.path == self.at("end"):
                break
            lost |= v.change == "OVERFLOW"
            if v.change == "CREATED":
                self.assertNotIn(v.path, seen)
                seen.add(v.path)
        self.assertTrue(lost or len(seen) == count, (lost, len(seen)))
        return lost

    def test_burst(self):
        call = self.watch()
        self.burst(25_000)  # each is made and closed: 50,000
        open(self.at("end"), "x").close()
        self.check_burst(call, 25_000)

    def test_burst_and_nobody_reads(self):
        """Far more than is held: it is told, and what comes later is seen."""
        os.makedirs(self.path("root", "n" * 200, "m" * 200, "k" * 200))
        call = self.watch(self.path("root"))
        deep = self.at("n" * 200, "m" * 200, "k" * 200)
        for i in range(12_000):
            name = os.path.join(deep, b"%d" % i)
            open(name, "x").close()
            os.unlink(name)
        os.makedirs(self.at("made/meanwhile"))
        time.sleep(0.3)
        self.events(call, lambda v: v.change == "OVERFLOW")
        open(self.at("made/meanwhile/file"), "x").close()
        self.assertIn(("CREATED", "made/meanwhile/file"), self.told(call))

    def test_mounted_below_itself(self):
        os.makedirs(self.path("root/a/b"))
        done = self.a.sh(f"mount --bind {self.path('root').decode()} "
                         f"{self.path('root/a/b').decode()}")
        self.assertEqual(done.exit.code, 0)
        call = self.watch(self.path("root"))
        open(self.at("a/file"), "x").close()
        self.assertIn(("CREATED", "a/file"), self.told(call))


class Uploads(Watched):
    """They are seen as what they are, whatever names they have before."""

    def test_an_upload(self):
        call = self.watch()
        f.write(self.a, self.at("new"), b"x" * 100)
        self.assertEqual(self.told(call), [("CREATED", "new")])
        f.write(self.a, self.at("new"), b"y" * 100)
        self.assertEqual([v for v in self.told(call, "end1") if v[1] != "end"],
                         [("MODIFIED", "new")])
        self.assertEqual(sorted(os.listdir(self.root)), [b"end", b"end1", b"new"])

    def test_names_like_those(self):
        call = self.watch()
        for name in ("#123", ".skerry-0", ".skerry-0123456789abcdef.txt"):
            open(self.at(name), "x").close()
            os.chmod(self.at(name), 0o600)
            os.unlink(self.at(name))
        got = self.told(call)
        for name in ("#123", ".skerry-0", ".skerry-0123456789abcdef.txt"):
            self.assertIn(("CREATED", name), got)
            self.assertIn(("DELETED", name), got)


class Limited(Watched):
    """In a user namespace of its own, which has a limit of its own."""

    options = {"userns": True}

    def test_no_more_watches(self):
        os.chmod(self.dir, 0o755)
        for i in range(50):
            os.makedirs(self.path("root", f"d{i}"))
        done = self.a.sh("echo 20 > /proc/sys/user/max_inotify_watches")
        self.assertEqual(done.exit.code, 0)
        call = self.watch(self.path("root"))
        self.assertEqual(call.event().change, "OVERFLOW")
        open(self.at("seen"), "x").close()
        self.assertEqual(call.event().path, self.at("seen"))


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(77)  # meson: skipped
    unittest.main()
