"""Files in, out, found and changed, as a user of the API sees them."""

import base64
import concurrent.futures
import gzip
import hashlib
import http.client
import io
import json
import os
import re
import tarfile
import time

import pytest

from files_kit import OCTETS, Files, error_of, quoted
from kit import execute, resident, until

MIB = 1 << 20


@pytest.fixture(scope="module", params=["edge", "socket"])
def files(instance, box, request):
    return Files(instance, box, request.param)


@pytest.fixture
def work(files):
    """A directory of the test's own."""
    path = f"/tmp/files-{time.monotonic_ns()}"
    files.make(path)
    yield path
    files.remove(path)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def inside(instance, box, command, **fields):
    done = execute(instance, box, command, **fields)
    assert done["exit_code"] == 0, done
    return done["stdout"]


def form(data, name="file", more=()):
    """A body of multipart/form-data, as browsers make it."""
    line = b"------skerryboundary"
    parts = [(name, data), *more]
    body = b"".join(b"%s\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"x\"\r\n"
                    b"Content-Type: application/octet-stream\r\n\r\n%s\r\n"
                    % (line, n.encode(), d) for n, d in parts)
    return body + line + b"--\r\n", "multipart/form-data; boundary=----skerryboundary"


# --- bytes in and out ----------------------------------------------------------------------------

@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 3 * MIB + 1])
def test_bytes_come_back(instance, box, files, work, size):
    data = os.urandom(size)
    item = files.put(f"{work}/f", data)
    assert (item["type"], item["size"], item["mode"]) == ("FILE", size, "0644"), item
    assert files.get(f"{work}/f") == data
    body, kind = form(data)
    files.put(f"{work}/g", body, kind=kind)
    assert files.get(f"{work}/g") == data
    shown = inside(instance, box, f"cat {work}/f | sha256sum; sha256sum < {work}/g")
    assert shown.split() == [sha(data), "-"] * 2


@pytest.mark.parametrize("data", [
    b"\xef\xbb\xbfBOM\r\n", "UTF-16 \U0001f600".encode("utf-16"), b"\xed\xa0\x80 lone surrogates",
    b"PK\x03\x04 like a document", b"\x00" * 1000, b"\r\n----skerryboundary--\n\r\n--",
    b"\x1f\x8b no gzip", bytes(range(256)) * 5,
])
def test_bytes_are_never_taken_for_text(files, work, data):
    for kind in OCTETS, None:
        files.put(f"{work}/f", data, kind=kind)
        assert files.get(f"{work}/f") == data
    body, kind = form(data)
    if b"----skerryboundary" not in data:
        files.put(f"{work}/f", body, kind=kind)
        assert files.get(f"{work}/f") == data


def test_five_random_mib(files, work):
    data = os.urandom(5 * MIB)
    files.put(f"{work}/f", data)
    assert sha(files.get(f"{work}/f")) == sha(data)


def test_an_upload_without_a_length(files, work):
    pieces = [os.urandom(n) for n in (1, 70000, 3, 200000)]
    connection = files.connection()
    connection.request("POST", f"{files.base}/content/upload/{quoted(work)}/f", iter(pieces), {
        "Authorization": f"Bearer {files.instance.token}", "Content-Type": OCTETS},
        encode_chunked=True)
    assert connection.getresponse().status == 201
    connection.close()
    assert files.get(f"{work}/f") == b"".join(pieces)


@pytest.mark.parametrize("count", [60, pytest.param(5000, marks=pytest.mark.long)])
def test_what_was_uploaded_is_there(instance, box, files, work, count):
    for i in range(count):
        files.put(f"{work}/f", str(i).encode())
        assert inside(instance, box, f"cat {work}/f") == str(i)


@pytest.mark.parametrize("body, code, field", [
    (form(b"x", name="other"), "unknown_field", "other"),
    (form(b"x", more=[("more", b"y")]), "unknown_field", "more"),
    (form(b"x", more=[("file", b"y")]), "duplicate_field", "file"),
    ((b"", "multipart/form-data; boundary=bb"), "invalid_field", "file"),
    ((b"--bb--\r\n", "multipart/form-data; boundary=bb"), "invalid_field", "file"),
    ((form(b"x" * 100000)[0][:50000], form(b"")[1]), "bad_form", "body"),
    ((b"x", "multipart/form-data"), "bad_form", "Content-Type"),
])
def test_bad_forms(files, work, body, code, field):
    error = error_of(files.put(f"{work}/f", body[0], kind=body[1], want=400))
    assert (error["code"], error["field"]) == (code, field), error
    assert files.names(work) == []


