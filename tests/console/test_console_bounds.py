"""Callers that do not read, stay silent, come again and again or ask for a lot: the server answers all others."""

from __future__ import annotations

import http.client
import os
import resource
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

sys.path.append(str(Path(__file__).parent))

from server_pairs import LiveStream, ServeProcess

import lockstep
from lockstep.bench.console.processes import memory_mb, threads_of
from lockstep.console import live
from lockstep.console.port import PAGED, Asked, Pillar, Site, View
from lockstep.console.sampler import Sampler
from lockstep.console.server import Console, ConsoleConnection, ConsoleOptions
from lockstep.console.streams import StreamViews
from lockstep.server.guard import Limits

pytestmark = pytest.mark.timeout(120)
_LOOK_S = 0.02


@pytest.fixture
def client():
    with lockstep.connect("memory:") as client:
        client.create("orders")
        yield client


@pytest.fixture
def opened(client):
    """Makes a console over the streams of the client."""
    with ExitStack() as closing:

        def make(*pillars: Pillar, limits: Limits | None = None) -> Console:
            site = Site(client, client.runtime, "local")
            found = [StreamViews(site, Sampler(site)).pillar(), *pillars]
            more = {} if limits is None else {"limits": limits}
            return closing.enter_context(Console(client, ConsoleOptions(), pillars=found, **more))

        yield make


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)


