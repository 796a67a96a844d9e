"""The stored format of batches: pinned, versioned, and never wrong without saying so."""

from __future__ import annotations

import google_crc32c
import pytest

from lockstep.errors import BadArgument, BatchDamaged, FormatTooNew
from lockstep.log import batch as batch_module
from lockstep.log.batch import CODECS, HEADER, BatchView, codec_by_name, origin, pack, peek

PRODUCER = bytes(range(16))

# Version 1, written out once and for all: whoever changes the format breaks this, and has to add an upgrade.
GOLDEN = bytes.fromhex("""
    4c530100 13f7f416 02000000 35000000 0f00 0000 00000000
    000102030405060708090a0b0c0d0e0f 0700000000000000 f401000000000000 0a00000000000000
    0100000002000000 0a000000000000001400000000000000 01000000ffffffff 6b
    0900000000000000 010002000000 68 7676 616262
""")


def golden_batch():
    return pack(
        [b"a", b"bb"],
        producer=PRODUCER,
        sequence=7,
        created_ns=[10, 20],
        keys=[b"k", None],
        headers=[(("h", b"vv"),), ()],
    )


def small(codec="none", **changes):
    settings = {"producer": PRODUCER, "sequence": 1, "created_ns": 2, "codec": codec_by_name(codec)} | changes
    return pack([b"first", b"second value"], **settings)


def test_the_header_has_64_bytes():
    assert HEADER.size == 64


def test_version_1_is_written_as_ever():
    assert golden_batch().seal(500).hex() == GOLDEN.hex()


def test_version_1_is_read_as_ever():
    view = BatchView(100, GOLDEN, "orders")
    assert (view.base, view.end, view.count, view.stream) == (100, 102, 2, "orders")
    assert (view.producer, view.sequence, view.append_ns, view.created_ns) == (PRODUCER, 7, 500, 10)
    assert view.values() == (b"a", b"bb")
    assert view.keys() == (b"k", None)
    assert view.headers() == ((("h", b"vv"),), ())
    assert view.created() == (10, 20)


def test_columns_that_say_nothing_take_no_room():
    batch = pack([b"abc", b"def"], producer=PRODUCER, sequence=0, created_ns=5)
    assert batch.body == b"abcdef"
    assert batch.size == len(batch.seal(1)) == 64 + 6
    view = BatchView(0, batch.seal(1), "")
    assert (view.keys(), view.headers(), view.created()) == ((None, None), ((), ()), (5, 5))


def test_the_append_time_is_stamped_late():
    batch = golden_batch()
    assert [BatchView(0, batch.seal(time), "").append_ns for time in (1, 2)] == [1, 2]


def test_peek_and_origin_look_without_checking():
    assert peek(GOLDEN) == (2, 500)
    assert origin(GOLDEN) == (PRODUCER, 7)


@pytest.mark.parametrize("codec", [codec.name for codec in CODECS])
def test_every_single_flipped_bit_is_noticed(codec):
    data = small(codec).seal(3)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((BatchDamaged, FormatTooNew)):
            BatchView(5, bytes(damaged), "orders")


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_every_truncation_is_noticed(codec):
    data = small(codec).seal(3)
    for size in range(len(data)):
        with pytest.raises(BatchDamaged):
            BatchView(5, data[:size], "orders")


def test_bytes_behind_the_batch_are_noticed():
    with pytest.raises(BatchDamaged, match="checksum"):
        BatchView(5, small().seal(3) + b"\0", "orders")


def test_damage_is_named_by_offset_and_stream():
    with pytest.raises(BatchDamaged) as caught:
        BatchView(5, b"garbage", "orders")
    assert caught.value.params == {"offset": 5, "stream": "orders", "reason": "it does not begin like a batch"}


def test_a_newer_version_stops_the_reader():
    data = bytearray(small().seal(3))
    data[2] = 2
    with pytest.raises(
        FormatTooNew, match="The batch at offset 5 of orders has format 2, and this version reads up to 1"
    ):
        BatchView(5, bytes(data), "orders")


def resealed(data, **bytes_at):
    changed = bytearray(data)
    for at, value in bytes_at.items():
        changed[int(at.removeprefix("at_"))] = value
    body, rest = bytes(changed[64:]), bytes(changed[:4] + changed[8:64])
    changed[4:8] = google_crc32c.extend(google_crc32c.value(body), rest).to_bytes(4, "little")
    return bytes(changed)


def test_an_unknown_codec_is_too_new():
    with pytest.raises(FormatTooNew, match="codec 200"):
        BatchView(5, resealed(small().seal(3), at_3=200), "orders")


def test_a_batch_that_claims_too_much_is_not_unpacked():
    with pytest.raises(BatchDamaged, match="it claims"):
        BatchView(5, resealed(small("lz4").seal(3), at_15=0xFF), "orders")


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "gzip", "snappy"])
def test_a_body_larger_than_claimed(codec):
    data = small(codec).seal(3)
    with pytest.raises(BatchDamaged):
        BatchView(5, resealed(data, at_12=data[12] - 1), "orders")


def test_a_body_that_its_codec_can_not_read():
    data = small().seal(3)
    with pytest.raises(BatchDamaged):
        BatchView(5, resealed(data, at_3=codec_by_name("gzip").number), "orders")


def test_an_older_version_goes_up_a_step():
    # Given a version 0 that had no codec
    current = small().seal(3)
    version_0 = b"LS\x00" + current[4:]
    steps = []

    def upgrade(data):
        steps.append(data[2])
        return b"LS\x01\x00" + data[3:]

    # When it is read by a version that has the step
    view = BatchView(5, version_0, "orders", upgrades={0: upgrade})
    # Then it reads as if it had been written today
    assert view.values() == (b"first", b"second value")
    assert steps == [0]
    # And without the step it is refused
    with pytest.raises(BatchDamaged, match="nothing reads format 0"):
        BatchView(5, version_0, "orders")


def test_two_steps_are_taken_one_after_the_other(monkeypatch):
    monkeypatch.setattr(batch_module, "VERSION", 2)
    steps = []

    def step(data):
        steps.append(data[2])
        return resealed(data, at_2=data[2] + 1)

    version_0 = resealed(small().seal(3), at_2=0)
    assert BatchView(5, version_0, "orders", upgrades={0: step, 1: step}).count == 2
    assert steps == [0, 1]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"producer": b"short"}, "producer"),
        ({"producer": b"x" * 17}, "producer"),
        ({"keys": [b"k"]}, "keys"),
        ({"keys": [b"k"] * 3}, "keys"),
        ({"headers": []}, "headers"),
        ({"created_ns": [1]}, "created_ns"),
        ({"headers": [(("x" * 65_536, b""),), ()]}, "headers"),
    ],
)
def test_what_could_not_be_read_back_is_not_packed(changes, name):
    with pytest.raises(BadArgument) as caught:
        small(**changes)
    assert caught.value.params["name"] == name


def test_a_batch_has_records():
    with pytest.raises(BadArgument, match="at least one record"):
        pack([], producer=PRODUCER, sequence=0, created_ns=0)


def test_a_batch_above_the_limit_of_readers_is_not_packed(monkeypatch):
    monkeypatch.setattr(batch_module, "RAW_BYTES_MAX", 100)
    pack([b"x" * 100], producer=PRODUCER, sequence=0, created_ns=0)
    with pytest.raises(BadArgument, match="a batch holds at most 100"):
        pack([b"x" * 101], producer=PRODUCER, sequence=0, created_ns=0)
