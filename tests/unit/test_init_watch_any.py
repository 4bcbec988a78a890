"""skerry-init from outside: whatever is done to a watched tree, its reader knows what is there.

usage: test_init_watch_any.py <skerry-init> [unittest arguments]

SKERRY_TEST_SEED is the first seed, SKERRY_TEST_SEEDS their number; many with SKERRY_TEST_LONG=1.
"""

import contextlib
import ctypes
import itertools
import os
import random
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import init_driver as d  # noqa: E402
import watch_reader as r  # noqa: E402
from test_init import wait_for  # noqa: E402
from test_init_watch import RENAME_EXCHANGE, Watched  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
NAMES = [b"a", b"b", b"c", b"d"]
TURNS = 10


class Storm:
    """Changes at random, below `root`. What goes out of it goes to `outside`, and may come back."""

    def __init__(self, rng, root, outside):
        self.rng, self.root, self.outside = rng, root, outside
        self.held = []
        self.count = 0
        os.mkdir(outside)

    def close(self):
        for fd in self.held:
            os.close(fd)

    def next(self):
        self.count += 1
        return b"%08d" % self.count

    def make(self, at, to):
        with open(at, "xb") as out:
            out.write(self.next())

    def write(self, at, to):
        with open(at, "r+b") as out:
            out.write(self.next())

    def hold(self, at, to):
        self.held.append(os.open(at, os.O_WRONLY))
        if len(self.held) > 8:
            os.close(self.held.pop(0))

    def write_held(self, at, to):
        if self.held:
            os.pwrite(self.rng.choice(self.held), self.next(), 0)

    @staticmethod
    def swap(at, to):
        return LIBC.renameat2(-100, at, -100, to, RENAME_EXCHANGE)

    def exchange(self, at, to):
        self.swap(at, to)

    def go_out(self, at, to):
        os.rename(at, os.path.join(self.outside, self.next()))

    def come_in(self, at, to):
        """Not over a file: of one that was moved there and this the kernel may make one event."""
        away = sorted(os.listdir(self.outside))
        if away and not os.path.isfile(to):
            os.rename(os.path.join(self.outside, self.rng.choice(away)), to)

    def take_turns(self, at, to):
        """A name that is used again and again."""
        for _ in range(3):
            os.mkdir(at)
            with open(os.path.join(at, b"a"), "xb") as out:
                out.write(self.next())
            os.rename(at, to)

    def blow(self, changes):
        kinds = {
            self.make: 4, self.write: 4, self.hold: 1, self.write_held: 2, self.exchange: 1,
            self.go_out: 2, self.come_in: 1, self.take_turns: 1, (lambda at, to: os.mkdir(at)): 6,
            (lambda at, to: os.rename(at, to)): 6, (lambda at, to: os.unlink(at)): 2,
            (lambda at, to: os.rmdir(at)): 2}
        dirs = [p for p, thing in sorted(r.look(self.root).items()) if thing.kind == "dir"] + [b""]
        for _ in range(changes):
            at, to = [os.path.join(self.root, self.rng.choice(dirs), self.rng.choice(NAMES))
                      for _ in range(2)]
            do = self.rng.choices(list(kinds), list(kinds.values()))[0]
            with contextlib.suppress(OSError):
                do(at, to)


