"""A web server to which each event is posted, as JSON; what it answers can become events of a source window.

Answers carry the number of the block that was posted, so the input stream of their window shows how far the connector
is: the next leader continues with the next block, and engines drop an answer that was sent twice.
"""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from lockstep.connectors.errors import ConnectorDown
from lockstep.connectors.port import Note, Pace
from lockstep.connectors.properties import Properties
from lockstep.connectors.publisher import FILL
from lockstep.connectors.responses import asciied
from lockstep.connectors.urls import ANSWER_MAX, RULES, TIMEOUT_S
from lockstep.connectors.websockets import headers_of
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.json_format import format_fields
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import UNPARSABLE, BadText, parser
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.errors import BadArgument
from lockstep.events.clients import client_id
from lockstep.events.connection import ProjectEvents
from lockstep.events.subscriber import Block
from lockstep.net.http import AddressRefused, Endpoint
from lockstep.runtime import logger

_ROWS_MAX = 1_000
_SHOWN = 20
_AWAY = frozenset({429, 502, 503, 504})
"""A server that says this is asked again."""
_AGAIN_S, _AGAIN_S_MAX = 0.5, 15.0
_LEAVING = frozenset({Opcode.DELETE, Opcode.SAFEDELETE})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where to post which events, and which answers to accept."""

    properties: Properties
    url: str = field(repr=False)
    """It may hold secrets."""
    headers: Mapping[str, str] = field(repr=False)
    statuses: frozenset[int]
    body: str
    """The field that holds the whole text; empty: a JSON object of all fields."""
    token: str
    """The field with the bearer token; empty for none."""
    answers: str
    """QUERY/WINDOW of the source window for answers; empty for none."""
    answer: str
    """The field of that window which takes the whole text of an answer; empty: its fields are those of the answer."""
    skips: bool
    """Whether events are left out while the server can't be reached; else they wait."""

    @classmethod
    def of(cls, properties: Properties) -> Wanted:
        """As the properties say; ConnectorRefused for what can't be."""
        _check_own_window(properties)
        url = asciied(properties.text("resturl"))
        try:
            Endpoint.of(url, RULES)
        except BadArgument as error:
            reason = f"its resturl can't be called: {error.params['reason']}"
            raise properties.refused(reason=reason, remedy="Write http://HOST/PATH or https://HOST/PATH.") from None
        kind = properties.text("httpcontenttype", "application/json")
        return cls(
            properties=properties,
            url=url,
            headers={"User-Agent": "lockstep", "Content-Type": kind, **headers_of(properties, "httprequestproperties")},
            statuses=_statuses(properties),
            body=properties.text("opaquejson"),
            token=properties.text("tokeneventfield"),
            answers=_window(properties.text("esprespurl")),
            answer=properties.text("espopaquejson") or properties.text("respopaquejson"),
            skips=properties.flag("ignorefailedhttpconnects"),
        )

    def check_answers(self, sources: Sequence[str]) -> None:
        """Refuse a window for answers that is no source of this project."""
        if self.answers and self.answers not in sources:
            reason = f"its esprespurl names {self.answers}, which is no source window of this project"
            raise self.properties.refused(reason=reason, remedy=f"There are: {', '.join(sources)}.")

    @property
    def endpoint(self) -> Endpoint:
        """The server."""
        return Endpoint.of(self.url, RULES)


def _check_own_window(properties: Properties) -> None:
    """An adapter can read any window; a connector reads the one it belongs to."""
    named, own = _window(properties.text("url")), properties.connector.rpartition("/")[0]
    if named and named != own:
        reason = f"its url names the window {named}, and it stands in {own}"
        raise properties.refused(reason=reason, remedy=f"Move the connector to {named}.")


def _window(url: str) -> str:
    """QUERY/WINDOW of dfESP://HOST:PORT/PROJECT/QUERY/WINDOW?snapshot=true, or of QUERY/WINDOW."""
    return "/".join(url.partition("?")[0].rstrip("/").split("/")[-2:])


def _statuses(properties: Properties) -> frozenset[int]:
    text = properties.text("httpstatuscodes", "200")
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) == 3 for word in words):
        raise properties.refused(reason=f"its httpstatuscodes are {text!r}", remedy="Write 200,201 for example.")
    return frozenset(map(int, words))


