"""Requests to a project and their replies, over plain streams: the engine that leads replies, to the client alone.

A request goes onto the project's request stream; the reply comes on a stream that the client made for it, and deletes.
While it waits the client sends the same request again, about once a second. So nothing needs to be kept or looked up:
an engine that begins to lead starts at the end of the stream, and hears from every client that still waits. What it
does not hear again is from a client that is gone, and is never carried out late.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.engine.errors import RequestRefused, RequestTimedOut
from lockstep.engine.runtime.control.reports import latest_reports
from lockstep.engine.runtime.output.spool import all_errors
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import (
    AppendUncertain,
    BadArgument,
    BatchDamaged,
    LockstepError,
    NotFound,
    RecordTooLarge,
    StreamNotFound,
    Trimmed,
)
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.config import StreamConfig, check_name
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime, logger

REPLIES = StreamConfig(capacity=16, max_record_bytes=64 << 20)
"""Of an answer and its copies the first is taken."""
ASK_AGAIN_S = 1.0
STALL_S = 30.0
"""An engine that did not look for so long starts anew at the end: clients of requests from before may be gone."""
SWEEP_S = 60.0
"""A reply stream whose client was not heard for so long, and maybe twice that, is removed: it was killed."""
WAITING_MAX = 256
"""Requests at a time; others are heard when there is room."""
HEARD_MAX = 10_000
"""Clients that are told apart between two sweeps; if there are more nothing is swept."""
_READ_TRIES = 8
_TEXT_MAX = 512


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a project. With the same id it is the same request, and is carried out once."""

    id: str
    kind: str
    params: Mapping[str, Any]
    reply: str
    """The stream on which the reply is expected; each request has its own."""
    at_ns: int
    """Wall clock of the client, a label."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an engine replied: a result, or an error with code, message and params."""

    id: str
    ok: bool
    result: Mapping[str, Any]
    error: Mapping[str, Any] | None
    engine: str


class RequestClient:
    """Sends requests to a project, and waits for the replies."""

    def __init__(self, bus: Bus, streams: ProjectStreams, runtime: Runtime) -> None:
        self._bus, self._streams, self._runtime = bus, streams, runtime

    def ask(
        self,
        kind: str,
        params: Mapping[str, Any],
        *,
        timeout_s: float = 30.0,
        id: str | None = None,  # noqa: A002 - it is one
    ) -> Reply:
        """The reply, or the error that the engine raised; RequestTimedOut names the engine that was asked."""
        if not 0 < timeout_s < math.inf:
            raise BadArgument(name="timeout_s", value=timeout_s, reason="it must be above 0, and finite")
        request = self._request(kind, params, id)
        requests = self._requests()
        data = _encoded(request, requests)
        replies = self._bus.create(request.reply, REPLIES)
        try:
            reply = self._wait(request, data, requests, replies, timeout_s)
        finally:
            _delete(self._bus, request.reply)
        if not reply.ok:
            raise error_of(reply, kind)
        return reply

    def _request(self, kind: str, params: Mapping[str, Any], given: str | None) -> Request:
        id_ = self._runtime.new_id().hex() if given is None else check_name("Request", given)
        reply = self._streams.replies(self._runtime.new_id().hex())
        return Request(id_, kind, params, reply, self._runtime.wall_ns())

    def _requests(self) -> Log:
        try:
            return self._bus.open(self._streams.requests)
        except StreamNotFound as error:
            raise NotFound(what="Project", name=f"{self._streams.cluster}.{self._streams.project}") from error

    def _wait(self, request: Request, data: bytes, requests: Log, replies: Log, timeout_s: float) -> Reply:
        waiter = self._bus.waiter()
        now = ask_at = self._runtime.monotonic()
        end = now + timeout_s
        try:
            waiter.watch(replies)
            while (reply := _first_reply(replies, request.id)) is None:
                now = self._runtime.monotonic()
                if now >= end:
                    raise self._timed_out(request, timeout_s)
                if now >= ask_at:
                    _append(requests, data, request.at_ns)
                    ask_at = now + ASK_AGAIN_S
                waiter.wait(min(end, ask_at) - now)
        except StreamNotFound as error:  # we were stopped for so long that the engine took us for dead
            raise self._timed_out(request, timeout_s) from error
        finally:
            waiter.close()
        return reply

    def _timed_out(self, request: Request, timeout_s: float) -> RequestTimedOut:
        project = f"{self._streams.cluster}.{self._streams.project}"
        asked = who_leads(self._bus, self._streams)
        return RequestTimedOut(project=project, kind=request.kind, seconds=timeout_s, asked=asked)


