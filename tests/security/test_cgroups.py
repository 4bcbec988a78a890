"""What root inside can do with the cgroups it is given, and what it cannot."""

from kit import cgroup_dirs, execute, gone


def root(instance, sandbox, command, **fields):
    return execute(instance, sandbox, command, user="root", **fields)


def test_groups_are_bounded(instance, sandbox):
    done = root(instance, sandbox, """
        cd /sys/fs/cgroup
        for i in $(seq 5000); do mkdir m$i 2>/dev/null || break; done; echo $i
        for i in $(seq 100); do mkdir -p m1/d 2>/dev/null; done
        rmdir m? m?? 2>/dev/null; d=.
        for i in $(seq 100); do mkdir $d/e 2>/dev/null || break; d=$d/e; done; echo $i""",
                timeout=60)
    wide, deep = (int(n) for n in done["stdout"].split())
    assert 100 < wide <= 1025 and 4 < deep <= 17, done
    # it can still be used, stopped, started and deleted
    at = f"/sandboxes/{sandbox['id']}"
    assert execute(instance, sandbox, "echo hi")["stdout"] == "hi\n"
    assert instance.api("POST", f"{at}/restart", {"grace": 0}).status == 200
    assert execute(instance, sandbox, "echo hi")["stdout"] == "hi\n"
    assert instance.api("DELETE", at).status == 204
    gone(instance, sandbox["id"])
    assert not [d for d in cgroup_dirs(instance) if sandbox["id"] in str(d)]


def test_pid_1_stays_where_it_is(instance, sandbox):
    done = root(instance, sandbox, """
        cd /sys/fs/cgroup && mkdir evil && echo $$ >evil/cgroup.procs && echo moved
        echo 1 >evil/cgroup.procs; echo 1 >cgroup.procs; cat evil/cgroup.procs | grep -cx 1""")
    assert done["stdout"] == "moved\n0\n", done
    assert done["stderr"].count("Permission denied") == 2, done


def test_the_key_to_its_groups_is_pid_1s_alone(instance, sandbox):
    for user in ("root", "skerry"):
        done = execute(instance, sandbox, "grep Groups: /proc/self/status; id -G", user=user)
        assert "65534" not in done["stdout"], done
