"""Create, start, stop, restart, delete: in order, out of order, many at once, and when they fail."""

import concurrent.futures
import pathlib
import re
import subprocess
import time

import pytest

from kit import (IMAGE, back_to, background, cgroup_dirs, command_state, disks, errors_of, execute,
                 gone, link_number, link_of, sandbox_pid, settled, until)


def act(instance, sandbox, verb, body=None, status=200):
    answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/{verb}", body)
    assert answer.status == status, f"{answer}\n{instance.logs()}"
    return answer.json


def get(instance, sandbox):
    answer = instance.api("GET", f"/sandboxes/{sandbox['id']}")
    assert answer.status == 200, answer
    return answer.json


def stdout(instance, sandbox, command, **fields):
    done = execute(instance, sandbox, command, **fields)
    assert done["exit_code"] == 0, done
    return done["stdout"]


def conflict(answer, state, remedy=None):
    assert answer.status == 409, answer
    error = errors_of(answer)[0]
    text = error["message"] + " " + error.get("hint", "")
    assert state in text, error
    assert remedy is None or remedy in text, error


# --- states --------------------------------------------------------------------------------------

def test_files_survive(instance, new_sandbox):
    sandbox = new_sandbox()
    stdout(instance, sandbox, "echo kept > ~/a; sudo sh -c 'echo root > /opt/b; rm /etc/issue; "
                              "mkdir -p /var/lib/docker/x; echo engine > /var/lib/docker/x/c'; "
                              "ln -s a ~/l; chmod 640 ~/a; echo /tmp > /tmp/d")
    look = ("cat ~/l /opt/b /tmp/d; sudo cat /var/lib/docker/x/c; stat -c '%a %U' ~/a; "
            "test -e /etc/issue || echo gone; id -un")
    expect = "kept\nroot\n/tmp\nengine\n640 skerry\ngone\nskerry\n"
    assert stdout(instance, sandbox, look) == expect
    act(instance, sandbox, "stop", {"grace": 2})
    act(instance, sandbox, "start")
    assert stdout(instance, sandbox, look) == expect
    act(instance, sandbox, "restart", {"grace": 2})
    assert stdout(instance, sandbox, look) == expect


def test_identity_survives(instance, new_sandbox):
    sandbox = new_sandbox()
    look = "cat /etc/machine-id; hostname; hostname -I"
    before = stdout(instance, sandbox, look).split()[:2]
    act(instance, sandbox, "restart", {"grace": 1})
    assert stdout(instance, sandbox, look).split()[:2] == before
    other = new_sandbox()
    assert stdout(instance, other, "cat /etc/machine-id").strip() != before[0]


def test_processes_do_not_survive(instance, new_sandbox):
    sandbox = new_sandbox()
    command = background(instance, sandbox, "exec sleep 1000")
    act(instance, sandbox, "restart", {"grace": 1})
    assert "sleep" not in stdout(instance, sandbox, "cat /proc/[0-9]*/comm")
    record = command_state(instance, sandbox, command)
    assert record["status"] == "FAILED" and record["reason"] in ("LOST", "SIGNALED", "KILLED")
    assert stdout(instance, sandbox, "mount | grep -c ' on /run '; ls /run | wc -l")


def test_wrong_order(instance, new_sandbox):
    sandbox = new_sandbox()
    path = f"/sandboxes/{sandbox['id']}"
    act(instance, sandbox, "start")
    assert get(instance, sandbox)["status"] == "RUNNING", "starting what runs changes nothing"
    act(instance, sandbox, "stop", {"grace": 0})
    act(instance, sandbox, "stop", {"grace": 0})
    stopped = get(instance, sandbox)
    assert stopped["status"] == "STOPPED" and "usage" not in stopped, stopped
    for call in ("exec", "commands"):
        conflict(instance.api("POST", f"{path}/{call}", {"command": "true"}), "STOPPED", "start")
    assert instance.api("GET", f"{path}/commands").json == {"commands": []}
    act(instance, sandbox, "start")
    assert execute(instance, sandbox, "true")["exit_code"] == 0


