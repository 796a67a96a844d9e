"""The agent's local sockets on a real loop: sensu.md F by number."""

from __future__ import annotations

import asyncio
import base64
import json
import socket

import pytest
from agent_worlds import Timer, World

from lockstep.monitor.agent.sockets import HEAD_BYTES, Connections, HttpSocket, TcpSocket, UdpSocket

GOOD = b'{"name": "app", "output": "o"}'


class PlayedTransport(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.written, self.closed = b"", False

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True


class Connection:
    """A connection whose watchdog goes off when the test says so."""

    def __init__(self, world, connections=None):
        self.timers = []
        self.protocol = TcpSocket(world.agent.take, self._call_later, connections or Connections())
        self.transport = PlayedTransport()
        self.protocol.connection_made(self.transport)

    def _call_later(self, seconds, function):
        timer = Timer()
        self.timers.append((seconds, timer, function))
        return timer

    def say(self, *pieces):
        for piece in pieces:
            self.protocol.data_received(piece)
        return self.transport.written

    def wait(self):
        seconds, timer, function = self.timers[-1]
        assert seconds == 0.5
        if not timer.cancelled:
            function()
        return self.transport.written


@pytest.fixture
def world():
    return World().start()


@pytest.mark.parametrize("said", [b"ping", b" ping\n", b"\tping\r\n"])
def test_ping(world, said):
    connection = Connection(world)
    assert connection.say(said) == b"pong"
    assert connection.transport.closed


def test_a_result_in_any_pieces(world):
    connection = Connection(world)
    assert connection.say(*(GOOD[at : at + 1] for at in range(len(GOOD)))) == b"ok"
    assert connection.transport.closed
    assert [check["name"] for check in world.checked()] == ["app"]


def test_a_list_of_results(world):
    assert Connection(world).say(b"[" + GOOD + b"," + GOOD + b"]") == b"ok"
    assert len(world.checked()) == 2


@pytest.mark.parametrize(
    "said",
    [
        b'{"name": "a b", "output": "o"}', b'{"name": "a"}', b'{"name": "a", "output": "o", "status": "0"}',
        b'{"name": "a", "output": "o", "source": "x y"}', b'{"name": "a", "output": "o", "ttl": 0.5}', b"[1]",
        b'{"name": "a", "output": "o", "ttl": -1}', b'[{"name": "a", "output": "o"}, {}]', b"{}",
    ],
)  # fmt: skip
def test_what_is_no_result_is_invalid_at_once_and_changes_nothing(world, said):
    assert Connection(world).say(said) == b"invalid"
    assert world.checked() == []


@pytest.mark.parametrize("said", [b'{"name": "a"', b"hello", b'{"a": 1}}', b"\xff\xfe", b"17", b"[" * 500 + b"]" * 500])
def test_half_a_second_without_a_document_is_invalid(world, said):
    connection = Connection(world)
    assert connection.say(said) == b""
    assert connection.wait() == b"invalid"
    assert connection.transport.closed


def test_each_piece_begins_the_half_second_anew(world):
    connection = Connection(world)
    connection.say(GOOD[:5], GOOD[5:9])
    assert [timer.cancelled for _, timer, _ in connection.timers] == [True, False]


def test_what_never_ends_is_invalid_at_a_bound(world, monkeypatch):
    monkeypatch.setattr("lockstep.monitor.agent.sockets.MESSAGE_BYTES", 1000)
    assert Connection(world).say(b'{"a": "' + b"x" * 999) == b"invalid"


def test_more_connections_than_may_be_are_ended(world):
    connections = Connections(1)
    first, second = Connection(world, connections), Connection(world, connections)
    assert (first.transport.closed, second.transport.closed) == (False, True)
    second.protocol.connection_lost(None)
    first.protocol.connection_lost(None)
    assert not Connection(world, connections).transport.closed


def test_datagrams(world):
    protocol = UdpSocket(world.agent.take)
    for data in (b"ping", b"{", b"[]", b"\xff", b'{"name": "a"}', GOOD):
        protocol.datagram_received(data, ("127.0.0.1", 1))
    assert [check["name"] for check in world.checked()] == ["app"]


class Http:
    """Requests to an HTTP socket on a real loop."""

    def __init__(self, world, **options):
        self.world = world
        self.socket = HttpSocket(world.agent.take, world.agent.info, world.agent.shown_settings, options)

    def ask(self, *pieces, path="/info", method="GET", body=b"", headers=()):
        data = b"".join(pieces) or self._request(method, path, body, headers)
        raw = asyncio.run(self._talk(data))
        head, _, rest = raw.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(rest), head.decode()

    @staticmethod
    def _request(method, path, body, headers):
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
        if body:
            lines += [f"Content-Length: {len(body)}"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def _talk(self, data):
        server = await asyncio.start_server(self.socket.serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(data)
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
        return answer

    def post(self, body, kind="application/json", **more):
        return self.ask(path="/results", method="POST", body=body, headers=[f"Content-Type: {kind}"], **more)


def login(user="u", password="p"):
    return f"Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_http_info(world):
    status, document, _ = Http(world).ask()
    assert status == 200
    assert document == {
        "sensu": {"version": "0.26.5"},
        "transport": {"name": "memory", "keepalives": {"messages": 0, "consumers": 1},
                      "results": {"messages": 0, "consumers": 1}, "connected": True},
        "spool": {"waiting": 0, "dropped": 0},
    }  # fmt: skip


def test_http_results(world):
    http = Http(world)
    assert http.post(GOOD)[:2] == (202, {"response": "ok"})
    assert http.post(b"[" + GOOD + b"]", kind="application/json; charset=utf-8")[0] == 202
    assert len(world.checked()) == 2
    for body in (b"{", b'{"name": "a"}', b"\xff", b"5"):
        status, document, _ = http.post(body)
        assert (status, document["response"]) == (400, "Failed to parse JSON body")
    assert http.post(GOOD, kind="text/plain")[:2] == (415, {"response": "Invalid content type"})
    assert http.post(b"")[0] == 415
    assert world.checked() == []


def test_http_settings_need_the_password():
    world = World(client={"secret": "geheim"}).start()
    http = Http(world, user="u", password="p")
    for headers in ((), [login("u", "x")], ["Authorization: Basic %%%"], ["Authorization: Bearer x"]):
        status, document, head = http.ask(path="/settings", headers=headers)
        assert (status, "WWW-Authenticate: Basic" in head) == (401, True)
        assert document["response"].startswith("You must be authenticated")
    assert http.ask(path="/settings", headers=[login()])[1]["client"]["secret"] == "REDACTED"
    assert http.ask(path="/settings?redacted=false", headers=[login()])[1]["client"]["secret"] == "geheim"
    assert Http(world).ask(path="/settings", headers=[login("", "")])[0] == 401


def test_http_endpoints_may_all_be_protected(world):
    http = Http(world, user="u", password="p", protect_all_endpoints=True)
    assert http.ask()[0] == 401
    assert http.post(GOOD)[0] == 401
    assert http.ask(headers=[login()])[0] == 200


def test_http_other_paths_and_methods(world):
    http = Http(world)
    assert http.ask(path="/brew")[:2] == (418, {"response": "I'm a teapot!"})
    status, document, _ = http.ask(path="/nothing")
    assert status == 404
    assert document["endpoints"]["/results"] == {"help": "Send check JSON results here", "methods": ["POST"]}
    status, document, head = http.ask(path="/results", method="GET")
    assert (status, "Allow: POST" in head) == (405, True)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /info HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST /results HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /results HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    ],
)
def test_http_that_is_none(world, data, status):
    assert Http(world).ask(data)[0] == status


def test_http_connections_that_end_early_are_forgotten(world):
    async def talk():
        server = await asyncio.start_server(Http(world).socket.serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        async with server:
            for data in (b"", b"GET", b"POST /results HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"):
                with socket.create_connection(server.sockets[0].getsockname()) as client:
                    client.sendall(data)
            await asyncio.sleep(0)

    asyncio.run(talk())
