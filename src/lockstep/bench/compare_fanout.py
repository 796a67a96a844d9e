"""The same fan-out for every means: publishers and subscribers, each a process, on one stream.

Counted as in the streams bench: the clock runs from the moment all processes are ready until the last subscriber has
the last record; every subscriber gets every record, and checks its number; publishers wait for the slowest subscriber.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from lockstep.bench.compare_means import load
from lockstep.bench.numbered import HEAD, PUBLISHERS_MAX, Checker, Numbered, check_size, stamp
from lockstep.bench.processes import Crew, Link
from lockstep.bench.streams import Board, hush
from lockstep.drill import measure

_THROTTLE_S = 0.0005
_POLL_S = 0.05
_END_S_MAX = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What every means has to do: publishing ends after so many records, or after so many seconds.

    Work()                              # 4 publishers, 16 subscribers, 100 bytes
    Work(records=4_000, subscribers=2)  # for a test
    """

    publishers: int = 4
    subscribers: int = 16
    size: int = 100
    records: int = 1_500_000
    seconds: float = 6.0
    run_most: int = 2_500
    """Most records of one run, acknowledged before the next one is sent."""
    ahead_records: int = 40_000
    """How far publishers together may be ahead of the slowest subscriber; a ring of 100,000 holds twice as much."""

    def __post_init__(self) -> None:
        check_size(self.size)
        if not 1 <= self.publishers <= PUBLISHERS_MAX or self.subscribers < 1:
            message = f"publishers={self.publishers} must be 1 to {PUBLISHERS_MAX}, subscribers at least 1"
            raise ValueError(message)
        if self.records < self.publishers or self.seconds <= 0:
            message = f"records={self.records} must be at least one for each publisher, seconds above 0"
            raise ValueError(message)

    @property
    def run_records(self) -> int:
        """Records of one run."""
        return min(self.run_most, self.records // self.publishers)

    @property
    def runs(self) -> int:
        """Most runs of one publisher."""
        return self.records // self.publishers // self.run_records


@contextmanager
def own_stream(means: str, url: str) -> Iterator[str]:
    """A stream with a new name, taken away at the end."""
    stream = f"bench-{uuid4().hex[:12]}"
    used = load(means)
    used.make(url, stream)
    try:
        yield stream
    finally:
        used.remove(url, stream)


def fan_out(means: str, url: str, work: Work) -> dict[str, Any]:
    """Run it; returns the figures as plain data."""
    board = Board(work.publishers, work.subscribers)
    with own_stream(means, url) as stream, Crew() as crew:
        for number in range(work.subscribers):
            crew.start(_subscribe, means, url, stream, work, board, number)
        for number in range(work.publishers):
            crew.start(_publish, means, url, stream, work, board, number)
        started = crew.go()
        answers = crew.answers(work.seconds + _END_S_MAX)
    return _figures(work, board, started, answers)


def _publish(link: Link, means: str, url: str, stream: str, work: Work, board: Board, number: int) -> dict[str, Any]:
    hush()
    values = Numbered(number, work.size, work.run_records)
    with load(means).sender(url, stream) as sender:
        gc.freeze()
        link.ready()
        cpu, end = measure.cpu_s(), time.monotonic() + work.seconds
        run = values.next_run()
        for _ in range(work.runs):
            if not _has_room(work, board, end):
                break
            stamp(run, time.monotonic_ns())
            sender.start(run)
            run = values.next_run()
            sender.wait()
            board.sent[number] += work.run_records
        board.done[number] = 1
        return {"cpu_s": measure.cpu_s() - cpu}


def _has_room(work: Work, board: Board, end: float) -> bool:
    """Wait for the slowest subscriber; False when the time is over."""
    while time.monotonic() < end:
        if board.ahead() < work.ahead_records:
            return True
        time.sleep(_THROTTLE_S)
    return False


def _subscribe(link: Link, means: str, url: str, stream: str, work: Work, board: Board, number: int) -> dict[str, Any]:
    hush()
    checker = Checker(work.publishers, work.size, work.run_records)
    with load(means).reader(url, stream) as reader:
        gc.freeze()
        link.ready()
        cpu, received = measure.cpu_s(), 0
        while not board.is_complete(received):
            values = reader.read(_POLL_S)
            for start, stop in pieces(values):
                checker.check(values[start:stop])
            received += len(values)
            board.received[number] = received
        ended = time.monotonic()
        return {
            "ended": ended,
            "received": received,
            "cpu_s": measure.cpu_s() - cpu,
            **checker.result(list(board.sent)),
        }


def pieces(values: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Where the records of one run end and those of another begin: the quick check compares one run at a time.

    Plain clients mix the runs of several publishers. Each border is found by halving, so that looking for it costs
    little; if the numbers jump about, pieces are too long, and the check looks at every record by itself.
    """
    start = 0
    while start < len(values):
        stop = _same_run_until(values, start)
        yield start, stop
        start = stop


def _same_run_until(values: Sequence[bytes], start: int) -> int:
    run, place, _ = HEAD.unpack_from(values[start])

    def follows(at: int) -> bool:
        found = HEAD.unpack_from(values[at])
        return bool(found[0] == run and found[1] == place + at - start)

    low, high = start, len(values) - 1
    if follows(high):
        return high + 1
    while high - low > 1:
        middle = (low + high) // 2
        if follows(middle):
            low = middle
        else:
            high = middle
    return high


def _figures(work: Work, board: Board, started: float, answers: list[dict[str, Any]]) -> dict[str, Any]:
    subscribers = answers[: work.subscribers]
    seconds = max(answer["ended"] for answer in subscribers) - started
    published, delivered = sum(board.sent), sum(answer["received"] for answer in subscribers)
    return {
        "seconds": round(seconds, 3),
        "published": published,
        "delivered": delivered,
        "publishes_per_s": round(published / seconds),
        "deliveries_per_s": round(delivered / seconds),
        **{what: sum(answer[what] for answer in subscribers) for what in ("lost", "doubled", "reordered")},
        "processes": len(answers),
        "cpu_s": round(sum(answer["cpu_s"] for answer in answers), 3),
    }
