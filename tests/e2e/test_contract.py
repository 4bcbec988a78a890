"""A client that knows nothing but the documented paths and fields, each answer held against the
document the daemon serves; the document against the table of routes."""

import concurrent.futures
import json
import re
import subprocess
import time

import jsonschema
import pytest

from instance import TREE
from kit import IMAGE, disks, errors_of, gone

DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
RECORD_ENDS = {"SUCCESSFUL", "FAILED"}


@pytest.fixture(scope="module")
def document(instance):
    answer = instance.raw("GET", "/openapi.json", token=None)
    assert answer.status == 200, answer
    return answer.json


def no_nulls(value, where="answer"):
    assert value is not None, f"{where} is null"
    if isinstance(value, dict):
        for name, member in value.items():
            no_nulls(member, f"{where}.{name}")
            if name.endswith("_date"):
                assert DATE.fullmatch(member), f"{where}.{name}: {member}"
    elif isinstance(value, list):
        for i, member in enumerate(value):
            no_nulls(member, f"{where}[{i}]")


class Client:
    """Requests by the document's paths; every answer is validated."""

    def __init__(self, instance, document):
        self.instance = instance
        self.document = document
        self.used = set()

    def __call__(self, method, path, body=None, query="", status=None, headers=None, **values):
        operation = self.document["paths"][path][method.lower()]
        self.used.add((method, path))
        values = {"workspace": "default", **values}
        full = re.sub(r"{(\w+)}", lambda m: values[m.group(1)], path) + query
        headers = dict(headers or {})
        if body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(body).encode()
        answer = self.instance.raw(method, full, body, headers)
        assert answer.headers["X-Request-Id"], answer.headers
        good = next(s for s in operation["responses"] if s != "default")
        assert answer.status == (status or int(good)), f"{answer}\n{self.instance.logs()}"
        self.check(operation["responses"][good if status is None else "default"], answer)
        return answer

    def check(self, described, answer):
        content = described.get("content")
        if not content:
            assert answer.body == b"" and answer.status == 204, answer
            return
        kind = next(iter(content))
        assert answer.headers["Content-Type"] == kind, answer.headers
        if kind == "application/json":
            no_nulls(answer.json)
            schema = {**content[kind]["schema"], "components": self.document["components"]}
            jsonschema.Draft4Validator(schema).validate(answer.json)


@pytest.fixture(scope="module")
def client(instance, document):
    return Client(instance, document)


W = "/workspaces/{workspace}"
ALL = W + "/sandboxes"
ONE = ALL + "/{sandbox_id}"
COMMAND = ONE + "/commands/{command_id}"


