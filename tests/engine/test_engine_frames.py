from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_frames_cases import numbered, schemas

from lockstep.engine.errors import FrameDamaged
from lockstep.engine.events import frame_layout
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import (
    cut_frames,
    decode_frame,
    decode_frames,
    encode_frame,
    fingerprint,
    read_head,
)
from lockstep.engine.events.schema import Schema
from lockstep.errors import BadArgument, FormatTooNew, RecordTooLarge

TRADES = Schema.parse(
    "ID*:int32,symbol:string,currency:int32,udate:int64,msecs:int32,price:double,quantity:int32,"
    "venue:int32,broker:int32,buyer:int32,seller:int32,buysellflg:int32,time:stamp"
)
SMALL = Schema.parse("ID*:int64,name:string")
MANY = settings(max_examples=120, deadline=None)


def insert(*values) -> Event:
    return Event(Opcode.INSERT, Flag.NORMAL, values)


def small(blocks: int, events: int = 1) -> EventBatch:
    return EventBatch.of(SMALL, [(n, [insert(n, "x" * (n % 5)) for _ in range(events)]) for n in range(1, blocks + 1)])


def same(left: EventBatch, right: EventBatch) -> bool:
    """Equal to the bit: repr tells -0.0 from 0.0, and nan is nan."""
    return repr(left.blocks()) == repr(right.blocks())


@MANY
@given(st.data(), schemas())
def test_what_is_read_is_what_was_written(data, schema):
    blocks = data.draw(numbered(schema))
    batch = EventBatch.of(schema, blocks)
    whole = data.draw(st.sets(st.sampled_from([number for number, _ in blocks]))) if blocks else set()
    transactional = np.array(sorted(whole), np.int64)

    frame = encode_frame(batch, previous=-7, transactional=transactional)
    found = decode_frame(frame, schema)

    assert same(found.batch, batch)
    assert found.transactional.tolist() == sorted(whole)
    assert found.numbers.tolist() == [number for number, _ in blocks]
    head = read_head(frame)
    assert (head.blocks, head.events, head.previous) == (len(blocks), len(batch), -7)
    assert not blocks or (head.first, head.last) == (blocks[0][0], blocks[-1][0])


@MANY
@given(st.data(), schemas())
def test_a_part_of_a_batch_is_the_same_frame_as_the_same_events_made_alone(data, schema):
    batch = EventBatch.of(schema, data.draw(numbered(schema)))
    start = data.draw(st.integers(0, len(batch)))
    stop = data.draw(st.integers(start, len(batch)))
    part = batch.slice(start, stop)
    assert encode_frame(part) == encode_frame(EventBatch.of(schema, part.blocks()))


@MANY
@given(st.data(), schemas(), st.booleans())
def test_many_frames_are_read_like_one_after_the_other(data, schema, nulls):
    # Given frames of one block each, mostly alike, as a client with small blocks sends them
    blocks = data.draw(numbered(schema, nulls)) * 4
    whole = [np.array([number], np.int64) if number % 3 == 0 else None for number, _ in blocks]
    datas = [
        encode_frame(EventBatch.of(schema, [block]), first_id=at, client=b"c" * 16, transactional=chosen)
        for at, (block, chosen) in enumerate(zip(blocks, whole, strict=True))
    ]
    # When they are read at once
    found = decode_frames(datas, schema, number_from=100)
    # Then nothing differs from reading each
    singles = [decode_frame(one, schema, number_from=100 + at) for at, one in enumerate(datas)]
    assert repr(found.batch.events()) == repr([event for one in singles for event in one.batch.events()])
    assert found.batch.block.tolist() == [number for one in singles for number in one.batch.block.tolist()]
    assert found.numbers.tolist() == list(range(100, 100 + len(datas)))
    assert found.transactional.tolist() == [number for one in singles for number in one.transactional.tolist()]


@pytest.mark.parametrize("events", [1, 3])
def test_small_frames_of_one_shape_are_read_at_once(events):
    batch = small(50, events)
    datas = [encode_frame(batch.slice(at, at + events), client=b"c" * 16) for at in range(0, len(batch), events)]
    found = decode_frames(datas, SMALL)
    assert same(found.batch, batch)
    pruned = decode_frames(datas, SMALL, columns=frozenset({"ID"}), number_from=np.arange(50) * 10)
    assert pruned.batch.columns[1] is None
    assert pruned.numbers.tolist() == [at * 10 for at in range(50)]


