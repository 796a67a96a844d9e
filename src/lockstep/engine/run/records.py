"""Bad events, broken frames and notices as plain values: for the spool, and for the streams where people read them."""

from __future__ import annotations

from typing import Any

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


def notice_tree(notice: Notice) -> dict[str, Any]:
    """A message to people."""
    return {"block": notice.block, "window": notice.window, "kind": notice.kind, "content": dict(notice.content)}


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value
