"""What the checks of tests/vm/guest share: doing things as a user with sudo would, looking at the
host from outside, a little internet for a machine that has no way out, and running the checks.
Where the run stands is kept on the disk: it goes on after a reboot; any other boot is a failure.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import time

TREE = pathlib.Path("/home/tester/skerry")
CGROUP = pathlib.Path("/sys/fs/cgroup/skerry")
WORLD = "11.0.0.2"
DAEMONS = ["skerry-keeper", "skerryd", "skerry-edge", "skerry-dns"]

PLACE = pathlib.Path("/var/lib/vm-test.json")

checks = []
place = json.loads(PLACE.read_text()) if PLACE.exists() else {"next": 0}
results = open("/dev/ttyS1", "w", buffering=1)
console = open("/dev/console", "w", buffering=1)


class Vital(Exception):
    pass


def check(name, vital=False, reboots=False, **arguments):
    """reboots: the machine is rebooted between the check's `begin` and its function."""
    def add(function):
        checks.append((name, vital, reboots, function, arguments))
        return function
    return add


# --- doing things --------------------------------------------------------------------------------

def root(*words, limit=600, fine=True, errors=subprocess.STDOUT):
    """One program as root; its output, both streams together unless `errors` says otherwise.
    fine=False: any status will do."""
    start = time.monotonic()
    done = subprocess.run([str(w) for w in words], stdin=subprocess.DEVNULL, timeout=limit,
                          stdout=subprocess.PIPE, stderr=errors, text=True,
                          errors="replace", cwd="/")
    print(f"{time.monotonic() - start:7.1f} s  status {done.returncode}: {words}", file=console)
    assert done.returncode == 0 or not fine, \
        f"status {done.returncode}: {words}\n" + \
        "\n".join((done.stdout + (done.stderr or "")).splitlines()[-20:])
    return done.stdout


def user(command, **options):
    """A line of shell as the user, in the checkout."""
    return root("runuser", "-l", "tester", "-c", f"cd {TREE} && {command}", **options)


def make(target, limit=3600):
    # also to the console, where one can watch it
    return user(f"set -o pipefail; sudo make {target} 2>&1 | sudo tee /dev/console", limit=limit)


def skerry(*words, **options):
    return user(shlex.join(["skerry", *words]), **options)


def load(*words, **options):
    text = skerry(*words, "--format", "json", errors=subprocess.PIPE, **options)
    return json.loads(text)


def inside(name, script, *options, **how):
    return skerry("exec", name, "--timeout", "300", *options, "-c", script, **how)


def execute(name, script, timeout=300):
    """The whole answer of an exec whose command may fail."""
    return load("exec", name, "--timeout", str(timeout), "-c", script, fine=False)


def until(question, what, limit=300):
    end = time.monotonic() + limit
    while not (answer := question()):
        assert time.monotonic() < end, f"not within {limit} s: {what}"
        time.sleep(0.5)
    return answer


# --- looking at the host -------------------------------------------------------------------------

def group(name):
    return CGROUP / load("get", name)["id"]


