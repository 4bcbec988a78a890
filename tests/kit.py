"""What the black-box suites share: looking at the host from outside, raw HTTP, small waits."""

import base64
import contextlib
import os
import pathlib
import re
import socket
import subprocess

from instance import IMAGE, wait_until

__all__ = ["IMAGE", "JSONL", "back_to", "background", "cgroup_dirs", "command_state", "disks",
           "errors_of", "execute", "finished", "gone", "inside", "link_number", "link_of", "logs",
           "mountinfo", "output", "put_file", "raw_http", "resident", "sandbox_pid", "settled",
           "split_answer", "traces", "until", "usage", "wait_until"]

JSONL = "application/jsonl"


def until(check, what, timeout=20):
    """Polls; the limit is for hangs."""
    return wait_until(check, timeout, what)


# --- the API -------------------------------------------------------------------------------------

def errors_of(answer):
    """The errors of a refusal, after a look at their shape."""
    assert answer.status >= 400, answer
    assert answer.headers["X-Request-Id"], answer
    assert isinstance(answer.json, dict) and list(answer.json) == ["errors"], answer
    assert answer.json["errors"], answer
    for error in answer.json["errors"]:
        assert set(error) <= {"message", "code", "errno", "field", "hint"}, answer
        assert error["message"] and re.fullmatch(r"[a-z][a-z0-9_]*", error["code"]), answer
    return answer.json["errors"]


def execute(instance, sandbox, command=None, **fields):
    """POST exec; the decoded answer."""
    if command is not None:
        fields["command"] = command
    answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/exec", fields)
    assert answer.status == 200, f"{answer}\n{instance.logs()}"
    return answer.json


def background(instance, sandbox, command, **fields):
    answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/commands",
                          {"command": command, **fields})
    assert answer.status == 201, f"{answer}\n{instance.logs()}"
    return answer.json


def command_state(instance, sandbox, command, query=""):
    answer = instance.api("GET", f"/sandboxes/{sandbox['id']}/commands/{command['id']}{query}")
    assert answer.status == 200, answer
    return answer.json


def finished(instance, sandbox, command, wait=60):
    record = command_state(instance, sandbox, command, f"?wait={wait}")
    assert record["status"] != "INPROGRESS", record
    return record


def logs(instance, sandbox, command, query=""):
    """The lines of the log as objects."""
    import json

    answer = instance.api("GET",
                          f"/sandboxes/{sandbox['id']}/commands/{command['id']}/logs{query}")
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == JSONL, answer.headers
    return [json.loads(line) for line in answer.body.splitlines()]


def output(instance, sandbox, command, stream="stdout", offset=0):
    """The bytes of one stream."""
    answer = instance.api(
        "GET", f"/sandboxes/{sandbox['id']}/commands/{command['id']}/logs"
               f"?stream={stream}&offset={offset}",
        headers={"Accept": "application/octet-stream"})
    assert answer.status == 200, answer
    return answer.body


def put_file(instance, sandbox, path, data, mode="755"):
    """A file inside, through exec's stdin, in pieces below the limit of a request."""
    size = 600_000
    for at in range(0, max(len(data), 1), size):
        piece = base64.b64encode(data[at:at + size]).decode()
        done = execute(instance, sandbox, f"base64 -d {'>>' if at else '>'} {path}", stdin=piece,
                       user="root")
        assert done["exit_code"] == 0, done
    assert execute(instance, sandbox, f"chmod {mode} {path}", user="root")["exit_code"] == 0


def gone(instance, sandbox_id):
    answer = instance.api("DELETE", f"/sandboxes/{sandbox_id}")
    assert answer.status in (204, 404), f"{answer}\n{instance.logs()}"


# --- the host, seen by its root ------------------------------------------------------------------

def disks(instance):
    """Names of what lies in the pool, the directories of sandboxes and layers."""
    pool = instance.base / "pool/fs"
    return {str(p.relative_to(pool)) for kind in ("sandboxes", "layers")
            for p in (pool / kind).iterdir()}


def cgroup_dirs(instance):
    """Cgroups of sandboxes, in every hierarchy."""
    found = set()
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if re.search(r" - cgroup2? ", line):
            group = pathlib.Path(line.split()[4]) / instance.name
            with contextlib.suppress(FileNotFoundError):
                found |= {str(p) for p in group.iterdir() if p.is_dir()}
    return found


def mountinfo(instance):
    """Mount points of the keeper's own mount namespace."""
    pid = instance.children["keeper"].pid
    text = pathlib.Path(f"/proc/{pid}/mountinfo").read_text()
    return sorted(line.split()[4] for line in text.splitlines())


def links(instance):
    return sorted(name for _, name in socket.if_nameindex()
                  if name.startswith(instance.name + "-"))


def routes(instance):
    lines = []
    for family in "-4", "-6":
        done = subprocess.run(["ip", family, "-o", "route", "show", "table", "all"],
                              capture_output=True, text=True, check=True)
        lines += [line for line in done.stdout.splitlines() if f"dev {instance.name}-" in line]
    return lines


