"""Ways out of a sandbox, tried from inside by its root and by its user."""

import errno
import os
import pathlib
import re
import subprocess

import pytest

from instance import TREE
from kit import IMAGE, background, execute, gone, put_file, sandbox_pid, until

PROBE = "/usr/local/bin/probe"
DENIED = {errno.EPERM, errno.EACCES}


@pytest.fixture(scope="session")
def probe_program(tmp_path_factory):
    out = tmp_path_factory.mktemp("probe") / "probe"
    subprocess.run(["gcc", "-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o", out,
                    pathlib.Path(__file__).with_name("probe.c")], check=True)
    return out.read_bytes()


def make(instance, probe_program, name):
    answer = instance.api("POST", "/sandboxes?wait=running", {"name": name, "os": IMAGE})
    assert answer.status == 201, f"{answer}\n{instance.logs()}"
    put_file(instance, answer.json, PROBE, probe_program)
    return answer.json


@pytest.fixture(scope="module")
def cell(instance, probe_program):
    made = make(instance, probe_program, "cell")
    yield made
    gone(instance, made["id"])


@pytest.fixture(scope="module")
def neighbour(instance, probe_program):
    made = make(instance, probe_program, "neighbour")
    yield made
    gone(instance, made["id"])


@pytest.fixture(params=["root", "skerry"])
def user(request):
    return request.param


@pytest.fixture
def sh(instance, cell):
    return lambda command, **fields: execute(instance, cell, command, **fields)


@pytest.fixture
def probe(instance, cell):
    """probe(what, …): the errno of each try, in order, as (what was tried, errno)."""

    def run(*words, user="root"):
        done = execute(instance, cell, args=[PROBE, *map(str, words)], user=user)
        assert done["exit_code"] == 0, done
        rows = [line.rsplit(" ", 1) for line in done["stdout"].splitlines()]
        return [(what, int(number)) for what, number in rows]

    return run


# --- the table of system calls -------------------------------------------------------------------

def rows_of_the_filter():
    text = (TREE / "src/keeper/filter.c").read_text()
    calls = re.findall(r"\{ CALL\((\w+)\), (\w+),", text)
    ioctls = re.findall(r"\{ ((?:BTRFS_IOC|TIOC)\w+),", text)
    newest = int(re.search(r"NEWEST_CALL = (\d+)", text).group(1))
    assert len(calls) > 20 and len(ioctls) > 5
    return calls, ioctls, newest


CALLS, IOCTLS, NEWEST = rows_of_the_filter()


# what may never leave the table; a row that goes takes its test below with it
ALWAYS = {"open_by_handle_at", "init_module", "finit_module", "delete_module", "kexec_load",
          "kexec_file_load", "bpf", "perf_event_open", "userfaultfd", "add_key", "request_key",
          "keyctl", "io_uring_setup", "io_uring_enter", "io_uring_register", "swapon", "reboot",
          "clock_settime", "settimeofday", "iopl", "ioperm"}
ALWAYS_IOCTLS = {"BTRFS_IOC_SUBVOL_CREATE", "BTRFS_IOC_SUBVOL_CREATE_V2", "BTRFS_IOC_SNAP_CREATE",
                 "BTRFS_IOC_SNAP_CREATE_V2", "BTRFS_IOC_SNAP_DESTROY", "BTRFS_IOC_SNAP_DESTROY_V2",
                 "BTRFS_IOC_DEFAULT_SUBVOL", "TIOCSTI", "TIOCLINUX"}


def test_the_table_is_whole():
    assert ALWAYS <= {name for name, _ in CALLS}
    assert ALWAYS_IOCTLS <= set(IOCTLS)


