"""A scheduler's store on PostgreSQL whose server, bus or owner fails: nothing is lost, doubled or half done."""

from __future__ import annotations

import threading
import uuid

import psycopg
import pytest

from lockstep.errors import (
    BadUrl,
    Closed,
    FormatTooNew,
    OutboxBlocked,
    ServerRefused,
    ServerUnreachable,
    StoreFull,
    Unavailable,
)
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.rows import Change, Fence, Outgoing, ShardState, row_key
from lockstep.schedule.store import outbox as outbox_module
from lockstep.schedule.store.port import Filter
from lockstep.schedule.store.postgres import PostgresStore
from lockstep.streams.cursor import Cursor
from lockstep.testing import FaultPlan, FaultyBus, VirtualRuntime
from lockstep.testing.contract_case import KEEP_ALL, records, values
from lockstep.testing.contract_schedule_case import event

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ONE, TWO = Fence("requests/0", "one", 1), Fence("requests/0", "two", 2)
AWAY = ServerUnreachable(server="bus", reason="planned")
FULL = StoreFull(stream="fired", reason="no room to publish")
REFUSED = ServerRefused(server="bus", reason="no right to publish")


@pytest.fixture
def scheduler():
    return f"scheduler-{uuid.uuid4().hex}"


@pytest.fixture
def grid(request):
    return MemoryBroker(dedupe=getattr(request, "param", True))


@pytest.fixture
def clock():
    return VirtualRuntime()


@pytest.fixture
def open_store(postgresql_server, scheduler, grid, clock):
    """Opens handles on one store, each with a bus of its own that fails as planned."""
    opened = []
    grid.bus(ThreadRuntime()).create("fired", KEEP_ALL)

    def begin(plan=None, url=postgresql_server.url):
        opened.append(PostgresStore(url, scheduler, FaultyBus(grid.bus(ThreadRuntime()), plan), clock))
        return opened[-1]

    yield begin
    for store in opened:
        store.close()


@pytest.fixture
def fired(grid):
    return grid.bus(ThreadRuntime()).create("fired", KEEP_ALL)


def sends(fence, *texts, position=None):
    return Change(0, fence, position=position, outgoing=[Outgoing("fired", text) for text in texts])


def outbox(server, scheduler):
    with psycopg.connect(server.url) as connection:
        query = "SELECT count(*) FROM lockstep.schedule_outbox WHERE scheduler = %s"
        return connection.execute(query, [scheduler]).fetchone()[0]


