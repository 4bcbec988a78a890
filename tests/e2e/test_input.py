"""Bad input of every kind is refused with a 400 that names the field, and nothing is made of it."""

import json
import re
import socket

import pytest

from kit import IMAGE, disks, errors_of, execute, gone, raw_http, split_answer

# --- bodies --------------------------------------------------------------------------------------

NOT_NUMBERS = ["NaN", "Infinity", "-Infinity", '"10"', "true", "false", "null", "[]", "{}", '""',
               '"NaN"', "[10]", "1e400", "-1e400"]
NOT_COUNTS = ["1e18", "-1", "1.5", "1.0", "1000000000000000000", "99999999999999999999",
              "18446744073709551616", "9223372036854775808", "4294967296", "-0.5", "1e2"]

# route, field, and what is wrong there beyond what is wrong everywhere
NUMBERS = [
    ("create", "cpus", ["0"]),
    ("create", "memory_mb", ["0", "1"]),
    ("create", "disk_gb", ["0"]),
    ("create", "pids", ["0", "1"]),
    ("patch", "cpus", ["0"]),
    ("patch", "memory_mb", ["0", "1"]),
    ("patch", "disk_gb", ["0"]),
    ("patch", "pids", ["0", "1"]),
    ("stop", "grace", ["3601"]),
    ("restart", "grace", ["3601"]),
    ("terminate", "grace", ["3601"]),
    ("search", "limit", ["0", "10001"]),
]
SECONDS = [("exec", "timeout"), ("commands", "timeout")]
REST_OF_BODY = {
    "create": {"name": "refused", "os": IMAGE},
    "exec": {"command": "touch /tmp/made"},
    "commands": {"command": "touch /tmp/made"},
    "stop": {}, "restart": {}, "terminate": {}, "start": {}, "patch": {},
    "search": {"path": "/etc", "name": "passwd"}, "move": {"from": "/none", "to": "/tmp/made"},
}


@pytest.fixture(scope="module")
def target(instance):
    """One running sandbox that refused requests are aimed at, with a command that has ended."""
    answer = instance.api("POST", "/sandboxes?wait=running", {"name": "target", "os": IMAGE})
    assert answer.status == 201, f"{answer}\n{instance.logs()}"
    done = instance.api("POST", f"/sandboxes/{answer.json['id']}/exec", {"command": "true"})
    assert done.status == 200, f"{done}\n{instance.logs()}"
    yield {**answer.json, "command_id": done.json["id"]}
    gone(instance, answer.json["id"])


def paths(target):
    sandbox = f"/workspaces/default/sandboxes/{target['id']}"
    return {
        "create": ("POST", "/workspaces/default/sandboxes"),
        "patch": ("PATCH", sandbox),
        "exec": ("POST", f"{sandbox}/exec"),
        "commands": ("POST", f"{sandbox}/commands"),
        "start": ("POST", f"{sandbox}/start"),
        "stop": ("POST", f"{sandbox}/stop"),
        "restart": ("POST", f"{sandbox}/restart"),
        "terminate": ("POST", f"{sandbox}/commands/{target['command_id']}/terminate"),
        "search": ("POST", f"{sandbox}/search"),
        "move": ("POST", f"{sandbox}/move"),
    }


def send(instance, target, route, body, content_type="application/json"):
    method, path = paths(target)[route]
    headers = {"Content-Type": content_type} if content_type else {}
    return instance.raw(method, path, body, headers)


def text_with(route, field, literal):
    """The route's body with one more member, whose value is text as it stands."""
    members = [f"{json.dumps(k)}:{json.dumps(v)}" for k, v in REST_OF_BODY[route].items()
               if k != field]
    return "{" + ",".join(members + [f"{json.dumps(field)}:{literal}"]) + "}"


@pytest.fixture
def nothing_made(instance, target):
    """Fails when the sandboxes, disks, commands or the target's state are others afterwards."""

    def look():
        base = f"/sandboxes/{target['id']}"
        return (
            {s["id"] for s in instance.api("GET", "/sandboxes").json["sandboxes"]},
            disks(instance),
            [c["id"] for c in instance.api("GET", base + "/commands").json["commands"]],
            [instance.api("GET", base).json[key] for key in ("status", "limits", "name")],
        )

    before = look()
    yield
    assert look() == before


def refused(answer, field, statuses=(400,)):
    assert answer.status in statuses, answer
    error = errors_of(answer)[0]
    assert error.get("field") == field, answer
    return error


@pytest.mark.parametrize("route,field,more", NUMBERS, ids=[f"{r}.{f}" for r, f, _ in NUMBERS])
def test_counts(instance, target, nothing_made, route, field, more):
    for literal in NOT_NUMBERS + NOT_COUNTS + more:
        answer = send(instance, target, route, text_with(route, field, literal))
        try:
            refused(answer, field)
        except AssertionError as e:
            raise AssertionError(f"{field}: {literal}: {e}") from None


