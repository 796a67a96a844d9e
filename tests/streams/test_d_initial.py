"""Part D: where a subscriber begins; one test for each cell of the table, and what a stored position changes."""

from __future__ import annotations

import pytest
from worlds import CALM, publish, take, values

from lockstep.errors import BadConfig, GroupGap, PositionNotFound


@pytest.fixture
def stream(bus):
    """Two records are there already."""
    publish(bus, "orders", b"0", b"1")
    return bus


def confirmed_up_to_0(bus):
    """The group has confirmed the first record and has no members now."""
    with bus.subscriber("orders", group="g", initial="earliest", group_options=CALM) as member:
        take(member, 2)
        member.confirm(0, sync=True)


def test_d1_none_alone_is_refused(stream):
    with pytest.raises(BadConfig, match=r"initial = 'none'.*no stored position"):
        stream.subscriber("orders", initial="none")


def test_d2_earliest_alone_begins_at_the_first_record(stream):
    reader = stream.subscriber("orders", initial="earliest")
    assert reader.offset() == 0
    assert values(take(reader, 2)) == [b"0", b"1"]


def test_d2_earliest_is_the_first_record_that_is_left(stream):
    # Given that the beginning was trimmed
    stream.trim("orders", 1)
    # When somebody begins at the earliest
    reader = stream.subscriber("orders", initial="earliest", on_gap="fail")
    # Then that is the head, without a gap and without skipping what is readable
    batch = reader.poll()
    assert (batch.gap, batch.values()) == (None, [b"1"])


def test_d3_latest_alone_reads_only_what_comes(stream):
    reader = stream.subscriber("orders", initial="latest")
    assert not reader.poll()
    publish(stream, "orders", b"2")
    assert values(take(reader, 1)) == [b"2"]


def test_d4_auto_alone_is_latest(stream):
    reader = stream.subscriber("orders")
    assert not reader.poll()
    publish(stream, "orders", b"2")
    assert values(take(reader, 1)) == [b"2"]


def test_d5_none_in_a_group_without_position_is_refused(stream):
    with pytest.raises(PositionNotFound, match=r"'g'.*orders"):
        stream.subscriber("orders", group="g", initial="none")


def test_d6_earliest_in_a_group_begins_at_the_first_record(stream):
    member = stream.subscriber("orders", group="g", initial="earliest", group_options=CALM)
    assert values(take(member, 2)) == [b"0", b"1"]


def test_d7_latest_in_a_group_reads_only_what_comes(world, stream):
    member = stream.subscriber("orders", group="g", initial="latest", group_options=CALM)
    world.until(lambda: member.is_assigned)
    assert not member.poll()
    publish(stream, "orders", b"2")
    assert values(take(member, 1)) == [b"2"]


def test_d7_latest_is_kept_from_the_first_assignment_on(world, stream):
    """Decision D4: a fail-over before the first confirmation loses nothing."""
    # Given a group that began at the latest, and confirmed nothing
    with stream.subscriber("orders", group="g", initial="latest", group_options=CALM) as member:
        world.until(lambda: member.is_assigned)
    # When records come while nobody is there, and a new member joins, with the same wish
    publish(stream, "orders", b"2", b"3")
    heir = stream.subscriber("orders", group="g", initial="latest", group_options=CALM)
    # Then it gets them
    assert values(take(heir, 2)) == [b"2", b"3"]


def test_d8_auto_in_a_group_is_earliest(stream):
    member = stream.subscriber("orders", group="g", group_options=CALM)
    assert values(take(member, 2)) == [b"0", b"1"]


@pytest.mark.parametrize("initial", ["none", "earliest", "latest", "auto"])
def test_d9_a_stored_position_goes_before_the_scheme(stream, initial):
    confirmed_up_to_0(stream)
    member = stream.subscriber("orders", group="g", initial=initial, group_options=CALM)
    assert values(take(member, 1)) == [b"1"]


def test_d9_a_start_that_was_chosen_is_a_stored_position_too(world, stream):
    with stream.subscriber("orders", group="g", initial="earliest", group_options=CALM) as member:
        world.until(lambda: member.is_assigned)
    again = stream.subscriber("orders", group="g", initial="none", group_options=CALM)
    assert values(take(again, 2)) == [b"0", b"1"]


def test_d9_a_stored_position_that_was_trimmed_is_a_gap_and_not_the_scheme(stream):
    confirmed_up_to_0(stream)
    publish(stream, "orders", b"2", b"3")
    stream.trim("orders", 3)
    member = stream.subscriber("orders", group="g", initial="latest", on_gap="fail", group_options=CALM)
    with pytest.raises(GroupGap, match=r"Group 'g' missed .* of orders: 1 to"):
        take(member, 1)


@pytest.mark.parametrize("group", [None, "g"])
def test_d10_an_unknown_scheme_is_refused(stream, group):
    with pytest.raises(BadConfig, match="choose one of auto, earliest, latest, none"):
        stream.subscriber("orders", group=group, initial="first")