class Answers:
    """Makes rows of a window of what a server answers, beside the fields of the event that was posted."""

    def __init__(self, wanted: Wanted, posted: Schema, schema: Schema) -> None:
        self._posted = {item.name: at for at, item in enumerate(posted)}
        self._places = [self._posted.get(item.name) for item in schema]
        self._readers = [(item.name, parser(item.type)) for item in schema]
        self._names = frozenset(item.name for item, at in zip(schema, self._places, strict=True) if at is None)
        self._whole = wanted.answer
        differing = [item.name for item in schema if item.name in posted and posted[item.name].type is not item.type]
        missing = [self._whole] if self._whole and self._whole not in self._names else []
        for name in (*differing, *missing):
            reason = f"the field {name} of {wanted.answers} can't take what is posted or answered"
            raise wanted.properties.refused(reason=reason, remedy="Give both windows the field with the same type.")

    def rows(self, row: Row, text: str) -> list[Row]:
        """The rows of one answer; raises BadText."""
        found = [{self._whole: text}] if self._whole else list(flattened(_loaded(text), self._names))
        return [self._row(row, values) for values in found]

    def _row(self, posted: Row, values: Mapping[str, str]) -> Row:
        made = []
        for at, (name, read) in zip(self._places, self._readers, strict=True):
            text = values.get(name)
            try:
                made.append(posted[at] if at is not None else None if text is None else read(text))
            except BadText as fault:
                raise BadText(fault.reason, f"field {name}: {fault.detail}") from None
        return tuple(made)


def flattened(found: Any, names: frozenset[str], prefix: str = "") -> Iterator[dict[str, str]]:
    """The values of an answer by their names, those within objects as OUTER_INNER; an array makes a row an item."""
    if isinstance(found, list):
        for item in found:
            yield from flattened(item, names, prefix)
        return
    if not isinstance(found, dict):
        yield {prefix: found} if prefix in names and found is not None else {}
        return
    parts = []
    for key, value in found.items():
        name = f"{prefix}_{key}" if prefix else key
        is_asked = any(one == name or one.startswith(f"{name}_") for one in names)
        if is_asked and (rows := list(flattened(value, names, name))):
            parts.append(rows)
    for number, chosen in enumerate(product(*parts)):
        if number == _ROWS_MAX:
            raise BadText(UNPARSABLE, f"the answer has more than {_ROWS_MAX} rows")
        yield {name: text for part in chosen for name, text in part.items()}


def _loaded(text: str) -> Any:
    """JSON with numbers as they are written: the type of a field decides what they are."""
    try:
        return json.loads(text, parse_int=str, parse_float=str) if text.strip() else {}
    except (ValueError, RecursionError):
        raise BadText(UNPARSABLE, "the answer is not JSON") from None


