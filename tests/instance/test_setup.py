"""skerry-setup by itself: what it refuses, what it survives, and that it removes only its own.

No daemon runs here. Where a case needs the host to look different (routes, /etc/subuid, sysctls) it
runs in namespaces of its own.
"""

import os
import pathlib
import pwd
import random
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import time

import pytest

from instance import TREE, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="skerry-setup needs root")

SETUP = TREE / "packaging/skerry-setup"
LINK = "ip link add d0 type veth peer name d1; ip link set d1 up; ip link set d0 up;"


def sh(script, **more):
    return subprocess.run(["sh", "-euc", script], capture_output=True, text=True, timeout=120,
                          **more)


def mounts(path):
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines if line.split()[4].startswith(str(path))]


def loops(path):
    return sh(f"losetup -n -O NAME -j {shlex.quote(str(path))}").stdout.split()


class Host:
    """One configuration below a directory of its own."""

    def __init__(self, base, instance):
        self.base = base
        self.instance = instance
        self.config = base / "etc/skerry.yaml"
        self.pool = base / "pool/pool.img"
        self.mount = base / "pool/fs"
        self.user = f"skerry-{instance}"
        self.skerryd = base / "etc/skerryd"
        self.write()

    def write(self, **changes):
        values = {
            "state_dir": self.base / "state", "id_base": 0x68000000, "ipv4": "10.214.252.0/24",
            "pool": self.pool, "listen": "127.0.0.1:1", **changes,
        }
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            f"instance: {self.instance}\n"
            f"state_dir: {values['state_dir']}\n"
            f"run_dir: {self.base}/run\n"
            f"user: {self.user}\ngroup: {self.user}\n"
            f"listen: {values['listen']}\n"
            f"id_base: {values['id_base']}   # of tests\n"
            f"network:\n  ipv4: \"{values['ipv4']}\"\n"
            f"pool:\n  path: {values['pool']}\n  dir: {self.mount}\n")

    @property
    def env(self):
        build = TREE / os.environ.get("SKERRY_TEST_BUILD", "build")
        env = dict(os.environ, POOL_SIZE=str(2 << 30),
                   SKERRYD=str(self.skerryd if self.skerryd.exists() else
                               build / "src/daemon/skerryd"),
                   SKERRY_KEEPER=str(build / "src/keeper/skerry-keeper"),
                   SKERRY_QUOTA=str(build / "packaging/skerry-quota"))
        env.pop("POOL", None)
        return env

    def start(self, *verbs):
        line = " && ".join(f"{SETUP} --config {self.config} {verb}" for verb in verbs)
        return subprocess.Popen(["sh", "-c", line], env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def run(self, *verbs):
        child = self.start(*verbs)
        out, err = child.communicate(timeout=120)
        return subprocess.CompletedProcess(verbs, child.returncode, out, err)

    def ok(self, *verbs):
        done = self.run(*verbs)
        assert done.returncode == 0, done.stderr
        return done

    def refused(self, *verbs):
        done = self.run(*verbs)
        assert done.returncode == 1, f"{done.stdout}{done.stderr}"
        return done.stderr

    def within(self, script, verb="prepare", then=":"):
        """A verb in mount and network namespaces of its own, after `script`."""
        whole = ("mount --make-rprivate /; mount -t tmpfs none /run; ip link set lo up\n"
                 f"{script}\n{SETUP} --config {self.config} {verb}\n{then}")
        return subprocess.run(["unshare", "-m", "-n", "sh", "-euc", whole], env=self.env,
                              capture_output=True, text=True, timeout=120)


@pytest.fixture
def host(request):
    base = pathlib.Path(f"/var/tmp/skerry-test/setup-{os.getpid()}")
    shutil.rmtree(base, ignore_errors=True)
    hosts = []

    def make(name="sktz"):
        hosts.append(Host(base / name, name))
        return hosts[-1]

    first = make()
    first.another = make
    yield first
    for one in hosts:
        for device in loops(one.pool):
            one.run("pool-down")
        if one.config.exists():
            one.ok("purge")
        assert not loops(one.pool)
    assert not mounts(base)
    shutil.rmtree(base)


def users():
    return [entry.pw_name for entry in pwd.getpwall()]


def test_up_twice_and_purge_leaves_nothing(host):
    host.ok("prepare", "pool-up")
    text = host.config.read_text()
    assert "  ipv6: fd" in text
    uuid = sh(f"blkid -p -o value -s UUID {host.pool}").stdout
    host.ok("prepare", "pool-up", "pool-up")
    assert host.config.read_text() == text
    assert sh(f"blkid -p -o value -s UUID {host.pool}").stdout == uuid
    assert mounts(host.base) == [str(host.mount)]
    assert len(loops(host.pool)) == 1
    options = sh(f"findmnt -n -o OPTIONS {host.mount}").stdout
    assert {"nosuid", "nodev", "noexec"} <= set(options.strip().split(","))
    assert (host.mount.parent.stat().st_mode & 0o777) == 0o700
    host.ok("purge")
    assert not mounts(host.base) and not loops(host.pool)
    assert sorted(p.name for p in host.base.iterdir()) == []
    assert host.user not in users()
    assert not pathlib.Path(f"/var/log/{host.instance}").exists()
    host.ok("purge")


def test_pool_down_keeps_the_content(host):
    host.ok("prepare", "pool-up")
    (host.mount / "kept").write_text("x")
    host.ok("pool-down", "pool-down")
    assert not mounts(host.base) and not loops(host.pool)
    host.ok("pool-up")
    assert (host.mount / "kept").read_text() == "x"


@pytest.mark.parametrize("content", ["text", "ext4", "zeros"])
def test_a_file_with_anything_in_it_is_not_formatted(host, content):
    host.ok("prepare")
    if content == "text":
        host.pool.write_text("somebody's notes\n" * 1000)
    else:
        sh(f"truncate -s 64M {host.pool}")
        if content == "ext4":
            assert sh(f"mkfs.ext4 -q {host.pool}").returncode == 0
    before = host.pool.read_bytes()
    assert "not a pool" in host.refused("pool-up")
    assert host.pool.read_bytes() == before
    assert not loops(host.pool)
    host.pool.unlink()


@pytest.mark.parametrize("kind", ["ext4", "partitions", "btrfs", "blank"])
def test_a_device_is_formatted_only_when_blank(host, kind):
    host.ok("prepare")
    file = host.base / "disk"
    sh(f"truncate -s 256M {file}")
    if kind == "ext4":
        sh(f"mkfs.ext4 -q {file}")
    elif kind == "partitions":
        # an empty table of the oldest kind: its signature and nothing else
        with open(file, "r+b") as disk:
            disk.seek(446)
            disk.write(bytes([0, 1, 1, 0, 0x83, 1, 1, 0]) + (2048).to_bytes(4, "little")
                       + (4096).to_bytes(4, "little"))
            disk.seek(510)
            disk.write(b"\x55\xaa")
    elif kind == "btrfs":
        sh(f"mkfs.btrfs -q -L photos {file}")
    before = file.read_bytes()
    device = sh(f"losetup --find --show {file}").stdout.strip()
    try:
        host.write(pool=device)
        host.ok("prepare")
        if kind == "blank":
            host.ok("pool-up", "pool-up", "pool-down", "pool-up")
            assert mounts(host.base) == [str(host.mount)]
            host.ok("purge")
            assert sh(f"wipefs -n {device}").stdout == ""
        else:
            assert "wipefs" in host.refused("pool-up")
            assert file.read_bytes() == before
            assert not mounts(host.base)
    finally:
        sh(f"losetup -d {device}")
        host.write()


def test_one_file_on_two_loop_devices_is_refused(host):
    host.ok("prepare", "pool-up", "pool-down")
    devices = [sh(f"losetup --find --show {host.pool}").stdout.strip() for _ in range(2)]
    try:
        assert "several loop devices" in host.refused("pool-up")
        assert not mounts(host.base)
    finally:
        for device in devices:
            sh(f"losetup -d {device}")


def test_a_copy_of_a_mounted_pool_is_refused(host):
    host.ok("prepare", "pool-up", "pool-down")
    other = host.another("sktx")
    other.write(ipv4="10.214.253.0/24")
    other.ok("prepare")
    assert sh(f"cp --sparse=always {host.pool} {other.pool}").returncode == 0
    host.ok("pool-up")
    assert "is mounted from" in other.refused("pool-up")
    assert not mounts(other.base)


def test_a_loop_device_left_by_a_crash_is_used_again(host):
    host.ok("prepare", "pool-up")
    device = loops(host.pool)
    assert sh(f"umount {host.mount}").returncode == 0
    host.ok("pool-up")
    assert loops(host.pool) == device


def test_directories_of_others_are_left_alone(host):
    theirs = host.base / "theirs"
    (theirs / "deep").mkdir(parents=True)
    theirs.chmod(0o711)
    host.write(state_dir=theirs)
    assert "was not made by this set-up" in host.refused("prepare")
    assert theirs.stat().st_mode & 0o777 == 0o711 and theirs.stat().st_uid == 0
    host.ok("purge")
    assert (theirs / "deep").is_dir()
    shutil.rmtree(theirs)


def test_a_link_in_place_of_a_directory_is_refused(host):
    target = host.base / "target"
    target.mkdir()
    (host.base / "state").symlink_to(target)
    assert "symbolic link" in host.refused("prepare")
    assert target.stat().st_uid == 0
    (host.base / "state").unlink()
    target.rmdir()


def test_purge_does_not_walk_into_mounts(host):
    host.ok("prepare")
    inside = host.base / "state/data"
    inside.mkdir()
    assert sh(f"mount -t tmpfs none {inside}; touch {inside}/precious").returncode == 0
    try:
        assert "still mounted" in host.refused("purge")
        assert (inside / "precious").exists()
    finally:
        sh(f"umount {inside}")
    host.ok("purge")
    assert not (host.base / "state").exists()


@pytest.mark.parametrize("route, verdict", [
    ("10.214.252.128/25", "overlaps"),
    ("10.214.0.0/16", "overlaps"),
    ("10.0.0.0/8", "overlaps"),
    ("10.214.253.0/24", "free"),
    ("0.0.0.0/1", "free"),
    ("default", "free"),
])
def test_ranges_of_the_host_are_refused(host, route, verdict):
    done = host.within(f"{LINK} ip route add {route} dev d0")
    if verdict == "free":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1 and "network.ipv4" in done.stderr and "d0" in done.stderr


def test_a_route_of_another_table_counts(host):
    done = host.within(f"{LINK} ip route add 10.214.252.0/23 dev d0 table 77")
    assert done.returncode == 1 and "network.ipv4" in done.stderr


def test_own_links_and_the_gateway_do_not_count(host):
    done = host.within(
        f"{LINK} ip link set d0 name {host.instance}-5 up;"
        f" ip route add 10.214.252.21/32 dev {host.instance}-5;"
        " ip address add 10.214.252.1/32 dev lo")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line, verdict", [
    ("someone:100000:65536", "free"),
    (f"someone:{0x68000000 - 65536}:65536", "free"),
    (f"someone:{0x68000000 - 65536}:65537", "overlaps"),
    (f"someone:{0x68000000 + 65536}:10", "overlaps"),
    ("someone:0:4294967295", "overlaps"),
])
def test_subordinate_ids_are_refused(host, line, verdict):
    fake = host.base / "subuid"
    fake.write_text(line + "\n")
    done = host.within(f"touch /etc/subuid; mount --bind {fake} /etc/subuid")
    fake.unlink()
    if verdict == "free":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1 and "id_base" in done.stderr