def test_other_types_are_refused(files, work):
    error = error_of(files.put(f"{work}/f", b"x", kind="application/x-www-form-urlencoded",
                               want=415))
    assert error["code"] == "unsupported_media_type" and error["hint"], error
    assert files.names(work) == []


# --- whose, and how ------------------------------------------------------------------------------

def test_owner_and_mode_are_those_of_the_default_user(instance, box, files, work):
    files.put(f"{work}/a/b/f", b"x")
    inside(instance, box, f"sudo chmod 777 {work} || chmod 777 {work}", user="root")
    inside(instance, box, f"umask 022; mkdir -p {work}/c/d; echo x > {work}/c/d/f")
    made = inside(instance, box, f"cd {work}; stat -c '%U %G %a' a a/b a/b/f c c/d c/d/f")
    lines = made.splitlines()
    assert lines[:3] == lines[3:], made
    item = files.stat(f"{work}/a/b/f")
    assert (item["owner"], item["group"]) == ("skerry", "skerry"), item


def test_owner_and_mode_as_asked(instance, box, files, work):
    files.put(f"{work}/f", b"x", "?userName=root&mode=4755")
    assert inside(instance, box, f"stat -c '%U %a' {work}/f") == "root 4755\n"
    files.make(f"{work}/d", "?userName=0&mode=1777")
    assert inside(instance, box, f"stat -c '%U %a' {work}/d") == "root 1777\n"
    for answer in (files.put(f"{work}/g", b"x", "?userName=nobody-here", want=400),
                   files.make(f"{work}/g", "?userName=nobody-here", want=400)):
        error = error_of(answer)
        assert (error["code"], error["field"]) == ("user_not_found", "userName"), error
    assert sorted(files.names(work)) == ["d", "f"]


def test_what_exists_keeps_owner_and_mode(instance, box, files, work):
    files.put(f"{work}/f", b"long before", "?userName=root&mode=600")
    files.put(f"{work}/f", b"new")
    assert inside(instance, box, f"stat -c '%U %a %s' {work}/f", user="root") == "root 600 3\n"


def test_change_of_owner_and_mode(files, work):
    files.put(f"{work}/f", b"x")
    assert files.set(f"{work}/f", mode="0600")["mode"] == "0600"
    item = files.set(f"{work}/f", owner="root:skerry")
    assert (item["mode"], item["owner"], item["group"]) == ("0600", "root", "skerry"), item
    item = files.set(f"{work}/f", owner=":123", mode="755")
    assert (item["mode"], item["owner"], item["group"]) == ("0755", "root", "123"), item
    assert error_of(files.set(f"{work}/f", owner="no-such-user", want=400))["field"] == "owner"
    assert error_of(files.set(f"{work}/f", mode="rwx", want=400))["field"] == "mode"


# --- names ---------------------------------------------------------------------------------------

