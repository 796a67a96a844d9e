"""The catalogue as a topic of its own: what was written first counts, and everybody reads the same.

Messages are JSON objects:

| message                                                  | meaning                                                  |
| -------------------------------------------------------- | -------------------------------------------------------- |
| {"add": name, "identity": ..., "config": {...}}          | a stream was created                                     |
| {"remove": name, "identity": ...}                        | it was deleted                                           |
| {"trim": name, "identity": ..., "head": offset}          | everything below an offset is gone                       |
| {"alter": name, "identity": ..., "config": {...}}        | it got other settings                                    |
| {"snapshot": id, "upto": n, "part": i, "of": k, "streams": [...]} | all streams, as the messages below n leave them |

A change also has a random "id", so that no two messages are the same. What does not fit what came before it is passed
over. A snapshot makes the messages below `upto` needless: the server is told to drop them. Everybody folds the same
messages to the same state, so it does not matter who writes a snapshot.

Two may write one at the same time, and the older one may arrive last. It is of no use once the server has dropped
messages that it does not cover. Readers begin with the complete snapshot that has the highest `upto`.

A server may lose the last messages in a failover, and give their numbers to others. So the message that was read last
is asked for again: before something new is folded, before and after a change, and else once a second. If it is not
there, everything is read anew. A stream whose entry was lost is gone then, or another one has its name.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lockstep.errors import DataError, LockstepError
from lockstep.log.config import StreamConfig
from lockstep.log.network.driver import Catalogue, Message, StreamEntry, Topic, TopicGone
from lockstep.runtime import logger

READ_BYTES = 4 << 20
SNAPSHOT_EVERY = 1000
"""A snapshot is written after this many messages, or as many as there are streams if these are more."""
CHECK_S = 1.0
"""How long the server is trusted not to have lost messages, while nothing new arrives."""
READS_MAX = 10
"""How often the catalogue is read from its beginning before an inconsistent server is given up."""
_PART_BYTES = 256 << 10

_UNCOVERED = (
    "The catalogue of the bus is damaged: its topic begins at message {first}, and no complete snapshot covers what"
    " came before. The streams themselves are untouched. Stop what uses the bus, and restore that topic from a backup."
)
_UNSTEADY = "The catalogue of the bus can't be read: each time the server shows other messages in its topic."

_AT_ONCE = float("-inf")

CatalogueMessage = Mapping[str, Any]
Streams = dict[str, StreamEntry]


class _NotThere(Exception):
    """The message that was read last is no longer where it was."""


class TopicCatalogue(Catalogue):
    """A catalogue that every process builds from the same topic of changes."""

    def __init__(self, topic: Topic, monotonic: Callable[[], float]) -> None:
        self._topic, self._monotonic = topic, monotonic
        self._lock = threading.Lock()
        self._known: Streams = {}
        self._next: int | None = None
        """Where to read on; None: from the beginning."""
        self._last: Message | None = None
        """The message that was read last."""
        self._check_at = _AT_ONCE
        """When to check, at the latest, that the server still has it."""
        self._folded = 0
        """Messages since the snapshot that was read or written last."""

    def find(self, name: str) -> StreamEntry | None:
        with self._lock:
            self._catch_up()
            return self._known.get(name)

    def all(self) -> list[StreamEntry]:
        with self._lock:
            self._catch_up()
            return list(self._known.values())

    def add(self, known: StreamEntry) -> StreamEntry:
        self._write({"add": known.name, "identity": known.identity, "config": known.config.to_dict()})
        with self._lock:
            return self._known.get(known.name, known)  # removed by another meanwhile: it was there, and is gone

    def remove(self, known: StreamEntry) -> bool:
        with self._lock:
            self._catch_up()
            is_same = known.name in self._known and self._known[known.name].identity == known.identity
        if is_same:
            self._write({"remove": known.name, "identity": known.identity})
        return is_same

    def trim(self, known: StreamEntry, head: int) -> None:
        self._write({"trim": known.name, "identity": known.identity, "head": head})

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        self._write({"alter": known.name, "identity": known.identity, "config": config.to_dict()})

    def verify(self) -> None:
        """Check now that the last message read is still there; if it is not, read the catalogue again."""
        with self._lock:
            self._check_at = _AT_ONCE
            self._catch_up()

    def close(self) -> None:
        with self._lock:
            self._topic.close()

    def _write(self, entry: CatalogueMessage) -> None:
        with self._lock:
            self._topic.send([json.dumps({**entry, "id": uuid.uuid4().hex}).encode()])
            self._check_at = _AT_ONCE
            self._catch_up()
            if self._folded >= max(SNAPSHOT_EVERY, len(self._known)):
                with suppress(LockstepError, TopicGone):  # the change is stored, and must not fail for this
                    self._write_snapshot()

    def _write_snapshot(self) -> None:
        """Write a snapshot of all streams, and let the server drop the older messages once all parts are stored."""
        assert self._next is not None, "it was read before"
        upto = self._next
        for part in snapshot_parts(self._known, upto, self._part_bytes()):
            [number] = self._topic.send([part])
            if number < upto:  # the server lost messages that it sums up: readers pass it over
                return
        self._catch_up()  # so that the message that was read last is one that stays
        self._topic.drop(upto)

    def _part_bytes(self) -> int:
        most = self._topic.limits.append_bytes
        return _PART_BYTES if most is None else min(_PART_BYTES, most // 2)

    def _catch_up(self) -> None:
        """Apply new messages; if the server has lost earlier ones, read everything from the beginning."""
        for _ in range(READS_MAX):
            try:
                start = self._begin() if self._next is None else self._next
                for message in self._read(start):
                    self._fold(message)
                if self._monotonic() >= self._check_at:
                    self._check_last()
            except _NotThere:
                self._next = None
            else:
                return
        raise DataError(reason=_UNSTEADY)

    def _fold(self, message: Message) -> None:
        entry = json.loads(message.data)
        apply_message(self._known, entry)
        self._next = message.number + 1
        self._folded = 0 if "snapshot" in entry else self._folded + 1

    def _begin(self) -> int:
        """Take over the newest complete snapshot, looking back from the end, further each time; where to go on."""
        self._next, self._last, self._folded = None, None, 0
        ends, back = self._topic.ends(), 2 * SNAPSHOT_EVERY
        while True:
            start = max(ends.next - back, ends.first)
            newest = newest_snapshot(self._read(start))
            if newest and newest[0]["upto"] >= ends.first:
                self._known, self._next = restore(newest), int(newest[0]["upto"])
                return self._next
            if start <= ends.first:
                break
            back *= 4
        if ends.first > 0:
            raise DataError(reason=_UNCOVERED.format(first=ends.first))
        self._known, self._next = {}, 0
        return 0

    def _read(self, start: int) -> Iterator[Message]:
        """Messages from a number on; _NotThere if the server lost what was read before them.

        That is asked for when they are here: if it is still there then, they are what follows it.
        """
        while messages := self._topic.fetch(start, READ_BYTES):
            self._check_last()
            for message in messages:
                self._last = message
                yield message
            start = messages[-1].number + 1

    def _check_last(self) -> None:
        """Raise _NotThere if the server has another message in the place of the one that was read last, or none."""
        last = self._last
        if last is None:
            if self._next is not None and self._topic.ends().first > self._next:
                raise _NotThere  # it was empty, and others have written so much since that they wrote a snapshot
        elif self._topic.reread(last.number) != last:
            if self._topic.ends().first <= last.number:  # else it was dropped after others wrote a snapshot
                logger.warning(
                    "The server lost the end of the catalogue: message %d is not what it was. It is read anew, and"
                    " streams may be gone or others", last.number,
                    extra={"action": "catalogue_lost", "number": last.number},
                )  # fmt: skip
            raise _NotThere
        self._check_at = self._monotonic() + CHECK_S


def apply_message(known: Streams, entry: CatalogueMessage) -> None:
    """Apply one message to the streams."""
    if "add" in entry:
        name = entry["add"]
        known.setdefault(name, StreamEntry(name, entry["identity"], StreamConfig.from_dict(entry["config"])))
        return
    name = next((entry[kind] for kind in ("remove", "trim", "alter") if kind in entry), None)
    found = known.get(name) if name is not None else None
    if found is None or found.identity != entry["identity"]:
        return
    if "remove" in entry:
        del known[found.name]
    elif "alter" in entry:
        known[found.name] = replace(found, config=StreamConfig.from_dict(entry["config"]))
    else:
        known[found.name] = found.trimmed(entry["head"])


def snapshot_parts(known: Streams, upto: int, part_bytes: int) -> Iterator[bytes]:
    """A snapshot as messages that are small enough for the server."""
    rows = [
        {"name": one.name, "identity": one.identity, "config": one.config.to_dict(), "head": one.head}
        for one in known.values()
    ]
    parts: list[list[Mapping[str, Any]]] = [[]]
    size = 0
    for row in rows:
        size += len(json.dumps(row)) + 2
        if parts[-1] and size > part_bytes:
            parts.append([])
            size = len(json.dumps(row)) + 2
        parts[-1].append(row)
    number = uuid.uuid4().hex
    for index, streams in enumerate(parts):
        message = {"snapshot": number, "upto": upto, "part": index, "of": len(parts), "streams": streams}
        yield json.dumps(message).encode()


def newest_snapshot(messages: Iterable[Message]) -> list[CatalogueMessage]:
    """The parts of the complete snapshot that covers most messages; nothing if none is complete.

    One that stands among the messages that it covers does not count: some of those were lost before it was stored.
    """
    snapshots: dict[str, dict[int, CatalogueMessage]] = {}
    for message in messages:
        entry = json.loads(message.data)
        if "snapshot" in entry and message.number >= entry["upto"]:
            snapshots.setdefault(entry["snapshot"], {})[entry["part"]] = entry
    complete = [list(parts.values()) for parts in snapshots.values() if len(parts) == next(iter(parts.values()))["of"]]
    return max(complete, key=lambda parts: int(parts[0]["upto"]), default=[])


def restore(parts: list[CatalogueMessage]) -> Streams:
    """The streams of a complete snapshot."""
    rows = [row for part in parts for row in part["streams"]]
    return {
        row["name"]: StreamEntry(row["name"], row["identity"], StreamConfig.from_dict(row["config"]), row["head"])
        for row in rows
    }
