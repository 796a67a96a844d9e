"""One publisher process: a receipt for each record, or whole batches."""

from __future__ import annotations

import time
from typing import Any

import lockstep
from lockstep.bench import measure
from lockstep.bench.crew import Crew, Link
from lockstep.bench.numbered import Numbered
from lockstep.bench.scratch import make_stream, scratch_bus

STREAM = "bench"
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
