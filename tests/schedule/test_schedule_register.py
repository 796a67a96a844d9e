"""The register of tenants: a long control stream is shortened, and a reader that is behind reads the same."""

from __future__ import annotations

from schedule_worlds import World

from lockstep.log.memory import MemoryBroker
from lockstep.schedule import expiry, tenants
from lockstep.schedule.store import cells
from lockstep.schedule.tenants import Paused, Register, Registered, Removed, StoreNamed, Tenant, TenantType
from lockstep.streams.client import Lockstep
from lockstep.testing.virtual import VirtualRuntime


def tenant(name, **more):
    return Tenant(tenant=name, type=TenantType.MESSAGING, props={"topic": f"to-{name}"}, **more)


class Site:
    """A control stream in memory, and registers of it."""

    def __init__(self):
        self.clock = VirtualRuntime(0)
        self.bus = Lockstep(MemoryBroker().bus(self.clock), self.clock)
        self.bus.create("jobs.control")
        self.register = self.reader()

    def reader(self):
        return Register(self.bus.logs("jobs.control")[0])

    def fill(self, records=tenants.COMPACT_RECORDS):
        self.register.append(Registered(tenant("a", rate=5.0)), self.clock)
        self.register.append(Registered(tenant("b")), self.clock)
        for number in range(records):
            self.register.append(Paused("a", number % 2 == 0), self.clock)
        self.register.append(Paused("b", True), self.clock)

    def length(self):
        bounds = self.register.log.bounds()
        return bounds.next - bounds.first


def test_a_long_control_stream_becomes_a_snapshot():
    site = Site()
    site.fill()
    behind = site.reader()
    # When it is shortened
    assert site.register.compact(site.clock)
    assert site.length() == 1
    # Then new readers, and those that had read everything or nothing, know the same tenants
    for reader in (site.reader(), behind, site.register):
        reader.refresh()
        assert reader.tenants == {"a": tenant("a", rate=5.0), "b": tenant("b", paused=True)}
        assert reader.is_complete
    # And it is not done again before it is long again
    assert not site.register.compact(site.clock)


def test_a_snapshot_knows_the_store():
    site = Site()
    site.register.append(StoreNamed("d2f1", "postgresql://db:5432/jobs"), site.clock)
    site.fill()
    assert site.register.compact(site.clock)
    reader = site.reader()
    reader.refresh()
    assert reader.store == StoreNamed("d2f1", "postgresql://db:5432/jobs")
    # And a later record still does not name another one, unless it says that it changes it
    site.register.append(StoreNamed("77aa", "the bus itself"), site.clock)
    reader.refresh()
    assert reader.store.id == "d2f1"
    site.register.append(StoreNamed("77aa", "the bus itself", is_change=True), site.clock)
    reader.refresh()
    assert reader.store.id == "77aa"


def test_what_was_written_beside_the_snapshot_counts():
    site = Site()
    site.fill()
    other = site.reader()
    other.refresh()
    # Given records that the writer of the snapshot has not read
    other.append(Removed("a"), site.clock)
    other.append(Registered(tenant("c")), site.clock)
    assert site.register.compact(site.clock)
    site.register.append(Paused("c", True), site.clock)
    # Then everybody has them
    for reader in (site.reader(), other, site.register):
        reader.refresh()
        assert reader.tenants == {"b": tenant("b", paused=True), "c": tenant("c", paused=True)}


def test_a_reader_that_stopped_in_the_middle_takes_the_latest_snapshot():
    site = Site()
    site.register.append(Registered(tenant("gone")), site.clock)
    behind = site.reader()
    behind.refresh()
    site.register.append(Removed("gone"), site.clock)
    for _ in range(3):
        site.fill()
        assert site.register.compact(site.clock)
    assert behind.refresh()
    assert behind.tenants == site.register.tenants
    assert "gone" not in behind.tenants


def test_more_tenants_than_fit_into_a_record_stay_as_they_are(caplog):
    site = Site()
    site.register.log.config = site.register.log.config.__class__(capacity=None, max_record_bytes=200)
    site.fill()
    assert not site.register.compact(site.clock)
    assert not site.register.compact(site.clock)
    assert site.length() > tenants.COMPACT_RECORDS
    assert [getattr(one, "action", None) for one in caplog.records] == ["control_not_compacted"]


def test_the_master_shortens_the_control_stream(monkeypatch):
    monkeypatch.setattr(tenants, "COMPACT_RECORDS", 20)
    world = World()
    world.start("n1")
    for number in range(30):
        world.client.control(Paused("s", number % 2 == 0))
    world.clock.advance(5)
    bounds = world.bus.logs(world.streams.control)[0].bounds()
    assert bounds.next - bounds.first < 12
    # And events fire as before
    world.schedule("a", 1000)
    world.clock.advance(3)
    assert world.fired() == ["a"]


def test_tenants_whose_events_are_gone_leave_no_rows(monkeypatch):
    monkeypatch.setattr(expiry, "FORGET_TENANTS_S", 5.0)
    world = World()
    world.start("n1")
    world.clock.advance(3)
    world.schedule("a", 1000)
    world.schedule("later", 10**7)
    shards = [world.client.shard_of("s", name) for name in ("a", "later")]
    assert shards[0] != shards[1]
    world.clock.advance(10)
    rows = [len(list(names(world, shard))) for shard in shards]
    assert rows == [0, 1]


def names(world, shard):
    store = world.client.store
    with store._bus.snapshot() as view:
        yield from view.scan(store._key(shard, cells.TENANT))
