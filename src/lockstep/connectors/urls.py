"""Web servers that are polled: every answer becomes a block of the events that functions extract from it.

An answer cannot be fetched again: after a takeover the server is simply polled again.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import numpy as np

from lockstep.connectors.errors import ConnectorDown, ConnectorRefused
from lockstep.connectors.forms import OnBad
from lockstep.connectors.port import Note, Pace, Piece
from lockstep.connectors.properties import Properties
from lockstep.connectors.responses import Config, Publisher, Request, asciied
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.csv_reader import BadLine
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.values import DURATION_REMEDY, parse_duration
from lockstep.engine.runtime.files import open_input
from lockstep.errors import BadArgument
from lockstep.net.addresses import AddressRules
from lockstep.net.http import AddressRefused, Endpoint
from lockstep.runtime import logger

RULES = AddressRules(allow_loopback=True)
"""A model may name servers on this machine; never the addresses at which clouds keep credentials."""
TIMEOUT_S = 8.0
ANSWER_MAX = 1_000_000
"""Bytes of an answer: functions read no longer text."""
CONFIG_MAX = 1 << 20
_INTERVAL_S = 10.0
_REDIRECTS, _MOVED = 5, (301, 302, 303, 307, 308)
_AGAIN_S, _AGAIN_S_MAX = 0.5, 15.0
"""Between attempts at a server that does not answer, growing, and never longer than the interval."""
_AGENT = {"User-Agent": "lockstep", "Accept": "*/*"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a url connector is to do."""

    connector: str
    config: str | None = field(repr=False)
    """The configuration itself; without it, `path` has it."""
    path: str | None
    values: Mapping[str, str] = field(repr=False)
    interval_s: float

    @classmethod
    def of(cls, properties: Properties, environ: Mapping[str, str]) -> Wanted:
        """As the properties say."""
        config, path = properties.text("config") or None, properties.text("configurl") or None
        if (config is None) == (path is None):
            reason = "it has both config and configurl" if config else "it has neither config nor configurl"
            raise properties.refused(reason=reason, remedy="Say in one of them what to ask for.")
        values = {**environ, **given_values(properties)}
        path = None if path is None else config_path(properties, path)
        return cls(properties.connector, config, path, values, _interval(properties))

    @property
    def is_there(self) -> bool:
        """Whether there is a configuration to be read now."""
        return self.path is None or Path(self.path).exists()

    def publishers(self, schema: Schema) -> tuple[Publisher, ...]:
        """Read the configuration; FileMissing if its file is not there."""
        text, place = self.config, "config"
        if text is None:
            assert self.path is not None, "one of both"
            text, place = read_config(self.connector, self.path), self.path
        found = Config(self.connector, text, place, self.values).publishers("url", schema)
        for request in (request for publisher in found for request in publisher.requests):
            _endpoint(self.connector, request.url)
        return found


def given_values(properties: Properties) -> dict[str, str]:
    """The property `properties`: NAME=VALUE;NAME=VALUE, for names between @ signs in the configuration."""
    found = {}
    for part in filter(None, (part.strip() for part in properties.text("properties").split(";"))):
        name, sign, value = part.partition("=")
        if not sign:
            raise properties.refused(reason="its properties are not NAME=VALUE;NAME=VALUE", remedy="Write them so.")
        found[name.strip()] = value.strip()
    return found


def config_path(properties: Properties, url: str) -> str:
    """The file that a configurl names: file:///FOLDER/FILE, or file://FILE where the engine was started."""
    parts = urlsplit(url)
    if parts.scheme not in ("", "file") or not (parts.netloc or parts.path):
        reason = f"its configurl {parts.scheme}:// is not supported"
        raise properties.refused(reason=reason, remedy="Save the configuration in a file: file:///FOLDER/config.xml.")
    return unquote(parts.netloc + parts.path)


def read_config(connector: str, path: str) -> str:
    """The text of a configuration's file."""
    with open_input(Path(path)) as file:
        data = file.read(CONFIG_MAX + 1)
    if len(data) > CONFIG_MAX:
        reason, remedy = f"{path} has more than {CONFIG_MAX} bytes", "Name the file of the configuration."
        raise ConnectorRefused(connector=connector, reason=reason, remedy=remedy)
    return data.decode("utf-8-sig", "replace")


def _interval(properties: Properties) -> float:
    text = properties.text("interval", f"{_INTERVAL_S:.0f}")
    try:
        seconds = parse_duration(text) / 1e6
    except ValueError as error:
        raise properties.refused(reason=f"its interval: {error}", remedy=DURATION_REMEDY) from None
    if seconds <= 0:
        raise properties.refused(reason=f"its interval is {text!r}", remedy="Write a time above 0.")
    return seconds