@pytest.fixture(scope="session")
def constants(tmp_path_factory):
    """The numbers of all constants of the table, from the host's compiler; None where it has none."""
    names = [f"SYS_{name}" for name, _ in CALLS] + IOCTLS
    text = "".join(f"#include <{h}>\n" for h in ("stdio.h", "sys/syscall.h", "sys/ioctl.h",
                                                 "linux/btrfs.h")) + "int main(void) {\n"
    for name in names:
        text += f'#ifdef {name}\nprintf("{name} %lu\\n", (unsigned long)({name}));\n#endif\n'
    program = tmp_path_factory.mktemp("constants") / "constants"
    subprocess.run(["gcc", "-x", "c", "-o", program, "-"], input=text + "}\n", text=True, check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    found = dict(line.split(" ") for line in done.stdout.splitlines())
    return {name: found.get(name) for name in names}


@pytest.mark.parametrize("name,error", CALLS, ids=[c[0] for c in CALLS])
def test_refused_call(probe, constants, user, name, error):
    number = constants[f"SYS_{name}"]
    if not number:
        pytest.skip(f"no call {name} on this architecture")
    assert probe("calls", number, user=user) == [(number, getattr(errno, error))]


@pytest.mark.parametrize("name", IOCTLS)
def test_refused_ioctl(sh, probe, constants, name):
    number = int(constants[name])
    place = "/var/lib/docker"  # the pool's own file system, no overlay above it
    sh(f"mkdir -p {place}", user="root")
    high = number | 1 << 32
    assert probe("ioctls", place, number, high) == [(str(number), errno.EPERM),
                                                    (str(high), errno.EPERM)]
    assert probe("ioctls", "/", number) == [(str(number), errno.EPERM)]
    assert sh(f"ls {place} | grep made || true", user="root")["stdout"] == ""


def test_newer_calls_do_not_exist(probe, user):
    numbers = [*range(NEWEST + 1, NEWEST + 40), 1000, 0x3fffffff]
    assert probe("calls", *numbers, user=user) == [(str(n), errno.ENOSYS) for n in numbers]


def test_foreign_abis_are_killed(probe, user):
    assert probe("foreign", user=user) == [("x32", -31), ("i386", -31)]


def test_socket_families(probe, user):
    import socket

    allowed = {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK,
               socket.AF_PACKET}
    for family, error in probe("families", user=user):
        if int(family) not in allowed:
            assert error == errno.EAFNOSUPPORT, family
        elif int(family) != socket.AF_PACKET or user == "root":
            assert error == 0, family


def test_terminals(probe, user):
    assert probe("tty", user=user) == [("TIOCSTI", errno.EPERM), ("TIOCSTI-high", errno.EPERM),
                                       ("TIOCLINUX", errno.EPERM)]


def test_open_by_handle(probe, user):
    assert probe("handles", user=user) == [("open_by_handle_at", errno.EPERM)]


def test_the_filter_is_on_everything(sh, user):
    look = "grep -E 'Seccomp:|NoNewPrivs' /proc/self/status"
    assert sh(look, user=user)["stdout"].split() == ["NoNewPrivs:", "0", "Seccomp:", "2"]
    nested = "unshare -Urpf --mount-proc grep Seccomp: /proc/self/status"
    assert sh(nested, user=user)["stdout"].split() == ["Seccomp:", "2"]
    if user == "skerry":
        assert sh("grep CapEff /proc/self/status")["stdout"].split()[1].strip("0") == ""


# --- devices -------------------------------------------------------------------------------------

def loop_device(instance):
    """The pool's own block device: what a way out would read."""
    source = subprocess.run(["findmnt", "-n", "-o", "SOURCE", instance.base / "pool/fs"],
                            capture_output=True, text=True, check=True).stdout.strip()
    device = os.stat(source.split("[")[0]).st_rdev
    return os.major(device), os.minor(device)


def test_nodes_made_inside(instance, sh, probe):
    places = ["/", "/tmp", "/dev", "/dev/shm", "/run", "/var/lib/docker", "/root", "/tmp/own"]
    sh("mkdir -p /tmp/own; mountpoint -q /tmp/own || mount -t tmpfs own /tmp/own", user="root")
    for major, minor in (loop_device(instance), (1, 1), (1, 11), (8, 0), (254, 0)):
        tried = probe("nodes", major, minor, *places)
        assert [t for t in tried if t[1] not in DENIED] == [], (major, minor)
    nested = sh(f"unshare -Urm sh -c 'mount -t tmpfs x /mnt; {PROBE} nodes 1 1 /mnt /tmp'")
    assert set(re.findall(r" (\d+)$", nested["stdout"], re.M)) <= {"1", "13"}, nested


def test_nodes_that_lie_on_the_disk(instance, new_sandbox):
    """As an image or a snapshot could bring them: the host puts them there."""
    sandbox = new_sandbox()
    execute(instance, sandbox, "mkdir /var/lib/docker/d; chmod 777 /var/lib/docker", user="root")
    instance.api("POST", f"/sandboxes/{sandbox['id']}/stop", {"grace": 0})
    disk = next((instance.base / "pool/fs/sandboxes").glob(f"*{sandbox['id']}*"))
    major, minor = loop_device(instance)
    upper = disk / "root/upper"
    places = {upper / "srv-node": "/srv-node", disk / "engine/docker/node": "/var/lib/docker/node"}
    assert upper.is_dir() and (disk / "engine/docker").is_dir()
    for place in places:
        os.mknod(place, 0o660 | 0o060000, os.makedev(major, minor))
        os.chmod(place, 0o666)
    assert instance.api("POST", f"/sandboxes/{sandbox['id']}/start").status == 200
    for inside in places.values():
        for user in "root", "skerry":
            done = execute(instance, sandbox, f"stat -c %F {inside}; head -c 1 {inside} | wc -c; "
                           f"mount -o remount,bind,dev / 2>&1; head -c 1 {inside} | wc -c",
                           user=user)
            assert "block special file\n0\n" in done["stdout"], done
            assert done["stdout"].endswith("0\n"), done
            assert re.search("Permission denied|not permitted", done["stderr"]), done


LIST_DEV = """
import os, stat
for top, dirs, files in os.walk('/dev'):
    if top == '/dev': dirs.remove('.skerry')
    if top == '/dev/pts': files = []
    for name in dirs + files:
        path = os.path.join(top, name)
        st = os.lstat(path)
        print(path[5:], stat.filemode(st.st_mode),
              os.readlink(path) if stat.S_ISLNK(st.st_mode) else os.major(st.st_rdev),
              '' if stat.S_ISLNK(st.st_mode) else os.minor(st.st_rdev))
"""


def test_what_is_in_dev(sh):
    done = sh(LIST_DEV, runtime="PYTHON", user="root")["stdout"]
    assert sorted(line.strip() for line in done.splitlines()) == sorted([
        "full crw-rw-rw- 1 7", "fuse crw-rw-rw- 10 229", "net/tun crw-rw-rw- 10 200",
        "null crw-rw-rw- 1 3", "random crw-rw-rw- 1 8", "tty crw-rw-rw- 5 0",
        "urandom crw-rw-rw- 1 9", "zero crw-rw-rw- 1 5", "core lrwxrwxrwx /proc/kcore",
        "fd lrwxrwxrwx /proc/self/fd", "ptmx lrwxrwxrwx pts/ptmx",
        "stdin lrwxrwxrwx /proc/self/fd/0", "stdout lrwxrwxrwx /proc/self/fd/1",
        "stderr lrwxrwxrwx /proc/self/fd/2", "net drwxr-xr-x 0 0", "mqueue drwxrwxrwt 0 0",
        "shm drwxrwxrwt 0 0", "pts drwxr-xr-x 0 0"])
    closed = sh("ls /dev/.skerry/proc; ls /dev/.skerry/sys; cat /dev/.skerry/proc/1/cmdline")
    assert closed["exit_code"] != 0 and closed["stdout"] == "", "closed to users"


def test_devices_work(sh, user):
    done = sh("echo x > /dev/null && head -c 3 /dev/zero | od -An -tx1 && head -c 9 /dev/urandom | "
              "wc -c; head -c 1 /dev/random | wc -c; echo x > /dev/full; echo $?; "
              "python3 -c 'import os,pty; m,s=pty.openpty(); os.write(s,b\"a\"); "
              "print(os.read(m,9), os.ttyname(s)[:9])'; exec 3<>/dev/fuse && echo fuse", user=user)
    assert done["stdout"] == " 00 00 00\n9\n1\n1\nb'a' /dev/pts/\nfuse\n", done
    assert "No space left" in done["stderr"]


def test_tun_is_of_its_own_network(sh):
    done = sh("import fcntl, struct, os\n"
              "f = os.open('/dev/net/tun', os.O_RDWR)\n"
              "fcntl.ioctl(f, 0x400454ca, struct.pack('16sH14x', b'tun7', 0x1001))\n"
              "print(os.path.exists('/sys/class/net/tun7'))", runtime="PYTHON", user="root")
    assert done["stdout"] == "True\n", done
    assert not pathlib.Path("/sys/class/net/tun7").exists()


# --- mounts --------------------------------------------------------------------------------------

def test_flags_are_locked(sh, probe):
    done = sh("awk '{print $5, $6}' /proc/self/mountinfo", user="root")["stdout"]
    flags = dict(line.split() for line in done.splitlines())
    assert "nodev" in flags["/"].split(",") and "nodev" in flags["/var/lib/docker"].split(",")
    assert "nodev" in flags["/var/lib/containerd"].split(",")
    for place in ("/", "/var/lib/docker", "/var/lib/containerd"):
        assert probe("remounts", place, 0) == [(place, errno.EPERM)]
    nested = sh(f"unshare -m {PROBE} remounts / 0 /var/lib/docker 0; "
                f"unshare -Urm {PROBE} remounts / 0 /var/lib/docker 0 /sys 14 /proc 0", user="root")
    assert set(re.findall(r" (-?\d+)$", nested["stdout"], re.M)) == {str(errno.EPERM)}, nested
    after = sh("awk '{print $5, $6}' /proc/self/mountinfo", user="root")["stdout"]
    assert after == done


def test_file_systems_of_the_host(probe, user):
    kinds = ["debugfs", "tracefs", "securityfs", "configfs", "efivarfs", "pstore", "devtmpfs",
             "btrfs", "ext4", "xfs", "vfat", "iso9660", "squashfs", "nfs", "9p", "fusectl", "bdev",
             "hugetlbfs", "rpc_pipefs", "selinuxfs", "smackfs", "pipefs", "sockfs"]
    tried = probe("mounts", *kinds, user=user)
    assert [t for t in tried if t[1] not in DENIED | {errno.ENODEV, errno.EINVAL}] == []


def test_own_mounts_work(sh):
    done = sh("mkdir -p /mnt/a && mount -t tmpfs x /mnt/a && mount --bind /usr /mnt/a && "
              "ls /mnt/a/bin >/dev/null && umount /mnt/a && umount /mnt/a && echo fine; "
              "mkdir -p /tmp/o/l /tmp/o/u /tmp/o/w /tmp/o/m && mount -t tmpfs x /tmp/o && "
              "mkdir /tmp/o/l /tmp/o/u /tmp/o/w /tmp/o/m && mount -t overlay -o "
              "lowerdir=/tmp/o/l,upperdir=/tmp/o/u,workdir=/tmp/o/w o /tmp/o/m && echo over; "
              "umount /tmp/o/m /tmp/o", user="root")
    assert done["stdout"] == "fine\nover\n", done


def test_nested_sandboxes_work(sh, user):
    for command in ("unshare -Urpf --mount-proc sh -c 'ls /proc | grep -c ^[0-9]; id -u'",
                    "unshare -Urnpf --mount-proc sh -c 'mount -t sysfs -o ro,nosuid,nodev,noexec s "
                    "/sys && ls /sys/class/net; id -u'"):
        done = sh(command, user=user)
        assert done["exit_code"] == 0 and done["stdout"].endswith("\n0\n"), done


BWRAP = r"""
unshare -Urmpfin --propagation private bash -ec '
mount -t tmpfs root /mnt
cd /mnt
mkdir usr proc dev tmp old etc
for d in bin lib lib64 sbin; do ln -s usr/$d $d; done
mount --rbind /usr usr
mount -o remount,bind,ro usr
mount -t proc proc proc
mount -t tmpfs -o mode=755 dev dev
touch dev/null dev/urandom
mount --bind /dev/null dev/null
mount --bind /dev/urandom dev/urandom
mount -t tmpfs tmp tmp
pivot_root . old
umount -l /old
exec sh -c "ls / /proc/self/task; touch /usr/x 2>&1 || echo read-only; echo \$\$; echo a > /dev/null"
'
"""


def test_a_sandbox_in_a_sandbox(sh, user):
    done = sh(BWRAP, user=user)
    assert done["exit_code"] == 0, done
    assert "read-only\n1\n" in done["stdout"] and "usr" in done["stdout"], done


def test_bubblewrap(instance, cell, sh, user):
    host = pathlib.Path("/usr/bin/bwrap")
    if not host.exists():
        pytest.skip("this host has no bwrap")
    put_file(instance, cell, "/usr/local/bin/bwrap", host.read_bytes())
    if "not found" in sh("ldd /usr/local/bin/bwrap")["stdout"]:
        pytest.skip("the image lacks bwrap's libraries")
    done = sh("bwrap --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink "
              "usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --unshare-all --die-with-parent "
              "sh -c 'echo $$; ls /proc/self/fd >/dev/null; test -e /home || echo alone'", user=user)
    assert done["exit_code"] == 0 and done["stdout"].endswith("alone\n"), done


def test_the_hosts_paths_do_not_show(instance, cell, sh):
    done = sh("cat /proc/self/mountinfo /proc/mounts /proc/self/cgroup /proc/swaps /proc/cmdline "
              "/proc/net/unix; env; cat /proc/*/cmdline", user="root")["stdout"]
    for secret in (str(instance.base), instance.name, instance.token, "/var/tmp/skerry-test"):
        assert secret not in done


# --- the kernel's files --------------------------------------------------------------------------

def test_files_of_the_kernel_are_not_written(probe, user):
    tries = {"/proc/sys/kernel/core_pattern": "|/tmp/x", "/proc/sysrq-trigger": "h",
             "/proc/sys/kernel/modprobe": "/tmp/x", "/proc/sys/vm/drop_caches": "1",
             "/proc/sys/kernel/panic": "1", "/proc/sys/fs/binfmt_misc/register": ":x:M::x::/x:",
             "/proc/sys/kernel/yama/ptrace_scope": "0", "/proc/sys/vm/overcommit_memory": "1",
             "/sys/kernel/uevent_helper": "/tmp/x", "/sys/power/state": "mem",
             "/sys/kernel/mm/transparent_hugepage/enabled": "never",
             "/sys/fs/cgroup/memory/release_agent": "/tmp/x", "/proc/1/oom_score_adj": "1000",
             "/proc/timer_list": "x", "/proc/sys/kernel/unprivileged_bpf_disabled": "0"}
    for flat in ("", "/dev/.skerry"):
        words = [w for path, text in tries.items() for w in
                 (flat + path if path.startswith(("/proc", "/sys")) else path, text)]
        tried = probe("writes", *words, user=user)
        # what is masked takes writes as /dev/null does
        masked = {"/proc/sysrq-trigger", "/proc/timer_list"} if not flat else set()
        bad = [t for t in tried if t[0] not in masked and
               t[1] not in DENIED | {errno.ENOENT, errno.EROFS}]
        assert bad == [], bad


def test_files_of_sysfs_are_not_written_even_where_they_could(sh):
    """Read-only is a courtesy: root inside may take it off its own view."""
    done = sh("unshare -m sh -c 'mount -o remount,bind,rw /sys && umount /proc/keys; "
              "for f in kernel/mm/transparent_hugepage/enabled kernel/uevent_helper power/state "
              "devices/system/cpu/cpu0/online module/kernel/parameters/panic; do "
              "[ -e /sys/$f ] && (echo x > /sys/$f) 2>/dev/null && echo wrote $f; done; "
              "wc -c < /proc/keys'", user="root")
    assert done["stdout"] == "0\n", done


def test_files_of_the_kernel_are_not_read(probe):
    tried = probe("reads", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/.skerry/proc/kcore",
                  "/dev/.skerry/proc/kpagecount",
                  "/dev/.skerry/proc/kmsg", "/proc/kmsg", "/dev/kmsg", "/proc/vmallocinfo",
                  "/dev/loop0", "/dev/sda", "/dev/vda", "/dev/loop-control", "/dev/btrfs-control")
    assert [t for t in tried if t[1] not in DENIED | {errno.ENOENT}] == []


def test_the_hosts_log_is_not_read(sh, user):
    done = sh("dmesg 2>&1 | head -3; echo ${PIPESTATUS[0]}", user=user)
    assert not done["stdout"].endswith("\n0\n") and "not permitted" in done["stdout"], done


# --- PID 1, the agent ----------------------------------------------------------------------------

def test_pid_1_is_closed(probe, user):
    secret = [f"/proc/1/{f}" for f in ("mem", "environ", "maps", "auxv", "smaps", "syscall", "stack",
                                       "personality", "pagemap", "io")]
    secret += [f"/dev/.skerry{f}" for f in secret]
    tried = probe("reads", *secret, user=user)
    assert [t for t in tried if t[1] not in DENIED] == []
    links = [f"/proc/1/{f}" for f in ("exe", "cwd", "root", "fd/0", "fd/1", "fd/3", "fd/4", "fd/5",
                                      "ns/mnt", "ns/user", "ns/cgroup", "map_files/x")]
    tried = probe("links", *links, user=user)
    assert [t for t in tried if t[1] not in DENIED | {errno.ENOENT}] == []
    assert dict(tried)["/proc/1/exe"] in DENIED and dict(tried)["/proc/1/root"] in DENIED


def test_pid_1_is_not_traced(probe, user):
    tried = probe("intrude", 1, user=user)
    assert len(tried) >= 5
    assert [t for t in tried if t[1] not in DENIED] == []


def test_the_agents_socket_is_out_of_reach(instance, cell, sh):
    done = sh("cat /proc/net/unix; find / -xdev -type s 2>/dev/null; find /run /dev /tmp -type s; "
              "find / -name '*agents*' -maxdepth 3 2>/dev/null", user="root")["stdout"]
    assert cell["id"] not in done and "skerry" not in done and "agents" not in done, done
    sockets = list((instance.base / "run").rglob(f"*{cell['id']}*"))
    assert sockets, "it does exist, on the host"
    done = sh("import socket, sys\n"
              "for name in sys.stdin.read().split('\\n'):\n"
              " for n in (name, '\\0' + name):\n"
              "  try: socket.socket(socket.AF_UNIX).connect(n); print('open', n)\n"
              "  except (OSError, ValueError): pass", runtime="PYTHON",
              stdin="\n".join(map(str, sockets)), user="root")
    assert done["stdout"] == "" and done["exit_code"] == 0, done


def test_signals_to_pid_1(sh):
    done = sh("for s in KILL STOP TERM HUP INT SEGV USR1 ABRT; do kill -$s 1; done; sleep 0.2; "
              "echo alive", user="root")
    assert done["stdout"] == "alive\n", done
    assert sh("echo again")["stdout"] == "again\n"


def test_priorities_are_reset(instance, sh):
    """PID 1's own privileges over the workload are not inherited by it."""
    nice = max(0, os.getpriority(os.PRIO_PROCESS, instance.children["keeper"].pid))
    assert sh("nice; cat /proc/self/oom_score_adj; ulimit -c")["stdout"] == f"{nice}\n0\n0\n"


# --- cgroups -------------------------------------------------------------------------------------

def test_the_view_of_cgroups(instance, cell, sh, user):
    done = sh("cat /proc/self/cgroup; ls /sys/fs/cgroup; ls /sys/fs/cgroup/init.scope 2>&1; "
              "cat /proc/1/cgroup", user=user)["stdout"]
    assert cell["id"] not in done and instance.name not in done, done
    assert not re.search(r"^init.scope$", done, re.M), done
    assert re.search(r"^0::/c-\d+$", done, re.M), done


def test_out_of_the_cgroup(instance, cell, sh):
    before = sandbox_pid(instance, cell)
    done = sh("cd /sys/fs/cgroup; for f in ../cgroup.procs ../init.scope/cgroup.procs ../../cgroup.procs "
              "/sys/fs/cgroup/../cgroup.procs; do (echo $BASHPID > $f) 2>/dev/null && echo wrote $f; "
              "done; for f in cgroup.kill cgroup.freeze cgroup.max.depth memory.max pids.max cpu.max; "
              "do [ -e $f ] && (echo 1 > $f) 2>/dev/null && echo wrote $f; done; "
              "mkdir -p /tmp/cg && mount -t cgroup2 none /tmp/cg && ls /tmp/cg | grep -c init.scope; "
              "umount /tmp/cg; cat /proc/self/cgroup | tail -1", user="root")
    assert "wrote" not in done["stdout"], done
    assert re.search(r"^0::/c-\d+$", done["stdout"], re.M), done
    assert sandbox_pid(instance, cell) == before


def test_limits_are_not_lifted(instance, new_sandbox):
    sandbox = new_sandbox(memory_mb=128, pids=64)
    if not sandbox["limits"]["enforced"]:
        pytest.skip("this host cannot enforce limits")
    done = execute(instance, sandbox, r"""
mkdir -p /tmp/cg
for c in memory pids cpu devices; do
  mount -t cgroup -o $c none /tmp/cg 2>/dev/null || continue
  for f in memory.limit_in_bytes memory.memsw.limit_in_bytes pids.max cpu.cfs_quota_us; do
    [ -e /tmp/cg/$f ] && (echo -1 > /tmp/cg/$f) 2>/dev/null && echo wrote $f
    [ -e /tmp/cg/$f ] && (echo max > /tmp/cg/$f) 2>/dev/null && echo wrote $f
  done
  [ -e /tmp/cg/devices.allow ] && (echo a > /tmp/cg/devices.allow) 2>/dev/null && echo wrote devices
  [ -e /tmp/cg/release_agent ] && (echo /x > /tmp/cg/release_agent) 2>/dev/null && echo wrote agent
  ls /tmp/cg | grep -qx agent && echo sees the agent
  umount /tmp/cg
done
for f in memory.max pids.max cpu.max; do
  [ -e /sys/fs/cgroup/$f ] && (echo max > /sys/fs/cgroup/$f) 2>/dev/null && echo wrote $f
done
true
""", user="root")
    assert done["stdout"] == "" and done["exit_code"] == 0, done
    eater = execute(instance, sandbox, "x = bytearray(600 << 20); print(len(x))", runtime="PYTHON",
                    user="root", timeout=30)
    assert eater["exit_code"] != 0 and eater["stdout"] == "", eater


# --- siblings ------------------------------------------------------------------------------------

def test_a_siblings_processes_do_not_exist(instance, cell, neighbour, probe, sh):
    background(instance, neighbour, "exec sleep 7777")
    until(lambda: "7777" in execute(instance, neighbour, "cat /proc/*/cmdline | tr '\\0' ' '")[
        "stdout"], "it runs")
    assert "7777" not in sh("cat /proc/*/cmdline | tr '\\0' ' '", user="root")["stdout"]
    host_pid = sandbox_pid(instance, neighbour)
    inside = {int(p) for p in sh("ls /proc | grep ^[0-9]", user="root")["stdout"].split()}
    if host_pid not in inside:
        tried = probe("intrude", host_pid)
        assert [t for t in tried if t[1] not in {errno.ESRCH, errno.EBADF}] == []
    mine = sh("readlink /proc/self/ns/user /proc/self/ns/net /proc/self/ns/ipc")["stdout"].split()
    theirs = execute(instance, neighbour,
                     "readlink /proc/self/ns/user /proc/self/ns/net /proc/self/ns/ipc")["stdout"]
    assert not set(mine) & set(theirs.split())


def test_ids_are_not_shared(instance, cell, neighbour):
    maps = [execute(instance, s, "cat /proc/self/uid_map /proc/self/gid_map")["stdout"].split()
            for s in (cell, neighbour)]
    first, second = (set(range(int(m[1]), int(m[1]) + int(m[2]))) for m in maps)
    assert not first & second and len(first) == 65536
    for uid in (min(first), min(second)):
        assert instance.id_base <= uid < instance.id_end
    for m in maps:
        assert m[0] == m[3] == "0" and m[1] == m[4], m


def test_user_limits_are_its_own(instance, cell, neighbour):
    """Who takes all inotify instances takes them from himself."""
    command = background(instance, cell, f"exec {PROBE} inotify hold", user="root")
    path = f"/sandboxes/{cell['id']}/commands/{command['id']}"

    def taken():
        text = instance.api("GET", path + "/logs").body.decode()
        return re.search(r"instances (\d+)", text)

    count = int(until(taken, "all are taken").group(1))
    try:
        assert count < 100000
        done = execute(instance, neighbour, args=[PROBE, "inotify"], user="root")
        assert int(done["stdout"].split()[1]) > 10, done
    finally:
        instance.api("POST", path + "/terminate", {"grace": 0})


def test_message_queues_and_shared_memory(instance, cell, neighbour):
    execute(instance, cell, "python3 -c \"open('/dev/shm/mine', 'w').write('x')\"; ipcmk -M 100 "
            "2>/dev/null; true")
    done = execute(instance, neighbour, "ls /dev/shm /dev/mqueue; cat /proc/sysvipc/shm | wc -l")
    assert "mine" not in done["stdout"] and done["stdout"].endswith("1\n"), done


# --- what a command is given ---------------------------------------------------------------------

@pytest.mark.parametrize("fields", [{}, {"stdin": "x"}, {"runtime": "PYTHON"}, {"user": "root"}],
                         ids=["plain", "stdin", "python", "root"])
def test_no_descriptor_too_many(instance, cell, fields):
    if fields.get("runtime") == "PYTHON":
        command = f"import os; os.execv('{PROBE}', ['probe', 'fds'])"
    else:
        command = f"exec {PROBE} fds"
    ways = [execute(instance, cell, command, **fields)["stdout"]]
    if "runtime" not in fields:
        ways.append(execute(instance, cell, args=[PROBE, "fds"], **fields)["stdout"])
    made = background(instance, cell, command, **fields)
    path = f"/sandboxes/{cell['id']}/commands/{made['id']}"
    instance.api("GET", path + "?wait=20")
    ways.append(instance.api("GET", path + "/logs?stream=stdout",
                             headers={"Accept": "application/octet-stream"}).body.decode())
    for text in ways:
        rows = dict(line.split(" ", 1) for line in text.splitlines())
        assert set(rows) == {"0", "1", "2"}, text
        assert rows["0"] == "/dev/null" or rows["0"].startswith("pipe:"), text
        assert rows["1"].startswith("pipe:") and rows["2"].startswith("pipe:"), text


def test_the_environment_is_clean(sh, cell):
    done = sh("print('\\n'.join(sorted(__import__('os').environ)))", runtime="PYTHON")
    names = set(done["stdout"].split())
    want = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "SKERRY_SANDBOX", "SKERRY_PROJECT",
            "SKERRY_WORKSPACE"}
    assert want <= names <= want | {"PWD", "LC_CTYPE", "TZ", "TERM"}, names


