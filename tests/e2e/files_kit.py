"""A client of the file calls: bytes in and out, through the edge or on the daemon's own socket."""

import http.client
import json
import socket
import urllib.parse

from instance import Answer

OCTETS = "application/octet-stream"


def quoted(path):
    """A path (text or bytes) as it stands in a URL, without its leading slash."""
    raw = path.encode() if isinstance(path, str) else path
    return urllib.parse.quote(raw.lstrip(b"/"), safe="/")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Files:
    """The files of one sandbox. Each call answers an Answer; `want` is the status it must have."""

    def __init__(self, instance, sandbox, by="edge"):
        self.instance = instance
        self.by = by
        self.base = f"/workspaces/default/sandboxes/{sandbox['id']}"

    def connection(self, timeout=120):
        if self.by == "edge":
            return http.client.HTTPConnection("127.0.0.1", self.instance.port, timeout=timeout)
        return UnixConnection(self.instance.base / "run/api.sock", timeout)

    def open(self, method, target, body=None, headers=None, timeout=120):
        """The connection and its answer, whose body is still to be read."""
        connection = self.connection(timeout)
        headers = {"Authorization": f"Bearer {self.instance.token}", **(headers or {})}
        connection.request(method, self.base + target, body=body, headers=headers)
        return connection, connection.getresponse()

    def call(self, method, target, body=None, headers=None, want=None):
        connection, response = self.open(method, target, body, headers)
        try:
            answer = Answer(response.status, response.headers, response.read())
        finally:
            connection.close()
        if want is not None:
            assert answer.status == want, f"{method} {target}: {answer}\n{self.instance.logs()}"
        return answer

    def json(self, method, target, value=None, want=200):
        body = None if value is None else json.dumps(value).encode()
        headers = {"Content-Type": "application/json"} if body else None
        return self.call(method, target, body, headers, want).json

    # --- what the tests are about -----------------------------------------------------------------

    def put(self, path, data, query="", kind=OCTETS, want=201):
        return self.call("POST", f"/content/upload/{quoted(path)}{query}", data,
                         {"Content-Type": kind} if kind else None, want).json

    def get(self, path, query="", want=200, **headers):
        answer = self.call("GET", f"/download/{quoted(path)}{query}", None,
                           {k.replace("_", "-"): v for k, v in headers.items()}, want)
        return answer.body

    def stat(self, path, want=200):
        return self.json("GET", f"/stat/{quoted(path)}", want=want)

    def list(self, path, query="", want=200):
        return self.json("GET", f"/content/{quoted(path)}{query}", want=want)

    def names(self, path):
        return [item["name"] for item in self.list(path)["contents"]]

    def make(self, path, query="", want=201):
        return self.json("POST", f"/content/{quoted(path)}{query}", want=want)

    def set(self, path, want=200, **fields):
        return self.json("PATCH", f"/content/{quoted(path)}", fields, want)

    def remove(self, path, want=204):
        return self.json("DELETE", f"/content/{quoted(path)}", want=want)

    def move(self, want=200, **fields):
        return self.json("POST", "/move", fields, want)

    def search(self, want=200, **fields):
        return self.json("POST", "/search", fields, want)

    def everything(self, path, limit=10000):
        """All below a directory, page by page."""
        items, cursor = [], ""
        while True:
            page = self.list(path, f"?recursive=true&limit={limit}{cursor}")
            items += page["contents"]
            if "next_cursor" not in page:
                return items
            cursor = f"&cursor={page['next_cursor']}"


def error_of(answer_json):
    return answer_json["errors"][0]