@pytest.mark.parametrize("route,field", SECONDS, ids=[f"{r}.{f}" for r, f in SECONDS])
def test_seconds(instance, target, nothing_made, route, field):
    for literal in NOT_NUMBERS + ["0", "0.0", "-1", "-0.001", "1e18", "31536001", "1e300"]:
        answer = send(instance, target, route, text_with(route, field, literal))
        try:
            refused(answer, field)
        except AssertionError as e:
            raise AssertionError(f"{field}: {literal}: {e}") from None


def test_every_number_of_the_document_is_tried(instance):
    """A numeric field that is added without a row above fails here."""
    document = instance.raw("GET", "/openapi.json", token=None).json
    tried = {(r, f) for r, f, _ in NUMBERS} | set(SECONDS)
    sandboxes = "/workspaces/{workspace}/sandboxes"
    names = {("post", sandboxes): "create", ("patch", sandboxes + "/{sandbox_id}"): "patch"}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if not schema:
                continue
            route = names.get((method, path), path.rsplit("/", 1)[-1])
            for field, kind in schema["schema"]["properties"].items():
                if kind["type"] in ("integer", "number"):
                    assert (route, field) in tried


WRONG_TYPES = {
    "create": {
        "name": ["1", "true", "null", "[]", "{}", '""', '["x"]'],
        "identifier": ["1", "true", "null", "[]", "{}", '""'],
        "os": ["1", "null", "[]", '""', '"no-such-image"', '"../x"', '"a/b"', '"A:1"', '"a:"'],
        "resources": ["1", "null", '""', '"2X4"', '"13x26"', '"1x1"', "[]"],
        "isolation": ["1", "null", '""', '"kata"', '"none"'],
        "tags": ["1", '"x"', "null", "{}", "[1]", "[null]", '[""]', '[["x"]]',
                 json.dumps(["x"] * 65), json.dumps(["x" * 129])],
        "scope": ["1", "null", "[]", json.dumps("x" * 256)],
        "environment": ["1", "null", "{}"],
    },
    "patch": {
        "name": ["1", "null", '""', json.dumps("x" * 256), '"a\\u0000b"', '"a\\nb"'],
        "tags": ["null", '"x"', "[1]", '[""]'],
    },
    "exec": {
        "command": ["1", "null", "[]", '""', "true", '"a\\u0000b"'],
        "runtime": ["1", "null", '""', '"bash"', '"RUBY"'],
        "args": ["null", '"x"', "[]", "[1]", "{}", '[""]'],
        "cwd": ["1", "null", '""', '"relative"', '"/a\\u0000"', json.dumps("/" + "x" * 1024)],
        "env": ["1", "null", "[]", '"A=1"'],
        "user": ["1", "null", '""', json.dumps("u" * 65)],
        "stdin": ["1", "null", "[]"],
        "kill_on_disconnect": ["1", "null", '"true"', "0"],
    },
    "search": {
        "path": ["1", "null", '""', '"etc"', '"/a/../b"', '"/a\\u0000"', json.dumps("/x" * 2048)],
        "name": ["1", "null", json.dumps("n" * 256), json.dumps("é" * 128)],
        "text": ["1", "null", "[]", json.dumps("t" * 1025)],
        "path_base64": ["1", '"!"', '"LwA="', '"ZXRj"'],
    },
    "move": {
        "from": ["1", "null", '""', '"none"', '"/./a"', json.dumps("/" + "n" * 256)],
        "to": ["1", "null", '""', '"made"', '"/.."'],
        "overwrite": ["1", "null", '"true"'],
    },
    "terminate": {"signal": ["1", "null", '""', '"NOPE"', '"SIG"', '"9"', '"sigterm "']},
}


@pytest.mark.parametrize("route,field", [(r, f) for r in WRONG_TYPES for f in WRONG_TYPES[r]])
def test_wrong_values(instance, target, nothing_made, route, field):
    for literal in WRONG_TYPES[route][field]:
        text = text_with(route, field, literal)
        if field == "args":
            text = '{"args":' + literal + "}"
        answer = send(instance, target, route, text)
        named = errors_of(answer)[0].get("field", "")
        assert answer.status == 400, (literal, answer)
        assert named == field or named.startswith(field + "["), (literal, answer)


@pytest.mark.parametrize("name", ["", "1A", "A B", "A.B", "A-B", "A=B", "é", "A\x00B", "A\nB"])
def test_names_of_variables(instance, target, nothing_made, name):
    answer = send(instance, target, "exec",
                  json.dumps({"command": "touch /tmp/made", "env": {name: "1"}}))
    assert answer.status == 400, answer
    assert errors_of(answer)[0]["field"].startswith("env"), answer