class TestOutbox:
    def test_nothing_is_left_in_the_outbox(self, open_store, fired, postgresql_server, scheduler):
        store = open_store()
        store.claim(0, ONE)
        store.commit([sends(ONE, b"a", b"b")])
        assert (values(fired), outbox(postgresql_server, scheduler)) == ([b"a", b"b"], 0)

    def test_a_bus_that_is_away_does_not_undo_a_commit(self, open_store, fired, postgresql_server, scheduler):
        plan = FaultPlan()
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(AWAY)
        assert store.commit([sends(ONE, b"a", position=1)]) == set()
        assert (values(fired), outbox(postgresql_server, scheduler)) == ([], 1)
        assert store.commit([sends(ONE, b"b", position=2)]) == set()
        assert (values(fired), outbox(postgresql_server, scheduler)) == ([b"a", b"b"], 0)

    @pytest.mark.parametrize("error", [REFUSED, FULL], ids=["no right", "full"])
    def test_a_stream_that_refuses_records_holds_up_its_own_and_no_others(self, open_store, fired, grid, clock, error):
        plan, other = FaultPlan(), grid.bus(ThreadRuntime()).create("other", KEEP_ALL)
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(error, times=100, log="fired")
        first = Change(0, ONE, position=1, outgoing=[Outgoing("fired", b"a"), Outgoing("other", b"1")])
        assert store.commit([first]) == set()
        with pytest.raises(OutboxBlocked, match=r"stream 'fired' does not take them: .*no (right|room) to publish"):
            store.commit([sends(ONE, b"b", position=2)])
        assert store.commit([Change(0, ONE, position=2, outgoing=[Outgoing("other", b"2")])]) == set()
        assert (values(fired), values(other)) == ([], [b"1", b"2"])
        # A next owner has its part of the stream refused too, and takes the shard over all the same
        later = open_store(plan)
        assert later.claim(0, TWO) == ShardState(2, None)
        assert later.commit([Change(0, TWO, outgoing=[Outgoing("other", b"3")])]) == set()
        with pytest.raises(OutboxBlocked):
            later.commit([sends(TWO, b"c", position=3)])
        plan.clear()
        clock.advance(10)  # the right was given, and the background tries again
        assert later.commit([sends(TWO, b"c", position=3)]) == set()
        assert (values(fired), values(other)) == ([b"a", b"c"], [b"1", b"2", b"3"])

    def test_a_log_that_refuses_is_not_forgotten_when_another_one_does(self, open_store, fired, grid):
        """A record that is published before an earlier one of its log makes the bus drop the earlier one."""
        plan, other = FaultPlan(), grid.bus(ThreadRuntime()).create("other", KEEP_ALL)
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(REFUSED, log="fired").fail(REFUSED, log="other")
        store.commit([sends(ONE, b"first")])
        store.commit([Change(0, ONE, outgoing=[Outgoing("other", b"1")])])
        with pytest.raises(OutboxBlocked) as blocked:
            store.commit([sends(ONE, b"second")])
        assert blocked.value.params["streams"] == ["fired", "other"]
        store.claim(0, ONE)
        store.commit([sends(ONE, b"second")])
        assert (values(fired), values(other)) == ([b"first", b"second"], [b"1"])

    def test_a_log_that_refuses_what_waited_for_the_bus_gets_nothing_newer_first(self, open_store, fired):
        plan = FaultPlan()
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(AWAY).fail(REFUSED)
        store.commit([sends(ONE, b"first")])  # the bus is away
        with pytest.raises(OutboxBlocked):  # it is back, and the stream refuses
            store.commit([sends(ONE, b"second")])
        store.claim(0, ONE)
        store.commit([sends(ONE, b"second")])
        assert values(fired) == [b"first", b"second"]

    def test_many_refused_letters_do_not_hide_others(self, open_store, fired, grid, monkeypatch):
        monkeypatch.setattr("lockstep.schedule.store.postgres._RELAYED_AT_ONCE", 3)
        monkeypatch.setattr(outbox_module, "_BATCH_RECORDS", 1)
        plan, other = FaultPlan(), grid.bus(ThreadRuntime()).create("other", KEEP_ALL)
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(AWAY, log="fired")
        texts = [b"%d" % number for number in range(10)]
        both = [*(Outgoing("fired", text) for text in texts), *(Outgoing("other", text) for text in texts)]
        store.commit([Change(0, ONE, outgoing=both)])
        plan.fail(REFUSED, times=100, log="fired")
        open_store(plan).claim(0, TWO)
        assert (values(fired), values(other)) == ([], texts)
        plan.clear()
        open_store(plan).claim(0, Fence("requests/0", "three", 3))
        assert values(fired) == texts

    def test_while_the_bus_is_away_further_commits_are_refused_and_store_nothing(self, open_store, fired):
        plan = FaultPlan()
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(AWAY, times=2)
        store.commit([sends(ONE, b"a", position=1)])
        late = sends(ONE, b"b", position=2)
        late.put(row_key(event("e")), None, event("e"))
        with pytest.raises(Unavailable):
            store.commit([late])
        assert (values(fired), store.events([0], Filter(), 10).events) == ([], [])
        assert store.commit([late]) == set()
        assert values(fired) == [b"a", b"b"]

    def test_records_are_relayed_in_the_background_once_the_bus_is_back(self, open_store, fired, clock):
        plan = FaultPlan()
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(AWAY, times=3)
        store.commit([sends(ONE, b"a")])
        assert values(fired) == []
        clock.advance(10)
        assert (values(fired), plan.pending) == ([b"a"], 0)

    def test_a_new_owner_relays_what_an_earlier_one_left(self, open_store, fired):
        plan = FaultPlan()
        store, other = open_store(plan), open_store()
        store.claim(0, ONE)
        store.commit([sends(ONE, b"a")])
        plan.fail(AWAY)
        store.commit([sends(ONE, b"b", b"c", position=3)])
        store.close()
        assert other.claim(0, TWO) == ShardState(3, None)
        assert values(fired) == [b"a", b"b", b"c"]
        other.commit([sends(TWO, b"d")])
        assert values(fired) == [b"a", b"b", b"c", b"d"]

    def test_a_claim_waits_for_the_bus(self, open_store, fired):
        plan = FaultPlan()
        store, other = open_store(FaultPlan().fail(AWAY)), open_store(plan)
        store.claim(0, ONE)
        store.commit([sends(ONE, b"a")])
        plan.fail(AWAY)
        with pytest.raises(Unavailable):
            other.claim(0, TWO)
        assert store.commit([sends(ONE, b"late")]) == {0}
        assert other.claim(0, TWO) is not None
        assert values(fired) == [b"a"]

    @pytest.mark.parametrize("fault", ["lose_ack", "drop", "late", "duplicate"])
    @pytest.mark.parametrize("grid", [True, False], ids=["by the bus", "by readers"], indirect=True)
    def test_copies_are_dropped(self, open_store, fired, clock, fault, request):
        plan = FaultPlan()
        store = open_store(plan)
        store.claim(0, ONE)
        store.commit([sends(ONE, b"a")])
        getattr(plan, fault)()
        store.commit([sends(ONE, b"b", b"c")])
        clock.advance(10)
        store.commit([sends(ONE, b"d")])
        assert read(fired) == [b"a", b"b", b"c", b"d"]
        by_the_bus = request.node.callspec.params["grid"]
        assert len(records(fired)) == (4 if by_the_bus or fault == "drop" else 6)

    def test_a_zombie_that_relays_late_adds_nothing(self, open_store, fired, clock):
        plan = FaultPlan()
        store, other = open_store(plan), open_store()
        store.claim(0, ONE)
        plan.fail(AWAY)
        store.commit([sends(ONE, b"a", b"b")])
        other.claim(0, TWO)
        other.commit([sends(TWO, b"c")])
        clock.advance(10)
        assert store.commit([sends(ONE, b"zombie")]) == {0}
        assert values(fired) == [b"a", b"b", b"c"]

    def test_records_of_a_new_epoch_are_no_copies_even_if_the_store_was_emptied(
        self, open_store, fired, postgresql_server, scheduler
    ):
        store = open_store()
        store.claim(0, ONE)
        store.commit([sends(ONE, *(b"%d" % number for number in range(10)))])
        with psycopg.connect(postgresql_server.url) as connection:
            connection.execute("DELETE FROM lockstep.schedule_shards WHERE scheduler = %s", [scheduler])
        store.claim(0, TWO)
        store.commit([sends(TWO, b"new")])
        assert values(fired)[-1] == b"new"

    def test_records_are_no_copies_if_a_standby_took_over_that_lacked_the_last_commits(
        self, open_store, fired, postgresql_server, scheduler
    ):
        store = open_store()
        store.claim(0, ONE)
        store.commit([sends(ONE, *(b"%d" % number for number in range(10)))])
        with psycopg.connect(postgresql_server.url) as connection:
            connection.execute("UPDATE lockstep.schedule_shards SET sent = 3 WHERE scheduler = %s", [scheduler])
        store.commit([sends(ONE, b"new")])
        assert values(fired)[-1] == b"new"

    def test_records_for_a_stream_that_was_deleted_do_not_hold_up_the_rest(self, open_store, grid, fired, caplog):
        bus = grid.bus(ThreadRuntime())
        bus.create("brief", KEEP_ALL)
        plan = FaultPlan()
        store = open_store(plan)
        store.claim(0, ONE)
        plan.fail(AWAY)
        store.commit([Change(0, ONE, outgoing=[Outgoing("brief", b"x"), Outgoing("fired", b"a")])])
        bus.delete("brief")
        assert store.claim(0, ONE) is not None
        assert values(fired) == [b"a"]
        assert "records for a deleted stream dropped" in caplog.text

    def test_a_stream_made_anew_is_found(self, open_store, grid):
        bus = grid.bus(ThreadRuntime())
        bus.create("brief", KEEP_ALL)
        store = open_store()
        store.claim(0, ONE)
        store.commit([Change(0, ONE, outgoing=[Outgoing("brief", b"x")])])
        bus.delete("brief")
        anew = bus.create("brief", StreamConfig(capacity=100))
        store.commit([Change(0, ONE, outgoing=[Outgoing("brief", b"y")])])
        assert values(anew) == [b"y"]


