"""The same fan-out by simpler means, measured in the same run: one LMDB value for each record, and queues."""

from __future__ import annotations

import queue
import time
from typing import Any

import lmdb

from lockstep.bench.processes import CONTEXT, Crew, Link
from lockstep.bench.scratch import scratch_folder
from lockstep.bench.streams import Board

_RUN_RECORDS = 1000
_AHEAD_RECORDS = 80_000
_MAP_BYTES = 16 << 30


def plain_lmdb(
    *, publishers: int = 4, subscribers: int = 16, size: int = 100, seconds: float = 3.0, durability: str = "relaxed"
) -> dict[str, Any]:
    """Deliveries per second with each record a value of its own, put and read in the fewest calls py-lmdb has."""
    board = Board(publishers, subscribers)
    with scratch_folder() as folder, Crew() as crew:
        lmdb.open(str(folder), map_size=_MAP_BYTES).close()
        for number in range(subscribers):
            crew.start(_read_values, str(folder), board, number)
        for number in range(publishers):
            crew.start(_put_values, str(folder), board, number, size, seconds, durability)
        started = crew.go()
        ended = max(crew.answers(seconds + 120.0)[:subscribers])
    return _rates(sum(board.sent), sum(board.received), ended - started)


def _put_values(link: Link, folder: str, board: Board, number: int, size: int, seconds: float, durability: str) -> None:
    value = bytes(size)
    with lmdb.open(folder, map_size=_MAP_BYTES, sync=durability == "fsync", metasync=durability == "fsync") as bus:
        link.ready()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if board.ahead() >= _AHEAD_RECORDS:
                time.sleep(0.0005)
                continue
            with bus.begin(write=True) as transaction, transaction.cursor() as cursor:
                first = int.from_bytes(cursor.key(), "big") + 1 if cursor.last() else 0
                pairs = [(at.to_bytes(8, "big"), value) for at in range(first, first + _RUN_RECORDS)]
                cursor.putmulti(pairs, append=True)
            board.sent[number] += _RUN_RECORDS
    board.done[number] = 1


def _read_values(link: Link, folder: str, board: Board, number: int) -> float:
    with lmdb.open(folder, map_size=_MAP_BYTES, readonly=True) as bus:
        link.ready()
        at = 0
        while not board.is_complete(at):
            with bus.begin() as transaction, transaction.cursor() as cursor:
                found = cursor.set_range(at.to_bytes(8, "big"))
                values = list(cursor.iternext(keys=False)) if found else []
            at += len(values)
            board.received[number] = at
            if not values:
                time.sleep(0.001)  # nothing wakes a reader here
        return time.monotonic()


def queues(*, publishers: int = 4, subscribers: int = 16, size: int = 100, records: int = 2000) -> dict[str, Any]:
    """Deliveries per second with a multiprocessing.Queue for each subscriber, into which every publisher puts."""
    lines = [CONTEXT.Queue() for _ in range(subscribers)]
    with Crew() as crew:
        for line in lines:
            crew.start(_take_all, line, publishers * records)
        for _ in range(publishers):
            crew.start(_put_all, lines, size, records)
        started = crew.go()
        ended = max(crew.answers(300.0)[:subscribers])
    published = publishers * records
    return _rates(published, published * subscribers, ended - started)


def _take_all(link: Link, line: queue.Queue[bytes], records: int) -> float:
    link.ready()
    for _ in range(records):
        line.get()
    return time.monotonic()


def _put_all(link: Link, lines: list[queue.Queue[bytes]], size: int, records: int) -> None:
    value = bytes(size)
    link.ready()
    for _ in range(records):
        for line in lines:
            line.put(value)


def _rates(published: int, delivered: int, seconds: float) -> dict[str, Any]:
    return {
        "publishes_per_s": round(published / seconds),
        "deliveries_per_s": round(delivered / seconds),
        "seconds": round(seconds, 3),
    }
