"""Whether the connectors of a model can be run, as far as that can be known without connecting anywhere. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.forms import ReadForm, WriteForm
from lockstep.connectors.planning import properties_of
from lockstep.connectors.properties import KINDS, SOCK, Properties
from lockstep.connectors.sockets import address_of
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.blockers import CONNECTOR, VARIABLE, Blocker, line_of
from lockstep.engine.model.windows import Connector, Window
from lockstep.engine.model.xml_reading import Reading
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
        for found in _faults(f"{query.name}/{window.name}", window, connector, reading.notes.lines, environ)
    ]


def _faults(
    path: str, window: Window, connector: Connector, lines: Mapping[str, int], environ: Mapping[str, str]
) -> Iterator[Blocker]:
    place = f"{path} connector {connector.name}"
    try:
        made = properties_of(f"{path}/{connector.name}", window, connector, environ)
        _check(made)
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


def _check(made: Properties) -> None:
    if made.publishes:
        ReadForm.of(made, _ANY, made.connector)
        made.number("repeatcount", 0)
        made.number("maxevents", 0)
    else:
        WriteForm.of(made, _ANY)
    if KINDS.get(made.kind) == SOCK:
        address_of(made)