def read(log):
    """The values of a log as a reader gets them."""
    cursor, found = Cursor(log, 0, dedupe=True), []
    while segments := cursor.read(100, 1 << 20)[0]:
        found += [value for segment in segments for value in segment.view.values()[segment.start : segment.stop]]
    return found


class TestFences:
    def test_a_claim_ends_the_commits_of_an_earlier_owner_at_once(self, open_store, fired):
        """One thread commits as fast as it can while another claims: what was accepted before the claim is there."""
        store, other = open_store(), open_store()
        store.claim(0, ONE)
        accepted, refused = [], []

        def commit():
            for number in range(10_000):
                (accepted if not store.commit([sends(ONE, b"%d" % number, position=number + 1)]) else refused).append(
                    number
                )
                if refused:
                    return

        thread = threading.Thread(target=commit, daemon=True)
        thread.start()
        for _ in range(3):
            assert other.claim(1, Fence("requests/1", "two", 2)) is not None
        state = other.claim(0, TWO)
        other.commit([sends(TWO, b"new")])
        thread.join(30)
        assert not thread.is_alive()
        assert state.position == len(accepted)
        assert refused == [len(accepted)]
        assert read(fired) == [*(b"%d" % number for number in accepted), b"new"]

    def test_a_frozen_owner_in_a_transaction_delays_a_claim_and_does_not_prevent_it(
        self, open_store, postgresql_server, scheduler
    ):
        open_store().claim(0, ONE)
        with psycopg.connect(postgresql_server.url) as frozen:
            frozen.execute("SELECT FROM lockstep.schedule_shards WHERE scheduler = %s FOR UPDATE", [scheduler])
            other = open_store(url=f"{postgresql_server.url}?timeout_s=1")
            with pytest.raises(ServerUnreachable, match=r"lock timeout|statement timeout"):
                other.claim(0, TWO)
        assert other.claim(0, TWO) is not None

    def test_a_claim_waits_for_a_commit_that_was_begun(self, open_store, fired):
        store, other = open_store(), open_store()
        store.claim(0, ONE)
        end = store.begin([sends(ONE, b"a", position=1)])
        assert other.claim(0, TWO) == ShardState(1, None)
        assert end() == set()
        other.commit([sends(TWO, b"b")])
        assert read(fired) == [b"a", b"b"]

    def test_a_claim_waits_for_a_large_commit_that_was_begun_by_the_same_thread(
        self, open_store, postgresql_server, fired
    ):
        """All of it is sent when `begin` returns: a socket that takes only a part of it would have the claim wait."""
        store = open_store(url=f"{postgresql_server.url}?timeout_s=4")
        store.claim(0, ONE)
        change = sends(ONE, b"a", position=1)
        for number in range(200):
            large = event(f"e{number}", payload=b"x" * 200_000)
            change.put(row_key(large), None, large)
        end = store.begin([change])
        assert store.claim(0, TWO) == ShardState(1, None)
        assert end() == set()
        store.commit([sends(TWO, b"b")])
        assert read(fired) == [b"a", b"b"]

    def test_our_own_frozen_transactions_are_ended_by_the_server(self, open_store, postgresql_server):
        store = open_store(url=f"{postgresql_server.url}?timeout_s=3")
        with store._connections.use() as connection:
            (found,) = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
        assert found == "1500ms"


