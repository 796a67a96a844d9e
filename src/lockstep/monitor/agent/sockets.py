"""The local sockets for results of other programs: TCP and UDP on port 3030, HTTP on port 3031."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from lockstep.errors import UsageError
from lockstep.monitor.agent.machine import Json, Timer
from lockstep.monitor.core.documents import encode, parse
from lockstep.monitor.settings.checks import look_at_result
from lockstep.monitor.settings.rules import is_set
from lockstep.monitor.settings.validation import look_at
from lockstep.runtime import logger

PING, PONG, OK, INVALID = b"ping", b"pong", b"ok", b"invalid"
WAIT_S = 0.5
MESSAGE_BYTES = 8 << 20
CONNECTIONS = 1_000
Take = Callable[[Any], None]
"""Takes a parsed document; UsageError if it holds no result."""
_SHOWN = 200


class Connections:
    """How many connections are open, and how many may be."""

    def __init__(self, limit: int = CONNECTIONS) -> None:
        self._limit = limit
        self._open: set[asyncio.BaseTransport] = set()

    def add(self, transport: asyncio.BaseTransport) -> bool:
        """Note one more; False if there are too many."""
        if len(self._open) >= self._limit:
            return False
        self._open.add(transport)
        return True

    def remove(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that one has ended."""
        if transport is not None:
            self._open.discard(transport)

    def close(self) -> None:
        """End all of them."""
        for transport in list(self._open):
            transport.close()


class TcpSocket(asyncio.Protocol):
    """One connection: what comes is looked at with each piece, until it is a whole document or nothing more comes."""

    def __init__(
        self,
        take: Take,
        call_later: Callable[[float, Callable[[], None]], Timer],
        connections: Connections,
    ) -> None:
        self._take, self._call_later, self._connections = take, call_later, connections
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._watchdog: Timer | None = None
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if not self._connections.add(transport):
            self._answered = True
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._stop_watchdog()
        self._connections.remove(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._stop_watchdog()
        self._buffer += data
        answer = self._answer()
        if answer is None and len(self._buffer) > MESSAGE_BYTES:
            answer = INVALID
        if answer is None:
            self._watchdog = self._call_later(WAIT_S, self._give_up)
        else:
            self._respond(answer)

    def _answer(self) -> bytes | None:
        """The answer to what has come so far; None if more may come."""
        text = bytes(self._buffer).strip()
        if text == PING:
            return PONG
        if text[-1:] not in (b"}", b"]"):
            return None  # no document ends so: looking at each piece of a long one would take for ever
        try:
            document = parse(text)
        except ValueError:
            return None
        return OK if taken(self._take, document) else INVALID

    def _give_up(self) -> None:
        logger.warning(
            "Data from a socket was dropped: it is no JSON: %r", bytes(self._buffer[:_SHOWN]),
            extra={"action": "socket_invalid"},
        )  # fmt: skip
        self._respond(INVALID)

    def _respond(self, answer: bytes) -> None:
        self._answered = True
        self._buffer.clear()
        if self._transport is not None:
            self._transport.write(answer)
            self._transport.close()

    def _stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None


class UdpSocket(asyncio.DatagramProtocol):
    """Datagrams: each is one document, and none is answered."""

    def __init__(self, take: Take) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: Any) -> None:  # noqa: ARG002
        text = data.strip()
        if text == PING:
            return
        try:
            document = parse(text)
        except ValueError as error:
            logger.error("A datagram was dropped: %s", error, extra={"action": "socket_invalid"})
            return
        taken(self._take, document)


def taken(take: Take, document: Any) -> bool:
    """Hand a document on; False, with a line in the log, if it holds no result."""
    try:
        take(document)
    except UsageError as error:
        logger.error("failed to process check result from socket: %s", error, extra={"action": "socket_invalid"})
        return False
    return True


