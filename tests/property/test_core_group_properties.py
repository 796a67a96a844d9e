"""Seats and groups: any records in any order, against slow and obvious bookkeeping."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.group import Beat, Claim, Confirm, GroupState, Leave, Record, Release, Reset, Snapshot, fold, restore

calm = settings(deadline=None, max_examples=150)  # a busy machine is no failure
members = st.sampled_from(["p1", "p2", "p3"])
seats = st.sampled_from(["a", "b"])
epochs = st.integers(0, 6)
offsets = st.integers(-1, 30)
wishes = st.lists(seats, unique=True).map(tuple)

records: st.SearchStrategy[Record] = st.one_of(
    st.builds(Beat, members, st.integers(0, 9), wishes, st.dictionaries(seats, epochs)),
    st.builds(Claim, members, seats, epochs, offsets, st.none() | offsets),
    st.builds(Release, members, seats, epochs),
    st.builds(Confirm, members, seats, epochs, offsets),
    st.builds(Reset, seats, offsets, st.sampled_from(["r1", "r2", "r3"])),
    st.builds(Leave, members, offsets),
    st.builds(Snapshot, offsets, st.just(GroupState())),
)
logs = st.lists(records, max_size=40)


@st.composite
def likely_logs(draw) -> list[Record]:
    """Records of members that mostly know what is going on: more of them count than of random ones."""
    log: list[Record] = []
    state = GroupState()
    for at in range(draw(st.integers(0, 40))):
        seat, member = draw(seats), draw(members)
        now = state.seat(seat)
        likely = [
            Claim(member, seat, now.epoch + 1, at - draw(st.integers(1, 4)), draw(st.none() | st.integers(0, 9))),
            Beat(now.owner or member, at, ("a", "b"), {seat: now.epoch} if now.owner else {}),
            Confirm(now.owner or member, seat, now.epoch, draw(st.integers(0, 30))),
            Release(now.owner or member, seat, now.epoch),
            Reset(seat, draw(st.integers(0, 9)), f"r{draw(st.integers(0, 20))}"),
        ]
        again = [draw(st.sampled_from(log))] if log else []
        log.append(draw(st.sampled_from(likely + again)))
        state = fold(state, at, log[-1])
    return log


def states(log: list[Record]) -> list[GroupState]:
    """The state before the first record, and after each."""
    result = [GroupState()]
    for at, record in enumerate(log):
        result.append(fold(result[-1], at, record))
    return result


class SlowSeat:
    """One seat, told record by record in plain words."""

    def __init__(self) -> None:
        self.epoch, self.owner, self.sign, self.start, self.confirmed = 0, None, -1, None, None

    def mine(self, record) -> bool:
        return record.member == self.owner and record.epoch == self.epoch

    def tell(self, name: str, at: int, record: Record, requests: set[str]) -> None:
        if isinstance(record, Claim) and record.seat == name:
            if record.epoch > self.epoch and record.seen >= self.sign:
                if self.start is None and self.confirmed is None:
                    self.start = record.start
                self.epoch, self.owner, self.sign = record.epoch, record.member, at
        elif isinstance(record, Beat) and name in record.held:
            epoch = record.held[name]
            if epoch > self.epoch or (epoch == self.epoch and record.member == self.owner):
                self.epoch, self.owner, self.sign = epoch, record.member, at
        elif isinstance(record, Release) and record.seat == name and self.mine(record):
            self.owner, self.sign = None, at
        elif isinstance(record, Confirm) and record.seat == name and self.mine(record):
            self.confirmed = record.offset if self.confirmed is None else max(self.confirmed, record.offset)
        elif isinstance(record, Reset) and record.seat == name and record.request not in requests:
            self.epoch, self.owner, self.sign, self.start, self.confirmed = self.epoch + 1, None, at, record.start, None


@calm
@given(logs | likely_logs())
def test_the_fold_is_what_plain_bookkeeping_says(log) -> None:
    books, requests = {"a": SlowSeat(), "b": SlowSeat()}, set()
    for at, (record, state) in enumerate(zip(log, states(log)[1:], strict=True)):
        for name, book in books.items():
            book.tell(name, at, record, requests)
            seat = state.seat(name)
            found = (seat.epoch, seat.owner, seat.counted, seat.start, seat.confirmed)
            assert found == (book.epoch, book.owner, book.sign, book.start, book.confirmed)
        if isinstance(record, Reset):
            requests.add(record.request)


@calm
@given(logs | likely_logs())
def test_an_epoch_has_at_most_one_owner(log) -> None:
    owners: dict[tuple[str, int], set[str]] = {}
    for state in states(log):
        for name, seat in state.seats.items():
            if seat.owner is not None:
                owners.setdefault((name, seat.epoch), set()).add(seat.owner)
    assert all(len(who) == 1 for who in owners.values())


@calm
@given(logs | likely_logs())
def test_epochs_never_go_back_and_positions_only_by_a_reset(log) -> None:
    folded = states(log)
    for record, before, after in zip(log, folded, folded[1:], strict=False):
        for name in ("a", "b"):
            had, has = before.seat(name), after.seat(name)
            assert has.epoch >= had.epoch
            if had.confirmed is not None and not isinstance(record, Reset):
                assert has.confirmed is not None
                assert has.confirmed >= had.confirmed


@calm
@given(logs | likely_logs(), st.data())
def test_a_snapshot_and_the_rest_are_the_whole(log, data) -> None:
    # Given a snapshot taken anywhere
    folded = states(log)
    cut = data.draw(st.integers(0, len(log)))
    state = restore(Snapshot(cut - 1, folded[cut]))
    assert state == folded[cut]
    # When a fold begins there, and sees some of what is in it again
    for at in range(data.draw(st.integers(0, cut)), len(log)):
        state = fold(state, at, log[at])
    # Then nothing is different
    assert state == folded[-1]


@calm
@given(likely_logs(), st.data())
def test_every_record_may_land_twice_at_once(log, data) -> None:
    """A copy right after its original changes nothing but the last sign of life."""
    if not log:
        return
    at = data.draw(st.integers(0, len(log) - 1))
    once, twice = states(log[: at + 1])[-1], states([*log[: at + 1], log[at]])[-1]
    for name in ("a", "b"):
        one, two = once.seat(name), twice.seat(name)
        assert (one.epoch, one.owner, one.resume) == (two.epoch, two.owner, two.resume)
