"""Dead letters: look at them, and send them back to where they came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.errors import DataError, GroupBusy
from lockstep.streams.client import Lockstep
from lockstep.streams.handlers import VALUE_CUT, fitting_name, original_headers
from lockstep.streams.record import Record

REDRIVE_GROUP = "redrive"
SUFFIX = ".dlq"
_ASSIGNED_WITHIN_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A record that a handler could not deal with, and why."""

    record: Record
    stream: str
    offset: int
    group: str
    attempts: int
    reason: str
    is_cut: bool = False
    """True if it did not fit into the dead-letter stream: the whole record is still in the stream it came from."""


def dead_letter_streams(bus: Lockstep) -> list[str]:
    """Streams that hold dead letters by their name."""
    return [name for name in bus.streams() if name.endswith(SUFFIX)]


def dead_letters(bus: Lockstep, stream: str) -> Iterator[DeadLetter]:
    """All dead letters of a stream, oldest first."""
    with bus.subscriber(stream, initial="earliest", create=False) as subscriber:
        while batch := subscriber.poll(0.0):
            yield from map(_dead_letter, batch)


def redrive(bus: Lockstep, stream: str, *, limit: int | None = None) -> int:
    """Publish dead letters to the streams they came from, each once; returns how many.

    Every letter and the note that it was sent back are written in one step, so a crash repeats none and skips none.
    """
    sent = 0
    group = fitting_name(f"{REDRIVE_GROUP}.{stream}")
    with bus.subscriber(stream, group=group, create=False, on_gap="skip") as subscriber:
        if not subscriber.wait_assigned(_ASSIGNED_WITHIN_S):
            raise GroupBusy(group=subscriber.group, stream=stream, member="of another redrive")
        while limit is None or sent < limit:
            batch = subscriber.poll(0.0, max_records=1)
            if not batch:
                return sent
            letter = _dead_letter(batch.first())
            record = letter.record
            sent_back = bus.get(letter.stream, letter.offset) if letter.is_cut else record
            with bus.group_transaction(subscriber) as together:
                headers = original_headers(sent_back.headers)
                together.publish(letter.stream, sent_back.value, key=sent_back.key, headers=headers)
                together.confirm(record)
            sent += 1
    return sent


def _dead_letter(record: Record) -> DeadLetter:
    facts = {name: value.decode(errors="replace") for name, value in record.headers if name.startswith("dlq-")}
    if "dlq-stream" not in facts:
        raise DataError(reason=f"Record {record.offset} of {record.stream} is not a dead letter: it has no dlq-stream.")
    return DeadLetter(
        record=record,
        stream=facts["dlq-stream"],
        offset=int(facts.get("dlq-offset", -1)),
        group=facts.get("dlq-group", ""),
        attempts=int(facts.get("dlq-attempts", 0)),
        reason=facts.get("dlq-reason", ""),
        is_cut=VALUE_CUT in facts,
    )
