from __future__ import annotations

import random

import pytest

from lockstep.errors import BadConfig
from lockstep.log.batch import CODECS, codec_by_name, codec_by_number

NUMBERS = {"none": 0, "lz4": 1, "zstd": 2, "gzip": 3, "snappy": 4}
TEXTS = (b"", b"x", b"abc" * 10_000, random.Random(3).randbytes(100_000))


def test_numbers_are_part_of_the_stored_format():
    assert {codec.name: codec.number for codec in CODECS} == NUMBERS


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("size", [len(text) for text in TEXTS])
def test_bytes_come_back(name, size):
    codec = codec_by_name(name)
    text = next(text for text in TEXTS if len(text) == size)
    packed = codec.compress(text)
    assert isinstance(packed, bytes)
    assert codec.decompress(packed, len(text)) == text


@pytest.mark.parametrize("name", ["lz4", "zstd", "gzip", "snappy"])
def test_what_repeats_gets_smaller(name):
    assert len(codec_by_name(name).compress(TEXTS[2])) < len(TEXTS[2]) / 10


def test_by_name_and_number():
    for codec in CODECS:
        assert codec_by_name(codec.name) is codec_by_number(codec.number) is codec
    assert codec_by_number(99) is None


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(BadConfig, match="choose one of none, lz4, zstd, gzip, snappy"):
        codec_by_name("brotli")
