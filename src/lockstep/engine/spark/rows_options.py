"""Options of `format("lockstep")`: texts by name, whatever their case, checked before anything is opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from lockstep.errors import BadConfig
from lockstep.log.config import check_name
from lockstep.streams.shards import SEPARATOR, check_stream

T = TypeVar("T")

_OF_SPARK = frozenset(("checkpointlocation", "queryname"))
"""What Spark puts among the options of a streaming write by itself."""
_OF_TABLE = "provider"
"""What Spark puts among the options of a table made with USING."""


def known_options(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The options by name in lower case; BadConfig if one is unknown."""
    wanted = {name.lower() for name in names}
    given = {name.lower(): text for name, text in options.items() if name.lower() not in _OF_SPARK}
    if _OF_TABLE in given:
        reason = "Spark does not give a table's options to those who read it; use load().createOrReplaceTempView(NAME)"
        raise BadConfig(field=_OF_TABLE, value=given[_OF_TABLE], reason=reason)
    for name, text in given.items():
        if name not in wanted:
            raise BadConfig(field=name, value=text, reason=f"there is no such option; there are {', '.join(names)}")
    return given


def required(given: Mapping[str, str], name: str) -> str:
    """A text that must be there."""
    text = given.get(name.lower(), "").strip()
    if not text:
        raise BadConfig(field=name, value=text, reason="it is needed")
    return text


def parsed(given: Mapping[str, str], name: str, parse: Callable[[str], T], default: Any) -> T:
    """A value, or the default if it is not given; a ValueError of `parse` says what is wrong with it."""
    if name.lower() not in given:
        return default  # type: ignore[no-any-return]
    text = given[name.lower()].strip()
    try:
        return parse(text)
    except ValueError as error:
        raise BadConfig(field=name, value=text, reason=str(error)) from error


