"""skerry-init from outside: terminals, and standard input from connections of their own.

usage: test_init_terminal.py <skerry-init> [unittest arguments]
"""

import hashlib
import os
import random
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import init_driver as d  # noqa: E402
from test_init import MIB, SANITIZED, STUBBORN, Case, wait_for  # noqa: E402


class Input(Case):
    """Standard input from connections of their own."""

    def start(self, script, **kw):
        c = self.a.conn()
        kw.setdefault("flags", d.RUN_STDIN)
        c.run([script], runtime=d.BASH, wait=False, **kw)
        self.addCleanup(c.close)
        return c

    def test_each_writer_keeps_its_order(self):
        c = self.start("exec cat")
        lines = 2000
        for _ in range(3):
            for name in "ab":
                w = self.a.conn().input(c.id)
                w.send(d.STDIN, "".join(f"{name}{i}\n" for i in range(lines)).encode())
                w.input_end()
        w = self.a.conn().input(c.id)
        w.send(d.STDIN, b"the end\n")
        w.input_end(eof=True)
        c.until(d.EXIT)
        got = bytes(c.out[0]).decode()
        self.assertEqual(len(got), 2 * 3 * sum(len(f"a{i}\n") for i in range(lines)) + 8)
        self.assertTrue(got.endswith("the end\n"), got[-50:])

    def test_beside_the_attached_client(self):
        """Its acknowledgements count its own bytes only."""
        c = self.start("exec sha256sum")
        mine, other = random.randbytes(3 * MIB), random.randbytes(3 * MIB)
        w = self.a.conn().input(c.id)
        sent = [0, 0]
        while sent[0] < len(mine) or sent[1] < len(other):
            n = min(c.room(), len(mine) - sent[0], 65536)
            if n:
                c.feed(mine[sent[0]:sent[0] + n])
                sent[0] += n
            if sent[1] < len(other):
                w.send(d.STDIN, other[sent[1]:sent[1] + 65536])
                sent[1] += 65536
            while sent[0] < len(mine) and not c.room():
                c.step()
        w.input_end()
        while c.taken < len(mine):
            c.step()
        c.send(d.STDIN_EOF)
        c.until(d.EXIT)
        self.assertEqual(c.exit.code, 0)
        self.assertEqual(c.taken, len(mine))

    def test_waits_for_the_command_in_bounded_memory(self):
        c = self.start("sleep 1000")
        w = self.a.conn().input(c.id)
        w.s.settimeout(0.5)
        sent = 0
        before = int(self.a.status("VmRSS"))
        with self.assertRaises(TimeoutError):
            for _ in range(4096):
                w.send(d.STDIN, b"\0" * 65536)
                sent += 65536
        self.assertLess(sent, 4 * MIB)
        if not SANITIZED:
            self.assertLess(int(self.a.status("VmRSS")) - before, 4096)
        # neither others nor its leaving are held up
        self.assertEqual(bytes(self.a.sh("echo here").out[0]), b"here\n")
        fds = self.a.fds()
        w.close()
        self.assertTrue(wait_for(lambda: self.a.fds() < fds))
        self.a.conn().terminate(c.id, 9)

    def test_many_megabytes(self):
        c = self.start("exec sha256sum")
        data = random.randbytes(16 * MIB)
        w = self.a.conn().input(c.id)
        for i in range(0, len(data), 65536):
            w.send(d.STDIN, data[i:i + 65536])
        w.input_end(eof=True)
        c.until(d.EXIT)
        self.assertEqual(bytes(c.out[0][:64]).decode(), hashlib.sha256(data).hexdigest())

    def test_readers_that_left_are_an_ordinary_end(self):
        c = self.start("exec 0<&-; echo closed; sleep 1000")
        while not c.out[0]:
            c.step()
        w = self.a.conn().input(c.id)
        for _ in range(64):
            w.send(d.STDIN, b"x" * 65536)
        w.input_end(eof=True)
        self.a.conn().terminate(c.id, 9)

    def refused(self, reason, id):
        w = self.a.conn().input(id)
        with self.assertRaises(d.Failed) as f:
            w.until(d.DONE)
        self.assertEqual(f.exception.reason, reason)
        w.close()

    def test_refusals(self):
        self.refused("command_unknown", d.new_id())
        ended = self.a.sh("exit 0")
        self.refused("command_ended", ended.id)
        c = self.start("sleep 1000", flags=0)
        self.refused("stdin_closed", c.id)
        self.a.conn().terminate(c.id, 9)

    def test_told_of_the_end(self):
        """A writer hears that nothing will be taken any more, whoever ended it."""
        c = self.start("cat > /dev/null; sleep 1000")
        first, second = self.a.conn().input(c.id), self.a.conn().input(c.id)
        second.send(d.STDIN, b"x")
        first.input_end(eof=True)
        second.send(d.STDIN, b"more")
        with self.assertRaises(d.Failed) as f:
            second.until(d.DONE)
        self.assertEqual(f.exception.reason, "stdin_closed")
        second.close()
        self.refused("stdin_closed", c.id)
        self.a.conn().terminate(c.id, 9)
        c = self.start("sleep 1000")
        w = self.a.conn().input(c.id)
        w.send(d.STDIN, b"x")
        self.a.conn().terminate(c.id, 9)
        w.send(d.STDIN, b"more")
        with self.assertRaises(d.Failed) as f:
            w.until(d.DONE)
        self.assertEqual(f.exception.reason, "command_ended")
        w.close()

    def test_done_whoever_is_first(self):
        """What was taken over stays so, also when the command ends before its writer."""
        for eof in (True, False):
            for _ in range(100):
                c = self.start("read line; echo got $line")
                w = self.a.conn().input(c.id)
                w.send(d.STDIN, b"all\n")
                if eof:
                    w.send(d.STDIN_EOF)
                c.until(d.EXIT)
                w.input_end()
                self.assertEqual(bytes(c.out[0]), b"got all\n")
                c.close()

    def test_one_mebibyte_is_taken_over_at_once(self):
        c = self.start("sleep 1000")
        w = self.a.conn().input(c.id)
        for _ in range(16):
            w.send(d.STDIN, b"x" * 65536)
        w.input_end(eof=True)
        self.a.conn().terminate(c.id, 9)

    def test_writers_leave_room_for_others(self):
        c = self.start("sleep 1000")
        writers = [self.a.conn().input(c.id) for _ in range(1919)]
        for w in writers:
            w.send(d.STDIN, b"x")
        self.refused("too_many_commands", c.id)
        with self.assertRaises(d.Failed) as f:
            self.a.sh("true")
        self.assertEqual(f.exception.reason, "too_many_commands")
        self.a.conn().signal(c.id, signal.SIGCONT)
        self.assertIn(c.id, self.a.conn().list())
        writers[0].input_end()
        w = self.a.conn().input(c.id)
        w.input_end()
        self.assertEqual(self.a.sh("true").exit.code, 0)
        for w in writers[1:]:
            w.close()
        self.a.conn().terminate(c.id, 9)

    def test_garbage_ends_the_connection_only(self):
        c = self.start("exec cat")
        for payload in (d.frame(d.ACK, b"\0" * 16), d.frame(d.STDIN, b"x" * (d.STDIN_WINDOW + 1)),
                        d.frame(d.STDIN_EOF, b"x"), d.frame(d.INPUT, d.enc_str(c.id))):
            w = self.a.conn().input(c.id)
            w.s.sendall(payload)
            with self.assertRaises((d.Closed, ConnectionError)):
                w.until(d.DONE)
            w.close()
        w = self.a.conn().input(c.id)
        w.s.sendall(d.frame(d.STDIN, b"cut")[:-1])  # not a whole message: not taken, not told so
        w.s.shutdown(socket.SHUT_WR)
        with self.assertRaises((d.Closed, ConnectionError)):
            w.until(d.DONE)
        w.close()
        self.a.conn().input(c.id).input_end(eof=True)
        c.until(d.EXIT)
        self.assertEqual(bytes(c.out[0]), b"")