def test_signals_of_a_command(sh):
    done = sh("grep -E '^Sig(Blk|Ign):' /proc/self/status; umask")
    assert done["stdout"].split() == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16, "0022"], done


# --- what a hostile root leaves on its disk ------------------------------------------------------

MANAGED = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id"]
POINTS = ["/run", "/sys", "/proc", "/dev", "/var/lib/docker", "/var/lib/containerd"]
STRAYS = {
    "link": "ln -s ../../../../../../../../../../etc/passwd {p}",
    "dangling": "ln -s /no/where {p}",
    "loop": "ln -s {p} {p}",
    "fifo": "mkfifo {p}",
    "directory": "mkdir -p {p}/a",
    "socket": "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('{p}')\"",
}


@pytest.mark.parametrize("kind", STRAYS)
def test_stray_objects_at_managed_paths(instance, new_sandbox, kind):
    sandbox = new_sandbox()
    script = "set +e\n"
    for path in MANAGED:
        script += f"rm -rf {path}; " + STRAYS[kind].format(p=path) + "\n"
    # the directories are mounts: what lies below them is what counts at the next start
    script += "mkdir -p /tmp/under; mount --bind / /tmp/under\n"
    for path in POINTS:
        script += (f"rm -rf /tmp/under{path} && cd / && "
                   + STRAYS[kind].format(p=f"/tmp/under{path}") + "\n")
    script += "umount /tmp/under\n"
    host = {p: (os.lstat(p).st_mtime_ns, os.lstat(p).st_ino) for p in MANAGED + ["/etc/passwd"]}
    execute(instance, sandbox, script, user="root")
    for verb in ("restart", "restart"):
        answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/{verb}", {"grace": 0})
        assert answer.status == 200 and answer.json["status"] == "RUNNING", (
            f"{answer}\n{instance.logs()}")
        done = execute(instance, sandbox, "id -u; mount | grep -cE ' on (/run|/sys|/proc|/dev|"
                       "/var/lib/docker|/var/lib/containerd) '; cat /proc/self/comm; "
                       "head -1 /etc/passwd; for d in /run /sys /proc /dev; do test -L $d && "
                       "echo link $d; done; true")
        assert done["stdout"] == "1000\n6\ncat\nroot:x:0:0:root:/root:/bin/bash\n", done
    assert host == {p: (os.lstat(p).st_mtime_ns, os.lstat(p).st_ino) for p in host}, \
        "the host's files are untouched"
    assert instance.api("DELETE", f"/sandboxes/{sandbox['id']}").status == 204
