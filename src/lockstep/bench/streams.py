"""Fan-out: publishers and subscribers, each a process of its own, on one stream of an embedded bus, or of any other.

Counted as others count it: deliveries are the records received, summed over all subscribers; the clock runs from the
moment all processes are ready until the last subscriber has the last record. Every subscriber gets every record of
every publisher, and checks the number of each. Publishers wait for the slowest subscriber, so that nobody is overtaken.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

import lockstep
from lockstep.bench.numbered import PUBLISHERS_MAX, Checker, Numbered, check_size, stamp
from lockstep.bench.processes import CONTEXT, Crew, Link
from lockstep.bench.scratch import make_stream, scratch_bus
from lockstep.drill import measure

STREAM = "bench"
ON_SERVERS: dict[str, Any] = {"run_records": 2_500, "ahead_records": 40_000}
"""Smaller sizes for a bus on a server, which is slower: what is under way at the end has to arrive, too."""
_IN_ONE_PROCESS = "memory:"
_THROTTLE_S = 0.0005
_POLL_S = 0.05
_END_S_MAX = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchOptions:
    """What to run.

    BenchOptions()                                        # 4 publishers, 16 subscribers, 100 bytes, every commit synced
    BenchOptions(durability="relaxed", objects=True)      # and a Record made of each, its fields looked at
    BenchOptions(bus="redis://127.0.0.1", **ON_SERVERS)   # on a bus that is there, in a stream of its own
    """

    publishers: int = 4
    subscribers: int = 16
    size: int = 100
    seconds: float = 10.0
    durability: str = "fsync"
    objects: bool = False
    codec: str = "none"
    folder: str | None = None
    """Where the bus is made, and removed again; None takes the folder for temporary files."""
    bus: str | None = None
    """The URL of a bus that is there; None makes one."""
    run_records: int = 10_000
    """Records of one publish_many, stored in one step."""
    batch_bytes: int = 100_000
    """Most bytes of one stored batch; what malloc takes fresh from the kernel every time begins a little above."""
    poll_bytes: int = 100_000
    """About how much a subscriber takes at once: one batch, so that its records stay in the processor's cache."""
    ahead_records: int = 160_000
    """How far publishers together may be ahead of the slowest subscriber."""

    def __post_init__(self) -> None:
        check_size(self.size)
        if not 1 <= self.publishers <= PUBLISHERS_MAX or self.subscribers < 1:
            message = f"publishers={self.publishers} must be 1 to {PUBLISHERS_MAX}, subscribers at least 1"
            raise ValueError(message)
        if self.seconds <= 0 or self.run_records < 1:
            message = "seconds and run_records must be above 0"
            raise ValueError(message)
        if self.bus is not None and self.bus.startswith(_IN_ONE_PROCESS):
            message = f"the bus {_IN_ONE_PROCESS} is seen by one process only, and this takes several"
            raise ValueError(message)

    @property
    def capacity(self) -> int | None:
        """More than publishers can ever be ahead: a run of each may be under way when they are stopped.

        On a bus that is there the stream keeps everything until it is deleted: not all can bound it so exactly.
        """
        return None if self.bus else 2 * (self.ahead_records + self.publishers * self.run_records)


class Board:
    """Counters that all processes see. Each has one writer, so that nothing has to be locked."""

    def __init__(self, publishers: int, subscribers: int) -> None:
        self.sent = CONTEXT.RawArray("Q", publishers)
        self.done = CONTEXT.RawArray("B", publishers)
        self.received = CONTEXT.RawArray("Q", subscribers)

    def ahead(self) -> int:
        """By how much the publishers are ahead of the slowest subscriber."""
        return int(sum(self.sent) - min(self.received))

    def is_complete(self, received: int) -> bool:
        """Return whether `received` is everything that will ever be sent."""
        return all(self.done) and received >= sum(self.sent)


