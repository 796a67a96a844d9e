"""Windows as data frames: types, copies, ranges, rows that are held. The classes as Spark would call them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNull, LessThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import DecimalType, IntegerType, LongType, StringType, StructField, StructType
from test_engine_frames_cases import numbered
from test_engine_run_outfold import SCHEMA, batch_of, frames_of, leaders
from window_worlds import EVERY, SMALL, WindowWorld, sent, source_graph, table

from lockstep.engine.errors import (
    BlocksMissing,
    HistoryTrimmed,
    OutputDiffers,
    ProjectNotStated,
    RowsLost,
    ValueUnfit,
    WindowNotFound,
)
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.engine.spark.rows import LockstepSource, PushingSource
from lockstep.engine.spark.sources import bounds_of
from lockstep.engine.spark.window_columns import EventForm, checked_schema, frame_schema, own_columns, to_arrow
from lockstep.engine.spark.window_options import WindowReadOptions
from lockstep.engine.spark.window_reader import HeldColumns
from lockstep.errors import BadConfig, BadRecord, NotFound
from lockstep.events.positions import HeldRows

OWN = ["_block", "_opcode", "_flags", "_time"]


@pytest.fixture
def world(tmp_path):
    made = WindowWorld(tmp_path, SCHEMA)
    yield made
    made.close()


def beat(world: WindowWorld, last: int, offset: int) -> None:
    """An engine says that blocks up to `last` are out, which end at `offset`."""
    told = Beat("one", last, {"q/w": last}, offsets={"q/w": offset})
    world.bus.open(world.streams.control).append([told.batch(0)])


# --- types ---------------------------------------------------------------------------------------------------------


def shown(batch: EventBatch, *, integers: bool = False) -> pa.RecordBatch:
    spark = frame_schema(batch.schema, None, integers=integers)
    return to_arrow(batch, np.zeros(len(batch), np.int64), checked_schema(spark, batch.schema, integers=integers), "w")


def back(rows: pa.RecordBatch, schema: Schema, *, integers: bool = False) -> EventBatch:
    """The rows as events again, as if a data frame that was read were written."""
    kept = [
        field for field in frame_schema(schema, None, integers=integers).fields if field.name not in ("_block", "_time")
    ]
    form = EventForm.of(StructType(kept), schema, Opcode.UPSERT)
    return form.events(rows.select([field.name for field in kept]), 1, "s")


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans())
def test_every_value_goes_both_ways_exactly(data, integers):
    events = [event for _, block in data.draw(numbered(EVERY)) for event in block]
    events = [event for event in events if event.opcode is not Opcode.UPDATE_BLOCK]
    day, far = EVERY.places["day"], 2**63 // 10**6
    if not integers:
        events = [event for event in events if event.values[day] is None or abs(event.values[day]) < far]
    batch = EventBatch.of(EVERY, list(enumerate(([event] for event in events), 1)))
    assert repr(back(shown(batch, integers=integers), EVERY, integers=integers).blocks()) == repr(batch.blocks())


def one_row(**values: object) -> EventBatch:
    row = tuple(values.get(name) for name in EVERY.names)
    return EventBatch.of(EVERY, [(7, [Event(Opcode.INSERT, Flag.NORMAL, row)])])


def test_what_values_look_like():
    most = 2**63 - 1
    [row] = shown(
        one_row(id=most, i=-1, d=-0.0, s="ä", day=-1, at=1, m=-most - 1, b=b"\0", xs=(1, None), zs=())
    ).to_pylist()
    assert row == {
        "id": most, "i": -1, "d": -0.0, "s": "ä",
        "day": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "at": datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
        "m": Decimal("-922337203685477.5808"), "b": b"\0", "xs": [1, None], "ys": None, "zs": [],
        "_block": 7, "_opcode": "insert", "_flags": "N", "_time": datetime(1970, 1, 1, tzinfo=UTC),
    }  # fmt: skip


def test_a_date_that_no_time_stamp_can_show_is_an_error_and_an_integer_on_request():
    far = one_row(id=1, day=2**60)
    with pytest.raises(ValueUnfit, match=r"field day of w can't be shown as timestamp.*times=integers"):
        shown(far)
    assert shown(far, integers=True).column("day").to_pylist() == [2**60]


def test_own_columns_step_aside_for_fields_of_their_names():
    assert own_columns(SMALL) == tuple(OWN)
    assert own_columns(Schema.parse("_Block*:int32,__time:int32")) == ("___block", "___opcode", "___flags", "___time")


def form(schema: Schema = EVERY, **columns: pa.Array) -> EventBatch:
    """Rows of a data frame as events; the names of Spark's types follow from those of Arrow."""
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = pa.RecordBatch.from_pydict(columns)
    return EventForm.of(from_arrow_schema(rows.schema), schema, Opcode.UPSERT).events(rows, 2, "s")


