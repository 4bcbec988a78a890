"""The image debian:12: what an agent expects of a machine is there and works."""

import pytest

pytestmark = pytest.mark.full_image


@pytest.mark.parametrize("command, shown", [
    ("sudo -n id -u", "0\n"),
    ("git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m m"
     " && git log --format=%s", "m\n"),
    ("echo here > f && curl -s file://$PWD/f", "here\n"),
    ("test -s /etc/ssl/certs/ca-certificates.crt && echo present", "present\n"),
    ("ps -o comm= -p 1", "skerry-init\n"),
    ("python3 -m venv v && v/bin/python -c 'print(6 * 7)'", "42\n"),
    ("node -p '6 * 7'", "42\n"),
    ("printf 'int main(void) { return 42; }' > m.c && make -s m CC=cc && ./m; echo $?", "42\n"),
    ("locale | sed -n s/^LANG=//p", "C.UTF-8\n"),
])
def test_what_it_has_works(run, command, shown):
    done = run(command)
    assert (done["exit_code"], done["stdout"], done["stderr"]) == (0, shown, ""), done


def test_runtimes(run):
    assert run("print(6 * 7)", runtime="PYTHON")["stdout"] == "42\n"
    assert run("console.log(6 * 7)", runtime="JAVASCRIPT")["stdout"] == "42\n"