class RequestServer:
    """Receives the requests to a project, and replies. For the loop of the engine that leads: no call waits."""

    def __init__(self, bus: Bus, streams: ProjectStreams, engine: str, runtime: Runtime) -> None:
        self._bus, self._streams, self._engine, self._runtime = bus, streams, engine, runtime
        self._log = bus.open(streams.requests)
        self._waiting: dict[str, Request] = {}
        self._next = 0
        self._looked_at = self._swept_at = -math.inf
        self._heard: set[str] = set()
        self._suspects: frozenset[str] = frozenset()

    def waiting(self) -> list[Request]:
        """Requests without a reply whose clients still wait, in the order in which they were heard."""
        now = self._runtime.monotonic()
        if now - self._looked_at > STALL_S:
            self._start(now)
        self._looked_at = now
        for value in self._new():
            self._hear(value)
        self._waiting = {name: request for name, request in self._waiting.items() if self._is_expected(name)}
        if now - self._swept_at > SWEEP_S:
            self._sweep(now)
        return list(self._waiting.values())

    def answer(self, request: Request, result: Mapping[str, Any]) -> None:
        """Reply that it is done. A client that no longer waits is left alone."""
        self._send(request, Reply(request.id, True, result, None, self._engine))

    def refuse(self, request: Request, error: LockstepError) -> None:
        """Reply that it is refused; the client raises the same error."""
        self._send(request, Reply(request.id, False, {}, error_tree(error), self._engine))

    def _start(self, now: float) -> None:
        self._waiting.clear()
        self._heard.clear()
        self._swept_at = now  # a client that lives is heard before the next sweep
        self._next = self._log.bounds().next

    def _new(self) -> Iterator[bytes]:
        for _ in range(_READ_TRIES):
            try:
                for at, value in _values(self._log, self._next):
                    self._next = at + 1
                    yield value
            except Trimmed:  # more was asked than the stream holds: those who wait ask again
                self._next = self._log.bounds().first
            else:
                return

    def _hear(self, value: bytes) -> None:
        request = request_of(value)
        if request is None or not request.reply.startswith(self._streams.replies("")):
            logger.warning("A request can't be read", extra={"action": "bad_request", "stream": self._log.name})
            return
        if len(self._heard) >= HEARD_MAX:
            self._heard, self._suspects = set(), frozenset()
        self._heard.add(request.reply)
        has_room = len(self._waiting) < WAITING_MAX
        if has_room and request.reply not in self._waiting and self._is_expected(request.reply):
            self._waiting[request.reply] = request

    def _is_expected(self, name: str) -> bool:
        """Whether the stream for an answer is there, and empty: any engine's answer will do."""
        try:
            bounds = self._bus.open(name).bounds()
        except StreamNotFound:
            return False
        return bounds.next == bounds.first

    def _send(self, request: Request, reply: Reply) -> None:
        self._waiting.pop(request.reply, None)
        try:
            log = self._bus.open(request.reply)
            _append(log, self._fitting(reply, log), self._runtime.wall_ns())
        except StreamNotFound:
            logger.info("An answer came too late", extra={"action": "late_answer", "request": request.id})

    def _fitting(self, reply: Reply, log: Log) -> bytes:
        try:
            return _encoded(reply, log)
        except RecordTooLarge as error:
            return _encoded(Reply(reply.id, False, {}, error_tree(error), self._engine), log)

    def _sweep(self, now: float) -> None:
        """Remove streams of clients that were killed: there at the last look and now, and not heard between."""
        prefix = self._streams.replies("")
        present = frozenset(name for name in self._bus.names() if name.startswith(prefix))
        for name in (self._suspects & present) - self._heard:
            _delete(self._bus, name)
        self._suspects, self._swept_at = present, now
        self._heard.clear()


