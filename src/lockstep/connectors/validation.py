"""Whether the connectors of a model can be run, as far as that can be known without connecting anywhere. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockstep.connectors import rest, urls, websockets
from lockstep.connectors.adapters import REST
from lockstep.connectors.databases import Query, Table
from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.forms import ReadForm, WriteForm
from lockstep.connectors.plan import properties_of
from lockstep.connectors.port import Pace
from lockstep.connectors.properties import DB, SOCK, TIMER, URL, WEBSOCKET, Properties
from lockstep.connectors.sockets import address_of
from lockstep.connectors.timers import TimerSource, Timetable
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.blockers import CONNECTOR, VARIABLE, Blocker, line_of
from lockstep.engine.model.windows import Connector, SourceWindow, Window
from lockstep.engine.model.xml_reader import Reading
from lockstep.errors import LockstepError

_ANY = Schema.parse("key*:int64")
"""What rows look like does not matter here."""


def connector_blockers(reading: Reading, environ: Mapping[str, str]) -> list[Blocker]:
    """Every connector that would be refused when an engine starts, each with the line it begins in."""
    if reading.project is None:
        return []
    return [
        found
        for query in reading.project.queries
        for window in query.windows
        for connector in window.connectors
        if connector.active
        for found in _faults(f"{query.name}/{window.name}", window, connector, reading, environ)
    ]


def _faults(
    path: str, window: Window, connector: Connector, reading: Reading, environ: Mapping[str, str]
) -> Iterator[Blocker]:
    lines = reading.notes.lines
    place = f"{path} connector {connector.name}"
    try:
        made = properties_of(f"{path}/{connector.name}", window, connector, environ)
        _check(made, window, environ)
        if made.kind == REST:
            rest.Wanted.of(made).check_answers(_sources(reading))
    except ConnectorRefused as error:
        reason, remedy = str(error.params["reason"]), str(error.params["remedy"])
        kind = VARIABLE if "which has no value" in reason else CONNECTOR
        yield Blocker(line_of(place, lines), kind, place, f"{reason[:1].upper()}{reason[1:]}.", remedy)
        return
    except LockstepError as error:
        yield Blocker(line_of(place, lines), CONNECTOR, place, str(error), error.advice)
        return
    if made.publishes and window.kind not in ("source", "unread"):
        message, fix = "It publishes to a window that is no source.", "Move it to a source window."
        yield Blocker(line_of(place, lines), CONNECTOR, place, message, fix)


def _sources(reading: Reading) -> list[str]:
    queries = reading.project.queries if reading.project is not None else ()
    return [f"{query.name}/{window.name}" for query in queries for window in query.windows if window.kind == "source"]


def _check(made: Properties, window: Window, environ: Mapping[str, str]) -> None:
    if made.kind == REST:
        return
    if made.kind in (URL, WEBSOCKET, DB, TIMER):
        _check_own(made, window, environ)
    elif made.publishes:
        ReadForm.of(made, _ANY, made.connector)
        made.number("repeatcount", 0)
        made.number("maxevents", 0)
    else:
        WriteForm.of(made, _ANY)
    if made.kind == SOCK:
        address_of(made)


def _check_own(made: Properties, window: Window, environ: Mapping[str, str]) -> None:
    """A configuration that is not there yet is no fault of the model: the connector waits for it."""
    made.number("maxevents", 0)
    if made.kind == DB:
        _ = Query.of(made, environ) if made.publishes else Table.of(made, environ)
        return
    schema = window.schema if isinstance(window, SourceWindow) else _ANY
    if made.kind == TIMER:
        TimerSource(Timetable.of(made), schema, made, Pace(lambda: False, lambda _: None, lambda: 0.0), lambda: 0)
        return
    if made.kind == URL:
        asked = urls.Wanted.of(made, environ)
        if asked.is_there:
            asked.publishers(schema)
        return
    heard = websockets.Wanted.of(made, environ)
    if heard.is_there:
        heard.maker(schema)