class TestServer:
    @pytest.fixture
    def breakable(self, breakable_postgresql):
        return breakable_postgresql.server

    @pytest.fixture
    def proxy(self, breakable_postgresql):
        return breakable_postgresql.proxy

    @pytest.fixture
    def url(self, proxy):
        return f"postgresql://lockstep@{proxy.address}/postgres?timeout_s=2"

    def test_a_server_that_is_killed_comes_back_with_all_that_was_committed(self, breakable, url, open_store, fired):
        store = open_store(url=url)
        store.claim(0, ONE)
        change = sends(ONE, b"a", position=7)
        change.put(row_key(event("e")), None, event("e"))
        store.commit([change])

        breakable.kill()
        for call in (
            lambda: store.commit([sends(ONE, b"b")]),
            lambda: store.claim(0, ONE),
            lambda: store.get(0, [row_key(event("e"))]),
            lambda: store.events([0], Filter(), 10),
        ):
            with pytest.raises(ServerUnreachable):
                call()

        breakable.restart()
        assert store.claim(0, ONE) == ShardState(7, None)
        assert store.events([0], Filter(), 10).events == [event("e")]
        assert store.commit([sends(ONE, b"c")]) == set()
        assert values(fired) == [b"a", b"c"]

    def test_a_server_that_is_cut_off_is_reached_again_by_the_next_call(self, breakable, url, open_store, proxy):
        store = open_store(url=url)
        store.claim(0, ONE)
        proxy.cut()
        with pytest.raises(ServerUnreachable):
            store.commit([Change(0, ONE, position=1)])
        assert store.claim(0, ONE) == ShardState(0, None)

    @pytest.mark.parametrize("how", ["stall", "stall_answers"])
    def test_a_server_that_is_silent_is_given_up_in_bounded_time(self, breakable, url, open_store, proxy, how):
        runtime = ThreadRuntime()
        store = PostgresStore(url, f"silent-{how}", MemoryBroker().bus(runtime), runtime)
        store.claim(0, ONE)
        getattr(proxy, how)()
        began = runtime.monotonic()
        with pytest.raises(ServerUnreachable, match="no answer within 4 s"):
            store.commit([Change(0, ONE, position=1)])
        with pytest.raises(ServerUnreachable):
            store.claim(0, ONE)
        assert runtime.monotonic() - began < 20
        proxy.cut()
        proxy.resume()
        assert store.claim(0, ONE) is not None
        store.close()

    def test_a_commit_whose_answer_is_lost_is_whole_or_nothing(self, breakable, url, open_store, proxy, fired):
        runtime = ThreadRuntime()
        store = PostgresStore(url, "unsure", FaultyBus(fired_bus := MemoryBroker().bus(runtime)), runtime)
        log = fired_bus.create("fired", KEEP_ALL)
        store.claim(0, ONE)
        proxy.stall_answers()
        with pytest.raises(ServerUnreachable):
            store.commit([sends(ONE, b"a", position=1)])
        proxy.cut()
        proxy.resume()
        state = store.claim(0, ONE)
        assert (state.position, values(log)) in ((0, []), (1, [b"a"]))
        store.close()

    def test_a_server_that_is_cut_off_during_a_commit_leaves_it_whole_or_nothing(
        self, breakable, url, open_store, proxy, fired
    ):
        store = open_store(url=url)
        store.claim(0, ONE)
        for number in range(20):
            before = store.claim(0, ONE).position
            change = sends(ONE, b"%d" % number, position=before + 1)
            change.put(row_key(event("e")), None, event("e", payload=b"%d" % number))
            end = store.begin([change])
            proxy.cut()
            try:
                is_known = end() == set()
            except ServerUnreachable:
                is_known = False
            after = store.claim(0, ONE).position
            assert after in ([before + 1] if is_known else [before, before + 1])
            assert len(records(fired)) == after
            if after > before:
                assert store.get(0, [row_key(event("e"))])[row_key(event("e"))].payload == b"%d" % number


