#!/usr/bin/env python3
"""Writes the seed corpus of the fuzz programs: seeds.py DIR makes DIR/<program>/<seed>."""

import io
import json
import pathlib
import struct
import sys
import tarfile


def tars():
    formats = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    for name, kind in formats.items():
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
            for path, what, link in (
                ("d", tarfile.DIRTYPE, ""),
                ("d/file", tarfile.REGTYPE, ""),
                ("d/link", tarfile.SYMTYPE, "file"),
                ("d/hard", tarfile.LNKTYPE, "d/file"),
                ("fifo", tarfile.FIFOTYPE, ""),
                ("null", tarfile.CHRTYPE, ""),
                ("d/.wh.gone", tarfile.REGTYPE, ""),
                ("n/" * 55 + "long" if kind != tarfile.USTAR_FORMAT else "x", tarfile.REGTYPE, ""),
            ):
                info = tarfile.TarInfo(path)
                info.type, info.linkname, info.mtime = what, link, 1000
                body = b"content" if what == tarfile.REGTYPE else b""
                info.size = len(body)
                if kind == tarfile.PAX_FORMAT and path == "d/file":
                    info.pax_headers = {"SCHILY.xattr.user.a": "b", "mtime": "-1.5"}
                archive.addfile(info, io.BytesIO(body))
        yield name, out.getvalue()[: -(tarfile.RECORDSIZE - 1024) or None].rstrip(b"\0")


def records(*pairs):
    out = b""
    for key, value in pairs:
        body = b" %s=%s\n" % (key.encode(), value.encode())
        size = len(body) + 1
        while len(str(size)) + len(body) != size:
            size += 1
        out += str(size).encode() + body
    return out


def pax_headers():
    yield "names", records(("path", "a/b"), ("linkpath", "c"), ("GNU.sparse.name", "s"))
    yield "numbers", records(("size", "5"), ("uid", "1"), ("gid", "2"), ("mtime", "-1.000000005"))
    yield "map", records(("GNU.sparse.map", "0,5,10,5"), ("GNU.sparse.size", "100"))
    yield "extents", records(
        ("GNU.sparse.offset", "0"), ("GNU.sparse.numbytes", "10"), ("GNU.sparse.realsize", "20"))
    yield "xattrs", records(("SCHILY.xattr.user.a%3Db", "\0\n="), ("SCHILY.xattr.user.c", ""))
    yield "other", records(("comment", "x"), ("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"))


def header(name, kind, size, extra=b""):
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = b"%011o\0" % size
    block[156:157] = kind
    block[257:265] = b"ustar\00000"
    block[386 : 386 + len(extra)] = extra
    return bytes(block)


def sparse():
    text = records(("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"),
                   ("GNU.sparse.name", "s"), ("GNU.sparse.realsize", "100"))
    content = b"2\n0\n5\n50\n5\n".ljust(512, b"\0") + b"0123456789".ljust(512, b"\0")
    yield "sparse1", (header(b"x", b"x", len(text)) + text.ljust(512, b"\0")
                      + header(b"s", b"0", 522) + content)
    text = records(("GNU.sparse.map", "0,5,50,5"), ("GNU.sparse.size", "100"))
    yield "sparse01", (header(b"x", b"x", len(text)) + text.ljust(512, b"\0")
                       + header(b"s", b"0", 10) + b"0123456789".ljust(512, b"\0"))
    extents = b"%011o\0%011o\0" % (0, 5) + b"%011o\0%011o\0" % (50, 5)
    old = header(b"s", b"S", 10, extents.ljust(97, b"\0") + b"%011o\0" % 100)
    yield "sparse-old", old + b"0123456789".ljust(512, b"\0")
    more = header(b"s", b"S", 10, extents.ljust(96, b"\0") + b"\1" + b"%011o\0" % 100)
    yield "sparse-more", more + bytes(512) + b"0123456789".ljust(512, b"\0")
    text = records(("uid", "7"))
    yield "global", header(b"g", b"g", len(text)) + text.ljust(512, b"\0") + header(b"f", b"0", 0)
    yield "labels", header(b"v", b"V", 0) + header(b"d/", b"D", 3) + b"abc".ljust(512, b"\0")


