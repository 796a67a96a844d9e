"""What readers of streams and of windows share: the bus as Spark opens it, and the bounds that conditions set.

Each process opens the bus for itself, and only where all of them can reach it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from lockstep.engine.errors import BusNotShared
from lockstep.errors import BadConfig, UnsupportedByBackend
from lockstep.log.port import Bus, Log
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.shards import logs_of


def bounds_of(filters: Iterable[Filter], column: str) -> tuple[int, int | None]:
    """The first number that is wanted, and the first after it that is not; None: there is no end.

    All conditions hold together; one that says nothing about the column is passed over.
    """
    first, end = 0, None
    for one in filters:
        low, high = _bounds(one, column)
        first = max(first, low)
        end = high if end is None else end if high is None else min(end, high)
    return first, end if end is None else max(end, first)


def _bounds(one: Filter, column: str) -> tuple[int, int | None]:
    if getattr(one, "attribute", None) != (column,):
        return 0, None
    match one:
        case EqualTo(value=int(value)):
            return value, value + 1
        case GreaterThan(value=int(value)):
            return value + 1, None
        case GreaterThanOrEqual(value=int(value)):
            return value, None
        case LessThan(value=int(value)):
            return 0, value
        case LessThanOrEqual(value=int(value)):
            return 0, value + 1
        case In(value=values) if values and all(type(value) is int for value in values):
            return min(values), max(values) + 1
    return 0, None


OpenBus = Callable[[str], Bus]
"""Opens the bus at a URL. It travels to Spark's processes by name, so it is a function of a module."""


def open_shared(url: str) -> Bus:
    """The bus at a URL, which must be there already and be open to other processes."""
    bus = open_bus(url, ThreadRuntime(), create=False)
    if bus.promises.opened_by == "process":
        bus.close()
        raise UnsupportedByBackend(bus=url, feature="be shared with Spark, whose workers are processes of their own")
    return bus


@contextmanager
def opened(open_url: OpenBus, url: str) -> Iterator[Bus]:
    """The bus, closed at the end: a worker lives longer than its task, and holds nothing open in between."""
    bus = open_url(url)
    try:
        yield bus
    finally:
        bus.close()


def this_host() -> str:
    """The name of this machine."""
    return socket.gethostname()


def check_host(bus: Bus, host: str) -> None:
    """A folder of the same name on another machine is another bus."""
    if bus.promises.opened_by == "host" and host != this_host():
        raise BusNotShared(url=bus.url, host=host, other=this_host())


def all_logs(bus: Bus, streams: Sequence[str]) -> list[Log]:
    """The logs of streams, shard by shard, always in the same order."""
    logs = [log for stream in streams for log in logs_of(bus, stream)]
    names = [log.name for log in logs]
    for name in names:
        if names.count(name) > 1:
            raise BadConfig(field="stream", value=",".join(streams), reason=f"{name} would be read twice")
    return logs
