"""Publishers that stand in for each other, as a state machine: whatever happens, each block goes out once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import SourceDiffers
from lockstep.events.failover import Check, Relay, digest_of

GROUP = "feed"


def frames(count: int, start: int = 1, mark: str = "") -> list[bytes]:
    return [f"block {number}{mark}".encode() for number in range(start, start + count)]


def relay(blocks: list[bytes] = (), **options) -> Relay:
    made = Relay(GROUP, **options)
    build(made, blocks)
    return made


def build(one: Relay, blocks: list[bytes]) -> None:
    for block in blocks:
        one.build(block)


def see(one: Relay, *numbers: int, mark: str = "") -> None:
    for number in numbers:
        one.see(number, number, f"block {number}{mark}".encode())


def test_a_standby_sends_nothing_and_keeps_what_was_not_seen():
    one = relay(frames(3))
    see(one, 1)
    assert one.to_send() == []
    assert one.unseen == 2


def test_whoever_takes_over_sends_what_was_not_seen_and_then_what_follows():
    one = relay(frames(3))
    see(one, 1)
    one.lead()
    assert one.to_send() == frames(2, 2)
    assert one.to_send() == []
    one.build(b"block 4")
    assert one.to_send() == frames(1, 4)
    see(one, 2, 3, 4)
    assert one.unseen == 0


def test_who_leads_again_sends_again_what_was_not_seen():
    one = relay(frames(2))
    one.lead()
    assert one.to_send() == frames(2)
    one.follow()
    assert one.to_send() == []
    see(one, 1)
    one.lead()
    assert one.to_send() == frames(1, 2)


def test_copies_change_nothing():
    one = relay(frames(2))
    see(one, 1, 1, 2, 1, 2)
    assert (one.seen, one.unseen) == (2, 0)


def test_a_full_buffer_has_no_room_until_something_was_seen():
    one = relay(frames(3), room=3)
    assert not one.has_room
    see(one, 1)
    assert one.has_room


def test_what_is_ahead_of_the_source_is_bounded_too():
    one = relay(room=2)
    see(one, 1, 2)
    assert not one.may_see
    assert not one.may_lead
    one.build(b"block 1")
    assert one.may_see


@pytest.mark.parametrize("is_built_first", [True, False])
def test_another_block_under_the_same_number_is_refused(is_built_first):
    one = relay(frames(2) if is_built_first else [])
    see(one, 1)
    with pytest.raises(SourceDiffers) as told:  # noqa: PT012 - one of them notices first
        see(one, 2, mark=" of somebody else")
        build(one, frames(2))
    assert told.value.params["id"] == 2


def test_a_source_that_was_not_read_from_its_start_is_refused_by_a_check():
    # Given checks of an active one, and blocks that nobody can read any more
    before = relay(frames(10), every=5)
    see(before, *range(1, 11))
    before.lead()
    check = before.check_due()
    assert check is not None
    # When one comes that read from the third block on
    late = relay(seen=10)
    late.check(check)
    assert not late.may_lead
    with pytest.raises(SourceDiffers) as told:
        build(late, frames(10, 3))
    assert told.value.params["id"] == 10
    # Then one that read everything is fine
    good = relay(seen=10)
    good.check(check)
    build(good, frames(10))
    assert good.may_lead
    good.lead()
    good.build(b"block 11")
    assert good.to_send() == [b"block 11"]


def test_a_check_that_comes_after_the_block_is_compared_too():
    one = relay(frames(10))
    with pytest.raises(SourceDiffers):
        one.check(Check(7, digest_of(b"something else")))


def test_a_check_of_blocks_long_ago_is_let_be():
    one = relay(frames(60), room=5, every=5)
    one.check(Check(1, b"unknown"))
    assert one.checked == 1


def test_checks_are_written_every_so_often_and_when_asked():
    one = relay(frames(20), every=5)
    assert one.check_due(now=True) is None
    one.lead()
    see(one, 1, 2, 3, 4)
    assert one.check_due() is None
    asked = one.check_due(now=True)
    assert asked is not None
    assert asked.id == 4
    see(one, 5)
    due = one.check_due()
    assert due is not None
    assert due.id == 5
    one.checked = 5
    assert one.check_due(now=True) is None


def test_a_source_that_ends_too_early_is_refused():
    one = relay(frames(2))
    see(one, 1, 2)
    one.end()
    see(one, 3)
    with pytest.raises(SourceDiffers, match="ends with block 2"):
        one.end()
    other = relay(frames(2))
    other.check(Check(5, b"d"))
    with pytest.raises(SourceDiffers):
        other.end()


def test_several_blocks_in_one_frame_are_taken_as_seen():
    one = relay(frames(3))
    one.see(1, 2, b"many")
    assert (one.seen, one.unseen) == (2, 1)


class World:
    """Publishers that come, go, lead and stall; one input stream that counts each number once."""

    def __init__(self, total: int, room: int) -> None:
        self.source, self.room = frames(total), room
        self.stream: list[tuple[int, bytes]] = []
        self.late: list[tuple[int, bytes]] = []
        self.checks: list[Check] = []
        self.members: list[tuple[Relay, list[int]]] = []

    def join(self) -> None:
        self.members.append((Relay(GROUP, room=self.room, every=3), [0, 0, 0]))

    def act(self, at: int, what: int) -> None:
        if not self.members:
            return
        one, (read, built, checks) = self.members[at % len(self.members)]
        if what == 0 and built < len(self.source) and one.has_room:
            one.build(self.source[built])
            built += 1
        elif what == 1 and read < len(self.stream) and one.may_see:
            self._see(one, *self.stream[read])
            read += 1
        elif what == 2:
            for check in self.checks[checks:]:
                one.check(check)
            checks = len(self.checks)
        elif what == 3 and one.may_lead and read == len(self.stream):
            one.lead()
        elif what == 4:
            one.follow()
        elif what in (5, 6):
            numbered = [(one.sent - count, frame) for count, frame in enumerate(reversed(one.to_send()))]
            (self.stream if what == 5 else self.late).extend(reversed(numbered))
            check = one.check_due()
            if check is not None:
                one.checked = check.id
                self.checks.append(check)
        elif what == 7:
            self.members.pop(at % len(self.members))
            return
        self.members[at % len(self.members)][1][:] = [read, built, checks]

    def _see(self, one: Relay, number: int, frame: bytes) -> None:
        if number == one.seen + 1:
            one.see(number, number, frame)

    def counted(self) -> list[bytes]:
        """What an engine takes."""
        taken: list[bytes] = []
        for number, frame in self.stream:
            if number == len(taken) + 1:
                taken.append(frame)
        return taken


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=150))
def test_whatever_happens_the_input_is_the_source(total, room, steps):
    world = World(total, room)
    world.join()
    for at, what in steps:
        if what == 8 and len(world.members) < 3:
            world.join()
        elif what == 9 and world.late:  # what somebody sent long ago lands now, in its order
            world.stream.append(world.late.pop(0))
        else:
            world.act(at, what)
        assert world.counted() == world.source[: len(world.counted())]
        for one, _ in world.members:
            assert one.unseen <= room
    # Then one that stays brings it to its end
    world.members = []
    world.join()
    for what in [2, 1, 0, 3, 5] * (3 * total + len(world.stream) + len(world.checks) + 20):
        world.act(0, what)
    assert world.counted() == world.source
