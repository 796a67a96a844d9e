"""Bad events, broken frames and notices as plain values: for the spool, and for the streams where people read them."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lockstep.engine.events.event import Event
from lockstep.engine.kernels.span import Span
from lockstep.engine.run.reading import BrokenFrame
from lockstep.engine.windows.operator import BadEvent, Notice

_DETAIL_CHARS = 200


def bad_tree(bad: BadEvent) -> dict[str, Any]:
    """A bad event."""
    return {
        "block": bad.block,
        "window": bad.window,
        "reason": bad.reason,
        "detail": bad.detail[:_DETAIL_CHARS],
        "opcode": bad.event.opcode.letter,
        "flags": bad.event.flags.letters,
        "values": [_plain(value) for value in bad.event.values],
    }


def with_all_fields(bad: Iterable[BadEvent], span: Span, needed: Mapping[str, frozenset[str]]) -> list[BadEvent]:
    """Bad events of sources with the fields that were left out when they were read, taken from the whole blocks."""
    blocks = {path: {number: list(events) for number, events in batch.blocks()} for path, batch in span.inputs.items()}
    return [_filled(one, blocks.get(one.window, {}).get(one.block), needed.get(one.window)) for one in bad]


def _filled(bad: BadEvent, events: list[Event] | None, needed: frozenset[str] | None) -> BadEvent:
    """The first event of the block that agrees in all fields that were read; it is used up, as another may be equal."""
    for place, event in enumerate(events or ()):
        if needed is not None and _agrees(bad.event, event):
            del (events or [])[place]
            return replace(bad, event=event)
    return bad


def _agrees(seen: Event, event: Event) -> bool:
    same_kind = (seen.opcode, seen.flags) == (event.opcode, event.flags)
    pairs = zip(seen.values, event.values, strict=True)
    return same_kind and all(mine is None or repr(mine) == repr(whole) for mine, whole in pairs)


def broken_tree(broken: BrokenFrame) -> dict[str, Any]:
    """A record that was no frame."""
    place = f"{broken.stream} offset {broken.offset}"
    return {
        "block": broken.block,
        "window": place,
        "reason": "unparsable",
        "detail": broken.reason[:_DETAIL_CHARS],
        "opcode": "",
        "flags": "",
        "values": [],
    }


def origin_of(project: str, sequence: str) -> str:
    """How the ids of a project's notices begin.

    Part of the identity of its sequence log tells a project apart from one of the same name that was deleted before.
    """
    return f"{project}/{sequence.rpartition('-')[2][:12]}"


def notice_trees(origin: str, notices: Iterable[Notice]) -> list[dict[str, Any]]:
    """Notices of whole blocks, each with an id that follows from the log alone: whoever computes it again finds it."""
    counts: Counter[tuple[int, str]] = Counter()
    return [_notice_tree(origin, notice, counts) for notice in notices]


def _notice_tree(origin: str, notice: Notice, counts: Counter[tuple[int, str]]) -> dict[str, Any]:
    place = (notice.block, notice.window)
    number, counts[place] = counts[place], counts[place] + 1
    told: dict[str, Any] = {
        "block": notice.block,
        "window": notice.window,
        "kind": notice.kind,
        "number": number,
        "id": f"{origin}/{notice.window}/{notice.block}/{number}",
    }
    if notice.body is None:
        return told | {"content": dict(notice.content)}
    body = b64encode(notice.body).decode("ascii")
    return told | {"key": notice.key, "headers": dict(notice.headers), "body": body}


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value
