"""A carrier at work: order, retries, dead letters, copies, other kinds, and an operator's orders."""

from __future__ import annotations

import threading
import uuid

import pytest

import lockstep
from lockstep.core.delivery import Barrier
from lockstep.errors import BadArgument, BadConfig, DataError, DeliveryRefused, IllegalState, StreamNotFound
from lockstep.streams.carrier import Carrier
from lockstep.streams.carrier_shard import ledger_name, write
from lockstep.streams.outbox import item_headers

FAST = {"backoff_s": 0.01, "backoff_max_s": 0.02}
WAIT_S = 30
GARBAGE = (
    b"", b"{", b"[]", b"7", b'{"kind":"x"}', b'{"kind":"begun"}', b'{"kind":"barrier","epoch":"9","owner":"x"}',
    b'{"kind":"memo","doubts":7}', b'{"kind":"memo"}', b'{"kind":"order","id":"b","verdict":7,"request":"r"}',
    b'{"kind":"ended","epoch":9,"owner":"x","id":"b","offset":1,"attempt":1,"outcome":"gone"}',
)  # fmt: skip


SERVERS = ("redis", "kafka", "rabbitmq", "hazelcast")


@pytest.fixture(params=["memory", *(pytest.param(kind, marks=pytest.mark.soak) for kind in SERVERS)])
def bus(request):
    if request.param == "memory":
        url = f"memory:{abs(hash(request.node.name))}"
    else:
        server = request.getfixturevalue(f"{request.param}_server")
        url = f"{server.url}{'&' if '?' in server.url else '?'}prefix=c{uuid.uuid4().hex[:12]}."
    with lockstep.connect(url) as made:
        made.create("outbox")
        yield made


def put(bus, *items, stream="outbox"):
    """Items as (id, key) or (id, key, kind)."""
    with bus.publisher(stream) as publisher:
        for item, key, *kind in items:
            headers = item_headers(id=item, kind=kind[0] if kind else "")
            publisher.publish(item.encode(), key=key, headers=headers)


def carried(bus, handler, *, kind="*", outbox="outbox", **options):
    """Have everything carried out by a carrier."""
    with bus.carrier(outbox, group="g", **{**FAST, **options}) as carrier:
        carrier.on(kind, handler)
        assert carrier.start().wait_idle(WAIT_S)
    return carrier.counts


def states(bus):
    return {one.id: one.state for one in bus.deliveries("outbox", group="g").items()}


def test_each_item_is_carried_out_once_and_those_of_a_key_in_order(bus):
    items = [(f"i{number}", b"k%d" % (number % 3)) for number in range(60)]
    put(bus, *items)
    done = []
    assert carried(bus, lambda item: done.append((item.key, item.id)))["done"] == 60
    for key in (b"k0", b"k1", b"k2"):
        assert [item for lane, item in done if lane == key] == [item for item, lane in items if lane == key]
    assert len(done) == 60
    # And a carrier that starts later finds nothing to do
    assert carried(bus, done.append)["done"] == 0


def test_what_a_handler_gets_is_the_item_and_its_attempt(bus):
    with bus.publisher("outbox") as publisher:
        publisher.publish(b"body", key=b"k", headers=item_headers(id="ü-1", kind="mail", headers={"x": b"y"}))
    found = []
    carried(bus, found.append)
    [item] = found
    assert (item.id, item.kind, item.key, item.body, item.headers) == ("ü-1", "mail", b"k", b"body", (("x", b"y"),))
    assert (item.attempt, item.in_doubt, item.epoch, item.header("x"), item.header("z")) == (1, False, 1, b"y", None)


def test_a_record_without_an_id_is_named_by_its_place(bus):
    with bus.publisher("outbox") as publisher:
        publisher.publish_many([b"x", b"x"])
    found = []
    carried(bus, found.append)
    assert len({item.id for item in found}) == 2


def test_copies_are_not_carried_out_also_by_a_carrier_that_starts_later(bus):
    put(bus, ("a", None), ("b", b"k"), ("a", None), ("b", b"k"))
    done = []
    carried(bus, lambda item: done.append(item.id))
    put(bus, ("a", None), ("c", None))
    carried(bus, lambda item: done.append(item.id))
    assert sorted(done) == ["a", "b", "c"]