def test_other_types_are_taken_where_nothing_is_lost():
    stamp = datetime(2026, 1, 31, 12, 0, 1, tzinfo=UTC)
    batch = form(
        ID=pa.array([1, 2], pa.int16()), D=pa.array([1.5, None], pa.float32()), day=pa.array([date(1970, 1, 2), None]),
        at=pa.array([stamp.replace(tzinfo=None), None], pa.timestamp("us")),
        m=pa.array([Decimal("1.5"), None], pa.decimal128(3, 1)),
        xs=pa.array([[1], None], pa.list_(pa.int8())),
    )  # fmt: skip
    assert batch.block.tolist() == [1, 1]
    micros = int(stamp.timestamp()) * 10**6
    values = dict(zip(EVERY.names, batch.events()[0].values, strict=True))
    assert values == dict.fromkeys(EVERY.names) | {
        "id": 1,
        "d": 1.5,
        "day": 86_400,
        "at": micros,
        "m": 15_000,
        "xs": (1,),
    }
    assert batch.events()[1].values == (2, *(None,) * (len(EVERY) - 1))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"m": pa.array([Decimal("0.00001")])}, "field m: .*would cause data loss"),
        ({"m": pa.array([Decimal(10**15)])}, "field m: .*out of bounds"),
        ({"day": pa.array([1_500_000], pa.timestamp("us", "UTC"))}, "field day: a date has whole seconds"),
        ({"_opcode": pa.array(["update_block"])}, "update_block is made by windows: read with option collapse=true"),
        ({"_opcode": pa.array(["explode"])}, "'explode' is not an opcode"),
        ({"_flags": pa.array(["?"])}, "is not a flag"),
    ],
)
def test_a_value_that_would_change_is_refused(columns, reason):
    with pytest.raises(BadRecord, match=reason):
        form(id=pa.array([1]), **columns)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"i": pa.array([1], pa.int64())}, "i bigint.*cast it to tinyint or smallint or int"),
        ({"m": pa.array([1.5])}, "m double.*cast it to decimal"),
        ({"_block": pa.array([1])}, "the engine numbers blocks"),
        ({"colour": pa.array([1])}, "no such field; it has id, i, d"),
        ({"ID": pa.array([1])}, "two columns are this field"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_before_anything_is_written(columns, reason):
    with pytest.raises(BadConfig, match=reason):
        form(id=pa.array([1]), **columns)


def test_a_frame_without_the_key_is_refused_unless_the_window_makes_it():
    frame = StructType([StructField("name", StringType())])
    with pytest.raises(BadConfig, match="it has no key 'ID'"):
        EventForm.of(frame, SMALL, Opcode.UPSERT)
    made = EventForm.of(frame, SMALL, Opcode.INSERT, makes_keys=True)
    rows = pa.RecordBatch.from_pydict({"name": ["a"]})
    assert made.events(rows, 1, "s").events() == [Event(Opcode.INSERT, Flag.NORMAL, (None, "a"))]


def test_rows_without_an_opcode_are_upserts():
    batch = form(
        SMALL, ID=pa.array([1, 2, 3]), _opcode=pa.array(["D", None, "safeDelete"]), _flags=pa.array(["N", None, "NR"])
    )
    assert batch.opcode.tolist() == [Opcode.DELETE, Opcode.UPSERT, Opcode.SAFEDELETE]
    assert batch.flags.tolist() == [Flag.NORMAL, Flag.NORMAL, Flag.NORMAL | Flag.RETENTION]


# --- what is on the stream -----------------------------------------------------------------------------------------


def ids(found: pa.Table) -> list[tuple[int, int]]:
    return list(zip(found["_block"].to_pylist(), found["ID"].to_pylist(), strict=True))


def expected(blocks: dict[int, int]) -> list[tuple[int, int]]:
    return [(number, number * 1000 + at) for number, events in blocks.items() for at in range(events)]


def stream(world: WindowWorld, size: int | None = None, **options: object) -> tuple[list[list[tuple[int, int]]], dict]:
    """A streaming query: batch by batch as Spark runs it, and where it ended."""
    source = world.source(**options)
    reader = source.streamReader(source.schema())
    limit = ReadAllAvailable() if size is None else ReadMaxBytes(size)
    at, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        parts = [part for one in reader.partitions(at, end) for part in sent(reader).read(sent(one))]
        batches.append(ids(table(parts, reader)))
        at = end
    return batches, at


@settings(max_examples=60, deadline=None)
@given(leaders(), st.integers(1, 2_000))
def test_whoever_wrote_each_whole_block_comes_once_however_it_is_cut(world, size):
    blocks, values = world
    with tempfile.TemporaryDirectory() as folder:
        made = WindowWorld(Path(folder), SCHEMA)
        made.put(*values)
        found = ids(made.read())
        whole = expected({number: blocks[number] for number in dict(found)})
        assert found == whole == expected(blocks)[: len(found)]
        batches, _ = stream(made, size)
        assert [row for batch in batches for row in batch] == found
        made.close()


def test_a_frame_that_does_not_chain_is_passed_over_until_what_is_missing_comes(world):
    first, second, third = (frames_of({number: 1}, number - 1)[0] for number in (1, 2, 3))
    world.put(first, third)
    batches, at = stream(world)
    assert batches == [expected({1: 1})]
    world.put(second, third)
    assert ids(world.read()) == expected({1: 1, 2: 1, 3: 1})
    source = world.source()
    reader = source.streamReader(source.schema())
    end = reader.latestOffset(at, ReadAllAvailable())
    parts = [part for one in reader.partitions(at, end) for part in reader.read(one)]
    assert ids(table(parts, reader)) == expected({2: 1, 3: 1})


def test_a_block_that_was_published_and_is_not_there_is_an_error(world):
    world.put(*frames_of({1: 1, 2: 1}))
    beat(world, 5, 9)
    with pytest.raises(BlocksMissing, match=r"ends with block 2, but block 5"):
        world.read()
    with pytest.raises(BlocksMissing):
        stream(world)
    assert ids(world.read(endingBlock=2)) == expected({1: 1})


def test_blocks_of_another_sequence_are_refused(world):
    traced = [
        encode_frame(batch_of({number: 1}), previous=number - 1, before=before, lineage=((number, digest),))
        for number, before, digest in ((1, "", "aa" * 8), (2, "bb" * 8, "cc" * 8))
    ]
    world.put(*traced)
    with pytest.raises(OutputDiffers):
        world.read()


def test_a_range_of_blocks(world):
    blocks = dict.fromkeys(range(1, 30), 2)
    world.put(*frames_of(blocks))
    wanted = expected(dict.fromkeys(range(7, 12), 2))
    assert ids(world.read(startingBlock=7, endingBlock=12)) == wanted
    assert ids(world.read(startingBlock=40)) == []
    batches, _ = stream(world, startingBlock=25)
    assert [row for batch in batches for row in batch] == expected(dict.fromkeys(range(25, 30), 2))
    beat(world, 29, world.out.bounds().next)
    batches, at = stream(world, startingBlock="latest")
    assert (batches, at["last"]) == ([], 29)


def test_the_first_batch_run_again_has_the_rows_it_had(world):
    world.put(*frames_of({1: 1}))
    source = world.source(startingBlock="latest")
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    world.put(*frames_of({2: 1}, 1))
    end = reader.latestOffset(start, ReadAllAvailable())
    world.put(*frames_of({3: 1}, 2))
    again = source.streamReader(source.schema())  # after a kill Spark asks a new one where the query began
    [part] = again.partitions(again.initialOffset(), end)
    assert ids(table(list(again.read(part)), again)) == expected({2: 1})


def test_large_windows_are_read_by_several_tasks(world, monkeypatch):
    monkeypatch.setattr("lockstep.engine.spark.window_reader.BYTES_PER_TASK", 100)
    blocks = dict.fromkeys(range(1, 40), 5)
    world.put(*frames_of(blocks))
    source = world.source()
    reader = source.reader(source.schema())
    assert len(reader.partitions()) > 3
    assert ids(world.read()) == expected(blocks)


def test_available_now_reads_what_was_there_at_the_start(world):
    world.put(*frames_of({1: 1}))
    source = world.source()
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    world.put(*frames_of({2: 1}, 1))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["last"] == 1
    assert reader.reportLatestOffset()["offset"] == 2


def test_only_the_columns_that_are_wanted(world):
    world.put(*frames_of({1: 2}))
    assert world.read(columns="_block,name").to_pylist() == [{"_block": 1, "name": ""}, {"_block": 1, "name": "x"}]
    asked = StructType([StructField("ID", LongType(), nullable=False)])
    assert world.read(asked).to_pylist() == [{"ID": 1000}, {"ID": 1001}]
    with pytest.raises(BadConfig, match=r"colour string.*no such column; it has ID bigint, name string, _block"):
        world.read(StructType([StructField("colour", StringType())]))
    with pytest.raises(BadConfig, match=r"ID int.*no such column"):
        world.read(StructType([StructField("ID", IntegerType())]))


def test_conditions_on_the_number_of_the_block_say_what_is_read(world):
    blocks = dict.fromkeys(range(1, 12), 1)
    world.put(*(frame for number in blocks for frame in frames_of({number: 1}, number - 1)))
    given = world.source().options
    source = PushingSource(given)
    reader = source.reader(source.schema())
    filters = [GreaterThan(("_block",), 6), LessThanOrEqual(("_block",), 8), EqualTo(("name",), "x")]
    assert list(reader.pushFilters(filters)) == filters
    [part] = reader.partitions()
    assert (part.start.offset, part.end.offset) == (6, 8)
    assert ids(table(list(sent(reader).read(part)), reader)) == expected({7: 1, 8: 1})


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], (0, None)),
        ([EqualTo(("n",), 5)], (5, 6)),
        ([In(("n",), (4, 9, 2))], (2, 10)),
        ([In(("n",), ())], (0, None)),
        ([GreaterThanOrEqual(("n",), 3), GreaterThan(("n",), 4)], (5, None)),
        ([LessThan(("n",), 3), GreaterThan(("n",), 4)], (5, 5)),
        ([EqualTo(("other",), 5), EqualTo(("n", "x"), 5), IsNull(("n",)), EqualTo(("n",), "5")], (0, None)),
    ],
)
def test_what_conditions_say_about_a_number(filters, bounds):
    assert bounds_of(filters, "n") == bounds