class Anything(Watched):
    def watchers(self):
        return [int(p) for p in self.children() if d.read(f"/proc/{p}/comm") == "skerry-files\n"]

    @contextlib.contextmanager
    def late(self):
        """What is done meanwhile is seen only afterwards, all at once."""
        pids = self.watchers()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def by_fits(self):
        """The watch is held up now and then, anywhere."""
        done = threading.Event()
        rng = random.Random()

        def hinder():
            while not done.wait(rng.random() / 500):
                with self.late():
                    time.sleep(rng.random() / 500)

        thread = threading.Thread(target=hinder)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def mark(self, reader):
        """Until all that was done before has been told. A mark may be what an OVERFLOW tells of."""
        while True:
            self.marks += 1
            name, lost = b"mark-%d" % self.marks, reader.overflows
            open(os.path.join(reader.root, name), "x").close()
            self.assertTrue(
                reader.until(lambda: reader.overflows > lost or reader.events[-1:] and any(
                    v.path == name for v in reader.events[-50:])),
                ("no mark", reader.failure, reader.events[-20:]))
            if reader.overflows == lost:
                return

    def quiet(self, reader):
        self.mark(reader)
        time.sleep(0.1)  # a move's other half is waited for
        self.mark(reader)
        self.mark(reader)

    def real(self, reader):
        return {p: t for p, t in r.look(reader.root).items() if not p.startswith(b"mark-")}

    def compare(self, reader, start, where):
        events = [v for v in reader.events if not v.path.startswith(b"mark-")]
        real = self.real(reader)
        told = "\n".join([where, *map(str, events)])
        self.assertEqual({p: t for p, t in reader.known().items() if not p.startswith(b"mark-")},
                         real, told)
        if any(v.change == "OVERFLOW" for v in events):
            return False
        teller = r.Teller(start)
        for v in events:
            teller.event(v.change, v.path, v.frm)
        self.assertEqual(teller.differences(real), {}, told)
        return True

    @contextlib.contextmanager
    def read(self, name):
        call = self.watch(self.path(name), make=not os.path.exists(self.path(name)))
        self.marks = 0
        reader = r.Looker(call, self.root)
        try:
            yield reader
        finally:
            reader.close()
        self.assertTrue(wait_for(lambda: self.helpers() == 0))

    def check(self, reader, way, change, where):
        """What is known of the tree after `change` is so. False where an OVERFLOW helped."""
        start = self.real(reader)
        reader.events.clear()
        with way():
            change()
        self.quiet(reader)
        return self.compare(reader, start, where)

    def watches(self):
        pid, = self.watchers()
        return sum(d.read(f"/proc/{pid}/fdinfo/{fd}").count("inotify wd:")
                   for fd in os.listdir(f"/proc/{pid}/fd"))

    def each_is_watched(self, reader, where):
        dirs = [p for p, t in self.real(reader).items() if t.kind == "dir"] + [b""]
        reader.events.clear()
        probes = {os.path.join(p, b"probe") for p in dirs}
        for probe in probes:
            open(os.path.join(self.root, probe), "x").close()
        self.mark(reader)
        seen = {v.path for v in reader.events if v.change == "CREATED"}
        if not any(v.change == "OVERFLOW" for v in reader.events):
            self.assertLessEqual(probes, seen, where)
        self.assertEqual(self.watches(), len(dirs) + 1, where)  # and what the root is in

    def one_of_anything(self, seed):
        rng = random.Random(seed)
        way = [contextlib.nullcontext, self.late, self.by_fits][seed % 3]
        followed = 0
        with self.read(f"root-{seed}") as reader:
            storm = Storm(rng, self.root, self.path(f"outside-{seed}"))
            self.addCleanup(storm.close)
            for turn in range(TURNS):
                changes = rng.choice([3, 10, 30, 80])
                followed += self.check(reader, way, lambda n=changes: storm.blow(n),
                                       f"seed {seed}, turn {turn}")
            self.each_is_watched(reader, f"seed {seed}")
        return followed

    def test_anything(self):
        """At each moment of quiet the reader knows what is there, and no content has changed
        without a word; at the end each directory is watched."""
        many = os.environ.get("SKERRY_TEST_LONG") == "1"
        count = int(os.environ.get("SKERRY_TEST_SEEDS", 96 if many else 3))
        first = int(os.environ.get("SKERRY_TEST_SEED", 1))
        followed = 0
        for seed in range(first, first + count):
            with self.subTest(seed):
                followed += self.one_of_anything(seed)
        self.assertGreater(followed, count * TURNS / 4)  # an OVERFLOW is the exception

    def test_a_directory_whose_name_is_taken(self):
        def change():
            for i in range(20):
                os.mkdir(self.at("a"))
                open(self.at("a/file"), "x").close()
                os.rename(self.at("a"), self.at(f"a-{i}"))
            os.makedirs(self.at("a/below"))

        with self.read("root") as reader:
            self.check(reader, self.late, change, "")
            self.each_is_watched(reader, "")

    def test_moved_before_it_was_seen(self):
        """Nothing is missed by that, and no OVERFLOW needed."""
        os.makedirs(self.path("root/old/in/side"))

        def make_and_move():
            os.makedirs(self.at("temporary/a/b"))
            open(self.at("temporary/a/file"), "x").close()
            os.rename(self.at("temporary"), self.at("made"))

        def move_into_a_new_one():
            os.mkdir(self.at("new"))
            os.rename(self.at("old"), self.at("new/old"))
            open(self.at("new/old/in/file"), "x").close()

        def make_in_a_moved_one():
            os.makedirs(self.at("made/c/d"))
            os.rename(self.at("made"), self.at("there"))
            os.makedirs(self.at("there/c/d/e"))

        with self.read("root") as reader:
            for change in (make_and_move, move_into_a_new_one, make_in_a_moved_one):
                self.assertTrue(self.check(reader, self.late, change, change.__name__),
                                change.__name__)
            self.each_is_watched(reader, "")

    def test_more_moves_than_are_waited_for(self):
        """The first one is given up, with the directory that the last one is of."""
        os.makedirs(self.path("root/a"))
        os.mkdir(self.path("out"))
        names = [f"file-{i}" for i in range(63)]
        for name in [*names, "a/inside"]:
            open(self.path("root", name), "x").close()

        def change():
            os.rename(self.at("a"), self.path("out/a"))
            for name in names:
                os.rename(self.at(name), self.path("out", name))
            os.rename(self.path("out/a/inside"), self.path("out/inside"))

        with self.read("root") as reader:
            self.assertTrue(self.check(reader, self.late, change, ""))
            self.each_is_watched(reader, "")

    def test_changed_places(self):
        """Two moves of which each alone would have replaced something; or one that came and another
        that left."""
        make = {"file": lambda p: open(p, "x").close(), "dir": lambda p: os.makedirs(p + b"/in")}
        for n, (way, kind, other, inside, back) in enumerate(itertools.product(
                (self.late, contextlib.nullcontext), make, make, (True, False), (True, False))):
            with self.subTest((way.__name__, kind, other, inside, back)):
                os.makedirs(self.path(f"{n}/root/below"))
                one = self.path(f"{n}/root/one")
                two = self.path(f"{n}/root/below/two" if inside else f"{n}/two")
                make[kind](one)
                make[other](two)
                swap = (two, one) if back else (one, two)
                with self.read(f"{n}/root") as reader:
                    self.check(reader, way, lambda s=swap: self.assertEqual(Storm.swap(*s), 0), "")
                    self.each_is_watched(reader, "")


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(77)  # meson: skipped
    unittest.main()