def request_of(value: bytes) -> Request | None:
    """A request from its record; None if it is none. Fields that a newer version added are left out."""
    tree = _tree(value)
    try:
        request = Request(*(tree[name] for name in Request.__dataclass_fields__))
    except KeyError:
        return None
    texts = (request.id, request.kind, request.reply)
    is_one = all(isinstance(text, str) and len(text) <= _TEXT_MAX for text in texts)
    return request if is_one and isinstance(request.params, dict) and isinstance(request.at_ns, int) else None


def reply_of(value: bytes) -> Reply | None:
    """A reply from its record; None if it is none."""
    tree = _tree(value)
    try:
        reply = Reply(*(tree[name] for name in Reply.__dataclass_fields__))
    except KeyError:
        return None
    return reply if isinstance(reply.result, dict) and isinstance(reply.error, (dict, type(None))) else None


def error_tree(error: LockstepError) -> dict[str, Any]:
    """An error as it travels."""
    return {
        "code": error.code,
        "message": str(error),
        "params": {name: _plain(value) for name, value in error.params.items()},
    }


def error_of(reply: Reply, kind: str) -> LockstepError:
    """The error that an engine told, of the class it was raised with; RequestRefused if there is none here."""
    told = reply.error or {}
    kinds = {found.code: found for found in all_errors(LockstepError)}
    try:
        return kinds[told["code"]](**told["params"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        reason = str(told.get("message", "It did not say why."))
        return RequestRefused(engine=reply.engine, kind=kind, reason=reason)


def who_leads(bus: Bus, streams: ProjectStreams) -> str:
    """Who leads a project by the newest reports, for people."""
    try:
        reports = latest_reports(bus.open(streams.reports)).values()
    except StreamNotFound:
        reports = {}.values()
    active = [report for report in reports if report.role == "active"]
    if active:
        leader = max(active, key=lambda report: (report.epoch, report.at_ns))
        return f"engine {leader.engine}, pid {leader.pid} on host {leader.host}"
    names = ", ".join(report.engine for report in reports)
    return f"no engine leads; there were {names}" if names else "no engine has reported"


def _first_reply(log: Log, wanted: str) -> Reply | None:
    replies = (reply_of(value) for _, value in _values(log, log.bounds().first))
    return next((reply for reply in replies if reply is not None and reply.id == wanted), None)


def _values(log: Log, start: int) -> Iterator[tuple[int, bytes]]:
    """Offsets and values from `start` on; a damaged batch is passed over."""
    while entries := log.read(start):
        for stored in entries:
            try:
                view = BatchView(stored.base, stored.data, log.name)
            except BatchDamaged as error:
                logger.warning("A batch is passed over", extra={"action": "batch_damaged", "reason": str(error)})
                start = max(start, stored.base) + 1
                break
            for index, value in enumerate(view.values()):
                if view.base + index >= start:
                    yield view.base + index, value
            start = view.end


def _append(log: Log, data: bytes, now_ns: int) -> None:
    """Add a record; if it is uncertain whether it arrived the next asking tells."""
    with suppress(AppendUncertain):
        log.append([pack([data], producer=NO_PRODUCER, sequence=0, created_ns=now_ns)])


def _encoded(record: Request | Reply, log: Log) -> bytes:
    data = json.dumps(asdict(record), separators=(",", ":")).encode()
    if len(data) > log.config.max_record_bytes:
        raise RecordTooLarge(size=len(data), stream=log.name, limit=log.config.max_record_bytes)
    return data


def _tree(value: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(value)
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _delete(bus: Bus, name: str) -> None:
    with suppress(StreamNotFound):
        bus.delete(name)
