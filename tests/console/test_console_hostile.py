"""Every page and every act with names, queries and fields that can't be: each is answered, and nothing is a defect."""

from __future__ import annotations

import errno
import json
import random
import re
import socket
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld
from contract_worlds import contract

import lockstep
from lockstep.console.assembly import opened_parts
from lockstep.console.limits import RateLimits
from lockstep.server.access import Role

NAMES = ("orders", "default", "e1", "c1", "x", "-1", "0", "../../etc/passwd", "\0", "😀", "a" * 5000, "a b", "<b>", "*")
VALUES = (
    *NAMES,
    "",
    "9" * 21,
    "1e9",
    "true",
    "[]",
    "null",
    "nan",
    "2026-13-45T99:99Z",
    "\r\nX: 1",
    "0/10 * * * * ?",
    "(a|a)*b",
)
FIELDS = (None, 1, -1, 10**30, 1.5, True, "", "x" * 3000, "\0", [], {}, [[]], {"a": None}, "orders", "earliest")


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(RateLimits, "take", lambda *_: None)
    with lockstep.connect("memory:") as client:
        client.create("orders")
        with client.scheduler("default") as scheduler, opened_parts(client, "local", tmp_path) as parts:
            scheduler.after("1h", {"a": 1}, id="e1")
            scheduler.every("0 9 * * *", "x", id="c1")
            pillars = [pillar for pillar in parts.pillars if pillar.name != "streams"]
            world = ConsoleWorld(client, pillars=pillars, mounts=parts.mounts)
            yield world
            world.close()


def filled(path: str, draw: random.Random) -> str:
    return re.sub(r"\{\w+\}", lambda _: quote(draw.choice(NAMES[: draw.choice((4, None))]), safe=""), path)


@pytest.mark.slow
def test_whatever_is_looked_at_is_answered(world):
    draw, token, statuses = random.Random(7), world.token(Role.ADMIN), Counter()
    for view in world.app._views.values():
        for _ in range(25):
            names = [parameter.name for parameter in view.parameters]
            query = urlencode({name: draw.choice(VALUES) for name in names if draw.random() < 0.3})
            target = f"{draw.choice(('/api/v1', ''))}{filled(view.path, draw)}?{query}"
            status = world.get(target, token, accept="text/html").status
            assert status < 500 or status in (503, 504), target
            statuses[status] += 1
    assert {200, 404, 422} <= statuses.keys()


@pytest.mark.slow
def test_whatever_is_asked_for_is_answered(world):
    draw, token, statuses = random.Random(8), world.token(Role.ADMIN), Counter()
    for act in world.app._acts.values():
        for _ in range(15):
            likely = draw.random() < 0.4
            body = {field.name: (field.default or "1") if likely else draw.choice(FIELDS) for field in act.fields}
            body["dry_run"] = draw.choice([True, True, False, "perhaps"])
            target = f"/api/v1{filled(act.path, draw)}"
            status = world.post(target, body, token).status
            assert status < 500 or status in (503, 504), (target, body)
            statuses[status] += 1
    assert {200, 422} <= statuses.keys()


# every route of the document, and so also a new one

BODIES = (
    b"", b"{", b"null", b'"x"', b"[]", b"1", b"\xff\xfe\x00", b"[" * 50_000, b'{"a":' * 40 + b"1" + b"}" * 40, b"NaN",
    b'{"a": 1, "a": 2}', b'{"value": "\\ud800", "name": "\\ud800", "client": "\\udfff", "check": "\\ud800"}',
    b'{"value": "\\u0000", "name": "\\u0000", "client": "\\u0000", "check": "\\u0000"}', b'{"count": 1e999}',
    b'{"before": ' + b"9" * 5000 + b"}", b'{"": {}, "confirm": [], "dry_run": {}}', b"a=1&b=2", b"--x\r\n\r\n--x--",
    b'[{"id": null, "tenant": [], "eventTime": {}}]', b'[null, 1, "x", []]', b"{}\n{}\n\xff\n",
    b'{"a": "' + b"x" * 200_000 + b'"}',
)  # fmt: skip
KINDS = ("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
         "application/json; charset=utf-16", "application/xml", "\xff")  # fmt: skip
PARTS = ("..%2f..%2f..%2fetc%2fpasswd", "%2e%2e", "..", "%00", "%ff", "%", "%zz", "%25", "a" * 9000, "%F0%9F%98%80",
         "{x}",
         "%24%28id%29", "-1", "%0d%0aX-Evil:%201", "%3Cscript%3E", "*", "a%2Fb", ".", "%ED%A0%80")  # fmt: skip