def test_sysctls_come_back_with_the_last_instance(host):
    other = host.another("sktx")
    other.write(ipv4="10.214.253.0/24")
    show = "cat /proc/sys/net/ipv4/ip_forward;"
    run = lambda one, verb: f"{SETUP} --config {one.config} {verb} >/dev/null;"
    done = host.within(
        "echo 0 >/proc/sys/net/ipv4/ip_forward",
        then=show + run(other, "prepare") + run(host, "purge") + show + run(other, "purge") + show)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == ["1", "1", "0"], done.stdout
    host.write()
    other.write()


def test_a_bad_configuration_is_refused_by_name(host):
    for change, word in [
        ({"ipv4": "10.214.252.0"}, "network.ipv4"),
        ({"ipv4": "10.214.252.0/30"}, "network.ipv4"),
        ({"id_base": "12"}, "id_base"),
        ({"id_base": "1879048193"}, "id_base"),
        ({"id_base": "99999999999999999999"}, "id_base"),
        ({"state_dir": "/var"}, "state_dir"),
        ({"state_dir": "/var/lib/../../etc"}, "state_dir"),
        ({"state_dir": "relative"}, "state_dir"),
    ]:
        host.write(**change)
        assert word in host.refused("prepare"), change
    host.write()


def test_a_loop_device_that_stays_is_told_with_who_holds_it(host):
    host.ok("prepare", "pool-up")
    device = loops(host.pool)[0]
    holder = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sleep", "600"])
    try:
        wait_until(lambda: str(host.mount) in pathlib.Path(
            f"/proc/{holder.pid}/mountinfo").read_text() and os.readlink(
            f"/proc/{holder.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"), 10, "a namespace")
        done = host.ok("pool-down")
        assert not mounts(host.base)
        assert device in done.stderr and f" {holder.pid} " in done.stderr, done.stderr
        assert loops(host.pool) == [device]
        host.ok("pool-up")
        assert loops(host.pool) == [device]
    finally:
        holder.kill()
        holder.wait()
    assert host.ok("pool-down").stderr == ""
    assert not loops(host.pool)


