"""Readers of a watch: what each takes for there, from the events alone."""

import collections
import contextlib
import os
import socket
import threading

Thing = collections.namedtuple("Thing", "kind inode content")


def look(root, below=b""):
    """What is there: paths below `root`, of `below` and all in it."""
    found, todo = {}, [below]
    while todo:
        path = todo.pop()
        full = os.path.join(root, path) if path else root
        try:
            st = os.lstat(full)
            if st.st_mode & 0o170000 == 0o040000:
                todo += [os.path.join(path, n) for n in os.listdir(full)]
                thing = Thing("dir", st.st_ino, None)
            else:
                with open(full, "rb") as inside:
                    thing = Thing("file", st.st_ino, inside.read())
        except OSError:
            continue  # it went meanwhile
        if path:
            found[path] = thing
    return found


def within(path, above):
    return not above or path == above or path.startswith(above + b"/")


class Teller:
    """Takes each event for what it says. Of each path it is known which one of those at the start
    it is, None for a new one, and whether its content is another."""

    def __init__(self, start):
        self.start = start
        self.there = {path: path for path in start}
        self.modified = set()

    def take(self, path):
        gone = {p: o for p, o in self.there.items() if within(p, path)}
        for p in gone:
            del self.there[p]
        return gone

    def event(self, change, path, frm):
        if change == "CREATED":
            self.there[path] = None
        elif change == "MODIFIED":
            self.modified.add(self.there.get(path))
        elif change == "DELETED":
            self.take(path)
        elif change == "MOVED":
            came = self.take(frm)
            self.take(path)
            self.there[path] = None
            self.there.update({path + p[len(frm):]: o for p, o in came.items()})

    def differences(self, real):
        """Where it is wrong."""
        wrong = {p: "missing" for p in real if p not in self.there}
        wrong.update({p: "not there" for p in self.there if p not in real})
        for path, origin in self.there.items():
            if origin is None or path not in real:
                continue
            was, now = self.start[origin], real[path]
            if was.inode != now.inode:
                wrong[path] = f"not the former {origin}"
            elif was.content != now.content and origin not in self.modified:
                wrong[path] = "changed"
        return wrong


class Looker(threading.Thread):
    """Reads as the events come, and looks at each place that one speaks of; at all of them after an
    OVERFLOW."""

    def __init__(self, call, root):
        super().__init__(daemon=True)
        self.call, self.root = call, root
        self.events = []
        self.overflows = 0
        self.failure = None
        self.there = look(root)
        self.news = threading.Condition()
        self.start()

    def relative(self, path):
        if not path:
            return path
        if not within(path, self.root):
            raise AssertionError(f"{path} is not in {self.root}")
        return path[len(self.root) + 1:]

    def look_again(self, path):
        for p in [p for p in self.there if within(p, path)]:
            del self.there[p]
        self.there.update(look(self.root, path))

    def one(self):
        v = self.call.event()
        if v is None:
            return False
        v = v._replace(path=self.relative(v.path), frm=self.relative(v.frm))
        with self.news:
            if v.change == "OVERFLOW":
                self.look_again(b"")
            else:
                self.look_again(v.path)
                if v.frm:
                    self.look_again(v.frm)
            self.events.append(v)
            self.overflows += v.change == "OVERFLOW"
            self.news.notify_all()
        return True

    def run(self):
        try:
            while self.one():
                pass
        except Exception as e:
            self.failure = e
        with self.news:
            self.failure = self.failure or EOFError("the watch ended")
            self.news.notify_all()

    def known(self):
        with self.news:
            return dict(self.there)

    def close(self):
        with contextlib.suppress(OSError):  # it ended
            self.call.c.s.shutdown(socket.SHUT_RDWR)
        self.join()
        self.call.close()

    def until(self, seen, seconds=30):
        """Waits for `seen()`; False when it does not come."""
        with self.news:
            self.news.wait_for(lambda: seen() or self.failure, seconds)
            return seen()