QUERIES = ("?%ff=1", "?a=%ff", "?=", "?&&&", "?q=%00", "?page=-1&size=0", "?limit=-1", "?limit=99999999999999999999",
           "?" + "a=1&" * 200, "?q=" + "x" * 9000, "?dry_run=maybe", "?offset=1e9", "?from=&to=&size=NaN", "?filter.=1",
           "?filter.a.b.c=%F0%9F%98%80&limit=1&offset=0", "?page=%D9%A1", "?scheduler=..%2f..&monitor=%00")  # fmt: skip
OTHER_METHODS = ("HEAD", "OPTIONS", "PATCH", "TRACE", "PUT", "DELETE", "BREW", "get")
GOOD = {
    "stream": "orders", "group": "readers", "tenant": "default", "id": "e1", "host": "web-1", "check": "disk",
    "client": "web-1", "project": "p", "query": "q", "window": "sums", "monitor": "fleet", "schedule": "jobs",
    "name": "disks", "severity": "critical", "subscription": "x", "path": "note", "file": "console.js", "type": "UNIX",
}  # fmt: skip
ENDLESS = ("/live", "/changes")


def hostile_requests(document: dict, draw: random.Random, most: int):
    """Requests for each operation of a document: `most` of each, or all if there are fewer."""
    for path, item in document["paths"].items():
        for method in item:
            found = []
            good = re.sub(r"\{(\w+)\}", lambda part: GOOD[part[1]], path)
            for part in PARTS if "{" in path else ():
                chosen = draw.choice(re.findall(r"\{\w+\}", path))
                bad = re.sub(r"\{(\w+)\}", lambda found, c=chosen, p=part: p if found[0] == c else GOOD[found[1]], path)
                found.append((method.upper(), bad, b"", "application/json"))
            found += [(method.upper(), good + query, b"", "application/json") for query in QUERIES]
            found += [(method.upper(), good, body, draw.choice(KINDS)) for body in BODIES]
            found += [(other, good, draw.choice(BODIES), draw.choice(KINDS)) for other in OTHER_METHODS]
            found += [(method.upper(), "/" + good, b"", ""), (method.upper(), good + "/", b"", "")]
            if path.endswith(ENDLESS):  # what would be answered would go on for ever
                found = [one for one in found if one[0] != "GET"]
            yield from draw.sample(found, min(most, len(found)))


def send_all(folder: Path, most: int) -> Counter:
    statuses = Counter()
    with contract(folder) as world:
        document = json.loads(world.ask("GET", "/openapi.json")[2])
        for method, target, body, kind in hostile_requests(document, random.Random(9), most):
            status, headers, answer = world.ask(method, target, body, Role.ADMIN, Content_Type=kind)
            where = (method, target[:200], body[:80], kind, status, answer[:200])
            assert status < 500 or status in (503, 504), where
            assert "x-evil" not in headers, where
            assert headers["x-content-type-options"] == "nosniff", where
            assert b"Traceback" not in answer, where
            assert b"root:" not in answer, where
            if status >= 400 and answer and headers["content-type"] == "application/json" and method != "HEAD":
                json.loads(answer)
            statuses[status] += 1
        assert world.ask("GET", "/readyz")[0] == 200, "it is well after all of it"
    return statuses


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(RateLimits, "take", lambda *_: None)
    monkeypatch.setattr("lockstep.console.projects.ASK_S", 0.05)  # no engine answers
    monkeypatch.setattr("lockstep.console.projects.ALONE_S", 0.05)


@pytest.mark.slow
def test_no_route_of_the_document_fails_whatever_is_sent(tmp_path, impatient):
    statuses = send_all(tmp_path, 6)
    assert {200, 400, 404, 405, 422} <= statuses.keys()
    assert sum(statuses.values()) > 1000


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_route_of_the_document_fails_whatever_is_sent_all_of_it(tmp_path, impatient):
    send_all(tmp_path, 1000)


@pytest.mark.parametrize("raw", [
    b"GET / HTTP/1.1\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"\x16\x03\x01\x00\x01\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET http://evil.example.org/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
])  # fmt: skip
def test_what_is_no_http_is_refused_and_the_server_goes_on(served_world, raw):
    host, port = urlsplit(served_world.url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        answer = b""
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65_536):
                answer += data
        except OSError as error:  # what is far too long is not read to its end: the server resets the connection
            if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                raise
    assert not answer or answer.split(b" ")[1][:1] == b"4", answer[:200]
    assert served_world.ask("GET", "/healthz")[0] == 200


@pytest.fixture(scope="module")
def served_world(tmp_path_factory):
    with contract(tmp_path_factory.mktemp("hostile")) as world:
        yield world
