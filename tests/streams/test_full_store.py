"""A store without room: publishers are refused, and readers, groups, trimming and deleting go on."""

from __future__ import annotations

import pytest
from worlds import CALM, World, publish, take

from lockstep import StreamConfig
from lockstep.errors import ConfigMismatch, IllegalState, StoreFull
from lockstep.log.lmdb.tables import delete_ballast, reserved_bytes
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing import VirtualRuntime

KEEP_ALL = StreamConfig(capacity=None)


def small_world(tmp_path, map_bytes=2 << 20):
    runtime = ThreadRuntime()
    url = f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={map_bytes}"
    return World(runtime, lambda: open_bus(url, runtime))


@pytest.fixture
def small(tmp_path):
    world = small_world(tmp_path)
    yield world
    world.close()


def fill_with_records(node, stream="orders"):
    with node.publisher(stream, config=KEEP_ALL) as publisher:
        publish_until_full(publisher)


def publish_until_full(publisher):
    for _ in range(10_000):
        if isinstance(publisher.publish(b"x" * 4000).exception(20), StoreFull):
            return
    raise AssertionError("the store is not full")


def fill_with_state(node):
    for number in range(10_000):
        try:
            with node.transaction() as changes:
                for part in range(10):
                    changes.put(f"{number}.{part}", b"x" * 1000)
        except StoreFull:
            return
    raise AssertionError("the store is not full")


def test_in_a_full_store_groups_are_joined_and_confirm(small):
    # Given a store that is full
    node = small.node()
    publish(node, "orders", b"a", b"b", config=KEEP_ALL)
    fill_with_records(node)
    fill_with_state(node)
    # When a group begins to read
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        take(member, 2)
        # Then it can confirm, again and again
        for offset in (0, 1):
            member.confirm(offset, sync=True)
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        assert take(member, 1)[0].offset == 2


def test_in_a_full_store_a_group_can_confirm_what_is_protected_and_publishing_goes_on(small):
    node = small.node()
    config = StreamConfig(capacity=1, protect=True)
    with node.subscriber("orders", group="g", config=config, group_options=CALM) as member:
        small.until(lambda: member.is_assigned)
        with node.publisher("orders") as publisher:
            publish_until_full(publisher)
        end = node.bounds("orders").next
        take(member, end)
        member.confirm(sync=True)
        # What is confirmed may go, so there is room again
        small.until(lambda: publishes(node))


def publishes(node):
    with node.publisher("orders") as publisher:
        return publisher.publish(b"x").exception(20) is None


@pytest.mark.parametrize("fill", [fill_with_records, fill_with_state])
def test_a_full_store_can_be_trimmed_and_streams_deleted(small, fill):
    node = small.node()
    publish(node, "orders", *[b"x" * 4000] * 20, config=KEEP_ALL)
    publish(node, "bills", *[b"x" * 4000] * 20, config=KEEP_ALL)
    fill(node)
    node.trim("orders", node.bounds("orders").next)
    node.delete("bills")
    assert node.bounds("orders").count == 0
    assert node.streams() == ["orders"]
    publish(node, "orders", b"again")


def test_state_in_a_full_store_can_be_replaced_and_removed(small):
    node = small.node()
    with node.transaction() as changes:
        changes.put("mine", b"x" * 1000)
    fill_with_records(node)
    fill_with_state(node)
    with node.transaction() as changes:
        changes.put("mine", b"y" * 1000)
    with node.transaction() as changes:
        changes.put("mine", None)


def test_the_map_can_be_enlarged_but_not_made_smaller(tmp_path):
    # Given a full store that nobody has open
    world = small_world(tmp_path)
    fill_with_records(world.node())
    world.close()
    # When it is opened with a larger map
    world = small_world(tmp_path, 4 << 20)
    # Then there is room again, and that stays so
    publish(world.node(), "orders", b"x" * 4000)
    world.close()
    with pytest.raises(ConfigMismatch, match="map_bytes"):
        small_world(tmp_path).node()


def test_a_larger_map_is_for_all_who_have_the_store_open_in_this_process(tmp_path):
    small = small_world(tmp_path)
    node = small.node()
    fill_with_records(node)
    large = small_world(tmp_path, 4 << 20)
    publish(large.node(), "bills", b"x" * 4000)
    publish(node, "orders", b"x" * 4000)
    large.close()
    small.close()


def test_a_map_is_not_exchanged_while_a_view_is_open(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={1 << 20}", ThreadRuntime())
    environment = bus._store.environment
    with bus.snapshot(), pytest.raises(IllegalState, match="has a view or a transaction open"):
        environment.resize(2 << 20, within_s=0.0)
    environment.resize(2 << 20)
    assert environment.map_bytes == 2 << 20
    bus.create("orders", KEEP_ALL)
    bus.close()


@pytest.mark.parametrize("size", [100, 1000, 2030, 2040, 4100, 9000])
def test_state_stored_in_one_step_leaves_the_room_that_is_kept_from_users(tmp_path, size):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={2 << 20}", ThreadRuntime())
    bus.create("orders", KEEP_ALL)
    environment = bus._store.environment

    def is_stored(count):
        try:
            bus.atomic(lambda changes: [changes.put(b"%06d" % number, b"x" * size) for number in range(count)])
        except StoreFull:
            return False
        return True

    most = environment.map_bytes // size
    accepted = next(count for count in range(most, 0, -max(most // 40, 1)) if is_stored(count))
    with environment.begin_write() as transaction:
        left, users = environment.room(transaction), environment.map_bytes - reserved_bytes(environment.map_bytes)
    assert left >= 0, "users took none of the reserve"
    assert left < users // 8, "and were not refused for nothing"
    bus.delete("orders")
    bus.atomic(lambda changes: [changes.put(b"%06d" % number, None) for number in range(accepted)])
    bus.close()


def test_groups_have_a_ballast_of_their_own_on_a_full_disk(small, tmp_path):
    small.node()
    folder = tmp_path / "bus"
    assert delete_ballast(folder, for_groups=True)
    assert not delete_ballast(folder, for_groups=True)
    assert (folder / "ballast").exists()
    assert delete_ballast(folder)


def test_records_past_their_age_make_room_in_a_full_store(tmp_path):
    # Given a store that is full of records whose time is up
    runtime = VirtualRuntime()
    world = World(runtime, lambda: open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={1 << 20}", runtime))
    node = world.node()
    config = StreamConfig(capacity=None, retain_age_s=60)
    with node.publisher("orders", config=config) as publisher:
        publish_until_full(publisher)
    runtime.advance(61)
    # When something is published
    # Then they go, and it is stored
    publish(node, "orders", b"new")
    world.close()