@pytest.mark.parametrize("value", ["1", "null", "[]", '"a\\u0000b"'])
def test_values_of_variables(instance, target, nothing_made, value):
    answer = send(instance, target, "exec", '{"command":"true","env":{"A":' + value + "}}")
    refused(answer, "env.A")


@pytest.mark.parametrize("route", list(REST_OF_BODY))
def test_unknown_fields(instance, target, nothing_made, route):
    for field in ("colour", "Name", "name ", "__proto__", "x" * 60, "ünknown", ""):
        answer = send(instance, target, route, text_with(route, field, "1"))
        assert answer.status == 400, answer
        error = errors_of(answer)[0]
        # a field without a name is told by what it stands in
        assert (error["code"], error["field"]) == ("unknown_field", field or "body"), answer


@pytest.mark.parametrize("route", list(REST_OF_BODY))
def test_fields_given_twice(instance, target, nothing_made, route):
    rest = json.dumps(REST_OF_BODY[route])[1:-1]
    field = next(iter(REST_OF_BODY[route]), "grace")
    twice = f"{json.dumps(field)}:1,{json.dumps(field)}:1"
    text = "{" + (rest + f",{json.dumps(field)}:1" if rest else twice) + "}"
    refused(send(instance, target, route, text), field)


@pytest.mark.parametrize("route", list(REST_OF_BODY))
@pytest.mark.parametrize("body", ["[]", "1", '"name"', "true", "null", '[{"name":"x"}]', "1.5",
                                  "{", '{"name"', "{'name':1}", "nothing", "{}{}", "{} x", "\x00"])
def test_bodies_that_are_no_object(instance, target, nothing_made, route, body):
    answer = send(instance, target, route, body.encode())
    assert answer.status == 400, answer
    assert errors_of(answer)[0].get("field"), answer


@pytest.mark.parametrize("route,field", [("create", "name"), ("exec", "command"),
                                         ("commands", "command")])
def test_what_is_required(instance, target, nothing_made, route, field):
    for body in (b"", b"{}", b"  {}\n"):
        refused(send(instance, target, route, body), field)


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80",
                                 b"\xe2\x82", b"\\ud800", b"\\udc00x"])
def test_text_that_is_not_utf8(instance, target, nothing_made, bad):
    refused(send(instance, target, "create", b'{"os":"x","name":"' + bad + b'"}'), "name")
    refused(send(instance, target, "exec", b'{"command":"' + bad + b'"}'), "command")


def test_nul_in_text(instance, target, nothing_made):
    refused(send(instance, target, "create", b'{"name":"a\\u0000b"}'), "name")
    answer = send(instance, target, "create", b'{"na\\u0000me":"a"}')
    assert answer.status == 400 and errors_of(answer)


def test_deep_nesting(instance, target, nothing_made):
    for n in (33, 1000, 200_000):
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            deep = opening * n + ("1" if opening != "[" else "") + closing * n
            answer = send(instance, target, "create", '{"name":"x","tags":' + deep + "}")
            assert answer.status == 400, answer
            assert errors_of(answer)[0].get("field"), answer


@pytest.mark.parametrize("route", ["create", "exec", "commands", "stop", "patch"])
def test_ten_megabytes(instance, target, nothing_made, route):
    huge = ('{"name":"' + "x" * 10_000_000 + '"}').encode()
    refused(send(instance, target, route, huge), "body", (400, 413))
    many = ("{" + ",".join(f'"f{i}":1' for i in range(700_000)) + "}").encode()
    refused(send(instance, target, route, many), "body", (400, 413))


def test_ten_megabytes_in_chunks(instance, target, nothing_made):
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    data = (f"POST /workspaces/default/sandboxes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Authorization: Bearer {instance.token}\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n").encode() + piece * 160 + b"0\r\n\r\n"
    status, _, body = split_answer(raw_http(instance, data))
    assert status in (400, 413)
    assert json.loads(body)["errors"][0]["field"] == "body"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded",
                                  "application/jsonx", "application/xml", "multipart/form-data"])
def test_wrong_content_type(instance, target, nothing_made, kind):
    for route in ("create", "exec", "patch"):
        answer = send(instance, target, route, json.dumps(REST_OF_BODY[route] or {"name": "x"}),
                      kind)
        assert answer.status == 415, answer
        assert errors_of(answer)[0]["message"]


def test_above_the_host(instance, target, nothing_made):
    for field, value in (("cpus", 1024), ("memory_mb", 16 * 1024 * 1024)):
        error = refused(send(instance, target, "create", text_with("create", field, value)), field)
        assert re.search(r"\d", error["message"]), error


LATER = ["first_boot_commands", "app_dir", "apps", "fetch", "endpoints", "variables", "timeout",
         "permissions", "note", "agent_note", "user", "template", "auto_start", "auto_delete",
         "snapshot_id", "source_sandbox_id", "egress", "snapshot_schedule", "self_management"]