class Terminal(Case):
    def start(self, script, size=(100, 40), **kw):
        c = self.a.conn()
        kw.setdefault("runtime", d.BASH)
        c.run([script], size=size, wait=False, **kw)
        self.addCleanup(c.close)
        return c

    def until_out(self, c, what):
        while what not in c.out[0]:
            c.step()

    def until_runs(self, words):
        """A shell that is hung up while it starts a program may leave it waiting for its end."""
        while words and not self.a.sh(f"pgrep -x {words[0]}").out[0]:
            time.sleep(0.01)

    def test_is_a_terminal(self):
        c = self.a.sh("tty; test -t 0 -a -t 1 -a -t 2 && echo all; stty size; echo $TERM; "
                      "ps -o pid=,sid=,pgid=,tpgid= -p $$; stat -c '%u %g %a' $(tty); "
                      "stty -a | grep -o -- '-\\?iutf8'", size=(123, 45))
        lines = bytes(c.out[0]).decode().split("\r\n")
        self.assertRegex(lines[0], r"^/dev/pts/\d+$")
        self.assertEqual(lines[1:4], ["all", "45 123", "xterm-256color"])
        self.assertEqual(lines[4].split(), [str(c.pid)] * 4)
        self.assertEqual(lines[5:7], ["0 5 620", "iutf8"])
        self.assertEqual((c.exit.code, c.exit.total[1]), (0, 0))

    def test_user_owns_it(self):
        c = self.a.sh("stat -c '%u %g %a' $(tty); echo mine > $(tty)", size=(80, 24), user="nobody")
        self.assertEqual(bytes(c.out[0]), b"65534 5 620\r\nmine\r\n")

    def test_term_of_the_client(self):
        self.assertEqual(bytes(self.a.sh("echo $TERM", size=(1, 1), env=["TERM=vt100"]).out[0]),
                         b"vt100\r\n")
        self.assertEqual(bytes(self.a.run(["env"]).out[0]).count(b"TERM="), 0)

    def test_login_shell(self):
        c = self.start("", runtime=d.SHELL)
        c.feed(b"echo $0 $((6 * 7)); exit 3\n")
        c.until(d.EXIT)
        self.assertRegex(bytes(c.out[0]).decode(), r"[\r\n]-(ba)?sh 42\r\n")
        self.assertEqual(c.exit.code, 3)
        self.assertNotIn(b"job control", c.out[0])

    def test_resize(self):
        c = self.start("import os, signal, time\n"
                       "def tell(*_): os.write(1, b'%d %d\\n' % os.get_terminal_size(0))\n"
                       "signal.signal(signal.SIGWINCH, tell)\n"
                       "os.write(1, b'ready\\n')\n"
                       "while True: time.sleep(1)", runtime=d.PYTHON)
        self.until_out(c, b"ready")
        self.a.conn().resize(c.id, 120, 50)
        self.until_out(c, b"120 50\r\n")
        self.a.conn().resize(c.id, 120, 50)  # asks to draw anew
        self.until_out(c, b"120 50\r\n120 50\r\n")
        self.a.conn().terminate(c.id, 9)

    def test_resize_refusals(self):
        plain = self.a.conn()
        plain.run(["sleep", "1000"], wait=False)
        ended = self.a.sh("true", size=(80, 24))
        for id, reason in ((plain.id, "not_a_terminal"), (d.new_id(), "command_unknown"),
                           (ended.id, "command_ended")):
            with self.assertRaises(d.Failed) as f:
                self.a.conn().resize(id, 80, 24)
            self.assertEqual(f.exception.reason, reason)
        for size in ((0, 24), (80, 0), (4097, 1)):
            with self.assertRaises(d.Closed):
                self.a.conn().resize(plain.id, *size)
        self.a.conn().terminate(plain.id, 9)
        plain.close()

    def test_signals_go_to_the_foreground(self):
        c = self.start("set -m; trap 'echo shell hit' USR1; "
                       "bash -c 'trap \"echo child hit; exit 0\" USR1; echo ready; "
                       "while :; do sleep 0.01; done'; echo over")
        self.until_out(c, b"ready")
        self.a.conn().signal(c.id, signal.SIGUSR1)
        c.until(d.EXIT)
        self.assertIn(b"child hit\r\n", c.out[0])
        self.assertNotIn(b"shell hit", c.out[0])

    def test_a_line_that_goes_dead(self):
        """A shell ends, with what is in its foreground, as by a real hang-up."""
        for before in ("", "sleep 1000\n", "cat\n", "python3 -i\n"):
            for how in ("hang up", "terminate", "stop"):
                c = self.start("", runtime=d.SHELL)
                c.feed(b"echo rea''dy; " + (before or "\n").encode())
                self.until_out(c, b"ready")
                self.until_runs(before.split())
                begin = time.monotonic()
                if how == "hang up":
                    self.a.conn().signal(c.id, signal.SIGHUP)
                elif how == "terminate":
                    self.a.conn().terminate(c.id, 15, 8000)
                else:
                    self.a.conn().stop(8000)
                c.until(d.EXIT)
                self.assertLess(time.monotonic() - begin, 4, (before, how))
                c.close()
                if how == "stop":
                    self.assertEqual(self.a.wait(), 0)
                    self.tearDown()
                    self.setUp()

    def test_typed_control_characters(self):
        c = self.start("echo ready; sleep 1000; echo not reached")
        self.until_out(c, b"ready")
        c.feed(b"\x03")
        c.until(d.EXIT)
        self.assertEqual(c.exit.signal, signal.SIGINT)
        c = self.start("cat; echo end $?")
        c.feed(b"line\n\x04")
        c.until(d.EXIT)
        self.assertEqual(bytes(c.out[0]), b"line\r\nline\r\nend 0\r\n")

    def test_end_of_input_is_typed(self):
        for given, script, want in ((b"line\n", "cat; echo end $?", b"end 0\r\n"),
                                    (b"no newline", "cat; echo; echo end $?", b"end 0\r\n")):
            c = self.start(script)
            c.feed(given)
            c.send(d.STDIN_EOF)
            c.until(d.EXIT)
            self.assertTrue(bytes(c.out[0]).endswith(want), c.out)

    def test_end_of_input_ends_nothing(self):
        c = self.start("read a; echo $?; read b; echo got $b")
        self.a.conn().input(c.id).input_end(eof=True)
        self.until_out(c, b"1\r\n")
        w = self.a.conn().input(c.id)
        w.send(d.STDIN, b"typed\n")
        w.input_end()
        c.until(d.EXIT)
        self.assertIn(b"got typed\r\n", c.out[0])

    def test_end_of_input_is_nothing_to_who_reads_keys(self):
        c = self.start("stty raw -echo; echo ready; head -c 3 | od -An -tx1")
        self.until_out(c, b"ready")
        c.send(d.STDIN_EOF)
        c.feed(b"abc")
        c.until(d.EXIT)
        self.assertIn(b"61 62 63", c.out[0])

    def test_paste_is_exact(self):
        data = random.randbytes(2 * MIB)
        c = self.start(f"stty raw -echo; echo ready; head -c {len(data)} | sha256sum")
        self.until_out(c, b"ready")
        at = 0
        while at < len(data):
            n = min(c.room(), len(data) - at)
            c.feed(data[at:at + n])
            at += n
            while at < len(data) and not c.room():
                c.step()
        c.until(d.EXIT)
        self.assertIn(hashlib.sha256(data).hexdigest().encode(), c.out[0])

    def test_output_is_exact(self):
        script = "stty -opost; head -c 3000000 /dev/zero | tr '\\0' x; printf end"
        for _ in range(5):
            c = self.a.sh(script, size=(80, 24))
            self.assertEqual(len(c.out[0]), 3000003)
            self.assertEqual(bytes(c.out[0]), b"x" * 3000000 + b"end")

    def test_closing_it_for_a_while_ends_nothing(self):
        c = self.start("t=$(tty); exec 0<&- 1>&- 2>&-; sleep 0.3; exec <$t >$t 2>&1; echo back")
        c.until(d.EXIT)
        self.assertEqual(bytes(c.out[0]), b"back\r\n")
        self.assertEqual(c.exit.code, 0)

    def test_background_children_do_not_hold_the_end(self):
        c = self.a.sh("trap '' HUP; sleep 1000 & echo $!", size=(80, 24))
        self.assertEqual(c.exit.code, 0)
        self.assertLess(c.exit.duration_us, 2000000)
        self.a.conn().terminate(c.id, 9)

    def test_time_limit_and_terminate(self):
        c = self.a.sh(STUBBORN, size=(80, 24), timeout_ms=500)
        self.assertEqual(c.exit.reason, d.TIMED_OUT)
        self.assertEqual(wait_for(lambda: not self.sandbox_processes()), True)
        c = self.start(STUBBORN)
        self.until_out(c, b"ready")
        self.a.conn().terminate(c.id, 15, 100)
        c.until(d.EXIT)
        self.assertEqual(wait_for(lambda: not self.sandbox_processes()), True)

    def test_detached_and_attached_again(self):
        c = self.start("echo one; read a; echo two $a; read b; echo three $b")
        self.until_out(c, b"one\r\n")
        have = len(c.out[0])
        c.close()
        w = self.a.conn().input(c.id)
        w.send(d.STDIN, b"x\n")
        w.input_end()
        again = self.a.conn()
        again.attach(c.id, (have, 0), wait=False)
        self.until_out(again, b"two x\r\n")
        again.feed(b"y\n")
        again.until(d.EXIT)
        self.assertIn(b"three y\r\n", again.out[0])
        again.close()

    def test_the_sandbox_cannot_get_between(self):
        """What it mounts over the place of terminals is not met by PID 1."""
        self.a.sh("true")
        before = self.a.fds()
        self.a.sh("mkfifo /tmp/skerry-test-trap; mount --bind /tmp/skerry-test-trap /dev/pts/ptmx; "
                  "mount -t tmpfs none /dev/pts; mkfifo /dev/pts/ptmx; rm /tmp/skerry-test-trap")
        with self.assertRaises(d.Failed) as f:
            self.a.sh("tty", size=(80, 24))
        self.assertEqual(f.exception.reason, "limit_descriptors")
        self.assertEqual(bytes(self.a.sh("echo on").out[0]), b"on\n")
        self.assertEqual(wait_for(lambda: self.a.fds() <= before), True)

    def test_nothing_is_left(self):
        self.a.conn().forget(self.a.sh("true", size=(80, 24)).id)
        before = self.a.fds()
        for _ in range(50):
            self.a.conn().forget(self.a.sh("echo x", size=(80, 24)).id)
        self.assertEqual(wait_for(lambda: self.a.fds() <= before), True)
        self.assertEqual(self.sandbox_processes(), [])


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(77)  # meson: skipped
    unittest.main()