def test_an_item_that_fails_is_tried_again_and_holds_up_its_key_only(bus):
    put(bus, ("a1", b"a"), ("a2", b"a"), ("b1", b"b"))
    done, attempts = [], []
    others = threading.Event()

    def handle(item):
        if item.id == "a1":
            attempts.append(item.attempt)
            others.wait(WAIT_S)  # the other key goes on meanwhile
            if item.attempt < 3:
                msg = "later"
                raise OSError(msg)
        done.append(item.id)
        if item.id == "b1":
            others.set()

    counts = carried(bus, handle)
    assert (done, attempts) == (["b1", "a1", "a2"], [1, 2, 3])
    assert (counts["done"], counts["failed"]) == (3, 2)


def test_an_item_that_fails_for_good_becomes_a_dead_letter_and_can_be_sent_back(bus):
    put(bus, ("a", b"k"), ("b", b"k"))
    done, is_mended = [], False

    def handle(item):
        if item.id == "a" and not is_mended:
            msg = "not now"
            raise OSError(msg)
        done.append(item.id)

    assert carried(bus, handle, retries=2)["dead"] == 1
    [letter] = lockstep.dead_letters(bus, "outbox.dlq")
    assert (letter.stream, letter.offset, letter.group, letter.attempts) == ("outbox", 0, "g", 3)
    assert (letter.record.value, letter.reason) == (b"a", "OSError: not now")
    assert states(bus) == {"a": "dead", "b": "done"}
    # When it is mended, and sent back
    is_mended = True
    if bus.promises.atomic:
        assert lockstep.redrive(bus, "outbox.dlq") == 1
    else:
        bus.deliveries("outbox", group="g").retry("a")
    assert carried(bus, handle, retries=2)["done"] == 1
    assert done == ["b", "a"]
    assert states(bus) == {"a": "done", "b": "done"}


def test_a_refused_item_is_not_tried_again(bus):
    put(bus, ("a", b"k"), ("b", b"k"))
    attempts = []

    def handle(item):
        attempts.append((item.id, item.attempt))
        if item.id == "a":
            raise DeliveryRefused(reason="no such address")

    counts = carried(bus, handle)
    assert (attempts, counts["refused"], counts["dead"]) == ([("a", 1), ("b", 1)], 1, 1)
    [letter] = lockstep.dead_letters(bus, "outbox.dlq")
    assert letter.reason == "no such address"


@pytest.mark.parametrize("header", [b"", b"\xff", b"a\nb", b"x" * 513])
@pytest.mark.parametrize("name", ["delivery-id", "delivery-kind"])
def test_a_record_that_can_be_no_item_becomes_a_dead_letter(bus, name, header):
    with bus.publisher("outbox") as publisher:
        publisher.publish(b"x", headers={name: header})
    done = []
    assert carried(bus, done.append)["dead"] == 1
    assert done == []
    [letter] = lockstep.dead_letters(bus, "outbox.dlq")
    assert name in letter.reason


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"body": 7}', b'{"body": "?"}', b"\xff"])
def test_a_record_without_the_body_that_its_header_names_becomes_a_dead_letter(bus, value):
    with bus.publisher("outbox") as publisher:
        publisher.publish(value, headers=item_headers(id="a", headers={"delivery-body": b"body"}))
    done = []
    assert carried(bus, done.append)["dead"] == 1
    assert done == []


def test_a_letter_that_is_too_large_goes_without_its_value(bus):
    bus.create("outbox.dlq", lockstep.StreamConfig(max_record_bytes=2000))
    with bus.publisher("outbox") as publisher:
        publisher.publish(b"x" * 5000, headers=item_headers(id="a"))

    def handle(_):
        raise DeliveryRefused(reason="never")

    assert carried(bus, handle)["dead"] == 1
    [letter] = lockstep.dead_letters(bus, "outbox.dlq")
    assert letter.is_cut
    assert bus.deliveries("outbox", group="g").retry("a") == bus.bus.open("outbox").limits.stride
    done = []
    carried(bus, lambda item: done.append(len(item.body)))
    assert done == [5000]