def test_an_update_is_two_rows_or_one(world):
    pair = [Event(Opcode.UPDATE_BLOCK, Flag.NORMAL, (1, "b")), Event(Opcode.DELETE, Flag.NORMAL, (1, "a"))]
    first = [Event(Opcode.INSERT, Flag.NORMAL, (1, "a"))]
    world.put(encode_frame(EventBatch.of(SCHEMA, [(1, first), (2, pair)]), previous=0))
    assert world.read()["_opcode"].to_pylist() == ["insert", "update_block", "delete"]
    assert world.read(collapse="true", columns="_opcode,name").to_pylist() == [
        {"_opcode": "insert", "name": "a"},
        {"_opcode": "update", "name": "b"},
    ]


# --- blocks that are gone ------------------------------------------------------------------------------------------


def test_trimmed_blocks_are_told(world):
    blocks = dict.fromkeys(range(1, 11), 1)
    world.put(*(frame for number in blocks for frame in frames_of({number: 1}, number - 1)))
    source = world.source()
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ReadMaxBytes(1))
    end = reader.latestOffset(middle, ReadAllAvailable())
    [part] = reader.partitions(middle, end)
    world.out.trim(6)
    with pytest.raises(RowsLost, match=r"Offsets 1 to 5 of local\.desk\.q\.w\.O"):
        reader.latestOffset(middle, ReadAllAvailable())
    with pytest.raises(RowsLost, match=r"they were trimmed"):
        list(reader.read(part))
    easy = world.source(failOnDataLoss="false")
    lenient = easy.streamReader(easy.schema())
    assert ids(table(list(lenient.read(part)), lenient)) == expected(dict.fromkeys(range(7, 11), 1))
    assert ids(world.read()) == expected(dict.fromkeys(range(7, 11), 1))
    with pytest.raises(HistoryTrimmed, match=r"The current rows needs"):
        world.read(rows="current")
    with pytest.raises(HistoryTrimmed, match=r"Block 4 needs"):
        world.read(startingBlock=4)
    assert ids(world.read(startingBlock=7)) == expected(dict.fromkeys(range(7, 11), 1))


