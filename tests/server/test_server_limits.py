"""Health always answers, slow bodies keep nobody waiting, and changes can be bound to a token."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
from server_worlds import BASE, View, served

from lockstep.server.connections import Connection
from lockstep.server.guard import Limits

TOKEN = "a-token-nobody-guesses-0123456789"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
HEALTH = b"GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc"


@pytest.fixture
def view() -> View:
    return View()


def test_health_answers_while_as_many_requests_are_at_work_as_may_be(view) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def held(*_: object) -> None:
        begun.release()
        go_on.wait(20)

    view.ask = held
    with served(view, limits=Limits(requests=2)) as ask:
        threads = [threading.Thread(target=ask.put, args=("/server/state?value=persisted",)) for _ in range(2)]
        for thread in threads:
            thread.start()
            assert begun.acquire(timeout=20)
        assert ask.get("/windows").status == 503
        assert ask("GET", "/v1/healthz").status == 200
        go_on.set()
        for thread in threads:
            thread.join(20)


def test_slow_bodies_keep_no_other_request_from_being_answered(view) -> None:
    with served(view, limits=Limits(requests=2, bodies=3)) as ask, ExitStack() as slow:
        for _ in range(3):
            raw = slow.enter_context(socket.create_connection(("127.0.0.1", urlsplit(ask.url).port), timeout=10))
            raw.sendall(SLOW)
        for _ in range(200):  # until the server has seen them all
            if ask.put("/projectValidationResults", b"<x/>").status == 503:
                break
        else:
            pytest.fail("a body more than may come in at a time was taken")
        assert ask.get("/windows").status == 200
        assert ask("GET", "/v1/healthz").status == 200


def test_health_reads_no_body(view) -> None:
    with served(view) as ask, socket.create_connection(("127.0.0.1", urlsplit(ask.url).port), timeout=5) as raw:
        raw.sendall(b"GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_token_for_changes_lets_everybody_look_and_its_bearers_change(view) -> None:
    path, body = f"{BASE}/server/state?value=persisted", b""
    with served(view, change_token=TOKEN) as ask:
        assert ask.get("/windows").status == 200
        for headers in ({}, {"Authorization": "Bearer another-token"}):
            refused = ask("PUT", path, body, {**headers, "Accept": "application/json"})
            assert (refused.status, refused.code) == (401, "CHANGE_NEEDS_TOKEN")
        assert ask("PUT", path, body, BEARER).status == 200


def test_checking_a_model_needs_the_token_for_changes(view) -> None:
    path = f"{BASE}/projectValidationResults"
    with served(view, change_token=TOKEN) as ask:
        refused = ask("POST", path, b"<x/>", {"Accept": "application/json"})
        assert (refused.status, refused.code) == (401, "CHANGE_NEEDS_TOKEN")
        assert ask("POST", path, b"<x/>", BEARER).status == 200


def test_models_are_checked_one_at_a_time(view, monkeypatch) -> None:
    begun, go_on, at_once, most = threading.Semaphore(0), threading.Semaphore(0), 0, 0

    def held(_body: bytes) -> list[object]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        begun.release()
        assert go_on.acquire(timeout=20)
        at_once -= 1
        return []

    monkeypatch.setattr("lockstep.server.routes_change._faults", held)
    with served(view) as ask:
        checks = [threading.Thread(target=ask, args=("POST", f"{BASE}/projectValidationResults", b"<x/>"))
                  for _ in range(3)]  # fmt: skip
        for check in checks:
            check.start()
        for _ in checks:
            assert begun.acquire(timeout=20)
            assert ask("GET", "/v1/healthz").status == 200  # the others had time to begin
            go_on.release()
        for check in checks:
            check.join(20)
    assert most == 1


def test_bodies_of_requests_that_look_are_not_waited_for(view) -> None:
    look = f"GET {BASE}/windows HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".encode()
    with served(view, change_token=TOKEN, limits=Limits(bodies=1)) as ask, ExitStack() as slow:
        for _ in range(2):
            raw = slow.enter_context(socket.create_connection(("127.0.0.1", urlsplit(ask.url).port), timeout=10))
            raw.sendall(look)
            assert raw.recv(100).startswith(b"HTTP/1.1 200 ")
        path = f"{BASE}/projectValidationResults"
        assert ask("POST", path, b"<x/>", BEARER).status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /v1/healthz HTTP/1.1\r\nHo", HEALTH, HEALTH + b"GET /"])
def test_a_connection_without_a_request_is_closed(view, monkeypatch, sent) -> None:
    monkeypatch.setattr(Connection, "request_s", 0.05)
    with served(view) as ask, socket.create_connection(("127.0.0.1", urlsplit(ask.url).port), timeout=4) as raw:
        raw.sendall(sent)
        with suppress(ConnectionResetError):
            while raw.recv(1000):
                pass
        assert ask("GET", "/v1/healthz").status == 200


def test_silent_connections_leave_room_for_those_that_ask(view, monkeypatch) -> None:
    monkeypatch.setattr("lockstep.server.connections._MOST", 4)
    with served(view) as ask, ExitStack() as silent:
        raws = [silent.enter_context(socket.create_connection(("127.0.0.1", urlsplit(ask.url).port), timeout=10))
                for _ in range(6)]  # fmt: skip
        assert ask("GET", "/v1/healthz").status == 200
        for raw in raws[:2]:  # those that were silent for longest
            with suppress(ConnectionResetError):
                assert raw.recv(1) == b""
        raws[-1].sendall(HEALTH)
        assert raws[-1].recv(100).startswith(b"HTTP/1.1 200 ")


def test_connections_leave_most_files_to_the_engine() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
        "from lockstep.server.connections import connections_max; print(connections_max())"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"32\n"


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_an_engine_of_one_project_says_why_it_loads_and_removes_none(view, method) -> None:
    with served(view) as ask:
        found = ask(method, f"{BASE}/projects/{view.graph().project.name}", b"", {"Accept": "application/json"})
        assert found.status == 409
        assert "This engine was started for project" in found.text
