"""The private instance itself: up, a sandbox in it, and what a restart of each daemon must keep.

That stopping leaves nothing behind is checked by the fixture's own end.
"""

import time

import pytest

from instance import IMAGE


def exec_(instance, sandbox, command, **fields):
    answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/exec",
                          {"command": command, **fields})
    assert answer.status == 200, f"{answer}\n{instance.logs()}"
    return answer.json


def test_the_image_is_ours(instance, run):
    got = run("id -un; id -u; pwd; echo $HOME; sudo id -un; cat /etc/machine-id | wc -c;"
              " ls /etc/ssh/ssh_host_* 2>/dev/null | wc -l; locale -a | grep -c UTF-8 || locale -a")
    assert got["exit_code"] == 0, got
    lines = got["stdout"].split("\n")
    assert lines[:6] == ["skerry", "1000", "/workspace", "/home/skerry", "root", "33"], got


def test_python_runs(run):
    got = run("print(6 * 7)", runtime="PYTHON")
    assert (got["exit_code"], got["stdout"]) == (0, "42\n"), got


def test_ping_works_for_the_user(run):
    got = run("ping -c 1 -W 2 127.0.0.1")
    assert got["exit_code"] == 0, got


@pytest.mark.parametrize("how", ["restart_daemon", "kill9_daemon", "restart_keeper", "kill9_keeper"])
def test_a_sandbox_and_its_command_outlive(instance, new_sandbox, how):
    sandbox = new_sandbox()
    path = f"/sandboxes/{sandbox['id']}"
    marker = exec_(instance, sandbox, "cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1")
    started = instance.api("POST", path + "/commands",
                           {"command": "while [ ! -e /tmp/end ]; do sleep 0.05; done; echo done"})
    assert started.status == 201, started
    getattr(instance, how)()

    def works():
        answer = instance.api("POST", path + "/exec", {"command": "touch /tmp/end"})
        assert answer.status in (200, 503), answer
        return answer.status == 200

    end = time.monotonic() + 30
    while not works():
        assert time.monotonic() < end, instance.logs()
        time.sleep(0.1)
    assert exec_(instance, sandbox, "cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1")[
        "stdout"] == marker["stdout"]
    record = instance.api("GET", f"{path}/commands/{started.json['id']}?wait=30").json
    assert (record["status"], record["exit_code"]) == ("SUCCESSFUL", 0), record
    assert instance.api("GET", path).json["status"] == "RUNNING"


def test_the_command_line(instance):
    done = instance.cli("create", "by-cli", "--os", IMAGE, "--wait", "running")
    assert done.returncode == 0, done.stderr
    try:
        done = instance.cli("exec", "by-cli", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    finally:
        done = instance.cli("destroy", "by-cli")
    assert done.returncode == 0, done.stderr