class RestTarget:
    """Posts the events of blocks, one after the other. Deletes are not posted: they have no place in such a server."""

    def __init__(self, wanted: Wanted, node: Node, project: ProjectEvents, pace: Pace) -> None:
        self._wanted, self._node, self._project, self._pace = wanted, node, project, pace
        self._schema, self._path = node.schema, wanted.properties.connector
        self._names = {item.name: at for at, item in enumerate(node.schema)}
        for name in filter(None, (wanted.body, wanted.token)):
            if name not in self._names:
                raise wanted.properties.refused(reason=f"its window has no field {name}", remedy="Name one it has.")
        self._sources = _sources(project.graph)
        wanted.check_answers(self._sources)
        self._into = project.source(wanted.answers) if wanted.answers else None
        self._answers = Answers(wanted, node.schema, self._into.schema) if self._into is not None else None
        self._sender: EventPublisher | None = None
        self._last = self._told = 0

    def open(self, note: Note) -> int | None:
        """Return the last block whose answers are on their input stream; None without answers."""
        del note
        if self._into is None:
            return None
        streams = self._project.streams
        client = client_id(f"{streams.cluster}.{streams.project}.K.{self._path}")
        self._last = self._project.last_id(self._into, client)
        stream = self._project.input(self._into)
        self._sender = EventPublisher(
            self._project.connection, stream, self._into.schema, client=client, next_id=self._last + 1
        )
        return self._last or None

    def send(self, blocks: Sequence[Block]) -> None:
        """Post each event and publish the answers; returns when the answers are on their input stream."""
        for block in blocks:
            answered = [row for at, event in enumerate(block.events()) for row in self._row(block.number, at, event)]
            self._publish(block.number, [Event(Opcode.UPSERT, Flag.NORMAL, row) for row in answered])
        if self._sender is not None:
            self._sender.flush()

    def mark(self) -> Mapping[str, Any]:
        """Return nothing: the number of the last block is enough."""
        return {}

    def idle(self) -> None:
        """Do nothing: each request has its own connection."""

    def close(self) -> None:
        """Close the publisher of answers."""
        if self._sender is not None:
            self._sender.close()

    def _row(self, block: int, at: int, event: Event) -> list[Row]:
        """The rows of the answer to one event."""
        self._pace.check()
        if event.opcode in _LEAVING:
            return []
        text = self._posted(event, self._key(block, at))
        if text is None or self._answers is None:
            return []
        try:
            return self._answers.rows(event.values, text)
        except BadText as fault:
            self._tell(block, f"its answer is no event: {fault.detail}")
            return []

    def _key(self, block: int, at: int) -> str:
        """Return the idempotency key of an event: always the same, also when another engine posts it again."""
        streams = self._project.streams
        text = f"{streams.cluster}.{streams.project}.{self._path}.{block}.{at}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _publish(self, number: int, events: Sequence[Event]) -> None:
        """An answer, or that there was none: numbers on the input stream never skip."""
        if self._sender is None or self._into is None or number <= self._last:
            return
        nothing = EventBatch.empty(self._into.schema)
        first = self._sender.next_id if self._last else number
        for start in range(first, number, FILL):
            skipped: Int64s = np.arange(start, min(start + FILL, number), dtype=np.int64)
            self._sender.publish_batch(nothing, numbers=skipped, frame_events=FILL)
        self._sender.next_id = number
        batch = EventBatch.of(self._into.schema, [(number, events)])
        self._sender.publish_batch(batch, numbers=np.array([number], np.int64))
        self._last = number

    def _posted(self, event: Event, key: str) -> str | None:
        """What the server says to an event; None if that does not count. Waits for a server that is away."""
        rest = _AGAIN_S
        while True:
            try:
                return self._asked(event, key)
            except ConnectorDown as error:
                if self._wanted.skips:
                    self._tell(0, str(error))
                    return None
                words = "Connector %s is tried again in %.1f s: %s"
                logger.warning(words, self._path, rest, error, extra={"action": "connector"})
            end = self._pace.monotonic() + rest
            while (left := end - self._pace.monotonic()) > 0:
                self._pace.rest(left)
            rest = min(rest * 2, _AGAIN_S_MAX)

    def _asked(self, event: Event, key: str) -> str | None:
        endpoint = self._wanted.endpoint
        connection = endpoint.connection(RULES, TIMEOUT_S)
        try:
            headers = {**self._wanted.headers, "Idempotency-Key": key, **self._login(event)}
            connection.request("POST", endpoint.path, body=self._body(event), headers=headers)
            answer = connection.getresponse()
            status, data = answer.status, answer.read(ANSWER_MAX + 1)
        except (OSError, http.client.HTTPException, AddressRefused) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self._down(endpoint, reason) from None
        finally:
            connection.close()
        if status in self._wanted.statuses and len(data) <= ANSWER_MAX:
            return data.decode("utf-8", "replace")
        if status in _AWAY:
            raise self._down(endpoint, f"it answered HTTP {status}")
        self._tell(0, f"{endpoint.place} answered HTTP {status} with {len(data)} bytes")
        return None

    def _body(self, event: Event) -> bytes:
        if self._wanted.body:
            return str(event.values[self._names[self._wanted.body]] or "").encode()
        return ("{" + ",".join(format_fields(event.values, self._schema)) + "}").encode()

    def _login(self, event: Event) -> dict[str, str]:
        token = event.values[self._names[self._wanted.token]] if self._wanted.token else None
        text = str(token or "")
        return {"Authorization": f"Bearer {text}"} if text.isascii() and text.isprintable() and text else {}

    def _down(self, endpoint: Endpoint, reason: str) -> ConnectorDown:
        return ConnectorDown(connector=self._path, server=endpoint.place, reason=reason)

    def _tell(self, block: int, reason: str) -> None:
        self._told += 1
        if self._told <= _SHOWN:
            where = f" of block {block}" if block else ""
            words = "Connector %s has no answer to an event%s: %s"
            logger.warning(words, self._path, where, reason, extra={"action": "connector"})


def _sources(graph: Graph) -> list[str]:
    return [node.path for node in graph.nodes if node.is_source]
