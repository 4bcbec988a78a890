"""Speaks the agent protocol (src/wire/agent.h), and runs a skerry-init to speak it to.

Standard library only. `Agent` starts the program as PID 1 of a new pid namespace, with a leaf tree
of its own on the cgroup2 hierarchy where there is one; `Conn` is one connection. Both can be used
alone: Conn(path) speaks to any agent's socket.
"""

import ctypes
import errno
import os
import platform
import random
import resource
import shutil
import signal
import socket
import struct
import tempfile
import time
import traceback

(HELLO, RUN, ATTACH, STDIN, STDIN_EOF, SIGNAL, TERMINATE, LIST, STOP, ACK, FORGET, INPUT,
 RESIZE) = range(1, 14)
(STARTED, OUTPUT, EXIT, FAIL, COMMAND, DONE, STDIN_ACK) = range(64, 71)
MORE = 127
FRAME_MAX = 64 * 1024
ARGS, BASH, PYTHON, JAVASCRIPT, TYPESCRIPT, SHELL = range(6)
RUN_STDIN, RUN_TERMINAL = 1, 2
EXITED, SIGNALED, TIMED_OUT, KILLED, OOM, LOST = range(1, 7)
WINDOW = 256 * 1024
STDIN_WINDOW = 256 * 1024

RT_SIGACTION = {"x86_64": 13, "aarch64": 134}[platform.machine()]
FD_LISTEN, FD_CGROUP, FD_PROCS, FD_CGNS, FD_V1, FD_OOM = 3, 4, 5, 6, 7, 13


# as many connections as an agent takes, and more
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def new_id(kind="cm"):
    return kind + "".join(random.choices("abcdefghijklmnopqrstuvwxyz234567", k=20))


def read(path):
    with open(path) as f:
        return f.read()


