"""Bad events, broken frames and notices: as plain values in the spool, and as records of their streams.

A record has the number of its block and its place within that. A new leader goes on after the last one; copies that the
leader before it wrote late are dropped by readers, by these two numbers.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from lockstep.engine.columns.runner import Span
from lockstep.engine.events.event import Event
from lockstep.engine.reference.operator import BadEvent, Notice
from lockstep.engine.runtime.sequence.reader import BrokenFrame
from lockstep.errors import AppendUncertain, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView, Headers, pack
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger
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
    """Notices of whole blocks, each with an id that follows from the log alone."""
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


_RECORDS_MAX, _BYTES_MAX = 1000, 1 << 19
"""What one batch of the log holds at most, but for a record that is larger by itself: any bus takes that."""

Item = Mapping[str, Any]
Label = Callable[[Item], tuple[bytes | None, Headers]]
"""Gives an item the key and the headers that its record has."""
NOWHERE = (0, -1)
"""Before the first place."""


class SideLog:
    """Writes items in order; they are there when they were read back. Not to be shared between threads."""

    def __init__(self, log: Log, runtime: Runtime, *, resend_s: float = 0.5, label: Label | None = None) -> None:
        self._log, self._runtime, self._resend_s, self._label = log, runtime, resend_s, label
        self._last, self._at, self._sent_at = NOWHERE, 0, float("-inf")

    def look(self) -> None:
        """Find out what is there."""
        bounds = self._log.bounds()
        self._last, self._at = max(self._last, last_place(self._log)), bounds.next
        self._sent_at = float("-inf")

    def write(self, items: Sequence[Item]) -> bool:
        """Write those that are not there yet, sorted by block; true once all were read back. Else call it again."""
        fresh = self._missing(numbered(items))
        while fresh and self._runtime.monotonic() - self._sent_at >= self._resend_s:
            chunk, values = _chunk(fresh)
            self._append(chunk, values)
            fresh = self._missing(fresh)
            if self._last >= place_of(chunk[-1]):  # the next one need not wait
                self._sent_at = float("-inf")
        return not fresh

    def _missing(self, items: Sequence[Item]) -> list[Item]:
        """Those that were not read back yet."""
        if items and place_of(items[-1]) > self._last:
            self._read()
        return [item for item in items if place_of(item) > self._last]

    def _append(self, items: Sequence[Item], values: Sequence[bytes]) -> None:
        self._sent_at = self._runtime.monotonic()
        labels = [self._label(item) for item in items] if self._label is not None else None
        batch = pack(
            values, producer=NO_PRODUCER, sequence=0, created_ns=self._runtime.wall_ns(),
            keys=[key for key, _ in labels] if labels else None,
            headers=[headers for _, headers in labels] if labels else None,
        )  # fmt: skip
        try:
            self._log.append([batch])
        except AppendUncertain as error:  # done means read back: what is not is sent again
            words = "Bad records or notices were not acknowledged"
            logger.warning(words, extra={"action": "publish", "reason": str(error)})

    def _read(self) -> None:
        try:
            while stored := self._log.read(self._at):
                for entry in stored:
                    view = BatchView(entry.base, entry.data, self._log.name)
                    self._last = max([self._last, *(place_of(json.loads(value)) for value in view.values())])
                    self._at = view.end
        except Trimmed:  # the stream keeps the newest only
            self._at = self._log.bounds().first


def _chunk(items: Sequence[Item]) -> tuple[list[Item], list[bytes]]:
    """The first items that fit into one batch, and how they are written."""
    values: list[bytes] = []
    size = 0
    for item in items[:_RECORDS_MAX]:
        value = json.dumps(item, ensure_ascii=False, default=str).encode()
        size += len(value)
        if values and size > _BYTES_MAX:
            break
        values.append(value)
    return list(items[: len(values)]), values


def numbered(items: Sequence[Item]) -> list[Item]:
    """Items with their place within their block."""
    found: list[Item] = []
    block, index = 0, 0
    for item in items:
        index = index + 1 if item["block"] == block else 0
        block = item["block"]
        found.append({**item, "index": index})
    return found


def place_of(item: Item) -> tuple[int, int]:
    """Where an item stands in the order of everything."""
    return item["block"], item.get("index", 0)


def last_place(log: Log) -> tuple[int, int]:
    """The place of the last record of a stream."""
    bounds = log.bounds()
    if bounds.next == bounds.first:
        return NOWHERE
    stored = log.read(bounds.next - 1)[-1]
    return place_of(json.loads(BatchView(stored.base, stored.data, log.name).values()[-1]))