def test_kinds_without_a_handler_are_left_to_other_groups(bus):
    put(bus, ("a", None, "mail"), ("b", None, "page"), ("c", None, "mail"))
    mails, pages = [], []
    assert carried(bus, lambda item: mails.append(item.id), kind="mail")["passed"] == 1
    with bus.carrier("outbox", group="pages") as carrier:
        carrier.on("page", lambda item: pages.append(item.id))
        assert carrier.start().wait_idle(WAIT_S)
    assert (sorted(mails), pages) == (["a", "c"], ["b"])


def test_handlers_may_be_async_and_decorated(bus):
    put(bus, ("a", None, "mail"), ("b", None))
    done = []
    with bus.carrier("outbox", group="g", **FAST) as carrier:

        @carrier.on("mail")
        async def send(item):
            done.append(item.id)
            if item.attempt == 1:
                raise ValueError(item.id)

        @carrier.on("*")
        def others(item):
            done.append(item.id)

        assert carrier.start().wait_idle(WAIT_S)
    assert sorted(done) == ["a", "a", "b"]


def test_shards_are_carried_by_several_members_and_handed_over_without_a_doubt(bus):
    bus.create("sharded", lockstep.StreamConfig(shards=4))
    done, lock = [], threading.Lock()

    def handle(item):
        with lock:
            done.append(item.id)

    def joined():
        carrier = bus.carrier("sharded", group="g", workers=2)
        carrier.on("*", handle)
        return carrier.start()

    first = joined()
    put(bus, *[(f"i{number}", b"k%d" % (number % 20)) for number in range(100)], stream="sharded")
    second = joined()
    put(bus, *[(f"i{number}", b"k%d" % (number % 20)) for number in range(100, 200)], stream="sharded")
    first.close()
    put(bus, *[(f"i{number}", b"k%d" % (number % 20)) for number in range(200, 300)], stream="sharded")
    assert second.wait_idle(WAIT_S)
    second.close()
    assert sorted(done) == sorted(f"i{number}" for number in range(300))
    assert bus.deliveries("sharded", group="g").doubts() == []


def test_a_shard_that_is_full_behind_an_item_that_waits_holds_up_no_other(bus):
    bus.create("sharded", lockstep.StreamConfig(shards=2))
    shards = {lockstep.shard_of(b"k%d" % number, 2): b"k%d" % number for number in range(20)}
    stuck = [("stuck", shards[0])] + [(f"a{number}", b"") for number in range(30)]
    first, second = bus.logs("sharded")
    for log, items in ((first, stuck), (second, [(f"b{number}", b"") for number in range(30)])):
        put(bus, *[(item, key or None) for item, key in items], stream=log.name)
    done, others = [], threading.Event()

    def handle(item):
        if item.id == "stuck":
            raise ValueError(item.id)
        done.append(item.id)
        if sum(one.startswith("b") for one in done) == 30:
            others.set()

    with bus.carrier("sharded", group="g", window=10, backoff_s=1000.0, backoff_max_s=1000.0) as carrier:
        carrier.on("*", handle)
        carrier.start()
        assert others.wait(WAIT_S)
        assert 1 <= carrier._shards["sharded/0"].dispatcher.size <= 2 * 10
        assert len([item for item in done if item.startswith("a")]) < 30


def test_an_operator_skips_what_is_tried_again_and_again(bus):
    put(bus, ("a", b"k"), ("b", b"k"))
    done, tried = [], threading.Event()

    def handle(item):
        if item.id == "a":
            tried.set()
            raise ValueError(item.id)
        done.append(item.id)

    with bus.carrier("outbox", group="g", backoff_s=1000.0, backoff_max_s=1000.0) as carrier:
        carrier.on("*", handle)
        carrier.start()
        assert tried.wait(WAIT_S)
        deliveries = bus.deliveries("outbox", group="g")
        deliveries.skip("a")
        assert carrier.wait_idle(WAIT_S)
    assert (done, states(bus)) == (["b"], {"a": "skipped", "b": "done"})
    with pytest.raises(IllegalState, match="skipped"):
        deliveries.skip("a")
    with pytest.raises(IllegalState, match="done"):
        deliveries.retry("b")
    with pytest.raises(DataError, match="'zz'"):
        deliveries.retry("zz")
    # And has it carried out after all
    deliveries.retry("a")
    carried(bus, lambda item: done.append(item.id))
    assert done == ["b", "a"]


