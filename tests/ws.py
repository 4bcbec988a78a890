"""A strict WebSocket client (RFC 6455), which can also misbehave, and the two sessions that the API
speaks over it. `Wire` is frames over a socket: what it sends is as told, right or wrong; what it
receives must be right, or the test fails. `Exec` and `Terminal` collect what comes.
"""

import base64
import contextlib
import hashlib
import json
import os
import select
import socket
import threading
import time
import urllib.parse

from kit import split_answer

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NO_CODE = 1005  # never sent: a close without a code
DONE, GARBAGE, NOT_UTF8, REFUSED, TOO_BIG, FAULT = 1000, 1002, 1007, 1008, 1009, 1011
STDIN, STDOUT, STDERR = 0, 1, 2
MESSAGE_MAX = (1 << 20) + 1  # bytes of one from the client
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TIMEOUT = 30  # for hangs


class Broken(AssertionError):
    """What the server must not do."""


class Refused(Exception):
    """An ordinary answer instead of the upgrade."""

    def __init__(self, status, headers, body):
        super().__init__(f"{status} {body[:300]!r}")
        self.status, self.headers, self.body = status, headers, body

    @property
    def error(self):
        return json.loads(self.body)["errors"][0]


class Ended(Exception):
    """The connection ended without a close frame."""


# --- connections ---------------------------------------------------------------------------------

def dial(instance, unix=True):
    """A connection to the API, by its own socket or through what stands before it."""
    if not unix:
        return socket.create_connection(("127.0.0.1", instance.port), timeout=TIMEOUT)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(TIMEOUT)
    s.connect(str(instance.base / "run/api.sock"))
    return s


def request(path, key, token, **headers):
    """The head of an upgrade; a header given as None is left out."""
    lines = {"Host": "x", "Upgrade": "websocket", "Connection": "Upgrade",
             "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key,
             "Authorization": f"Bearer {token}" if token else None}
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    return "".join([f"GET {path} HTTP/1.1\r\n",
                    *(f"{n}: {v}\r\n" for n, v in lines.items() if v is not None),
                    "\r\n"]).encode()


def path_of(sandbox, what, **query):
    name = sandbox["id"] if isinstance(sandbox, dict) else sandbox
    text = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
    return f"/workspaces/default/sandboxes/{name}/{what}" + (f"?{text}" if text else "")


def upgrade(instance, path, unix=True, token="own", early=b"", sock=None, **headers):
    """A Wire, or Refused. `early` goes out with the request, before the answer came."""
    key = base64.b64encode(os.urandom(16)).decode()
    sock = sock or dial(instance, unix)
    try:
        sock.sendall(request(path, key, instance.token if token == "own" else token,
                             **headers) + early)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = sock.recv(65536)
            if not piece:
                raise Ended(f"within the answer's head: {head!r}")
            head += piece
        status, fields, rest = split_answer(head)
        if status != 101:
            length = int(fields["content-length"])
            while len(rest) < length:
                rest += sock.recv(65536)
            raise Refused(status, fields, rest)
    except BaseException:
        sock.close()
        raise
    want = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
    assert fields["sec-websocket-accept"] == want, fields
    assert fields["upgrade"].lower() == "websocket", fields
    assert "upgrade" in fields["connection"].lower(), fields
    assert "sec-websocket-extensions" not in fields and "sec-websocket-protocol" not in fields
    return Wire(sock, rest)


# --- frames --------------------------------------------------------------------------------------

def masked(data, mask):
    size = len(data)
    long_mask = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(long_mask, "little")).to_bytes(
        size, "little")


def frame(opcode, data=b"", fin=True, rsv=0, mask=True, length=None):
    """The bytes of one frame. `length` says another one than there is."""
    size = len(data) if length is None else length
    head = bytearray([fin << 7 | rsv << 4 | opcode])
    bit = bool(mask) << 7
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([bit | 127]) + size.to_bytes(8, "big")
    if not mask:
        return bytes(head) + data
    key = os.urandom(4)
    return bytes(head) + key + masked(data, key)


