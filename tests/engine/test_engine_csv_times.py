"""Dates and stamps as files of SAS Event Stream Processing have them."""

from __future__ import annotations

from io import BytesIO

import pytest

from lockstep.engine.events.csv_format import CsvOptions, read_csv
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.events.text import BadText, parser
from lockstep.errors import BadArgument

SECONDS = "%Y-%m-%d %H:%M:%S"
WHEN_S = 1_318_504_987
WHEN_US = WHEN_S * 1_000_000


@pytest.mark.parametrize(
    ("form", "text", "micros"),
    [
        (SECONDS, "2011-10-13 11:23:07", 0),
        (SECONDS, "2011-10-13 11:23:07.156", 156_000),
        (SECONDS, "2011-10-13 11:23:07.000001", 1),
        (SECONDS, "2011-10-13 11:23:07.156000999", 156_000),
        (f"{SECONDS}.%f", "2011-10-13 11:23:07.156", 156_000),
        (f"{SECONDS}.%f", "2011-10-13 11:23:07", 0),
        ("%F %T", "2011-10-13 11:23:07.5", 500_000),
        ("%d-%m-%Y %k:%M:%S", "13-10-2011 11:23:07.5", 500_000),
        ("%S %M %H %d.%m.%Y", "07.25 23 11 13.10.2011", 250_000),
    ],
)
def test_a_fraction_of_a_second_is_read_whether_or_not_the_format_has_one(form, text, micros):
    assert parser(FieldType.STAMP, form)(text) == WHEN_US + micros
    assert parser(FieldType.DATE, form)(text) == WHEN_S


@pytest.mark.parametrize("text", ["2011-10-13  9:05:00", "2011-10-13 9:05:00", "2011-10-13 09:05:00"])
def test_an_hour_may_have_a_blank_in_place_of_a_zero(text):
    assert parser(FieldType.DATE, "%Y-%m-%d %k:%M:%S")(text) == 1_318_496_700


@pytest.mark.parametrize("text", ["2011-10-13 11:23", "2011-10-13 11:23:07.", "2011-10-13 11:23:07.1x", "x"])
def test_what_is_no_time_is_still_refused(text):
    with pytest.raises(BadText):
        parser(FieldType.STAMP, SECONDS)(text)


@pytest.mark.parametrize("form", ["%Q", "%Y-%", "%"])
def test_a_format_that_is_none_is_refused_before_the_first_line(form):
    with pytest.raises(BadArgument, match="date format"):
        CsvOptions(date_format=form)


def test_a_date_without_and_a_stamp_with_a_fraction_are_read_from_one_line():
    schema = Schema.parse("id*:int32, day:date, time:stamp")
    line = b"i,n,1,2011-10-13 11:23:07,2011-10-13 11:23:07.156\n"
    bad: list[object] = []
    for lines in (line, b"\xef\xbb\xbf" + line):  # by columns, and row by row
        (batch,) = read_csv(BytesIO(lines), schema, CsvOptions(date_format=SECONDS), bad.append)
        assert batch.events()[0].values == (1, WHEN_S, WHEN_US + 156_000)
    assert not bad