def get(url: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def until(is_so, what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"waited {seconds} s until {what}"
        time.sleep(_LOOK_S)


def publish(client, count: int, size: int) -> None:
    with client.publisher("orders") as publisher:
        publisher.publish_many([os.urandom(size // 2).hex().encode() for _ in range(count)]).wait()


def connections_of(console: Console):
    return list(console._server._server.server_state.connections)


def test_a_viewer_that_does_not_read_holds_little_and_is_ended(client, opened, monkeypatch):
    monkeypatch.setattr(live, "EVERY_S", 0.05)
    monkeypatch.setattr(ConsoleConnection, "unread_s", 1.0)
    console = opened()
    console.app.live._every_s = 0.05
    publish(client, 60, 16_000)
    path = "/streams/orders/records?count=60"
    slow = connected(console.url)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    until(lambda: connections_of(console), "it is connected")
    for each in connections_of(console):  # so that the system takes little of it
        each.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32_768)
    slow.sendall(f"GET /live?path={quote(path, safe='')} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    until(lambda: console.app.live.viewers == 1, "the slow viewer is there")
    quick = LiveStream(console.url, path)
    held = []
    for number in range(6):
        with client.publisher("orders") as publisher:
            publisher.publish(f"mark-{number}".encode())
        quick.wait_content(f"mark-{number}")
        held += [each.transport.get_write_buffer_size() for each in connections_of(console)]
        assert get(console.url, "/healthz")[0] == 200
    assert max(held) <= 3 * live.PIECE, "the rest of a page is given when there is room for it"
    until(lambda: console.app.live.viewers == 1, "the system ends the connection of the slow viewer")
    quick.close()
    slow.close()


def test_silent_connections_end_where_there_are_too_many_and_health_answers(opened, monkeypatch):
    monkeypatch.setattr(ConsoleConnection, "most", 40)
    monkeypatch.setattr(ConsoleConnection, "request_s", 600.0)
    console = opened()
    threads = threading.active_count()
    viewer = LiveStream(console.url, "/streams")
    viewer.wait_content("orders")
    with ExitStack() as silent:
        for _ in range(150):
            silent.enter_context(connected(console.url))
        assert get(console.url, "/healthz")[0] == 200
        assert get(console.url, "/metrics")[0] == 200
        until(lambda: len(connections_of(console)) <= 41, "the oldest silent connections are ended")
        assert threading.active_count() <= threads + 20
    assert console.app.live.viewers == 1, "a live page is not silent"
    viewer.close()


def test_a_page_that_is_left_and_looked_at_again_is_rendered_once(opened):
    seen = []

    def load(asked: Asked):
        seen.append(asked.path)
        return {"streams": []}

    view = View(path="/counted", title="Counted", summary="", load=load, template="streams.html", parameters=PAGED)
    console = opened(Pillar("counted", "Counted", [view]))
    console.app.live._every_s = 60.0
    for _ in range(20):
        stream = LiveStream(console.url, "/counted")
        assert stream.status == 200
        stream.close()
        until(lambda: console.app.live.viewers == 0, "the viewer has left")
    assert len(seen) == 1
    assert console.app.live.pages == 1


def test_pages_that_nobody_looks_at_any_more_are_kept_in_small_number(opened, monkeypatch):
    monkeypatch.setattr(live, "IDLE_MAX", 3)
    console = opened()
    console.app.live._every_s = 60.0
    for number in range(12):
        stream = LiveStream(console.url, f"/streams?q={number}")
        stream.wait_content("No stream has")
        stream.close()
        until(lambda: console.app.live.viewers == 0, "the viewer has left")
    until(lambda: console.app.live.pages <= 3, "the others are given up")


def test_a_page_of_ten_megabytes_is_shown_and_not_followed(client, opened):
    console = opened()
    publish(client, 200, 16_000)
    path = "/streams/orders/records?count=200&form=hex"
    status, page = get(console.url, path)
    assert (status, len(page) > 10_000_000) == (200, True)
    stream = LiveStream(console.url, path)
    told = b"".join(stream.lines(3))
    assert b"event: stale" in told
    assert b"too large to be followed" in told
    assert get(console.url, "/healthz")[0] == 200
    stream.close()


def test_health_and_metrics_answer_while_all_slots_are_taken(opened):
    waiting, go_on = threading.Semaphore(0), threading.Event()

    def load(_asked: Asked):
        waiting.release()
        assert go_on.wait(60)
        return {}

    view = View(path="/waits", title="Waits", summary="", load=load, template="audit.html", is_live=False)
    console = opened(Pillar("waits", "Waits", [view]), limits=Limits(requests=4))
    callers = [threading.Thread(target=get, args=(console.url, "/api/v1/waits")) for _ in range(4)]
    for caller in callers:
        caller.start()
    for _ in callers:
        assert waiting.acquire(timeout=30)
    try:
        assert get(console.url, "/streams")[0] in (429, 503)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert get(console.url, path)[0] == 200
        stream = LiveStream(console.url, "/streams")
        stream.wait_content("orders")
        stream.close()
    finally:
        go_on.set()
        for caller in callers:
            caller.join(30)


@pytest.mark.soak
@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 4096, reason="needs ulimit -n 4096")
def test_a_process_with_a_thousand_silent_connections_and_slow_viewers_stays_small(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path / 'bus'}") as client, ExitStack() as closing:
        client.create("orders")
        publish(client, 60, 16_000)
        server = ServeProcess(f"lmdb:{tmp_path / 'bus'}", tmp_path, "one")
        closing.callback(server.close)
        server.wait()
        assert get(server.url, "/streams/orders/records?count=60")[0] == 200
        before, threads = memory_mb(server.pid), threads_of(server.pid)
        for number in range(100):
            slow = closing.enter_context(connected(server.url))
            path = quote(f"/streams/orders/records?count={50 + number % 10}", safe="")
            slow.sendall(f"GET /live?path={path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        for _ in range(1_000):
            closing.enter_context(connected(server.url))
        for number in range(20):
            with client.publisher("orders") as publisher:
                publisher.publish(f"mark-{number}".encode() * 1_000)
            with suppress(TimeoutError):
                assert get(server.url, "/healthz")[0] == 200
            assert get(server.url, "/streams")[0] == 200
        print(f"memory {before:.0f} MB, then {memory_mb(server.pid):.0f}; threads {threads}, {threads_of(server.pid)}")
        assert memory_mb(server.pid) < before + 150
        assert threads_of(server.pid) <= threads + 40