def test_the_tour(client, instance):
    made = client("POST", ALL, {"name": "A Tour", "os": IMAGE, "resources": "1x2",
                                "tags": ["a", "b"], "scope": "s", "environment": "e"},
                  "?wait=running").json
    sid = made["id"]
    try:
        assert re.fullmatch("sb[a-z2-7]{20}", sid)
        assert made["identifier"] == "A-Tour" or made["identifier"] == "a-tour", made
        assert made["status"] == "RUNNING" and made["resources"] == "1x2", made
        assert made["tags"] == ["a", "b"] and made["os"] == IMAGE, made
        assert made["scope"] == "s" and made["environment"] == "e", made
        assert made["isolation"] == "namespace" and made["start"] in ("warm", "cold"), made
        assert made["limits"]["cpus"] == 1 and made["limits"]["memory_bytes"] == 2 << 30, made
        assert made["limits"]["disk_bytes"] == 50 << 30 and made["limits"]["pids"] == 4096, made
        usage = client("GET", ONE, sandbox_id=sid).json["usage"]
        assert usage["memory_bytes"] > 0 and usage["pids"] >= 1, usage
        assert made["project"]["name"] == "default", made
        listed = client("GET", ALL).json["sandboxes"]
        brief = next(s for s in listed if s["id"] == sid)
        assert all(made[name] == value for name, value in brief.items()), brief
        found = client("GET", W + "/identifiers", query=f"?sandbox={made['identifier']}").json
        assert found["sandbox_id"] == sid, found
        done = client("POST", ONE + "/exec", {"command": "echo out; echo err >&2; exit 3"},
                      sandbox_id=made["identifier"]).json
        assert (done["stdout"], done["stderr"], done["exit_code"]) == ("out\n", "err\n", 3), done
        assert done["timeout"] == 60 and not done["timed_out"] and done["runtime"] == "BASH", done
        assert done["stdout_bytes"] == 4 and not done["stdout_truncated"], done
        started = client("POST", ONE + "/commands", {"command": "echo begun; sleep 600"},
                         sandbox_id=sid).json
        cid = started["id"]
        assert re.fullmatch("cm[a-z2-7]{20}", cid) and started["status"] == "INPROGRESS", started
        assert not {"exit_code", "finish_date", "reason", "signal"} & set(started), started
        assert started["logs_url"] == started["url"] + "/logs", started
        names = [c["id"] for c in client("GET", ONE + "/commands", sandbox_id=sid).json["commands"]]
        assert names == [cid, done["id"]], "newest first"
        lines = []
        while not lines:
            text = client("GET", COMMAND + "/logs", sandbox_id=sid, command_id=cid).body
            lines = [json.loads(line) for line in text.splitlines()]
        assert lines == [{"type": "STDOUT", "data": "begun", "offset": 0}], lines
        ended = client("POST", COMMAND + "/terminate", {}, sandbox_id=sid, command_id=cid).json
        assert ended["status"] == "FAILED" and ended["exit_code"] == 143, ended
        again = client("GET", COMMAND, sandbox_id=sid, command_id=cid).json
        assert again == ended
        kept = client("GET", COMMAND, sandbox_id=sid, command_id=done["id"]).json
        assert kept["exit_code"] == 3 and kept["reason"] == "EXITED", kept
        client("PATCH", ONE, {"name": "Another", "tags": []}, sandbox_id=sid)
        changed = client("GET", ONE, sandbox_id=sid).json
        assert changed["name"] == "Another" and changed["tags"] == [], changed
        assert changed["identifier"] == made["identifier"], changed
        assert client("POST", ONE + "/stop", {"grace": 1}, sandbox_id=sid).json[
            "status"] == "STOPPED"
        stopped = client("GET", ONE, sandbox_id=sid).json
        assert stopped["status"] == "STOPPED" and "start" not in stopped, stopped
        assert client("POST", ONE + "/start", sandbox_id=sid).json["status"] == "RUNNING"
        assert client("POST", ONE + "/restart", {"grace": 1}, sandbox_id=sid).json[
            "status"] == "RUNNING"
        client("DELETE", ONE, sandbox_id=sid)
        client("GET", ONE, status=404, sandbox_id=sid)
        client("DELETE", ONE, status=404, sandbox_id=sid)
        assert "sandbox_id" not in client(
            "GET", W + "/identifiers", query=f"?sandbox={made['identifier']}").json
    finally:
        gone(instance, sid)


def test_the_rest_of_the_paths(client):
    assert client("GET", "/healthz").json == {"status": "ok"}
    assert client("GET", "/version").json["name"] == "skerryd"
    images = client("GET", W + "/images").json["images"]
    assert IMAGE in [i["name"] for i in images]
    client("DELETE", W + "/images/{image}", status=404, image="no-such-image")


def test_errors_have_their_shape(client):
    for method, path, body, values, status in (
            ("POST", ALL, {"name": 1}, {}, 400),
            ("GET", ONE, None, {"sandbox_id": "nobody"}, 404),
            ("GET", ONE, None, {"sandbox_id": "sb" + "a" * 20}, 404),
            ("GET", COMMAND, None, {"sandbox_id": "nobody", "command_id": "cm" + "a" * 20}, 404),
            ("POST", ONE + "/exec", {"command": "true"}, {"sandbox_id": "nobody"}, 404)):
        errors_of(client(method, path, body, status=status, **values))


