"""What other settings would have told: the fleet runs over its stored input once more, with each of two settings.

Time is that of the records: a tick for each second between them. State of before the first record is not known: clients
register anew, and events begin when a check is heard. The same goes for both settings, so that it is no difference.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lockstep.monitor.core.fleet import Fleet
from lockstep.monitor.core.output import Output
from lockstep.streams.client import Lockstep, connect

Json = dict[str, Any]
SCHEMA = "run int, time long, client string, check string, handler string, status int, action string"
_AT_ONCE = 10_000
_SECOND_NS = 1_000_000_000


class Told(NamedTuple):
    """A notification: what a handler receives about an event, and when."""

    time: int
    client: str
    check: str
    handler: str
    status: int
    action: str


class Input(NamedTuple):
    """A record of the input."""

    offset: int
    key: bytes
    value: bytes
    time_ns: int


@dataclass(frozen=True, slots=True)
class History:
    """A part of a monitor's input: from one offset up to, not including, another."""

    url: str
    stream: str
    begin: int
    end: int

    @classmethod
    def since(cls, bus: Lockstep, url: str, stream: str, seconds: float) -> History:
        """What was stored in the last so many seconds."""
        begin = bus.offset_at(stream, max(0, bus.runtime.wall_ns() - round(seconds * _SECOND_NS)))
        return cls(url, stream, begin, bus.bounds(stream).next)

    def read(self, bus: Lockstep) -> Iterator[Input]:
        """The records, in order."""
        with bus.subscriber(self.stream, initial="earliest", create=False) as subscriber:
            subscriber.seek(self.begin)
            at = self.begin
            while at < self.end:
                batch = subscriber.poll(1.0)
                for record in batch:
                    if record.offset >= self.end:
                        return
                    at = record.offset + 1
                    yield Input(record.offset, record.key or b"", record.value, record.appended_ns)
                if not batch and bus.bounds(self.stream).next <= at:
                    return


def replay(records: Iterable[Input], settings: Mapping[str, Any]) -> Iterator[Told]:
    """What is told with these settings; orders that put others in force are left out."""
    fleet, now_s = Fleet(), 0
    for record in records:
        second = record.time_ns // _SECOND_NS
        if not now_s:
            now_s = second
            yield from _ticked(fleet, second, record.offset)
            _state(fleet, settings, record.offset)
        while now_s < second:
            now_s += 1
            yield from _ticked(fleet, now_s, record.offset)
        if not _is_settings(record):
            out = Output()
            fleet.take(record.key, record.value, record.offset + 1, out)
            yield from _told(out, now_s)
    if now_s:
        yield from _ticked(fleet, now_s + 1, record.offset + 1)


def _state(fleet: Fleet, settings: Mapping[str, Any], block: int) -> None:
    order = {"order": "settings", "id": "try", "settings": settings, "digest": "", "by": "try"}
    fleet.take(b"o:", json.dumps(order).encode(), block, Output())


def _ticked(fleet: Fleet, second: int, block: int) -> Iterator[Told]:
    out = Output()
    fleet.tick(second * 1_000_000, False, block, out)
    fleet.marked_pages()
    return _told(out, second)


def _is_settings(record: Input) -> bool:
    if record.key != b"o:":
        return False
    try:
        order = json.loads(record.value)
    except (ValueError, RecursionError):
        return False
    return isinstance(order, dict) and order.get("order") == "settings"


def _told(out: Output, second: int) -> Iterator[Told]:
    for notice in out.notices:
        if notice.kind == "handle":
            body = json.loads(notice.body)
            event = body["event"]
            check = event["check"]
            yield Told(
                second, event["client"]["name"], check["name"], body["handler"], check["status"], event["action"]
            )


@dataclass(frozen=True, slots=True)
class Differences:
    """What only one of two settings tells, in order, and how much both tell."""

    only_now: list[Told]
    only_new: list[Told]
    same: int

    @classmethod
    def between(cls, now: Iterable[Told], new: Iterable[Told]) -> Differences:
        """Compare what is told now with what would be told."""
        before, after = Counter(now), Counter(new)
        only_now, only_new = before - after, after - before
        return cls(sorted(only_now.elements()), sorted(only_new.elements()), (before & after).total())


def compare(history: History, bus: Lockstep, now: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    """Compare two settings in this process."""
    return Differences.between(*(replay(history.read(bus), settings) for settings in (now, new)))


def compare_on_spark(spark: Any, history: History, now: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    """Compare two settings on Spark: each is a task, which reads the history by itself."""
    runs = [(number, json.dumps(settings)) for number, settings in enumerate((now, new))]
    frame = spark.createDataFrame(runs, "run int, settings string").repartitionByRange(2, "run")
    told: tuple[list[Told], list[Told]] = ([], [])
    for row in frame.mapInArrow(_Replay(history), SCHEMA).toLocalIterator():
        told[row[0]].append(Told(*row[1:]))
    return Differences.between(*told)


@dataclass(frozen=True, slots=True)
class _Replay:
    """A task of Spark: runs of the fleet to the notifications they made."""

    history: History

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        with connect(self.history.url) as bus:
            for batch in batches:
                for run in batch.to_pylist():
                    yield from self._run(bus, run["run"], json.loads(run["settings"]))

    def _run(self, bus: Lockstep, number: int, settings: Json) -> Iterator[Any]:
        kept: list[Told] = []
        for told in replay(self.history.read(bus), settings):
            kept.append(told)
            if len(kept) == _AT_ONCE:
                yield _batch(number, kept)
                kept = []
        if kept:
            yield _batch(number, kept)


def _batch(number: int, kept: list[Told]) -> Any:
    import pyarrow as pa

    types = (pa.int64(), pa.string(), pa.string(), pa.string(), pa.int32(), pa.string())
    columns = {
        name: pa.array([told[place] for told in kept], kind)
        for place, (name, kind) in enumerate(zip(Told._fields, types, strict=True))
    }
    return pa.record_batch({"run": pa.array([number] * len(kept), pa.int32()), **columns})