def test_no_frames_have_no_events():
    assert len(decode_frames([], SMALL).batch) == 0


def test_columns_that_nobody_needs_are_left_out():
    found = decode_frame(encode_frame(small(3)), SMALL, columns=frozenset({"name"}))
    assert found.batch.columns[0] is None
    assert found.batch.column("name").to_pylist() == ["x", "xx", "xxx"]


def test_numbers_are_not_copied():
    data = encode_frame(small(1000))
    column = decode_frame(data, SMALL).batch.column("ID")
    start = np.frombuffer(data, np.uint8).ctypes.data
    assert start <= column.buffers()[1].address < start + len(data)
    assert column.buffers()[1].address % 8 == 0


def test_blocks_without_events_keep_their_place():
    batch = EventBatch.of(SMALL, [(3, [insert(1, "a")]), (5, [insert(2, "b"), insert(3, "c")])])
    numbers = np.array([2, 3, 4, 5, 9])
    found = decode_frame(encode_frame(batch, numbers=numbers), SMALL)
    assert found.numbers.tolist() == [2, 3, 4, 5, 9]
    assert found.batch.block.tolist() == [3, 5, 5]
    sequenced = decode_frame(encode_frame(batch, numbers=numbers, first_id=70), SMALL, number_from=11)
    assert sequenced.numbers.tolist() == [11, 12, 13, 14, 15]
    assert sequenced.batch.block.tolist() == [12, 14, 14]


def test_places_travel_with_the_events():
    places = (np.array([0, 1, 1]), np.array([0, 0, 1]))
    found = decode_frame(encode_frame(small(3), places=places), SMALL)
    assert found.places is not None
    assert [part.tolist() for part in found.places] == [[0, 1, 1], [0, 0, 1]]


def test_a_frame_of_one_trade_is_small():
    row = (17, "IBM", 840, 1_704_205_800, 123, 101.25, 300, 1, 2, 3, 4, 0, 1_704_205_800_000_000)
    frame = encode_frame(EventBatch.of(TRADES, [(1, [insert(*row)])]), first_id=1, client=b"c" * 16)
    assert len(frame) == 32 + 16 + 13 * 4 + 3 * 4 - 4 + 3 + 1 + 4
    assert len(frame) <= 130


def test_the_format_does_not_change_unnoticed():
    batch = EventBatch.of(
        SMALL, [(7, [insert(1, "ab")]), (9, [Event(Opcode.DELETE, Flag.RETENTION, (2, None)), insert(3, "")])]
    )
    frame = encode_frame(batch, previous=5, transactional=np.array([9]))
    assert frame[8:16] == fingerprint(SMALL)
    assert frame[:8] + frame[16:] == bytes.fromhex(
        "4c4501f6020000000200000003000000070000000000000005000000000000000004000000000000010000000000000002000000"
        "00000000030000000000000000000000020000000100000002000000114411020502000061 62".replace(" ", "")
    ) + crc32c(frame[:-4]).to_bytes(4, "little")


@pytest.mark.parametrize(("batch", "part"), [(small(1), 0), (small(12, 2), 0), (small(3), 7)])
def test_every_flipped_byte_is_noticed(batch, part):
    frame = encode_frame(batch, client=b"c" * 16, first_id=1, part=part)
    for at in range(len(frame)):
        broken = bytearray(frame)
        broken[at] ^= 0x41
        with pytest.raises((FrameDamaged, FormatTooNew)):
            decode_frame(bytes(broken), SMALL)
        with pytest.raises((FrameDamaged, FormatTooNew)):
            decode_frames([frame] * 9 + [bytes(broken)] * 9, SMALL)