class TestOpening:
    def test_a_password_is_in_no_error_and_no_repr(self, open_store, postgresql_server, caplog):
        store = open_store(url=postgresql_server.url.replace("lockstep@", "lockstep:s3cret@"))
        assert repr(store).startswith("PostgresStore('postgresql://lockstep@127.0.0.1:")
        with pytest.raises(ServerUnreachable) as caught:
            open_store(url="postgresql://app:s3cret@127.0.0.1:1/db?timeout_s=2")
        shown = [repr(store), repr(caught.value), repr(caught.value.__cause__), caplog.text, repr(vars(store))]
        assert not any("s3cret" in text for text in shown)

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("postgresql:db", "write postgresql://HOST:PORT"),
            ("postgresql://h/db?schema=A;B", "its schema"),
            ("postgresql://h/db?wishes=2", "no option 'wishes'"),
            ("postgresql://h:x/db", "not HOST:PORT"),
        ],
    )
    def test_a_bad_url_is_refused(self, url, reason, clock):
        with pytest.raises(BadUrl, match=reason) as caught:
            PostgresStore(url, "s", MemoryBroker().bus(clock), clock)
        assert "postgresql://user@localhost:5432/database" in str(caught.value)

    def test_a_database_that_does_not_exist(self, postgresql_server, clock):
        with pytest.raises(ServerUnreachable, match='database "nowhere" does not exist'):
            PostgresStore(postgresql_server.url.replace("/postgres", "/nowhere"), "s", MemoryBroker().bus(clock), clock)

    def test_schemas_keep_stores_apart(self, open_store, postgresql_server):
        one, two = (open_store(url=f"{postgresql_server.url}?schema={name}") for name in ("one", "two"))
        one.claim(0, TWO)
        assert two.claim(0, ONE) is not None

    def test_several_open_a_new_schema_at_once(self, open_store, postgresql_server):
        failed = []

        def begin():
            try:
                open_store(url=f"{postgresql_server.url}?schema=busy")
            except Unavailable as error:
                failed.append(error)

        threads = [threading.Thread(target=begin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert failed == []

    def test_a_store_is_the_same_by_any_name_of_its_host_and_another_in_another_schema(
        self, open_store, postgresql_server
    ):
        url = postgresql_server.url
        same = [open_store(url=name).identity().id for name in (url, url.replace("127.0.0.1", "localhost"))]
        assert (same[0], len({*same, open_store(url=f"{url}?schema=second").identity().id})) == (same[1], 2)

    def test_tables_of_a_newer_version_are_left_alone(self, open_store, postgresql_server):
        url = f"{postgresql_server.url}?schema=newer"
        open_store(url=url)
        with psycopg.connect(postgresql_server.url) as connection:
            connection.execute("UPDATE newer.schedule_version SET version = 2")
        with pytest.raises(FormatTooNew, match="version 2"):
            open_store(url=url)

    def test_a_closed_store_says_so(self, open_store):
        store = open_store()
        store.close()
        store.close()
        with pytest.raises(Closed):
            store.claim(0, ONE)
