"""What the server keeps from whom; docs/security-model.md names these tests."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import ssl
import subprocess
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.cli.commands import NOUNS
from lockstep.cli.parser import build, parse
from lockstep.console.assembly import opened_parts
from lockstep.console.audit import redacted
from lockstep.console.border import POLICY
from lockstep.console.errors import TlsNeeded
from lockstep.console.server import Console, ConsoleOptions
from lockstep.server.access import Credential, Role, digest
from lockstep.server.serving import TlsFiles
from lockstep.streams.client import Lockstep

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN
OWN = ("console.tokens", "console.sessions", "console.audit")
STOLEN = "lockstep_stolen"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def client():
    with lockstep.connect("memory:") as client:
        client.create("orders")
        yield client


@pytest.fixture
def world(client):
    world = ConsoleWorld(client)
    yield world
    world.close()


class Answer:
    def __init__(self, found: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = found.status, found.headers, found.read()

    @property
    def code(self) -> str:
        return json.loads(self.body)["error"]["code"]


class Served:
    """A console on a socket, asked as a browser or a script would."""

    def __init__(self, client: Lockstep, folder: Path, **options: object) -> None:
        self._parts = opened_parts(client, "local", folder)
        parts = self._parts.__enter__()
        self.console = Console(client, ConsoleOptions(**options), pillars=parts.pillars, mounts=parts.mounts)
        self.host = urlsplit(self.console.url).netloc

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=20)
        try:
            connection.request(method, target, body or None, {name.replace("_", "-"): t for name, t in headers.items()})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def token(self, role: Role) -> str:
        return self.console.credentials.issue(role.label, role)[1]

    def close(self) -> None:
        self.console.close()
        self._parts.__exit__(None, None, None)


@contextmanager
def serving(client: Lockstep, folder: Path, **options: object):
    served = Served(client, folder, **options)
    try:
        yield served
    finally:
        served.close()


@pytest.fixture
def served(client, tmp_path):
    with serving(client, tmp_path) as served:
        yield served


# where it listens, and for whom


def test_it_does_not_start_off_loopback_without_tls(client):
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(TlsNeeded):
            Console(client, ConsoleOptions(host=host))


def test_behind_a_proxy_nobody_is_anonymous_and_cookies_are_secure(client, tmp_path):
    with serving(client, tmp_path, behind_proxy=True) as served:
        public = {"Host": "console.example.org", "X_Forwarded_For": "203.0.113.9, 198.51.100.7"}
        assert served.ask("GET", "/api/v1/streams", **public).status == 401
        token = served.token(ADMIN)
        assert served.ask("GET", "/api/v1/streams", **public, Authorization=f"Bearer {token}").status == 200
        form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": "https://console.example.org"}
        answer = served.ask("POST", "/sign-in", urlencode({"token": token}).encode(), **public, **form)
        assert answer.status == 303
        assert "; Secure" in answer.headers["Set-Cookie"]
        assert answer.headers["Strict-Transport-Security"]
        newest = served.console.audit.rows()[0]
        assert (newest["what"], newest["from"]) == ("Sign in", "198.51.100.7"), "the address that the proxy wrote"


def test_without_a_proxy_forwarded_addresses_are_not_believed(served):
    served.ask("POST", "/api/v1/streams/orders/publish", b"{}", X_Forwarded_For="203.0.113.9")
    assert served.console.audit.rows()[0]["from"] == "127.0.0.1"


def test_it_listens_on_this_machine_alone_unless_told_otherwise(served):
    assert ConsoleOptions().host == "127.0.0.1"
    assert parse(build(NOUNS, "1"), ["serve"]).host == "127.0.0.1"
    listening = served.console._server._socket.getsockname()
    assert listening[0] == "127.0.0.1"


def test_with_a_certificate_it_speaks_tls_of_today_and_says_so(client, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    with serving(client, tmp_path / "state", tls=TlsFiles(certificate, key)) as served:
        trusted = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection(served.host, timeout=20, context=trusted)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/sign-in", urlencode({"token": served.token(VIEWER)}), form)
        answer = connection.getresponse()
        assert answer.status == 303
        assert "; Secure" in answer.headers["Set-Cookie"]
        assert answer.headers["Strict-Transport-Security"]
        connection.close()
        old = ssl.create_default_context(cafile=str(certificate))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            http.client.HTTPSConnection(served.host, timeout=20, context=old).connect()


# pages of others


@pytest.mark.parametrize(
    "host", ["rebound.example.org", "rebound.example.org:8080", "127.0.0.1.example.org", "", "[::"]
)
def test_a_name_that_somebody_points_at_this_machine_is_refused(served, host):
    for target in ("/api/v1/streams", "/", "/healthz", "/metrics", "/apis/schedule/x/ping", "/live?path=/"):
        assert served.ask("GET", target, Host=host).status == 403, target


@pytest.mark.parametrize("origin", ["null", "https://evil.example.org", "http://127.0.0.1:1", "file://"])
def test_requests_of_other_origins_are_refused(served, origin):
    token = f"Bearer {served.token(ADMIN)}"
    for method, target in [
        ("GET", "/api/v1/streams"),
        ("POST", "/api/v1/streams/orders/publish"),
        ("POST", "/sign-in"),
        ("POST", "/sign-out"),
        ("GET", "/live?path=/"),
        ("PUT", "/apis/schedule/a/v2/tenants/b"),
    ]:
        answer = served.ask(method, target, b"{}" if method != "GET" else b"", Origin=origin, Authorization=token)
        assert (answer.status, answer.code) == (403, "ORIGIN_REFUSED"), target
    assert served.ask("OPTIONS", "/api/v1/streams", Origin=origin).headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "multipart/form-data; boundary=x", "application/json", "application/x-www-form-urlencoded", ""],
)
def test_no_content_type_lets_a_cookie_change_anything(world, kind):
    cookie = world.sign_in(world.token(ADMIN))
    bodies = (b'{"value": "x"}', b"value=x&_step=run", b"_form=&value=x&_step=run", b'{"value": "x", "_form": ""}=')
    for target in ("/api/v1/streams/orders/publish", "/streams/orders/publish"):
        for body in bodies:
            answer = world.ask("POST", target, headers={"cookie": cookie, "content-type": kind}, body=body)
            assert answer.status in (401, 403, 422), (target, body)
    assert world.client.bounds("orders").next == 0


def test_the_form_of_one_session_is_of_no_use_to_another(world):
    token = world.token(ADMIN)
    mine, other = world.sign_in(token), world.sign_in(token)
    page = world.get("/streams/orders/publish", cookie=mine, accept="text/html").text
    stolen = re.search(r'name="_form" value="(\w+)"', page)[1]
    fields = {"value": "x", "_step": "run", "_form": stolen}
    assert world.form("/streams/orders/publish", fields, other).status == 403
    assert world.form("/streams/orders/publish", fields, mine).status == 303


def test_after_signing_in_one_is_at_home_wherever_one_wanted_to_go(world):
    token = world.token(VIEWER)
    for target in ("/sign-in?next=https://evil.example.org", "/sign-in?to=//evil.example.org"):
        assert world.form(target, {"token": token, "next": "//evil.example.org"}).headers["location"] == "/"


def test_the_cookie_is_for_this_server_alone(world):
    given = world.form("/sign-in", {"token": world.token(VIEWER)}).headers["set-cookie"]
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} <= set(given.split("; "))
    assert "Domain" not in given


# headers


def test_every_answer_forbids_scripts_frames_and_keeping_it(served):
    token = f"Bearer {served.token(ADMIN)}"
    for method, target, headers in [
        ("GET", "/", {}), ("GET", "/streams", {"Accept": "text/html"}), ("GET", "/api/v1/streams", {}),
        ("GET", "/nowhere", {"Accept": "text/html"}), ("GET", "/nowhere", {}), ("GET", "/healthz", {}),
        ("GET", "/metrics", {}), ("GET", "/openapi.json", {}),
        ("GET", "/sign-in", {}),
        ("GET", "/static/console.js", {}),
        ("GET", "/", {"Host": "evil.example.org"}), ("POST", "/streams/orders/publish", {"Accept": "text/html"}),
        ("GET", "/apis/schedule/x/ping", {}), ("GET", "/audit", {"Authorization": token, "Accept": "text/html"}),
        ("PATCH", "/streams", {}), ("GET", "/apis/monitor/x/clients", {}), ("GET", "/live?path=/nowhere", {}),
    ]:  # fmt: skip
        answer = served.ask(method, target, **headers)
        assert answer.headers["Content-Security-Policy"] == POLICY, target
        assert answer.headers["X-Content-Type-Options"] == "nosniff", target
        assert answer.headers["X-Frame-Options"] == "DENY", target
        wanted = "no-cache" if target.startswith("/static/") else "no-store"
        assert answer.headers["Cache-Control"] == wanted, target
    assert "'unsafe" not in POLICY


def test_no_page_has_a_script_or_a_style_of_its_own(world):
    token = world.token(ADMIN)
    for view in world.app._views:
        if "{" not in view:
            page = world.get(view, token, accept="text/html").text
            assert not re.search(r"<script(?![^>]*\bsrc=\"/static/)|<style|\son\w+=|\sstyle=|javascript:", page), view


@pytest.mark.parametrize("text", ["\r\nX-Evil: 1", "%0d%0aX-Evil:%201", "\u560d\u560aX-Evil: 1", "a\nb"])
def test_nothing_that_is_sent_becomes_a_header(world, text):
    cookie = world.sign_in(world.token(ADMIN))
    page = world.get("/streams/create", cookie=cookie, accept="text/html").text
    form = re.search(r'name="_form" value="(\w+)"', page)[1]
    for answer in (
        world.form("/streams/create", {"name": text, "_form": form, "_step": "run"}, cookie),
        world.get("/streams?" + urlencode({"q": text}), accept="text/html"),
        world.form("/sign-in", {"token": text}),
    ):
        assert "x-evil" not in answer.headers
        assert not any("\n" in value or "\r" in value for value in answer.headers.values())


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'-alert(1)-'"])
def test_records_names_and_queries_are_shown_as_text(world, text):
    with world.client.publisher("orders") as publisher:
        publisher.publish(text.encode(), key=text.encode(), headers=(("h", text.encode()),)).result(5)
    targets = ["/streams/orders/records", f"/streams?{urlencode({'q': text})}", f"/nowhere/{text}"]
    for target in targets:
        page = world.get(target, accept="text/html").text
        assert "<script>alert" not in page, target
        assert "<img src=x" not in page, target


def test_a_command_to_copy_does_not_run_what_is_in_a_name(client, tmp_path):
    name = "$(touch x); `id` 'q'"
    with client.scheduler("default") as scheduler, opened_parts(client, "local", tmp_path) as parts:
        scheduler.after("1h", {"a": 1}, id=name)
        world = ConsoleWorld(client, pillars=[pillar for pillar in parts.pillars if pillar.name != "streams"])
        page = world.get(f"/schedules/default/{name}".replace(" ", "%20"), accept="text/html")
        assert page.status == 200
        assert "schedule why &#39;$(touch x); `id` &#39;&#34;&#39;&#34;&#39;q" in page.text
        assert "schedule why $(touch" not in page.text
        world.close()


# the server's own streams


@pytest.mark.parametrize("stream", OWN)
def test_nobody_changes_what_the_server_keeps(world, stream):
    world.sign_in(world.token(ADMIN))
    admin = world.token(ADMIN)
    before = world.client.bounds(stream)
    for act, fields in (
        ("publish", {"value": "{}"}), ("trim", {"before": 99}), ("delete", {}), ("retention", {"days": 1}),
    ):  # fmt: skip
        answer = world.post(f"/api/v1/streams/{stream}/{act}", {**fields, "confirm": stream}, admin)
        assert (answer.status, answer.tree["error"]["code"]) == (403, "STREAM_RESERVED"), act
    assert world.post("/api/v1/streams/create", {"name": f"{stream}x"}, admin).status == 403
    assert world.client.bounds(stream).first == before.first


def test_only_an_admin_reads_what_the_server_keeps(world):
    operator, admin = world.token(OPERATOR), world.token(ADMIN)
    for stream in OWN[0], OWN[2]:
        world.post("/api/v1/streams/orders/publish", {"value": "x"}, operator)
        for page in ("streams/{}/records", "letters/{}"):
            target = f"/api/v1/{page.format(stream)}"
            assert [world.get(target, who).status for who in (None, operator, admin)] == [403, 403, 200], target


def test_a_record_that_the_server_did_not_write_makes_nobody_an_admin(world, client):
    world.token(VIEWER)
    made = Credential(id="evil", name="evil", role=ADMIN, digest=digest(STOLEN), created_ms=0)
    with client.publisher(OWN[0]) as publisher:
        for value in (json.dumps({"put": made.dump()}).encode(), b"not json", b"{}"):
            publisher.publish(value).result(5)
    world.credentials._followed = float("-inf")
    assert world.get("/api/v1/access", STOLEN).status == 401
    assert world.get("/api/v1/access", world.token(ADMIN)).status == 200, "what can't be read stops nobody"


def test_a_schedule_that_fires_into_the_tokens_makes_nobody_an_admin(client, tmp_path):
    world = ConsoleWorld(client)
    world.token(VIEWER)
    made = Credential(id="evil", name="evil", role=ADMIN, digest=digest(STOLEN), created_ms=0)
    with client.scheduler("jobs") as scheduler:
        scheduler.register("evil", "MESSAGING", {"topic": OWN[0]})
        scheduler.after("0s", {"put": made.dump()}, id="e", tenant="evil", payload_only=True)
        with client.subscriber(OWN[0], initial="earliest", create=False) as subscriber:
            values = [*subscriber.poll(20.0).values()]
            while len(values) < 2:
                more = subscriber.poll(20.0).values()
                assert more, "it has fired"
                values += more
    assert json.loads(values[-1])["put"]["id"] == "evil"
    world.credentials._followed = float("-inf")
    assert world.get("/api/v1/access", STOLEN).status == 401
    world.close()


# the audit log


def test_refused_attempts_are_noted_and_do_not_fill_the_log(world):
    target = "/api/v1/streams/orders/delete"
    statuses = [world.post(target, {}, token).status for token in (None, "wrong", *("guess",) * 40)]
    assert statuses[:2] == [401, 401]
    assert statuses[-1] == 429
    rows = [row for row in world.audit.rows() if row["path"] == target]
    assert {(row["who"], row["outcome"]) for row in rows} == {("anonymous", "refused")}
    assert len(rows) < 30
    assert world.post(target, {"dry_run": True}, world.token(ADMIN)).status == 200, "others go on"


def test_changes_of_mounted_apis_are_noted_with_what_was_before_and_after(client, tmp_path):
    with client.scheduler("jobs"), opened_parts(client, "local", tmp_path) as parts:
        world = ConsoleWorld(client, mounts=parts.mounts)
        admin, path = world.token(ADMIN), "/apis/schedule/jobs/v2/tenants/mail"
        put = {
            "type": "HTTP",
            "props": {"url": "https://a.org/x?token=hidden", "headers": {"Authorization": "hidden"}},
        }
        assert world.ask("PUT", path, token=admin, body=json.dumps(put).encode()).status == 200
        assert world.ask("DELETE", path, token=admin).status == 200
        assert world.ask("DELETE", path, token=admin).status == 404
        rows = [row for row in world.audit.rows() if row["path"] == path][::-1]
        assert [row["outcome"] for row in rows] == ["begun", "done", "begun", "done", "begun", "refused"]
        assert rows[0]["more"]["before"] is None
        assert rows[1]["more"]["after"]["tenant"] == "mail"
        assert rows[2]["more"]["before"]["tenant"] == "mail"
        assert (rows[3]["more"]["after"], rows[3]["more"]["status"]) == (None, 200)
        assert "hidden" not in json.dumps(world.audit.rows())
        world.close()


def test_apis_of_others_have_roles_too(client, tmp_path):
    with client.scheduler("jobs"), opened_parts(client, "local", tmp_path) as parts:
        world = ConsoleWorld(client, mounts=parts.mounts)
        tenant = b'{"type": "MESSAGING", "props": {"topic": "t"}}'
        for method, path, body, role in [
            ("GET", "schedule/jobs/v2/tenants", b"", VIEWER), ("PUT", "schedule/jobs/v2/tenants/a", tenant, ADMIN),
            ("POST", "schedule/jobs/v2/tenants/a/pause", b"", OPERATOR),
            ("DELETE", "schedule/jobs/v2/tenants/a", b"", ADMIN),
            ("POST", "schedule/jobs/events/tenant/register", b"{}", ADMIN),
            ("POST", "monitor/m/settings", b"{}", ADMIN),
            ("POST", "monitor/m//settings", b"{}", ADMIN), ("DELETE", "monitor/m/clients/a", b"", ADMIN),
            ("POST", "monitor/m/silenced", b"{}", OPERATOR), ("BREW", "schedule/jobs/ping", b"", OPERATOR),
        ]:  # fmt: skip
            for one in Role:
                status = world.ask(method, f"/apis/{path}", token=world.token(one), body=body).status
                assert (status == 403) == (one < role), (method, path, one)
        world.close()


def test_what_is_secret_is_in_no_record_of_the_audit_log():
    tree = {"fields": {"password": "p", "Authorization": "b", "api-key": "k", "url": "kafka://u:p@h/x", "n": 1,
                       "props": [{"sasl.password": "p", "ssl.key.pem": "k"}]}}  # fmt: skip
    assert redacted(tree) == {"fields": {"password": "***", "Authorization": "***", "api-key": "***",
                                         "url": "kafka://***@h/x", "n": 1,
                                         "props": [{"sasl.password": "***", "ssl.key.pem": "***"}]}}  # fmt: skip


def test_no_password_of_the_bus_is_on_a_page():
    for url, shown in (
        ("kafka://ann:hidden@broker:9092/x", "kafka://***@broker:9092/x"), ("memory:", "memory:"),
        ("redis://:hidden@h:1,h2:2?tls=true", "redis://***@h:1,h2:2?tls=true"), ("lmdb:./a@b", "lmdb:./a@b"),
        ("kafka://h:9092?password=hidden&acks=all", "kafka://h:9092?password=***&acks=all"),
        ("kafka://ann:hid@den@broker:9092", "kafka://***@broker:9092"),
    ):  # fmt: skip
        assert redacted(url) == shown


def test_no_token_is_in_an_answer_or_in_the_log(served, caplog, monkeypatch):
    caplog.set_level("DEBUG")
    secret = served.token(ADMIN)

    def broken(_asked):
        message = "a defect"
        raise RuntimeError(message)

    app = served.console.app
    monkeypatch.setitem(app._views, "/streams", replace(app._views["/streams"], load=broken))
    with_token = {"Authorization": f"Bearer {secret}", "Cookie": f"lockstep_session={secret}"}
    for target in ("/api/v1/streams", "/streams", "/api/v1/nowhere", f"/api/v1/streams?q={secret}x"):
        answer = served.ask("GET", target, **with_token)
        assert answer.status in (404, 500), target
        assert b"a defect" not in answer.body
        assert b"Traceback" not in answer.body
        assert secret.encode() not in answer.body
    served.ask("GET", "/api/v1/streams", Authorization=f"Bearer {secret}wrong")
    assert "A request failed" in caplog.text
    assert secret not in caplog.text


# how much


@pytest.mark.parametrize(("target", "size", "status"), [
    ("/sign-in", 17 << 10, 413), ("/api/v1/streams/orders/publish", 6 << 20, 413), ("/nowhere", 6 << 20, 413),
    ("/apis/schedule/jobs/events/schedule", 17 << 20, 413),
])  # fmt: skip
def test_bodies_are_bounded_by_route(served, target, size, status):
    connection = http.client.HTTPConnection(served.host, timeout=20)
    connection.putrequest("POST", target)
    connection.putheader("Content-Length", str(size))
    connection.endheaders()  # nothing more is sent: what is too large is not waited for
    assert connection.getresponse().status == status
    connection.close()


# live pages


def test_a_live_page_ends_when_its_token_is_revoked(served):
    secret = served.token(ADMIN)
    [id_] = [known.id for known in served.console.credentials.tokens()]
    connection = http.client.HTTPConnection(served.host, timeout=20)
    connection.request("GET", "/live?path=/audit", headers={"Authorization": f"Bearer {secret}"})
    answer = connection.getresponse()
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.readline().startswith(b"id: ")
    served.console.credentials.revoke(id_)
    rest = answer.read()
    connection.close()
    assert b"event: ended" in rest
    assert rest.count(b"event: content") <= 1, "nothing more was shown"


def test_live_pages_are_for_get_alone(served):
    for method in ("POST", "HEAD", "PUT"):
        assert served.ask(method, "/live?path=/").status == 405


def test_a_live_page_ends_when_its_session_ends(served):
    token = served.token(ADMIN)
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    signed_in = served.ask("POST", "/sign-in", urlencode({"token": token}).encode(), **form)
    cookie = signed_in.headers["Set-Cookie"].partition(";")[0]
    connection = http.client.HTTPConnection(served.host, timeout=20)
    connection.request("GET", "/live?path=/streams", headers={"Cookie": cookie})
    answer = connection.getresponse()
    assert answer.readline().startswith(b"id: ")
    served.console.credentials.sign_out(cookie.partition("=")[2])
    assert b"event: ended" in answer.read(), "also where everybody may look: the page has the name and acts of who went"
    connection.close()


# the page


def test_each_promise_of_the_page_names_a_test_that_exists():
    page = (ROOT / "docs" / "security-model.md").read_text()
    section = page.partition("## The server of `lockstep serve`")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[2:]
    assert len(rows) > 25
    known = {name for path in (ROOT / "tests" / "console").glob("test_*.py")
             for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}  # fmt: skip
    for promise, tests in rows:
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, promise
        assert set(named) <= known, (promise, set(named) - known)
    own = set(re.findall(r"^def (test_\w+)", Path(__file__).read_text(), re.MULTILINE))
    assert own - {"test_each_promise_of_the_page_names_a_test_that_exists"} <= {
        name for _, tests in rows for name in re.findall(r"`(test_\w+)`", tests)
    }, "each test here belongs to a promise"
