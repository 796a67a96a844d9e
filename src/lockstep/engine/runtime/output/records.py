"""Bad events, broken frames and notices as plain values: for the spool, and for the streams where people read them."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from lockstep.engine.events.event import Event
from lockstep.engine.kernels.span import Span
from lockstep.engine.runtime.sequence.reading import BrokenFrame
from lockstep.engine.windows.operator import BadEvent, Notice
from lockstep.log.batch import Headers
from lockstep.streams.outbox import BODY_HEADER, ID_BYTES_MAX, ID_HEADER, KIND_HEADER, item_headers

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
    """The event of the block that is meant.

    If its index is not known it is the first that agrees in all fields that were read, which is used up, as another may
    be equal.
    """
    if events and needed is not None and bad.index is not None:
        return replace(bad, event=events[bad.index])
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
    """A record that was no event, or records that were gone."""
    place = f"{broken.stream} offset {broken.offset}"
    return {
        "block": broken.block,
        "window": place,
        "reason": broken.word,
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
        "id": notice.id or f"{origin}/{notice.window}/{notice.block}/{number}",
    }
    if notice.body is None:
        return told | {"content": dict(notice.content)}
    body = b64encode(notice.body).decode("ascii")
    return told | {"key": notice.key, "headers": dict(notice.headers), "body": body}


def notice_label(notice: Mapping[str, Any]) -> tuple[bytes | None, Headers]:
    """What makes a notice an item of an outbox: its id and kind as headers, its lane as key.

    A mail waits for those before it to the same server, and for no others. Of a custom window's, the record says where
    in it the body is. An id or kind that can't be a header is told by its digest: an engine must not stop at it.
    """
    item, kind = (_header_text(notice[name]) for name in ("id", "kind"))
    if "content" in notice:
        content = notice["content"]
        return f"{content.get('host', '')}:{content.get('port', '')}".encode(), item_headers(id=item, kind=kind)
    own = {ID_HEADER, KIND_HEADER, BODY_HEADER}
    headers = [(name, text.encode("utf-8", "replace")) for name, text in notice["headers"].items() if name not in own]
    key = notice["key"].encode("utf-8", "replace")
    return key or None, item_headers(id=item, kind=kind, headers=[*headers, (BODY_HEADER, b"body")])


def _header_text(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    return text if text.isprintable() and len(raw) <= ID_BYTES_MAX else sha256(raw).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value