def _endpoint(connector: str, url: str) -> Endpoint:
    try:
        return Endpoint.of(url, RULES)
    except BadArgument as error:
        reason = f"a url that it asks can't be called: {error.params['reason']}"
        raise ConnectorRefused(connector=connector, reason=reason, remedy="Change it in the configuration.") from None


@dataclass(slots=True)
class _Due:
    """A request, when it is next asked, and how long to rest after the next failure."""

    request: Request
    publisher: Publisher
    at: float
    again_s: float = _AGAIN_S


class UrlSource:
    """Servers that are asked in turns. A server that does not answer does not keep the others waiting for long."""

    is_numbered = False

    def __init__(self, wanted: Wanted, schema: Schema, pace: Pace, on_bad: OnBad, wall_us: Callable[[], int]) -> None:
        self._wanted, self._schema, self._pace, self._on_bad, self._wall_us = wanted, schema, pace, on_bad, wall_us
        if wanted.config is not None:
            wanted.publishers(schema)  # what can be known to be wrong is said before anything starts

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Yield a block for each answer that has events; what was read cannot be read again."""
        del after, note  # what was read can't be read again
        now = self._pace.monotonic()
        found = self._wanted.publishers(self._schema)
        return self._asked([_Due(one, publisher, now) for publisher in found for one in publisher.requests])

    def start(self) -> Note | None:
        """Return None: a URL has no position."""
        return None

    def close(self) -> None:
        """Do nothing: each request has its own connection."""

    def _asked(self, dues: list[_Due]) -> Iterator[Piece | None]:
        number = 0
        while True:
            due = min(dues, key=lambda one: one.at)
            while (early := due.at - self._pace.monotonic()) > 0:
                self._pace.rest(early)
                yield None
            piece = self._piece(due, number + 1)
            if piece is not None:
                number += 1
                yield piece
            yield None

    def _piece(self, due: _Due, number: int) -> Piece | None:
        try:
            content = self._answer(due.request)
        except ConnectorDown as error:
            due.at = self._pace.monotonic() + min(due.again_s, self._wanted.interval_s)
            due.again_s = min(due.again_s * 2, _AGAIN_S_MAX)
            logger.warning("%s", error, extra={"action": "connector"})
            return None
        due.at, due.again_s = self._pace.monotonic() + self._wanted.interval_s, _AGAIN_S

        def complain(reason: str, detail: str) -> None:
            self._on_bad(BadLine(number, reason, detail, ""))

        events = due.publisher.maker.events(content, self._wall_us(), complain)
        if not events:
            return None
        return Piece(EventBatch.of(self._schema, [(number, events)]), np.array([number], np.int64))

    def _answer(self, request: Request) -> str:
        """What the server says, after redirections. Another server does not get the headers."""
        url, own = request.url, Endpoint.of(request.url, RULES)
        endpoint = own
        for _ in range(_REDIRECTS + 1):
            status, headers, data = self._asked_once(endpoint, request.headers if endpoint.place == own.place else {})
            if status not in _MOVED or "Location" not in headers:
                break
            url = asciied(urljoin(url, headers["Location"]))
            try:
                endpoint = Endpoint.of(url, RULES)
            except BadArgument as error:
                raise self._down(endpoint, f"it redirects to what can't be called: {error.params['reason']}") from None
        else:
            raise self._down(endpoint, f"it redirects more than {_REDIRECTS} times")
        if status != 200:
            raise self._down(endpoint, f"it answered HTTP {status}")
        if len(data) > ANSWER_MAX:
            raise self._down(endpoint, f"its answer has more than {ANSWER_MAX} bytes")
        return _decoded(data, headers)

    def _asked_once(self, endpoint: Endpoint, more: Mapping[str, str]) -> tuple[int, Message, bytes]:
        connection = endpoint.connection(RULES, TIMEOUT_S)
        try:
            connection.request("GET", endpoint.path, headers={**_AGENT, **more})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read(ANSWER_MAX + 1)
        except (OSError, http.client.HTTPException, AddressRefused) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self._down(endpoint, reason) from None
        finally:
            connection.close()

    def _down(self, endpoint: Endpoint, reason: str) -> ConnectorDown:
        return ConnectorDown(connector=self._wanted.connector, server=endpoint.place, reason=reason)


def _decoded(data: bytes, headers: Message) -> str:
    """The text in the encoding that the server names, else UTF-8."""
    try:
        return data.decode(headers.get_content_charset("utf-8"), "replace").removeprefix("\ufeff")
    except LookupError:
        return data.decode("utf-8", "replace").removeprefix("\ufeff")
