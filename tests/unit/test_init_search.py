"""skerry-init from outside: files found by name and by text.

usage: test_init_search.py <skerry-init> [unittest arguments]
"""

import errno
import os
import resource
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import file_driver as f  # noqa: E402
from test_init import MIB  # noqa: E402
from test_init_files import ODD, Files  # noqa: E402


class Search(Files):
    def search(self, path=None, more=False, **kw):
        call = f.Call(self.a, f.SEARCH, path or self.dir, **kw)
        found = call.matches()
        self.assertEqual(bool(call.flags & f.MORE), more)
        base = (path or self.dir).rstrip(b"/") + b"/"
        return [(m.path[len(base):], m.line, m.text) for m in found]

    def fill(self, **files):
        for name, data in files.items():
            f.write(self.a, self.path(name.replace("__", "/")), data)

    def test_names(self):
        self.fill(a=b"", b__a=b"", b__ab=b"", c__d__a=b"")
        os.symlink(self.dir, self.path("c/loop"))
        os.mkfifo(self.path("c/fifo"))
        names = lambda **kw: [m[0] for m in self.search(**kw)]  # noqa: E731
        self.assertEqual(names(), [b"a", b"b", b"b/a", b"b/ab", b"c", b"c/d", b"c/d/a", b"c/fifo",
                                   b"c/loop"])
        self.assertEqual(names(name="a*"), [b"a", b"b/a", b"b/ab", b"c/d/a"])
        self.assertEqual(names(name="?b"), [b"b/ab"])
        self.assertEqual(names(name="b/*"), [b"b/a", b"b/ab"])
        self.assertEqual(names(name="nothing"), [])
        self.assertEqual(names(path=self.path("c/loop"), name="ab"), [b"b/ab"])
        self.assertEqual(f.Call(self.a, f.SEARCH, self.path("a"), name="a").matches(),
                         [f.Match(self.path("a"), 0, b"")])

    def test_names_of_any_bytes(self):
        for name in ODD:
            f.write(self.a, self.path(name), b"text in it")
        self.assertEqual([m[0] for m in self.search(text="text")], sorted(ODD))

    def test_lines(self):
        self.fill(one=b"first\nsecond text\nthird\ntext at the end", two=b"no\n",
                  d__three=b"\xfftext\n\n\ntext text\r\n", binary=b"text\0text\n")
        os.symlink(b"one", self.path("link"))
        self.assertEqual(self.search(text="text"), [
            (b"d/three", 1, b"\xfftext"), (b"d/three", 4, b"text text\r"),
            (b"one", 2, b"second text"), (b"one", 4, b"text at the end")])
        self.assertEqual(self.search(text="text", name="thr*"), [
            (b"d/three", 1, b"\xfftext"), (b"d/three", 4, b"text text\r")])
        self.assertEqual(self.search(text="\xff"), [])
        self.assertEqual(self.search(text=b"\xfft"), [(b"d/three", 1, b"\xfftext")])
        self.assertEqual(f.Call(self.a, f.SEARCH, self.path("link"), text="second").matches(),
                         [f.Match(self.path("link"), 2, b"second text")])

    def test_long_lines(self):
        """Wherever in its line and in our window a match lies, it is found once."""
        for at in (0, 10, 1000, 1020, 5000, (256 << 10) - 3, 256 << 10, 300_000, MIB):
            line = b"." * at + b"needle" + b"," * 3000 + b"needle"
            self.fill(file=b"x\n" + line + b"\nneedle\n")
            first, second = self.search(text="needle")
            self.assertEqual(first[:2], (b"file", 2), at)
            self.assertIn(b"needle", first[2])
            self.assertLessEqual(len(first[2]), 1024)
            self.assertEqual(second, (b"file", 3, b"needle"))
        self.fill(file="\u6d4b".encode() * 2000 + b"needle" + "\u6d4b".encode() * 2000)
        (_, _, text), = self.search(text="needle")
        self.assertIn("needle", text.decode())

    def test_limit(self):
        self.fill(a=b"x\nx\nx\n", b=b"x\n")
        self.assertEqual(len(self.search(text="x", limit=4)), 4)
        self.assertEqual(len(self.search(text="x", limit=3, more=True)), 3)
        self.assertEqual(len(self.search(limit=2)), 2)
        self.assertEqual(len(self.search(limit=1, more=True)), 1)

    def test_large_files_are_searched_in_part(self):
        with open(self.path("large"), "wb") as out:
            out.write(b"needle\n" + (b"x" * 99 + b"\n") * (700 * 1000) + b"needle\n")
        self.fill(small=b"needle\n")
        self.assertEqual(self.search(text="needle", more=True),
                         [(b"large", 1, b"needle"), (b"small", 1, b"needle")])

    def test_deep_trees(self):
        """Where a tree is deeper than there are descriptors, what lies below is known to be missing."""
        self.fill(e=b"")  # once PID 1 answers, its limit is as it made it
        soft, hard = resource.prlimit(self.a.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.a.pid, resource.RLIMIT_NOFILE, (64, hard))
        at = os.open(self.dir, os.O_RDONLY)
        for _ in range(100):
            os.mkdir(b"d", dir_fd=at)
            below = os.open(b"d", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(os.open(b"needle", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.close(at)
        self.assertEqual(self.search(name="[en]*", more=True), [(b"e", 0, b"")])
        resource.prlimit(self.a.pid, resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(len(self.search(name="[en]*")), 2)

    def test_what_is_no_content(self):
        self.fill(t__proc__x=b"")
        done = self.a.sh(f"mount -t proc none {self.path('t/proc').decode()}")
        self.assertEqual(done.exit.code, 0)
        self.assertEqual([m[0] for m in self.search()], [b"t", b"t/proc"])
        self.refused(errno.ENOENT, lambda: f.Call(self.a, f.SEARCH, self.path("no")).matches())
        self.refused(errno.EINVAL, lambda: f.Call(self.a, f.SEARCH, "/dev/zero",
                                                  text="x").matches())


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(77)  # meson: skipped
    unittest.main()
