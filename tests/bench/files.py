"""Files in and out, beside what `cp` and `tar` take on the same pool.

`cp` copies bytes (no reflink) and syncs the file; `tar -x` is followed by a sync of its file system,
as an upload is. Sources are in the page cache; downloads are read and counted."""

import http.client
import io
import os
import shutil
import socket
import subprocess
import tarfile
import time

LARGE = 1 << 30
SMALL, SMALL_SIZE = 10_000, 4096
ROUNDS = 4  # of all rounds: these rows take seconds
BLOCK = 1 << 20
CP, UNPACK, PACK = "cp, fsync", "tar -x, sync", "tar -c"


class Connection(http.client.HTTPConnection):
    """To a port of the loopback, or to the path of api.sock."""

    def __init__(self, address):
        super().__init__("localhost", blocksize=BLOCK)
        self.address = address

    def connect(self):
        unix = isinstance(self.address, str)
        self.sock = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.sock.connect(self.address if unix else ("127.0.0.1", self.address))


class Files:
    def __init__(self, skerry, image):
        self.pool = skerry.base / "pool/fs/bench"
        self.pool.mkdir()
        self.token = skerry.token
        box = skerry.api("POST", "/sandboxes?wait=running", {"name": "files", "os": image})
        self.box = f"/workspaces/default/sandboxes/{box.json['id']}"
        self.sources()

    def sources(self):
        self.large = self.pool / "large"
        with open(self.large, "wb") as out:
            for _ in range(LARGE // BLOCK):
                out.write(os.urandom(BLOCK))
        self.tar = self.pool / "small.tar"
        with tarfile.open(self.tar, "w") as archive:
            for n in range(SMALL):
                entry = tarfile.TarInfo(f"{n // 100:03}/{n:05}")
                entry.size = SMALL_SIZE
                archive.addfile(entry, io.BytesIO(os.urandom(SMALL_SIZE)))
        self.tree = self.pool / "tree"
        self.tree.mkdir()
        subprocess.run(["tar", "-xf", self.tar, "-C", self.tree], check=True)
        os.sync()

    def timed(self, script, *words):
        start = time.monotonic_ns()
        subprocess.run(["/bin/sh", "-ec", script, "sh", *map(str, words)], check=True)
        return time.monotonic_ns() - start

    def cp(self):
        to = self.pool / "copy"
        took = self.timed('cp --reflink=never "$1" "$2"; sync "$2"', self.large, to)
        to.unlink()
        return took

    def unpack(self):
        to = self.pool / "unpacked"
        to.mkdir()
        took = self.timed('tar -xf "$1" -C "$2"; sync -f "$2"', self.tar, to)
        shutil.rmtree(to)
        return took

    def pack(self):
        return self.timed('tar -cf - -C "$1" . | cat >/dev/null', self.tree)

    def call(self, connection, method, path, body=None, kind=None):
        head = {"Authorization": f"Bearer {self.token}"}
        if body:
            head |= {"Content-Type": kind, "Content-Length": str(os.stat(body.fileno()).st_size)}
        connection.request(method, self.box + path, body, head)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read()[:500]}")
        return answer

    def up(self, connection, source, path, kind):
        with open(source, "rb") as body:
            start = time.monotonic_ns()
            self.call(connection, "POST", f"/content/upload/{path}", body, kind).read()
            took = time.monotonic_ns() - start
        self.call(connection, "DELETE", f"/content/{path}").read()
        return took

    def down(self, connection, path, least):
        start, got, room = time.monotonic_ns(), 0, bytearray(BLOCK)
        answer = self.call(connection, "GET", f"/download/{path}")
        while n := answer.readinto(room):
            got += n
        if got < least:
            raise RuntimeError(f"GET {path}: {got} bytes")
        return time.monotonic_ns() - start

    def keep(self, connection):
        """What is downloaded."""
        for source, path, kind in ((self.large, "bench/large", "application/octet-stream"),
                                   (self.tar, "bench/tree", "application/x-tar")):
            with open(source, "rb") as body:
                self.call(connection, "POST", f"/content/upload/{path}", body, kind).read()


def rows(skerry, image, row):
    """`row` makes one of a group, a name and what measures it."""
    files = Files(skerry, image)
    ways = {"socket": Connection(f"{skerry.base}/run/api.sock"), "HTTP": Connection(skerry.port)}
    files.keep(ways["socket"])
    yield row("file of 1 GiB", CP, files.cp)
    for way, c in ways.items():
        yield row("file of 1 GiB", f"upload, {way}", lambda c=c: files.up(
            c, files.large, "bench/up", "application/octet-stream"))
        yield row("file of 1 GiB", f"download, {way}",
                  lambda c=c: files.down(c, "bench/large", LARGE))
    yield row("10,000 files in", UNPACK, files.unpack)
    yield row("10,000 files in", "upload of a tar", lambda: files.up(
        ways["socket"], files.tar, "bench/in", "application/x-tar"))
    yield row("10,000 files out", PACK, files.pack)
    yield row("10,000 files out", "download as a tar", lambda: files.down(
        ways["socket"], "bench/tree?archive=tar", SMALL * SMALL_SIZE))