@pytest.mark.parametrize("field", LATER)
def test_parts_that_do_not_exist_yet(instance, target, nothing_made, field):
    error = refused(send(instance, target, "create", text_with("create", field, '"x"')), field)
    assert error["code"] == "not_available", error


# --- queries -------------------------------------------------------------------------------------

QUERIES = [
    ("GET", "", "limit", ["0", "-1", "1.5", "x", "", "1e2", "1001", "99999999999999999999", "+1",
                          " 1", "NaN"]),
    ("GET", "", "cursor", ["x", "-1", "1.5", "99999999999999999999"]),
    ("GET", "", "status", ["running", "x", ""]),
    ("GET", "/{id}/commands", "limit", ["0", "-1", "1.5", "x", ""]),
    ("GET", "/{id}/commands", "cursor", ["x", "-1"]),
    ("GET", "/{id}/commands/{cid}", "wait", ["-1", "1.5", "x", "", "1e18", "99999999999"]),
    ("GET", "/{id}/commands/{cid}/logs", "follow", ["1", "yes", "x", ""]),
    ("GET", "/{id}/commands/{cid}/logs", "events", ["1", "x"]),
    ("GET", "/{id}/commands/{cid}/logs", "stream", ["x", "STDOUT", ""]),
    ("GET", "/{id}/commands/{cid}/logs?stream=stdout&", "offset", ["-1", "1.5", "x", ""]),
    ("POST", "", "wait", ["x", "RUNNING", ""]),
    ("POST", "", "wait_timeout", ["0", "-1", "1.5", "x", "601", "1e18", ""]),
]


@pytest.mark.parametrize("method,path,field,values", QUERIES,
                         ids=[f"{m} {p}?{f}" for m, p, f, _ in QUERIES])
def test_queries(instance, target, nothing_made, method, path, field, values):
    path = path.format(id=target["id"], cid=target["command_id"])
    body = REST_OF_BODY["create"] if method == "POST" else None
    for value in values:
        link = "" if path.endswith("&") else "?"
        answer = instance.api(method, f"/sandboxes{path}{link}{field}={value.replace(' ', '%20')}",
                              body)
        try:
            refused(answer, field)
        except AssertionError as e:
            raise AssertionError(f"{field}={value}: {e}") from None


@pytest.mark.parametrize("query", ["colour=1", "Limit=1", "=1", "%6cimits=1"])
def test_unknown_parameters(instance, nothing_made, query):
    answer = instance.api("GET", f"/sandboxes?{query}")
    assert answer.status == 400, answer
    assert errors_of(answer)[0]["code"] == "unknown_field", answer


@pytest.mark.parametrize("query", ["limit=1&limit=2", "limit=%00", "limit=%zz", "limit=%", "tag=%ff",
                                   "tag=%c0%af"])
def test_malformed_queries(instance, nothing_made, query):
    answer = instance.api("GET", f"/sandboxes?{query}")
    assert answer.status == 400, answer
    assert errors_of(answer)[0].get("field"), answer


# --- paths ---------------------------------------------------------------------------------------

BAD_NAMES = ["..", ".", "%2e%2e", "%2E%2e", "..%2f..", "%2e%2e%2fetc", "a%2fb", "%2fetc%2fpasswd",
             "%00", "a%00", "a%00b", "%", "%zz", "%2", "%ff", "%c0%ae%c0%ae", "a%20b", "a.b",
             "-a", "a-", "a" * 64, "a" * 3000, "%0a", "a%0d%0ab", "*", "a;b", "a%3fb", "~", "$(id)",
             "%252e%252e", "%e2%80%ae", "snapshots", "yaml"]


def routes_with(instance, parameter):
    document = instance.raw("GET", "/openapi.json", token=None).json
    return [(method.upper(), path) for path, item in document["paths"].items() for method in item
            if "{" + parameter + "}" in path]


@pytest.mark.parametrize("bad", BAD_NAMES, ids=lambda s: s[:20])
def test_ids_in_paths(instance, target, nothing_made, bad):
    """In every route that takes one; the request is otherwise right."""
    for parameter in ("sandbox_id", "command_id", "workspace", "image"):
        for method, path in routes_with(instance, parameter):
            if parameter != "sandbox_id" and bad in ("snapshots", "yaml"):
                continue
            if parameter in ("workspace", "image") and bad in ("a.b", "a-", "%252e%252e"):
                continue  # these are names there
            values = {"workspace": "default", "sandbox_id": target["id"],
                      "command_id": target["command_id"], "image": "none", "path": "tmp/none",
                      parameter: bad}
            full = re.sub(r"{(\w+)}", lambda m: values[m.group(1)], path)
            body = {"exec": {"command": "touch /tmp/made"},
                    "commands": {"command": "touch /tmp/made"},
                    "sandboxes": REST_OF_BODY["create"]}.get(path.rsplit("/", 1)[-1], {})
            kind = "octet-stream" if "upload" in path else "json"
            answer = instance.raw(method, full, json.dumps(body) if method != "GET" else None,
                                  {"Content-Type": f"application/{kind}"})
            assert answer.status in (400, 404, 405), (method, full[:200], answer)
            errors_of(answer)