def test_restart_of_what_is_stopped(instance, new_sandbox):
    sandbox = new_sandbox()
    act(instance, sandbox, "stop", {"grace": 0})
    answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/restart", {"grace": 0})
    if answer.status == 200:
        assert get(instance, sandbox)["status"] == "RUNNING"
    else:
        conflict(answer, "STOPPED", "start")


def test_while_it_stops(instance, new_sandbox):
    sandbox = new_sandbox()
    path = f"/sandboxes/{sandbox['id']}"
    background(instance, sandbox, "trap '' TERM; while :; do sleep 0.1; done")
    until(lambda: "trap" in stdout(instance, sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"),
          "the command runs")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stop = pool.submit(act, instance, sandbox, "stop", {"grace": 3})
        until(lambda: get(instance, sandbox)["status"] == "STOPPING", "it is STOPPING")
        for call, body in (("start", None), ("stop", {"grace": 0}), ("restart", {"grace": 0}),
                           ("exec", {"command": "true"}), ("commands", {"command": "true"})):
            conflict(instance.api("POST", f"{path}/{call}", body), "STOPPING")
        assert stop.result()["status"] == "STOPPED"
    assert get(instance, sandbox)["status"] == "STOPPED"


def test_after_delete(instance, new_sandbox):
    sandbox = new_sandbox()
    path = f"/sandboxes/{sandbox['id']}"
    command = execute(instance, sandbox, "true")["id"]
    assert instance.api("DELETE", path).status == 204
    for method, rest, body in (("GET", "", None), ("DELETE", "", None), ("PATCH", "", {"name": "x"}),
                               ("POST", "/start", None), ("POST", "/stop", None),
                               ("POST", "/restart", None), ("POST", "/exec", {"command": "true"}),
                               ("POST", "/commands", {"command": "true"}),
                               ("GET", "/commands", None), ("GET", f"/commands/{command}", None),
                               ("GET", f"/commands/{command}/logs", None),
                               ("POST", f"/commands/{command}/terminate", None)):
        answer = instance.api(method, path + rest, body)
        assert answer.status == 404, (method, rest, answer)
        errors_of(answer)
    listed = instance.api("GET", "/sandboxes").json["sandboxes"]
    assert sandbox["id"] not in [s["id"] for s in listed]
    again = new_sandbox(name="again", identifier=sandbox["identifier"])
    assert again["id"] != sandbox["id"], "the name is free again"


def test_delete_while_commands_run(instance, new_sandbox):
    sandbox = new_sandbox()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(instance.api, "POST", f"/sandboxes/{sandbox['id']}/exec",
                              {"command": "trap '' TERM; sleep 600"})
        background(instance, sandbox, "setsid sh -c 'trap \"\" TERM; sleep 600' & sleep 600")
        until(lambda: stdout(instance, sandbox, "cat /proc/[0-9]*/comm").count("sleep") == 3,
              "all run")
        start = time.monotonic()
        assert instance.api("DELETE", f"/sandboxes/{sandbox['id']}").status == 204
        assert time.monotonic() - start < 20
        answer = waiting.result(30)
    # the caller learns that nobody knows the outcome, never a made-up success
    if answer.status == 200:
        assert answer.json["status"] == "FAILED" and answer.json["reason"] == "LOST", answer
    else:
        errors_of(answer)


def test_patch(instance, new_sandbox):
    sandbox = new_sandbox(name="before", tags=["x"])
    path = f"/sandboxes/{sandbox['id']}"
    changed = instance.api("PATCH", path, {"name": "after ü"})
    assert changed.status == 200 and changed.json["name"] == "after ü", changed
    assert changed.json["tags"] == ["x"] and changed.json["identifier"] == sandbox["identifier"]
    changed = instance.api("PATCH", path, {"tags": ["y", "z"]})
    assert changed.json["tags"] == ["y", "z"] and changed.json["name"] == "after ü"
    answer = instance.api("PATCH", path, {"timeout": 60})
    assert answer.status == 400
    error = errors_of(answer)[0]
    assert error["code"] == "not_available" and error["field"] == "timeout", error
    assert get(instance, sandbox)["name"] == "after ü"
    assert instance.api("PATCH", path, {}).status == 200


def test_limits_are_those_asked_for(instance, new_sandbox):
    sandbox = new_sandbox(cpus=1, memory_mb=256, pids=100, disk_gb=1)
    assert sandbox["resources"] == "CUSTOM", sandbox
    assert sandbox["limits"] | {"enforced": True} == {
        "cpus": 1, "memory_bytes": 256 << 20, "disk_bytes": 1 << 30, "pids": 100,
        "enforced": True}, sandbox
    assert stdout(instance, sandbox, "nproc") == "1\n"
    if not sandbox["limits"]["enforced"]:
        pytest.skip("this host cannot enforce limits")
    bomb = execute(instance, sandbox, "for i in $(seq 300); do sleep 5 & done 2>/dev/null; "
                                      "jobs -p | wc -l", timeout=20)
    assert int(bomb["stdout"].split()[-1]) < 100 if bomb["stdout"].strip() else True, bomb
    eater = execute(instance, sandbox, "b = bytearray(1 << 30)", runtime="PYTHON", timeout=30) \
        if "python3" in stdout(instance, sandbox, "command -v python3 || true") else \
        execute(instance, sandbox, "head -c 1G /dev/zero | tail -c 1G >/dev/null", timeout=30)
    assert eater["exit_code"] != 0, eater
    assert execute(instance, sandbox, "true")["exit_code"] == 0, "the agent is not hit"
    full = execute(instance, sandbox, "head -c 1200M /dev/zero > /tmp/full", timeout=60)
    assert full["exit_code"] != 0 and re.search("quota|space", full["stderr"]), full
    assert execute(instance, sandbox, "rm /tmp/full && echo x > /tmp/y && cat /tmp/y")[
        "stdout"] == "x\n"


def test_start_with_a_full_disk(instance, new_sandbox):
    sandbox = new_sandbox(disk_gb=1)
    full = execute(instance, sandbox, "head -c 1200M /dev/zero > /tmp/full; sync", timeout=60)
    assert full["exit_code"] == 0 and "quota" in full["stderr"] or full["stderr"], full
    act(instance, sandbox, "restart", {"grace": 1})
    assert get(instance, sandbox)["status"] == "RUNNING"
    assert stdout(instance, sandbox, "rm /tmp/full; echo x > /tmp/y; cat /tmp/y") == "x\n"


# --- stopping ------------------------------------------------------------------------------------

def test_grace_lets_a_handler_finish(instance, new_sandbox):
    sandbox = new_sandbox()
    background(instance, sandbox,
               "trap 'sleep 1; echo done > ~/marker; exit 0' TERM; touch ~/ready; "
               "while :; do sleep 0.05; done")
    until(lambda: stdout(instance, sandbox, "ls ~") == "ready\n", "the handler is there")
    act(instance, sandbox, "stop", {"grace": 10})
    act(instance, sandbox, "start")
    assert stdout(instance, sandbox, "cat ~/marker") == "done\n"


def test_grace_ends(instance, new_sandbox):
    sandbox = new_sandbox()
    background(instance, sandbox, "trap '' TERM; touch ~/ready; while :; do sleep 0.05; done")
    background(instance, sandbox, "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done'")
    until(lambda: stdout(instance, sandbox, "ls ~") == "ready\n", "it is deaf")
    start = time.monotonic()
    act(instance, sandbox, "stop", {"grace": 1})
    took = time.monotonic() - start
    assert 0.9 < took < 8, took
    assert get(instance, sandbox)["status"] == "STOPPED"
    assert sandbox_pid(instance, sandbox) is None


def test_stop_without_grace(instance, new_sandbox):
    sandbox = new_sandbox()
    background(instance, sandbox, "trap '' TERM; while :; do sleep 0.05; done")
    act(instance, sandbox, "stop", {"grace": 0})
    assert get(instance, sandbox)["status"] == "STOPPED"


def test_what_was_written_before_a_stop_is_there(instance, new_sandbox):
    sandbox = new_sandbox()
    stdout(instance, sandbox, "head -c 20M /dev/urandom > ~/big; sha256sum ~/big > ~/sum")
    act(instance, sandbox, "stop", {"grace": 0})
    act(instance, sandbox, "start")
    assert stdout(instance, sandbox, "sha256sum -c ~/sum").endswith(": OK\n")


# --- failing -------------------------------------------------------------------------------------

BAD_CREATES = [
    {"os": "no-such-image"},
    {"cpus": 1000},
    {"memory_mb": 16 * 1024 * 1024},
    {"identifier": "a b"},
    {"timeout": 60},
    {"resources": "12x24"},
]


def test_a_create_that_is_refused_leaves_nothing(instance):
    before = settled(instance)
    for fields in BAD_CREATES:
        answer = instance.api("POST", "/sandboxes?wait=running",
                              {"name": "refused", "os": IMAGE, **fields})
        if fields == {"resources": "12x24"} and answer.status == 201:
            gone(instance, answer.json["id"])  # a large host
            continue
        assert 400 <= answer.status < 500 or answer.status in (503, 507), answer
        errors_of(answer)
    back_to(instance, before)


@pytest.fixture
def full_pool(instance):
    """Nearly all of the pool is given to one file."""
    filler = instance.base / "pool/fs/filler"
    stat = subprocess.run(["stat", "-f", "-c", "%a %S", filler.parent], capture_output=True,
                          text=True, check=True).stdout.split()
    free = int(stat[0]) * int(stat[1])
    try:
        done = subprocess.run(["fallocate", "-l", str(free - (1 << 30)), filler])
        if done.returncode:
            pytest.skip("the host has no room to fill the pool")
        yield
    finally:
        filler.unlink(missing_ok=True)
        subprocess.run(["sync", "-f", filler.parent])


@pytest.mark.long
def test_a_full_pool_answers_507(instance, full_pool):
    before = settled(instance)
    answer = instance.api("POST", "/sandboxes?wait=running", {"name": "full", "os": IMAGE})
    assert answer.status == 507, answer
    error = errors_of(answer)[0]
    assert error["hint"] and re.search(r"\d", error["message"]), error
    back_to(instance, before)


@pytest.fixture
def broken_layer(instance):
    """The image's layer is out of its place while the test lasts."""
    layers = instance.base / "pool/fs/layers"
    moved = [p for p in layers.iterdir() if p.is_dir()]
    for p in moved:
        p.rename(p.with_name("." + p.name))
    yield
    for p in moved:
        p.with_name("." + p.name).rename(p)


def test_a_create_that_fails_leaves_nothing(instance, broken_layer):
    before = settled(instance)
    answer = instance.api("POST", "/sandboxes?wait=running", {"name": "fails", "os": IMAGE})
    assert answer.status >= 400, answer
    assert answer.status in (409, 422, 503, 507), answer
    assert errors_of(answer)[0]["message"], answer
    back_to(instance, before)


def test_a_start_that_fails_is_told(instance, new_sandbox, request):
    sandbox = new_sandbox()
    stdout(instance, sandbox, "echo kept > ~/a; sync")
    act(instance, sandbox, "stop", {"grace": 1})
    request.getfixturevalue("broken_layer")
    before = settled(instance)
    answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/start")
    assert answer.status >= 400 and answer.status != 500, answer
    assert errors_of(answer)[0]["message"], answer
    failed = get(instance, sandbox)
    assert failed["status"] == "FAILED", failed
    assert failed["exit_reason"]["code"] and failed["exit_reason"]["text"], failed
    back_to(instance, before)
    conflict(instance.api("POST", f"/sandboxes/{sandbox['id']}/exec", {"command": "true"}),
             "FAILED", "start")


def test_a_failed_sandbox_starts_when_it_can(instance, new_sandbox):
    sandbox = new_sandbox()
    stdout(instance, sandbox, "echo kept > ~/a")
    act(instance, sandbox, "stop", {"grace": 1})
    disk = next((instance.base / "pool/fs/sandboxes").glob(f"*{sandbox['id']}*"))
    away = disk.with_name("." + disk.name)
    disk.rename(away)
    try:
        assert instance.api("POST", f"/sandboxes/{sandbox['id']}/start").status >= 400
        assert get(instance, sandbox)["status"] == "FAILED"
    finally:
        away.rename(disk)
    assert act(instance, sandbox, "start")["status"] == "RUNNING"
    assert "exit_reason" not in get(instance, sandbox)
    assert stdout(instance, sandbox, "cat ~/a") == "kept\n"


def test_a_failed_sandbox_can_be_deleted(instance, new_sandbox):
    before = settled(instance)
    sandbox = new_sandbox()
    act(instance, sandbox, "stop", {"grace": 1})
    upper = next((instance.base / "pool/fs/sandboxes").glob(f"*{sandbox['id']}*")) / "root"
    upper.rename(upper.with_name("elsewhere"))
    answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/start")
    upper.with_name("elsewhere").rename(upper)
    assert answer.status >= 400 and get(instance, sandbox)["status"] == "FAILED", answer
    assert instance.api("DELETE", f"/sandboxes/{sandbox['id']}").status == 204
    back_to(instance, before)


# --- nothing is left -----------------------------------------------------------------------------

def test_delete_leaves_nothing(instance, new_sandbox):
    before = settled(instance)
    running, stopped = new_sandbox(), new_sandbox()
    for sandbox in (running, stopped):
        execute(instance, sandbox, "head -c 3M /dev/urandom | base64; sleep 1000 & true")
        background(instance, sandbox, "sudo unshare -m sh -c 'mount -t tmpfs x /mnt; sleep 1000'")
        background(instance, sandbox, "mkdir -p ~/d && cd ~/d && exec sleep 1000")
    act(instance, stopped, "stop", {"grace": 0})
    for sandbox in (running, stopped):
        assert instance.api("DELETE", f"/sandboxes/{sandbox['id']}").status == 204
        # promised with the answer, not some time later
        assert not any(sandbox["id"] in str(p) for p in disks(instance) | cgroup_dirs(instance))
        assert not sandbox_pid(instance, sandbox)
    back_to(instance, before)


def test_the_network_goes_with_the_sandbox(instance, new_sandbox):
    sandbox = new_sandbox()
    address = stdout(instance, sandbox, "hostname -I").split()[0]
    link = link_of(instance, sandbox)
    number = link_number(link)
    assert number
    gone(instance, sandbox["id"])
    until(lambda: link_number(link) != number, "the link is gone")
    after = subprocess.run(["ip", "-o", "route", "show", address], capture_output=True, text=True)
    assert after.stdout == "", after


def test_disk_space_comes_back(instance, new_sandbox):
    pool = instance.base / "pool/fs"

    def used():
        subprocess.run(["btrfs", "filesystem", "sync", pool], check=True, capture_output=True)
        text = subprocess.run(["btrfs", "filesystem", "usage", "-b", pool], check=True,
                              capture_output=True, text=True).stdout
        return int(re.search(r"Used:\s+(\d+)", text).group(1))

    sandbox = new_sandbox()
    before = used()
    stdout(instance, sandbox, "head -c 200M /dev/urandom > ~/big; sync")
    assert used() > before + (150 << 20)
    gone(instance, sandbox["id"])
    until(lambda: used() < before + (50 << 20), "the space is free again", 120)


# --- many at once --------------------------------------------------------------------------------

def create_and_run(instance, number):
    answer = instance.api("POST", "/sandboxes?wait=running",
                          {"name": f"crowd-{number}", "os": IMAGE, "memory_mb": 64, "cpus": 1},
                          timeout=300)
    if answer.status != 201:
        return None, repr(answer)
    done = instance.api("POST", f"/sandboxes/{answer.json['id']}/exec",
                        {"command": f"echo {number} $(hostname) > ~/f; cat ~/f"}, timeout=300)
    if done.status != 200 or done.json["stdout"] != f"{number} crowd-{number}\n":
        return answer.json, repr(done)
    return answer.json, None


def test_fifty_at_once(instance):
    before = settled(instance)
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        results = list(pool.map(lambda n: create_and_run(instance, n), range(50)))
    made = [r[0] for r in results if r[0]]
    try:
        assert [r[1] for r in results if r[1]] == [], instance.logs()
        assert len({m["id"] for m in made}) == 50
        listed = {s["id"]: s["status"] for s in
                  instance.api("GET", "/sandboxes").json["sandboxes"]}
        assert all(listed[m["id"]] == "RUNNING" for m in made)
        addresses = set()
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            for text in pool.map(lambda m: stdout(instance, m, "hostname -I"), made):
                addresses |= set(text.split())
        assert len(addresses) >= 50 and len(addresses) % 50 == 0, "no address is shared"
    finally:
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            deleted = list(pool.map(
                lambda m: instance.api("DELETE", f"/sandboxes/{m['id']}", timeout=300), made))
    assert [a.status for a in deleted] == [204] * len(made), deleted
    back_to(instance, before)


def test_verbs_on_one_sandbox_at_once(instance, new_sandbox):
    """Whoever comes second gets a conflict; in the end the state is true and it works."""
    sandbox = new_sandbox()
    path = f"/sandboxes/{sandbox['id']}"
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        calls = [pool.submit(instance.api, "POST", f"{path}/{verb}",
                             None if verb == "start" else {"grace": 0})
                 for _ in range(6) for verb in ("stop", "start", "restart")]
        statuses = {c.result().status for c in calls}
    assert statuses <= {200, 409}, statuses
    until(lambda: get(instance, sandbox)["status"] in ("RUNNING", "STOPPED"), "it is at rest")
    act(instance, sandbox, "start")
    assert execute(instance, sandbox, "echo alive")["stdout"] == "alive\n"


def test_deletes_at_once(instance, new_sandbox):
    sandbox = new_sandbox()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = sorted(a.status for a in pool.map(
            lambda _: instance.api("DELETE", f"/sandboxes/{sandbox['id']}"), range(8)))
    assert statuses[0] == 204 and set(statuses) <= {204, 404, 409}, statuses
    assert instance.api("GET", f"/sandboxes/{sandbox['id']}").status == 404


def test_list_and_get_agree_while_deleting(instance):
    made = []
    for i in range(10):
        answer = instance.api("POST", "/sandboxes?wait=running",
                              {"name": f"goes-{i}", "os": IMAGE, "memory_mb": 64})
        assert answer.status == 201, answer
        made.append(answer.json["id"])
    deleted, wrong = set(), []

    def look():
        while len(deleted) < len(made):
            known = set(deleted)
            listed = {s["id"] for s in instance.api("GET", "/sandboxes").json["sandboxes"]}
            wrong.extend(known & listed)
            wrong.extend(i for i in known if instance.api("GET", f"/sandboxes/{i}").status != 404)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        watchers = [pool.submit(look) for _ in range(2)]
        for sid in made:
            assert instance.api("DELETE", f"/sandboxes/{sid}").status == 204
            deleted.add(sid)
        for w in watchers:
            w.result(60)
    assert wrong == []


def test_a_full_disk_starts_with_a_strange_identity(instance, new_sandbox):
    sandbox = new_sandbox(disk_gb=1, memory_mb=512)
    at = f"/sandboxes/{sandbox['id']}"
    done = execute(instance, sandbox, "echo strange >/etc/machine-id; rm -f /etc/hostname; "
                   "dd if=/dev/zero of=/fill bs=1M; sync; echo x >/etc/more", user="root",
                   timeout=120)
    assert "quota" in done["stderr"].lower(), done
    assert instance.api("POST", f"{at}/stop", {"grace": 0}).status == 200
    assert instance.api("POST", f"{at}/start").json["status"] == "RUNNING"
    done = execute(instance, sandbox, "rm /fill && echo free >/etc/more && cat /etc/more",
                   user="root")
    assert done["stdout"] == "free\n", done
    assert instance.api("POST", f"{at}/restart", {"grace": 0}).status == 200
    done = execute(instance, sandbox, "cat /etc/machine-id /etc/hostname")
    assert "strange" not in done["stdout"] and sandbox["identifier"] in done["stdout"], done