def test_an_item_can_be_skipped_before_it_was_begun(bus):
    put(bus, ("a", None))
    carried(bus, print, kind="none")  # makes the ledger
    bus.deliveries("outbox", group="g").skip("b")
    put(bus, ("b", None), ("c", None))
    done = []
    carried(bus, lambda item: done.append(item.id))
    assert done == ["c"]


def test_the_ledger_stays_short_and_still_knows_the_last_items(bus, monkeypatch):
    monkeypatch.setattr("lockstep.streams.carrier_shard.TRIM_EVERY", 50)
    put(bus, *[(f"i{number}", None) for number in range(300)])
    done = []
    carried(bus, lambda item: done.append(item.id), remember=20)
    put(bus, ("i299", None), ("i298", None), ("x", None))
    carried(bus, lambda item: done.append(item.id), remember=20)
    bounds, stride = bus.bounds(ledger_name("outbox", "g")), bus.bus.open("outbox").limits.stride
    assert bounds.count // stride < 200
    assert bounds.first // stride > (300 if stride == 1 else 30)  # a message of a server holds several records
    assert (len(done), done[-1]) == (301, "x")


def test_a_carrier_whose_ledger_names_another_owner_takes_it_over_once_more(bus):
    put(bus, *[(f"i{number}", b"k") for number in range(4)])
    done = []

    def handle(item):
        if item.id == "i1":
            [ledger] = bus.logs(ledger_name("outbox", "g"))
            write(ledger, Barrier(50, "a stranger"), bus.runtime)
        done.append((item.id, item.epoch))

    carried(bus, handle)
    # What it was at is in doubt for a moment, until it says itself that it was done
    assert done == [("i0", 1), ("i1", 1), ("i2", 51), ("i3", 51)]
    [doubt] = bus.deliveries("outbox", group="g").doubts()
    assert (doubt.id, doubt.fate) == ("i1", "done")


def test_garbage_in_a_ledger_counts_for_nothing(bus):
    put(bus, ("a", None))
    carried(bus, print)
    with bus.publisher(ledger_name("outbox", "g")) as publisher:
        for value in GARBAGE:
            publisher.publish(value)
    put(bus, ("b", None))
    done = []
    carried(bus, lambda item: done.append(item.id))
    assert done == ["b"]


def test_figures_are_part_of_the_metrics(bus):
    put(bus, ("a", None))
    carried(bus, print)
    text = bus.metrics.render().decode()
    assert 'lockstep_deliveries_done_total{group="g"} 1.0' in text
    assert 'lockstep_deliveries_in_doubt_total{group="g"} 0.0' in text


def test_what_can_not_be_is_refused_before_anything_happens(bus):
    for options in ({"workers": 0}, {"retries": -1}, {"on_doubt": "maybe"}, {"window": 0}, {"backoff_s": -1.0}):
        with pytest.raises(BadConfig):
            bus.carrier("outbox", group="g", **options)
    with pytest.raises(BadConfig, match="did you mean retries"):
        bus.carrier("outbox", group="g", retrys=1)
    with pytest.raises(IllegalState, match="no handler"):
        bus.carrier("outbox", group="g").start()
    missing = bus.carrier("missing", group="g")
    missing.on("*", print)
    with pytest.raises(StreamNotFound):
        missing.start()
    started = bus.carrier("outbox", group="g")
    started.on("*", print)
    started.start()
    with pytest.raises(IllegalState, match="has been started"):
        started.on("x", print)
    with pytest.raises(IllegalState):
        started.start()
    started.close()
    started.close()
    for wrong in ({"id": ""}, {"id": "a\n"}, {"id": "x" * 513}, {"id": 7}, {"id": "a", "kind": "\0"}):
        with pytest.raises(BadArgument):
            item_headers(**wrong)
    assert ledger_name("outbox", "never") not in bus.streams()
    assert isinstance(started, Carrier)