def test_a_command_that_is_not_this_sandboxs(client, new_sandbox):
    one, two = new_sandbox(), new_sandbox()
    done = client("POST", ONE + "/exec", {"command": "echo mine"}, sandbox_id=one["id"]).json
    for path, method in ((COMMAND, "GET"), (COMMAND + "/logs", "GET"),
                         (COMMAND + "/terminate", "POST")):
        client(method, path, status=404, sandbox_id=two["id"], command_id=done["id"])
        client(method, path, status=404, sandbox_id=one["id"], command_id="cm" + "a" * 20)


def test_pages(client, new_sandbox):
    made = [new_sandbox(tags=["paged"])["id"] for _ in range(3)]
    seen, cursor = [], ""
    for _ in range(10):
        page = client("GET", ALL, query=f"?tag=paged&limit=1{cursor}").json
        seen += [s["id"] for s in page["sandboxes"]]
        if "next_cursor" not in page:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert sorted(seen) == sorted(made), seen
    assert client("GET", ALL, query="?tag=nobody").json == {"sandboxes": []}
    client("POST", ONE + "/stop", {"grace": 0}, sandbox_id=made[0])
    stopped = client("GET", ALL, query="?tag=paged&status=STOPPED").json["sandboxes"]
    assert [s["id"] for s in stopped] == made[:1]
    for i in range(3):
        client("POST", ONE + "/exec", {"command": f"echo {i}"}, sandbox_id=made[1])
    page = client("GET", ONE + "/commands", query="?limit=2", sandbox_id=made[1]).json
    assert [c["command"] for c in page["commands"]] == ["echo 2", "echo 1"]
    rest = client("GET", ONE + "/commands", query=f"?limit=2&cursor={page['next_cursor']}",
                  sandbox_id=made[1]).json
    assert [c["command"] for c in rest["commands"]] == ["echo 0"] and "next_cursor" not in rest


def test_projects(client, new_sandbox):
    made = new_sandbox(name="in-default")
    for query in ("?project=default", "?project_name=default"):
        ids = [s["id"] for s in client("GET", ALL, query=query).json["sandboxes"]]
        assert made["id"] in ids
        assert client("GET", ONE, query=query, sandbox_id="in-default").json["id"] == made["id"]
    client("GET", ALL, query="?project=nobody", status=404)
    client("GET", ONE, query="?project=nobody", status=404, sandbox_id="in-default")


def test_request_ids_differ(instance):
    ids = {instance.raw("GET", "/healthz", token=None).headers["X-Request-Id"] for _ in range(20)}
    assert len(ids) == 20


# --- the document --------------------------------------------------------------------------------

def test_document_and_program_agree(instance, document):
    done = subprocess.run([instance.program("skerryd"), "--config", instance.config, "--openapi"],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done
    assert json.loads(done.stdout) == document


def test_every_route_is_in_the_document(document):
    text = (TREE / "src/daemon/api/routes.c").read_text()
    macros = {"W": W, "SB": ONE}
    rows = re.findall(r'\{\s*"([A-Z]+)",\s*(W|SB|)\s*(?:"([^"]*)")?,\s*SCOPE_\w+,\s*'
                      r"(?:handle|NULL,\s*QUERY|QUERY\(terminal|\.socket)", text)
    assert len(rows) > 15
    table = {(method.lower(), macros.get(macro, "") + path) for method, macro, path in rows}
    assert table == {(method, path) for path, item in document["paths"].items()
                     for method in item}


def test_document_is_well_formed(document):
    assert document["openapi"].startswith("3.0")
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        jsonschema.Draft4Validator.check_schema(schema)
        assert schema["additionalProperties"] is False, name
    for ref in re.findall(r'"\$ref": "([^"]*)"', json.dumps(document)):
        assert ref.removeprefix("#/components/schemas/") in schemas, ref
    for path, item in document["paths"].items():
        for operation in item.values():
            named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path)), path
            assert "default" in operation["responses"], path


