#!/usr/bin/python3
"""A private Skerry on this host: every daemon from a build directory, with paths, ports, address
and id ranges of its own, beside whatever else runs. Needs root. Made and removed by the same
skerry-setup that serves an installation; stop() fails when anything is left behind.

    with Instance("build") as skerry:
        skerry.api("POST", "/sandboxes", {"name": "one"})

Used by the pytest suites; also `instance.py [BUILD]` for a shell with `skerry` pointed at one.
"""

import fcntl
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
IMAGE_CACHE = "/var/cache/skerry/images"
RECIPE = os.environ.get("SKERRY_TEST_IMAGE", "debian-12-slim")
IMAGE = RECIPE.replace("debian-12", "debian:12", 1)
NUMBERS = range(1, 9)
PLACES = {
    "skerryd": "src/daemon/skerryd",
    "skerry-keeper": "src/keeper/skerry-keeper",
    "skerry-init": "src/init/skerry-init",
    "skerry": "src/cli/skerry",
    "skerry-quota": "packaging/skerry-quota",
}


class Left(AssertionError):
    """What an instance left behind."""


class Answer:
    """One answer of the API. `json` is None where the body is not JSON."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body
        try:
            self.json = json.loads(body)
        except ValueError:
            self.json = None

    def __repr__(self):
        return f"<Answer {self.status} {self.body[:500]!r}>"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(check, timeout, what, poll=0.02):
    """Polls until check() is true. The time limit is for hangs: no test measures with it."""
    end = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(poll)


class Instance:
    def __init__(self, build="build", keep_logs=None):
        self.build = pathlib.Path(build).resolve()
        self.keep_logs = keep_logs
        self.children = {}
        self.base = None
        self.lock = None

    # --- what it is made of -------------------------------------------------------------------

    def program(self, name):
        path = self.build / PLACES[name]
        if not path.exists():
            raise FileNotFoundError(f"'{path}' is not built: run 'make' first")
        return str(path)

    def _copy_daemon(self):
        """skerryd runs as a user who need not be able to reach the checkout (below /root, say)."""
        self.skerryd = str(self.base / "bin/skerryd")
        (self.base / "bin").mkdir()
        shutil.copy(self.program("skerryd"), self.skerryd)

    def _claim(self):
        """A number that no other instance on this host has; the lock goes with the process."""
        for number in NUMBERS:
            fd = os.open(f"/run/skerry-test-{number}.lock", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            self.lock = fd
            return number
        raise RuntimeError("too many test instances on this host")

    def _write_config(self):
        n = self.number
        self.ipv4 = f"10.214.{4 * n}.0/22"
        self.id_base = 0x40000000 + n * 0x04000000
        self.id_end = self.id_base + 0x04000000
        self.config.write_text(
            f"instance: {self.name}\n"
            f"state_dir: {self.base}/state\n"
            f"run_dir: {self.base}/run\n"
            f"user: skerry-{self.name}\n"
            f"group: skerry-{self.name}\n"
            f"listen: 127.0.0.1:{self.port}\n"
            f"url: http://127.0.0.1:{self.port}\n"
            "workspace: default\n"
            f"id_base: {self.id_base}\n"
            "network:\n"
            f"  ipv4: {self.ipv4}\n"
            "pool:\n"
            f"  path: {self.base}/pool/pool.img\n"
            f"  dir: {self.base}/pool/fs\n"
        )

    def setup(self, verb):
        env = dict(
            os.environ,
            POOL_SIZE=str(20 << 30),
            SKERRYD=self.skerryd,
            SKERRY_KEEPER=self.program("skerry-keeper"),
            SKERRY_QUOTA=self.program("skerry-quota"),
        )
        env.pop("POOL", None)
        done = subprocess.run(
            [TREE / "packaging/skerry-setup", "--config", self.config, verb],
            env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )
        if done.returncode:
            raise RuntimeError(f"skerry-setup {verb}: {done.stderr.strip()}\n{self.logs()}")
        return done.stdout

    def _own_init(self):
        """The daemon names the installed skerry-init; ours is the one of the build directory, or
        of another where that one is dynamic (built with sanitizers): sandboxes lack its libraries."""
        file = self.base / "run/conf/keeper.conf"
        init = os.environ.get("SKERRY_TEST_INIT") or self.program("skerry-init")
        text = re.sub(r"(?m)^init=.*$", f"init={init}", file.read_text())
        file.write_text(text)

    # --- its life -----------------------------------------------------------------------------

    def start(self):
        if os.geteuid():
            raise PermissionError("a private instance needs root")
        for name in PLACES:
            self.program(name)
        self.number = self._claim()
        self.name = f"skt{self.number}"
        self.base = pathlib.Path(f"/var/tmp/skerry-test/{self.name}")
        self.config = self.base / "etc/skerry.yaml"
        self.skerryd = self.program("skerryd")
        if self.config.exists():
            self.setup("purge")  # one that was killed
        shutil.rmtree(self.base, ignore_errors=True)
        self.config.parent.mkdir(parents=True)
        (self.base / "log").mkdir()
        self._copy_daemon()
        self.port = free_port()
        self._write_config()
        try:
            self.setup("prepare")
            self.setup("pool-up")
            self.setup("render")
            self._own_init()
            self.start_lxcfs()
            self._spawn("keeper")
            self.wait_keeper()
            for service in ("daemon", "edge", "names"):
                self._spawn(service)
            self.wait_ready()
            self.token = self._token()
        except BaseException:
            self._collect_logs()
            self.stop(check=False)
            raise
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def _command(self, service):
        conf = self.base / "run/conf"
        return {
            "lxcfs": ["lxcfs", "-f", "-l", "--enable-cfs", "-p", self.base / "run/lxcfs.pid",
                      self.base / "run/lxcfs"],
            "keeper": [self.program("skerry-keeper"), "--config", conf / "keeper.conf"],
            "daemon": [self.skerryd, "--config", self.config],
            "edge": ["haproxy", "-db", "-f", conf / "haproxy.cfg"],
            "names": ["dnsmasq", "--keep-in-foreground", "--conf-file=" + str(conf / "dnsmasq.conf")],
        }[service]

    def _spawn(self, service):
        who = {}
        if service == "keeper":  # as a unit may set it, and no sandbox shall have it
            who = {"preexec_fn": lambda: pathlib.Path("/proc/self/oom_score_adj").write_text("200")}
        if service == "daemon":
            entry = pwd.getpwnam(f"skerry-{self.name}")
            who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        with open(self.base / "log" / service, "ab") as log:
            self.children[service] = subprocess.Popen(
                self._command(service), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd="/", start_new_session=True, **who,
            )

    def _alive(self):
        for service, child in self.children.items():
            if child.poll() is not None:
                raise RuntimeError(f"{service} ended with {child.returncode}\n{self.logs()}")

    def wait_keeper(self):
        path = str(self.base / "run/keeper.sock")

        def answers():
            self._alive()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                return s.connect_ex(path) == 0

        wait_until(answers, 30, "the keeper's socket")

    def wait_ready(self):
        def ready():
            self._alive()
            try:
                return self.raw("GET", "/healthz", token=None).status == 200
            except OSError:
                return False

        try:
            wait_until(ready, 30, "/healthz")
        except TimeoutError as e:
            raise TimeoutError(f"{e}\n{self.logs()}") from None

    def _end(self, service, sig, timeout=30):
        child = self.children.pop(service)
        child.send_signal(sig)
        child.wait(timeout)

    def start_lxcfs(self):
        mount = self.base / "run/lxcfs"
        subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL)
        mount.mkdir(exist_ok=True)
        self._spawn("lxcfs")
        wait_until(lambda: self._alive() or (mount / "proc/uptime").exists(), 30, "lxcfs")

    def kill9_lxcfs(self):
        self._end("lxcfs", signal.SIGKILL)

    def restart_daemon(self):
        self._end("daemon", signal.SIGTERM)
        self._spawn("daemon")
        self.wait_ready()

    def kill9_daemon(self):
        self._end("daemon", signal.SIGKILL)
        self._spawn("daemon")
        self.wait_ready()

    def restart_keeper(self):
        self._end("keeper", signal.SIGTERM)
        self._spawn("keeper")
        self.wait_keeper()

    def kill9_keeper(self):
        self._end("keeper", signal.SIGKILL)
        self._spawn("keeper")
        self.wait_keeper()

    def stop(self, check=True):
        """Ends everything and fails on whatever is left of it."""
        try:
            for service in ("names", "edge", "daemon", "keeper", "lxcfs"):
                if service not in self.children:
                    continue
                try:
                    self._end(service, signal.SIGTERM)
                except subprocess.TimeoutExpired:
                    self.children.pop(service, None)
                    raise Left(f"{service} does not end on TERM\n{self.logs()}") from None
        finally:
            self._collect_logs()
            for child in self.children.values():
                child.kill()
                child.wait()
            self.children.clear()
            purged = self.setup("purge")
        left = self.left()
        shutil.rmtree(self.base, ignore_errors=True)
        os.close(self.lock)
        if check and left:
            raise Left("left behind: " + "; ".join(left) + "\n" + purged)

    def left(self):
        """What of the instance is still on the host, a line each."""
        left = []
        mounts = pathlib.Path("/proc/self/mountinfo").read_text()
        left += [f"mount {line.split()[4]}" for line in mounts.splitlines()
                 if str(self.base) + "/" in line]
        left += [f"link {name}" for _, name in socket.if_nameindex()
                 if name.startswith(self.name + "-")]
        run = lambda *words: subprocess.run(words, capture_output=True, text=True).stdout
        if re.search(rf"^table inet {self.name}$", run("nft", "list", "tables"), re.M):
            left.append(f"nft table {self.name}")
        if f" {self.ipv4.rsplit('.', 1)[0]}." in run("ip", "-4", "-o", "address"):
            left.append(f"an address of {self.ipv4}")
        for line in mounts.splitlines():
            if re.search(r" - cgroup2? ", line):
                group = pathlib.Path(line.split()[4]) / self.name
                if group.exists():
                    left.append(f"cgroup {group}")
        left += [f"loop device: {line}" for line in run("losetup", "-a").splitlines()
                 if str(self.base) + "/" in line]
        left += [f"process {p}" for p in self.processes()]
        for place in ("state", "run", "pool"):
            if (self.base / place).exists():
                left.append(f"directory {self.base / place}")
        if f"skerry-{self.name}" in (e.pw_name for e in pwd.getpwall()):
            left.append(f"user skerry-{self.name}")
        return left

    def processes(self):
        """Processes with ids of the instance's ranges, or with its directory on their command
        line. Zombies are their parent's business."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                status = (entry / "status").read_text()
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            state = re.search(r"^State:\s+(\S)", status, re.M).group(1)
            uid = int(re.search(r"^Uid:\s+(\d+)", status, re.M).group(1))
            if state not in "ZX" and (self.id_base <= uid < self.id_end or f"{self.base}/" in line):
                found.append(f"{entry.name} ({line.strip() or status.split()[1]})")
        return found

    # --- logs ---------------------------------------------------------------------------------

    def log(self, service):
        return (self.base / "log" / service).read_text(errors="replace")

    def logs(self):
        """The ends of all logs, for a failing test's message."""
        out = []
        for file in sorted((self.base / "log").iterdir()):
            out.append(f"--- {file.name}\n" + file.read_text(errors="replace")[-3000:])
        return "\n".join(out)

    def _collect_logs(self):
        if self.keep_logs and (self.base / "log").is_dir():
            shutil.copytree(self.base / "log", self.keep_logs, dirs_exist_ok=True)

    # --- its API ------------------------------------------------------------------------------

    def _token(self):
        entry = pwd.getpwnam(f"skerry-{self.name}")
        done = subprocess.run(
            [self.skerryd, "--config", self.config, "--add-token", "test"],
            user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], check=True,
            capture_output=True, text=True, timeout=30,
        )
        token = done.stdout.strip()
        if not token.startswith("skry_"):
            raise RuntimeError(f"no token: {done.stdout!r} {done.stderr!r}")
        return token

    def raw(self, method, path, body=None, headers=None, token="own", timeout=120):
        """A request with the path as given; `body` is bytes or a file."""
        headers = dict(headers or {})
        if token == "own":
            token = self.token
        if token:
            headers.setdefault("Authorization", f"Bearer {token}")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        except http.client.HTTPException as e:
            raise OSError(f"{method} {path}: {e!r}") from e
        finally:
            connection.close()

    def api(self, method, path, body=None, **more):
        """A request below the workspace; `body` is any JSON value."""
        headers = more.pop("headers", {})
        if body is not None:
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        return self.raw(method, "/workspaces/default" + path, body, headers, **more)

    def cli(self, *words, **more):
        """The command line program, pointed here; stdout and stderr as text."""
        env = dict(os.environ, SKERRY_URL=f"http://127.0.0.1:{self.port}",
                   SKERRY_TOKEN=self.token, HOME=str(self.base))
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([self.program("skerry"), *words], env=env, capture_output=True,
                              text=True, timeout=more.pop("timeout", 300), **more)

    def import_image(self, recipe=RECIPE, name=None):
        """Builds the image (once per host) and imports it; answers its name."""
        done = subprocess.run(
            [TREE / "images/build", "--tar", recipe],
            env=dict(os.environ, SKERRY_IMAGE_CACHE=IMAGE_CACHE), check=True,
            stdout=subprocess.PIPE, text=True, timeout=900,
        )
        name = name or recipe.replace("debian-12", "debian:12", 1)
        done = self.cli("image", "import", name, "--user", "skerry", "--work-dir", "/workspace",
                        done.stdout.strip())
        if done.returncode:
            raise RuntimeError(f"import of {name}: {done.stdout}{done.stderr}\n{self.logs()}")
        return name


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    with Instance(build) as skerry:
        # what `skerry create` takes by default is the small one here, which is there sooner
        skerry.import_image()
        skerry.import_image(name="debian:12")
        env = dict(
            os.environ,
            SKERRY_URL=f"http://127.0.0.1:{skerry.port}", SKERRY_TOKEN=skerry.token,
            PATH=f"{os.path.dirname(skerry.program('skerry'))}:{os.environ['PATH']}",
        )
        print(f"instance {skerry.name} below {skerry.base}, API at {env['SKERRY_URL']};"
              " ends with this shell\n"
              f"images: {IMAGE}, also as debian:12 ('skerry create q' works)", flush=True)
        subprocess.run([os.environ.get("SHELL", "/bin/sh")], env=env)


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, subprocess.CalledProcessError) as e:
        sys.exit(f"instance.py: {e}")