@pytest.mark.parametrize("path", [
    "/workspaces/default/sandboxes/../../../etc/passwd", "/..", "/%2e%2e/%2e%2e/etc/passwd",
    "/workspaces/default/../default/sandboxes", "/workspaces/default/./sandboxes",
    "/workspaces/../workspaces/default/sandboxes", "/workspaces/default%2fsandboxes",
    "//workspaces/default/sandboxes", "/workspaces//default/sandboxes",
    "/workspaces/default/sandboxes/", "/workspaces/default/sandboxes//", "/healthz/..", "/healthz/",
    "/workspaces/default/sandboxes;a=b", "/WORKSPACES/default/sandboxes", "/nothing",
    "/" + "a/" * 500, "/workspaces/default/sandboxes%00", "/%00"])
def test_paths_that_lead_nowhere(instance, nothing_made, path):
    for method in ("GET", "POST", "DELETE"):
        answer = instance.raw(method, path, b"{}" if method == "POST" else None)
        assert answer.status in (400, 404, 405), (method, path[:100], answer)
        errors_of(answer)


def test_a_workspace_that_is_not_ours(instance, nothing_made):
    for method, path, body in (("GET", "/sandboxes", None), ("POST", "/sandboxes",
                                                             b'{"name":"x"}')):
        answer = instance.raw(method, "/workspaces/other" + path, body)
        assert answer.status == 404, answer
        errors_of(answer)


# --- who asks ------------------------------------------------------------------------------------

@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer x", "Basic eDp5",
                                    "bearer skry_wrong", "Bearer skry_" + "a" * 40,
                                    "Bearer skry_" + "a" * 5000, "Bearer skry_'; --"])
def test_tokens(instance, nothing_made, header):
    headers = {} if header is None else {"Authorization": header}
    for method, path in (("GET", "/sandboxes"), ("POST", "/sandboxes"), ("GET", "/sandboxes/x"),
                         ("GET", "/nothing")):
        answer = instance.api(method, path, {"name": "x"} if method == "POST" else None,
                              headers=dict(headers), token=None)
        assert answer.status == 401, answer
        assert answer.headers["WWW-Authenticate"], answer.headers
        errors_of(answer)


def test_the_scheme_is_read_without_case(instance):
    answer = instance.api("GET", "/sandboxes", headers={"Authorization": f"bearer {instance.token}"},
                          token=None)
    assert answer.status == 200, answer


# --- names ---------------------------------------------------------------------------------------

RULE = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")

GOOD_NAMES = [
    "a", "Z", "7", "x" * 63, "x" * 64, "x" * 65, "x" * 128, "x" * 255, "Upper Case", "dots.in.it",
    "a..b", "..", ".", "../x", "a/b", "%2e%2e", "two--hyphens", "-lead", "trail-", "9", "2024-11",
    "under_score", "Ünïcödé", "测试", "測" * 255, "🙂", "a🙂b", "naïve café", "<script>", "a'b\"c",
    "$(reboot)", "a b\u00a0c", "\u202eabc", "snapshots", "YAML", "sb" + "a" * 20, "null", "-", "é" * 64,
]
BAD_TITLES = ["", "x" * 256, "测" * 256, "🙂" * 256, "a\x00b", "a\nb", "a\tb", "\x1b[2J", "a\x7fb",
              "a\u0085b", "\u0000", "a\rb"]


def host_name(identifier):
    return identifier.lower().replace("_", "-")


def seen_everywhere(instance, made, name, identifier=None):
    """One sandbox through every surface that shows its names."""
    assert made["name"] == name
    assert RULE.fullmatch(made["identifier"]), made
    assert identifier is None or made["identifier"] == identifier
    assert made["url"].endswith(f"/workspaces/default/sandboxes/{made['id']}"), made
    for handle in {made["id"], made["identifier"], made["identifier"].lower(),
                   made["identifier"].upper()}:
        answer = instance.api("GET", f"/sandboxes/{handle}")
        assert answer.status == 200 and answer.json["id"] == made["id"], (handle, answer)
        assert answer.json["name"] == name and answer.json["identifier"] == made["identifier"]
    found = instance.api("GET", f"/identifiers?sandbox={made['identifier']}")
    assert found.json["sandbox_id"] == made["id"], found
    listed = [s for s in instance.api("GET", "/sandboxes").json["sandboxes"]
              if s["id"] == made["id"]]
    assert [s["name"] for s in listed] == [name]
    cli = instance.cli("get", made["identifier"], "--format", "json")
    assert cli.returncode == 0, cli
    assert json.loads(cli.stdout)["id"] == made["id"] and json.loads(cli.stdout)["name"] == name
    inside = execute(instance, {"id": made["identifier"]}, "hostname; cat /etc/hostname; "
                     "getent hosts \"$(hostname)\" >/dev/null; echo $?")
    names = inside["stdout"].split("\n")
    assert names[0] == names[1] and names[2] == "0", inside
    assert re.fullmatch(r"(?!-)[a-z0-9-]{1,63}(?<!-)", names[0]), inside
    if not re.match("_|.*_$", made["identifier"]):
        assert names[0] == host_name(made["identifier"]), inside