class Wire:
    """Frames over a socket. `pong` answers pings, `silent` keeps even the close unanswered."""

    def __init__(self, sock, rest=b""):
        self.sock = sock
        self.buffer = bytearray(rest)
        self.at = 0
        self.pong = True
        self.silent = False
        self.closed = None  # code of the server's close
        self.sent_close = False
        self.pings = []
        self.pongs = []
        self.sending = threading.RLock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.abort()

    def abort(self, reset=False):
        """Gone without a word."""
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    # sending

    def raw(self, data):
        with self.sending:
            self.sock.sendall(data)

    def send(self, opcode, data=b"", **how):
        self.raw(frame(opcode, data, **how))

    def text(self, value):
        self.send(TEXT, (value if isinstance(value, str) else json.dumps(value)).encode())

    def close(self, code=DONE, reason=b""):
        self.sent_close = True
        self.send(CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason)

    # receiving

    def _take(self, size, deadline):
        while len(self.buffer) - self.at < size:
            left = deadline - time.monotonic()
            # not settimeout: another thread may be sending
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise TimeoutError(f"nothing from the server ({len(self.buffer)} bytes there)")
            try:
                piece = self.sock.recv(1 << 18)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Ended("no close frame before the end")
            if self.at > 1 << 20:
                del self.buffer[:self.at]
                self.at = 0
            self.buffer += piece
        data = bytes(self.buffer[self.at:self.at + size])
        self.at += size
        return data

    def frame(self, timeout=TIMEOUT):
        """(opcode, fin, data) of the next frame, after a look at its form."""
        deadline = time.monotonic() + timeout
        first, second = self._take(2, deadline)
        opcode, fin, size = first & 15, bool(first & 128), second & 127
        if first & 0x70 or second & 128:
            raise Broken(f"a frame of a server with RSV bits or a mask: {first:02x} {second:02x}")
        if opcode not in (CONT, TEXT, BINARY, CLOSE, PING, PONG):
            raise Broken(f"opcode {opcode}")
        if opcode & 8 and (not fin or size > 125):
            raise Broken(f"a control frame in parts or too long: {first:02x} {second:02x}")
        if size > 125:
            width, least = (2, 126) if size == 126 else (8, 1 << 16)
            size = int.from_bytes(self._take(width, deadline), "big")
            if size < least:
                raise Broken(f"a length of {size} in {width} bytes")
        return opcode, fin, self._take(size, deadline)

    def _control(self, opcode, data):
        if opcode == PING:
            self.pings.append(data)
            if self.pong:
                self.send(PONG, data)
        elif opcode == PONG:
            self.pongs.append(data)

    def control(self, timeout=TIMEOUT):
        """One frame, which must be a ping or a pong."""
        opcode, _, data = self.frame(timeout)
        assert opcode in (PING, PONG), (opcode, data)
        self._control(opcode, data)

    def message(self, timeout=TIMEOUT):
        """(TEXT, str), (BINARY, bytes) or (CLOSE, code); answers a close."""
        if self.closed is not None:
            raise Ended("closed before")
        deadline = time.monotonic() + timeout
        kind, parts = None, []
        while True:
            opcode, fin, data = self.frame(deadline - time.monotonic())
            if opcode == CLOSE:
                return CLOSE, self._on_close(data)
            if opcode & 8:
                self._control(opcode, data)
                continue
            if (opcode == CONT) != (kind is not None):
                raise Broken("fragments out of order")
            kind = kind if opcode == CONT else opcode
            parts.append(data)
            if fin:
                whole = b"".join(parts)
                return kind, whole.decode() if kind == TEXT else whole

    def _on_close(self, data):
        if len(data) == 1:
            raise Broken("a close with one byte")
        data[2:].decode()
        self.closed = int.from_bytes(data[:2], "big") if data else NO_CODE
        if not self.silent:
            if not self.sent_close:
                self.sent_close = True
                with contextlib.suppress(OSError):
                    self.send(CLOSE, data[:2])
            self._at_end()
        return self.closed

    def _at_end(self):
        """Nothing comes behind a close; the server is the one to hang up."""
        with contextlib.suppress(Ended):
            more = self._take(1, time.monotonic() + TIMEOUT)
            raise Broken(f"behind the close: {more!r}")

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)


# --- sessions ------------------------------------------------------------------------------------

