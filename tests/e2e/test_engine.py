"""What an image has below /var/lib/docker and /var/lib/containerd: sandboxes begin with it."""

import io
import itertools
import os
import re
import shutil
import struct
import subprocess
import tarfile

import pytest

from kit import disks, errors_of, execute, gone, until

PROGRAMS = "sh cat find ls readlink rm sort stat touch".split()
PREPARED = ("/var/lib/containerd 711 0:0 directory\n"
            "/var/lib/docker 710 0:0 directory\n"
            "/var/lib/docker/overlay2 710 0:0 directory\n"
            "/var/lib/docker/overlay2/l 700 0:0 directory\n")
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)  # v2, effective, net_raw

numbers = itertools.count(1)


def stated(*paths, but=""):
    """A command that describes what is there, but for some name, in the order of names."""
    return f"find {' '.join(paths)} ! -path '{but}' -exec stat -c '%n %a %u:%g %F' {{}} + | sort"


def member(name, kind=tarfile.REGTYPE, mode=0o644, owner=(0, 0), data=b"", **more):
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    info.uid, info.gid = owner
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def directory(name, mode=0o755, owner=(0, 0)):
    return member(name, tarfile.DIRTYPE, mode, owner)


def link(name, target, kind=tarfile.SYMTYPE):
    return member(name, kind, 0o777, linkname=target)


@pytest.fixture(scope="session")
def userland():
    """A shell and a few programs of this host with their libraries: path to bytes."""
    files = {}
    for program in PROGRAMS:
        path = shutil.which(program)
        files["bin/" + program] = path
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            files[library.lstrip("/")] = library
    return {name: open(path, "rb").read() for name, path in files.items()}


