"""Fixtures of the black-box suites: one private instance for the whole run, one sandbox per test.

SKERRY_TEST_BUILD names the build directory (default `build`), SKERRY_TEST_IMAGE the image recipe the
sandboxes are made from (default debian-12-slim), SKERRY_TEST_LOGS a directory that gets the daemons'
logs, SKERRY_TEST_LONG=1 runs the tests marked `long` too.
"""

import itertools
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "instance"))
from instance import IMAGE, RECIPE, TREE, Instance  # noqa: E402

numbers = itertools.count(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: its length or size is its point; runs in test-long")
    config.addinivalue_line("markers", "full_image: about what only the image debian:12 has")


def pytest_collection_modifyitems(items):
    left_out = set()
    if os.environ.get("SKERRY_TEST_LONG") != "1":
        left_out.add("long")
    if RECIPE != "debian-12":
        left_out.add("full_image")
    kept = [item for item in items if not left_out & {m.name for m in item.iter_markers()}]
    if kept:
        items[0].config.hook.pytest_deselected(items=[i for i in items if i not in kept])
    items[:] = kept


@pytest.fixture(scope="session")
def instance():
    build = TREE / os.environ.get("SKERRY_TEST_BUILD", "build")
    skerry = Instance(build, os.environ.get("SKERRY_TEST_LOGS"))
    with skerry:
        skerry.import_image(RECIPE)
        yield skerry


@pytest.fixture
def api(instance):
    return instance.api


@pytest.fixture(scope="module")
def box(instance):
    """A sandbox for what leaves no trace that another test could see."""
    answer = instance.api("POST", "/sandboxes?wait=running", {"name": "box", "os": IMAGE})
    assert answer.status == 201, f"{answer}\n{instance.logs()}"
    yield answer.json
    instance.api("DELETE", f"/sandboxes/{answer.json['id']}")


@pytest.fixture
def new_sandbox(instance):
    """Makes sandboxes that are deleted with the test: new_sandbox(name=..., cpus=...)."""
    made = []

    def make(**fields):
        fields.setdefault("name", f"test-{next(numbers)}")
        fields.setdefault("os", IMAGE)
        answer = instance.api("POST", "/sandboxes?wait=running", fields)
        assert answer.status == 201, f"{answer}\n{instance.logs()}"
        made.append(answer.json["id"])
        assert answer.json["status"] == "RUNNING", f"{answer}\n{instance.logs()}"
        return answer.json

    yield make
    for sandbox_id in made:
        answer = instance.api("DELETE", f"/sandboxes/{sandbox_id}")
        assert answer.status in (204, 404), answer


@pytest.fixture
def sandbox(new_sandbox):
    return new_sandbox()


@pytest.fixture
def run(instance, sandbox):
    """run(command, **fields): POST exec in this test's sandbox; the decoded answer."""

    def call(command, **fields):
        answer = instance.api("POST", f"/sandboxes/{sandbox['id']}/exec",
                              {"command": command, **fields})
        assert answer.status == 200, f"{answer}\n{instance.logs()}"
        return answer.json

    return call