def test_every_cut_is_noticed():
    frame = encode_frame(small(5, 2), previous=0)
    for size in range(len(frame)):
        with pytest.raises(FrameDamaged):
            decode_frame(frame[:size], SMALL)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_frame_with_nonsense_in_it_and_a_right_checksum_is_refused_or_read_but_never_worse(data):
    frame = bytearray(encode_frame(small(12, 2), previous=3, transactional=np.array([2]))[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(3, len(frame) - 1).filter(lambda place: not 8 <= place < 16))
        frame[at] = data.draw(st.integers(0, 255))
    forged = bytes(frame) + crc32c(bytes(frame)).to_bytes(4, "little")
    one, many = (
        events_of(read) for read in (lambda: decode_frame(forged, SMALL), lambda: decode_frames([forged], SMALL))
    )
    # Whichever way it is read: refused by both, or the same events
    assert repr(one) == repr(many)


WIDE = Schema.parse("ID*:int64,name:string,note:string,data:blob,sizes:array(i32)")
FORGED = [
    pytest.param(b"note-1", b"note-\xff", id="no UTF-8"),
    pytest.param(b"name-2note-1", b"name-\xc3\xa9ote-1", id="a character over two values"),
]


def forge(frame: bytes, old: bytes, new: bytes) -> bytes:
    """Other bytes in a frame, and a checksum that fits them."""
    assert frame.count(old) == 1
    body = frame[:-4].replace(old, new)
    return body + crc32c(body).to_bytes(4, "little")


def texts(names: int, *, fields: int) -> EventBatch:
    schema = Schema(WIDE.fields[:fields])
    row = (1, "name-2", "note-1", b"\xff", (1, 2))
    return EventBatch.of(schema, [(number, [insert(number, *row[1:fields])]) for number in range(1, names + 1)])


@pytest.mark.parametrize("fields", [3, 5], ids=["texts alone", "with blobs and arrays"])
@pytest.mark.parametrize(("old", "new"), FORGED)
@pytest.mark.parametrize("columns", [frozenset(), frozenset({"ID"}), frozenset({"name"}), frozenset({"note"}), None])
def test_text_that_is_not_utf_8_is_damage_whichever_columns_are_read(fields, old, new, columns):
    batch = texts(1, fields=fields)
    whole = encode_frame(batch, client=b"c" * 16)
    forged = forge(whole, old, new)
    with pytest.raises(FrameDamaged) as alone:
        decode_frame(forged, batch.schema, columns=columns)
    for company in ([], [whole] * 9):
        with pytest.raises(FrameDamaged) as among:
            decode_frames([*company, forged, *company], batch.schema, columns=columns)
        assert among.value.params["reason"].split(":")[0] == alone.value.params["reason"].split(":")[0]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(2, 5), st.integers(1, 3))
def test_a_forged_frame_is_damaged_for_all_readers_or_for_none(data, fields, blocks):
    # Given a frame with nonsense in it and a checksum that fits
    batch = texts(blocks, fields=fields)
    frame = bytearray(encode_frame(batch, client=b"c" * 16, first_id=1)[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(3, len(frame) - 1).filter(lambda place: not 8 <= place < 16))
        frame[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 3, 127, 255]))
    forged = bytes(frame) + crc32c(bytes(frame)).to_bytes(4, "little")
    # When it is read with all columns, with some or none, alone or in a run
    names = st.frozensets(st.sampled_from([field.name for field in batch.schema]))
    asked = [None, frozenset(), data.draw(names)]
    found = [is_damaged(lambda one=one: decode_frame(forged, batch.schema, columns=one)) for one in asked]
    found += [is_damaged(lambda one=one: decode_frames([forged] * 9, batch.schema, columns=one)) for one in asked]
    # Then they all say the same
    assert len(set(found)) == 1


def is_damaged(read: Callable[[], Any]) -> bool:
    try:
        read()
    except FrameDamaged:
        return True
    return False


def test_a_column_of_an_unknown_shape_is_damage():
    frame = encode_frame(EventBatch.of(SMALL, [(1, [insert(1, None)])]))
    shapes = read_head(frame).size
    body = frame[: shapes + 1] + bytes([frame[shapes + 1] | 3]) + frame[shapes + 2 : -4]
    for columns in (None, frozenset({"ID"})):
        with pytest.raises(FrameDamaged, match=r"shape|middle"):
            decode_frame(body + crc32c(body).to_bytes(4, "little"), SMALL, columns=columns)