def test_a_stream_made_anew_is_another_one(world):
    world.put(*frames_of({1: 1}))
    _, at = stream(world)
    world.bus.delete(world.out.name)
    world.streams.create(world.bus, world.graph, frozenset({"q/w"}))
    world.out = world.bus.open(world.out.name)
    world.put(*frames_of({1: 2}))
    source = world.source()
    with pytest.raises(RowsLost, match="deleted and made anew"):
        source.streamReader(source.schema()).latestOffset(at, ReadAllAvailable())
    easy = world.source(failOnDataLoss="false")
    reader = easy.streamReader(easy.schema())
    end = reader.latestOffset(at, ReadAllAvailable())
    parts = [part for one in reader.partitions(at, end) for part in reader.read(one)]
    assert ids(table(parts, reader)) == expected({1: 2})


# --- rows that are held --------------------------------------------------------------------------------------------

KEYED = Schema.parse("a*:double,b*:string,v:int32")


@st.composite
def histories(draw) -> list[list[Event]]:
    """Blocks as a window makes them."""
    keys = st.tuples(st.sampled_from([0.0, -0.0, 1.5]), st.sampled_from(["x", "y", ""]))
    held: dict[tuple, tuple] = {}
    blocks = []
    for _ in range(draw(st.integers(1, 8))):
        block: list[Event] = []
        for key in draw(st.lists(keys, max_size=6)):
            row = (*key, draw(st.integers(0, 9)))
            old = held.get(key)
            if old is None:
                block.append(Event(Opcode.INSERT, Flag.NORMAL, row))
                held[key] = row
            elif draw(st.booleans()):
                block += [Event(Opcode.UPDATE_BLOCK, Flag.NORMAL, row), Event(Opcode.DELETE, Flag.NORMAL, old)]
                held[key] = row
            else:
                block.append(Event(Opcode.DELETE, Flag.RETENTION, old))
                del held[key]
        blocks.append(block)
    return blocks