class Session:
    """What a session collects: events, and bytes by channel."""

    def __init__(self, wire):
        self.wire = wire
        self.events = []
        self.data = {STDOUT: bytearray(), STDERR: bytearray()}
        self.code = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wire.abort()

    out = property(lambda self: bytes(self.data[STDOUT]))
    err = property(lambda self: bytes(self.data[STDERR]))
    started = property(lambda self: self._of("started"))
    exit = property(lambda self: self._of("exit"))
    error = property(lambda self: self._of("error"))

    def _of(self, kind):
        return next((e for e in self.events if e["type"] == kind), None)

    @property
    def dropped(self):
        return [e for e in self.events if e["type"] == "dropped"]

    def _bytes(self, data):
        raise NotImplementedError

    def read(self, timeout=TIMEOUT):
        """One message. False once the session is closed."""
        kind, value = self.wire.message(timeout)
        if kind == TEXT:
            event = json.loads(value)
            assert event["type"] in ("started", "exit", "dropped", "error"), event
            assert "exit" not in [e["type"] for e in self.events], "an event behind the exit"
            self.events.append(event)
        elif kind == BINARY:
            assert self.started, "bytes before the first frame"
            assert not self.exit, "bytes behind the exit"
            self._bytes(value)
        else:
            self.code = value
        return kind != CLOSE

    def until(self, check, timeout=TIMEOUT):
        """Reads until check(self)."""
        end = time.monotonic() + timeout
        while not check(self):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(self.summary())
            try:
                if not self.read(left):
                    raise AssertionError(f"closed before: {self.summary()}")
            except TimeoutError as e:
                raise TimeoutError(f"{e}: {self.summary()}") from None
        return self

    def until_out(self, text, timeout=TIMEOUT):
        return self.until(lambda s: text in s.out, timeout)

    def finish(self, timeout=TIMEOUT):
        """Reads to the close; the exit record, or None."""
        end = time.monotonic() + timeout
        try:
            while self.wire.closed is None and self.read(max(end - time.monotonic(), 0)):
                pass
        except TimeoutError as e:
            raise TimeoutError(f"{e}: {self.summary()}") from None
        return self.exit

    def summary(self):
        return f"{self.events} out {self.out[-300:]!r} err {self.err[-300:]!r} closed {self.code}"

    # what a client says

    def eof(self):
        self.wire.text({"type": "eof"})

    def signal(self, name):
        self.wire.text({"type": "signal", "signal": name})

    def resize(self, cols, rows):
        self.wire.text({"type": "resize", "cols": cols, "rows": rows})


class Exec(Session):
    def __init__(self, instance, sandbox, unix=True, early=b"", **first):
        """`first`: the fields of the first frame; without any none is sent."""
        super().__init__(upgrade(instance, path_of(sandbox, "exec"), unix, early=early))
        if first:
            self.wire.text(first)

    def _bytes(self, data):
        assert data and data[0] in (STDOUT, STDERR), data[:10]
        assert len(data) <= 65535, len(data)
        self.data[data[0]] += data[1:]

    def input(self, data):
        """In messages of at most the size that is taken."""
        for at in range(0, len(data), MESSAGE_MAX - 1):
            self.wire.send(BINARY, b"\0" + data[at:at + MESSAGE_MAX - 1])


class Terminal(Session):
    def __init__(self, instance, sandbox, unix=True, early=b"", **query):
        super().__init__(upgrade(instance, path_of(sandbox, "terminal", **query), unix,
                                 early=early))
        self.lines = 0

    def _bytes(self, data):
        assert data and len(data) <= 65535, len(data)
        self.data[STDOUT] += data

    def type(self, data):
        data = data.encode() if isinstance(data, str) else data
        for at in range(0, len(data), MESSAGE_MAX):
            self.wire.send(BINARY, data[at:at + MESSAGE_MAX])

    def say(self, command, timeout=TIMEOUT):
        """Types a line at the shell's prompt; what it prints. In the echo of the line the first mark
        is not at a line's end."""
        self.lines += 1
        begin, end = (f"{word}-{id(self)}-{self.lines}" for word in ("begin", "end"))
        self.type(f"echo {begin}; {command}; echo {end}\r")
        begin, end = (f"{mark}\r\n".encode() for mark in (begin, end))
        self.until(lambda s: end in s.out.partition(begin)[2], timeout)
        return self.out.partition(begin)[2].partition(end)[0].decode()


def run(instance, sandbox, command=None, unix=True, patience=TIMEOUT, **first):
    """Runs to the end; the session."""
    if command is not None:
        first["command"] = command
    with Exec(instance, sandbox, unix, **first) as s:
        s.finish(patience)
        return s
