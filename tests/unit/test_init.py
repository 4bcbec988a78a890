"""skerry-init from outside: started as PID 1, spoken to over its socket. Needs root.

usage: test_init.py <skerry-init> [unittest arguments]
"""

import hashlib
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import init_driver as d  # noqa: E402

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "skerry-init"
MIB = 1 << 20
PIPE = 65536
STDIN_KEEP = MIB
with open(PROGRAM, "rb") as program:
    SANITIZED = re.search(b"__[at]san_init", program.read())  # its memory says nothing then

# A child in a session of its own that ignores TERM, and one more below it.
STUBBORN = (
    "setsid bash -c 'trap \"\" TERM; setsid sleep 1000 & while :; do sleep 0.01; done' & "
    "trap '' TERM; echo ready; while :; do sleep 0.01; done"
)


def wait_for(what, limit=10):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        v = what()
        if v:
            return v
        time.sleep(0.01)
    return what()


class Case(unittest.TestCase):
    options = {}

    def setUp(self):
        self.a = d.Agent(PROGRAM, **self.options)

    def tearDown(self):
        log = self.a.log_text()
        self.a.close()
        self.assertEqual(log, "")

    def fails(self, reason, field, **kw):
        argv = kw.pop("argv", ["true"])
        with self.assertRaises(d.Failed) as f:
            self.a.run(argv, **kw)
        self.assertEqual((f.exception.reason, f.exception.field), (reason, field))
        return f.exception

    def sandbox_processes(self):
        """Processes of the pid namespace but PID 1, zombies included."""
        ns = os.readlink(f"/proc/{self.a.pid}/ns/pid")
        found = []
        for p in os.listdir("/proc"):
            try:
                if p.isdigit() and int(p) != self.a.pid and os.readlink(f"/proc/{p}/ns/pid") == ns:
                    found.append(int(p))
            except OSError:
                pass
        return found

    def children(self):
        with open(f"/proc/{self.a.pid}/task/{self.a.pid}/children") as f:
            return f.read().split()


