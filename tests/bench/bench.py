#!/usr/bin/python3
"""bench.py [options] BUILD: how long a create and a command take, beside
what the kernel and other runtimes need for the same on this host.

One run; blocks of each measurement in turn (A B C A B C ...), so that the ratios hold on a machine
that is busy with other things. Nothing is asserted. Creates of a block follow each other without a
pause, so the making of slots is paid for inside the run. Needs root, crun and bwrap."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
sys.path[:0] = [str(HERE), str(TREE / "tests/instance")]

import files as bench_files  # noqa: E402
import host as bench_host  # noqa: E402
import instance  # noqa: E402

LIMIT = "bare limit"
STDIO = tempfile.NamedTemporaryFile(prefix="skerry-bench-")
CRUN_RUN = "crun run /bin/true"
CRUN_EXEC = "crun exec /bin/true"
ALONE = "1 client"
PIPE = "plain pipe"
SANDBOXES, BURNING, CLIENTS, CALLS = 20, 2, 32, 20
STREAMED = 1 << 30


def spawn(words):
    """Nanoseconds until the program has ended. Its standard files are an empty one of ours: crun
    gives them to the container's root, and /dev/null is the host's."""
    files = [(os.POSIX_SPAWN_OPEN, fd, STDIO.name, os.O_RDWR, 0) for fd in (0, 1, 2)]
    start = time.monotonic_ns()
    pid = os.posix_spawn(words[0], words, os.environ, file_actions=files)
    status = os.waitpid(pid, 0)[1]
    took = time.monotonic_ns() - start
    if status:
        raise RuntimeError(f"{' '.join(words)}: status {status:#x}")
    return took


class Api:
    """One keep-alive connection, with no more client in between than it takes."""

    def __init__(self, address, token):
        self.s = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX)
        self.s.settimeout(120)
        self.s.connect(address)
        if isinstance(address, tuple):
            self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"

    def call(self, method, path, body=None):
        text = b"" if body is None else json.dumps(body).encode()
        head = f"{method} /workspaces/default{path} HTTP/1.1\r\n{self.head}"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        self.s.sendall(head.encode() + b"\r\n" + text)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._more()
        head, _, rest = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        length = int(length.group(1)) if length else 0
        while len(rest) < length:
            rest += self._more()
        status = int(head.split()[1])
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {rest.decode()}")
        return json.loads(rest) if rest else None

    def _more(self):
        data = self.s.recv(1 << 16)
        if not data:
            raise RuntimeError("the API ended the connection")
        return data


class Row:
    """One measurement. `once` answers nanoseconds, or a list of them for the rows in `names`;
    `after` is what a block leaves to clean up, not measured."""

    def __init__(self, group, names, once, after=None):
        self.group = group
        self.names = names
        self.once = once
        self.after = after
        self.times = {name: [] for name in names}

    def block(self, count):
        for _ in range(count):
            took = self.once()
            for name, ns in zip(self.names, took if isinstance(took, list) else [took]):
                self.times[name].append(ns)
        if self.after:
            self.after()


def api_rows(skerry, image):
    ways = {
        "HTTP": Api(("127.0.0.1", skerry.port), skerry.token),
        "socket": Api(f"{skerry.base}/run/api.sock", skerry.token),
    }
    any_way = ways["HTTP"]
    stay = any_way.call("POST", "/sandboxes?wait=running", {"name": "stay", "os": image})["id"]
    made = []

    def create(api):
        start = time.monotonic_ns()
        box = api.call("POST", "/sandboxes", {"name": "bench", "os": image})
        created = time.monotonic_ns()
        made.append(box["id"])
        result = api.call("POST", f"/sandboxes/{box['id']}/exec", {"args": ["/bin/true"]})
        end = time.monotonic_ns()
        if result["exit_code"]:
            raise RuntimeError(f"exec: {result}")
        return [created - start, end - start]

    def execute(api, body):
        start = time.monotonic_ns()
        result = api.call("POST", f"/sandboxes/{stay}/exec", body)
        took = time.monotonic_ns() - start
        if result["exit_code"]:
            raise RuntimeError(f"exec: {result}")
        return took

    def remove():
        while made:
            any_way.call("DELETE", f"/sandboxes/{made.pop()}")

    for way, api in ways.items():
        yield Row("create", [f"API, {way}: create", f"API, {way}: create, first command"],
                  lambda api=api: create(api), remove)
    for way, api in ways.items():
        yield Row("exec", [f"API, {way}: args"],
                  lambda api=api: execute(api, {"args": ["/bin/true"]}))
        yield Row("exec", [f"API, {way}: BASH"],
                  lambda api=api: execute(api, {"command": "true"}))


class Burst(Row):
    """A row whose step answers many values of one name; a block is one step."""

    def block(self, count):
        self.times[self.names[0]] += self.once()


class Seldom(Row):
    """A row of one value that takes seconds: measured in the first rounds only."""

    def __init__(self, group, name, once):
        super().__init__(group, [name], once)
        self.left = bench_files.ROUNDS + 1

    def block(self, count):
        if self.left:
            self.left -= 1
            super().block(1)


class Programs:
    """Ours that speak to an instance, which ends only when they have."""

    def __init__(self, build):
        self.build = pathlib.Path(build).resolve() / "tests/bench"
        self.running = []

    def start(self, name, *words):
        self.running.append(bench_host.Stepper(self.build / name, *words))
        return self.running[-1]

    def close(self):
        for program in self.running:
            program.close()


def load_rows(skerry, image, programs):
    """Many clients at once, and sandboxes that take all the CPU they get."""
    api = Api(("127.0.0.1", skerry.port), skerry.token)
    boxes = [api.call("POST", "/sandboxes?wait=running", {
        "name": f"load-{n}", "os": image, "cpus": 1, "memory_mb": 512})["id"]
        for n in range(SANDBOXES)]
    burners = []

    def burn():
        for box in boxes[:BURNING]:
            record = api.call("POST", f"/sandboxes/{box}/commands", {
                "command": "for i in 1 2; do while :; do :; done & done; wait"})
            burners.append(f"/sandboxes/{box}/commands/{record['id']}/terminate")

    def cool():
        while burners:
            api.call("POST", burners.pop(), {"signal": "KILL"})

    def clients(count, calls):
        return programs.start("clients", skerry.port, skerry.token, count, calls, *boxes)

    one, many = clients(1, CALLS), clients(CLIENTS, CALLS)

    def loaded():
        burn()
        return many.step(".")

    yield Burst("load", [ALONE], lambda: one.step("."))
    yield Burst("load", [f"{CLIENTS} clients, {SANDBOXES} sandboxes"], lambda: many.step("."))
    yield Burst("load", [f"the same, {BURNING} of them burning"], loaded, cool)


def stream_rows(skerry, image, programs):
    api = Api(("127.0.0.1", skerry.port), skerry.token)
    box = api.call("POST", "/sandboxes?wait=running", {"name": "stream", "os": image})["id"]

    def sink(address):
        return programs.start("sink", address, skerry.token, box, STREAMED)

    ways = {"socket": sink(f"{skerry.base}/run/api.sock"), "HTTP": sink(skerry.port)}
    yield Burst("stream of 1 GiB", [PIPE], lambda: ways["socket"].step("p"))
    for way, it in ways.items():
        yield Burst("stream of 1 GiB", [f"GET exec, {way}"], lambda it=it: it.step("s"))


def host_rows(host):
    limit = bench_host.Stepper(host.build / "tests/bench/limit", host.layer, host.pool / "bench")
    run_bundle = str(host.bundle("run", ["/bin/true"]))
    box = host.container("skerry-bench-stay")
    count = iter(range(10**9))
    bwrap = ["/usr/bin/bwrap", "--unshare-all", "--unshare-user", "--unshare-cgroup", "--uid", "0",
             "--gid", "0", "--bind", str(host.root), "/", "--proc", "/proc", "--dev", "/dev",
             "/bin/true"]

    def crun(*words):
        with host.view:
            return spawn(host.crun(*words))

    yield Row("create", [LIMIT, "bare limit, with removal"], lambda: limit.step("."))
    yield Row("create", ["keeper: disk", "keeper: disk, start", "keeper: disk, start, command"],
              lambda: host.drive.step("c"), lambda: host.drive.step("d"))
    yield Row("create", [CRUN_RUN], lambda: crun(
        "run", "--bundle", run_bundle, f"skerry-bench-{next(count)}"))
    yield Row("create", ["bwrap /bin/true"], lambda: spawn(bwrap))
    host.drive.step("c")  # the one to run commands in
    yield Row("exec", [CRUN_EXEC], lambda: crun("exec", box, "/bin/true"))
    yield Row("exec", ["crun exec bash -c true"],
              lambda: crun("exec", box, "/bin/bash", "-c", "true"))
    yield Row("exec", ["agent: args"], lambda: host.drive.step("a"))
    yield Row("exec", ["agent: BASH"], lambda: host.drive.step("b"))


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))]


def report(rows):
    for group, references in (("create", (LIMIT, CRUN_RUN)), ("exec", (CRUN_EXEC,)),
                              ("load", (ALONE,)), ("stream of 1 GiB", (PIPE,)),
                              ("file of 1 GiB", (bench_files.CP,)),
                              ("10,000 files in", (bench_files.UNPACK,)),
                              ("10,000 files out", (bench_files.PACK,))):
        times = {n: t for row in rows if row.group == group for n, t in row.times.items() if t}
        if not times:
            continue
        references = [r for r in references if r in times]
        base = [percentile(times[r], 0.5) for r in references]
        print(f"\n{group:38}{'n':>6}{'least ms':>9}{'p50 ms':>9}{'p99 ms':>9}"
              + "".join(f"{'/ ' + r.split(' /')[0]:>13}" for r in references))
        for name, t in times.items():
            p50 = percentile(t, 0.5)
            print(f"{name:38}{len(t):6}{min(t) / 1e6:9.2f}{p50 / 1e6:9.2f}"
                  f"{percentile(t, 0.99) / 1e6:9.2f}"
                  + "".join(f"{p50 / b:13.2f}" for b in base))


def environment():
    model = re.search(r"(?m)^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    return (f"kernel {os.uname().release}, {os.cpu_count()} cpus"
            f" ({model.group(1) if model else os.uname().machine}), load {load}")


def measure(rows, rounds, block):
    for n in range(rounds + 1):
        for row in rows:
            row.block(block if n else 1)
        if n == 0:  # caches are warm from here on
            for row in rows:
                row.times = {name: [] for name in row.names}


def image_tar():
    done = subprocess.run([TREE / "images/build", "--tar", "debian-12-slim"], check=True, text=True,
                          env=dict(os.environ, SKERRY_IMAGE_CACHE=instance.IMAGE_CACHE),
                          stdout=subprocess.PIPE)
    return done.stdout.strip()


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--block", type=int, default=10)
    options.add_argument("--no-daemon", action="store_true", help="leave skerryd and HAProxy out")
    options.add_argument("--only", default="", help="rows whose group and first name match this")
    options.add_argument("build", nargs="?", default="build")
    o = options.parse_args()
    if os.geteuid():
        sys.exit("bench.py needs root")
    print(environment())
    with bench_host.Host(o.build, image_tar()) as host:
        if o.no_daemon:
            rows = list(host_rows(host))
            run(rows, o)
        else:
            with instance.Instance(o.build) as skerry:
                image = skerry.import_image()
                with contextlib.closing(Programs(o.build)) as programs:
                    run(list(host_rows(host)) + list(api_rows(skerry, image))
                        + list(load_rows(skerry, image, programs))
                        + list(stream_rows(skerry, image, programs))
                        + list(bench_files.rows(skerry, image, Seldom)), o)
    print("\nafterwards: " + environment())


def run(rows, o):
    measure([r for r in rows if re.search(o.only, f"{r.group}: {r.names[0]}")], o.rounds, o.block)
    report(rows)


if __name__ == "__main__":
    main()
