"""What all buses over a network share, over a server in memory that misbehaves on order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import (
    AppendTooLarge,
    AppendUncertain,
    BadOffset,
    BadUrl,
    BatchDamaged,
    Closed,
    FormatTooNew,
    ServerUnfit,
    ServerUnreachable,
    StoreFull,
    Trimmed,
)
from lockstep.log.batch import pack, peek
from lockstep.log.config import StreamConfig
from lockstep.log.network.address import parse_address
from lockstep.log.network.bus import NetworkBus
from lockstep.log.network.catalogue import TopicCatalogue, apply_message
from lockstep.log.network.driver import (
    STRIDE,
    Finding,
    StreamEntry,
    TopicGone,
    bundle,
    first_origin,
    report_findings,
    unbundle,
)
from lockstep.log.network.retention import RetentionWindow
from lockstep.log.offsets import records_between, step_back, step_forward
from lockstep.log.port import Limits, split_appends
from lockstep.streams.cursor import Cursor
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer, values
from memory_driver import MemoryDriver, MemoryServer, MemoryTopic

KEEP_ALL = StreamConfig(capacity=None)


class ShakyTopic(MemoryTopic):
    """Does what `faults` says at the next sends: lose, lose_ack, full or away."""

    def __init__(self, server, name, faults):
        super().__init__(server, name)
        self.faults, self.dropped, self.sent = faults, [], 0

    def send(self, messages):
        fault = self.faults.pop(0) if self.faults else None
        if fault == "lose":
            raise AppendUncertain(stream=self._name, reason="lost")
        if fault == "away":
            raise ServerUnreachable(server="here", reason="away")
        if fault == "full":
            raise StoreFull(stream=self._name, reason="full")
        self.sent += 1
        numbers = super().send(messages)
        if fault == "lose_ack":
            raise AppendUncertain(stream=self._name, reason="its answer was lost")
        return numbers

    def drop(self, before):
        self.dropped.append(before)
        super().drop(before)


class ShakyWire(MemoryDriver):
    def __init__(self, server, runtime):
        super().__init__(server, "shaky:", runtime)
        self.faults = []
        self.topics = []

    def topic(self, known):
        self.topics.append(ShakyTopic(self._server, known.name, self.faults))
        return self.topics[-1]


@pytest.fixture
def aged():
    """A stream of the last hour with three days in it, a message each minute."""
    runtime = VirtualRuntime()
    server = MemoryServer()
    bus = server.bus(runtime)
    log = bus.create("aged", StreamConfig(retain_age_s=3600))
    producer = Producer()
    for number in range(3 * 24 * 60):
        log.append([producer.batch(b"%d" % number)])
        runtime.advance(60.0)
    return server, bus, runtime


def test_a_stream_bounded_by_age_is_not_counted_to_find_its_beginning(aged, monkeypatch):
    server, _, runtime = aged
    fetches = []
    fetch = MemoryTopic.fetch

    def stamped(self, *where):
        """As a server that says when it stored a message."""
        fetches.append(where)
        found = fetch(self, *where)
        if self._name != "aged":
            return found
        return [replace(m, time_ns=peek(unbundle(m.data, 0, "aged")[0].data)[1]) for m in found]

    monkeypatch.setattr(MemoryTopic, "fetch", stamped)
    log = server.bus(runtime).open("aged")
    first = log.bounds().first
    assert values(log)[0] == b"%d" % (3 * 24 * 60 - 61)
    assert len(fetches) < 40, "many messages at a time"
    with pytest.raises(Trimmed):
        log.read(first - STRIDE)


def test_a_handle_follows_what_others_alter(aged):
    server, bus, runtime = aged
    log = bus.open("aged")
    server.bus(runtime).alter("aged", StreamConfig(capacity=7))
    assert log.bounds().next - log.bounds().first <= 7 * STRIDE
    assert len(values(log)) == 7
    runtime.advance(2.0)
    server.bus(runtime).alter("aged", StreamConfig(capacity=5))
    runtime.advance(2.0)
    with pytest.raises(Trimmed):
        log.read(log.bounds().next - 6 * STRIDE)


@pytest.fixture
def wire():
    return ShakyWire(MemoryServer(), VirtualRuntime())


@pytest.fixture
def bus(wire):
    bus = NetworkBus(wire, VirtualRuntime(), patience_s=5.0)
    yield bus
    bus.close()


@pytest.fixture
def log(bus):
    return bus.create("orders", KEEP_ALL)


def test_an_append_whose_answer_was_lost_is_found_and_not_sent_again(wire, log):
    producer = Producer()
    log.append([producer.batch(b"a")])
    batch = producer.batch(b"b")
    wire.faults[:] = ["lose_ack"]
    with pytest.raises(AppendUncertain):
        log.append([batch])
    log.append([Producer("other").batch(b"x")])
    assert log.append([batch]) == [STRIDE]
    assert values(log) == [b"a", b"b", b"x"]


def test_an_append_that_was_lost_is_sent_again(wire, log):
    batch = Producer().batch(b"a")
    wire.faults[:] = ["lose", "lose"]
    for _ in range(2):
        with pytest.raises(AppendUncertain):
            log.append([batch])
    assert log.append([batch]) == [0]
    assert values(log) == [b"a"]


def test_what_may_have_landed_stays_uncertain_while_the_server_is_away(wire, log):
    batch = Producer().batch(b"a")
    wire.faults[:] = ["lose_ack"]
    with pytest.raises(AppendUncertain):
        log.append([batch])
    wire.topics[-1].ends = lambda: (_ for _ in ()).throw(ServerUnreachable(server="here", reason="away"))
    with pytest.raises(AppendUncertain, match="away"):
        log.append([batch])


def test_calls_wait_for_a_server_that_is_away(wire, log):
    wire.faults[:] = ["away"] * 10
    assert log.append([Producer().batch(b"a")]) == [0]
    wire.faults[:] = ["away"] * 100
    with pytest.raises(ServerUnreachable):
        log.append([Producer().batch(b"b")])
    wire.faults.clear()
    assert values(log) == [b"a"]


def test_making_and_deleting_wait_for_a_server_that_is_away_too(wire, bus):
    tries = []

    def away_twice(step):
        def work(known):
            tries.append(known.name)
            if len(tries) % 3:
                raise ServerUnreachable(server="here", reason="away")
            return step(known)

        return work

    wire.make, wire.remove = away_twice(wire.make), away_twice(wire.remove)
    bus.create("orders", KEEP_ALL).append([Producer().batch(b"a")])
    bus.delete("orders")
    assert (len(tries), bus.names()) == (6, [])


def test_whoever_waits_for_a_server_is_told_when_the_bus_is_closed(wire, bus, log):
    def close_then_fail():
        bus._closed = True
        raise ServerUnreachable(server="here", reason="away")

    with pytest.raises(Closed):
        bus.with_retries(close_then_fail)
    bus._closed = False


def test_a_full_server_gets_room_before_anything_is_refused(wire, bus):
    log = bus.create("ring", StreamConfig(capacity=2))
    for _ in range(5):
        log.append([Producer().batch(b"x")])
    wire.faults[:] = ["full"]
    log.append([Producer().batch(b"y")])
    assert wire.topics[-1].dropped == [3]
    wire.faults[:] = ["full", "full"]
    with pytest.raises(StoreFull):
        log.append([Producer().batch(b"z")])


def test_a_busy_ring_gives_room_back_now_and_then(wire, bus):
    log, producer = bus.create("ring", StreamConfig(capacity=3)), Producer()
    for number in range(450):
        log.append([producer.batch(b"%d" % number)])
    assert len(wire.topics[-1].dropped) == 2
    assert values(log) == [b"447", b"448", b"449"]


def test_what_the_server_dropped_by_itself_is_a_gap_and_not_skipped(wire, log):
    for number in range(4):
        log.append([Producer().batch(b"%d" % number)])
    wire.topics[-1].drop(2)
    with pytest.raises(Trimmed) as caught:
        log.read(STRIDE)
    assert caught.value.params["first"] == 2 * STRIDE


@pytest.mark.parametrize("fault", ["full", "away"])
def test_what_may_have_landed_stays_uncertain_whatever_comes_next(wire, log, fault):
    batch = Producer().batch(b"a")
    wire.faults[:] = ["lose"]
    with pytest.raises(AppendUncertain):
        log.append([batch])
    wire.faults[:] = [fault, fault]
    with pytest.raises(AppendUncertain, match=fault):
        log.append([batch])


def test_a_ring_is_counted_in_records_where_the_server_takes_numbers_for_itself(wire, bus):
    log, producer = bus.create("ring", StreamConfig(capacity=3)), Producer()
    for number in range(5):
        wire._server.topics["ring"].messages += [None, None]
        log.append([producer.batch(b"%d" % number)])
    assert values(bus.open("ring")) == values(log) == [b"2", b"3", b"4"]
    assert bus.open("ring").bounds().first == 8 * STRIDE


def test_a_log_that_became_shorter_ends_where_it_ends_now(wire, log):
    producer = Producer()
    for number in range(4):
        log.append([producer.batch(b"%d" % number)])
    reader = Cursor(log, 0)
    reader.read(100, 1 << 20)
    del wire._server.topics["orders"].messages[2:]
    assert log.bounds().next == STRIDE + 1
    with pytest.raises(BadOffset, match="beyond the end"):
        reader.read(100, 1 << 20)


def test_a_log_whose_server_dropped_everything_is_empty_where_it_goes_on(wire, log):
    for number in range(4):
        log.append([Producer().batch(b"%d" % number)])
    wire.topics[-1].drop(4)
    fresh = NetworkBus(wire, VirtualRuntime()).open("orders")
    assert (fresh.bounds().first, fresh.bounds().next) == (4 * STRIDE, 4 * STRIDE)
    assert log.append([Producer().batch(b"4")]) == [4 * STRIDE]
    assert values(fresh) == [b"4"]


def test_a_catalogue_that_lost_entries_is_read_anew(wire, bus, log):
    del wire._server.topics["_catalogue"].messages[:]
    made = bus.create("others", KEEP_ALL)
    assert made.name == "others"
    assert bus.names() == ["others"]


def test_a_stream_whose_topic_is_missing_is_waited_for_and_then_named(wire, bus, log):
    gone = wire.topic

    def missing(known):
        raise TopicGone

    wire.topic = missing
    with pytest.raises(ServerUnreachable, match="the topic of orders is missing"):
        bus.open("orders")
    wire.topic = gone
    assert values(bus.open("orders")) == []


def test_an_append_above_the_limit_is_refused_with_the_setting(bus, wire, log):
    log.limits = Limits(stride=STRIDE, append_bytes=1000, append_setting="message.max.bytes")
    with pytest.raises(AppendTooLarge, match=r"message\.max\.bytes"):
        log.append([Producer().batch(b"x" * 2000)])
    assert values(log) == []


def test_reading_on_asks_for_the_next_message_and_not_for_the_last_one_again(wire, log):
    for number in range(3):
        log.append([Producer().batch(b"%d" % number, b"+")])
    asked, fetch = [], wire.topics[-1].fetch
    wire.topics[-1].fetch = lambda number, size: asked.append(number) or fetch(number, 1)
    at = 0
    while entries := log.read(at):
        at = entries[-1].base + 2
    assert asked == [0, 1, 2, 3]


def test_a_handle_that_is_let_go_leaves_its_topic_to_the_next(wire, bus, log):
    made = len(wire.topics)
    for _ in range(5):
        bus.open("orders").bounds()
    assert len(wire.topics) == made + 1


@given(st.lists(st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=4), min_size=1, max_size=5))
def test_bundles_come_apart_as_they_were_put_together(groups):
    batches = [pack(group, producer=b"p" * 16, sequence=at, created_ns=0) for at, group in enumerate(groups)]
    sealed = [batch.seal(1) for batch in batches]
    entries = unbundle(bundle(sealed), 7 * STRIDE, "s")
    assert [entry.data for entry in entries] == sealed
    counts = [len(group) for group in groups]
    assert [entry.base for entry in entries] == [7 * STRIDE + sum(counts[:at]) for at in range(len(groups))]
    assert first_origin(bundle(sealed)) == (b"p" * 16, 0)


def test_a_damaged_bundle_is_told():
    whole = bundle([Producer().batch(b"a").seal(1), Producer().batch(b"b").seal(1)])
    for cut in (3, 10, len(whole) - 1):
        with pytest.raises(BatchDamaged):
            unbundle(whole[:cut], 0, "s")
    with pytest.raises(FormatTooNew):
        unbundle(whole[:2] + b"\x09" + whole[3:], 0, "s")


@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=12),
    st.one_of(st.none(), st.integers(1, 12)),
    st.one_of(st.none(), st.integers(1, 900)),
)
def test_a_tally_keeps_what_counting_from_the_end_keeps(messages, capacity, retain_bytes):
    config = StreamConfig(capacity=capacity, retain_bytes=retain_bytes)
    tally, stored = RetentionWindow(config, 0, lambda: 1), []
    for number, counts in enumerate(messages):
        sealed = [pack([b"x"] * count, producer=b"p" * 16, sequence=0, created_ns=0).seal(1) for count in counts]
        entries = unbundle(bundle(sealed), number * STRIDE, "s")
        stored += [(entry.base, count, len(entry.data)) for entry, count in zip(entries, counts, strict=True)]
        tally.add(number, entries)
    kept_bytes = [sum(size for _, _, size in stored[at:]) for at in range(len(stored))]
    fitting = [at for at in range(len(stored)) if retain_bytes is None or kept_bytes[at] <= retain_bytes]
    by_bytes = stored[min([*fitting, len(stored) - 1])][0]
    offsets = [base + at for base, count, _ in stored for at in range(count)]
    by_count = offsets[max(len(offsets) - capacity, 0)] if capacity is not None else 0
    assert tally.head == max(by_bytes, by_count)


def test_of_two_who_make_a_stream_at_once_both_get_the_first():
    server = MemoryServer()
    one, two = (TopicCatalogue(MemoryTopic(server, "_catalogue"), VirtualRuntime().monotonic) for _ in range(2))
    first = one.add(StreamEntry("orders", "a", KEEP_ALL))
    assert two.add(StreamEntry("orders", "b", StreamConfig())) == first
    one.trim(first, 5)
    one.trim(first, 3)
    assert two.find("orders").head == 5
    assert two.remove(first)
    assert not one.remove(first)
    assert one.all() == []


def test_what_does_not_fit_the_catalogue_is_passed_over():
    known = {}
    apply_message(known, {"remove": "x", "identity": "1"})
    apply_message(known, {"add": "x", "identity": "1", "config": {}})
    apply_message(known, {"trim": "x", "identity": "2", "head": 9})
    apply_message(known, {"remove": "x", "identity": "2"})
    assert known["x"].head == 0


def address(target, environ=None, **options):
    return parse_address("kafka", target, options, environ=environ or {}, default_port=9092, known=("layout",))


def test_an_address_names_every_server():
    found = address("//a,b:1/path", layout="records", timeout_s="2", patience_s="3", prefix="x.", strict="true")
    assert found.hosts == (("a", 9092), ("b", 1))
    assert (found.servers, found.path, found.prefix, found.strict) == ("a:9092,b:1", "path", "x.", True)
    assert (found.timeout_s, found.patience_s, found.options) == (2.0, 3.0, {"layout": "records"})


def test_secrets_come_from_the_url_a_file_or_the_environment_and_are_never_shown(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hush\n")
    environ = {"LOCKSTEP_KAFKA_USER": "me", "LOCKSTEP_KAFKA_PASSWORD": "hush"}
    for found in (
        address("//me:hush@host"),
        address("//host", user="me", password_file=str(file)),
        address("//host", environ=environ),
        address("//host", environ={**environ, "LOCKSTEP_KAFKA_PASSWORD_FILE": str(file)}),
    ):
        assert (found.user, found.password.reveal()) == ("me", "hush")
        assert "hush" not in repr(found) + str(found.password) + found.safe_url


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        ("host", {}, "write kafka://HOST:PORT"),
        ("//", {}, "write kafka://HOST:PORT"),
        ("//host:x", {}, "is not HOST:PORT"),
        ("//host:70000", {}, "is not HOST:PORT"),
        ("//host", {"colour": "red"}, "no option 'colour'"),
        ("//host", {"tls": "yes"}, "must be true or false"),
        ("//host", {"timeout_s": "0"}, "between 0 and 3600"),
        ("//host", {"patience_s": "long"}, "between 0 and 3600"),
        ("//host", {"ca": "/no/such/file"}, "names no file"),
        ("//me@host", {"password_file": "/no/such/file"}, "can't be read"),
        ("//me:hush@host", {"tls": "yes"}, "must be true or false"),
    ],
)
def test_a_bad_address_says_why_and_no_secret(target, options, reason):
    with pytest.raises(BadUrl, match=reason) as caught:
        address(target, **options)
    assert "hush" not in str(caught.value)


def test_findings_are_warnings_unless_they_are_fatal_or_somebody_is_strict(caplog):
    mild, fatal = Finding("s", "one broker", "replication"), Finding("s", "too old", "its version", fatal=True)
    report_findings([mild])
    assert "one broker" in caplog.text
    for found, strict in (([mild], True), ([mild, fatal], False)):
        with pytest.raises(ServerUnfit):
            report_findings(found, strict=strict)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.integers(0, 60), st.integers(0, 60))
def test_steps_count_records_where_offsets_have_gaps(counts, steps, start):
    log = MemoryServer().bus(VirtualRuntime()).create("s", KEEP_ALL)
    for count in counts:
        log.append([Producer().batch(*[b"x"] * count)])
    offsets = [number * STRIDE + at for number, count in enumerate(counts) for at in range(count)]
    bounds = log.bounds()
    at = min(start, len(offsets) - 1)
    assert records_between(log, offsets[at], bounds.next) == len(offsets) - at
    back = [*offsets, bounds.next][max(len(offsets) - steps, 0)]
    assert step_back(log, bounds.next, steps, bounds.first) == back
    ahead = [*offsets, bounds.next][min(at + steps, len(offsets))]
    assert step_forward(log, offsets[at], steps, bounds.next) == ahead


@given(st.lists(st.integers(1, 300), max_size=20), st.integers(200, 900))
def test_batches_are_put_into_appends_that_fit(sizes, limit):
    batches = [Producer().batch(b"x" * size) for size in sizes]
    parts = list(split_appends(batches, Limits(append_bytes=limit)))
    assert [batch for part in parts for batch in part] == batches
    for part in parts:
        assert len(part) <= 1 or len(bundle([batch.seal(1) for batch in part])) <= limit


def test_reading_a_part_again_needs_no_way_to_the_server(wire, log):
    for number in range(20):
        log.append([Producer().batch(b"%d" % number)])
    asked, fetch = [], wire.topics[-1].fetch
    wire.topics[-1].fetch = lambda number, size: asked.append(number) or fetch(number, size)
    for number in range(20):
        found = log.read(number * STRIDE)
        assert found[0].base == number * STRIDE
        assert len(found) == 20 - number
    assert asked == [0]


def test_what_is_held_is_bounded(log, monkeypatch):
    monkeypatch.setattr("lockstep.log.network.cache.CACHE_BYTES", 1000)
    for number in range(50):
        log.append([Producer().batch(b"%d" % number * 30)])
    at = 0
    while entries := log.read(at, max_bytes=200):
        at = entries[-1].base + 1
    assert len(log._cache._entries) < 20
    assert log.read(0)[0].base == 0


@pytest.mark.parametrize("never_twice", [False, True])
def test_a_stream_is_deleted_so_that_whoever_dies_in_between_leaves_no_harm(wire, bus, log, never_twice):
    if never_twice:
        wire.never_uses_a_name_twice = True
    done = []
    for where in (wire, wire.catalogue):
        plain = where.remove
        where.remove = lambda known, where=where, plain=plain: done.append(where is wire) or plain(known)
    bus.delete("orders")
    assert done == [not never_twice, never_twice]
    assert bus.names() == []
