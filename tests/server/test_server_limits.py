"""Health always answers, slow bodies keep nobody waiting, and changes can be bound to a token."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from server_worlds import BASE, View, served

from lockstep.server.guard import Limits

TOKEN = "a-token-nobody-guesses-0123456789"
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
        assert ask("POST", f"{BASE}/projectValidationResults", b"<x/>", {}).status == 200
        for headers in ({}, {"Authorization": "Bearer another-token"}):
            refused = ask("PUT", path, body, {**headers, "Accept": "application/json"})
            assert (refused.status, refused.code) == (401, "CHANGE_NEEDS_TOKEN")
        assert ask("PUT", path, body, {"Authorization": f"Bearer {TOKEN}"}).status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_an_engine_of_one_project_says_why_it_loads_and_removes_none(view, method) -> None:
    with served(view) as ask:
        found = ask(method, f"{BASE}/projects/{view.graph().project.name}", b"", {"Accept": "application/json"})
        assert found.status == 409
        assert "This engine was started for project" in found.text
