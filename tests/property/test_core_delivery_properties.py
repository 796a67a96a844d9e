"""The ledger of deliveries says what a reading of the whole log, from the definitions, says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.delivery import (
    DEAD,
    DONE,
    OUTCOMES,
    SKIPPED,
    Barrier,
    Begun,
    Ended,
    Entry,
    Ledger,
)
from lockstep.streams.carrier_shard import decode, encode

OFFSETS = {"a": 3, "b": 7}
EPOCHS, OWNERS, ATTEMPTS = st.integers(1, 4), st.sampled_from(["x", "y"]), st.integers(1, 3)
IDS = st.sampled_from(sorted(OFFSETS))
BEGUN = st.builds(lambda epoch, owner, item, attempt: Begun(epoch, owner, item, OFFSETS[item], attempt),
                  EPOCHS, OWNERS, IDS, ATTEMPTS)  # fmt: skip
ENDED = st.builds(
    lambda epoch, owner, item, attempt, outcome: Ended(epoch, owner, item, OFFSETS[item], attempt, outcome),
    EPOCHS, OWNERS, IDS, ATTEMPTS, st.sampled_from(OUTCOMES),
)  # fmt: skip
ENTRIES = st.lists(st.one_of(st.builds(Barrier, EPOCHS, OWNERS), BEGUN, BEGUN, ENDED), max_size=14)


def in_force(before: list[Entry]) -> tuple[int, str | None]:
    """The owner of the highest epoch: of those that wrote in it, the first."""
    highest = max((entry.epoch for entry in before), default=0)
    return highest, next((entry.owner for entry in before if entry.epoch == highest), None)


def is_decided_by_owner(entries: list[Entry], place: int) -> bool:
    entry = entries[place]
    return in_force(entries[: place + 1]) == (entry.epoch, entry.owner)


def finished(entries: list[Entry], item: str) -> str | None:
    """How an item ended: done, whoever says so; given up or skipped, if its owner decided that."""
    ends = [(place, entry) for place, entry in enumerate(entries) if isinstance(entry, Ended) and entry.id == item]
    if any(entry.outcome == DONE for _, entry in ends):
        return DONE
    decided = [entry.outcome for place, entry in ends
               if entry.outcome in (DEAD, SKIPPED) and is_decided_by_owner(entries, place)]  # fmt: skip
    return decided[0] if decided else None


def counted(entries: list[Entry], item: str) -> list[tuple[int, Begun]]:
    """The attempts that were begun by the owner in force, each with a number above those before it."""
    found: list[tuple[int, Begun]] = []
    for place, entry in enumerate(entries):
        if not isinstance(entry, Begun) or entry.id != item or finished(entries[:place], item):
            continue
        if is_decided_by_owner(entries, place) and entry.attempt > max((one.attempt for _, one in found), default=0):
            found.append((place, entry))
    return found


def open_marks(entries: list[Entry], item: str) -> set[tuple[int, str, int, int]]:
    """Attempts that were begun and did not end."""
    if finished(entries, item):
        return set()
    return {
        begun.mark
        for place, begun in counted(entries, item)
        if not any(isinstance(later, Ended) and (later.id, later.mark) == (item, begun.mark)
                   for later in entries[place + 1 :])
    }  # fmt: skip


def doubts(entries: list[Entry]) -> set[tuple[str, tuple[int, str, int, int]]]:
    """What was open when a higher epoch began."""
    found = set()
    for place, entry in enumerate(entries):
        if entry.epoch > in_force(entries[:place])[0]:
            found |= {(item, mark) for item in OFFSETS for mark in open_marks(entries[:place], item)}
    return found


def folded(entries: list[Entry]) -> Ledger:
    ledger = Ledger()
    for place, entry in enumerate(entries):
        ledger.apply(place * 3, entry)
    return ledger


@settings(max_examples=250, deadline=None)
@given(ENTRIES)
def test_the_fold_says_what_the_definitions_say(entries):
    ledger = folded(entries)
    assert (ledger.epoch, ledger.owner) == in_force(entries)
    for item in OFFSETS:
        settled = ledger.settled.get(item)
        assert (settled.outcome if settled else None) == finished(entries, item)
        pending = ledger.pending.get(item)
        assert (pending.open if pending else set()) == open_marks(entries, item)
    assert ledger.doubts.keys() == doubts(entries)


@settings(max_examples=100, deadline=None)
@given(ENTRIES, st.data())
def test_copies_that_land_later_change_nothing(entries, data):
    # A copy of a record lands at any place after it, within the epoch that was in force
    if not entries:
        return
    place = data.draw(st.integers(0, len(entries) - 1))
    later = next((at for at in range(place + 1, len(entries)) if entries[at].epoch > in_force(entries[:at])[0]),
                 len(entries))  # fmt: skip
    copy_at = data.draw(st.integers(place + 1, later))
    doubled = [*entries[:copy_at], entries[place], *entries[copy_at:]]
    first, second = folded(entries), folded(doubled)
    assert first.doubts.keys() == second.doubts.keys()
    assert {item: end.outcome for item, end in first.settled.items()} == {
        item: end.outcome for item, end in second.settled.items()
    }


@settings(max_examples=100, deadline=None)
@given(ENTRIES)
def test_what_is_trimmed_is_not_missed(entries):
    """A fold that begins where the ledger is still needed knows what is unfinished, and what is finished."""
    whole = folded(entries)
    needed = whole.needed_from()
    rest = Ledger()
    for place, entry in enumerate(entries):
        if place * 3 >= needed:
            rest.apply(place * 3, entry)
    assert {item: end.outcome for item, end in rest.settled.items()} == {
        item: end.outcome for item, end in whole.settled.items()
    }
    assert {item: one.open for item, one in rest.pending.items() if one.open} == {
        item: one.open for item, one in whole.pending.items() if one.open
    }


@settings(max_examples=100, deadline=None)
@given(st.one_of(BEGUN, ENDED, st.builds(Barrier, EPOCHS, OWNERS), st.just(folded([]).memo())))
def test_records_come_back_from_json_as_they_were(entry):
    assert decode(encode(entry)) == entry
