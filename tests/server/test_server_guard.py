"""Who may ask, how much, and what is said when something breaks; starting and stopping."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from server_worlds import BASE, View, served

from lockstep.errors import TimedOut
from lockstep.server import bind, read_token, serve
from lockstep.server.access import TokenCheck, check_host, is_loopback
from lockstep.server.errors import PortUnusable, TokenFileUnusable, TokenNeeded
from lockstep.server.guard import Limits

TOKEN = "a-token-nobody-guesses-0123456789"


@pytest.fixture
def view() -> View:
    return View()


# --- tokens ------------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_said(view):
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
    ]
    with served(view, token=TOKEN) as ask:
        for path in (f"{BASE}/windows", "/v1/status", "/openapi.json", "/nothing"):
            for given in ({}, *({"Authorization": text} for text in wrong)):
                found = ask("GET", path, headers={"Accept": "application/json", **given})
                assert (found.status, found.code) == (401, "TOKEN_WRONG"), (path, given)
                assert found.headers["www-authenticate"] == "Bearer"


def test_with_the_token_everything_is(view):
    with served(view, token=TOKEN) as ask:
        assert ask.get("/windows", Authorization=f"Bearer {TOKEN}").status == 200
        assert ask.get("/windows", Authorization=f"bearer  {TOKEN}").status == 200
        assert ask("GET", "/v1/healthz").json == {"status": "ok"}


@pytest.mark.parametrize("path", ["/v1/heal%0Athz", "/v1/%09healthz", "/v1/healthz%3F", "/v1/healthz/"])
def test_a_path_that_only_resembles_the_open_one_needs_the_token(view, path):
    with served(view, token=TOKEN) as ask:
        assert ask("GET", path).status == 401


def test_the_host_header_does_not_decide_which_path_is_meant(view):
    state = f"{BASE}/projects/{view.graph().project.name}/state?value=stopped"
    with served(view, token=TOKEN) as ask:
        for host in ("127.0.0.1/v1/healthz?x=", "127.0.0.1/v1/healthz#", "/v1/healthz?"):
            assert ask("PUT", state, headers={"Host": host}).status == 401
    with served(view, change_token=TOKEN) as ask:
        assert ask("PUT", state, headers={"Host": f"127.0.0.1{BASE}/projectValidationResults?x="}).status == 401
    assert view.asked == []


def test_the_token_is_never_logged(view, caplog):
    caplog.set_level(logging.DEBUG)
    with served(view, token=TOKEN) as ask:
        ask.get("/windows", Authorization=f"Bearer {TOKEN}")
        ask.get("/windows", Authorization=f"Basic {TOKEN}")
    assert caplog.records
    assert not any(TOKEN in str(vars(record)) for record in caplog.records)
    assert TOKEN not in str(vars(TokenCheck(TOKEN)))


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ],
)
def test_what_is_this_machine(host, is_here):
    assert is_loopback(host) is is_here
    check_host(host, TOKEN)
    if not is_here:
        with pytest.raises(TokenNeeded, match="--token-file"):
            check_host(host, None)


def test_others_can_not_be_served_without_a_token(view):
    with pytest.raises(TokenNeeded):
        serve(view, host="0.0.0.0")


def test_others_can_be_served_with_a_token(view):
    with served(view, host="0.0.0.0", token=TOKEN) as ask:
        port = ask.url.rpartition(":")[2]
        ask.url = f"http://127.0.0.1:{port}"
        assert ask.get("/windows", Authorization=f"Bearer {TOKEN}", Host="a.name.of.ours").status == 200


def test_a_token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"  {TOKEN}\n")
    path.chmod(0o600)
    assert read_token(path) == TOKEN


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (TOKEN, 0o640, "only its owner"),
        (TOKEN, 0o604, "only its owner"),
        ("short", 0o600, "no token"),
        ("", 0o600, "no token"),
        ("x" * 2000, 0o600, "no token"),
        (f"{TOKEN}\n{TOKEN}", 0o600, "no token"),
        (f"{TOKEN} {TOKEN}", 0o600, "no token"),
        ("\xe9" * 20, 0o600, "no token"),
    ],
)
def test_a_file_that_is_no_token_file(tmp_path, text, mode, words):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(TokenFileUnusable, match=words) as caught:
        read_token(path)
    assert TOKEN not in str(caught.value)


def test_a_token_file_that_is_none(tmp_path):
    with pytest.raises(TokenFileUnusable, match="No such file"):
        read_token(tmp_path / "missing")
    with pytest.raises(TokenFileUnusable, match="only its owner"):
        read_token(tmp_path)


# --- browsers ----------------------------------------------------------------------------------------------------


def test_a_name_that_was_made_to_mean_this_machine_is_refused(view):
    with served(view) as ask:
        for host in ("evil.example.org", "10.0.0.1", "127.0.0.1.example.org", "[", ""):
            found = ask.get("/windows", Host=host)
            assert (found.status, found.code) == (403, "ORIGIN_REFUSED"), host


def test_a_page_of_another_site_can_not_ask(view):
    with served(view) as ask:
        place = urlsplit(ask.url).netloc
        for origin in ("http://evil.example.org", "null", "http://127.0.0.1:1"):
            found = ask("POST", f"{BASE}/stoppedProjects/p", headers={"Origin": origin, "Accept": "application/json"})
            assert (found.status, found.code) == (403, "ORIGIN_REFUSED")
        assert view.asked == []
        assert ask.get("/windows", Origin=f"http://{place}").status == 200
        port = place.rpartition(":")[2]
        assert ask.get("/windows", Host=f"localhost:{port}").status == 200


def test_no_site_is_told_that_it_may(view):
    with served(view) as ask:
        found = ask("OPTIONS", f"{BASE}/server/state", headers={"Access-Control-Request-Method": "PUT"})
        assert found.status == 405
        assert not [name for name in found.headers if name.startswith("access-control")]
        assert ask.get("/windows").headers["cache-control"] == "no-store"


# --- bounds ------------------------------------------------------------------------------------------------------

SMALL = Limits(body_bytes=100)


@pytest.mark.parametrize(("size", "status"), [(100, 200), (101, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_bounded(view, size, status, chunked):
    body = b" " * size
    with served(view, limits=SMALL) as ask:
        given = iter([body[:60], body[60:]]) if chunked else body
        path = f"{BASE}/projectValidationResults"
        found = ask("POST", path, given, {"Accept": "application/json"}, encode_chunked=chunked)
        assert found.status == status
        if status == 413:
            assert found.code == "BODY_TOO_LARGE"


def test_a_body_that_says_nonsense_of_its_size(view):
    with served(view) as ask, socket.create_connection(("127.0.0.1", urlsplit(ask.url).port), timeout=10) as raw:
        raw.sendall(b"GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
        assert ask("GET", "/v1/healthz").status == 200


def test_a_body_that_never_comes(view):
    with served(view, limits=Limits(body_s=0.05)) as ask:
        with socket.create_connection(("127.0.0.1", urlsplit(ask.url).port), timeout=10) as raw:
            raw.sendall(b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
            assert raw.recv(100).startswith(b"HTTP/1.1 504 ")
        assert ask("GET", "/v1/healthz").status == 200


def test_a_client_that_goes_away_in_mid_request(view):
    with served(view) as ask:
        with socket.create_connection(("127.0.0.1", urlsplit(ask.url).port), timeout=10) as raw:
            raw.sendall(b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
        assert ask("GET", "/v1/healthz").status == 200


class Held:
    """A leader that takes its time."""

    def __init__(self, view: View) -> None:
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()
        view.reply = self._reply

    def _reply(self, _kind):
        self.begun.release()
        assert self.go_on.wait(30)
        return {}


def test_requests_at_a_time_are_bounded(view):
    held, statuses = Held(view), []
    with served(view, limits=Limits(requests=2)) as ask:
        threads = [threading.Thread(target=lambda: statuses.append(ask.put("/server/state?value=persisted").status))
                   for _ in range(2)]  # fmt: skip
        for thread in threads:
            thread.start()
            assert held.begun.acquire(timeout=20)
        found = ask.get("/windows")
        assert (found.status, found.code) == (503, "TOO_MANY_REQUESTS")
        assert found.headers["retry-after"] == "1"
        held.go_on.set()
        for thread in threads:
            thread.join(20)
        assert statuses == [200, 200]
        assert ask.get("/windows").status == 200


# --- defects -----------------------------------------------------------------------------------------------------


def test_a_defect_is_told_by_a_number_only(view, caplog):
    def broken(_kind):
        message = "a secret of the engine"
        raise ValueError(message)

    view.reply = broken
    with served(view) as ask:
        found = ask.put("/server/state?value=persisted")
        assert (found.status, found.code) == (500, "INTERNAL")
        assert "secret" not in found.text
        assert "Traceback" not in found.text
        [record] = [record for record in caplog.records if getattr(record, "action", "") == "request_failed"]
        assert record.id in found.json["error"]["advice"]
        assert "a secret of the engine" in str(record.exc_info[1])
        assert ask.get("/windows").status == 200


# --- starting and stopping ---------------------------------------------------------------------------------------


def test_a_port_that_is_taken(view):
    with served(view) as ask:
        port = urlsplit(ask.url).port
        with pytest.raises(PortUnusable, match=f"port {port}"):
            serve(view, port=port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("::1::", 0)])
def test_an_address_that_is_none(view, host, port):
    with pytest.raises(PortUnusable):
        serve(view, host=host, port=port, token=TOKEN)


def test_answers_are_not_held_back_by_the_delay_of_nagle():
    with bind("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP, "asyncio sets TCP_NODELAY only on such sockets"


def test_a_port_that_was_taken_is_taken_before_it_is_served():
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortUnusable, match=f"port {port}"):
            bind("127.0.0.1", port)


def test_after_it_stopped_nobody_listens_and_the_port_is_free(view):
    server = serve(view)
    port = urlsplit(server.url).port
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    serve(view, port=port).stop()


def test_stopping_does_not_wait_for_ever(view):
    held = Held(view)
    server = serve(view)
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.url).port, timeout=30)
    connection.request("PUT", f"{BASE}/server/state?value=persisted")
    assert held.begun.acquire(timeout=20)
    port = urlsplit(server.url).port
    with suppress(TimedOut):  # the thread may still be at the request; what matters is that this returns
        server.stop(timeout_s=0.05)
    held.go_on.set()
    connection.close()
    server.stop(20)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