NAMES = ["测试 файл é.txt".encode(), "\U0001f600".encode(), b"q\"uote", b"se;mi", b"new\nline",
         b"%2F", b"trailing space ", b"dot.", b"n" * 255, b"\xff\xfe not UTF-8", b"back\\slash",
         b"a+b&c=d?e#f", b"\x01\x7f", b"...", b"-rf", "e\u0301".encode()]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_bytes(files, work, name):
    path = work.encode() + b"/" + name
    encoded = base64.b64encode(path).decode()
    shown = name.decode(errors="replace")
    utf8 = shown.encode() == name

    def check(item):
        assert re.sub("\ufffd+", "\ufffd", item["name"]) == re.sub("\ufffd+", "\ufffd", shown)
        if utf8:
            assert "name_base64" not in item and item["path"] == path.decode(), item
        else:
            assert base64.b64decode(item["name_base64"]) == name, item
            assert base64.b64decode(item["path_base64"]) == path, item
        assert item["url"].endswith("/content/" + quoted(path).replace("%7E", "~")), item

    item = files.put(path, b"bytes")
    check(item)
    check(files.stat(path))
    check(files.list(work)["contents"][0])
    answer = files.call("GET", f"/download/{quoted(path)}", want=200)
    assert answer.body == b"bytes"
    disposition = answer.headers["Content-Disposition"]
    plain, star = re.fullmatch(r'attachment; filename="([ !#-~]*)"; filename\*=UTF-8\'\'(\S+)',
                               disposition).groups()
    assert "\\" not in plain and "%" not in plain, disposition
    if utf8:
        import urllib.parse
        assert urllib.parse.unquote_to_bytes(star) == name, disposition
    found = files.search(path=work, name="*")["matches"]
    assert [base64.b64decode(m["path_base64"]) if "path_base64" in m else m["path"].encode()
            for m in found] == [path], found
    moved = files.move(from_base64=encoded, to=f"{work}/plain")
    assert moved["path"] == f"{work}/plain", moved
    check(files.move(**{"from": f"{work}/plain", "to_base64": encoded}))
    files.remove(path)
    assert files.names(work) == []


def test_a_slash_may_be_encoded(files, work):
    files.put(f"{work}/d/f", b"x")
    name = (work + "/d/f").lstrip("/").replace("/", "%2F")
    assert files.call("GET", f"/download/{name}", want=200).body == b"x"
    assert files.call("GET", f"/stat//{name}/", want=200).json["path"] == f"{work}/d/f"


@pytest.mark.parametrize("target", ["/stat/a/%2e%2e/b", "/stat/%2E", "/download/a%2f..%2fb",
                                    "/stat/a%00b", "/stat/%zz", "/watch/%2e%2e",
                                    "/stat/" + "n" * 256, "/stat/" + "d/" * 2049])
def test_bad_paths(files, target):
    error = error_of(files.call("GET", target, want=400).json)
    assert error["field"] == "path", error


def test_deep_paths(instance, box, files, work):
    depth = 200
    deep = work + "/d" * depth
    files.put(f"{deep}/f", b"deep")
    assert files.get(f"{deep}/f") == b"deep"
    assert len(files.everything(work)) == depth + 1


def test_the_longest_path(files, work):
    """In a URL it is three times as long."""
    parts = "/".join(["测" * 85] * 15)
    path = f"{work}/{parts}"[:4095]
    item = files.put(path, b"far away")
    assert item["path"] == path
    assert files.get(path) == b"far away" and files.stat(path) == item


# --- lists ---------------------------------------------------------------------------------------

def test_kinds(instance, box, files, work):
    inside(instance, box, f"""cd {work}; mkdir d; echo hello > f; ln -s d ld; ln -s f lf
        ln -s nowhere gone; mkfifo p; python3 -c 'import socket
socket.socket(socket.AF_UNIX).bind("s")' 2>/dev/null || true""", user="root")
    items = {i["name"]: i for i in files.list(work)["contents"]}
    seen = {n: (i["type"], i.get("kind"), i.get("target")) for n, i in items.items()}
    seen.pop("s", None)
    assert seen == {
        "d": ("DIR", None, None), "f": ("FILE", None, None), "ld": ("DIR", "LINK", "d"),
        "lf": ("FILE", "LINK", "f"), "gone": ("FILE", "LINK", "nowhere"),
        "p": ("FILE", "FIFO", None)}
    assert (items["lf"]["size"], items["gone"]["size"]) == (6, 0), items
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", items["f"]["mtime"])
    device = files.stat("/dev/null")
    assert (device["type"], device["kind"]) == ("FILE", "DEVICE"), device


def test_root_and_what_is_no_directory(files, work):
    root = files.list("/")
    assert "etc" in [i["name"] for i in root["contents"]]
    assert root["url"].endswith("/content/"), root
    assert files.call("GET", "/content", want=200).json == files.call(
        "GET", "/content/", want=200).json
    stat = files.stat("/")
    assert (stat["name"], stat["path"], stat["type"]) == ("/", "/", "DIR"), stat
    files.put(f"{work}/f", b"x")
    assert files.list(f"{work}/f") == files.stat(f"{work}/f")


