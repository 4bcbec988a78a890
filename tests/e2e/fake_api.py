"""A fake of the API for tests of the client: it answers what the test tells it to.

A route is (method, path without query) -> a function of the recorded request that returns
(status, headers, body), or an iterator of bytes as the body, which is sent chunked; a body of None
in the midst of the iterator cuts the connection.
"""

import http.server
import json
import os
import socketserver
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

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        if self.unix_path:
            os.unlink(self.unix_path)
