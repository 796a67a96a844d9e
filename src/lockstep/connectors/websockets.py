"""WebSockets as sources: every message of the server becomes a block of the events that functions extract from it.

A message cannot be read again: those sent while no engine leads are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.connectors.errors import ConnectorDown
from lockstep.connectors.forms import OnBad
from lockstep.connectors.port import REST_S, Note, Pace, Piece
from lockstep.connectors.properties import Properties
from lockstep.connectors.responses import Config, EventMaker, asciied
from lockstep.connectors.urls import ANSWER_MAX, RULES, config_path, given_values, read_config
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.csv_reader import BadLine
from lockstep.engine.events.schema import Schema
from lockstep.engine.gates.port import needed
from lockstep.errors import BadArgument
from lockstep.net.http import AddressRefused, Endpoint

_CONNECT_S = 8.0
_PING_S = 20.0
"""A server that does not answer a ping within half of it has gone."""
_CONTENTS = ("json", "xml", "")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a WebSocket connector connects to, and how it converts messages to events."""

    connector: str
    url: str = field(repr=False)
    endpoint: Endpoint
    headers: Mapping[str, str] = field(repr=False)
    config: str | None = field(repr=False)
    path: str | None
    values: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, properties: Properties, environ: Mapping[str, str]) -> Wanted:
        """As the properties say."""
        config, path = properties.text("config") or None, properties.text("configurl") or None
        if (config is None) == (path is None):
            reason = "it has both config and configurl" if config else "it has neither config nor configurl"
            raise properties.refused(reason=reason, remedy="Say in one of them what to make of the messages.")
        if properties.text("contenttype").lower() not in _CONTENTS:
            reason = f"its contenttype is {properties.text('contenttype')!r}"
            raise properties.refused(reason=reason, remedy="Write json or xml.")
        url = asciied(properties.text("url"))
        try:
            endpoint = Endpoint.of(url, RULES, ("ws", "wss"))
        except BadArgument as error:
            remedy = "Write ws://HOST:PORT/PATH or wss://HOST:PORT/PATH."
            raise properties.refused(
                reason=f"its url can't be called: {error.params['reason']}", remedy=remedy
            ) from None
        path = None if path is None else config_path(properties, path)
        values = {**environ, **given_values(properties)}
        return cls(properties.connector, url, endpoint, headers_of(properties, "requestheaders"), config, path, values)

    @property
    def is_there(self) -> bool:
        """Whether there is a configuration to be read now."""
        return self.path is None or Path(self.path).exists()

    def maker(self, schema: Schema) -> EventMaker:
        """Read the configuration; FileMissing if its file is not there."""
        text, place = self.config, "config"
        if text is None:
            assert self.path is not None, "one of both"
            text, place = read_config(self.connector, self.path), self.path
        return Config(self.connector, text, place, self.values).publishers("websocket", schema)[0].maker


def headers_of(properties: Properties, name: str) -> dict[str, str]:
    """A property with headers: NAME:VALUE,NAME:VALUE."""
    found = {}
    for part in filter(None, (part.strip() for part in properties.text(name).split(","))):
        name, sign, value = part.partition(":")
        if not sign or not (name.strip() and part.isascii() and part.isprintable()):
            reason = f"its {name} are not NAME:VALUE,NAME:VALUE"
            raise properties.refused(reason=reason, remedy="Write them so.")
        found[name.strip()] = value.strip()
    return found


class WebSocketSource:
    """The messages of one server."""

    is_numbered = False

    def __init__(self, wanted: Wanted, schema: Schema, pace: Pace, on_bad: OnBad, wall_us: Callable[[], int]) -> None:
        self._client = needed("aiohttp", "schedule")
        self._wanted, self._schema, self._pace, self._on_bad, self._wall_us = wanted, schema, pace, on_bad, wall_us
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: Any = None
        self._link: Any = None
        self._task: asyncio.Task[Any] | None = None
        if wanted.config is not None:
            wanted.maker(schema)  # what can be known to be wrong is said before anything starts

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Yield a block for each message that has events; what was read cannot be read again."""
        del after, note  # what was read can't be read again
        maker = self._wanted.maker(self._schema)
        return self._read(maker, self._opened())

    def start(self) -> Note | None:
        """Return None: a WebSocket has no position."""
        return None

    def close(self) -> None:
        """Close the connection and its event loop."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.run_until_complete(self._closed())
        finally:
            loop.close()

    async def _closed(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, OSError, self._client.ClientError):
                await self._task
        if self._link is not None:
            await self._link.close()
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> Any:
        loop = self._loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(asyncio.wait_for(self._connected(), _CONNECT_S))
        except (OSError, AddressRefused, TimeoutError, self._client.ClientError) as error:
            raise self._down(_reason(error)) from None

    async def _connected(self) -> Any:
        client = self._client
        connector = client.TCPConnector(resolver=_resolver(client), limit=1)
        self._session = client.ClientSession(connector=connector, trust_env=False)
        self._link = await self._session.ws_connect(
            self._wanted.url, headers=self._wanted.headers, heartbeat=_PING_S, max_msg_size=ANSWER_MAX
        )
        return self._link

    def _read(self, maker: EventMaker, link: Any) -> Iterator[Piece | None]:
        number, loop = 0, self._loop
        assert loop is not None, "opened before"
        self._task = loop.create_task(link.receive())
        while True:
            self._pace.check()
            loop.run_until_complete(asyncio.wait({self._task}, timeout=REST_S))
            if not self._task.done():
                yield None
                continue
            message = self._message()
            self._task = loop.create_task(link.receive())
            events = maker.events(message, self._wall_us(), self._complain(number + 1))
            if events:
                number += 1
                yield Piece(EventBatch.of(self._schema, [(number, events)]), np.array([number], np.int64))

    def _message(self) -> str:
        """Return the text of the message received; raises if the link is lost, and the runner connects again."""
        assert self._task is not None
        try:
            found, kinds = self._task.result(), self._client.WSMsgType
        except (OSError, self._client.ClientError) as error:
            raise self._down(_reason(error)) from None
        if found.type is kinds.TEXT:
            return str(found.data)
        if found.type is kinds.BINARY:
            return bytes(found.data).decode("utf-8", "replace")
        if found.type is kinds.ERROR:
            raise self._down(_reason(found.data))
        msg = "the other side has closed"
        raise self._down(msg)

    def _complain(self, number: int) -> Callable[[str, str], None]:
        return lambda reason, detail: self._on_bad(BadLine(number, reason, detail, ""))

    def _down(self, reason: str) -> ConnectorDown:
        return ConnectorDown(connector=self._wanted.connector, server=self._wanted.endpoint.place, reason=reason)


def _reason(error: BaseException) -> str:
    """What a client says, without the URL, which may hold secrets."""
    status = getattr(error, "status", None)
    if status:
        return f"it answered HTTP {status}"
    return getattr(error, "strerror", None) or type(error).__name__


def _resolver(client: Any) -> Any:
    """Resolves names, and refuses those of which any address must not be called."""
    inner = client.resolver.ThreadedResolver()

    class Checked(client.abc.AbstractResolver):  # type: ignore[misc]
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[Any]:
            found: list[Any] = await inner.resolve(host, port, family)
            for item in found:
                refusal = RULES.address(item["host"])
                if refusal is not None:
                    msg = f"{host} resolves to {refusal}"
                    raise AddressRefused(msg)
            return found

        async def close(self) -> None:
            await inner.close()

    return Checked()
