"""Records that wait for a stream which does not take them: nothing is lost, and only what was refused is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import OutboxBlocked, RecordTooLarge, ServerRefused, ServerUnreachable, StoreFull
from lockstep.log.config import StreamConfig
from lockstep.log.embedded import bus as embedded
from lockstep.log.memory import MemoryBroker
from lockstep.log.port import Limits
from lockstep.schedule.rows import Fence, Outgoing
from lockstep.schedule.store import outbox as module
from lockstep.schedule.store.outbox import Outbox, largest_record, unsealed
from lockstep.streams.client import Lockstep
from lockstep.streams.shards import check_size, logs_of, shard_of
from lockstep.testing import FaultPlan, FaultyBus, VirtualRuntime
from lockstep.testing.contract_case import KEEP_ALL, values

ONE = Fence("requests/0", "one", 1)
AWAY = ServerUnreachable(server="bus", reason="planned")
REFUSED = ServerRefused(server="bus", reason="no right to publish")


class World:
    """A bus in memory that does not drop copies unless it is said, and an outbox on it that fails as planned."""

    def __init__(self, *, dedupe=False):
        self.clock, self.plan = VirtualRuntime(), FaultPlan()
        self.bus = MemoryBroker(dedupe=dedupe).bus(self.clock)
        self.streams = Lockstep(self.bus, self.clock)
        self.outbox = Outbox("jobs", FaultyBus(self.bus, self.plan), self.clock)
        self.sent = 0

    def letters(self, *outgoing, refusals=()):
        found = []
        for letter in self.outbox.pack(outgoing, dict(refusals)):
            found.append(letter.numbered("jobs", 0, ONE, self.sent))
            self.sent += letter.batch.count
        return found


@pytest.fixture
def one_at_once(monkeypatch):
    """Each record is a letter, and each letter an append."""
    monkeypatch.setattr(module, "_BATCH_RECORDS", 1)
    monkeypatch.setattr(embedded, "DENSE", Limits(append_records=1))


@pytest.mark.usefixtures("one_at_once")
@pytest.mark.parametrize("error", [REFUSED, AWAY, StoreFull(stream="out", reason="planned")], ids=repr)
@pytest.mark.parametrize("stored", [False, True], ids=["new", "stored"])
def test_what_was_taken_is_not_sent_again(error, stored):
    # Given a stream that takes one of three records
    world = World()
    out = world.bus.create("out", KEEP_ALL)
    letters = world.letters(*(Outgoing("out", text) for text in (b"a", b"b", b"c")))
    world.plan.duplicate().fail(error)  # two copies: it drops none
    published = world.outbox.publish(letters, stored=stored)
    # Then this one need not be kept
    assert published.taken == {0}
    assert published.refused == ({} if error is AWAY else {"out": error})
    assert published.failure == (error if error is AWAY else None)
    # And the others are sent once more
    assert world.outbox.publish(letters[1:], stored=True).taken == {0, 1}
    assert values(out) == [b"a", b"a", b"b", b"c"]


def test_a_stream_that_is_full_does_not_count_as_a_bus_that_is_away():
    world = World()
    world.bus.create("full", StreamConfig(protect=True, protect_bytes=1))
    other = world.bus.create("other", KEEP_ALL)
    published = world.outbox.publish(world.letters(Outgoing("full", b"a"), Outgoing("other", b"b")))
    assert (published.taken, published.refused.keys(), published.failure) == ({1}, {"full"}, None)
    assert values(other) == [b"b"]


def test_newer_records_wait_whichever_shard_refuses():
    """The stream may have been made anew with other shards since it refused."""
    world = World()
    world.streams.create("out", StreamConfig(shards=3))
    with pytest.raises(OutboxBlocked, match="no right to publish") as blocked:
        world.letters(Outgoing("out", b"a", b"key"), refusals={"out": REFUSED, "more/1": REFUSED})
    assert blocked.value.params["streams"] == ["more", "out"]
    world.streams.create("elsewhere")
    assert world.letters(Outgoing("elsewhere", b"a"), refusals={"out": REFUSED})


@pytest.mark.parametrize("shards", [(1, 3), (3, 1), (2, 3), (3, 2), (2, 2)])
@pytest.mark.parametrize("known", [True, False], ids=["same process", "next owner"])
def test_a_stream_made_anew_with_other_shards_gets_all_that_was_refused(shards, known):
    # Given records that are refused, for all shards of a stream
    world = World(dedupe=True)
    world.streams.create("out", StreamConfig(shards=shards[0]))
    names = [b"k%d" % number for number in range(30)]
    letters = world.letters(*(Outgoing("out", name, name) for name in names))
    world.plan.fail(REFUSED, times=len(letters))
    assert not world.outbox.publish(letters).taken
    # When it is made anew with other shards, and one of them takes records later than the others
    world.streams.delete("out")
    world.streams.create("out", StreamConfig(shards=shards[1]))
    if not known:
        world.outbox = Outbox("jobs", FaultyBus(world.bus, world.plan), world.clock)
    logs = logs_of(world.bus, "out")
    world.plan.fail(REFUSED, times=2, log=logs[-1].name)
    kept = [unsealed(letter.log, letter.sealed()) for letter in letters]
    for _ in range(4):
        taken = world.outbox.publish(kept, stored=True).taken
        kept = [letter for place, letter in enumerate(kept) if place not in taken]
    # Then each record is there once, in the shard of its key
    assert kept == []
    for number, log in enumerate(logs):
        mine = [name for name in names if shard_of(name, len(logs), log.config.partitioner) == number]
        assert sorted(values(log)) == sorted(mine)


@settings(max_examples=40)
@given(
    limit=st.integers(20_000, 200_000), short=st.integers(-300, 300), named=st.binary(max_size=200),
    pairs=st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=50)), max_size=6),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
)  # fmt: skip
def test_a_record_that_is_not_too_large_fits_into_an_append(limit, short, named, pairs, codec):
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "DENSE", Limits(append_bytes=limit))
        log = world.bus.create("out", StreamConfig(compression=codec))
        largest = largest_record(log)
        value = world.clock.new_id() * (max(largest - len(named) - short, 0) // 16)
        record = Outgoing("out", value, named, tuple(pairs))
        try:
            check_size(record.value, record.key, record.headers, largest, "out")
        except RecordTooLarge:
            return  # the event fails, and says why
        [letter] = world.letters(record)
    assert letter.batch.size < limit