def test_pages_are_complete(instance, box, files, work):
    inside(instance, box, f"cd {work}; mkdir -p a/b c; seq 700 | sed s,^,a/, | xargs touch;"
                          " seq 700 | sed s,^,a/b/, | xargs touch; seq 10 | sed s,^,c/, |"
                          " xargs touch", user="root")
    whole = [i["path"] for i in files.everything(work)]
    assert len(whole) == len(set(whole)) == 1413
    assert whole == [i["path"] for i in files.everything(work, limit=100)]
    assert whole == [i["path"] for i in files.everything(work, limit=7)]
    shown = inside(instance, box, f"find {work} -mindepth 1", user="root")
    assert sorted(whole) == sorted(shown.split())
    error = error_of(files.list(work, "?cursor=!", want=400))
    assert error["field"] == "cursor", error


@pytest.mark.long
def test_three_hundred_thousand_entries(instance, box, files, work):
    inside(instance, box, f"cd {work}; for d in $(seq 300); do mkdir $d; (cd $d; seq 999 |"
                          " xargs touch); done", user="root", timeout=600)
    paths = [i["path"] for i in files.everything(work)]
    assert len(paths) == len(set(paths)) == 300000


# --- refused -------------------------------------------------------------------------------------

def test_errors_have_the_errno(instance, box, files, work):
    files.put(f"{work}/f", b"x")
    files.put(f"{work}/d/g", b"x")
    missing, below = f"{work}/none", f"{work}/f/x"
    rows = [
        (files.stat(missing, want=404), "ENOENT"),
        (files.list(missing, want=404), "ENOENT"),
        (json.loads(files.get(missing, want=404)), "ENOENT"),
        (files.remove(missing, want=404), "ENOENT"),
        (files.set(missing, mode="600", want=404), "ENOENT"),
        (files.move(**{"from": missing, "to": f"{work}/x"}, want=404), "ENOENT"),
        (files.make(f"{missing}/x", want=404), "ENOENT"),
        (files.stat(below, want=409), "ENOTDIR"),
        (files.list(below, want=409), "ENOTDIR"),
        (files.put(below, b"x", want=409), "ENOTDIR"),
        (files.make(below, want=409), "ENOTDIR"),
        (files.make(f"{work}/d", want=409), "EEXIST"),
        (files.make(f"{work}/f", want=409), "EEXIST"),
        (files.put(f"{work}/d", b"x", want=409), "EISDIR"),
        (files.move(**{"from": f"{work}/f", "to": f"{work}/d/g"}, want=409), "EEXIST"),
        (files.move(**{"from": f"{work}/d", "to": f"{work}/d/e"}, want=400), "EINVAL"),
        (files.move(**{"from": f"{work}/f", "to": "/run/f"}, want=409), "EXDEV"),
        (files.remove("/proc", want=409), "EBUSY"),
        (files.put("/proc/sys/none", b"x", want=403), None),
    ]
    for answer, name in rows:
        error = error_of(answer)
        assert error["message"] and (not name or error["errno"] == name), error
    assert sorted(files.names(work)) == ["d", "f"]
    assert error_of(files.remove("/", want=409))["code"] == "busy"
    assert files.list("/")["contents"]


def test_never_a_500(instance, box, files, work):
    """Every call on everything odd: whatever the answer, it is no fault of ours."""
    inside(instance, box, f"cd {work}; ln -s loop loop; mkfifo p; ln -s / root; touch f",
           user="root")
    odd = [f"{work}/loop", f"{work}/loop/x", f"{work}/p", f"{work}/root/none", "/proc/self/mem",
           "/proc/1/root/none", "/dev/null/x", "/proc/none", "/sys/none/x", "/dev/full"]
    for path in odd:
        at = quoted(path)
        for method, target, body in [
                ("GET", f"/stat/{at}", None), ("GET", f"/content/{at}", None),
                ("GET", f"/download/{at}", None), ("POST", f"/content/{at}/a", None),
                ("POST", f"/content/upload/{at}/a", b"x"), ("DELETE", f"/content/{at}/a", None)]:
            answer = files.call(method, target, body, {"Content-Type": OCTETS} if body else None)
            assert answer.status < 500, (method, target, answer)