def archive(userland, members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in userland.items():
            tar.addfile(member(name, mode=0o755, data=data)[0], io.BytesIO(data))
        for info, data in [directory("etc"), directory("tmp", 0o1777), *members]:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def new_image(instance, userland):
    """new_image(member, ...) imports an image; its name. Deleted with the test: then nothing of it
    is in the pool, nor of its sandboxes."""
    before = disks(instance)
    names = []

    def make(*members):
        name = f"engine-{next(numbers)}"
        file = instance.base / f"{name}.tar"
        file.write_bytes(archive(userland, members))
        done = instance.cli("image", "import", name, str(file))
        file.unlink()
        assert done.returncode == 0, f"{done.stderr}\n{instance.logs()}"
        names.append(name)
        return name

    yield make
    for name in names:
        assert instance.api("DELETE", f"/images/{name}").status == 204
    assert disks(instance) == before


@pytest.fixture
def new_box(instance, new_image):
    """new_box(image): a sandbox, deleted before the images are."""
    made = []

    def make(image):
        answer = instance.api("POST", "/sandboxes?wait=running",
                              {"name": f"box-{next(numbers)}", "os": image})
        assert answer.status == 201, f"{answer}\n{instance.logs()}"
        made.append(answer.json["id"])
        assert answer.json["status"] == "RUNNING", f"{answer}\n{instance.logs()}"
        return answer.json

    yield make
    for sandbox_id in made:
        gone(instance, sandbox_id)


def shown(instance, sandbox, command):
    done = execute(instance, sandbox, command, user="root")
    assert (done["exit_code"], done["stderr"]) == (0, ""), done
    return done["stdout"]


def engines(instance):
    return {name for name in disks(instance) if name.endswith(".engine")}


CONTENT = [
    directory("var/lib/docker", 0o750, (7, 8)),
    directory("var/lib/docker/image"),
    member("var/lib/docker/image/store", mode=0o640, owner=(1000, 65534), data=b"of the image"),
    link("var/lib/docker/image/again", "var/lib/docker/image/store", tarfile.LNKTYPE),
    link("var/lib/docker/image/away", "/etc/passwd"),
    member("var/lib/docker/a file\nof two lines", data=b""),
]
CONTENT_SHOWN = (
    "/var/lib/docker/image 755 0:0 directory\n"
    "/var/lib/docker/image/again 640 1000:65534 regular file\n"
    "/var/lib/docker/image/away 777 0:0 symbolic link\n"
    "/var/lib/docker/image/store 640 1000:65534 regular file\n")


def test_content_is_there_and_persists(instance, new_image, new_box):
    box = new_box(new_image(*CONTENT))
    assert shown(instance, box, stated("/var/lib/docker/image")) == CONTENT_SHOWN
    look = "cd /var/lib/docker; stat -c '%a %u:%g' .; cat image/store; stat -c %h image/again"
    assert shown(instance, box, look) == "750 7:8\nof the image2\n"
    assert shown(instance, box, "stat -c %s /var/lib/docker/a*lines") == "0\n"
    # what every engine has is there beside it
    assert shown(instance, box, stated("/var/lib/containerd", "/var/lib/docker/overlay2")) == (
        PREPARED.replace("/var/lib/docker 710 0:0 directory\n", ""))

    shown(instance, box, "cd /var/lib/docker && echo changed > image/store && echo new > own"
                         " && rm image/away")
    look = "cd /var/lib/docker && cat image/store own && ls image"
    assert shown(instance, box, look) == "changed\nnew\nagain\nstore\n"
    assert instance.api("POST", f"/sandboxes/{box['id']}/restart", {"grace": 1}).status == 200
    assert shown(instance, box, look) == "changed\nnew\nagain\nstore\n"


def test_each_sandbox_has_its_own(instance, new_image, new_box):
    image = new_image(*CONTENT)
    one, other = new_box(image), new_box(image)
    shown(instance, one, "echo changed > /var/lib/docker/image/store; touch /var/lib/docker/one")
    look = "cat /var/lib/docker/image/store; ls /var/lib/docker"
    kept = "of the imagea file\nof two lines\nimage\noverlay2\n"
    assert shown(instance, other, look) == kept
    assert shown(instance, new_box(image), look) == kept


def test_the_image_may_go_first(instance, userland, new_box):
    """Its layer stays for the sandbox; what was taken from it goes with the layer."""
    before = disks(instance)
    answer = instance.raw("POST", "/workspaces/default/images?name=brief",
                          archive(userland, CONTENT), {"Content-Type": "application/x-tar"})
    assert answer.status == 201, f"{answer}\n{instance.logs()}"
    box = new_box("brief")
    assert len(engines(instance)) == 1
    assert instance.api("DELETE", "/images/brief").status == 204
    assert shown(instance, box, "cat /var/lib/docker/image/store") == "of the image"
    gone(instance, box["id"])
    assert disks(instance) == before


@pytest.mark.parametrize("members", [
    [],
    [directory("var/lib/docker", 0o777, (5, 5)), directory("var/lib/containerd")],
    [member("etc/motd", data=b"hello"), member("var/lib/docker-old/x", data=b"x")],
], ids=["none", "empty", "beside"])
def test_without_content_the_tree_is_prepared(instance, new_image, new_box, members):
    box = new_box(new_image(*members))
    assert not engines(instance)
    assert shown(instance, box, stated("/var/lib/containerd", "/var/lib/docker")) == PREPARED


def test_containerd(instance, new_image, new_box):
    box = new_box(new_image(
        directory("var/lib/containerd", 0o700),
        member("var/lib/containerd/meta.db", mode=0o600, data=b"x" * 100_000)))
    assert shown(instance, box, stated("/var/lib/containerd")) == (
        "/var/lib/containerd 700 0:0 directory\n"
        "/var/lib/containerd/meta.db 600 0:0 regular file\n")
    assert shown(instance, box, "cat /var/lib/containerd/meta.db") == "x" * 100_000
    assert shown(instance, box, stated("/var/lib/docker")) == PREPARED.split("\n", 1)[1]


# --- archives that mean harm ---------------------------------------------------------------------

@pytest.mark.parametrize("members", [
    [link("var/lib/docker", "/etc")],
    [link("var/lib/docker", "../../etc"), directory("var/lib/containerd")],
    [directory("opt/docker"), member("opt/docker/x", data=b"x"), link("var/lib", "/opt")],
    [directory("opt/lib/docker"), member("opt/lib/docker/x", data=b"x"), link("var", "opt")],
    [member("var/lib/docker", data=b"a file"), member("var/lib/containerd", tarfile.FIFOTYPE)],
    [member("var/lib/docker", tarfile.CHRTYPE, devmajor=1, devminor=3)],
    [member("var/lib/.wh.docker"), member("var/lib/.wh.containerd")],
], ids=["link-to-etc", "link-up", "lib-is-link", "var-is-link", "file-and-fifo", "device",
        "whiteout"])
def test_only_directories_count(instance, new_image, new_box, members):
    """Nothing is taken through a link, and the sandbox has the prepared tree in the place."""
    box = new_box(new_image(*members, member("etc/secret", data=b"s")))
    assert not engines(instance)
    assert shown(instance, box, stated("/var/lib/containerd", "/var/lib/docker")) == PREPARED
    assert shown(instance, box, "cat /etc/secret") == "s"


def test_links_stay_links(instance, new_image, new_box):
    """Below the directory they are copied as they are; what they name on the host is not read, nor
    written by what comes after them in the archive."""
    marker = instance.base / "marker"
    marker.write_text("the host's")
    box = new_box(new_image(
        directory("var/lib/docker"),
        link("var/lib/docker/overlay2", str(instance.base)),
        link("var/lib/docker/l", str(marker)),
        member("var/lib/docker/image/x", data=b"x"),
        link("var/lib/docker/root", "/"),
        link("var/lib/docker/lost", "no/such")))
    assert marker.read_text() == "the host's"
    assert not (instance.base / "l").exists()
    assert shown(instance, box, "cd /var/lib/docker; readlink overlay2 l root lost") == (
        f"{instance.base}\n{marker}\n/\nno/such\n")


def test_what_is_special(instance, new_image, new_box):
    """Modes, attributes and hard links come along; devices do not, as everywhere in an image."""
    path = "var/lib/docker/"
    box = new_box(new_image(
        directory(path, 0o710),
        member(path + "setuid", mode=0o6755, owner=(3, 4), data=b"x"),
        directory(path + "sticky", 0o3777),
        member(path + "disk", tarfile.BLKTYPE, 0o666, devmajor=7, devminor=0),
        member(path + "null", tarfile.CHRTYPE, 0o666, devmajor=1, devminor=3),
        member(path + "pipe", tarfile.FIFOTYPE, 0o622),
        member("etc/outside", mode=0o600, data=b"outside"),
        link(path + "inside", "etc/outside", tarfile.LNKTYPE),
        member(path + "capable", mode=0o755, data=b"y", pax_headers={
            "SCHILY.xattr.user.overlay.opaque": "y",
            "SCHILY.xattr.trusted.evil": "z",
            "SCHILY.xattr.security.capability": CAPABILITY.decode("latin-1")}),
    ))
    assert shown(instance, box, stated("/var/lib/docker", but="*overlay2*")) == (
        "/var/lib/docker 710 0:0 directory\n"
        "/var/lib/docker/capable 755 0:0 regular file\n"
        "/var/lib/docker/inside 600 0:0 regular file\n"
        "/var/lib/docker/pipe 622 0:0 fifo\n"
        "/var/lib/docker/setuid 6755 3:4 regular file\n"
        "/var/lib/docker/sticky 3777 0:0 directory\n")
    # a copy of its own, once it is in another file system
    shown(instance, box, "echo more > /var/lib/docker/inside")
    assert shown(instance, box, "cat /etc/outside") == "outside"
    engine = instance.base / "pool/fs/sandboxes" / box["id"] / "engine/docker/capable"
    assert set(os.listxattr(engine)) == {"user.overlay.opaque", "security.capability"}
    assert os.getxattr(engine, "user.overlay.opaque") == b"y"
    assert os.getxattr(engine, "security.capability") == CAPABILITY


def test_what_cannot_be_copied_leaves_nothing(instance, userland):
    """Longer than any path: the import is refused as a whole."""
    before = disks(instance)
    deep = "/".join(["d" * 250] * 20)
    answer = instance.raw(
        "POST", "/workspaces/default/images?name=deep",
        archive(userland, [member(f"var/lib/docker/{deep}/x", data=b"x")]),
        {"Content-Type": "application/x-tar"})
    assert errors_of(answer), answer
    assert disks(instance) == before
    assert "deep" not in str(instance.api("GET", "/images").json)


def test_a_killed_import_leaves_nothing(instance, userland):
    """The keeper ends amid an import, its daemon starts anew: no half layer, no engine of one."""
    before = disks(instance)
    members = [member(f"var/lib/docker/{i}", data=b"x") for i in range(20_000)]
    file = instance.base / "many.tar"
    file.write_bytes(archive(userland, members))
    # until an engine appears, when the unpacker is done and the copy is not
    upload = subprocess.Popen(
        [instance.program("skerry"), "image", "import", "many", str(file)],
        env=dict(os.environ, SKERRY_URL=f"http://127.0.0.1:{instance.port}",
                 SKERRY_TOKEN=instance.token, HOME=str(instance.base)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while upload.poll() is None and not engines(instance):
        pass
    caught = engines(instance)
    instance.kill9_keeper()
    assert upload.wait(60) != 0
    assert caught
    instance.restart_daemon()
    file.unlink()
    until(lambda: disks(instance) == before, "the half import's end")
