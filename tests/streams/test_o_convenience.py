"""What makes streams pleasant: defaults, batches, types, words in errors, and nothing left behind."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field, fields

import pytest

import lockstep
from lockstep import GroupOptions, PublisherOptions, StreamConfig, SubscriberOptions
from lockstep.errors import BadConfig, BadUrl, PackageMissing, StreamNotFound
from lockstep.log.embedded import catalogue
from lockstep.streams import record as record_module
from lockstep.streams.options import PublisherSettings, ReceiverSettings, StreamSettings, SubscriberSettings
from lockstep.streams.threads import PUBLISHER_THREADS

FAST = GroupOptions(lease_s=0.4, beat_s=0.05)


@pytest.fixture
def bus():
    with lockstep.connect("memory:") as client:
        yield client


@pytest.fixture
def disk(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={1 << 28}") as client:
        yield client


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_program_that_publishes_200_000_lines_and_then_reads_finds_them_all(bus):
    with bus.publisher("lines") as publisher:
        publisher.publish_many([b"line"] * 200_000).wait(30)
    with bus.subscriber("lines", initial="earliest") as subscriber:
        assert sum(1 for _ in subscriber.records(idle_s=0.05)) == 200_000
    assert bus.config("lines").retain_age_s == 7 * 86_400


def test_a_plain_stream_is_created_without_a_word(bus, disk, caplog):
    caplog.set_level(logging.INFO)
    bus.create("orders")
    disk.create("orders")
    assert caplog.records == []
    bus.create("copied", StreamConfig(sync_replicas=2))
    assert "wants 2 more copies" in caplog.text


def test_a_bus_that_can_t_keep_seven_days_says_so_when_the_stream_is_made(bus, caplog):
    bus.bus.room = lambda name: 900
    bus.bus.has_rings = True
    assert bus.create("orders") == StreamConfig(capacity=900, retain_age_s=7 * 86_400)
    assert "keeps the last 900 records" in caplog.text
    assert bus.create("orders", StreamConfig(capacity=50)).capacity == 50, "and it still counts as one without settings"


@pytest.fixture
def entries_read(monkeypatch):
    """The names of the catalogue entries that were listed or decoded."""
    found = []
    decode, all_names = catalogue.decode, catalogue.all_names
    monkeypatch.setattr(catalogue, "decode", lambda name, data: found.append(name) or decode(name, data))
    monkeypatch.setattr(catalogue, "all_names", lambda tables: found.extend(all_names(tables)) or all_names(tables))
    return found


def test_creating_a_stream_reads_the_entries_of_no_other(disk, entries_read):
    disk.create_many([f"s{number}" for number in range(100)])
    entries_read.clear()
    disk.create("orders")
    disk.create("orders")
    assert set(entries_read) == {"orders"}
    assert len(disk.streams()) == 101


def test_thousands_of_streams_are_created_in_few_transactions(disk, entries_read, monkeypatch):
    disk.create("s5", StreamConfig(capacity=5))
    writes = []
    store = disk.bus._store
    write = store.write
    monkeypatch.setattr(store, "write", lambda job: writes.append(job) or write(job))
    disk.create_many([f"s{number}" for number in range(3_000)])
    assert len(writes) <= 3_000 // 1_000
    assert len(entries_read) <= 3 * 3_000, "each entry a few times, however many there are"
    assert len(disk.streams()) == 3_000
    assert disk.config("s5").capacity == 5
    disk.create_many(["a", "b"], StreamConfig(shards=3))
    assert len(disk.logs("b")) == 3


def test_a_batch_is_indexed_and_sliced(bus):
    with bus.publisher("orders", batch_records=3) as publisher:
        for number in range(10):
            publisher.publish(b"%d" % number, key=b"k").result(10)
    batch = bus.subscriber("orders", initial="earliest").poll(5)
    everything = batch.to_list()
    assert [batch[at] for at in range(-10, 10)] == [everything[at] for at in range(-10, 10)]
    for part in (slice(2, 5), slice(None, 3), slice(-2, None), slice(5, 2), slice(None)):
        assert batch[part].to_list() == everything[part]
    assert batch[2:5].values() == [b"2", b"3", b"4"]
    assert batch[2:5].last_offset == 4
    for outside in (10, -11):
        with pytest.raises(IndexError):
            batch[outside]
    with pytest.raises(ValueError, match="step 1"):
        batch[::2]


def test_a_batch_becomes_an_arrow_table_or_a_frame(bus, monkeypatch):
    with bus.publisher("orders", value=lockstep.JSON) as publisher:
        publisher.publish({"n": 1}, key=b"a", headers={"h": b"x"})
        publisher.publish({"n": 2})
    subscriber = bus.subscriber("orders", initial="earliest", value=lockstep.JSON)
    batch = subscriber.poll(5)
    table = batch.to_arrow()
    assert table.column("value").to_pylist() == [{"n": 1}, {"n": 2}]
    assert table.column("key").to_pylist() == [b"a", None]
    assert table.column("headers").to_pylist()[0] == [{"name": "h", "value": b"x"}]
    frame = batch.to_pandas()
    assert list(frame["offset"]) == [0, 1]
    assert str(frame["created"].dtype) == "datetime64[ns, UTC]"
    empty = subscriber.poll(0)
    assert empty.to_arrow().num_rows == len(empty.to_pandas()) == 0
    assert empty.raw().to_arrow().schema.field("value").type == "binary"

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(record_module.importlib, "import_module", missing)
    with pytest.raises(PackageMissing, match=r"to_arrow\(\) needs the package pyarrow.*pip install pyarrow"):
        batch.to_arrow()


def test_confirm_takes_a_batch_or_a_record(bus):
    with bus.publisher("orders") as publisher:
        publisher.publish_many([b"x"] * 10).wait(10)
    with bus.subscriber("orders", group="g", group_options=FAST) as subscriber:
        batch = subscriber.poll(10, max_records=4)
        subscriber.confirm(batch[:2], sync=True)
        assert subscriber.confirmed_offset() == 1
        subscriber.confirm(batch, sync=True)
        assert subscriber.confirmed_offset() == 3
        subscriber.confirm(subscriber.poll(0)[:0])
        subscriber.confirm(batch[0])


@dataclass
class Line:
    product: str
    price: float


@dataclass
class Order:
    number: int
    lines: list[Line] = field(default_factory=list)
    first: Line | None = None
    by_name: dict[str, Line] = field(default_factory=dict)
    pair: tuple[Line, int] = (Line("x", 1.0), 2)


def test_nested_dataclasses_come_back_as_dataclasses(bus):
    tea = Line("tea", 1.5)
    order = Order(7, [tea, Line("milk", 0.5)], tea, {"tea": tea}, (tea, 3))
    serializer = lockstep.dataclass_json(Order)
    assert serializer.decode(serializer.encode(order)) == order
    assert serializer.decode(serializer.encode(Order(8))) == Order(8)


def test_objects_say_what_they_are(bus):
    publisher = bus.publisher("orders")
    receipt = publisher.publish(b"one coffee", key=b"k")
    receipt.result(10)
    many = publisher.publish_many([b"x"] * 3)
    many.wait(10)
    subscriber = bus.subscriber("orders", initial="earliest")
    batch = subscriber.poll(5)
    member = bus.subscriber("orders", group="kitchen")
    assert repr(bus).startswith("<Lockstep memory:")
    assert repr(publisher) == "<Publisher to 'orders', 0 records queued>"
    assert repr(receipt) == "<Receipt of a record to 'orders', offset 0>"
    assert repr(many) == "<ManyReceipt of 3 records, done>"
    assert repr(member) == "<Subscriber to 'orders' in group 'kitchen'>"
    assert repr(batch) == "RecordBatch('orders', 4 records, offsets 0..3)"
    assert repr(batch[0]) == "Record('orders', offset=0, value=b'one coffee', key=b'k')"
    publisher.close()
    subscriber.close()
    assert repr(publisher) == "<Publisher to 'orders', closed>"
    assert repr(subscriber) == "<Subscriber to 'orders' closed>"


def test_misspelt_options_are_refused_with_what_was_meant(bus):
    subscriber = bus.subscriber("orders")
    attempts = {
        "when_full": lambda: bus.publisher("orders", when_ful="raise"),
        "on_gap": lambda: bus.subscriber("orders", on_gaps="fail"),
        "workers": lambda: bus.receive(subscriber, print, wrokers=3),
    }
    for meant, attempt in attempts.items():
        with pytest.raises(BadConfig, match=f"did you mean {meant}\\?"):
            attempt()
    with pytest.raises(BadConfig, match="group_options=GroupOptions"):
        bus.subscriber("orders", lease_s=3)


def test_the_types_of_options_name_what_there_is():
    for types, kind in ((PublisherSettings, PublisherOptions), (SubscriberSettings, SubscriberOptions)):
        assert set(types.__annotations__) == {item.name for item in fields(kind)}
    assert set(StreamSettings.__annotations__) == {item.name for item in fields(StreamConfig)} - set(
        lockstep.log.config.FIXED
    )
    receiver = lockstep.Receiver.__init__.__kwdefaults__
    assert set(ReceiverSettings.__annotations__) == set(receiver)


def test_256_shards_do_not_make_256_threads(bus):
    before = threading.active_count()
    with bus.publisher("orders", config=StreamConfig(shards=256)) as publisher:
        assert threading.active_count() - before <= PUBLISHER_THREADS
        receipts = [publisher.publish(b"%d" % number, key=b"%d" % number) for number in range(500)]
        assert {receipt.log for receipt in receipts if receipt.result(20) is not None} > {"orders/0", "orders/255"}
    assert within(5, lambda: threading.active_count() <= before)


def test_a_callback_on_a_shared_thread_may_not_wait_for_a_neighbour(bus):
    told = []
    with bus.publisher("orders", config=StreamConfig(shards=64)) as publisher:

        def callback(offset, error):
            try:
                publisher.flush(5)
            except lockstep.errors.IllegalState as refused:
                told.append(refused)

        publisher.publish(b"x", key=b"k", callback=callback).result(10)
        assert within(5, lambda: told)


def test_a_dropped_publisher_sends_what_it_has_and_leaves_no_thread(bus):
    before = threading.active_count()
    publisher = bus.publisher("orders", linger_s=5.0)
    receipt = publisher.publish(b"x")
    with pytest.warns(ResourceWarning, match="publisher to orders was dropped without close"):
        del publisher
    assert receipt.result(10) == 0
    assert within(5, lambda: threading.active_count() <= before)


def test_a_connection_waits_for_what_a_dropped_publisher_still_sends(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}/bus") as bus:
        receipts = bus.publisher("orders").publish_many([b"x" * 100] * 20_000)
    assert receipts.wait(0) == 19_999


def test_a_dropped_member_leaves_its_group(bus):
    before = threading.active_count()
    with bus.publisher("orders") as publisher:
        publisher.publish(b"x").result(10)
    member = bus.subscriber("orders", group="g", group_options=GroupOptions(lease_s=30, beat_s=1))
    assert member.poll(10)
    with pytest.warns(ResourceWarning, match="in group 'g'.* was dropped without close"):
        del member
    with bus.subscriber("orders", group="g", group_options=GroupOptions(lease_s=30, beat_s=1)) as other:
        assert other.poll(10).values() == [b"x"], "long before the lease of the first one ends"
    assert within(5, lambda: threading.active_count() <= before)


def test_a_dropped_connection_gives_its_descriptors_back(tmp_path):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    url = f"lmdb:{tmp_path}/bus"
    with lockstep.connect(url) as bus:
        bus.create("orders")
    before = descriptors()
    for _ in range(5):
        client = lockstep.connect(url)
        client.subscriber("orders").poll(0)
        del client
    assert within(5, lambda: descriptors() <= before)


def test_advice_fits_what_went_wrong(bus):
    with pytest.raises(BadUrl, match="kafka://localhost:9092"):
        lockstep.connect("kafka://localhost:9092?nonsense=1")
    assert "open its subscribers again" in str(StreamNotFound(name="_group.adm", bus="x"))
    assert "lockstep stream create orders" in str(StreamNotFound(name="orders", bus="x"))
    assert "Send the same batch" not in str(lockstep.errors.AppendUncertain(stream="a", reason="b"))
