"""A scheduler's store on Cassandra whose server, bus or owner fails: nothing is lost, doubled or half done."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lockstep.core.agenda import Status
from lockstep.errors import BadArgument, BadUrl, Closed, OutboxBlocked, ServerRefused, ServerUnreachable, StoreFull
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.rows import Change, Fence, Outgoing, ShardState, row_key
from lockstep.schedule.store import cassandra, cassandra_rows, outbox
from lockstep.schedule.store.cassandra import CassandraStore
from lockstep.schedule.store.cassandra_rows import Indexes
from lockstep.schedule.store.port import Due, Filter
from lockstep.testing import FaultPlan, FaultyBus, VirtualRuntime
from lockstep.testing.contract_case import KEEP_ALL, values
from lockstep.testing.contract_schedule_case import event, run
from servers.clients import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ONE, TWO = Fence("requests/0", "one", 1), Fence("requests/0", "two", 2)
AWAY = ServerUnreachable(server="bus", reason="planned")
FULL = StoreFull(stream="fired", reason="no room to publish")
REFUSED = ServerRefused(server="bus", reason="no right to publish")


@pytest.fixture
def clock():
    return VirtualRuntime()


@pytest.fixture
def grid():
    return MemoryBroker()


@pytest.fixture
def fired(grid):
    return grid.bus(ThreadRuntime()).create("fired", KEEP_ALL)


@pytest.fixture
def open_store(cassandra_server, grid, clock, fired):
    """Opens handles on one store, each with a bus of its own that fails as planned."""
    opened, scheduler = [], f"scheduler-{uuid.uuid4().hex}"

    def begin(plan=None, url=None):
        opened.append(
            CassandraStore(url or cassandra_server.url, scheduler, FaultyBus(grid.bus(ThreadRuntime()), plan), clock)
        )
        return opened[-1]

    yield begin
    for store in opened:
        store.close()


def sends(fence, *texts, position=None):
    return Change(0, fence, position=position, outgoing=[Outgoing("fired", text) for text in texts])


class TestOutbox:
    def test_a_new_owner_relays_what_an_earlier_one_left(self, open_store, fired, clock):
        plan = FaultPlan()
        store, other = open_store(plan), open_store()
        store.claim(0, ONE)
        store.commit([sends(ONE, b"a")])
        plan.fail(AWAY)
        assert store.commit([sends(ONE, b"b", b"c", position=3)]) == set()
        assert other.claim(0, TWO) == ShardState(3, None)
        other.commit([sends(TWO, b"d")])
        clock.advance(10)  # the earlier owner relays again
        assert values(fired) == [b"a", b"b", b"c", b"d"]

    def test_records_are_relayed_in_the_background_once_the_bus_is_back(self, open_store, fired, clock):
        plan = FaultPlan()
        store = open_store(plan)
        store.claim(0, ONE)
        plan.lose_ack().fail(AWAY, times=2)
        store.commit([sends(ONE, b"a")])
        clock.advance(10)
        store.commit([sends(ONE, b"b")])
        assert (values(fired), plan.pending) == ([b"a", b"b"], 0)

    @pytest.mark.parametrize("error", [REFUSED, FULL], ids=["no right", "full"])
    def test_a_stream_that_refuses_records_holds_up_its_own_and_no_others(
        self, open_store, fired, grid, clock, monkeypatch, error
    ):
        monkeypatch.setattr(cassandra_rows, "RELAYED_AT_ONCE", 2)
        monkeypatch.setattr(outbox, "_BATCH_RECORDS", 1)
        plan, other = FaultPlan(), grid.bus(ThreadRuntime()).create("other", KEEP_ALL)
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(error, times=1000, log="fired")
        refused = [Outgoing("fired", text) for text in (b"a", b"b", b"c")]
        assert store.commit([Change(0, ONE, position=1, outgoing=[*refused, Outgoing("other", b"1")])]) == set()
        with pytest.raises(OutboxBlocked, match=r"stream 'fired' does not take them: .*no (right|room) to publish"):
            store.commit([sends(ONE, b"d", position=2)])
        assert store.commit([Change(0, ONE, position=2, outgoing=[Outgoing("other", b"2")])]) == set()
        assert (values(fired), values(other)) == ([], [b"1", b"2"])
        later = open_store(plan)
        assert later.claim(0, TWO) == ShardState(2, None)
        with pytest.raises(OutboxBlocked):
            later.commit([sends(TWO, b"d", position=3)])
        plan.clear()
        clock.advance(10)  # the right was given, and the background tries again
        assert later.commit([sends(TWO, b"d", position=3)]) == set()
        assert (values(fired), values(other)) == ([b"a", b"b", b"c", b"d"], [b"1", b"2"])


def test_a_claim_ends_the_commits_of_an_earlier_owner_at_once(open_store, fired):
    """One thread commits as fast as it can while another claims: what was accepted before the claim is there."""
    store, other = open_store(), open_store()
    store.claim(0, ONE)
    accepted, refused, begun = [], [], threading.Event()

    def commit():
        for number in range(10_000):
            is_refused = store.commit([sends(ONE, b"%d" % number, position=number + 1)])
            (refused if is_refused else accepted).append(number)
            begun.set()
            if refused:
                return

    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    assert begun.wait(30)
    state = other.claim(0, TWO)
    other.commit([sends(TWO, b"new")])
    thread.join(60)
    assert not thread.is_alive()
    assert (state.position, refused) == (len(accepted), [len(accepted)])
    assert values(fired) == [*(b"%d" % number for number in accepted), b"new"]


def test_what_is_committed_while_another_owner_claims_is_not_set_back(open_store, fired, monkeypatch):
    """The claim has looked at the shard already and has not taken it yet when the earlier owner commits."""
    store, other = open_store(), open_store()
    store.claim(0, ONE)
    store.commit([sends(ONE, b"a", position=1)])
    seen = []

    def look(shard, state=other._state):
        found = state(shard)
        if not seen:
            seen.append(store.commit([sends(ONE, b"b", position=2)]))
        return found

    monkeypatch.setattr(other, "_state", look)
    assert other.claim(0, TWO) == ShardState(2, None)
    assert seen == [set()]
    other.commit([sends(TWO, b"c")])
    assert values(fired) == [b"a", b"b", b"c"]


class LateSession:
    """A session that loses one batch, so that it can arrive later."""

    def __init__(self, session):
        self._session, self.late = session, None

    def __getattr__(self, name):
        return getattr(self._session, name)

    def begin(self, batch):
        if self.late is not None:
            return self._session.begin(batch)
        self.late = batch
        raise ServerUnreachable(server="late", reason="planned")


@pytest.mark.parametrize("work", ["commit", "forget runs"])
def test_what_arrives_after_the_next_claim_changes_nothing(open_store, fired, work):
    """A paused server wakes up and finds a batch that its sender gave up, and did again in another way."""
    store = open_store()
    store.claim(0, ONE)
    one, logged = event("e", 100), run("c", 5, expires=10)
    store.commit([Change(0, ONE, position=1, runs=[logged], events={row_key(one): (None, one)})])
    store._session = LateSession(store._session)
    lost = sends(ONE, b"lost", position=2)
    lost.put(row_key(one), one, replace(one, due=50))
    with pytest.raises(ServerUnreachable):
        store.forget_runs(0, ONE, 100) if work == "forget runs" else store.commit([lost])

    assert store.commit([Change(0, ONE, position=9)]) == {0}  # its state is not known
    assert store.claim(0, ONE) == ShardState(1, None)
    again = sends(ONE, b"again", position=3)
    again.put(row_key(one), one, replace(one, due=200))
    assert store.commit([again]) == set()
    assert not store._session.begin(store._session.late).result().one()[0]
    assert (store.claim(0, ONE), values(fired)) == (ShardState(3, None), [b"again"])
    assert store.due(0, "shop", 0, 1000, 10) == [Due(row_key(one), 200)]
    assert store.runs(0, "c", 10) == [logged]


class TestTombstones:
    """The server refuses to read across 2,000 tombstones; each index gets more of them here."""

    @pytest.fixture(autouse=True)
    def few_at_once(self, monkeypatch):
        monkeypatch.setattr(cassandra, "FLOOR_EVERY", 200)

    @pytest.fixture
    def reads_at_once(self):
        """No index has to be read in spans of time."""
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(Indexes, "_rows_by_span")
            yield patch

    def step(self, store, fence, events, status, **fields):
        """Commit the next status of events; None removes them."""
        after = {row_key(one): None if status is None else replace(one, status=status, **fields) for one in events}
        changed = {row_key(one): (one if one.attempt else None, after[row_key(one)]) for one in events}
        assert store.commit([Change(0, fence, events=changed)]) == set()
        return [one for one in after.values() if one is not None]

    def test_events_fire_and_are_forgotten(self, open_store, reads_at_once):
        store, other = open_store(), open_store()
        store.claim(0, ONE)
        rest = event("rest", 10_000)
        store.commit([Change(0, ONE, events={row_key(rest): (None, rest)})])
        for start in range(0, 3000, 500):
            events = [event(f"e{at}", at) for at in range(start, start + 500)]
            for status, fields in (
                (Status.WAITING, {"attempt": 1}), (Status.FIRING, {}), (Status.DONE, {"ended": start}), (None, {})
            ):  # fmt: skip
                events = self.step(store, ONE, events, status, **fields)
        assert other.claim(0, TWO) == ShardState()
        for handle in (store, other):
            assert (handle.tenants(0), handle.firing(0), handle.expired(0, 9999, 10)) == ({"shop": 10_000}, [], [])
            assert handle.events([0], Filter(), 10).events == [rest]
        # And an event that is due before all those that fired
        reads_at_once.undo()
        early = event("early", 7)
        other.commit([Change(0, TWO, events={row_key(early): (None, early)})])
        assert store.tenants(0) == {"shop": 7}
        assert store.events([0], Filter(), 10).events == [early, rest]
        assert [one.due for one in store.due(0, "shop", 0, 20_000, 10)] == [7, 10_000]

    @pytest.mark.usefixtures("reads_at_once")
    def test_records_are_relayed(self, open_store, fired, monkeypatch):
        monkeypatch.setattr(outbox, "_BATCH_RECORDS", 1)
        store = open_store()
        store.claim(0, ONE)
        for start in range(0, 2500, 250):
            store.commit([sends(ONE, *(b"%d" % number for number in range(start, start + 250)))])
        other = open_store()
        assert other.claim(0, TWO) == ShardState()
        assert values(fired) == [b"%d" % number for number in range(2500)]

    @pytest.mark.usefixtures("reads_at_once")
    def test_records_are_relayed_while_one_is_refused_for_long(self, open_store, fired, grid, monkeypatch):
        monkeypatch.setattr(outbox, "_BATCH_RECORDS", 1)
        plan, other = FaultPlan(), grid.bus(ThreadRuntime()).create("other", KEEP_ALL)
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(REFUSED, times=10_000, log="fired")
        store.commit([sends(ONE, b"kept")])
        texts = [b"%d" % number for number in range(2500)]
        for start in range(0, len(texts), 250):
            part = [Outgoing("other", text) for text in texts[start : start + 250]]
            store.commit([Change(0, ONE, outgoing=part)])
        plan.clear()
        assert open_store(plan).claim(0, TWO) == ShardState()
        assert (values(fired), values(other)) == ([b"kept"], texts)

    @pytest.mark.usefixtures("reads_at_once")
    def test_runs_expire(self, open_store):
        store = open_store()
        store.claim(0, ONE)
        for start in range(0, 2500, 500):
            store.commit([Change(0, ONE, runs=[run(f"c{at % 2}", at, expires=at) for at in range(start, start + 500)])])
            assert store.forget_runs(0, ONE, start + 500) == 500
        assert open_store().claim(0, ONE) is not None
        assert store.claim(0, ONE) is not None
        assert store.forget_runs(0, ONE, 9999) == 0


def test_a_connection_that_breaks_under_a_commit_says_that_the_server_is_away(open_store, cassandra_server, proxy):
    proxy.target = cassandra_server.port
    store, other = open_store(url=f"cassandra://{proxy.address}/lockstep?timeout_s=60"), open_store()
    store.claim(0, ONE)
    change = Change(0, ONE)
    change.put(row_key(event("e")), None, event("e"))
    proxy.stall_answers()
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(store.commit, [change])
        eventually(lambda: other.get(0, [row_key(event("e"))]) != {}, "the commit has arrived")
        proxy.cut()
        with pytest.raises(ServerUnreachable):
            commit.result()


def test_a_long_list_is_cut_into_pages(open_store, monkeypatch):
    monkeypatch.setattr(cassandra, "SCANNED_MAX", 4)
    monkeypatch.setattr(cassandra, "_KEYS_AT_ONCE", 2)
    store = open_store()
    store.claim(0, ONE)
    events = [event(f"e{number}", number, tenant="shop" if number % 5 else "bank") for number in range(20)]
    change = Change(0, ONE)
    for one in events:
        change.put(row_key(one), None, one)
    store.commit([change])
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = store.events([0], Filter(start=15), 100, cursor)
        found, cursor, pages = found + page.events, page.next, pages + 1
    assert (found, pages) == (events[15:], 5)


def test_a_change_that_is_too_large_is_refused_before_it_is_sent(open_store, monkeypatch):
    monkeypatch.setattr(cassandra, "STATEMENTS_MAX", 3)
    store = open_store()
    store.claim(0, ONE)
    change = Change(0, ONE, position=1)
    change.put(row_key(event("e")), None, event("e"))
    with pytest.raises(BadArgument, match="3 rows"):
        store.commit([change])
    assert (store.claim(0, ONE), store.events([0], Filter(), 10).events) == (ShardState(), [])


class TestLargePayloads:
    SIZE = 1 << 20

    def test_steps_of_many_large_events_fit_into_one_transaction(self, open_store):
        store = open_store()
        store.claim(0, ONE)
        events = [event(f"e{number}", payload=bytes([number]) * self.SIZE) for number in range(20)]
        for one in events:
            store.commit([Change(0, ONE, events={row_key(one): (None, one)})])
        ended = [replace(one, status=Status.DONE, ended=2000) for one in events]
        steps = {row_key(one): (one, after) for one, after in zip(events, ended, strict=True)}
        assert store.commit([Change(0, ONE, events=steps)]) == set()
        assert store.events([0], Filter(), 100).events == sorted(ended, key=row_key)
        store.commit([Change(0, ONE, events={row_key(one): (one, None) for one in ended})])
        assert store.get(0, list(steps)) == {}

    def test_a_payload_that_changes_its_size(self, open_store):
        store = open_store()
        store.claim(0, ONE)
        before = None
        for payload in (b"s", b"l" * 5000, b"m" * 6000, b"m" * 6000, None, b"l" * 5000, b"s"):
            after = event("e", payload=payload)
            store.commit([Change(0, ONE, events={row_key(after): (before, after)})])
            assert store.get(0, [row_key(after)]) == {row_key(after): after}
            before = after
        assert store._get(0, "payload", [row_key(after)], 1) == {}


class TestOpening:
    def test_a_store_is_the_same_by_any_name_of_its_host_and_another_in_another_keyspace(
        self, open_store, cassandra_server
    ):
        url = cassandra_server.url
        names = (url, url.replace("127.0.0.1", "localhost"), url.replace("/lockstep", "/second"))
        found = [open_store(url=name).identity().id for name in names]
        assert (found[0], len(set(found))) == (found[1], 2)

    def test_a_password_is_in_no_error_and_no_repr(self, open_store, cassandra_server, caplog):
        store = open_store(url=cassandra_server.url.replace("://", "://app:s3cret@"))
        with pytest.raises(ServerUnreachable) as caught:
            open_store(url="cassandra://app:s3cret@127.0.0.1:1/lockstep?timeout_s=2")
        assert not any("s3cret" in text for text in (repr(store), repr(caught.value), caplog.text))

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("cassandra://h", "its keyspace ''"),
            ("cassandra://h/A-B", "its keyspace 'A-B'"),
            ("cassandra://h/k?wishes=2", "no option 'wishes'"),
        ],
    )
    def test_a_bad_url_is_refused(self, url, reason, clock):
        with pytest.raises(BadUrl, match=reason) as caught:
            CassandraStore(url, "s", MemoryBroker().bus(clock), clock)
        assert "cassandra://localhost:9042/keyspace" in str(caught.value)

    def test_a_closed_store_says_so(self, open_store):
        store = open_store()
        store.close()
        store.close()
        with pytest.raises(Closed):
            store.claim(0, ONE)


@pytest.mark.soak
@pytest.mark.timeout(400)
class TestServer:
    def test_a_server_that_is_killed_comes_back_with_all_that_was_committed(self, start_server, open_store, fired):
        server = start_server("cassandra")
        store = open_store(url=f"{server.url}?timeout_s=3")
        store.claim(0, ONE)
        change = sends(ONE, b"a", position=7)
        change.put(row_key(event("e")), None, event("e"))
        store.commit([change])

        server.kill()
        for call in (lambda: store.commit([sends(ONE, b"b")]), lambda: store.claim(0, ONE), lambda: store.firing(0)):
            with pytest.raises(ServerUnreachable):
                call()

        server.restart()
        eventually(lambda: self.answers(store), "the driver has connected again")
        assert store.claim(0, ONE) == ShardState(7, None)
        assert store.events([0], Filter(), 10).events == [event("e")]
        store.commit([sends(ONE, b"c")])
        assert values(fired) == [b"a", b"c"]

    def test_a_server_that_is_frozen_is_given_up_in_bounded_time(self, start_server, open_store, fired):
        server, runtime = start_server("cassandra"), ThreadRuntime()
        store = open_store(url=f"{server.url}?timeout_s=2")
        store.claim(0, ONE)
        server.pause()
        began = runtime.monotonic()
        with pytest.raises(ServerUnreachable):
            store.commit([sends(ONE, b"a", position=1)])
        assert runtime.monotonic() - began < 20
        server.resume()
        eventually(lambda: self.answers(store), "the driver has connected again")
        state = store.claim(0, ONE)
        assert (state.position, values(fired)) in ((0, []), (1, [b"a"]))

    def answers(self, store):
        try:
            store.firing(0)
        except ServerUnreachable:
            return False
        return True