def enc_str(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<I", len(s) + 1) + s + b"\0"


def enc_strv(items):
    return struct.pack("<I", len(items)) + b"".join(enc_str(i) for i in items)


def frame(kind, payload=b""):
    out = []
    while len(payload) > FRAME_MAX:
        out.append(struct.pack("<IB", FRAME_MAX, MORE) + payload[:FRAME_MAX])
        payload = payload[FRAME_MAX:]
    out.append(struct.pack("<IB", len(payload), kind) + payload)
    return b"".join(out)


class Dec:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        v = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return v[0] if len(v) == 1 else v

    def str(self):
        n = self.take("I")
        s = self.data[self.at : self.at + n - 1]
        self.at += n
        return s.decode("utf-8", "surrogateescape")


class Failed(Exception):
    def __init__(self, code, reason, field, text):
        super().__init__(f"{reason} ({code}) field={field!r}: {text}")
        self.code, self.reason, self.field, self.text = code, reason, field, text


class Closed(Exception):
    pass


class Exit:
    def __init__(self, d):
        self.reason, self.code, self.signal, self.duration_us = d.take("BIIQ")
        self.total, self.dropped = [0, 0], [0, 0]
        for i in range(2):
            self.total[i], self.dropped[i] = d.take("QQ")
        self.oom = d.take("B")

    def __repr__(self):
        return (
            f"Exit(reason={self.reason} code={self.code} signal={self.signal} "
            f"total={self.total} dropped={self.dropped} oom={self.oom})"
        )


def run_payload(argv, runtime=ARGS, id=None, flags=0, timeout_ms=0, keep=1 << 20, cwd="",
                default_cwd="", user="", default_user="", env=(), size=None):
    return (
        enc_str(id or new_id())
        + struct.pack("<BIQQ", runtime, flags | (RUN_TERMINAL if size else 0), timeout_ms, keep)
        + enc_str(cwd) + enc_str(default_cwd) + enc_str(user) + enc_str(default_user)
        + enc_strv(argv) + enc_strv(list(env))
        + (struct.pack("<II", *size) if size else b"")
    )


class Conn:
    """One connection: one operation."""

    def __init__(self, path, hello=True, timeout=60):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.connect(path)  # waits while the queue is full
        self.s.settimeout(timeout)
        self.raw = bytearray()
        self.have = [0, 0]
        self.out = [bytearray(), bytearray()]
        self.gaps = []
        self.fed = self.taken = 0  # bytes of stdin
        self.started = self.exit = None
        if hello:
            self.send(HELLO, struct.pack("<IIQ", 2, 1, 0))

    def send(self, kind, payload=b""):
        self.s.sendall(frame(kind, payload))

    def recv(self):
        whole = b""
        while True:
            while len(self.raw) < 5:
                self.more()
            n, kind = struct.unpack_from("<IB", self.raw)
            while len(self.raw) < 5 + n:
                self.more()
            piece = bytes(self.raw[5 : 5 + n])
            del self.raw[: 5 + n]
            whole += piece
            if kind != MORE:
                return kind, whole

    def more(self):
        data = self.s.recv(1 << 18)
        if not data:
            raise Closed()
        self.raw += data

    def close(self):
        self.s.close()

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.close()

    def ack(self):
        self.send(ACK, struct.pack("<QQ", *self.have))

    def room(self):
        """Bytes of stdin that may be sent now."""
        return STDIN_WINDOW - (self.fed - self.taken)

    def feed(self, data):
        self.fed += len(data)
        self.send(STDIN, data)

    def step(self, ack=True):
        """Reads one message and files it. Returns its type."""
        kind, data = self.recv()
        d = Dec(data)
        if kind == STARTED:
            self.pid, self.age_us = d.take("IQ")
            self.cwd, self.user, self.warning = d.str(), d.str(), d.str()
            self.started = True
        elif kind == OUTPUT:
            stream, offset = d.take("BQ")
            i = stream - 1
            assert offset >= self.have[i], (offset, self.have)
            if offset > self.have[i]:
                self.gaps.append((stream, self.have[i], offset))
            self.out[i] += data[d.at :]
            self.have[i] = offset + len(data) - d.at
            if ack:
                self.ack()
        elif kind == STDIN_ACK:
            taken = d.take("Q")
            assert self.taken < taken <= self.fed, (self.taken, taken, self.fed)
            assert self.started and self.exit is None
            self.taken = taken
        elif kind == EXIT:
            self.exit = Exit(d)
        elif kind == FAIL:
            raise Failed(d.take("I"), d.str(), d.str(), d.str())
        return kind

    def until(self, kind, ack=True):
        while self.step(ack) != kind:
            pass
        return self

    def run(self, argv, wait=True, **kw):
        self.id = kw.setdefault("id", new_id())
        self.send(RUN, run_payload(argv, **kw))
        return self.until(EXIT if wait else STARTED)

    def attach(self, id, offsets=(0, 0), wait=True):
        self.id = id
        self.have = list(offsets)
        self.send(ATTACH, enc_str(id) + struct.pack("<QQ", *offsets))
        return self.until(EXIT if wait else STARTED)

    def oneshot(self, kind, payload=b""):
        self.send(kind, payload)
        self.until(DONE)
        self.close()

    def signal(self, id, sig):
        self.oneshot(SIGNAL, enc_str(id) + struct.pack("<II", sig, 0))

    def terminate(self, id, sig=15, grace_ms=10000):
        self.oneshot(TERMINATE, enc_str(id) + struct.pack("<II", sig, grace_ms))

    def resize(self, id, cols, rows):
        self.oneshot(RESIZE, enc_str(id) + struct.pack("<II", cols, rows))

    def input(self, id):
        """To be followed by send(STDIN, …) and input_end()."""
        self.send(INPUT, enc_str(id))
        return self

    def input_end(self, eof=False):
        if eof:
            self.send(STDIN_EOF)
        self.s.shutdown(socket.SHUT_WR)
        self.until(DONE)
        self.close()

    def forget(self, id):
        self.oneshot(FORGET, enc_str(id))

    def stop(self, grace_ms=1000):
        self.oneshot(STOP, struct.pack("<I", grace_ms))

    def list(self):
        lines = {}
        self.send(LIST)
        while True:
            kind, data = self.recv()
            if kind == DONE:
                self.close()
                return lines
            if kind == COMMAND:
                d = Dec(data)
                id, pid, (ended, left) = d.str(), d.take("I"), d.take("BB")
                lines[id] = (pid, ended, left, Exit(d))


UNIFIED = next(
    (p for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
     if os.path.exists(p + "/cgroup.procs") and os.path.exists(p + "/cgroup.controllers")),
    None,
)


CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18
ID_BASE = 1879048192


def map_ids(libc):
    """Makes the calling process root of a new user namespace."""
    ready, done = os.pipe(), os.pipe()
    me = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.read(ready[0], 1)
        for kind in ("uid", "gid"):
            with open(f"/proc/{me}/{kind}_map", "w") as f:
                f.write(f"0 {ID_BASE} 65536")
        os.write(done[1], b"x")
        os._exit(0)
    if libc.unshare(CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(ready[1], b"x")
    os.read(done[0], 1)
    os.waitpid(helper, 0)
    for fd in ready + done:
        os.close(fd)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def remove_group(path):
    """The last process may need a moment until the kernel lets go of its cgroup."""
    for _ in range(500):
        try:
            return os.rmdir(path)
        except OSError as e:
            if e.errno != errno.EBUSY:
                raise
        time.sleep(0.01)
    os.rmdir(path)


class Agent:
    """skerry-init as PID 1 of a new pid namespace. `cgroup`: give it a tree of leaves. `userns`: as
    root of a user namespace of its own, as on a host, where nobody but the host may move a process
    from the agent's cgroup to the commands'. `v1`: paths of v1 work groups. `oom`: the file that
    counts what was killed for memory."""

    def __init__(self, program, cgroup=True, userns=False, v1=(), agent_v1=(),
                 oom=None, pts=True):
        self.dir = tempfile.mkdtemp(prefix="skerry-init-")
        os.chmod(self.dir, 0o755)
        self.path = self.dir + "/agent.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(512)
        self.group = None
        self.log = os.open(self.dir + "/log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        fds = {0: os.open("/dev/null", os.O_RDWR), 1: os.dup(self.log), 2: os.dup(self.log),
               FD_LISTEN: os.dup(self.listener.fileno())}
        if cgroup and UNIFIED:
            self.group = f"{UNIFIED}/skerry-test-{os.getpid()}-{random.randrange(10**6)}"
            os.mkdir(self.group)
            os.mkdir(self.group + "/agent")
            os.mkdir(self.group + "/work")
            if userns:
                for name in ("", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"):
                    os.chown(self.group + "/work" + name, ID_BASE, ID_BASE)
            fds[FD_CGROUP] = os.open(self.group + "/work", os.O_RDONLY | os.O_DIRECTORY)
            fds[FD_PROCS] = os.open(self.group + "/work/cgroup.procs", os.O_WRONLY)
        for i, p in enumerate(v1):
            fds[FD_V1 + i] = os.open(p + "/cgroup.procs", os.O_WRONLY)
        if oom:
            fds[FD_OOM] = os.open(oom, os.O_RDONLY)
        # out of the way of the numbers they shall get
        high = {want: os.dup2(fd, 200 + want, inheritable=False) for want, fd in fds.items()}
        for fd in fds.values():
            os.close(fd)

        def place():
            os.closerange(3, 200)
            for want, fd in high.items():
                os.dup2(fd, want, inheritable=True)
                os.close(fd)

        def join():
            # what a command shall not inherit
            os.setpriority(os.PRIO_PROCESS, 0, -5)
            ignore = struct.pack("<4Q", signal.SIG_IGN, 0, 0, 0)
            for sig in (32, 33):  # the C library's own, as a posix_spawn leaves them
                if libc.syscall(RT_SIGACTION, sig, ignore, None, 8):
                    raise OSError(ctypes.get_errno(), "rt_sigaction")
            for g in ([self.group + "/agent"] if self.group else []) + list(agent_v1):
                with open(g + "/cgroup.procs", "w") as f:
                    f.write("0")

        libc = ctypes.CDLL(None, use_errno=True)
        pid_pipe = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                join()
                if userns:
                    map_ids(libc)
                # the next child is PID 1
                if libc.unshare(CLONE_NEWNS | CLONE_NEWPID):
                    os._exit(120)
                child = os.fork()
                if child == 0:
                    libc.prctl(1, signal.SIGKILL)
                    libc.mount(b"none", b"/", None, MS_PRIVATE | MS_REC, None)
                    libc.mount(b"proc", b"/proc", b"proc", 0, None)
                    if pts:
                        libc.mount(b"devpts", b"/dev/pts", b"devpts", 0,
                                   b"newinstance,ptmxmode=0666,mode=0620,gid=5")
                    os.chdir("/")
                    place()
                    os.execve(program, ["skerry-init", "run"], {})
                for fd in high.values():
                    os.close(fd)
                os.write(pid_pipe[1], struct.pack("<i", child))
                os.close(pid_pipe[1])
                status = os.waitpid(child, 0)[1]
                os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
            except BaseException:
                traceback.print_exc()
                os._exit(121)
        self.keeper = pid
        for fd in high.values():
            os.close(fd)
        os.close(pid_pipe[1])
        data = os.read(pid_pipe[0], 4)
        os.close(pid_pipe[0])
        if len(data) != 4:
            self.wait()
            self.close()
            raise RuntimeError("skerry-init was not started")
        self.pid = struct.unpack("<i", data)[0]

    def conn(self, **kw):
        return Conn(self.path, **kw)

    def run(self, argv, **kw):
        with self.conn() as c:
            return c.run(argv, **kw)

    def sh(self, script, **kw):
        return self.run([script], runtime=BASH, **kw)

    def status(self, key):
        with open(f"/proc/{self.pid}/status") as f:
            return next(line.split()[1] for line in f if line.startswith(key + ":"))

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def leaves(self):
        return [n for n in os.listdir(self.group + "/work") if n.startswith("c-")]

    def log_text(self):
        return read(self.dir + "/log")

    def wait(self, timeout=20):
        """The exit code of PID 1."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.keeper, os.WNOHANG)
            if pid:
                self.keeper = None
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        raise TimeoutError("skerry-init runs on")

    def close(self):
        if self.keeper:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.listener.close()
        os.close(self.log)
        if self.group:
            for base, _, _ in os.walk(self.group, topdown=False):
                remove_group(base)
        shutil.rmtree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.close()