@pytest.mark.parametrize("name", GOOD_NAMES, ids=lambda s: ascii(s)[:24])
def test_names_that_are_accepted(instance, new_sandbox, name):
    made = new_sandbox(name=name)
    seen_everywhere(instance, made, name)
    assert made["identifier"].lower() not in ("snapshots", "yaml")
    assert not re.fullmatch(r"[a-z]{2}[a-z2-7]{20}", made["identifier"])


@pytest.mark.parametrize("name", ["x", "x" * 255, "Upper Case", "Ünïcödé", "测试🙂", "../x", "-lead",
                                  "$(reboot)", "a'b\"c", "a..b"], ids=lambda s: ascii(s)[:24])
def test_names_given_to_the_cli(instance, name):
    done = instance.cli("create", f"--name={name}", "--os", IMAGE, "--wait", "running", "--format",
                        "json")
    assert done.returncode == 0, done
    made = json.loads(done.stdout)
    try:
        seen_everywhere(instance, made, name)
    finally:
        assert instance.cli("destroy", made["id"]).returncode == 0


@pytest.mark.parametrize("name", BAD_TITLES, ids=lambda s: ascii(s)[:24])
def test_names_that_are_refused(instance, nothing_made, name):
    refused(instance.api("POST", "/sandboxes", {"name": name, "os": IMAGE}), "name")
    if "\x00" not in name and name:
        done = instance.cli("create", "--os", IMAGE, "--format", "json", "--name", name)
        assert done.returncode != 0 and not done.stdout.strip(), done
        assert json.loads(done.stderr)["error"]["message"], done


GOOD_IDENTIFIERS = ["a", "A", "0", "q" * 63, "Mixed-Case_9", "_lead", "trail_", "a--b", "1-2", "__",
                    "Q" * 63]
BAD_IDENTIFIERS = ["", "a" * 64, "a" * 128, "-a", "a-", "-", "a.b", "a b", "a/b", "..", "../x",
                   "%2e%2e", "é", "a\x00b", "a\n", "snapshots", "Snapshots", "yaml", "YAML",
                   "sb" + "a" * 20, "sn" + "2" * 20, "cm" + "b7" * 10, "a:b", "a@b", "🙂"]


@pytest.mark.parametrize("identifier", GOOD_IDENTIFIERS)
def test_identifiers_that_are_accepted(instance, new_sandbox, identifier):
    made = new_sandbox(name="of an identifier", identifier=identifier)
    seen_everywhere(instance, made, "of an identifier", identifier)


@pytest.mark.parametrize("identifier", ["Cli-Made", "c" * 63, "x_y"])
def test_identifiers_given_to_the_cli(instance, identifier):
    done = instance.cli("create", "by the cli", "--identifier", identifier, "--os", IMAGE,
                        "--wait", "running", "--format", "json")
    assert done.returncode == 0, done
    made = json.loads(done.stdout)
    try:
        seen_everywhere(instance, made, "by the cli", identifier)
    finally:
        assert instance.cli("destroy", identifier).returncode == 0
    assert instance.api("GET", f"/sandboxes/{identifier}").status == 404


@pytest.mark.parametrize("identifier", BAD_IDENTIFIERS, ids=lambda s: ascii(s)[:24])
def test_identifiers_that_are_refused(instance, nothing_made, identifier):
    refused(instance.api("POST", "/sandboxes",
                         {"name": "x", "identifier": identifier, "os": IMAGE}), "identifier")
    if "\x00" not in identifier and identifier:
        done = instance.cli("create", "x", f"--identifier={identifier}", "--os", IMAGE,
                            "--format", "json")
        assert done.returncode != 0 and not done.stdout.strip(), done
        assert json.loads(done.stderr)["error"]["message"], done


def test_identifiers_are_unique_without_case(instance, new_sandbox):
    first = new_sandbox(name="first", identifier="Taken-One")
    before = disks(instance)
    for same in ("Taken-One", "taken-one", "TAKEN-ONE"):
        answer = instance.api("POST", "/sandboxes", {"name": "x", "identifier": same, "os": IMAGE})
        refused(answer, "identifier", (409,))
        done = instance.cli("create", "x", "--identifier", same, "--os", IMAGE)
        assert done.returncode != 0 and "taken-one" in done.stderr.lower(), done
    assert disks(instance) == before
    gone(instance, first["id"])
    new_sandbox(name="second", identifier="TAKEN-one")