def run(options: BenchOptions, progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Run it; returns the figures as plain data."""
    say = progress or (lambda _: None)
    board = Board(options.publishers, options.subscribers)
    with _place(options) as (url, stream, durability), Crew() as crew:
        for number in range(options.subscribers):
            crew.start(_subscribe, url, stream, options, board, number)
        for number in range(options.publishers):
            crew.start(_publish, url, stream, options, board, number)
        say(f"starting {len(crew.processes)} processes")
        started = crew.go()
        say(f"running for {options.seconds:g} s")
        answers = crew.answers(options.seconds + _END_S_MAX)
    return {**_figures(options, board, started, answers), "durability": durability}


@contextmanager
def _place(options: BenchOptions) -> Iterator[tuple[str, str, str]]:
    """A bus, a stream made on it, and when that acknowledges; both or the stream alone are gone at the end."""
    if options.bus is None:
        with scratch_bus(options.durability, options.folder) as url:
            make_stream(url, STREAM, options.capacity, options.codec)
            yield url, STREAM, options.durability
        return
    stream = f"{STREAM}-{uuid4().hex[:12]}"
    make_stream(options.bus, stream, options.capacity, options.codec)
    try:
        with lockstep.connect(options.bus) as bus:
            durability = bus.promises.durability
        yield options.bus, stream, durability
    finally:
        with lockstep.connect(options.bus) as bus:
            bus.delete(stream)


def hush() -> None:
    """Keep warnings about servers off standard error, where every process of a run would print each of them."""
    logging.getLogger("lockstep").addHandler(logging.NullHandler())


def _publish(link: Link, url: str, stream: str, options: BenchOptions, board: Board, number: int) -> dict[str, Any]:
    hush()
    values = Numbered(number, options.size, options.run_records)
    with lockstep.connect(url) as bus, bus.publisher(stream, batch_bytes=options.batch_bytes) as publisher:
        gc.freeze()
        link.ready()
        cpu, end = measure.cpu_s(), time.monotonic() + options.seconds
        run = values.next_run()
        while time.monotonic() < end:
            if board.ahead() >= options.ahead_records:
                time.sleep(_THROTTLE_S)
                continue
            stamp(run, time.monotonic_ns())
            receipt = publisher.publish_many(run)
            run = values.next_run()
            receipt.wait()
            board.sent[number] += options.run_records
        board.done[number] = 1
        return {"cpu_s": measure.cpu_s() - cpu, **_memory()}


def _subscribe(link: Link, url: str, stream: str, options: BenchOptions, board: Board, number: int) -> dict[str, Any]:
    hush()
    checker = Checker(options.publishers, options.size, options.run_records)
    take = _as_objects if options.objects else _as_bytes
    latencies: list[float] = []
    with (
        lockstep.connect(url) as bus,
        bus.subscriber(
            stream, initial="earliest", on_gap="fail", max_bytes=options.poll_bytes, max_records=1 << 30
        ) as subscriber,
    ):
        gc.freeze()
        link.ready()
        cpu = measure.cpu_s()
        received = 0
        while not board.is_complete(received):
            values = take(subscriber.poll(_POLL_S))
            if values:
                now = time.monotonic_ns()
                latencies += [(now - sent) / 1e6 for sent in checker.check(values)]
                received += len(values)
                board.received[number] = received
        return {
            "ended": time.monotonic(),
            "received": received,
            "latencies": latencies,
            "cpu_s": measure.cpu_s() - cpu,
            **checker.result(list(board.sent)),
            **_memory(),
        }


def _as_bytes(batch: lockstep.RecordBatch) -> list[bytes]:
    return batch.values()


def _as_objects(batch: lockstep.RecordBatch) -> list[bytes]:
    """A Record for each, and its fields looked at."""
    values: list[bytes] = []
    keep = values.append
    for record in batch:
        record.offset  # noqa: B018 - looking at them is the work
        record.key  # noqa: B018
        record.headers  # noqa: B018
        keep(record.value)
    return values


def _memory() -> dict[str, float]:
    return {"rss_mb": measure.peak_rss_mb(), "pss_mb": measure.pss_mb()}


def _figures(options: BenchOptions, board: Board, started: float, answers: list[dict[str, Any]]) -> dict[str, Any]:
    subscribers = answers[: options.subscribers]
    seconds = max(answer["ended"] for answer in subscribers) - started
    published, delivered = sum(board.sent), sum(answer["received"] for answer in subscribers)
    return {
        "seconds": round(seconds, 3),
        "published": published,
        "delivered": delivered,
        "publishes_per_s": round(published / seconds),
        "deliveries_per_s": round(delivered / seconds),
        "latency_ms": measure.percentiles([ms for answer in subscribers for ms in answer["latencies"]]),
        "materialised": "objects" if options.objects else "bytes",
        **{what: sum(answer[what] for answer in subscribers) for what in ("lost", "doubled", "reordered")},
        "processes": len(answers),
        "cpu_s": round(sum(answer["cpu_s"] for answer in answers), 3),
        "rss_mb": round(max(answer["rss_mb"] for answer in answers), 1),
        "memory_together_mb": round(sum(answer["pss_mb"] for answer in answers), 1),
        **{
            name: value
            for name, value in asdict(options).items()
            if name not in ("seconds", "folder", "objects", "bus")
        },
    }


_CAPACITY = 200_000
_RUN_RECORDS = 10_000
_UNDER_WAY = 4


def one_by_one(*, seconds: float = 3.0, size: int = 100, durability: str = "relaxed") -> dict[str, Any]:
    """Records per second with publish() and a receipt each; the clock stops when the last receipt is complete."""
    return _measure(_publish_each, seconds, size, durability)


def in_batches(*, seconds: float = 3.0, size: int = 100, durability: str = "relaxed") -> dict[str, Any]:
    """Records per second with publish_many, a few calls under way at a time."""
    return _measure(_publish_many, seconds, size, durability)


def _measure(role: Any, seconds: float, size: int, durability: str) -> dict[str, Any]:
    with scratch_bus(durability) as url, Crew() as crew:
        make_stream(url, STREAM, _CAPACITY)
        crew.start(role, url, seconds, size)
        crew.go()
        answer = crew.answer(0, seconds + 60.0)
    taken = answer.pop("seconds")
    return {"per_s": round(answer["records"] / taken), "seconds": round(taken, 3), "durability": durability, **answer}


def _publish_each(link: Link, url: str, seconds: float, size: int) -> dict[str, Any]:
    with lockstep.connect(url) as bus, bus.publisher(STREAM) as publisher:
        values = Numbered(0, size, _RUN_RECORDS).next_run()
        link.ready()
        cpu, started = measure.cpu_s(), time.monotonic()
        receipts: list[lockstep.Receipt] = []
        offsets = 0
        while time.monotonic() < started + seconds:
            # Receipts are looked at one run later, when they are complete: as a program that does not wait would do.
            before, receipts = receipts, [publisher.publish(value) for value in values]
            offsets += sum(1 for receipt in before if receipt.result() >= 0)
        offsets += sum(1 for receipt in receipts if receipt.result() >= 0)
        return {"records": offsets, "seconds": time.monotonic() - started, "cpu_s": round(measure.cpu_s() - cpu, 3)}


def _publish_many(link: Link, url: str, seconds: float, size: int) -> dict[str, Any]:
    with lockstep.connect(url) as bus, bus.publisher(STREAM) as publisher:
        numbered = Numbered(0, size, _RUN_RECORDS)
        link.ready()
        cpu, started = measure.cpu_s(), time.monotonic()
        receipts: list[lockstep.ManyReceipt] = []
        records = 0
        while time.monotonic() < started + seconds:
            receipts.append(publisher.publish_many(numbered.next_run()))
            if len(receipts) >= _UNDER_WAY:
                receipts.pop(0).wait()
            records += _RUN_RECORDS
        for receipt in receipts:
            receipt.wait()
        return {"records": records, "seconds": time.monotonic() - started, "cpu_s": round(measure.cpu_s() - cpu, 3)}