def name_list(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    found = tuple(name.strip() for name in text.split(","))
    if not all(found) or len(set(found)) < len(found):
        message = "write each name once, with commas between"
        raise ValueError(message)
    return found


def flag(text: str) -> bool:
    """True or false."""
    return one_of("true", "false")(text) == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """One of these words, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            message = f"write {' or '.join(words)}"
            raise ValueError(message)
        return text.lower()

    return parse


def whole(text: str) -> int:
    """A number from 0 on."""
    if not (text.isascii() and text.isdecimal()):
        message = "it must be a whole number"
        raise ValueError(message)
    return int(text)


def positive(text: str) -> int:
    """A number from 1 on."""
    if not (number := whole(text)):
        message = "it must be at least 1"
        raise ValueError(message)
    return number


COLUMNS = ("offset", "key", "value", "headers", "time", "stream", "appended")
"""Every column that can be read. `stream` comes by itself if there are several logs, `appended` only if asked for."""
_READ = (
    "url", "stream", "columns", "startingOffset", "startingTime", "endingOffset", "endingTime",
    "maxRecordsPerTrigger", "minPartitions", "failOnDataLoss", "group",
)  # fmt: skip
_WRITE = ("url", "stream", "writer", "batch", "allowDuplicates")
_BATCH_ONLY = ("endingOffset", "endingTime")
_STREAM_ONLY = ("maxRecordsPerTrigger", "group")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Place = str | int
"""earliest, latest, or an offset."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a range begins or ends: one place for all logs, one for each, or a time."""

    option: str
    place: Place | None = None
    places: tuple[tuple[str, Place], ...] = ()
    time_ns: int | None = None

    def place_on(self, log: str) -> Place:
        """The place on one log; a shard may be named by its number alone."""
        if self.place is not None:
            return self.place
        named = dict(self.places)
        short = log.rpartition(SEPARATOR)[2]
        if log not in named and short not in named:
            raise BadConfig(field=self.option, value=named, reason=f"it says nothing about {log}")
        return named.get(log, named.get(short, ""))

    def check_logs(self, logs: Sequence[str]) -> None:
        """Refuse places for logs that are not read."""
        known = {*logs, *(log.rpartition(SEPARATOR)[2] for log in logs)}
        for name, _ in self.places:
            if name not in known:
                reason = f"{name!r} is not among what is read: {', '.join(logs)}"
                raise BadConfig(field=self.option, value=dict(self.places), reason=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """What is read, from where to where, and what is done about rows that are gone."""

    url: str
    streams: tuple[str, ...]
    start: Edge
    end: Edge
    columns: tuple[str, ...] | None = None
    max_records: int | None = None
    min_partitions: int = 1
    fail_on_data_loss: bool = True
    group: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
        """From Spark's options. What only fits the other way of reading is refused once it is known which it is."""
        given = known_options(options, _READ)
        for name in {True: _BATCH_ONLY, False: _STREAM_ONLY}.get(streaming, ()) if streaming is not None else ():
            if name.lower() in given:
                reason = "a stream has no end" if streaming else "it is for readStream"
                raise BadConfig(field=name, value=given[name.lower()], reason=reason)
        return cls(
            url=required(given, "url"),
            streams=parsed(given, "stream", _streams, required(given, "stream")),
            columns=parsed(given, "columns", _columns, None),
            start=_edge(given, "starting", "earliest"),
            end=_edge(given, "ending", "latest"),
            max_records=parsed(given, "maxRecordsPerTrigger", positive, None),
            min_partitions=parsed(given, "minPartitions", positive, 1),
            fail_on_data_loss=parsed(given, "failOnDataLoss", flag, True),
            group=parsed(given, "group", lambda text: check_name("Group", text), None),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """Where rows go, and under which name the bus remembers what it has."""

    url: str
    stream: str
    writer: str | None = None
    batch: int | None = None
    allow_duplicates: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """From Spark's options."""
        given = known_options(options, _WRITE)
        made = cls(
            url=required(given, "url"),
            stream=check_stream(required(given, "stream")),
            writer=parsed(given, "writer", lambda text: check_name("Writer", text), None),
            batch=parsed(given, "batch", whole, None),
            allow_duplicates=parsed(given, "allowDuplicates", flag, False),
        )
        if streaming and made.batch is not None:
            raise BadConfig(field="batch", value=made.batch, reason="Spark numbers the batches of a streaming query")
        if not streaming and (made.writer is None) != (made.batch is None):
            raise BadConfig(field="batch", value=made.batch, reason="writer and batch go together: give both or none")
        return made


def _edge(given: Mapping[str, str], side: str, default: str) -> Edge:
    by_offset, by_time = f"{side}Offset", f"{side}Time"
    if by_time.lower() not in given:
        return parsed(given, by_offset, lambda text: _offset_edge(by_offset, text), Edge(by_offset, default))
    if by_offset.lower() in given:
        raise BadConfig(field=by_time, value=given[by_time.lower()], reason=f"{by_offset} is given too; give one")
    return parsed(given, by_time, lambda text: Edge(by_time, time_ns=_time_ns(text)), None)


def _offset_edge(option: str, text: str) -> Edge:
    if not text.startswith("{"):
        return Edge(option, _place(text))
    named: dict[str, object] = json.loads(text)
    return Edge(option, places=tuple((name, _place(str(place))) for name, place in named.items()))


def _place(text: str) -> Place:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.isascii() and text.isdecimal():
        return int(text)
    message = 'write earliest, latest, an offset, or JSON such as {"orders/0": 17, "orders/1": "latest"}'
    raise ValueError(message)


def _time_ns(text: str) -> int:
    if text.isascii() and text.isdecimal():
        return int(text) * 1_000_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = "write a time such as 2026-01-31T12:00:00Z (UTC unless it names a zone), or milliseconds since 1970"
        raise ValueError(message) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1_000


def _streams(text: str) -> tuple[str, ...]:
    names = name_list(text)
    for name in names:
        check_stream(name)
    return names


def _columns(text: str) -> tuple[str, ...]:
    names = name_list(text)
    for name in names:
        if name not in COLUMNS:
            message = f"there is no column {name!r}; there are {', '.join(COLUMNS)}"
            raise ValueError(message)
    return names
