"""Files of a sandbox that does not want to be looked at: links, FIFOs, devices, swaps, disks that
are full, file systems that hang, and a workload that has used up all it may."""

import concurrent.futures
import io
import pathlib
import tarfile
import threading
import time

import pytest

from files_kit import Files, error_of, quoted
from kit import background, execute, sandbox_pid, until

MIB = 1 << 20
OUTSIDE = pathlib.Path("/etc/skerry-outside")  # a file of the host
TAR = "application/x-tar"
HELPERS = "cat /proc/[0-9]*/comm | grep -c skerry-files || true"


def sh(instance, sandbox, script, user="root", **fields):
    done = execute(instance, sandbox, script, user=user, **fields)
    assert done["exit_code"] == 0, done
    return done["stdout"]


@pytest.fixture
def files(instance, box):
    return Files(instance, box)


@pytest.fixture(scope="module", autouse=True)
def outside():
    """What no call may ever reach."""
    OUTSIDE.write_text("of the host")
    yield
    assert OUTSIDE.read_text() == "of the host"
    OUTSIDE.unlink()


def told(answer):
    """The error of a refusal that is one of ours."""
    assert 400 <= answer.status < 500 or answer.status in (503, 507), answer
    return error_of(answer.json)


def get(files, path, query=""):
    return files.call("GET", f"/download/{quoted(path)}{query}")


def put(files, path, data):
    return files.call("POST", f"/content/upload/{quoted(path)}", data,
                      {"Content-Type": "application/octet-stream"})


def idle(instance, sandbox):
    until(lambda: sh(instance, sandbox, HELPERS) == "0\n", "no file call is under way", 20)


# --- links and swaps -----------------------------------------------------------------------------

@pytest.mark.parametrize("link", [
    "/etc", "../../../../../../etc", "/proc/1/root/etc", "/proc/self/root/etc",
    "/proc/self/cwd/etc", "/proc/self/fd/3", "/proc/1/fd/3"])
def test_links_lead_nowhere_outside(instance, box, files, link):
    sh(instance, box, f"rm -rf /tmp/l; mkdir /tmp/l; ln -s {link} /tmp/l/e")
    for path in ("/tmp/l/e/skerry-outside", "/tmp/l/e"):
        assert b"of the host" not in get(files, path).body
    put(files, "/tmp/l/e/skerry-outside", b"from inside")
    files.call("DELETE", "/content/tmp/l/e/skerry-outside")
    assert OUTSIDE.read_text() == "of the host"
    sh(instance, box, "rm -rf /tmp/l /etc/skerry-outside")


@pytest.mark.parametrize("path", [
    "/proc/self/root/etc/passwd", "/proc/1/root/etc/passwd", "/proc/self/cwd/etc/passwd",
    "/proc/self/exe", "/proc/self/fd/0", "/proc/self/fd/3", "/proc/1/exe", "/proc/1/fd/3",
    "/proc/self/mem", "/proc/thread-self/mem", "/proc/1/mem", "/proc/self/environ"])
def test_nothing_of_what_speaks_to_the_host(instance, box, files, path):
    assert told(get(files, path))["errno"]
    assert told(put(files, path, b"x" * 4096))["errno"]
    assert sh(instance, box, "echo alive") == "alive\n"


def test_swaps_during_the_call(instance, box, files):
    """The name is now a directory, now a link, now a FIFO."""
    loop = background(instance, box, """
        mkdir -p /tmp/w/real; echo fine > /tmp/w/real/file; cd /tmp/w
        while :; do
            rm -rf s; mkdir s; echo fine > s/file
            rm -rf s; ln -s /proc/1/root/etc s
            rm -rf s; ln -s ../../../../../../../etc s
            rm -rf s; mkfifo s
            rm -rf s; ln -s real s
        done""", user="root")

    def once(_):
        for answer in (get(files, "/tmp/w/s/file"),
                       put(files, "/tmp/w/s/skerry-outside", b"from inside"),
                       files.call("GET", "/content/tmp/w/s?recursive=true&limit=50"),
                       files.call("PATCH", "/content/tmp/w/s", b'{"mode": "0755"}',
                                  {"Content-Type": "application/json"}),
                       files.call("DELETE", "/content/tmp/w/s/skerry-outside")):
            assert answer.status < 500 or answer.status == 503, answer
            assert b"of the host" not in answer.body

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(once, range(60)))
    instance.api("POST", f"/sandboxes/{box['id']}/commands/{loop['id']}/terminate",
                 {"signal": "KILL"})
    idle(instance, box)
    sh(instance, box, "rm -rf /tmp/w")


# --- what is no file -----------------------------------------------------------------------------

@pytest.mark.parametrize("make", [
    "mkfifo /tmp/odd", "ln -s /dev/zero /tmp/odd", "ln -s /dev/ptmx /tmp/odd",
    "ln -s /dev/tty /tmp/odd", "ln -s odd /tmp/odd"])