HEAD_BYTES, BODY_BYTES = 16 << 10, 8 << 20
REQUEST_S = 10.0
_REALM = 'Basic realm="Sensu Client Restricted Area"'
_NO_LOGIN = "You must be authenticated using your http_options user and password settings"
_HELP = {
    "/info": ("GET", "Sensu client information"),
    "/results": ("POST", "Send check JSON results here"),
    "/settings": (
        "GET",
        "Get redacted Sensu settings (requires basic auth). Use ?redacted=false if you want the setting unredacted.",
    ),
    "/brew": ("GET", "Ask Sensu to brew a cup of joe (try it!)"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request, read whole."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered."""

    status: int
    document: Any
    headers: tuple[tuple[str, str], ...] = ()


class BadRequest(UsageError):
    """What came is not HTTP, or too much of it."""

    code = "BAD_REQUEST"
    template, advice = "The request is answered with {status}: {reason}.", ""


class HttpSocket:
    """Answers requests. `info` may wait for the transport; it runs in a thread."""

    def __init__(
        self,
        take: Callable[[Any], None],
        info: Callable[[], Any],
        settings: Callable[[bool], Any],
        options: Mapping[str, Any],
    ) -> None:
        self._take, self._info, self._settings, self._options = take, info, settings, options
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request of a connection, answer it, and end the connection."""
        self._open += 1
        try:
            if self._open > CONNECTIONS:
                return
            async with asyncio.timeout(REQUEST_S):
                try:
                    answer = await self.answer(await read_request(reader))
                except BadRequest as error:
                    answer = Answer(int(str(error.params["status"])), {"response": str(error.params["reason"])})
                writer.write(_bytes_of(answer))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return  # the client is gone, or never finished
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def answer(self, request: Request) -> Answer:
        """The answer to a request."""
        known = _HELP.get(request.path)
        if known is None:
            endpoints = {path: {"help": text, "methods": [method]} for path, (method, text) in _HELP.items()}
            return Answer(404, {"endpoints": endpoints})
        if request.method != known[0]:
            return Answer(405, {"response": f'Valid methods for this endpoint: ["{known[0]}"]'}, (("Allow", known[0]),))
        if request.path == "/brew":
            return Answer(418, {"response": "I'm a teapot!"})
        protected = request.path == "/settings" or is_set(self._options.get("protect_all_endpoints"))
        if protected and not self._is_authorized(request):
            return Answer(401, {"response": _NO_LOGIN}, (("WWW-Authenticate", _REALM),))
        if request.path == "/info":
            return Answer(200, await asyncio.get_running_loop().run_in_executor(None, self._info))
        if request.path == "/settings":
            redacted = parse_qs(request.query.lower()).get("redacted") != ["false"]
            return Answer(200, self._settings(redacted))
        return self._result(request)

    def _result(self, request: Request) -> Answer:
        if "application/json" not in request.headers.get("content-type", "") or not request.body:
            return Answer(415, {"response": "Invalid content type"})
        try:
            self._take(parse(request.body))
        except UsageError as error:
            return Answer(400, {"response": "Failed to parse JSON body", "error": str(error.params.get("reason"))})
        except ValueError as error:
            return Answer(400, {"response": "Failed to parse JSON body", "error": str(error)})
        return Answer(202, {"response": "ok"})

    def _is_authorized(self, request: Request) -> bool:
        user, password = self._options.get("user"), self._options.get("password")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not isinstance(user, str) or not isinstance(password, str) or scheme.lower() != "basic":
            return False
        try:
            login = base64.b64decode(given.strip(), validate=True)
        except (binascii.Error, ValueError):
            return False
        return hmac.compare_digest(login, f"{user}:{password}".encode())


async def read_request(reader: asyncio.StreamReader) -> Request:
    """A request with its body; BadRequest if it is none, or too large."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        raise BadRequest(status=431, reason="The head of the request is too large") from None
    first, *lines = head[:-4].split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest(status=400, reason="The request is not HTTP 1")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in headers:
        raise BadRequest(status=411, reason="The request needs a Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise BadRequest(status=400, reason="The Content-Length is not a number")
    if int(length) > BODY_BYTES:
        raise BadRequest(status=413, reason=f"The body is larger than {BODY_BYTES} bytes")
    path, _, query = parts[1].partition("?")
    return Request(parts[0].upper(), path, query, headers, await reader.readexactly(int(length)))


def _bytes_of(answer: Answer) -> bytes:
    body = encode(answer.document)
    headers = (
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        *answer.headers,
    )
    status = HTTPStatus(answer.status)
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers)
    return head.encode("latin-1") + b"\r\n" + body


def results_of(document: Any, now: int) -> list[Json]:
    """The results in a document, one or a list of them; UsageError if any of them can't be one."""
    return [_result(item, now) for item in (document if isinstance(document, list) else [document])]


def _result(item: Any, now: int) -> Json:
    if not isinstance(item, Mapping):
        raise UsageError(reason="a check result must be a hash")
    check = dict(item)
    for member, default in (("status", 0), ("executed", now)):
        if not is_set(check.get(member)):
            check[member] = default
    faults = look_at(look_at_result, check)
    if faults:
        raise UsageError(reason=faults[0].sentence)
    return {**check, "issued": now}
