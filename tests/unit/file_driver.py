"""File operations of the agent protocol (src/wire/files.h), spoken to a skerry-init of
init_driver.py. Paths and names are bytes, or text that becomes them."""

import collections
import struct

import init_driver as d

FILE, GO, DATA, DATA_END = range(32, 36)
READY, ENTRY, MATCH, EVENT, END = range(96, 101)
(LIST, STAT, MAKE, SET, REMOVE, MOVE, READ, WRITE, UNPACK, SEARCH, WATCH) = range(1, 12)
RECURSIVE, PARENTS, OVERWRITE, HAS_MODE = 1, 2, 4, 8
MORE = 1
KINDS = " file dir link fifo socket char block".split(" ")
CHANGES = " CREATED MODIFIED ATTRIBUTES DELETED MOVED OVERFLOW".split(" ")
EVERYTHING = (1 << 63) - 1

Entry = collections.namedtuple(
    "Entry", "kind leads_to mode uid gid size mtime_ns path owner group target")
Match = collections.namedtuple("Match", "path line text")
Event = collections.namedtuple("Event", "change dir path frm")


def raw(s):
    return s if isinstance(s, bytes) else s.encode()


def text(dec):
    """A string as the bytes it is."""
    return dec.str().encode("utf-8", "surrogateescape")


def entry(data):
    dec = d.Dec(data)
    kind, leads_to, mode, uid, gid, size, mtime = dec.take("BBIIIQq")
    return Entry(KINDS[kind], KINDS[leads_to], mode, uid, gid, size, mtime, text(dec), text(dec),
                 text(dec), text(dec))


class Call:
    """One operation on a connection of its own."""

    def __init__(self, agent, op, path, flags=0, mode=None, limit=0, to="", user="",
                 default_user="", owner="", name="", text="", timeout=60):
        self.c = agent.conn(timeout=timeout)
        flags |= HAS_MODE if mode is not None else 0
        if op in (LIST, SEARCH):
            limit = limit or 10000
        self.c.send(FILE, struct.pack("<BIII", op, flags, mode or 0, limit) + b"".join(
            d.enc_str(raw(s)) for s in (path, to, user, default_user, owner, name, text)))
        self.flags = None

    def recv(self, *kinds):
        """The next message, which is one of `kinds`; FAIL is raised."""
        kind, data = self.c.recv()
        if kind == d.HELLO:
            return self.recv(*kinds)
        if kind == d.FAIL:
            dec = d.Dec(data)
            raise d.Failed(dec.take("I"), dec.str(), dec.str(), dec.str())
        if kind not in kinds:
            raise AssertionError(f"message {kind}, not one of {kinds}")
        if kind == END:
            self.flags = d.Dec(data).take("I")
            self.c.close()
        return kind, data

    def entries(self):
        found = []
        while True:
            kind, data = self.recv(ENTRY, END)
            if kind == END:
                return found
            found.append(entry(data))

    def one(self):
        found = self.entries()
        assert len(found) == 1, found
        return found[0]

    def done(self):
        self.recv(END)

    def data(self, offset=0, length=EVERYTHING):
        """Of a read: the entry, and the bytes."""
        about = entry(self.recv(ENTRY)[1])
        self.c.send(GO, struct.pack("<QQ", offset, length))
        got = bytearray()
        while True:
            kind, data = self.recv(DATA, END)
            if kind == END:
                return about, bytes(got)
            got += data

    def ready(self):
        self.recv(READY)
        return self

    def put(self, data):
        for at in range(0, len(data), d.FRAME_MAX):
            self.c.send(DATA, data[at:at + d.FRAME_MAX])
        return self

    def end(self):
        self.c.send(DATA_END)
        return self.one()

    def matches(self):
        found = []
        while True:
            kind, data = self.recv(MATCH, END)
            if kind == END:
                return found
            dec = d.Dec(data)
            path, line = text(dec), dec.take("Q")
            found.append(Match(path, line, bytes(data[dec.at:])))

    def event(self):
        """None at the end."""
        kind, data = self.recv(EVENT, END)
        if kind == END:
            return None
        dec = d.Dec(data)
        change, is_dir = dec.take("BB")
        return Event(CHANGES[change], bool(is_dir), text(dec), text(dec))

    def close(self):
        self.c.close()


def stat(a, path):
    return Call(a, STAT, path).one()


def ls(a, path, **kw):
    return Call(a, LIST, path, **kw).entries()


def read(a, path, *span):
    return Call(a, READ, path).data(*span)[1]


def write(a, path, data=b"", flags=PARENTS, **kw):
    return Call(a, WRITE, path, flags, **kw).ready().put(data).end()


def pages(a, path, limit, **kw):
    """All entries of a listing in pages, and how many pages it took."""
    found, cursor, count = [], b"", 0
    while True:
        call = Call(a, LIST, path, limit=limit, to=cursor, **kw)
        some = call.entries()
        found += some
        count += 1
        assert len(some) <= limit
        if not call.flags & MORE:
            return found, count
        cursor = some[-1].path
