"""What a sandbox tells of itself: its memory, processors, age and load, not the host's."""

import os
import re
import time

import pytest

from kit import background, execute, until

MIB = 1 << 20
RESERVE = 16  # MiB beside what was asked for: the agent's


@pytest.fixture
def small(instance, new_sandbox):
    return new_sandbox(cpus=1, memory_mb=1024)


def say(instance, sandbox, command):
    done = execute(instance, sandbox, command)
    assert done["exit_code"] == 0, done
    return done["stdout"].strip()


def memory(instance, sandbox, key="MemTotal"):
    """In MiB."""
    text = say(instance, sandbox, "cat /proc/meminfo")
    return int(re.search(rf"(?m)^{key}:\s+(\d+) kB$", text).group(1)) / 1024


def test_memory(instance, small):
    assert 1024 <= memory(instance, small) <= 1024 + RESERVE
    assert int(say(instance, small, "free -m | awk '/^Mem/ {print $2}'")) <= 1024 + RESERVE
    free = memory(instance, small, "MemAvailable")
    background(instance, small, "(head -c 300M /dev/zero; sleep 60) | tail -c 310M > /dev/null")
    until(lambda: memory(instance, small, "MemAvailable") < free - 280, "it is in use")
    assert instance.api("PATCH", f"/sandboxes/{small['id']}", {"memory_mb": 2048}).status == 200
    assert 2048 <= memory(instance, small) <= 2048 + RESERVE


def test_processors(instance, small):
    for told in ("nproc", "grep -c ^processor /proc/cpuinfo"):
        assert say(instance, small, told) == "1", told
    if os.cpu_count() > 1:
        instance.api("PATCH", f"/sandboxes/{small['id']}", {"cpus": 2})
        for told in ("nproc", "grep -c ^processor /proc/cpuinfo"):
            assert say(instance, small, told) == "2", told


def test_age(instance, small):
    host = float(open("/proc/uptime").read().split()[0])
    age = float(say(instance, small, "cut -d' ' -f1 /proc/uptime"))
    assert age < 60 < host or age < host
    time.sleep(1.1)
    later = float(say(instance, small, "cut -d' ' -f1 /proc/uptime"))
    assert later >= age + 1
    assert instance.api("POST", f"/sandboxes/{small['id']}/restart", {"grace": 0}).status == 200
    assert float(say(instance, small, "cut -d' ' -f1 /proc/uptime")) < later


def test_load(instance, small):
    assert re.fullmatch(r"\d+\.\d\d \d+\.\d\d \d+\.\d\d \d+/\d+ \d+",
                        say(instance, small, "cat /proc/loadavg"))


def test_nothing_is_written(instance, small):
    for name in ("meminfo", "cpuinfo", "uptime", "loadavg"):
        done = execute(instance, small, f"echo x > /proc/{name}", user="root")
        assert done["exit_code"] != 0, name
        assert say(instance, small, f"stat -f -c %T /proc/{name}") == "fuseblk", name


def test_programs_that_mount_proc(instance, small):
    done = execute(instance, small, "unshare --pid --fork --mount-proc cat /proc/meminfo",
                   user="root")
    assert done["exit_code"] == 0 and "MemTotal" in done["stdout"], done


def test_without_it(instance, small):
    """When it dies its files answer nothing for a moment, and nothing hangs; a sandbox that starts
    when it is there again has them again."""
    instance.kill9_lxcfs()
    try:
        until(lambda: execute(instance, small, "cat /proc/meminfo")["exit_code"] == 0,
              "the kernel's own are back", 10)
        assert memory(instance, small) > 1024 + RESERVE
        for name in ("cpuinfo", "uptime", "loadavg"):
            say(instance, small, f"cat /proc/{name}")
        assert instance.api("POST", f"/sandboxes/{small['id']}/restart", {"grace": 0}).status == 200
        assert memory(instance, small) > 1024 + RESERVE
    finally:
        instance.start_lxcfs()
    assert instance.api("POST", f"/sandboxes/{small['id']}/restart", {"grace": 0}).status == 200
    assert 1024 <= memory(instance, small) <= 1024 + RESERVE