@settings(max_examples=100, deadline=None)
@given(histories(), st.integers(1, 7))
def test_the_rows_that_are_held_are_those_of_the_slow_way(blocks, waiting):
    import lockstep.engine.spark.window_reader as module

    slow, fast, before = HeldRows(KEYED), HeldColumns(KEYED), module._WAITING_MIN
    module._WAITING_MIN = waiting
    try:
        for number, events in enumerate(blocks, 1):
            batch = EventBatch.of(KEYED, [(number, events)])
            slow.take(batch)
            fast.take(batch, np.full(len(batch), number, np.int64))
        found, times = fast.rows()
    finally:
        module._WAITING_MIN = before
    assert sorted(map(repr, (event.values[1:] for event in found.events()))) == sorted(
        map(repr, (event.values[1:] for event in slow.batch(1).events()))
    )
    assert times.tolist() == found.block.tolist() == sorted(found.block.tolist())


@settings(max_examples=100, deadline=None)
@given(histories(), st.integers(1, 7), st.lists(st.integers(0, 8), max_size=3))
def test_tasks_that_each_look_at_what_comes_later_have_the_rows_of_one_that_reads_all(blocks, waiting, cuts):
    import lockstep.engine.spark.window_reader as module

    batches = [EventBatch.of(KEYED, [(number, events)]) for number, events in enumerate(blocks, 1)]
    keys_only = [replace(batch, columns=(*batch.columns[:2], None)) for batch in batches]
    before, module._WAITING_MIN = module._WAITING_MIN, waiting
    try:
        found = []
        places = [0, *sorted(cut for cut in cuts if cut < len(blocks)), len(blocks)]
        for start, stop in pairwise(places):
            task = HeldColumns(KEYED)
            for number in range(start, stop):
                task.take(batches[number], np.full(len(batches[number]), number + 1, np.int64))
            for number in range(stop, len(blocks)):
                task.drop(keys_only[number])
            rows, times = task.rows()
            assert times.tolist() == rows.block.tolist()
            found += list(zip(rows.block.tolist(), rows.events(), strict=True))
        alone = HeldColumns(KEYED)
        for number, batch in enumerate(batches, 1):
            alone.take(batch, np.full(len(batch), number, np.int64))
        rows, _ = alone.rows()
    finally:
        module._WAITING_MIN = before
    assert repr(found) == repr(list(zip(rows.block.tolist(), rows.events(), strict=True)))