class Run(Case):
    def test_output_and_end(self):
        c = self.a.sh("printf out; printf err >&2; exit 7", id="cmaaaaaaaaaaaaaaaaaaaa")
        self.assertEqual((bytes(c.out[0]), bytes(c.out[1])), (b"out", b"err"))
        self.assertEqual((c.exit.reason, c.exit.code, c.exit.signal), (d.EXITED, 7, 0))
        self.assertEqual((c.exit.total, c.exit.dropped), ([3, 3], [0, 0]))

    def test_codes_and_signals(self):
        for script, want in (
            ("exit 0", (d.EXITED, 0, 0)),
            ("exit 255", (d.EXITED, 255, 0)),
            ("exit 300", (d.EXITED, 44, 0)),
            ("kill -9 $$", (d.SIGNALED, 137, 9)),
            ("kill -SEGV $$", (d.SIGNALED, 139, 11)),
            ("kill -TERM $$", (d.SIGNALED, 143, 15)),
        ):
            x = self.a.sh(script).exit
            self.assertEqual((x.reason, x.code, x.signal), want, script)

    def test_child_state(self):
        c = self.a.sh(
            "umask; ls /proc/self/fd; ps -o pid=,sid=,pgid=,ni= -p $$; "
            "grep -E 'Sig(Blk|Ign)' /proc/self/status; "
            "ulimit -n; ulimit -Hn"
        )
        lines = c.out[0].decode().split("\n")
        self.assertEqual(lines[0], "0022")
        self.assertEqual(lines[1:5], ["0", "1", "2", "3"])  # 3 is the directory ls reads
        pid = str(c.pid)
        self.assertEqual(lines[5].split(), [pid, pid, pid, "0"])
        for line in lines[6:8]:
            self.assertEqual(int(line.split()[1], 16), 0, line)
        self.assertEqual(lines[8], "1024")
        self.assertGreaterEqual(int(lines[9]), 1024)

    def test_values_are_exact(self):
        values = ["-n", "\\t", "a b", "$(id)", "`id`", "'\"'", "x\ny", "=x", "\U0001f600", ""]
        code = "import sys,os,json;print(json.dumps([sys.argv[1:],os.environ['V']]))"
        for v in values:
            c = self.a.run(["python3", "-c", code, v], env=["V=" + v, "a.b=1"])
            import json

            self.assertEqual(json.loads(c.out[0]), [[v], v])

    def test_environment(self):
        c = self.a.run(["env"], env=["PATH=/bin:/usr/bin", "X=1", "X=2"])
        env = dict(line.split("=", 1) for line in c.out[0].decode().splitlines())
        self.assertEqual(
            env,
            {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash",
             "PATH": "/bin:/usr/bin", "LANG": "C.UTF-8", "X": "2"},
        )
        self.fails("env_invalid", "env", env=["novalue"])
        self.fails("env_invalid", "env", env=["=x"])

    def test_user(self):
        for who in ("nobody", "65534"):
            c = self.a.run(["sh", "-c", "id -u; id -G; echo $HOME; echo x >/dev/stdout"], user=who)
            self.assertEqual(c.out[0], b"65534\n65534\n/nonexistent\nx\n")
            self.assertEqual(c.user, "nobody")
        self.fails("user_not_found", "user", user="nosuch")
        self.fails("user_not_found", "user", user="123456")
        c = self.a.run(["id", "-u"], default_user="nosuch")
        self.assertEqual((c.out[0], c.user), (b"0\n", "root"))
        self.assertIn("nosuch", c.warning)

    def test_cwd(self):
        c = self.a.run(["pwd"], cwd="/usr", default_cwd="/nowhere")
        self.assertEqual((c.out[0], c.cwd, c.warning), (b"/usr\n", "/usr", ""))
        for bad in ("/nowhere", "/etc/passwd", "usr", "/etc/passwd/x"):
            e = self.fails("cwd_invalid", "cwd", cwd=bad)
            self.assertIn(bad, e.text)
        self.fails("cwd_invalid", "cwd", cwd="/root", user="nobody")
        c = self.a.run(["pwd"], default_cwd="/nowhere")
        self.assertEqual((c.out[0], c.cwd), (b"/root\n", "/root"))
        self.assertIn("/nowhere", c.warning)
        c = self.a.run(["pwd"], user="nobody")
        self.assertEqual(c.out[0], b"/\n")

    def test_programs(self):
        e = self.fails("command_not_found", "args", argv=["nosuch-program"])
        self.assertIn("nosuch-program", e.text)
        self.fails("command_not_found", "args", argv=["/nosuch"])
        self.fails("command_not_found", "args", argv=[""])
        self.fails("command_not_executable", "args", argv=["/etc/passwd"])
        self.fails("command_not_executable", "args", argv=["/etc"])
        self.fails("args_too_long", "args", argv=["true", "x" * 200000])
        e = self.fails("runtime_missing", "runtime", argv=["1"], runtime=d.JAVASCRIPT,
                       env=["PATH=/nowhere"])
        self.assertIn("node", e.text)
        c = self.a.run(["import sys;print(sys.argv,__name__)"], runtime=d.PYTHON)
        self.assertEqual(c.out[0], b"['-c'] __main__\n")

    def test_long_scripts(self):
        pad = "# \u00e9\u20ac\U0001f600\n"
        body = "echo first $# $0\n" + pad * (MIB // len(pad.encode()) - 10) + "echo last\nexit 3\n"
        c = self.a.sh(body)
        self.assertEqual(c.out[0], b"first 0 /bin/bash\nlast\n")
        self.assertEqual(c.exit.code, 3)
        one_line = "x='" + "\u20ac" * 100000 + "'; printf %s \"$x\" | sha256sum"
        c = self.a.sh(one_line)
        self.assertEqual(c.out[0].split()[0].decode(),
                         hashlib.sha256(("\u20ac" * 100000).encode()).hexdigest())
        py = "import sys\nx='" + "\u20ac" * 100000 + "'\nprint(sys.argv, __name__, len(x))\n"
        c = self.a.run([py], runtime=d.PYTHON)
        self.assertEqual(c.out[0], b"['-c'] __main__ 100000\n")
        if shutil.which("node"):
            js = "const x='" + "\u20ac" * 100000 + "';\n"
            js += "console.log(process.argv.length, x.length, typeof require)\n"
            c = self.a.run([js], runtime=d.JAVASCRIPT)
            self.assertEqual(c.out[0], b"1 100000 function\n")
        self.fails("script_too_long", "command", argv=["x" * 200000], runtime=d.TYPESCRIPT)

    def test_same_id(self):
        with self.a.conn() as c:
            c.run(["sleep", "1000"], wait=False)
            e = self.fails("command_exists", "", id=c.id)
            self.assertEqual(e.code, 17)


class Stdin(Case):
    def test_at_end_of_file(self):
        self.assertEqual(self.a.sh("cat; read x; echo \"[$x]\"").out[0], b"[]\n")

    def pump(self, argv, data, flags=d.RUN_STDIN):
        """Feeds `data` while output comes back, as the host does: never waiting on one of both, and
        within the window."""
        c = self.a.conn()
        c.send(d.RUN, d.run_payload(argv, flags=flags))
        todo = bytearray()
        at = 0
        acked = [0, 0]
        eof = False
        c.s.settimeout(None)
        c.s.setblocking(False)
        digest = hashlib.sha256()
        end = time.monotonic() + 120
        while c.exit is None:
            self.assertLess(time.monotonic(), end, "stuck")
            piece = data[at : at + min(60000, c.room())]
            if piece:
                todo += d.frame(d.STDIN, piece)
                at += len(piece)
                c.fed = at
            elif at >= len(data) and not eof:
                todo += d.frame(d.STDIN_EOF)
                eof = True
            if acked != c.have:
                acked = list(c.have)
                todo += d.frame(d.ACK, struct.pack("<QQ", *acked))
            r, w, _ = select.select([c.s], [c.s] if todo else [], [], 5)
            if w:
                try:
                    del todo[: c.s.send(todo[: 1 << 18])]
                except BlockingIOError:
                    pass
            if r:
                data_in = c.s.recv(1 << 18)
                self.assertTrue(data_in, "closed")
                c.raw += data_in
                while len(c.raw) >= 5 and len(c.raw) >= 5 + struct.unpack_from("<I", c.raw)[0]:
                    c.step(ack=False)
                digest.update(c.out[0])
                c.out[0].clear()
        c.close()
        return c, digest.hexdigest()

    def test_64_mib_in(self):
        data = random.randbytes(64 * MIB)
        c, _ = self.pump(["sha256sum"], data)
        self.assertEqual(c.exit.code, 0)
        self.assertEqual(c.exit.total[0], 68)

    def test_64_mib_through(self):
        data = random.randbytes(64 * MIB)
        c, got = self.pump(["cat"], data)
        self.assertEqual((c.exit.code, c.exit.total[0]), (0, len(data)))
        self.assertEqual(got, hashlib.sha256(data).hexdigest())

    def test_amplified(self):
        data = (b"x" * 63 + b"\n") * (16 * MIB // 64)
        c, got = self.pump(["sed", "s/x/xxxxxxxxxxxxxxxxxxxx/g"], data)
        line = b"x" * 63 * 20 + b"\n"
        want = hashlib.sha256()
        for _ in range(16 * MIB // 64 // 1024):
            want.update(line * 1024)
        self.assertEqual((c.exit.code, c.exit.total[0]), (0, len(line) * (16 * MIB // 64)))
        self.assertEqual(got, want.hexdigest())

    def fill(self, c):
        """Feeds until no more is taken for a while."""
        c.s.settimeout(0.3)
        try:
            while True:
                while c.room():
                    c.feed(b"x" * min(60000, c.room()))
                c.step()
        except socket.timeout:
            pass
        c.s.settimeout(30)

    def test_backpressure(self):
        """A command that does not read holds up its client, and nobody else."""
        with self.a.conn() as c:
            c.run(["sleep", "1000"], wait=False, flags=d.RUN_STDIN)
            self.fill(c)
            self.assertEqual(c.fed, c.taken + d.STDIN_WINDOW)
            self.assertLessEqual(c.taken, PIPE)
            self.assertEqual(self.a.sh("echo ok").out[0], b"ok\n")

    def test_ack_behind_stdin(self):
        """All the stdin a client may have under way lies before the ACK that output waits for."""
        with self.a.conn() as c:
            c.run(["sh", "-c", "head -c 8388608 /dev/zero; exec wc -c >&2"], wait=False,
                  flags=d.RUN_STDIN)
            while c.room():
                c.feed(b"x" * min(1000, c.room()))
            while c.have[0] < 8 * MIB:
                c.step()
            c.send(d.STDIN_EOF)
            c.until(d.EXIT)
            self.assertEqual((c.exit.code, int(c.out[1])), (0, c.fed))
            self.assertEqual(c.taken, c.fed)

    def test_window_exceeded(self):
        """Whoever sends more loses the connection; the command runs on with what was allowed."""
        for extra in (1, 60000, MIB):
            c = self.a.conn()
            c.run(["sh", "-c", "kill -STOP $$; wc -c"], wait=False, flags=d.RUN_STDIN)
            self.fill(c)
            try:
                c.send(d.STDIN, b"y" * extra)
                with self.assertRaises((d.Closed, ConnectionResetError)):
                    while True:
                        c.step()
            except (BrokenPipeError, ConnectionResetError):
                pass
            c.close()
            with self.a.conn() as k:
                k.signal(c.id, signal.SIGCONT)
            with self.a.conn() as again:
                again.attach(c.id, wait=False)
                again.send(d.STDIN_EOF)
                again.until(d.EXIT)
                self.assertEqual(int(again.out[0]), c.fed)

    def test_counted_anew(self):
        """A client that takes over has a whole window, and is told of its own bytes only."""
        c = self.a.conn()
        c.run(["sh", "-c", "kill -STOP $$; tr -d x | wc -c; exec cat"], wait=False,
              flags=d.RUN_STDIN)
        self.fill(c)
        old = c.fed
        with self.a.conn() as b:
            b.attach(c.id, wait=False)
            with self.assertRaises((d.Closed, ConnectionResetError)):
                while True:
                    c.step()
            b.feed(b"y" * d.STDIN_WINDOW)
            b.s.settimeout(0.3)
            with self.assertRaises(socket.timeout):
                b.step()
            b.s.settimeout(30)
            self.assertEqual(b.taken, 0)
            with self.a.conn() as k:
                k.signal(c.id, signal.SIGCONT)
            while b.taken < d.STDIN_WINDOW:
                b.step()
            b.feed(b"y" * 5)
            b.send(d.STDIN_EOF)
            b.until(d.EXIT)
            self.assertEqual(int(b.out[0]), d.STDIN_WINDOW + 5)
        self.assertGreater(old, d.STDIN_WINDOW)
        c.close()

    def test_clients_that_fill_and_go(self):
        """What a command has not taken is bounded, however many clients leave something."""
        c = self.a.conn()
        c.run(["sh", "-c", "kill -STOP $$; wc -c"], wait=False, flags=d.RUN_STDIN)
        self.fill(c)
        c.close()
        kept = c.fed
        for i in range(6):
            b = self.a.conn()
            b.attach(c.id, wait=False)
            try:
                b.feed(b"x" * d.STDIN_WINDOW)
                b.s.settimeout(0.3)
                b.step()
            except socket.timeout:
                kept += b.fed
            except (d.Closed, ConnectionResetError, BrokenPipeError):
                pass
            b.close()
        self.assertLessEqual(kept, PIPE + STDIN_KEEP)
        self.assertGreater(kept, PIPE + STDIN_KEEP - d.STDIN_WINDOW)
        with self.a.conn() as k:
            k.signal(c.id, signal.SIGCONT)
        with self.a.conn() as b:
            b.attach(c.id, wait=False)
            b.send(d.STDIN_EOF)
            b.until(d.EXIT)
            self.assertEqual(int(b.out[0]), kept)

    def test_dropped_is_taken(self):
        """What nobody will read is acknowledged: no stdin at all, and a reader that has gone."""
        for argv, flags in ((["sleep", "1000"], 0),
                            (["sh", "-c", "exec <&-; exec sleep 1000"], d.RUN_STDIN)):
            with self.a.conn() as c:
                c.run(argv, wait=False, flags=flags)
                while c.taken < 4 * MIB:
                    while c.room():
                        c.feed(b"x" * min(60000, c.room()))
                    c.step()

    def test_small_pieces(self):
        with self.a.conn() as c:
            c.run(["cat"], wait=False, flags=d.RUN_STDIN)
            for i in range(100):
                c.feed(b"%d\n" % i)
                while c.taken < c.fed or c.have[0] < c.fed:
                    c.step()

    def test_reader_that_leaves(self):
        c, _ = self.pump(["sh", "-c", "head -c 1; exec <&-; sleep 0.3; echo done"], b"x" * 4 * MIB)
        self.assertEqual((c.exit.code, c.exit.total[0]), (0, 6))


class GivenUp(Case):
    """A client that leaves before STARTED: what it asked for is not run later."""

    def test_before_it_was_read(self):
        id = d.new_id()
        os.kill(self.a.pid, signal.SIGSTOP)
        try:
            c = self.a.conn()
            c.send(d.RUN, d.run_payload(["sh", "-c", f"echo ran >/tmp/{id}; sleep 1000"], id=id))
            c.close()
        finally:
            os.kill(self.a.pid, signal.SIGCONT)
        self.assertNotIn(id, self.a.conn().list())
        self.assertEqual(self.a.sh(f"test -e /tmp/{id}").exit.code, 1)

    def test_at_any_moment(self):
        for n in range(100):
            id = d.new_id()
            with self.a.conn() as c:
                c.send(d.RUN, d.run_payload(["sleep", "1000"], id=id))
                time.sleep(n * 0.00005)
            time.sleep(0.005)
            # executed before its client left: then it is known, runs, and can be ended
            if id in (known := self.a.conn().list()):
                self.assertTrue(known[id][0])
                self.a.conn().terminate(id, signal.SIGKILL, 0)
        self.assertTrue(wait_for(lambda: not self.sandbox_processes()))


class Ends(Case):
    def gone(self):
        self.assertEqual(wait_for(lambda: not self.sandbox_processes()), True)
        if self.a.group:
            self.assertTrue(wait_for(lambda: not self.a.leaves()))

    def test_time_limit(self):
        t = time.monotonic()
        c = self.a.sh(STUBBORN, timeout_ms=1000)
        took = time.monotonic() - t
        self.assertEqual((c.exit.reason, c.exit.code), (d.TIMED_OUT, 137))
        self.assertEqual(c.out[0], b"ready\n")
        self.assertGreater(took, 0.9)
        self.assertLess(took, 2)
        self.gone()

    def test_limit_of_the_command_only(self):
        c = self.a.sh("sleep 1000 & echo $!", timeout_ms=300)
        self.assertEqual(c.exit.reason, d.EXITED)
        time.sleep(0.6)
        self.assertEqual(len(self.sandbox_processes()), 1)

    def test_terminate(self):
        with self.a.conn() as c:
            c.run([STUBBORN], runtime=d.BASH, wait=False)
            c.until(d.OUTPUT)
            with self.a.conn() as t:
                t.terminate(c.id, 15, 300)
            c.until(d.EXIT)
            self.assertEqual((c.exit.reason, c.exit.code, c.exit.signal), (d.KILLED, 137, 9))
        self.gone()

    def test_terminate_reaches_all_with_its_signal(self):
        with self.a.conn() as c:
            c.run(["(setsid sh -c 'trap \"echo child; exit\" USR2; echo r; "
                   "while :; do sleep 0.01; done' &) ; trap 'echo own; exit 9' USR2; echo r; "
                   "while :; do sleep 0.01; done"], runtime=d.BASH, wait=False)
            while c.have[0] < 4:
                c.step()
            with self.a.conn() as t:
                t.terminate(c.id, signal.SIGUSR2, 10000)
            c.until(d.EXIT)
            self.assertEqual(sorted(c.out[0].split()), [b"child", b"own", b"r", b"r"])
            self.assertEqual((c.exit.reason, c.exit.code, c.exit.signal), (d.KILLED, 9, 12))
        self.gone()

    def test_terminate_what_is_left(self):
        c = self.a.sh("setsid sleep 1000 & echo ok")
        self.assertEqual((c.exit.reason, c.out[0]), (d.EXITED, b"ok\n"))
        self.assertEqual(len(self.sandbox_processes()), 1)
        with self.a.conn() as l:
            self.assertEqual(l.list()[c.id][1:3], (1, 1))
        with self.a.conn() as t:
            t.terminate(c.id)
        self.gone()
        with self.a.conn() as t, self.assertRaises(d.Failed) as f:
            t.terminate(c.id)
        self.assertEqual((f.exception.code, f.exception.reason), (3, "nothing_left"))
        with self.a.conn() as l:
            line = l.list()[c.id]
        self.assertEqual((line[1:3], line[3].reason), ((1, 0), d.EXITED))

    def test_terminate_what_a_forgotten_one_left(self):
        c = self.a.sh("setsid sleep 1000 & echo ok")
        for _ in range(2):
            with self.a.conn() as f:
                f.forget(c.id)
        with self.a.conn() as l:
            self.assertEqual(l.list()[c.id][1:3], (1, 1))
        with self.a.conn() as t:
            t.terminate(c.id)
        self.gone()
        with self.a.conn() as l:
            self.assertEqual(l.list(), {})

    def test_forks_faster_than_it_is_killed(self):
        with self.a.conn() as c:
            c.run(["python3", "-c",
                   "import os\nprint(1,flush=True)\n"
                   "while True:\n  if os.fork(): os._exit(0)\n"], wait=False)
            with self.a.conn() as t:
                t.terminate(c.id, 9, 0)
        self.gone()

    def test_signal(self):
        with self.a.conn() as c:
            c.run(["trap 'echo got' USR1; (setsid sh -c 'trap \"echo wrong\" USR1; echo r; "
                   "while :; do sleep 0.01; done' &); echo r; "
                   "while :; do sleep 0.01; done"], runtime=d.BASH, wait=False)
            while c.have[0] < 4:
                c.step()
            with self.a.conn() as s:
                s.signal(c.id, signal.SIGUSR1)
            c.until(d.OUTPUT)
            time.sleep(0.1)
            with self.a.conn() as s:
                s.terminate(c.id, 9, 0)
            c.until(d.EXIT)
            self.assertEqual(c.out[0], b"r\nr\ngot\n")
        with self.a.conn() as s, self.assertRaises(d.Failed) as f:
            s.signal(c.id, 10)
        self.assertEqual(f.exception.reason, "command_ended")
        with self.a.conn() as s, self.assertRaises(d.Failed) as f:
            s.signal(d.new_id(), 10)
        self.assertEqual(f.exception.reason, "command_unknown")

    def test_background_child_does_not_hold_the_answer(self):
        t = time.monotonic()
        c = self.a.sh("(sleep 0.05; echo late; sleep 1000) & echo now")
        self.assertLess(time.monotonic() - t, 1)
        self.assertEqual(c.out[0], b"now\nlate\n")
        # it goes on writing and is not killed by that
        c = self.a.sh("(for i in $(seq 30); do head -c 100000 /dev/zero; sleep 0.01; done; "
                      "exec 3>/dev/null; setsid sleep 999) & true")
        self.assertTrue(wait_for(lambda: any(
            "999" in d.read(f"/proc/{p}/cmdline") for p in self.sandbox_processes())))

    def test_end_of_output_ends_at_once(self):
        best = min(self.a.sh("true").exit.duration_us for _ in range(5))
        t = time.monotonic()
        for _ in range(20):
            self.a.run(["true"])
        self.assertLess((time.monotonic() - t) / 20, 0.05)
        self.assertLess(best, 50000)


class Output(Case):
    def test_100_mb(self):
        code = (
            "import os,random,hashlib,threading\n"
            "def w(fd):\n"
            "  r=random.Random(fd)\n  h=hashlib.sha256()\n"
            "  for i in range(50):\n"
            "    b=r.randbytes(1000000)\n    h.update(b)\n"
            "    m=memoryview(b)\n"
            "    while m: m=m[os.write(fd,m):]\n"
            "t=[threading.Thread(target=w,args=(i,)) for i in (1,2)]\n"
            "[x.start() for x in t];[x.join() for x in t]\n"
        )
        c = self.a.run(["python3", "-c", code])
        self.assertEqual((c.exit.code, c.exit.dropped, c.gaps), (0, [0, 0], []))
        for i in (1, 2):
            r = random.Random(i)
            want = hashlib.sha256()
            for _ in range(50):
                want.update(r.randbytes(1000000))
            self.assertEqual(hashlib.sha256(c.out[i - 1]).hexdigest(), want.hexdigest())

    def test_window(self):
        """A client that acknowledges nothing holds up the command, not the agent."""
        with self.a.conn() as c:
            c.run(["sh", "-c", "head -c 10000000 /dev/zero"], wait=False)
            c.s.settimeout(0.5)
            with self.assertRaises(socket.timeout):
                c.until(d.EXIT, ack=False)
            self.assertEqual(c.have[0], d.WINDOW)
            cpu = cpu_ticks(self.a.pid)
            time.sleep(0.5)
            self.assertLess(cpu_ticks(self.a.pid) - cpu, 10)  # it does not spin
            c.s.settimeout(20)
            c.ack()
            c.until(d.EXIT)
            self.assertEqual((c.have[0], c.exit.dropped[0]), (10000000, 0))

    def test_small_output_held_at_the_window(self):
        """The writer has ended and the pipe still holds bytes: nothing is lost, nothing spins."""
        n = d.WINDOW + 30000
        with self.a.conn() as c:
            c.run(["head", "-c", str(n), "/dev/zero"], wait=False)
            time.sleep(0.3)
            c.until(d.EXIT)
            self.assertEqual((c.have[0], c.exit.total[0], c.exit.dropped[0]), (n, n, 0))

    def numbers(self, n):
        return b"".join(b"%09d\n" % i for i in range(n))

    def test_detached(self):
        """Nobody reads: the command is not held up; head and tail are kept, the rest counted."""
        n, keep = 1000000, 100000
        want = self.numbers(n)
        c = self.a.conn()
        c.run(["python3", "-c",
               f"import sys\nfor i in range({n}): sys.stdout.write('%09d\\n'%i)"],
              wait=False, keep=keep)
        c.close()
        self.wait_end(c.id)
        with self.a.conn() as again:
            again.attach(c.id)
            x = again.exit
            self.assertEqual((x.code, x.total[0]), (0, len(want)))
            self.assertEqual(len(again.gaps), 1)
            _, a, b = again.gaps[0]
            self.assertEqual(bytes(again.out[0]), want[:a] + want[b:])
            self.assertEqual(x.dropped[0], b - a)
            self.assertGreaterEqual(a, keep)
            self.assertEqual(len(want) - b, keep)

    def wait_end(self, id):
        def ended():
            with self.a.conn() as l:
                return l.list()[id][1]

        self.assertTrue(wait_for(ended, 60))

    def test_attach_with_offsets(self):
        with self.a.conn() as c:
            c.run(["sh", "-c", "printf 0123456789; printf abcdefghij >&2; read x; printf AB"],
                  wait=False, flags=d.RUN_STDIN)
            while c.have != [10, 10]:
                c.step(ack=False)
        with self.a.conn() as c2:
            c2.attach(c.id, (4, 7), wait=False)
            self.assertEqual(c2.pid, c.pid)
            while c2.have != [10, 10]:
                c2.step()
            self.assertEqual((c2.out[0], c2.out[1]), (b"456789", b"hij"))
            c2.send(d.STDIN_EOF)
            c2.until(d.EXIT)
            self.assertEqual((c2.out[0], c2.gaps), (b"456789AB", []))
        with self.a.conn() as c3:  # the end, again
            c3.attach(c.id, (12, 10))
            self.assertEqual((c3.exit.code, c3.exit.total), (0, [12, 10]))
        with self.a.conn() as c4, self.assertRaises(d.Failed) as f:
            c4.attach(c.id, (13, 10))
        self.assertEqual(f.exception.reason, "offset_invalid")
        with self.a.conn() as c5, self.assertRaises(d.Failed) as f:
            c5.attach(d.new_id())
        self.assertEqual((f.exception.code, f.exception.reason), (3, "command_unknown"))

    def test_attach_takes_over(self):
        with self.a.conn() as c, self.a.conn() as c2:
            c.run(["sh", "-c", "printf one; read x; printf two"], wait=False, flags=d.RUN_STDIN)
            c.until(d.OUTPUT)
            c2.attach(c.id, (3, 0), wait=False)
            with self.assertRaises(d.Closed):
                c.step()
            c2.send(d.STDIN_EOF)
            c2.until(d.EXIT)
            self.assertEqual(c2.out[0], b"two")

    def test_memory_of_unread_output(self):
        before = int(self.a.status("VmRSS"))
        ids = []
        for _ in range(48):
            c = self.a.conn()
            c.run(["head", "-c", "4000000", "/dev/zero"], wait=False)
            ids.append(c.id)
            c.close()
        for i in ids:
            self.wait_end(i)
        if not SANITIZED:
            self.assertLess(int(self.a.status("VmRSS")) - before, 80 * 1024)
        held = []
        for i in ids:
            with self.a.conn() as c:
                c.attach(i)
                self.assertEqual(len(c.out[0]) + c.exit.dropped[0], 4000000)
                held.append(len(c.out[0]))
        self.assertGreaterEqual(held[-1], 2 * MIB)  # the last one lost nothing it may keep
        self.assertGreaterEqual(min(held), MIB)     # and heads outlive tails
        self.assertGreater(sum(held), 48 * MIB)


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as f:
        v = f.read().rsplit(")", 1)[1].split()
    return int(v[11]) + int(v[12])


class Protocol(Case):
    def dies(self, data, hello=True):
        with self.a.conn(hello=hello) as c:
            c.s.settimeout(5)
            try:
                c.s.sendall(data)
                while True:
                    c.step()
            except (d.Closed, ConnectionResetError, BrokenPipeError):
                pass
            except d.Failed:
                pass

    def test_malformed(self):
        ack = d.frame(d.ACK, struct.pack("<QQ", 5, 5))
        run = d.frame(d.RUN, d.run_payload(["sleep", "1000"]))
        for data in (
            b"\xff" * 100,
            d.frame(200, b"x"),
            d.frame(d.RUN, b"x"),
            d.frame(d.RUN, d.run_payload([])),
            d.frame(d.RUN, d.run_payload(["x"], id="../../etc")),
            d.frame(d.RUN, d.run_payload(["x"]) + b"more"),
            d.frame(d.HELLO, struct.pack("<IIQ", 1, 1, 0)),
            d.frame(d.STDIN, b"x"),
            d.frame(d.STARTED, b""),
            d.frame(d.STDIN_ACK, struct.pack("<Q", 1)),
            run + d.frame(d.STDIN_ACK, struct.pack("<Q", 0)),
            ack,
            run + ack,
            run + run,
            run + d.frame(d.STDIN_EOF, b"x"),
            d.frame(d.SIGNAL, d.enc_str(d.new_id()) + struct.pack("<II", 65, 0)),
            struct.pack("<IB", 65537, d.RUN) + b"x" * 70000,
            (struct.pack("<IB", 65536, d.MORE) + b"x" * 65536) * 40,
        ):
            self.dies(data)
        self.dies(d.frame(d.LIST), hello=False)
        self.dies(d.frame(d.HELLO, struct.pack("<IIQ", 9, 9, 0)), hello=False)
        self.assertEqual(self.a.sh("echo alive").out[0], b"alive\n")

    def test_random_frames(self):
        r = random.Random(1)
        for _ in range(500):
            c = self.a.conn(hello=r.random() < 0.9)
            data = b"".join(
                d.frame(r.choice([*range(1, 13), *range(64, 71), 127, 255]),
                        r.randbytes(r.randrange(40)))
                for _ in range(r.randrange(1, 6))
            )
            try:
                c.s.sendall(data)
            except OSError:
                pass
            c.close()
        self.assertEqual(self.a.sh("echo alive").out[0], b"alive\n")

    def test_byte_by_byte(self):
        with self.a.conn() as c:
            for b in d.frame(d.RUN, d.run_payload(["echo", "slow"])):
                c.s.sendall(bytes([b]))
            c.until(d.EXIT)
            self.assertEqual(c.out[0], b"slow\n")

    def test_many_connections(self):
        conns = [self.a.conn() for _ in range(2048)]
        extra = self.a.conn(timeout=0.3)
        with self.assertRaises(socket.timeout):
            extra.run(["true"])
        conns.pop().close()
        extra.s.settimeout(10)
        extra.until(d.EXIT)
        extra.close()
        for c in conns:
            c.close()
        # those that were answered and stay give way
        lazy = []
        for _ in range(2100):
            c = self.a.conn()
            c.send(d.LIST)
            c.until(d.DONE)
            lazy.append(c)
        for c in lazy:
            c.close()

    def test_forget_and_list(self):
        c = self.a.sh("true")
        with self.a.conn() as r:
            r.run(["sleep", "1000"], wait=False)
            with self.a.conn() as f, self.assertRaises(d.Failed) as e:
                f.forget(r.id)
            self.assertEqual(e.exception.reason, "command_running")
        with self.a.conn() as l:
            self.assertEqual(set(l.list()), {c.id, r.id})
        with self.a.conn() as f:
            f.forget(c.id)
        with self.a.conn() as l:
            self.assertEqual(set(l.list()), {r.id})
        with self.a.conn() as f, self.assertRaises(d.Failed) as e:
            f.forget(c.id)
        self.assertEqual(e.exception.reason, "command_unknown")


class Many(Case):
    def test_10000_commands(self):
        self.a.run(["true"])
        fds, rss = self.a.fds(), int(self.a.status("VmRSS"))
        t = time.monotonic()
        n = 2000 if SANITIZED else 10000
        for i in range(n):
            with self.a.conn() as c:
                c.send(d.RUN, d.run_payload(["/bin/true"] if i % 10 else ["/nosuch"], id=d.new_id()))
                try:
                    c.until(d.EXIT)
                except d.Failed:
                    self.assertEqual(i % 10, 0)
        per = (time.monotonic() - t) / n
        self.assertTrue(wait_for(lambda: self.a.fds() <= fds), (self.a.fds(), fds))
        self.assertTrue(wait_for(lambda: not self.children()))
        self.assertTrue(wait_for(lambda: not self.a.group or not self.a.leaves()))
        with self.a.conn() as l:
            self.assertEqual(len(l.list()), min(4096, n * 9 // 10 + 1))
        print(f"{per * 1e3:.2f} ms a command, rss {rss} -> {self.a.status('VmRSS')} kB", file=sys.stderr)
        if not SANITIZED:
            self.assertLess(int(self.a.status("VmRSS")) - rss, 32 * 1024)

    def test_chaos(self):
        """Connections break at any point of any operation."""
        r = random.Random(2)
        ids = []
        t = time.monotonic()
        while time.monotonic() - t < 8:
            c = self.a.conn()
            what = r.randrange(6)
            id = r.choice(ids) if ids and what else d.new_id()
            sig = struct.pack("<II", r.choice((2, 9, 10, 15)), r.randrange(50))
            try:
                if what == 0:
                    script = r.choice((
                        "head -c 500000 /dev/zero", "cat", "sleep 0.05 & true", "exit 3",
                        "setsid sleep 0.1 & head -c 300000 /dev/urandom >&2", STUBBORN,
                        "while :; do echo x; done"))
                    ids.append(id)
                    c.send(d.RUN, d.run_payload(
                        [script], d.BASH, id=id, flags=r.randrange(2), keep=r.choice((0, 1000, MIB)),
                        timeout_ms=r.choice((20, 100, 500)), user=r.choice(("", "", "nobody", "x"))))
                    if r.random() < 0.5:
                        c.feed(bytes(r.randrange(1, 300000)))
                elif what == 1:
                    c.send(d.ATTACH, d.enc_str(id) + struct.pack("<QQ", 0, 0))
                elif what == 2:
                    c.send(d.TERMINATE, d.enc_str(id) + sig)
                elif what == 3:
                    c.send(d.FORGET, d.enc_str(id))
                elif what == 4:
                    c.send(d.LIST)
                else:
                    c.send(d.SIGNAL, d.enc_str(id) + sig)
                if r.random() < 0.5:
                    c.s.settimeout(r.random() * 0.1)
                    while True:
                        c.step(ack=r.random() < 0.9)
            except (OSError, d.Failed, d.Closed):
                pass
            c.close()
        self.assertGreater(len(ids), 50)
        # what a killed command left lives on, and can be ended, forgotten or not
        with self.a.conn() as l:
            left = l.list()
        for id, line in left.items():
            with self.a.conn() as k:
                try:
                    k.terminate(id, 9, 0)
                except d.Failed as e:
                    self.assertEqual((e.reason, line[2]), ("nothing_left", 0))
        self.assertTrue(wait_for(lambda: not self.sandbox_processes(), 20))
        self.assertTrue(wait_for(lambda: not self.a.leaves(), 20))
        self.assertTrue(wait_for(lambda: self.a.fds() < 14), self.a.fds())
        self.assertEqual(self.a.sh("echo alive").out[0], b"alive\n")

    def test_orphans_are_reaped(self):
        self.a.sh("for i in $(seq 500); do (setsid sh -c 'sleep 0.0$((RANDOM % 10))' &); done")
        self.assertTrue(wait_for(lambda: not self.children()))

    def test_many_at_once(self):
        conns = []
        for i in range(200):
            c = self.a.conn()
            c.send(d.RUN, d.run_payload(["sh", "-c", f"sleep 0.2; echo {i}"]))
            conns.append(c)
        for i, c in enumerate(conns):
            c.until(d.EXIT)
            self.assertEqual(c.out[0], b"%d\n" % i)
            c.close()


class Stop(Case):
    def test_order_and_grace(self):
        marks = self.a.dir + "/marks"
        conns = []
        for i in range(3):
            c = self.a.conn()
            c.run([f"trap 'echo {i} >>{marks}; exit 5' TERM; echo r; while :; do sleep 0.02; done"],
                  runtime=d.BASH, wait=False)
            c.until(d.OUTPUT)
            conns.append(c)
        left = self.a.conn()
        left.run([STUBBORN], runtime=d.BASH, wait=False)
        left.until(d.OUTPUT)
        t = time.monotonic()
        with self.a.conn() as s:
            s.stop(500)
            self.assertLess(time.monotonic() - t, 0.4)
        for c in conns:
            c.until(d.EXIT)
            self.assertEqual((c.exit.reason, c.exit.code, c.exit.signal), (d.KILLED, 5, 15))
        with self.assertRaises(d.Failed) as f:
            self.a.run(["true"])
        self.assertEqual(f.exception.reason, "stopping")
        left.until(d.EXIT)
        self.assertEqual((left.exit.reason, left.exit.signal), (d.KILLED, 9))
        for c in conns + [left]:
            c.close()
        self.assertEqual(self.a.wait(), 0)
        self.assertGreater(time.monotonic() - t, 0.5)
        self.assertEqual(sorted(d.read(marks).split()), ["0", "1", "2"])

    def test_term_once(self):
        marks = self.a.dir + "/marks"
        with self.a.conn() as c:
            c.run([f"trap 'echo x >>{marks}' TERM; echo r; for i in $(seq 25); do sleep 0.02; done"],
                  runtime=d.BASH, wait=False)
            c.until(d.OUTPUT)
            with self.a.conn() as s:
                s.stop(5000)
        self.assertEqual(self.a.wait(), 0)
        self.assertEqual(d.read(marks), "x\n")

    def test_empty_ends_at_once(self):
        t = time.monotonic()
        with self.a.conn() as s:
            s.stop(10000)
        self.assertEqual(self.a.wait(), 0)
        self.assertLess(time.monotonic() - t, 1)

    def test_signal_of_the_host(self):
        self.a.sh("setsid sleep 1000 & kill -TERM 1")
        time.sleep(0.2)
        self.assertEqual(self.a.sh("echo alive").out[0], b"alive\n")  # inside nobody can
        os.kill(self.a.pid, signal.SIGTERM)
        self.assertEqual(self.a.wait(), 0)


class Bare(Ends):
    """Without a cgroup2 mount."""

    options = {"cgroup": False}

    # What is orphaned in a session of its own is not found without a cgroup.
    test_time_limit = test_terminate = test_terminate_reaches_all_with_its_signal = None
    test_terminate_what_is_left = test_forks_faster_than_it_is_killed = None
    test_terminate_what_a_forgotten_one_left = None

    def test_tree(self):
        script = "trap '' TERM; (trap '' TERM; sleep 1000) & (sleep 1000 &) ; echo r; sleep 1000"
        c = self.a.sh(script, timeout_ms=500)
        self.assertEqual((c.exit.reason, c.exit.code), (d.TIMED_OUT, 137))
        self.gone()
        c = self.a.sh("sleep 1000 & true")
        with self.a.conn() as t:
            t.terminate(c.id)
        self.gone()
        with self.a.conn() as t, self.assertRaises(d.Failed):
            t.terminate(c.id)


class Frozen(Case):
    """A child that gets no further than its birth: the agent goes on, the limit holds."""

    def setUp(self):
        super().setUp()
        if not self.a.group:
            self.skipTest("no cgroup2")
        with open(self.a.group + "/work/cgroup.freeze", "w") as f:
            f.write("1")

    def tearDown(self):
        if self.a.group:
            with open(self.a.group + "/work/cgroup.freeze", "w") as f:
                f.write("0")
        super().tearDown()

    def test_time_limit(self):
        e = self.fails("not_started", "", timeout_ms=300)
        self.assertIn("before the program was executed", e.text)
        self.assertTrue(wait_for(lambda: not self.sandbox_processes() and not self.a.leaves()))

    def test_terminate(self):
        with self.a.conn() as c, self.a.conn() as t, self.a.conn() as l:
            c.send(d.RUN, d.run_payload(["true"], id=(id := d.new_id())))
            wait_for(lambda: self.a.leaves())
            self.assertEqual(l.list()[id][1:3], (0, 0))
            t.terminate(id, 15, 200)
            with self.assertRaises(d.Failed) as f:
                c.until(d.EXIT)
            self.assertEqual(f.exception.reason, "not_started")

    def write_as_child(self, data):
        """Root inside has the child's end of the pipe it reports on."""
        procs = f"{self.a.group}/work/{self.a.leaves()[0]}/cgroup.procs"
        pid = wait_for(lambda: d.read(procs).strip())
        for fd in os.listdir(f"/proc/{pid}/fd"):
            info = d.read(f"/proc/{pid}/fdinfo/{fd}")
            flags = int(next(x for x in info.splitlines() if x.startswith("flags")).split()[1], 8)
            path = f"/proc/{pid}/fd/{fd}"
            if os.readlink(path).startswith("pipe") and flags & os.O_WRONLY:
                w = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(w, data)
                except BrokenPipeError:
                    pass  # the command has been given up by now
                os.close(w)

    def test_forged_reports(self):
        size = 5960  # struct spawn_report
        for data in (
            random.Random(3).randbytes(60000),
            (b"\1\0\0\0" + b"y" * (size - 4)) * 5,
            b"\2\0\0\0" + b"\xff" * (size - 4),
            b"\2\0\0\0" + b"\0" * (size - 4),
        ):
            with self.a.conn() as c:
                c.send(d.RUN, d.run_payload(["true"], timeout_ms=1000))
                self.assertTrue(wait_for(lambda: self.a.leaves()))
                self.write_as_child(data)
                with self.assertRaises(d.Failed) as f:
                    c.until(d.EXIT)
                self.assertIn(f.exception.code, range(1, 4096))
            self.assertTrue(wait_for(lambda: not self.a.leaves()))
        with self.a.conn() as c:  # a lie of the right form is only ever shown
            c.send(d.RUN, d.run_payload(["true"], timeout_ms=500))
            self.assertTrue(wait_for(lambda: self.a.leaves()))
            self.write_as_child(b"\1\0\0\0" + b"y" * (size - 4))
            c.until(d.EXIT)
            self.assertEqual((c.exit.reason, len(c.cwd)), (d.TIMED_OUT, 4095))

    def test_the_client_leaves(self):
        c = self.a.conn()
        c.send(d.RUN, d.run_payload(["true"], timeout_ms=300, id=(id := d.new_id())))
        wait_for(lambda: self.a.leaves())
        c.close()
        self.assertTrue(wait_for(lambda: not self.a.leaves()))
        with self.a.conn() as l:
            self.assertNotIn(id, l.list())


class Delegated(Ends):
    """As on a host: root of a user namespace, agent and commands in sibling cgroups."""

    options = {"userns": True}

    def test_in_its_leaf(self):
        c = self.a.sh("cat /proc/self/cgroup; id -u; sleep 1000 & ")
        self.assertIn(b"/work/c-", c.out[0])
        self.assertIn(b"\n0\n", c.out[0])
        self.assertEqual(len(self.a.leaves()), 1)

    def test_strange_tree(self):
        """Root inside owns the tree of leaves."""
        work = self.a.group + "/work"
        for i in range(1, 40):
            os.mkdir(f"{work}/c-{i}")
        c = self.a.sh("sleep 1000 & true")
        self.assertEqual(c.exit.code, 0)
        leaf = [n for n in self.a.leaves() if d.read(f"{work}/{n}/cgroup.procs")]
        self.assertEqual(len(leaf), 1)
        os.mkdir(f"{work}/{leaf[0]}/deeper")
        with self.a.conn() as t:
            t.terminate(c.id)
        self.assertFalse(os.path.exists(f"{work}/{leaf[0]}"))


V1_PIDS = "/sys/fs/cgroup/pids"
V1_MEMORY = "/sys/fs/cgroup/memory"


@unittest.skipUnless(os.path.exists(V1_PIDS + "/cgroup.procs"), "no v1 pids hierarchy")
class Limits(unittest.TestCase):
    def setUp(self):
        self.top = f"{V1_PIDS}/skerry-test-{os.getpid()}"
        for n in ("", "/agent", "/work"):
            os.mkdir(self.top + n)

    def tearDown(self):
        for n in ("/work", "/agent", ""):
            wait_for(lambda: not d.read(self.top + n + "/cgroup.procs"))
            os.rmdir(self.top + n)

    def limit(self, group, n):
        with open(f"{self.top}/{group}/pids.max", "w") as f:
            f.write(str(n))

    def agent(self):
        return d.Agent(PROGRAM, v1=[self.top + "/work"], agent_v1=[self.top + "/agent"])

    def test_fork_bomb(self):
        self.limit("work", 100)
        with self.agent() as a:
            c = a.conn()
            c.run([":(){ :|:& };:"], runtime=d.BASH, wait=False)
            time.sleep(1)
            t = time.monotonic()
            self.assertEqual(a.run(["echo", "ok"]).out[0], b"ok\n")
            with a.conn() as k:
                k.terminate(c.id, 9, 0)
            self.assertLess(time.monotonic() - t, 2)
            c.close()
            self.assertEqual(a.sh("echo a | cat").out[0], b"a\n")

    def test_no_process_to_be_had(self):
        with self.agent() as a:
            self.limit("agent", 0)
            with self.assertRaises(d.Failed) as f:
                a.run(["true"])
            self.assertEqual((f.exception.code, f.exception.reason), (11, "limit_pids"))
            self.assertEqual(a.leaves(), [])
            self.limit("agent", "max")
            self.assertEqual(a.run(["true"]).exit.code, 0)


@unittest.skipUnless(os.path.exists(V1_MEMORY + "/cgroup.procs"), "no v1 memory hierarchy")
class Memory(unittest.TestCase):
    HOG = "x = bytearray(1 << 30)"

    def setUp(self):
        self.top = f"{V1_MEMORY}/skerry-test-{os.getpid()}"
        os.mkdir(self.top)
        with open(self.top + "/memory.limit_in_bytes", "w") as f:
            f.write(str(64 * MIB))

    def tearDown(self):
        wait_for(lambda: not d.read(self.top + "/cgroup.procs"))
        os.rmdir(self.top)

    def told(self, c):
        return c.exit.reason, c.exit.code, c.exit.signal, c.exit.oom

    def test_used_up(self):
        with d.Agent(PROGRAM, v1=[self.top]) as a:
            c = a.run(["python3", "-c", self.HOG])
            self.assertEqual(self.told(c), (d.SIGNALED, 137, 9, 0))  # nobody tells why
            # somebody sits on all of it: the agent answers, and ends him
            hog = a.conn()
            hog.run(["python3", "-c",
                     "import time\nx = []\nfor i in range(45): x.append(b'x' * (1 << 20))\n"
                     "print('full', flush=True)\ntime.sleep(1000)"], wait=False)
            hog.until(d.OUTPUT)
            t = time.monotonic()
            self.assertEqual(a.run(["echo", "ok"]).out[0], b"ok\n")
            with a.conn() as k:
                k.terminate(hog.id, 9, 0)
            self.assertLess(time.monotonic() - t, 2)
            hog.close()

    def test_reason(self):
        with d.Agent(PROGRAM, v1=[self.top], oom=self.top + "/memory.oom_control") as a:
            self.assertEqual(self.told(a.run(["true"])), (d.EXITED, 0, 0, 0))
            self.assertEqual(self.told(a.run(["python3", "-c", self.HOG])), (d.OOM, 137, 9, 1))
            # the count stands, and is no fault of the next
            self.assertEqual(self.told(a.sh("kill -9 $$")), (d.SIGNALED, 137, 9, 0))
            self.assertEqual(self.told(a.sh(f"python3 -c '{self.HOG}'; exit $?")),
                             (d.EXITED, 137, 0, 1))
            self.assertEqual(self.told(a.sh(f"python3 -c '{self.HOG}'; true")),
                             (d.EXITED, 0, 0, 1))
            # what was asked for stays what it is
            c = a.sh(f"python3 -c '{self.HOG}'; sleep 1000", timeout_ms=3000)
            self.assertEqual(self.told(c), (d.TIMED_OUT, 137, 9, 1))
            c = a.conn()
            c.run([f"python3 -c '{self.HOG}'; echo gone; sleep 1000"], runtime=d.BASH, wait=False)
            c.until(d.OUTPUT)
            with a.conn() as l:
                self.assertEqual(l.list()[c.id][1], 0)
            with a.conn() as k:
                k.terminate(c.id, 9, 0)
            c.until(d.EXIT)
            self.assertEqual(self.told(c), (d.KILLED, 137, 9, 1))
            with a.conn() as l:
                self.assertEqual(l.list()[c.id][3].oom, 1)
            c.close()

    def test_no_file_of_the_sandbox(self):
        """A file that is no cgroup's is not believed."""
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("oom_kill 5\n")
            f.flush()
            with d.Agent(PROGRAM, v1=[self.top], oom=f.name) as a:
                c = a.conn()
                c.run(["sh", "-c", "echo; read x; kill -9 $$"], wait=False, flags=d.RUN_STDIN)
                c.until(d.OUTPUT)
                f.seek(0)
                f.write("oom_kill 6\n")
                f.flush()
                c.feed(b"\n")
                c.until(d.EXIT)
                self.assertEqual(self.told(c), (d.SIGNALED, 137, 9, 0))
                c.close()


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(77)  # meson: skipped
    unittest.main(argv=sys.argv)
