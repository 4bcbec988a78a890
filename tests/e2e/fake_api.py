"""A fake of the API for tests of the client: it answers what the test tells it to.

A route is (method, path without query) -> a function of the recorded request that returns
(status, headers, body), or an iterator of bytes as the body, which is sent chunked; a body of None
in the midst of the iterator cuts the connection.

A WebSocket's route, made by FakeApi.socket(path, function), is a function of the recorded request
and the WebSocket, from the handshake on; when it returns the connection is cut.
"""

import base64
import hashlib
import http.server
import json
import os
import socket
import socketserver
import struct
import threading
import urllib.parse


class Request:
    def __init__(self, method, target, headers, body):
        self.method = method
        self.target = target
        self.path, _, query = target.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


def answer(obj, status=200, **headers):
    return status, {"Content-Type": "application/json", **headers}, json.dumps(obj).encode()


def error(status, message, **more):
    return answer({"errors": [{"message": message, **more}]}, status)


MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocket:
    """The server's side. Frames of the client must be masked and whole, as the RFC wants them."""

    def __init__(self, handler):
        self.read = handler.rfile.read
        self.connection = handler.connection
        self.pings = 0

    def frame(self, opcode, data):
        n = len(data)
        head = bytes([0x80 | opcode]) + (
            bytes([n]) if n < 126 else
            b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n))
        self.connection.sendall(head + data)

    def json(self, type, **fields):
        self.frame(1, json.dumps({"type": type, **fields}).encode())

    def bytes(self, data):
        self.frame(2, data)

    def out(self, data, stream=1):
        for at in range(0, len(data), 65534):
            self.bytes(bytes([stream]) + data[at:at + 65534])

    def close(self, code=1000):
        self.frame(8, struct.pack(">H", code))

    def cut(self, hard=False):
        """No word: the end of the connection, or a reset that may overtake what was sent."""
        if hard:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        self.connection.shutdown(socket.SHUT_WR)
        while self.next()[0]:
            pass

    def next(self):
        """(opcode, data) of the next frame, ("", b"") at the end of the connection. Pings are
        answered."""
        while True:
            head = self.read(2)
            if len(head) < 2:
                return "", b""
            assert head[0] & 0xf0 == 0x80 and head[1] & 0x80, "not whole, or not masked"
            n = head[1] & 0x7f
            if n >= 126:
                n = int.from_bytes(self.read(2 if n == 126 else 8), "big")
            mask = self.read(4)
            data = self.read(n)
            pad = (mask * (n // 4 + 1))[:n]
            data = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(n, "big")
            if head[0] & 15 != 9:
                return head[0] & 15, data
            self.pings += 1
            self.frame(10, data)

    def next_json(self):
        opcode, data = self.next()
        assert opcode == 1, (opcode, data)
        return json.loads(data)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def address_string(self):
        return "client"

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def handle_any(self):
        request = Request(self.command, self.path, self.headers, self.read_body())
        api = self.server.api
        with api.lock:
            api.requests.append(request)
        if self.headers.get("Upgrade") and ("WS", request.path) in api.routes:
            self.handle_socket(api.routes["WS", request.path], request)
            return
        route = api.routes.get((self.command, request.path))
        if route is None:
            status, headers, body = error(404, f"no route {self.command} {request.path}",
                                          code="not_found")
        else:
            status, headers, body = route(request)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if isinstance(body, bytes):
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in body:
            if piece is None:
                self.close_connection = True
                self.connection.close()
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def handle_socket(self, route, request):
        accept = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + MAGIC).digest()
        self.close_connection = True
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
        self.end_headers()
        self.wfile.flush()
        route(request, WebSocket(self))

    do_GET = do_POST = do_DELETE = do_PATCH = handle_any


class TcpServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # clients of these tests leave when they like


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


class FakeApi:
    def __init__(self, unix_path=None):
        self.routes = {}
        self.requests = []
        self.lock = threading.Lock()
        if unix_path:
            self.server = UnixServer(unix_path, Handler)
            self.url = "unix://" + unix_path
        else:
            self.server = TcpServer(("127.0.0.1", 0), Handler)
            self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.unix_path = unix_path
        self.server.api = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def route(self, method, path, function):
        self.routes[method, path] = function

    def socket(self, path, function):
        self.routes["WS", path] = function

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        if self.unix_path:
            os.unlink(self.unix_path)