def frames():
    def text(s):
        return struct.pack("<I", len(s) + 1) + s + b"\0"

    def listed(*strings):
        return struct.pack("<I", len(strings)) + b"".join(map(text, strings))

    def frame(kind, body):
        return struct.pack("<IB", len(body), kind) + body

    ident = text(b"cm" + b"a" * 20)
    end = struct.pack("<BIIQQQQQB", 1, 0, 0, 5, 10, 1, 20, 2, 1)
    hello = frame(1, struct.pack("<IIQ", 1, 1, 0))
    run = (ident + struct.pack("<BIQQ", 1, 1, 1000, 4096) + text(b"") + text(b"/workspace")
           + text(b"") + text(b"skerry") + listed(b"echo hi") + listed(b"A=b", b"C=d"))
    yield "run", hello + frame(2, run) + frame(4, b"input") + frame(5, b"")
    yield "attach", hello + frame(3, ident + struct.pack("<QQ", 1, 2)) + frame(10, bytes(16))
    yield "signal", frame(6, ident + struct.pack("<II", 15, 0)) + frame(9, struct.pack("<I", 10))
    yield "forget", frame(11, ident) + frame(8, b"")
    yield "output", (frame(64, struct.pack("<IQ", 5, 6) + text(b"/") + text(b"root") + text(b""))
                     + frame(65, struct.pack("<BQ", 1, 0) + b"bytes") + frame(66, end))
    yield "stdin_ack", frame(70, struct.pack("<Q", 65536)) + frame(70, struct.pack("<Q", 70000))
    yield "fail", frame(67, struct.pack("<I", 2) + text(b"not_found") + text(b"cwd") + text(b"no"))
    yield "command", frame(68, ident + struct.pack("<IBB", 5, 1, 0) + end) + frame(69, b"")
    empty = text(b"")
    yield "file", (frame(32, struct.pack("<BIII", 1, 1, 0o755, 10) + text(b"/a") + 6 * empty)
                   + frame(33, struct.pack("<QQ", 1, 2)) + frame(34, b"data") + frame(35, b""))
    yield "move", frame(32, struct.pack("<BIII", 6, 4, 0, 0) + text(b"/a") + text(b"/b")
                        + text(b"me") + text(b"skerry") + text(b"a:b") + text(b"*") + text(b"x"))
    yield "entry", (frame(96, b"") + frame(97, struct.pack("<BBIIIQq", 3, 2, 0o777, 0, 0, 5, -1)
                                           + text(b"x") + text(b"root") + empty + text(b".."))
                    + frame(100, struct.pack("<I", 1)))
    yield "event", (frame(98, text(b"/a") + struct.pack("<Q", 3) + b"line")
                    + frame(99, b"\5\0" + text(b"/a") + text(b"/b"))
                    + frame(99, b"\6\0" + empty + empty))
    yield "more", frame(127, run[:40]) + frame(127, run[40:60]) + frame(2, run[60:])


def requests():
    whole = {"name": "a", "colour": "red", "count": 5, "flag": True, "timeout": 1.5,
             "tags": ["x"], "env": {"K": "v"}, "nested": {"inner": 3}}
    yield "whole", json.dumps(whole).encode()
    yield "least", b'{"name":"a"}'
    yield "yaml", b"name: a\ntags: [x, y]\nnested:\n  inner: 2\ntimeout: 1.5\n"


def main():
    top = pathlib.Path(sys.argv[1])
    first = {"frame": b"\0", "tar": b"\1", "pax": b"", "fields": b""}
    end = bytes(1024)
    seeds = {
        "frame": list(frames()),
        "tar": [(n, d + bytes(-len(d) % 512) + end) for n, d in [*tars(), *sparse()]],
        "pax": list(pax_headers()),
        "fields": list(requests()),
    }
    for program, rows in seeds.items():
        (top / program).mkdir(parents=True, exist_ok=True)
        for name, data in rows:
            (top / program / name).write_bytes(first[program] + data)


if __name__ == "__main__":
    main()
