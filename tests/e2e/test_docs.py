"""What docs/commands.md and docs/files.md show is run as it stands there."""

import json
import os
import re
import subprocess
import sys

import pytest

from instance import TREE

def blocks(kind, document="commands"):
    text = (TREE / f"docs/{document}.md").read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture
def shown(instance, new_sandbox, tmp_path):
    """shown(*words): the output of a program of the document, beside a sandbox `mine`."""
    new_sandbox(name="mine")
    for text in blocks("python"):
        (tmp_path / re.match(r"# (\w+\.py)\n", text).group(1)).write_text(text)
    env = dict(os.environ, SKERRY_URL=f"http://127.0.0.1:{instance.port}",
               SKERRY_TOKEN=instance.token)

    def call(*words):
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 0 and not done.stderr, f"{done}\n{instance.logs()}"
        return done.stdout

    return call


def test_a_command_over_a_websocket(shown):
    *output, end = shown(sys.executable, "build.py", "mine").splitlines()
    assert sorted(output) == ["err b'bad\\n'", "out b'hello you\\n'"], output
    assert end == "exit code 3", end


def test_a_terminal_left_and_taken_up_again(shown):
    assert shown(sys.executable, "shell.py", "mine") == "shown again: True exit code 4\n"


def test_calls(shown):
    out = shown("bash", "-euc", "".join(blocks("sh")))
    ran, ended, *log = map(json.loads, out.splitlines()[:6])
    assert (ran["exit_code"], ran["stdout"]) == (3, "hi\n"), ran
    assert (ended["status"], ended["command"]) == ("SUCCESSFUL", "sort"), ended
    assert [line.get("data") for line in log] == ["a", "b", "c", None], log
    assert log[3]["type"] == "EXIT" and log[3]["id"] == ended["id"], log
    assert out.splitlines()[6:] == ["b", "c"], out


def test_file_calls(shown):
    put, note, listed, found = shown("bash", "-euc", "".join(blocks("sh", "files"))).splitlines()
    assert json.loads(put)["path"] == "/tmp/note" and note == "hello"
    listed = json.loads(listed)
    assert len(listed["contents"]) == 2 and listed["next_cursor"], listed
    match = {"path": "/tmp/note", "line": 1, "text": "hello"}
    assert json.loads(found) == {"matches": [match], "truncated": False}
