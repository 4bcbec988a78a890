"""What a sandbox reaches and what it does not. No packet leaves this machine: the outside is a
network namespace of the test's own, to which only traffic from the test's sandboxes is routed."""

import contextlib
import ipaddress
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from kit import IMAGE, execute, gone, link_of, until

PUBLIC4, PUBLIC6 = "192.88.99.1", "3fff::1"  # neither is anybody's; stand for the internet
PRIVATE = ["10.255.77.1", "172.31.77.1", "192.168.77.1", "100.64.77.1", "169.254.169.254",
           "169.254.77.1", "198.51.100.1", "203.0.113.1", "198.18.77.1", "192.0.2.1", "fd00:77::1",
           "2001:db8::1", "64:ff9b::a00:1"]
TABLE = "7701"


def sh(*words, check=True, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    assert not check or done.returncode == 0, done
    return done.stdout


CONNECT = """
import socket, sys, json
for host, port in json.loads(sys.stdin.read()):
    try:
        s = socket.create_connection((host, port), 1.5)
        print('open', s.recv(100).decode(errors='replace'))
    except OSError as e:
        print('closed', e)
"""


def connect(instance, sandbox, *targets):
    """'open …' or 'closed …' for each (address, port), tried from inside."""
    done = execute(instance, sandbox, CONNECT, runtime="PYTHON", stdin=json.dumps(targets),
                   timeout=120)
    assert done["exit_code"] == 0, done
    return done["stdout"].splitlines()


class Server:
    """Accepts on every address of this namespace, in both families, TCP and UDP; keeps count."""

    def __init__(self):
        self.seen = []
        self.tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.udp.bind(("::", self.port))
        for work in (self.accept, self.receive):
            threading.Thread(target=work, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                s, peer = self.tcp.accept()
                self.seen.append(("tcp", peer[0]))
                with contextlib.suppress(OSError):
                    s.sendall(b"hello from outside")
                s.close()

    def receive(self):
        with contextlib.suppress(OSError):
            while True:
                data, peer = self.udp.recvfrom(2000)
                if not peer:
                    return
                self.seen.append(("udp", peer[0], data.decode(errors="replace")))

    def close(self):
        for s in (self.tcp, self.udp):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


@pytest.fixture(scope="module")
def boxes(instance):
    made = []
    for name in ("net-one", "net-two"):
        answer = instance.api("POST", "/sandboxes?wait=running", {"name": name, "os": IMAGE})
        assert answer.status == 201, f"{answer}\n{instance.logs()}"
        made.append(answer.json)
    yield made
    for sandbox in made:
        gone(instance, sandbox["id"])


def addresses(instance, sandbox):
    words = execute(instance, sandbox, "hostname -I")["stdout"].split()
    four = next(w for w in words if "." in w)
    six = next(w for w in words if ":" in w and not w.startswith("fe80"))
    return four, six


# --- inside --------------------------------------------------------------------------------------

def test_names_and_addresses_inside(instance, boxes):
    for number, name in ((0, "net-one"), (1, "net-two")):
        done = execute(instance, boxes[number],
                       "hostname; cat /etc/hostname; getent hosts $(hostname) localhost; "
                       "echo; cat /etc/hosts; echo; cat /etc/resolv.conf; echo; ip route; "
                       "ip -6 route; ls -ld /etc/hosts /etc/resolv.conf /etc/hostname")["stdout"]
        assert done.startswith(f"{name}\n{name}\n"), done
        assert re.search(rf"^127\.0\.1\.1\s+{name}$", done, re.M), done
        assert re.search(r"^127\.0\.0\.1\s+localhost$", done, re.M), done
        gateway = re.search(r"^nameserver (\S+)$", done, re.M).group(1)
        assert ipaddress.ip_address(gateway) in ipaddress.ip_network(instance.ipv4), done
        assert re.search(rf"^default via {gateway} ", done, re.M), done
        assert re.search(r"^default via fe80::1 ", done, re.M), done
        assert "root root" in done
    assert not set(addresses(instance, boxes[0])) & set(addresses(instance, boxes[1]))
    four, six = addresses(instance, boxes[0])
    assert ipaddress.ip_address(four) in ipaddress.ip_network(instance.ipv4)
    assert ipaddress.ip_address(six) in ipaddress.ip_network("fd00::/8")


def test_the_namespace_is_its_own(instance, boxes):
    done = execute(instance, boxes[0], "ls /sys/class/net; ip -o link | wc -l; "
                   "sudo ip link add dummy0 type dummy 2>&1; sudo ip link set lo down; "
                   "sudo ip link set lo up; echo $?; cat /proc/net/dev | wc -l")["stdout"]
    assert "eth0" in done and instance.name not in done, done


def test_sudo(instance, boxes):
    done = execute(instance, boxes[0], "sudo -n id -u && sudo -n -u nobody id -un")
    assert done["stdout"] == "0\nnobody\n", done
    assert done["stderr"] == "", done


# --- names ---------------------------------------------------------------------------------------

@pytest.fixture
def names(instance):
    """The instance's dnsmasq with records of the test's, asking nobody else."""
    conf = instance.base / "run/conf/dnsmasq.conf"
    text = conf.read_text()
    conf.write_text(text + f"no-resolv\naddress=/there.example/{PUBLIC4}\n"
                           f"address=/there.example/{PUBLIC6}\n")
    instance._end("names", signal.SIGTERM)
    instance._spawn("names")
    yield
    conf.write_text(text)
    instance._end("names", signal.SIGTERM)
    instance._spawn("names")


def test_the_resolver_answers(instance, boxes, names):
    look = "getent ahosts there.example | awk '{print $1}' | sort -u"
    until(lambda: execute(instance, boxes[0], look)["stdout"].split() == [PUBLIC4, PUBLIC6],
          "the name resolves")
    start = time.monotonic()
    done = execute(instance, boxes[1], "getent hosts nobody.example; echo $?", timeout=30)
    assert done["stdout"] == "2\n", done
    assert time.monotonic() - start < 2, "refused names fail at once"


def test_the_resolver_serves_sandboxes_only(instance, boxes):
    pid = instance.children["names"].pid
    sockets = [line for kind in ("-u", "-t") for line in
               sh("ss", "-Hlnp", kind, "sport = :53").splitlines() if f"pid={pid}," in line]
    heard = {line.split()[3].rsplit(":", 1)[0].strip("[]").split("%")[0] for line in sockets}
    assert heard, sockets
    for address in map(ipaddress.ip_address, heard):
        assert (address in ipaddress.ip_network(instance.ipv4) or address.is_link_local
                or address in ipaddress.ip_network("fd00::/8")), heard


# --- the host ------------------------------------------------------------------------------------

def host_addresses():
    found = re.findall(r"inet6? (\S+)/\d+", sh("ip", "-o", "address", "show", "scope", "global"))
    return sorted(set(found))


def test_the_host_is_refused(instance, boxes):
    server = Server()
    try:
        gateway = str(ipaddress.ip_network(instance.ipv4).network_address + 1)
        targets = [(a, server.port) for a in {*host_addresses(), gateway}]
        assert len(targets) >= 2, targets
        targets.append(("fe80::1%eth0", server.port))
        # the server can be reached: from the host itself
        with socket.create_connection((gateway, server.port), 5) as s:
            assert s.recv(100) == b"hello from outside"
        del server.seen[:]
        # whatever address a packet comes from, now and once the link has settled
        for _ in range(2):
            answers = connect(instance, boxes[0], *targets)
            assert [a for a in answers if "refused" not in a] == [], answers
            execute(instance, boxes[0], "sleep 2.5")
        udp = ("import socket, sys, json\n"
               "for host, port in json.loads(sys.stdin.read()):\n"
               " for family, *_, to in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):\n"
               "  s = socket.socket(family, socket.SOCK_DGRAM)\n"
               "  for _ in range(3):\n"
               "   try: s.sendto(b'datagram', to)\n"
               "   except OSError: pass\n")
        assert execute(instance, boxes[0], udp, runtime="PYTHON",
                       stdin=json.dumps(targets))["exit_code"] == 0
        time.sleep(0.3)
        assert server.seen == []
    finally:
        server.close()


def test_the_api_is_refused(instance, boxes):
    targets = [(a, instance.port) for a in host_addresses()] + [("127.0.0.1", instance.port)]
    assert all(a.startswith("closed") for a in connect(instance, boxes[0], *targets))


# --- siblings ------------------------------------------------------------------------------------

SERVE = """
import socket
s = socket.create_server(('::', 8200), family=socket.AF_INET6, dualstack_ipv6=True)
print('up', flush=True)
while True:
    c, _ = s.accept()
    c.sendall(socket.gethostname().encode())
    c.close()
"""


@pytest.fixture
def serving(instance, boxes):
    """A server in the second box."""
    answer = instance.api("POST", f"/sandboxes/{boxes[1]['id']}/commands",
                          {"command": SERVE, "runtime": "PYTHON"})
    assert answer.status == 201, answer
    until(lambda: connect(instance, boxes[1], ("127.0.0.1", 8200)) == ["open net-two"], "it serves")
    yield addresses(instance, boxes[1])
    instance.api("POST", f"/sandboxes/{boxes[1]['id']}/commands/{answer.json['id']}/terminate",
                 {"grace": 0})


def from_host(address):
    with socket.create_connection((address, 8200), 5) as s:
        return s.recv(100)


def test_siblings_are_refused(instance, boxes, serving):
    for address in serving:
        assert from_host(address) == b"net-two", "the host's own proxy reaches it"
    own = connect(instance, boxes[1], *[(a, 8200) for a in serving])
    assert own == ["open net-two"] * 2, own
    others = connect(instance, boxes[0], *[(a, 8200) for a in serving])
    assert all(a.startswith("closed") for a in others), others
    assert all("refused" in a for a in others), f"at once, not by a time-out: {others}"


def test_a_siblings_address_is_not_to_be_had(instance, boxes, serving):
    """Taking it, and telling everybody, changes nothing for anybody else."""
    four, six = serving
    take = (f"ip addr add {four}/32 dev eth0; ip -6 addr add {six}/128 dev eth0 nodad; "
            "cat > /tmp/arp.py <<'X'\n"
            "import socket, struct\n"
            "mac = bytes.fromhex(open('/sys/class/net/eth0/address').read().strip()"
            ".replace(':', ''))\n"
            f"ip = socket.inet_aton('{four}')\n"
            "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n"
            "s.bind(('eth0', 0))\n"
            "for op in (1, 2):\n"
            " for _ in range(5):\n"
            "  s.send(b'\\xff' * 6 + mac + b'\\x08\\x06' + struct.pack('!HHBBH', 1, 0x800, 6, 4, op)\n"
            "         + mac + ip + b'\\xff' * 6 + ip)\n"
            "X\npython3 /tmp/arp.py; echo $?; ip neigh flush all")
    done = execute(instance, boxes[0], take, user="root")
    assert done["stdout"].startswith("0\n"), done
    try:
        for address in serving:
            assert from_host(address) == b"net-two"
    finally:
        execute(instance, boxes[0], f"ip addr del {four}/32 dev eth0; "
                                    f"ip -6 addr del {six}/128 dev eth0", user="root")


# --- outside -------------------------------------------------------------------------------------

class Outside:
    def __init__(self, log):
        self.log = log

    def seen(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def far_side(log):
    """Runs in the namespace: accepts and notes who came to which address."""
    tcp = socket.create_server(("::", 8300), family=socket.AF_INET6, dualstack_ipv6=True)
    udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    udp.bind(("::", 8300))

    def note(*what):
        with open(log, "a") as f:
            f.write(json.dumps(what) + "\n")

    def datagrams():
        while True:
            data, peer = udp.recvfrom(2000)
            note("udp", peer[0], data.decode(errors="replace"))

    threading.Thread(target=datagrams, daemon=True).start()
    note("up")
    while True:
        s, peer = tcp.accept()
        note("tcp", peer[0], s.getsockname()[0])
        with contextlib.suppress(OSError):
            s.sendall(b"hello from far")
        s.close()


@pytest.fixture
def outside(instance, boxes, tmp_path):
    here = pathlib.Path(__file__).parents[1]
    ns, near = f"{instance.name}far", f"{instance.name}near"
    log = tmp_path / "far"
    with contextlib.ExitStack() as undo:
        sh("ip", "netns", "add", ns)
        undo.callback(sh, "ip", "netns", "del", ns, check=False)
        sh("ip", "link", "add", near, "type", "veth", "peer", "name", "far", "netns", ns)
        undo.callback(sh, "ip", "link", "del", near, check=False)
        sh("ip", "addr", "add", "198.18.200.1/30", "dev", near)
        sh("ip", "-6", "addr", "add", "3fff:200::1/126", "dev", near, "nodad")
        sh("ip", "link", "set", near, "up")
        pathlib.Path(f"/proc/sys/net/ipv4/conf/{near}/rp_filter").write_text("0")
        inside = ["ip", "-n", ns]
        sh(*inside, "addr", "add", "198.18.200.2/30", "dev", "far")
        sh(*inside, "-6", "addr", "add", "3fff:200::2/126", "dev", "far", "nodad")
        sh(*inside, "link", "set", "far", "up")
        sh(*inside, "link", "set", "lo", "up")
        sh(*inside, "route", "add", "default", "via", "198.18.200.1")
        sh(*inside, "-6", "route", "add", "default", "via", "3fff:200::1")
        for address in [PUBLIC4, PUBLIC6, *PRIVATE]:
            six = ":" in address
            family, length, via = ("-6", 128, "3fff:200::2") if six else ("-4", 32, "198.18.200.2")
            sh(*inside, family, "addr", "add", f"{address}/{length}", "dev", "lo",
               *(["nodad"] if six else []))
            sh("ip", family, "route", "add", f"{address}/{length}", "via", via, "dev", near,
               "table", TABLE)
        for link in (link_of(instance, box) for box in boxes):
            for family in "-4", "-6":
                rule = [family, "rule", "add", "pref", "77", "iif", link, "lookup", TABLE]
                sh("ip", *rule)
                undo.callback(sh, "ip", family, "rule", "del", *rule[3:], check=False)
        child = subprocess.Popen(["ip", "netns", "exec", ns, sys.executable, "-B", "-c",
                                  "import sys; sys.path[:0] = sys.argv[2:]; import test_network; "
                                  "test_network.far_side(sys.argv[1])", str(log),
                                  *[str(here / d) for d in ("e2e", ".", "instance")]])
        undo.callback(child.wait)
        undo.callback(child.kill)
        until(lambda: log.exists() and log.read_text(), "the far side is up")
        yield Outside(log)


def test_the_internet_is_reached(instance, boxes, outside):
    answers = connect(instance, boxes[0], (PUBLIC4, 8300), (PUBLIC6, 8300))
    assert answers == ["open hello from far"] * 2, answers
    came = [s[1].removeprefix("::ffff:") for s in outside.seen() if s[0] == "tcp"]
    assert came == ["198.18.200.1", "3fff:200::1"], "the address of the host, not of the sandbox"


def test_private_ranges_are_refused(instance, boxes, outside):
    answers = connect(instance, boxes[0], *[(a, 8300) for a in PRIVATE])
    assert [a for a in zip(PRIVATE, answers) if "refused" not in a[1]] == [], "told, and at once"
    assert [s for s in outside.seen() if s[0] != "up"] == []
    assert connect(instance, boxes[0], (PUBLIC4, 8300)) == ["open hello from far"], "the way is open"


SPOOF = """
import socket, struct, sys
four, six, to4, to6, text = sys.argv[1:6]
def total(data):
    n = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
mark = text.encode() + b' ' * (len(text) % 2)
def udp(source, to):
    head = struct.pack('!HHHH', 4000, 8300, 8 + len(mark), 0)
    pseudo = source + to + struct.pack('!IBBBB', 8 + len(mark), 0, 0, 0, 17)
    check = total(pseudo + head + mark)
    return struct.pack('!HHHH', 4000, 8300, 8 + len(mark), check) + mark
s4, d4 = socket.inet_aton(four), socket.inet_aton(to4)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
body = udp(s4, d4)
raw.sendto(struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(body), 7, 0, 64, 17, 0, s4, d4) + body,
           (to4, 0))
s6, d6 = (socket.inet_pton(socket.AF_INET6, a) for a in (six, to6))
body = udp(s6, d6)
raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
raw.setsockopt(socket.IPPROTO_IPV6, 36, 1)
raw.sendto(struct.pack('!IHBB16s16s', 6 << 28, len(body), 17, 64, s6, d6) + body, (to6, 0))
"""


def test_spoofed_sources_are_dropped(instance, boxes, outside):
    own = addresses(instance, boxes[0])
    sibling = addresses(instance, boxes[1])

    def send(four, six, text):
        done = execute(instance, boxes[0], args=["python3", "-c", SPOOF, four, six, PUBLIC4,
                                                 PUBLIC6, text], user="root")
        assert done["exit_code"] == 0, done

    gateway = str(ipaddress.ip_network(instance.ipv4).network_address + 1)
    send(*sibling, "sibling")
    send(gateway, "3fff:200::1", "gateway")
    send("192.88.99.77", "3fff:77::77", "stranger")
    send("198.18.200.1", "3fff:200::1", "host")
    send(*own, "own")
    until(lambda: len([s for s in outside.seen() if s[0] == "udp"]) >= 2, "its own arrive")
    time.sleep(0.3)
    arrived = [s[2].strip() for s in outside.seen() if s[0] == "udp"]
    assert arrived == ["own", "own"], arrived


def test_nothing_comes_in_from_outside(instance, boxes, outside, serving):
    """Only answers pass towards a sandbox; the host itself reaches it."""
    ns = f"{instance.name}far"
    for address in serving:
        done = subprocess.run(["ip", "netns", "exec", ns, sys.executable, "-c",
                               "import socket, sys\n"
                               "try:\n socket.create_connection((sys.argv[1], 8200), 2)\n"
                               "except OSError: sys.exit(7)", address])
        assert done.returncode == 7, address
        assert from_host(address) == b"net-two"


DNS = """
import socket, struct
gateway = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]
question = bytes.fromhex('123401000001000000000000057468657265076578616d706c650000010001')  # there.example
with socket.create_connection((gateway, 53), 10) as s:
    s.sendall(struct.pack('>H', len(question)) + question)
    print(s.recv(4)[2:].hex())
"""


def test_names_over_tcp(instance, sandbox, names):
    done = until(lambda: (d := execute(instance, sandbox, DNS, runtime="PYTHON", timeout=60))[
        "exit_code"] == 0 and d, "the resolver takes connections")
    assert done["stdout"] == "1234\n", done


def test_questions_make_no_connections_of_the_host(instance, sandbox, names):
    count = pathlib.Path("/proc/sys/net/netfilter/nf_conntrack_count")
    if not count.exists():
        pytest.skip("this host does not track connections")
    before = int(count.read_text())
    done = execute(instance, sandbox, """
import socket
gateway = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]
for i in range(5000):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b'x', (gateway, 53))
""", runtime="PYTHON", timeout=60)
    assert done["exit_code"] == 0, done
    assert int(count.read_text()) - before < 2500