def test_current_rows_of_a_large_window_are_read_by_several_tasks_but_not_by_too_many(world, monkeypatch):
    monkeypatch.setattr("lockstep.engine.spark.window_reader.BYTES_PER_TASK", 1)
    monkeypatch.setattr("lockstep.engine.spark.window_reader.TASKS_OF_CURRENT", 3)
    rng, held, previous = Random(1), {}, 0
    for block in range(1, 60):
        number = rng.randrange(12)
        old, new = held.get(number), (number, f"n{block}")
        if old is None:
            held[number], events = new, [Event(Opcode.INSERT, Flag.NORMAL, new)]
        elif rng.random() < 0.3:
            events = [Event(Opcode.DELETE, Flag.NORMAL, held.pop(number))]
        else:
            held[number] = new
            events = [Event(Opcode.UPDATE_BLOCK, Flag.NORMAL, new), Event(Opcode.DELETE, Flag.NORMAL, old)]
        world.put(encode_frame(EventBatch.of(SCHEMA, [(block, events)]), previous=previous))
        previous = block
    source = world.source(rows="current")
    assert len(source.reader(source.schema()).partitions()) == 3
    rows = world.read(rows="current").to_pylist()
    assert {row["ID"]: row["name"] for row in rows} == dict(held.values())
    assert [row["_block"] for row in rows] == sorted({row["_block"] for row in rows})


def test_the_rows_that_a_window_holds_now_and_held_before_a_block(world):
    def change(opcode: Opcode, number: int, name: str) -> Event:
        return Event(opcode, Flag.NORMAL, (number, name))

    blocks = [
        (1, [change(Opcode.INSERT, 1, "a"), change(Opcode.INSERT, 2, "b")]),
        (2, [change(Opcode.UPDATE_BLOCK, 1, "A"), change(Opcode.DELETE, 1, "a")]),
        (3, [change(Opcode.DELETE, 2, "b"), change(Opcode.INSERT, 3, "c")]),
    ]
    world.put(encode_frame(EventBatch.of(SCHEMA, blocks), previous=0))
    now = world.read(rows="current", columns="name,_block,_opcode")
    assert now.to_pylist() == [
        {"name": "A", "_block": 2, "_opcode": "insert"},
        {"name": "c", "_block": 3, "_opcode": "insert"},
    ]
    assert world.read(rows="current", endingBlock=2)["name"].to_pylist() == ["a", "b"]