def test_numbers_out_of_reach_are_damage_also_in_the_middle_of_a_run():
    whole = encode_frame(small(2), client=b"c" * 16, first_id=1)
    forged = forge(whole, whole[24:48], (2**63 - 1).to_bytes(8, "little") + b"c" * 16)
    with pytest.raises(FrameDamaged):
        decode_frame(forged, SMALL, number_from=1)
    with pytest.raises(FrameDamaged):
        decode_frames([whole] * 9 + [forged] + [whole] * 9, SMALL, number_from=1)


def test_lengths_that_together_exceed_an_offset_are_damage_also_in_a_column_that_is_left_out():
    # Given lengths whose sum is 2**32 + 300, which is 300 in 32 bits
    batch = EventBatch.of(SMALL, [(1, [insert(1, "x" * 300)] + [insert(1, "")] * 65_999)])
    lengths = [65_535] * 65_537 + [301] + [0] * 462
    assert sum(lengths) == 2**32 + 300
    old, new = np.array([300] + [0] * 65_999, "<u2").tobytes(), np.array(lengths, "<u2").tobytes()
    forged = forge(encode_frame(batch), old, new)
    # Then nobody takes it
    for columns in (None, frozenset({"ID"})):
        with pytest.raises(FrameDamaged):
            decode_frame(forged, SMALL, columns=columns)


def events_of(read: Callable[[], Any]) -> list[Event] | None:
    """What can be read, or None if it is refused."""
    try:
        return read().batch.events()
    except FrameDamaged:
        return None


def test_errors_say_what_is_wrong():
    frame = encode_frame(small(2))
    with pytest.raises(FrameDamaged, match=r"trades.I@7.*another schema"):
        decode_frame(frame, TRADES, place="trades.I@7")
    with pytest.raises(FrameDamaged, match="another schema"):
        decode_frames([frame] * 20, TRADES)
    with pytest.raises(FrameDamaged, match="does not begin like"):
        decode_frame(b"x" * 64, SMALL)
    with pytest.raises(FormatTooNew, match="format 4"):
        decode_frame(frame[:2] + b"\x04" + frame[3:], SMALL)
    with pytest.raises(FormatTooNew):
        decode_frames([frame[:2] + b"\x04" + frame[3:]], SMALL)
    with pytest.raises(FrameDamaged, match="checksum"):
        decode_frame(frame[:-1] + bytes([frame[-1] ^ 1]), SMALL)


def test_blocks_must_rise_and_lie_within_reach():
    falling = EventBatch.of(SMALL, [(2, [insert(1, "")]), (1, [insert(1, "")])])
    far = EventBatch.of(SMALL, [(1, [insert(1, "")]), (2**33, [insert(1, "")])])
    for batch in (falling, far):
        with pytest.raises(BadArgument):
            encode_frame(batch)


@MANY
@given(st.data(), schemas(), st.integers(300, 2000))
def test_cut_frames_fit_and_lose_nothing(data, schema, limit):
    batch = EventBatch.of(schema, data.draw(numbered(schema)))
    frames = cut_frames(batch, limit, previous=-9)
    assert all(len(frame) <= limit for frame in frames)
    decoded = [decode_frame(frame, schema) for frame in frames]
    assert repr(
        [pair for one in decoded for pair in zip(one.batch.block.tolist(), one.batch.events(), strict=True)]
    ) == repr(list(zip(batch.block.tolist(), batch.events(), strict=True)))
    # Each names the last block before it, so a reader sees a lost frame.
    last, part = -9, 0
    for one in decoded:
        assert (one.head.previous, one.head.part) == (last, part)
        assert not one.head.more or one.head.blocks == 1
        last, part = one.head.last, one.head.part + 1 if one.head.more else 0
    assert part == 0


def test_frames_are_cut_where_blocks_end():
    batch = small(100, 3)
    frames = cut_frames(batch, 600, first_id=40, client=b"c" * 16)
    heads = [read_head(frame) for frame in frames]
    assert len(frames) > 3
    assert [head.events for head in heads] == [3 * head.blocks for head in heads]
    assert [head.first for head in heads] == [40 + sum(head.blocks for head in heads[:at]) for at in range(len(heads))]


