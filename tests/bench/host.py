"""What the measurements run against: a pool and a keeper of their own, and bundles for the runtimes
compared with. Everything lies below one directory and goes with stop()."""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

SLOTS = 512
ID_BASE = 0x3C000000
CONTAINER_IDS = 0x3F000000


def run(*words):
    done = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


class Stepper:
    """A program that does one step for each byte and answers it with a line of nanoseconds."""

    def __init__(self, *words):
        self.child = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)

    def line(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.child.args[0]} ended with {self.child.wait()}")
        return line.decode().strip()

    def step(self, letter):
        self.child.stdin.write(letter.encode())
        self.child.stdin.flush()
        return [int(n) for n in self.line().split()]

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class MountView:
    """What crun gets to see: it refuses to work where the v2 hierarchy beside v1 ones has a
    controller, so there it runs in a mount namespace without that hierarchy."""

    LIBC = ctypes.CDLL(None, use_errno=True)
    NEWNS, PRIVATE = 0x00020000, 0x44000

    def __init__(self):
        unified = pathlib.Path("/sys/fs/cgroup/unified")
        self.fd = self.home = None
        if not unified.exists() or not (unified / "cgroup.controllers").read_text().strip():
            return
        self.home = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        ready = os.pipe()
        child = os.fork()
        if child == 0:
            libc = self.LIBC
            ok = (libc.unshare(self.NEWNS) == 0
                  and libc.mount(b"none", b"/", None, self.PRIVATE, None) == 0
                  and libc.umount2(bytes(unified), 2) == 0)
            os.write(ready[1], b"y" if ok else b"n")
            signal.pause()
        made = os.read(ready[0], 1) == b"y"
        if made:
            self.fd = os.open(f"/proc/{child}/ns/mnt", os.O_RDONLY)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if not made:
            raise RuntimeError("no mount namespace for crun")

    def _go(self, fd):
        if fd is not None and self.LIBC.setns(fd, self.NEWNS):
            raise OSError(ctypes.get_errno(), "setns")

    def __enter__(self):
        self._go(self.fd)

    def __exit__(self, *_):
        self._go(self.home)


class Host:
    def __init__(self, build, tar, number=0):
        """`number`: 0 or 1, so that two builds can be compared in one run."""
        self.number = number
        self.instance = f"skbench{number}"
        self.build = pathlib.Path(build).resolve()
        self.tar = tar
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="skerry-bench-", dir="/var/tmp"))
        self.pool = self.base / "pool"
        self.root = self.base / "root"
        self.keeper = self.drive = None
        self.containers = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        os.chmod(self.base, 0o755)
        for name in ("pool", "root", "run"):
            (self.base / name).mkdir()
        # as /run is
        run("mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", self.base / "run")
        run("truncate", "-s", "10G", self.base / "pool.img")
        run("mkfs.btrfs", "-q", self.base / "pool.img")
        run("mount", "-o", "loop,nosuid,nodev,noexec,noatime", self.base / "pool.img", self.pool)
        run(self.build / "packaging/skerry-quota", self.pool)
        self._start_keeper()
        self.drive = Stepper(self.build / "tests/bench/drive", self.base / "run", self.tar)
        self.layer = self.pool / "layers" / self.drive.line()
        (self.pool / "bench").mkdir()
        self._mount_root()
        self.view = MountView()

    def _start_keeper(self):
        conf = self.base / "keeper.conf"
        conf.write_text(
            f"instance={self.instance}\nrun_dir={self.base}/run\npool_dir={self.pool}\n"
            f"init={self.build}/src/init/skerry-init\nuid=0\ngid=0\n"
            f"id_base={ID_BASE + self.number * SLOTS * 65536}\n"
            f"slots_max={SLOTS}\nipv4=10.215.{8 * self.number}.0/21\n"
            f"ipv6=fd5b:e7c4:a10{self.number}::/48\n")
        self.log = open(self.base / "keeper.log", "wb")
        self.keeper = subprocess.Popen(
            [self.build / "src/keeper/skerry-keeper", "--config", conf],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        socket = self.base / "run/keeper.sock"
        for _ in range(500):
            if socket.exists():
                return
            if self.keeper.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError("the keeper does not start: " + (self.base / "keeper.log").read_text())

    def _mount_root(self):
        """One writable root of the same layer for the runtimes, which make none themselves."""
        disk = self.pool / "runtimes"
        for name in ("upper", "work"):
            (disk / name).mkdir(parents=True)
        run("mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir={self.layer},upperdir={disk}/upper,workdir={disk}/work", self.root)

    def bundle(self, name, args):
        """A directory for crun: the namespaces a sandbox has, /bin/true or what is asked for."""
        place = self.base / ("bundle-" + name)
        place.mkdir()
        subprocess.run(["crun", "spec"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        spec = json.loads((place / "config.json").read_text())
        spec["root"] = {"path": str(self.root), "readonly": False}
        spec["process"].update(terminal=False, args=args, noNewPrivileges=False)
        ids = [{"containerID": 0, "hostID": CONTAINER_IDS, "size": 65536}]
        spec["linux"].update(uidMappings=ids, gidMappings=ids, namespaces=[
            {"type": t} for t in ("user", "mount", "pid", "network", "ipc", "uts", "cgroup")])
        # crun refuses its mount on a hybrid host
        spec["mounts"] = [m for m in spec["mounts"] if m["type"] != "cgroup"]
        spec["linux"].pop("resources", None)
        (place / "config.json").write_text(json.dumps(spec))
        return place

    def crun(self, *words):
        return ["/usr/bin/crun", "--cgroup-manager=disabled", f"--root={self.base}/crun", *words]

    def container(self, name):
        """A running container to execute in."""
        bundle = self.bundle(name, ["/bin/sleep", "infinity"])
        # its standard files stay open with it, so they must not be pipes to us; crun gives them to
        # the container's root, so they must not be the host's /dev/null either
        with self.view, tempfile.TemporaryFile() as own:
            subprocess.run(self.crun("run", "--detach", "--bundle", str(bundle), name), check=True,
                           stdin=own, stdout=own, stderr=own, timeout=60)
        self.containers.append(name)
        return name

    def stop(self):
        for name in self.containers:
            with self.view:
                subprocess.run(self.crun("delete", "--force", name), check=False)
        if self.drive:
            self.drive.close()
        if self.keeper:
            self.keeper.send_signal(signal.SIGTERM)
            self.keeper.wait()
            self.log.close()
        for place in (self.root, self.pool, self.base / "run"):
            if os.path.ismount(place):
                run("umount", place)
        subprocess.run(["nft", "delete", "table", "inet", self.instance], stderr=subprocess.DEVNULL,
                       check=False)
        for gateway in (f"10.215.{8 * self.number}.1/32", f"fd5b:e7c4:a10{self.number}::1/128"):
            subprocess.run(["ip", "addr", "del", gateway, "dev", "lo"],
                           stderr=subprocess.DEVNULL, check=False)
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            if " - cgroup" in line:
                group = pathlib.Path(line.split()[4]) / self.instance
                if group.exists():
                    group.rmdir()
        shutil.rmtree(self.base)