def test_no_file_is_refused_at_once(instance, box, files, make):
    sh(instance, box, f"rm -f /tmp/odd; {make}")
    start = time.monotonic()
    for answer in (get(files, "/tmp/odd"), put(files, "/tmp/odd", b"x")):
        assert told(answer)["errno"] in ("EINVAL", "ELOOP"), answer
    assert files.stat("/tmp/odd")["type"] == "FILE"
    assert time.monotonic() - start < 10
    files.remove("/tmp/odd")
    assert sh(instance, box, "ls /dev/zero /dev/ptmx") == "/dev/ptmx\n/dev/zero\n"


def test_several_names_are_one_file(instance, box, files):
    sh(instance, box, "cd /tmp; rm -f h1 h2; echo one > h1; ln h1 h2")
    files.put("/tmp/h1", b"two")
    assert sh(instance, box, "cd /tmp; cat h2; stat -c %h h1; rm h1 h2") == "two2\n"


# --- used up -------------------------------------------------------------------------------------

def test_a_full_disk(instance, new_sandbox):
    sandbox = new_sandbox(disk_gb=1)
    files = Files(instance, sandbox)
    execute(instance, sandbox, "head -c 2G /dev/urandom > /tmp/fill", user="root")
    answer = put(files, "/tmp/more", b"x" * (24 * MIB))
    assert answer.status == 507 and told(answer)["code"] == "disk_full", answer
    assert told(answer)["errno"] in ("ENOSPC", "EDQUOT")
    names = files.names("/tmp")
    assert "more" not in names and not [n for n in names if n.startswith(".")], names
    assert get(files, "/etc/passwd").status == 200
    files.remove("/tmp/fill")
    until(lambda: put(files, "/tmp/more", b"x" * MIB).status == 201, "there is room again", 60)


def test_all_pids_are_taken(instance, new_sandbox):
    sandbox = new_sandbox(pids=64)
    files = Files(instance, sandbox)
    background(instance, sandbox, "for i in $(seq 200); do sleep 1000 & done; wait", user="root")
    until(lambda: instance.api("GET", f"/sandboxes/{sandbox['id']}").json["usage"]["pids"] >= 60,
          "the limit is reached")
    for n in range(20):
        files.put(f"/tmp/f{n}", b"x")
        assert files.get(f"/tmp/f{n}") == b"x"


def test_all_memory_is_taken(instance, new_sandbox):
    sandbox = new_sandbox(cpus=1, memory_mb=128)
    files = Files(instance, sandbox)
    background(instance, sandbox, "while :; do head -c 120M /dev/zero | tail >/dev/null; done",
               user="root")
    data = bytes(range(256)) * (64 * 1024)
    for n in range(3):
        files.put(f"/tmp/f{n}", data)
        assert files.get(f"/tmp/f{n}") == data


def test_many_calls_at_once(instance, box, files):
    """Those that find no place are told so, and the others are served."""
    def once(n):
        answer = put(files, f"/tmp/many/{n}", b"x" * 100_000)
        assert answer.status == 201 or (answer.status == 429 and answer.headers["Retry-After"]), \
            answer
        return answer.status

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        done = list(pool.map(once, range(300)))
    assert done.count(201) == int(sh(instance, box, "ls /tmp/many | wc -l; rm -rf /tmp/many"))
    assert done.count(201) >= 100
    idle(instance, box)


# --- archives ------------------------------------------------------------------------------------