def test_a_block_that_is_too_large_goes_on_in_the_next_frame_unless_it_is_a_clients():
    batch = small(1, 200)
    heads = [read_head(frame) for frame in cut_frames(batch, 600, previous=0)]
    assert len(heads) > 3
    assert {(head.first, head.last, head.previous) for head in heads[1:]} == {(1, 1, 1)}
    assert [(head.part, head.more) for head in heads] == [(at, at + 1 < len(heads)) for at in range(len(heads))]
    with pytest.raises(RecordTooLarge):
        cut_frames(batch, 600, first_id=1, client=b"c" * 16)
    with pytest.raises(RecordTooLarge):
        cut_frames(EventBatch.of(SMALL, [(1, [insert(1, "x" * 1000)])]), 600)


def test_the_pieces_of_a_block_do_not_depend_on_what_is_around_it():
    # Given a large block without nulls, alone and among others that have some
    large = (5, [insert(at, "x" * (at % 7)) for at in range(1000)])
    around = [(4, [insert(1, None)] * 30), large, (6, [insert(2, "y" * 40)])]
    # When both are cut
    alone = cut_frames(EventBatch.of(SMALL, [large]), 3000, previous=4)
    among = cut_frames(EventBatch.of(SMALL, around), 3000, previous=3)
    # Then all pieces but the last, after which others may stand, are the same to the byte
    pieces = [frame for frame in among if read_head(frame).more and read_head(frame).first == 5]
    assert len(pieces) > 2
    assert pieces == alone[:-1]
    assert [read_head(frame).first for frame in among if read_head(frame).last == 6] == [5]


def test_cutting_goes_on_in_the_middle_of_a_block():
    whole = EventBatch.of(SMALL, [(1, [insert(at, "abc") for at in range(200)])])
    frames = cut_frames(whole, 600, previous=0)
    given = sum(read_head(frame).events for frame in frames[:2])
    assert cut_frames(whole.slice(given, len(whole)), 600, previous=1, part=2) == frames[2:]


def test_a_frame_without_pieces_is_as_it_ever_was():
    frame, piece = encode_frame(small(1), previous=0), encode_frame(small(1), previous=0, more=True)
    assert (frame[2], piece[2], len(piece) - len(frame)) == (1, 2, 8)
    assert (read_head(frame).part, read_head(frame).more) == (0, False)
    mixed = decode_frames([frame] * 10 + [piece] * 10 + [frame], SMALL)
    assert mixed.batch.column("ID").to_pylist() == [1] * 21


@pytest.mark.parametrize("piece", [(0, 0), (1, 2), (0, 2**31)])
def test_a_piece_that_is_none_is_refused(piece):
    frame = bytearray(encode_frame(small(1), previous=0, part=1)[:-4])
    frame[40:48] = piece[0].to_bytes(4, "little") + piece[1].to_bytes(4, "little")
    with pytest.raises(FrameDamaged, match="which piece"):
        read_head(bytes(frame) + crc32c(bytes(frame)).to_bytes(4, "little"))


def test_a_block_that_goes_on_stands_alone():
    with pytest.raises(BadArgument, match="stands alone"):
        encode_frame(small(2), more=True)


def test_the_page_on_the_format_names_the_flags_as_they_are():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "event-format.md").read_text()
    written = {name: int(value) for name, value in re.findall(r"^\| `([A-Z]+)` \| (\d+) \|", page, re.MULTILINE)}
    names = ["CLIENT", "PREVIOUS", "SHAPES", "PLACES", "NUMBERS", "COUNTS", "CODES", "TRANSACTIONAL"]
    assert written == {name: getattr(frame_layout, name) for name in names}
    assert list(written) == names
    assert f"Version {frame_layout.VERSION}." in page
    assert f"Header, {frame_layout.HEAD.size} bytes" in page


def test_columns_of_views_and_fillers_give_the_same_bytes():
    # A null's place may hold anything in memory; frames must not show it.
    odd = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([5, 99]))])
    names = pa.array(["a", "b"])
    ones = np.ones(2, np.uint8)
    batch = EventBatch(SMALL, np.array([1, 2]), ones, ones, (odd, names))
    assert encode_frame(batch) == encode_frame(EventBatch.of(SMALL, [(1, [insert(5, "a")]), (2, [insert(None, "b")])]))