def nft_elements(instance):
    done = subprocess.run(["nft", "list", "table", "inet", instance.name], capture_output=True,
                          text=True, check=True)
    return done.stdout.count(f'"{instance.name}-')


def outputs(instance):
    """Kept output on the host, which goes with its sandbox."""
    return {p.name for p in (instance.base / "state").rglob("sb*")}


def traces(instance):
    """What sandboxes leave on the host. Links, routes and mounts are counted, since slots are
    made ahead under numbers that are used again; all else is compared by name."""
    answer = instance.api("GET", "/sandboxes")
    assert answer.status == 200, answer
    return {
        "rows": {s["id"] for s in answer.json["sandboxes"]},
        "disks": disks(instance),
        "cgroups": cgroup_dirs(instance),
        "mounts": len(mountinfo(instance)),
        "links": len(links(instance)),
        "routes": len(routes(instance)),
        "nft": nft_elements(instance),
        "processes": {p.split()[0] for p in instance.processes()
                      if not re.search(r"skerryd|skerry-keeper|haproxy|dnsmasq", p)},
        "outputs": outputs(instance),
    }


def settled(instance, timeout=60):
    """traces() once the slots made ahead are all there: the same for three
    seconds: the kernel makes the routes of a new link a moment behind it."""
    seen = []

    def same():
        seen.append(traces(instance))
        return len(seen) > 15 and all(s == seen[-1] for s in seen[-15:]) and seen[-1]

    return wait_until(same, timeout, "the host comes to rest", poll=0.2)


def back_to(instance, before, timeout=60, but=()):
    """Waits until traces() are those of `before`; shows the difference when they do not come."""
    before = {k: v for k, v in before.items() if k not in but}
    last = {}

    def same():
        last.update((k, v) for k, v in traces(instance).items() if k not in but)
        # slots that a former process had made ahead may have been used meanwhile
        return all(last[k] <= v if isinstance(v, int) else last[k] == v for k, v in before.items())

    try:
        wait_until(same, timeout, "nothing is left behind", poll=0.2)
    except TimeoutError as e:
        different = {k: (before[k], last[k]) for k in before if before[k] != last[k]}
        raise AssertionError(f"{e}: (before, now) {different}\n{instance.logs()}") from None


def link_of(instance, sandbox):
    """The name of the host's end of a sandbox's link."""
    address = execute(instance, sandbox, "hostname -I")["stdout"].split()[0]
    route = subprocess.run(["ip", "-o", "route", "get", address], capture_output=True, text=True,
                           check=True).stdout
    return re.search(r"dev (\S+)", route).group(1)


def link_number(name):
    """The index of a link, or None: names are used again, indexes are not."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None


def sandbox_pid(instance, sandbox):
    """PID 1 of a sandbox as the host numbers it."""
    for group in cgroup_dirs(instance):
        agent = pathlib.Path(group) / "init.scope/cgroup.procs"
        if pathlib.Path(group).name == sandbox["id"] and agent.exists():
            for pid in agent.read_text().split():
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                if re.search(r"^NSpid:\s+\d+\s+1$", status, re.M):
                    return int(pid)
    return None


def inside(instance, sandbox, pattern):
    """Host pids of the sandbox's processes whose command line has the pattern."""
    found = set()
    groups = [g for g in cgroup_dirs(instance) if pathlib.Path(g).name == sandbox["id"]]
    # walk, not glob: commands end meanwhile, and their groups go
    for group in [below for g in groups for below, _, _ in os.walk(g)]:
        pids = []
        with contextlib.suppress(OSError):
            pids = pathlib.Path(group, "cgroup.procs").read_text().split()
        for pid in pids:
            with contextlib.suppress(OSError):
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                state = re.search(r"^State:\s+(\S)", status, re.M).group(1)
                if state not in "ZX" and re.search(pattern, line.decode(errors="replace")):
                    found.add(int(pid))
    return sorted(found)


def resident(pid):
    """Bytes of a process in memory."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) << 10


class Usage(list):
    """Descriptors and threads of processes, one number after the other."""

    def __le__(self, other):
        return all(mine <= its for mine, its in zip(self, other, strict=True))


def usage(*pids):
    return Usage(len(list(pathlib.Path(f"/proc/{pid}/{what}").iterdir()))
                 for pid in pids for what in ("fd", "task"))


# --- HTTP by hand --------------------------------------------------------------------------------

def split_answer(data):
    """Status, header lines (lower case names) and body of one raw answer."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1]) if lines[0].startswith("HTTP/") else None
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return status, headers, body


def raw_http(instance, data, timeout=30, half_close=False):
    """Sends bytes, reads until the other side closes; the answer may be empty."""
    with socket.create_connection(("127.0.0.1", instance.port), timeout=timeout) as s:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := s.recv(65536):
                got += piece
        return got