def test_make_with_parents(files, work):
    files.make(f"{work}/a/b/c", "?parents=true")
    files.make(f"{work}/a/b/c", "?parents=true")
    assert files.stat(f"{work}/a/b/c")["type"] == "DIR"


def test_move_overwrites_when_asked(files, work):
    files.put(f"{work}/a", b"a")
    files.put(f"{work}/b", b"b")
    item = files.move(**{"from": f"{work}/a", "to": f"{work}/b", "overwrite": True})
    assert item["path"] == f"{work}/b"
    assert files.get(f"{work}/b") == b"a" and files.names(work) == ["b"]
    files.move(**{"from": f"{work}/b", "to": f"{work}/b", "overwrite": True})
    assert files.get(f"{work}/b") == b"a"


def test_a_directory_is_removed_with_all_in_it(files, work):
    files.put(f"{work}/d/e/f", b"x")
    files.remove(f"{work}/d")
    assert files.names(work) == []


def test_a_stopped_sandbox_says_so(instance, new_sandbox):
    stopped = new_sandbox()
    assert instance.api("POST", f"/sandboxes/{stopped['id']}/stop").status == 200
    files = Files(instance, stopped)
    for answer in (files.stat("/etc", want=409), files.put("/tmp/f", b"x", want=409),
                   json.loads(files.get("/etc/passwd", want=409))):
        error = error_of(answer)
        assert error["code"] == "sandbox_stopped" and "start" in error["hint"], error


# --- uploads that are not finished ----------------------------------------------------------------

def half_an_upload(files, path, size, sent, headers=""):
    connection = files.connection()
    connection.connect()
    connection.sock.sendall(
        f"POST {files.base}/content/upload/{quoted(path)} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {files.instance.token}\r\nContent-Type: {OCTETS}\r\n"
        f"Content-Length: {size}\r\n{headers}\r\n".encode() + b"x" * sent)
    return connection.sock


def test_a_broken_upload_leaves_nothing(files, work):
    files.put(f"{work}/old", b"old")
    for name in "new", "old":
        # the go-ahead tells that it has begun
        with half_an_upload(files, f"{work}/{name}", 10 * MIB, 0, "Expect: 100-continue\r\n") as s:
            s.settimeout(20)
            assert s.recv(65536).startswith(b"HTTP/1.1 100 ")
            s.sendall(bytes(3 * MIB))
        until(lambda: files.names(work) == ["old"], "nothing is left of it")
    assert files.get(f"{work}/old") == b"old"


def test_what_cannot_be_is_refused_before_its_body(files, work):
    for headers in "Expect: 100-continue\r\n", "":
        with half_an_upload(files, work, 1 << 40, 0, headers) as s:
            s.settimeout(20)
            head = s.recv(65536)
            assert head.startswith(b"HTTP/1.1 409 "), head


def test_a_go_ahead_comes_where_it_is_asked_for(files, work):
    with half_an_upload(files, f"{work}/f", 5, 0, "Expect: 100-continue\r\n") as s:
        s.settimeout(20)
        assert s.recv(65536).startswith(b"HTTP/1.1 100 ")
        s.sendall(b"hello")
        assert s.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert files.get(f"{work}/f") == b"hello"


def test_two_writers_leave_one_whole_file(files, work):
    bodies = [bytes([i]) * (2 * MIB) for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda b: files.put(f"{work}/f", b), bodies * 3))
    assert files.get(f"{work}/f") in bodies
    assert files.names(work) == ["f"]


# --- downloads -----------------------------------------------------------------------------------

def test_ranges(files, work):
    data = os.urandom(300000)
    files.put(f"{work}/f", data)
    at = f"/download/{quoted(work)}/f"
    whole = files.call("GET", at, want=200)
    assert whole.headers["Accept-Ranges"] == "bytes" and whole.headers["Last-Modified"]
    for text, piece in ("0-9", data[:10]), ("299999-", data[-1:]), ("-100", data[-100:]), \
            ("100000-199999", data[100000:200000]):
        answer = files.call("GET", at, None, {"Range": f"bytes={text}"}, 206)
        assert answer.body == piece, text
        assert answer.headers["Content-Range"].endswith("/300000")
        assert int(answer.headers["Content-Length"]) == len(piece)
    answer = files.call("GET", at, None, {"Range": "bytes=300000-"}, 416)
    assert answer.headers["Content-Range"] == "bytes */300000"
    assert files.call("GET", at, None, {"Range": "bytes=0-1,3-4"}, 200).body == data
    same = {"Range": "bytes=0-1", "If-Range": whole.headers["ETag"]}
    assert files.call("GET", at, None, same, 206).body == data[:2]
    files.put(f"{work}/f", data[::-1])
    assert files.call("GET", at, None, same, 200).body == data[::-1]