def machine(name):
    """PID 1 of a sandbox: its process on the host and when that started."""
    for pid in (group(name) / "init.scope/cgroup.procs").read_text().split():
        if re.search(r"^NSpid:\s+\d+\s+1$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M):
            return pid, pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[19]
    raise AssertionError(f"'{name}' has no PID 1")


def main_pid(unit):
    return root("systemctl", "show", "--property", "MainPID", "--value", unit).strip()


def up():
    active = root("systemctl", "is-active", *DAEMONS, fine=False).split() == ["active"] * 4
    return active and user("skerry list >/dev/null && echo fine", fine=False) == "fine\n"


PASSING = re.compile(r"/tmp|/var/tmp|/var/log/(journal|wtmp|btmp|lastlog)|/var/cache/man|"
                     r"/var/lib/(systemd|sudo|logrotate|dpkg|apt|vm-test)|.*/__pycache__|"
                     rf"{TREE}")


def traces():
    """Everything a host has that an installation could leave behind, by kind."""
    files = []
    for top in "/", "/run":
        for path, dirs, names in os.walk(top):
            full = [os.path.join(path, n) for n in dirs + names]
            dirs[:] = [d for d in dirs if not PASSING.match(os.path.join(path, d)) and
                       os.lstat(os.path.join(path, d)).st_dev == os.lstat(top).st_dev]
            files += [f for f in full if not PASSING.match(f)]
        if top == "/run":
            files = [f for f in files if not f.startswith("/run/") or "skerry" in f or "ns/" in f]
    sysctls = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding",
               "net/ipv6/conf/eth0/accept_ra"]
    return {
        "files": files,
        "accounts": [f"{file}: {line}" for file in ("passwd", "group", "shadow", "subuid", "subgid")
                     for line in pathlib.Path("/etc", file).read_text().splitlines()],
        "units": re.findall(r"\S*skerry\S*", root("systemctl", "list-units", "--all", "--plain") +
                            root("systemctl", "list-unit-files")),
        "mounts": [line.split()[4] for line in open("/proc/self/mountinfo")],
        "cgroups": [str(p) for p in CGROUP.parent.glob("*skerry*/**")] +
                   [str(p) for p in CGROUP.parent.glob("*/*skerry*")],
        "loops": root("losetup", "--list", "--noheadings").splitlines(),
        "links": re.findall(r"^\d+: ([^:@]+)", root("ip", "-o", "link"), re.M),
        "addresses": re.findall(r"inet6? (\S+)", root("ip", "-o", "address", "show", "dev", "lo")),
        "routes": re.findall(r".*skerry.*", root("ip", "route", "show", "table", "all")),
        "nft": root("nft", "list", "ruleset").splitlines(),
        "sysctls": [f"{s}={pathlib.Path('/proc/sys', s).read_text()}" for s in sysctls],
        "processes": re.findall(r".*(?:skerry-|skerryd|haproxy|dnsmasq).*",
                                root("ps", "-eo", "comm=,user=", "--sort=comm")),
    }


def nothing_left(before):
    now = traces()
    different = []
    for kind, then in before.items():
        different += [f"{kind}: + {x}" for x in sorted(set(now[kind]) - set(then))]
        different += [f"{kind}: - {x}" for x in sorted(set(then) - set(now[kind]))]
    assert not different, "\n".join(different[:40])


def world():
    """The internet, as far as this machine knows one: a namespace with a public address, where a
    resolver gives that address for every name and port 8000 answers."""
    root("ip", "netns", "add", "world")
    root("ip", "link", "add", "world", "type", "veth", "peer", "name", "eth0", "netns", "world")
    for words in (("addr", "add", "11.0.0.1/30", "dev", "world"), ("link", "set", "world", "up")):
        root("ip", *words)
    for words in (("addr", "add", f"{WORLD}/30", "dev", "eth0"), ("link", "set", "eth0", "up"),
                  ("link", "set", "lo", "up")):
        root("ip", "-n", "world", *words)
    for words in (["dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--user=root",
                   "--pid-file", f"--address=/#/{WORLD}", "--conf-file=/dev/null"],
                  ["/usr/bin/python3", "-m", "http.server", "8000"]):
        subprocess.Popen(["ip", "netns", "exec", "world", *words], stdin=subprocess.DEVNULL,
                         cwd="/usr/share/doc")


# --- running checks ------------------------------------------------------------------------------

def tell(line):
    results.write(line + "\n")


def save(**values):
    place.update(values)
    PLACE.write_text(json.dumps(place))
    os.sync()


def leave():
    inside("mine", "echo kept >/workspace/kept; sync")
    place["ticker"] = skerry("exec", "mine", "-d", "sleep", "10000").strip()
    save(rebooting=True)
    root("systemctl", "reboot")
    time.sleep(600)
    raise AssertionError("it does not reboot")


def attempt(number):
    name, vital, reboots, function, arguments = checks[number]
    if not place.get("rebooting"):
        tell(f"begin {name}")
    try:
        if reboots and not place.get("rebooting"):
            leave()
        save(rebooting=False)
        function(**arguments)
    except Exception as e:  # a check fails by whatever it raises
        tell(f"fail {name}")
        for line in f"{type(e).__name__}: {e}".splitlines()[-30:]:
            tell(f"  {line}")
        if vital:
            raise Vital(name) from e
    else:
        tell(f"pass {name}")


def main():
    subprocess.run(["stty", "-F", "/dev/ttyS1", "raw"], check=True)
    try:
        if place["next"] and not place.get("rebooting"):
            raise Vital("the machine rebooted by itself")
        if not place["next"]:
            tell(f"plan {len(checks)}")
        world()
        for number in range(place["next"], len(checks)):
            save(next=number)
            attempt(number)
    except Vital as e:
        tell(f"  the rest is left out: {e}")
    tell("end")
    results.close()
    root("systemctl", "poweroff")