def test_a_taken_port_is_refused_with_who_has_it(host):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        host.write(listen=f"127.0.0.1:{port}")
        said = host.refused("prepare")
        assert "'listen'" in said and f"127.0.0.1:{port}" in said
        assert f"process {os.getpid()}" in said, said
        assert host.user not in users()
        host.write(listen=f"127.0.0.2:{port}")
        host.ok("prepare")
    host.write(listen=f"127.0.0.1:{port}")
    host.ok("prepare")


def test_services_start_without_our_niceness_and_tell_why_one_stays_down(host):
    build = TREE / os.environ.get("SKERRY_TEST_BUILD", "build")
    # where the service user can read it
    shutil.copy(build / "src/daemon/skerryd", host.skerryd)
    keeper = host.base / "etc/keeper"
    keeper.write_text("#!/bin/sh\nexec sleep 600\n")
    keeper.chmod(0o755)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host.write(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        host.ok("prepare", "pool-up")
        taken.listen()
        try:
            done = subprocess.run(
                ["nice", "-n", "7", SETUP, "--config", host.config, "services-up"],
                env=dict(host.env, SKERRY_KEEPER=str(keeper)), capture_output=True, text=True,
                timeout=120)
            assert done.returncode == 1
            assert "'edge' does not stay up" in done.stderr, done.stderr
            assert "already in use" in done.stderr, done.stderr
            assert "'keeper' does not" not in done.stderr, done.stderr
            pid = (host.base / "run/setup/keeper/pid").read_text()
            assert os.getpriority(os.PRIO_PROCESS, int(pid)) == 0
        finally:
            host.ok("services-down")
    host.ok("purge")
    keeper.unlink()
    host.skerryd.unlink()


def test_purge_removes_archives_of_its_record_only(host):
    cache = pathlib.Path(f"/var/cache/{host.instance}/images")
    for theirs in (["debian-12-2.tar"], []):
        if not host.config.exists():
            host.write()
        host.ok("prepare")
        cache.mkdir(parents=True, exist_ok=True)
        for name in ["debian-12-1.tar", "debian-12-1.tar.log", ".lock", *theirs]:
            (cache / name).touch()
        (host.config.parent / "setup/archives").write_text(
            f"{cache}/debian-12-1.tar\n{cache}/../precious\n")
        (cache.parent / "precious").touch()
        host.ok("purge")
        assert (cache.parent / "precious").exists()
        assert sorted(p.name for p in cache.glob("*")) == ([".lock"] + theirs if theirs else [])
        for name in theirs:
            (cache / name).unlink()
    assert not cache.exists()
    shutil.rmtree(cache.parent)


def test_purge_says_what_goes(host):
    host.ok("prepare")
    database = sqlite3.connect(host.base / "state/skerry.db")
    database.execute("CREATE TABLE sandboxes(id)")
    database.executemany("INSERT INTO sandboxes VALUES (?)", [("a",), ("b",)])
    database.commit()
    database.close()
    said = host.ok("purge").stdout
    assert "deletes 2 sandboxes" in said and "make down" in said, said


def test_survives_being_killed_anywhere(host):
    """Up and purge are killed at random moments, again and again; the next run completes."""
    rng = random.Random(20)
    seconds = lambda *verbs: (time.monotonic(), host.ok(*verbs), time.monotonic())
    begin, _, end = seconds("prepare", "pool-up")
    up = end - begin
    begin, _, end = seconds("purge")
    down = end - begin
    for turn in range(24):
        verbs, span = (("prepare", "pool-up"), up) if turn % 3 else (("purge",), down)
        if not host.config.exists():
            host.write()
        child = host.start(*verbs)
        time.sleep(rng.random() * span)
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        if turn % 4 == 3:
            if not host.config.exists():
                host.write()
            host.ok("prepare", "pool-up")
            assert len(loops(host.pool)) == 1
            assert mounts(host.base) == [str(host.mount)]
    if not host.config.exists():
        host.write()
    host.ok("purge")
    assert not mounts(host.base) and not loops(host.pool)
    assert host.user not in users()