def test_head_has_no_body(files, work):
    files.put(f"{work}/f", b"12345")
    answer = files.call("HEAD", f"/download/{quoted(work)}/f", want=200)
    assert answer.body == b"" and answer.headers["Content-Length"] == "5"
    answer = files.call("HEAD", f"/download/{quoted(work)}", want=200)
    assert answer.body == b"" and answer.headers["Content-Type"] == "application/gzip"
    assert files.call("HEAD", f"/download/{quoted(work)}/none").status == 404


def test_files_without_a_size(files):
    assert b"processor" in files.get("/proc/cpuinfo")
    assert files.get("/proc/sys/kernel/ostype") == b"Linux\n"


def test_a_download_that_is_cut_is_never_whole(instance, box, files, work):
    """The file becomes shorter while it is sent."""
    files.put(f"{work}/f", bytes(64 * MIB))
    connection, response = files.open("GET", f"/download/{quoted(work)}/f")
    try:
        got = len(response.read(MIB))
        inside(instance, box, f"truncate -s 1 {work}/f", user="root")
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            while piece := response.read(MIB):
                got += len(piece)
            if got < 64 * MIB:
                raise http.client.IncompleteRead(b"")
    finally:
        connection.close()


def test_a_stop_cuts_a_download(instance, new_sandbox):
    sandbox = new_sandbox()
    files = Files(instance, sandbox)
    inside(instance, sandbox, "mkdir /tmp/d; head -c 200M /dev/urandom > /tmp/d/f")
    for target in "/download/tmp/d/f", "/download/tmp/d?archive=tar":
        connection, response = files.open("GET", target)
        got = len(response.read(MIB))
        assert instance.api("POST", f"/sandboxes/{sandbox['id']}/restart", {"grace": 0}).status == 200
        try:
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                while piece := response.read(MIB):
                    got += len(piece)
                if response.length:
                    raise http.client.IncompleteRead(b"")
        finally:
            connection.close()
        assert got < 200 * MIB


# --- archives ------------------------------------------------------------------------------------