def test_documented_methods_are_the_allowed_ones(instance, document):
    for path, item in document["paths"].items():
        full = re.sub(r"{(\w+)}", lambda m: {"workspace": "default", "image": "none",
                                             "command_id": "cm" + "a" * 20}.get(m.group(1), "none"),
                      path)
        answer = instance.raw("BREW", full)
        assert answer.status == 405, (path, answer)
        allowed = {m.strip().lower() for m in answer.headers["Allow"].split(",")} - {"head"}
        # a path that ends with {path} takes longer ones in
        also = [m for other, methods in document["paths"].items() for m in methods
                if other.endswith("/{path}") and path.startswith(other.removesuffix("{path}"))]
        assert allowed == set(item) | set(also), path


# --- Idempotency-Key -----------------------------------------------------------------------------

def test_the_same_key_makes_one_sandbox(client, instance):
    key = {"Idempotency-Key": f"same-{time.time()}"}
    body = {"name": "once", "os": IMAGE}
    first = client("POST", ALL, body, "?wait=running", headers=key).json
    try:
        before = disks(instance)
        second = client("POST", ALL, body, "?wait=running", headers=key).json
        assert second == first
        assert disks(instance) == before
        other = client("POST", ALL, {**body, "name": "other"}, "?wait=running", status=422,
                       headers=key)
        assert errors_of(other)[0]["code"] == "idempotency_key_reused", other
        assert disks(instance) == before
    finally:
        gone(instance, first["id"])


def test_a_repeat_waits_for_the_first(client, instance):
    key = {"Idempotency-Key": f"race-{time.time()}"}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = [f.result().json for f in
                [pool.submit(client, "POST", ALL, {"name": "race", "os": IMAGE}, "?wait=running",
                             headers=key) for _ in range(8)]]
    try:
        assert len({m["id"] for m in made}) == 1, made
        assert all(m["status"] == "RUNNING" for m in made), made
    finally:
        for sid in {m["id"] for m in made}:
            gone(instance, sid)


def test_a_key_counts_per_path(client, new_sandbox):
    one, two = new_sandbox(), new_sandbox()
    key = {"Idempotency-Key": f"path-{time.time()}"}
    body = {"command": "echo x >> /tmp/count; wc -l < /tmp/count"}
    made = [client("POST", ONE + "/commands", body, headers=key, sandbox_id=s["id"]).json["id"]
            for s in (one, one, two, two)]
    assert made[0] == made[1] != made[2] == made[3]
    for sandbox, cid in ((one, made[0]), (two, made[2])):
        record = client("GET", COMMAND, query="?wait=30", sandbox_id=sandbox["id"],
                        command_id=cid).json
        assert record["status"] == "SUCCESSFUL", record
        lines = client("GET", COMMAND + "/logs", sandbox_id=sandbox["id"], command_id=cid).body
        assert json.loads(lines)["data"] == "1"


def test_a_failed_request_leaves_the_key_free(client, instance):
    key = {"Idempotency-Key": f"free-{time.time()}"}
    client("POST", ALL, {"name": "x", "os": "no-such-image"}, status=400, headers=key)
    made = client("POST", ALL, {"name": "x", "os": IMAGE}, headers=key).json
    gone(instance, made["id"])


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_keys_that_are_none(client, key):
    answer = client("POST", ALL, {"name": "x", "os": IMAGE}, status=400,
                    headers={"Idempotency-Key": key})
    assert errors_of(answer)[0]["field"] == "Idempotency-Key", answer


def test_a_key_survives_a_restart(client, instance):
    key = {"Idempotency-Key": f"restart-{time.time()}"}
    body = {"name": "kept key", "os": IMAGE}
    first = client("POST", ALL, body, headers=key).json
    try:
        instance.restart_daemon()
        assert client("POST", ALL, body, headers=key).json["id"] == first["id"]
    finally:
        gone(instance, first["id"])