def test_keys_may_be_lists():
    schema = Schema.parse("k*:array(i64),v:int32")
    rows = HeldColumns(schema)
    events = [Event(Opcode.INSERT, Flag.NORMAL, (key, at)) for at, key in enumerate([(1, None), (1,), (1, None)])]
    rows.take(EventBatch.of(schema, [(1, events)]), np.zeros(3, np.int64))
    assert [event.values for event in rows.rows()[0].events()] == [((1,), 1), ((1, None), 2)]


def test_a_window_without_an_index_holds_no_rows(tmp_path):
    made = WindowWorld(tmp_path, SMALL, index="pi_EMPTY", insert_only=True)
    with pytest.raises(BadConfig, match="q/w has no index, so it holds no rows"):
        made.read(rows="current")
    made.close()


# --- options -------------------------------------------------------------------------------------------------------


def wish(streaming: bool | None = None, **options: str) -> WindowReadOptions:
    return WindowReadOptions.of({"url": "lmdb:x", "project": "p", "window": "w", **options}, streaming=streaming)


@pytest.mark.parametrize(
    ("streaming", "options", "reason"),
    [
        (None, {"project": " "}, "project = '' .*needed"),
        (None, {"rows": "all"}, "write changes or current"),
        (None, {"columns": "a,,b"}, "each name once"),
        (None, {"startingBlock": "0"}, "earliest, latest, or the number of a block"),
        (None, {"endingBlock": "-1"}, "whole number"),
        (None, {"maxBytesPerTrigger": "0"}, "at least 1"),
        (None, {"times": "text"}, "timestamps or integers"),
        (None, {"startingOffset": "1"}, "no such option; there are url, project, window"),
        (None, {"rows": "current", "startingBlock": "3"}, "does not fit rows=current"),
        (True, {"rows": "current"}, "a stream reads changes"),
        (True, {"endingBlock": "3"}, "a stream has no end"),
        (False, {"maxBytesPerTrigger": "3"}, "it is for readStream"),
        (False, {"startingBlock": "9", "endingBlock": "8"}, "it ends before it begins at 9"),
        (False, {"startingBlock": "latest"}, "only a stream can begin there"),
    ],
)
def test_a_bad_option_is_refused_by_name_and_reason(streaming, options, reason):
    with pytest.raises(BadConfig, match=reason):
        wish(streaming, **options)


def test_a_stream_and_a_window_are_one_too_many():
    with pytest.raises(BadConfig, match="either a stream, or a project and a window"):
        LockstepSource({"url": "lmdb:x", "stream": "orders", "window": "w"}).schema()


def test_mistakes_are_told(world, tmp_path):
    with pytest.raises(WindowNotFound, match=r"no window 'prices'.*It has: q/w"):
        world.source(window="prices").schema()
    with pytest.raises(NotFound, match=r"project 'dexk' does not exist"):
        LockstepSource({"url": world.url, "project": "dexk", "window": "w"}).schema()
    with pytest.raises(ProjectNotStated):
        LockstepSource({"url": world.url, "project": "desk", "window": "w"}).schema()
    with pytest.raises(BadConfig, match="it is the model of project 'desk'"):
        world.source(project="other").schema()
    with pytest.raises(BadConfig, match="there is no column 'colour'; there are ID, name, _block"):
        world.source(columns="colour").schema()
    world.bus.delete(world.out.name)
    with pytest.raises(WindowNotFound, match=r"no published window 'q/w'.*none; see --publish"):
        world.source().schema()


def test_money_is_a_decimal_of_nineteen_digits():
    assert frame_schema(EVERY, ["m"], integers=False).fields[0].dataType == DecimalType(19, 4)
    assert source_graph(EVERY).find("w") is not None