def archive(*entries):
    """A tar of (name, kind, link or content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, rest in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, 0o755
            if kind == tarfile.REGTYPE:
                entry.size = len(rest)
                tar.addfile(entry, io.BytesIO(rest))
            else:
                entry.linkname = rest or ""
                tar.addfile(entry)
    return out.getvalue()


@pytest.mark.parametrize("entries", [
    [("../out", tarfile.REGTYPE, b"x")],
    [("a/../../out", tarfile.REGTYPE, b"x")],
    [("d", tarfile.SYMTYPE, ".."), ("d/out", tarfile.REGTYPE, b"x")],
    [("d", tarfile.SYMTYPE, "/tmp"), ("d/out", tarfile.REGTYPE, b"x")],
    [("l", tarfile.LNKTYPE, "../secret"), ("l", tarfile.REGTYPE, b"x")],
    [("s", tarfile.SYMTYPE, "/tmp"), ("l", tarfile.LNKTYPE, "s/secret")],
    [("dev", tarfile.BLKTYPE, None)],
])
def test_an_archive_stays_below_its_target(instance, box, files, entries):
    sh(instance, box, "rm -rf /tmp/u /tmp/out; mkdir /tmp/u; echo secret > /tmp/secret")
    answer = files.call("POST", "/content/upload/tmp/u", archive(*entries), {"Content-Type": TAR})
    assert answer.status < 500, answer
    assert sh(instance, box, "ls -d /tmp/out 2>/dev/null; cat /tmp/secret; "
              "stat -c %h /tmp/secret; find /tmp/u -type b") == "secret\n1\n"


def test_a_sparse_file(instance, box, files):
    """100 GiB of nothing cost nothing, as an archive."""
    sh(instance, box, "rm -rf /tmp/s /tmp/t; mkdir /tmp/s; truncate -s 100G /tmp/s/hole; "
       "printf end | dd of=/tmp/s/hole bs=1 seek=50G conv=notrunc status=none")
    body = files.get("/tmp/s", "?archive=tar")
    assert len(body) < MIB
    files.put("/tmp/t", body, kind=TAR)
    assert sh(instance, box, "cd /tmp; stat -c %s t/hole; du -k t/hole | awk '{print $1 < 1024}'; "
              "dd if=t/hole bs=1 skip=50G count=3 status=none; rm -rf s t"
              ) == f"{100 << 30}\n1\nend"


@pytest.mark.long
def test_a_hundred_thousand_files_in_a_tar(instance, new_sandbox):
    sandbox = new_sandbox()
    files = Files(instance, sandbox)
    sh(instance, sandbox, "mkdir -p /tmp/n; cd /tmp/n; for i in $(seq 100); do mkdir d$i; "
       "(cd d$i; for j in $(seq 1000); do echo $i.$j > $j; done); done", timeout=600)
    files.put("/tmp/m", files.get("/tmp/n"), kind="application/gzip")
    assert sh(instance, sandbox, "diff -r /tmp/n /tmp/m && find /tmp/m -type f | wc -l",
              timeout=600) == "100000\n"


# --- gone ----------------------------------------------------------------------------------------

def test_readers_that_leave(instance, box, files):
    sh(instance, box, "head -c 300M /dev/zero > /tmp/big")
    for _ in range(10):
        connection, answer = files.open("GET", "/download/tmp/big")
        assert len(answer.read(100_000)) == 100_000
        connection.close()
    idle(instance, box)
    sh(instance, box, "rm /tmp/big")


def test_helpers_are_killed(instance, box, files):
    """By root inside, at any moment: a cut answer, never a wrong one."""
    data = b"y" * (64 * MIB)
    over = threading.Event()

    def kill():
        while not over.is_set():
            execute(instance, box, "pkill -9 -f '^$' ; for p in /proc/[0-9]*; do "
                    "grep -qs skerry-files $p/comm && kill -9 ${p#/proc/}; done", user="root")

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        done = [put(files, f"/tmp/k{n}", data).status for n in range(6)]
    finally:
        over.set()
        thread.join()
    assert set(done) <= {201, 409, 503}, done
    for n, status in enumerate(done):
        there = get(files, f"/tmp/k{n}")
        assert there.body == data if status == 201 else there.status == 404 or there.body == data
    sh(instance, box, "rm -f /tmp/k?; ls -A /tmp | grep -c '^[.]skerry' || true")
    assert sandbox_pid(instance, box)


FUSE = """
import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/dev/fuse", os.O_RDWR)
os.makedirs("/tmp/fuse", exist_ok=True)
if libc.mount(b"x", b"/tmp/fuse", b"fuse", 0,
              f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
unique = struct.unpack_from("<Q", os.read(fd, 1 << 17), 8)[0]   # INIT: the last one answered
out = struct.pack("<IIIIHHIIHHI", 7, 31, 65536, 0, 16, 16, 65536, 1, 0, 0, 0).ljust(64, b"\\0")
os.write(fd, struct.pack("<IiQ", 16 + len(out), 0, unique) + out)
time.sleep(3600)
"""


@pytest.mark.full_image
def test_a_file_system_that_hangs(instance, new_sandbox):
    """It holds up the call that goes there, for a while, and no other."""
    sandbox = new_sandbox()
    files = Files(instance, sandbox)
    background(instance, sandbox, FUSE, runtime="PYTHON", user="root")
    until(lambda: "/tmp/fuse" in sh(instance, sandbox, "cat /proc/mounts"), "it is mounted")
    stuck = threading.Thread(target=lambda: files.call("GET", "/stat/tmp/fuse/x", want=503))
    stuck.start()
    for n in range(20):
        files.put(f"/tmp/f{n}", b"x")
    stuck.join(150)
    assert not stuck.is_alive()
    idle(instance, sandbox)


def test_what_not_even_root_sees(instance, box, files):
    """It is listed, and not entered; where a link leads that may not be read is not told."""
    assert files.list("/proc/1/fd", want=403)
    listed = files.list("/proc/1", "?recursive=true")["contents"]
    names = {n["name"]: n for n in listed}
    assert "fd" in names and names["exe"]["kind"] == "LINK" and not names["exe"].get("target")
    assert "skerry-init" not in str(files.call("GET", "/stat/proc/self/exe").json)
