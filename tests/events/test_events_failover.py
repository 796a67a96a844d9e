"""Publishers of a group on one bus: who is active, who stands by, who is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from event_worlds import SCHEMA, Desk, blocks_in, event

from lockstep.engine.errors import SourceDiffers
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.frames import decode_frame
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.errors import BadName, TimedOut
from lockstep.events import failover
from lockstep.events.failover import FailoverPublisher, RoleChange
from lockstep.runtime import EventWaiter
from lockstep.streams.options import GroupOptions

WAITER = EventWaiter()
FAST = GroupOptions(lease_s=0.2, beat_s=0.04)


@pytest.fixture
def desk(tmp_path):
    desk = Desk(f"memory:{tmp_path.name}")
    yield desk
    desk.close()


def block(number: int) -> EventBatch:
    return EventBatch.of(SCHEMA, [(1, [event(number)])])


def publisher(desk: Desk, roles: list[RoleChange] | None = None, **options) -> FailoverPublisher:
    node = desk.project.source("Trades")
    told = roles if roles is not None else []
    return FailoverPublisher(desk.project, node, "feed", options=FAST, on_role=told.append, **options)


def until(condition: Callable[[], bool], *publishers: FailoverPublisher) -> None:
    for _ in range(2000):
        if condition():
            return
        for one in publishers:
            one.pump()
        WAITER.wait(0.02)
    raise AssertionError("it did not come about")


def numbers(desk: Desk) -> list[int]:
    """The ids of the events on the input, as an engine counts their blocks."""
    taken: list[int] = []
    for number, events in blocks_in(desk.input):
        if number == len(taken) + 1:
            taken.append(events[0].values[0])
    return taken


def feed(one: FailoverPublisher, *wanted: int) -> None:
    for number in wanted:
        one.offer(block(number))


def test_one_is_active_and_the_other_takes_over_where_it_was(desk):
    # Given two with the same source, of which the first is active and sends three blocks
    roles: list[RoleChange] = []
    first, second = publisher(desk), publisher(desk, roles)
    until(lambda: first.is_active, first)
    feed(first, 10, 20, 30)
    feed(second, 10, 20, 30, 40)
    until(lambda: first.relay.unseen == 0 and second.relay.seen == 3, first, second)
    assert not second.is_active
    assert second.relay.unseen == 1
    # When it goes, and the other reads on
    first.close()
    until(lambda: second.is_active, second)
    feed(second, 50)
    second.finish(timeout=30)
    # Then everything is there once
    assert numbers(desk) == [10, 20, 30, 40, 50]
    assert [(role.role, role.last, role.built) for role in roles] == [("active", 3, 4)]
    second.close()


def test_who_takes_over_reads_to_the_end_before_it_sends(desk, monkeypatch):
    monkeypatch.setattr(failover, "_SEE", 1)
    roles: list[RoleChange] = []
    first, second = publisher(desk), publisher(desk, roles)
    until(lambda: first.is_active, first)
    second.pump()
    feed(first, *range(1, 31))
    until(lambda: first.relay.unseen == 0, first)
    feed(second, *range(1, 32))
    # When the other has the seat, and has read but a part of what is there
    first.close()
    until(lambda: bool(second._member.held()))
    second.pump()
    assert not second.is_active
    # Then it reads the rest before it sends
    second.finish(timeout=30)
    assert [(role.last, role.built) for role in roles] == [(30, 31)]
    assert [number for number, _ in blocks_in(desk.input)] == list(range(1, 32))
    second.close()


def test_a_silent_one_loses_its_place_and_its_late_blocks_are_copies(desk):
    first, second = publisher(desk), publisher(desk)
    until(lambda: first.is_active, first)
    feed(first, 1, 2, 3)
    feed(second, 1, 2, 3)
    # When the first is silent, as under kill -9, before it has sent
    first._member._task.stop()
    until(lambda: second.is_active, second)
    second.finish(timeout=30)
    first._send()  # and wakes up late: it does not know yet
    first._publisher.flush()
    # Then there are copies on the stream, and none of them counts
    assert len(blocks_in(desk.input)) > 3
    assert numbers(desk) == [1, 2, 3]
    until(lambda: not first.is_active, first)
    first.close()
    second.close()


def test_both_end_when_everything_is_on_the_stream(desk):
    first, second = publisher(desk), publisher(desk)
    until(lambda: first.is_active, first)
    feed(first, 1, 2)
    feed(second, 1, 2)
    first.finish(timeout=30)
    second.finish(timeout=30)
    assert numbers(desk) == [1, 2]
    first.close()
    second.close()


def test_a_restarted_one_that_reads_from_the_start_gets_in_step(desk):
    first = publisher(desk, check_every=2)
    feed(first, 1, 2, 3, 4, 5)
    first.finish(timeout=30)
    first.close()
    again = publisher(desk)
    feed(again, 1, 2, 3, 4, 5, 6)
    again.finish(timeout=30)
    assert numbers(desk) == [1, 2, 3, 4, 5, 6]
    again.close()


def test_a_restarted_one_that_misses_the_start_is_refused_and_never_active(desk):
    first = publisher(desk)
    feed(first, 1, 2, 3)
    first.finish(timeout=30)
    roles: list[RoleChange] = []
    late = publisher(desk, roles)
    with pytest.raises(SourceDiffers) as told:  # noqa: PT012 - whichever look finds it first
        feed(late, 2, 3, 4)
        late.finish(timeout=30)
    assert told.value.params["id"] in (1, 3)
    late.close()
    # And the one that is right goes on
    until(lambda: first.is_active, first)
    feed(first, 4)
    first.finish(timeout=30)
    assert numbers(desk) == [1, 2, 3, 4]
    assert roles == []
    first.close()


def test_a_wrong_source_is_found_by_its_check_when_the_blocks_are_gone(desk):
    # Given blocks that an engine has taken and trimmed
    first = publisher(desk)
    feed(first, 1, 2, 3)
    first.finish(timeout=30)
    first.close()
    end = desk.input.bounds().next
    position = SequencePosition(ends={"q/Trades": end}, clients={f"q/Trades/{first.client.hex()}": 3})
    desk.bus.open(desk.streams.control).append([Beat(position=position.tree()).batch(0)])
    desk.input.trim(end)
    # When one comes with another source
    late = publisher(desk)
    assert late.relay.seen == 3
    with pytest.raises(SourceDiffers) as told:  # noqa: PT012 - whichever look finds it first
        feed(late, 2, 3, 4)
        late.finish(timeout=30)
    # Then the check of the third block says so
    assert told.value.params["id"] == 3
    late.close()
    good = publisher(desk)
    feed(good, 1, 2, 3, 4)
    good.finish(timeout=30)
    assert [(number, events[0].values[0]) for number, events in blocks_in(desk.input)] == [(4, 4)]
    good.close()


def test_a_source_that_ends_before_what_is_published_is_refused(desk):
    first = publisher(desk)
    feed(first, 1, 2, 3)
    first.finish(timeout=30)
    first.close()
    short = publisher(desk)
    feed(short, 1, 2)
    with pytest.raises(SourceDiffers, match="ends with block 2"):
        short.finish(timeout=30)
    short.close()


def test_told_to_end_a_standby_goes_and_the_active_one_sends_what_it_has(desk):
    first, second = publisher(desk), publisher(desk)
    until(lambda: first.is_active, first)
    feed(first, 1, 2, 3)
    feed(second, 1)
    first.stop()
    second.stop()
    second.close()
    first.close()
    assert numbers(desk) == [1, 2, 3]


def test_a_source_that_may_go_on_may_be_shorter_than_what_is_published(desk):
    first, second = publisher(desk), publisher(desk)
    until(lambda: first.is_active, first)
    feed(first, 1, 2, 3)
    first.finish(timeout=30)
    feed(second, 1, 2)
    second.finish(timeout=30, is_whole=False)
    first.close()
    second.close()
    assert numbers(desk) == [1, 2, 3]


def test_a_full_buffer_waits_and_drops_nothing(desk):
    first, second = publisher(desk), publisher(desk, buffered=2)
    until(lambda: first.is_active, first)
    feed(second, 1, 2)
    assert not second.relay.has_room
    second.pump()
    assert second.relay.unseen == 2
    feed(first, 1, 2, 3)
    first.pump()
    feed(second, 3)  # waits until the first one's blocks were seen
    second.finish(timeout=30)
    assert numbers(desk) == [1, 2, 3]
    first.close()
    second.close()


def test_transactional_blocks_are_marked(desk):
    one = publisher(desk, transactional=True)
    feed(one, 1)
    one.finish(timeout=30)
    one.close()
    ((_, value),) = values_between(desk.input, 0, 1)
    assert decode_frame(value, SCHEMA).transactional.tolist() == [1]


def test_waiting_has_a_bound_and_names_are_checked(desk):
    with pytest.raises(BadName):
        FailoverPublisher(desk.project, desk.project.source("Trades"), "no good")
    first, second = publisher(desk), publisher(desk)
    until(lambda: first.is_active, first)
    feed(second, 1)
    with pytest.raises(TimedOut, match="Publishing 1 blocks"):
        second.finish(timeout=0)
    first.close()
    second.close()