def a_tar(mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        def add(name, kind=tarfile.REGTYPE, data=b"", bits=0o640, target=""):
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.mode, entry.linkname = kind, len(data), bits, target
            entry.mtime = 1_600_000_000
            tar.addfile(entry, io.BytesIO(data))

        add("d", tarfile.DIRTYPE, bits=0o750)
        add("d/empty", tarfile.DIRTYPE, bits=0o700)
        add("d/f", data=b"hello" * 1000, bits=0o755)
        add("d/\u6d4b\u8bd5", data=b"x")
        add("d/link", tarfile.SYMTYPE, target="f")
        add("d/hard", tarfile.LNKTYPE, target="d/f")
    return out.getvalue()


def shape(tar):
    """What an archive has, by name."""
    return {m.name.removeprefix("./"): (m.type, m.mode & 0o7777, m.linkname.removeprefix("./"),
                                        tar.extractfile(m).read() if m.isreg() else None)
            for m in tar if m.name not in (".", "./")}


@pytest.mark.parametrize("kind, pack", [
    ("application/x-tar", lambda data: data), ("application/x-tar", gzip.compress),
    ("application/gzip", gzip.compress),
    ("application/x-gzip", lambda d: gzip.compress(d[:700]) + gzip.compress(d[700:]))])
def test_an_archive_comes_back(instance, box, files, work, kind, pack):
    item = files.put(f"{work}/in/here", pack(a_tar()), kind=kind)
    assert (item["type"], item["path"]) == ("DIR", f"{work}/in/here"), item
    shown = inside(instance, box, f"cd {work}/in/here; stat -c '%n %a %U %Y' d d/empty d/f;"
                                  " readlink d/link; cmp d/f d/hard; find . | wc -l", user="root")
    assert shown == ("d 750 skerry 1600000000\nd/empty 700 skerry 1600000000\n"
                     "d/f 755 skerry 1600000000\nf\n7\n"), shown
    for query, mode, ending, type_ in (("", "r:gz", "tar.gz", "application/gzip"),
                                       ("?archive=tar", "r:", "tar", "application/x-tar")):
        answer = files.call("GET", f"/download/{quoted(work)}/in/here{query}", want=200)
        assert answer.headers["Content-Type"] == type_
        assert f'filename="here.{ending}"' in answer.headers["Content-Disposition"]
        with tarfile.open(fileobj=io.BytesIO(answer.body), mode=mode) as tar:
            got = shape(tar)
        assert set(got) == {"d", "d/empty", "d/f", "d/\u6d4b\u8bd5", "d/link", "d/hard"}, got
        assert got["d"][:2] == (tarfile.DIRTYPE, 0o750) and got["d/empty"][1] == 0o700, got
        assert got["d/link"][2] == "f" and b"hello" * 1000 in (got["d/f"][3], got["d/hard"][3])


@pytest.mark.parametrize("kind, data", [
    ("application/x-tar", b"no archive " * 100), ("application/x-tar", a_tar()[:1700]),
    ("application/gzip", b"no archive"), ("application/gzip", gzip.compress(a_tar())[:-9]),
    ("application/gzip", gzip.compress(a_tar())[:-4] + b"oops"),
    ("application/gzip", gzip.compress(b"no archive " * 100))])
def test_bad_archives(files, work, kind, data):
    error = error_of(files.put(f"{work}/d", data, kind=kind, want=400))
    assert error["code"] == "bad_archive", error


def test_nothing_but_a_directory_is_an_archive(files, work):
    files.put(f"{work}/f", b"x")
    assert error_of(json.loads(files.get(f"{work}/f", "?archive=tar", want=400)))[
        "field"] == "archive"
    files.put(f"{work}/f", a_tar(), kind="application/x-tar", want=409)


def test_a_tree_of_many_files(instance, box, files, work):
    inside(instance, box, f"mkdir {work}/t; cd {work}/t; for d in $(seq 20); do mkdir $d; for f in"
                          " $(seq 100); do echo $d $f > $d/$f; done; done", user="root")
    packed = files.get(f"{work}/t")
    files.put(f"{work}/u", packed, kind="application/gzip")
    inside(instance, box, f"diff -r {work}/t {work}/u", user="root")


# --- search, watch -------------------------------------------------------------------------------

def test_search(files, work):
    files.put(f"{work}/a.c", b"one\nneedle here\nthree needle\n")
    files.put(f"{work}/sub/b.c", b"nothing\n")
    files.put(f"{work}/sub/c.txt", b"needle\n")
    found = files.search(path=work, name="*.c")
    assert not found["truncated"]
    assert sorted(m["path"] for m in found["matches"]) == [f"{work}/a.c", f"{work}/sub/b.c"]
    found = files.search(path=work, text="needle")["matches"]
    assert sorted((m["path"], m["line"], m["text"]) for m in found) == [
        (f"{work}/a.c", 2, "needle here"), (f"{work}/a.c", 3, "three needle"),
        (f"{work}/sub/c.txt", 1, "needle")]
    found = files.search(path=work, text="needle", name="*.txt")["matches"]
    assert [m["path"] for m in found] == [f"{work}/sub/c.txt"]
    found = files.search(path=work, text="needle", limit=1)
    assert len(found["matches"]) == 1 and found["truncated"]
    assert error_of(files.search(path="relative", want=400))["field"] == "path"


class Full(Exception):
    pass


class Watch:
    def __init__(self, files, path):
        self.connection, self.response = files.open("GET", f"/watch/{quoted(path)}")
        if self.response.status == 429:
            self.close()
            raise Full
        assert self.response.status == 200
        assert self.next() == {"type": "READY"}

    def next(self):
        line = self.response.readline()
        return json.loads(line) if line else None

    def until(self, **want):
        seen = []
        while True:
            event = self.next()
            seen.append(event)
            assert event, seen
            if want.items() <= event.items():
                return seen

    def close(self):
        self.response.close()
        self.connection.close()


def test_watch(files, work):
    watch = Watch(files, work)
    try:
        files.put(f"{work}/f", b"x")
        watch.until(path=f"{work}/f")
        files.make(f"{work}/d/e", "?parents=true")
        watch.until(type="CREATED", path=f"{work}/d", dir=True)
        files.move(**{"from": f"{work}/f", "to": f"{work}/d/e/g"})
        watch.until(type="MOVED", path=f"{work}/d/e/g", **{"from": f"{work}/f"})
        files.set(f"{work}/d/e/g", mode="600")
        watch.until(type="ATTRIBUTES", path=f"{work}/d/e/g")
        files.remove(f"{work}/d/e/g")
        watch.until(type="DELETED", path=f"{work}/d/e/g")
    finally:
        watch.close()


def test_a_watch_ends_with_what_it_watches(files, work):
    files.make(f"{work}/d")
    watch = Watch(files, f"{work}/d")
    try:
        files.remove(f"{work}/d")
        watch.until(type="END")
        assert watch.next() is None
    finally:
        watch.close()
    assert error_of(files.json("GET", f"/watch/{quoted(work)}/d", want=404))["errno"] == "ENOENT"


def test_watches_end_with_their_clients(instance, box, files, work):
    """More than can be at one time, one after the other: each makes room within moments."""
    def one():
        try:
            Watch(files, work).close()
        except Full:
            return False
        return True

    for _ in range(150):
        until(one, "a place is free")
    until(lambda: files.call("GET", f"/stat/{quoted(work)}").status == 200, "a place is free")


# --- record --------------------------------------------------------------------------------------

def test_changes_are_in_the_audit_log(instance, files, work):
    import sqlite3

    files.put(f"{work}/s e", b"very secret")
    files.set(f"{work}/s e", mode="600")
    files.move(**{"from": f"{work}/s e", "to": f"{work}/t"})
    files.remove(f"{work}/t")
    database = sqlite3.connect(f"file:{instance.base}/state/skerry.db?mode=ro", uri=True)
    rows = database.execute("SELECT action, object FROM audit WHERE object LIKE ? ORDER BY seq",
                            (f"%:{work}%",)).fetchall()
    database.close()
    sid = files.base.rsplit("/", 1)[1]
    assert rows == [("file.make", f"{sid}:{work}"), ("file.upload", f"{sid}:{work}/s%20e"),
                    ("file.set", f"{sid}:{work}/s%20e"),
                    ("file.move", f"{sid}:{work}/s%20e {work}/t"),
                    ("file.remove", f"{sid}:{work}/t")]


# --- memory --------------------------------------------------------------------------------------

class Zeros:
    """A body of `size` bytes that takes no memory; `look` is called while it is sent."""

    def __init__(self, size, look):
        self.left = size
        self.look = look

    def read(self, n=-1):
        self.look()
        n = min(self.left, 1 << 16 if n < 0 else n)
        self.left -= n
        return bytes(n)


@pytest.mark.parametrize("mib", [256, pytest.param(2048, marks=pytest.mark.long)])
def test_streams_take_no_memory(instance, files, work, mib):
    pid = instance.children["daemon"].pid
    files.put(f"{work}/warm", bytes(4 * MIB))
    files.get(f"{work}/warm")
    before = resident(pid)
    seen = []
    look = lambda: seen.append(resident(pid))
    connection = files.connection(600)
    connection.request("POST", f"{files.base}/content/upload/{quoted(work)}/f", Zeros(mib * MIB, look), {
        "Authorization": f"Bearer {instance.token}", "Content-Type": OCTETS,
        "Content-Length": str(mib * MIB)})
    assert connection.getresponse().status == 201
    connection.close()
    connection, response = files.open("GET", f"/download/{quoted(work)}/f", timeout=600)
    got = 0
    while piece := response.read(4 * MIB):
        got += len(piece)
        look()
    connection.close()
    assert got == mib * MIB
    assert max(seen) - before < 16 * MIB, (before, max(seen))