def test_derived_identifiers_are_numbered(new_sandbox):
    made = [new_sandbox(name=name)["identifier"] for name in ("Same Name", "same name", "same.name")]
    assert len({i.lower() for i in made}) == 3, made
    assert all(re.match("(?i)same-name", i) for i in made), made
    long = [new_sandbox(name="L" * 200)["identifier"] for _ in range(2)]
    assert len(set(long)) == 2 and all(RULE.fullmatch(i) for i in long), long


# --- HTTP as text --------------------------------------------------------------------------------

CREATE = b'{"name":"smuggled","os":"%s"}' % IMAGE.encode()


def head(instance, line, *headers):
    lines = [line, "Host: skerry", f"Authorization: Bearer {instance.token}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answers_in(data):
    return re.findall(rb"HTTP/1\.[01] (\d{3})", data)


def test_two_lengths(instance, nothing_made):
    for lengths in (["Content-Length: 2", "Content-Length: 40"],
                    ["Content-Length: 2, 40"], ["Content-Length: 40", "Content-Length: 2"]):
        data = head(instance, "POST /workspaces/default/sandboxes HTTP/1.1",
                    "Content-Type: application/json", *lengths)
        got = answers_in(raw_http(instance, data + CREATE))
        assert got == [b"400"], (lengths, got)


@pytest.mark.parametrize("length", ["-1", "+5", "0x10", "1e1", "99999999999999999999", "a", "1 2", ""])
def test_lengths_that_are_none(instance, nothing_made, length):
    data = head(instance, "POST /workspaces/default/sandboxes HTTP/1.1",
                "Content-Type: application/json", f"Content-Length: {length}", "Connection: close")
    got = answers_in(raw_http(instance, data + CREATE))
    assert got in ([b"400"], [b"413"]), got


@pytest.mark.parametrize("order", ["cl-te", "te-cl"])
def test_length_and_chunks_at_once(instance, nothing_made, order):
    """Whichever counts, the bytes behind are no second request."""
    both = ["Content-Length: 5", "Transfer-Encoding: chunked"]
    if order == "te-cl":
        both.reverse()
    second = head(instance, "POST /workspaces/default/sandboxes HTTP/1.1",
                  "Content-Type: application/json", f"Content-Length: {len(CREATE)}",
                  "Connection: close") + CREATE
    data = head(instance, "GET /workspaces/default/sandboxes HTTP/1.1", *both) + b"0\r\n\r\n"
    got = answers_in(raw_http(instance, data + second))
    assert len(got) == 1, got


@pytest.mark.parametrize("coding", ["chunked, chunked", "xchunked", "identity, chunked", "gzip",
                                    "chunked, identity", "\x0bchunked"])
def test_other_codings(instance, nothing_made, coding):
    data = head(instance, "POST /workspaces/default/sandboxes HTTP/1.1", "Connection: close",
                "Content-Type: application/json", f"Transfer-Encoding: {coding}")
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(CREATE), CREATE)
    got = answers_in(raw_http(instance, data + body))
    assert len(got) == 1 and got[0] in (b"400", b"411", b"415", b"422", b"501"), got


@pytest.mark.parametrize("chunks", [b"zz\r\nabc\r\n0\r\n\r\n", b"-1\r\n\r\n0\r\n\r\n",
                                    b"ffffffffffffffffff\r\nabc", b"3\r\nabcdef\r\n0\r\n\r\n"])
def test_broken_chunks(instance, nothing_made, chunks):
    data = head(instance, "POST /workspaces/default/sandboxes HTTP/1.1", "Connection: close",
                "Content-Type: application/json", "Transfer-Encoding: chunked")
    got = answers_in(raw_http(instance, data + chunks))
    assert got == [b"400"], got


def test_chunked_bodies_work(instance, target):
    body = json.dumps({"command": "echo chunked; cat", "stdin": "x" * 1000}).encode()
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
                      for i in range(0, len(body), 7))
    data = head(instance, f"POST /workspaces/default/sandboxes/{target['id']}/exec HTTP/1.1",
                "Content-Type: application/json", "Transfer-Encoding: chunked",
                "Connection: close") + pieces + b"0\r\n\r\n"
    status, headers, answer = split_answer(raw_http(instance, data))
    assert status == 200, answer
    assert json.loads(answer)["stdout"] == "chunked\n" + "x" * 1000
    assert headers["x-request-id"]


