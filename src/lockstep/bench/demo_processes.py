"""The processes of the demonstration: publishers, subscribers on their own, and the members of one group."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import lockstep
from lockstep.bench.numbered import Checker, Numbered
from lockstep.bench.processes import CONTEXT, Link
from lockstep.errors import Fenced

SOURCE, RESULTS, GROUP = "orders", "invoices", "billing"
PUBLISHERS = SUBSCRIBERS = MEMBERS = 3
SIZE = 100
BURST = 50
_POLL_S = 0.1
_WORK_S = 0.02
BATCH_RECORDS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The load of a demo: the bursts of each publisher, spread over the duration."""

    url: str
    bursts: int
    publish_s: float

    @property
    def records(self) -> int:
        """All records of all publishers."""
        return self.bursts * BURST * PUBLISHERS


class Stage:
    """Counters in shared memory, which outlive a killed process; each has one writer."""

    def __init__(self) -> None:
        self.sent = CONTEXT.RawArray("Q", PUBLISHERS)
        self.received = CONTEXT.RawArray("Q", SUBSCRIBERS)
        self.handed = CONTEXT.RawArray("Q", MEMBERS)
        self.fenced = CONTEXT.RawArray("Q", MEMBERS)
        self.allowed = CONTEXT.RawValue("d", 0.0)
        """The part of its records that a publisher may send by now."""


def publish(link: Link, plan: Plan, stage: Stage, number: int) -> None:
    """Send bursts at an even pace; a burst counts when all its receipts are complete."""
    numbered = Numbered(number, SIZE, BURST)
    with lockstep.connect(plan.url) as bus, bus.publisher(SOURCE) as publisher:
        link.ready()
        started = time.monotonic()
        for burst in range(plan.bursts):
            while burst >= plan.bursts * stage.allowed.value:
                time.sleep(0.01)
            time.sleep(max(0.0, started + burst * plan.publish_s / plan.bursts - time.monotonic()))
            for receipt in [publisher.publish(value) for value in numbered.next_run()]:
                receipt.result(60.0)
            stage.sent[number] += BURST


def subscribe(link: Link, plan: Plan, stage: Stage, number: int) -> dict[str, int]:
    """Receive and check every record, until all have come or the run is over."""
    checker = Checker(PUBLISHERS, SIZE, BURST)
    with lockstep.connect(plan.url) as bus, bus.subscriber(SOURCE, initial="earliest") as subscriber:
        link.ready()
        while stage.received[number] < plan.records and not link.is_over():
            values = subscriber.poll(_POLL_S).values()
            if values:
                checker.check(values)
                stage.received[number] += len(values)
    return {"delivered": stage.received[number], **checker.result([plan.bursts * BURST] * PUBLISHERS)}


def take_part(link: Link, plan: Plan, stage: Stage, number: int) -> None:
    """Process what the group hands out: confirmation and results in one transaction, so that each counts once."""
    logging.getLogger("lockstep").setLevel(logging.ERROR)  # members that wait for their turn are meant here
    with (
        lockstep.connect(plan.url) as bus,
        bus.subscriber(SOURCE, group=GROUP, max_records=BATCH_RECORDS, on_error=lambda *_: None) as subscriber,
    ):
        link.ready()
        epoch = None
        while not link.is_over():
            batch = subscriber.poll(_POLL_S)
            if not batch:
                continue
            if batch.epoch != epoch:
                epoch = batch.epoch
                link.tell((time.monotonic(), epoch))
            stage.handed[number] += len(batch)
            _process(bus, subscriber, batch, stage, number)


def _process(
    bus: lockstep.Lockstep, subscriber: lockstep.Subscriber, batch: lockstep.RecordBatch, stage: Stage, number: int
) -> None:
    try:
        with bus.group_transaction(subscriber) as together:
            time.sleep(_WORK_S)  # the work itself, outside of the moment in which everything is written
            for record in batch:
                together.publish(RESULTS, record.value)
            together.confirm(batch.last())
    except Fenced:  # it slept too long: another member owns the stream, and nothing of this was written
        stage.fenced[number] += 1


def count_results(bus: lockstep.Lockstep) -> int:
    """How much the group has written."""
    return bus.bounds(RESULTS).next


def check_results(plan: Plan, bus: lockstep.Lockstep) -> dict[str, Any]:
    """What the group wrote, compared with what it was given: the same records, once each, in the same order."""
    source, results = _everything(bus, SOURCE), _everything(bus, RESULTS)
    checker = Checker(PUBLISHERS, SIZE, BURST)
    if results:
        checker.check(results)
    found = checker.result([plan.bursts * BURST] * PUBLISHERS)
    misplaced = sum(1 for given, made in zip(source, results, strict=False) if given != made)
    if not found["lost"] and not found["doubled"]:
        found["reordered"] = max(found["reordered"], misplaced)
    return {"results": len(results), **found}


def _everything(bus: lockstep.Lockstep, stream: str) -> list[bytes]:
    values: list[bytes] = []
    with bus.subscriber(stream, initial="earliest") as subscriber:
        while batch := subscriber.poll(0.0):
            values += batch.values()
    return values