def test_a_body_that_never_comes_makes_nothing(instance, nothing_made):
    data = head(instance, "POST /workspaces/default/sandboxes HTTP/1.1",
                "Content-Type: application/json", f"Content-Length: {len(CREATE)}")
    with socket.create_connection(("127.0.0.1", instance.port), timeout=30) as s:
        s.sendall(data + CREATE[:-1])
        s.shutdown(socket.SHUT_WR)
        s.recv(65536)


def test_head(instance, target):
    for path in ("/healthz", "/workspaces/default/sandboxes",
                 f"/workspaces/default/sandboxes/{target['id']}", "/openapi.json"):
        data = head(instance, f"HEAD {path} HTTP/1.1", "Connection: close")
        status, headers, body = split_answer(raw_http(instance, data))
        assert status == 200 and body == b"", (path, status, body)
        assert headers["x-request-id"] and headers["content-type"] == "application/json"
    status, _, body = split_answer(raw_http(instance, head(instance, "HEAD /nothing HTTP/1.1",
                                                           "Connection: close")))
    assert status == 404 and body == b""


@pytest.mark.parametrize("method", ["BREW", "PUT", "TRACE", "OPTIONS", "PROPFIND", "X" * 20])
def test_other_methods(instance, target, nothing_made, method):
    expect = {
        "/healthz": {"GET"},
        "/workspaces/default/sandboxes": {"GET", "POST"},
        f"/workspaces/default/sandboxes/{target['id']}": {"GET", "PATCH", "DELETE"},
        f"/workspaces/default/sandboxes/{target['id']}/stop": {"POST"},
        f"/workspaces/default/sandboxes/{target['id']}/commands/{target['command_id']}/logs":
            {"GET"},
    }
    for path, allowed in expect.items():
        answer = instance.raw(method, path)
        assert answer.status == 405, (path, answer)
        errors_of(answer)
        assert allowed <= {m.strip() for m in answer.headers["Allow"].split(",")} <= allowed | {
            "HEAD"}, answer.headers


def test_methods_are_read_with_case(instance, nothing_made):
    data = head(instance, "delete /workspaces/default/sandboxes HTTP/1.1", "Connection: close")
    assert split_answer(raw_http(instance, data))[0] in (400, 405)


@pytest.mark.parametrize("size", [20_000, 200_000, 3_000_000])
def test_huge_headers(instance, nothing_made, size):
    data = head(instance, "GET /workspaces/default/sandboxes HTTP/1.1", "Connection: close",
                "X-Filler: " + "x" * size)
    got = answers_in(raw_http(instance, data))
    assert got in ([b"400"], [b"431"]), got
    many = head(instance, "GET /healthz HTTP/1.1", "Connection: close",
                *[f"X-{i}: {i}" for i in range(size // 10)])
    assert answers_in(raw_http(instance, many)) in ([b"400"], [b"431"])


def test_a_huge_path(instance, nothing_made):
    data = head(instance, "GET /" + "a" * 100_000 + " HTTP/1.1", "Connection: close")
    assert answers_in(raw_http(instance, data)) in ([b"400"], [b"404"], [b"414"])


@pytest.mark.parametrize("line", ["GET /healthz", "GET", "\x00\x01\x02",
                                  "GET  /healthz  HTTP/1.1 x", "GET healthz HTTP/1.1",
                                  "GET /heal\x00thz HTTP/1.1", "GET /heal\x7fthz HTTP/1.1"])
def test_broken_request_lines(instance, nothing_made, line):
    data = head(instance, line, "Connection: close")
    got = answers_in(raw_http(instance, data, half_close=True))
    assert all(code in (b"400", b"404", b"505") for code in got), got


@pytest.mark.parametrize("header", ["X-A: a\x00b", "X-A : b", "X A: b", ": b", "X-A\x00: b",
                                    "no colon"])
def test_broken_headers(instance, nothing_made, header):
    data = head(instance, "GET /workspaces/default/sandboxes HTTP/1.1", header,
                "Connection: close")
    got = answers_in(raw_http(instance, data))
    assert got == [b"400"], got


def test_pipelined_requests_are_answered_in_order(instance, target):
    one = head(instance, f"GET /workspaces/default/sandboxes/{target['id']} HTTP/1.1")
    two = head(instance, "GET /nothing HTTP/1.1")
    three = head(instance, "GET /healthz HTTP/1.1", "Connection: close")
    assert answers_in(raw_http(instance, one + two + three)) == [b"200", b"404", b"200"]


def test_a_half_closed_client_is_served(instance, target):
    body = b'{"command":"sleep 0.5; echo late"}'
    data = head(instance, f"POST /workspaces/default/sandboxes/{target['id']}/exec HTTP/1.1",
                "Content-Type: application/json", f"Content-Length: {len(body)}",
                "Connection: close") + body
    status, _, answer = split_answer(raw_http(instance, data, half_close=True))
    assert status == 200, answer
    assert json.loads(answer)["stdout"] == "late\n"
