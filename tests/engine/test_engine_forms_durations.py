from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.engine.model.values import duration_text, parse_duration

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("300 seconds", 300 * SECOND),
        ("5 minutes", 300 * SECOND),
        ("1 hour(s)", 3600 * SECOND),
        ("1 hour", 3600 * SECOND),
        ("4 days", 4 * 86_400 * SECOND),
        ("500 milliseconds", 500_000),
        ("7 microseconds", 7),
        ("10", 10 * SECOND),
        (10, 10 * SECOND),
        (" 2  Minutes ", 120 * SECOND),
    ],
)
def test_durations_are_read_as_models_write_them(text, wanted):
    assert parse_duration(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "x", "5 weeks", "1.5 hours", "s", "5 s", "minutes", "5 minutes 3 seconds", "٣ days"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("micros", "wanted"),
    [
        (300 * SECOND, "5 minutes"),
        (3600 * SECOND, "1 hour"),
        (86_400 * SECOND, "1 day"),
        (90 * SECOND, "90 seconds"),
        (1_500_000, "1500 milliseconds"),
        (1, "1 microsecond"),
        (0, "0 seconds"),
    ],
)
def test_a_duration_is_written_in_the_largest_whole_unit(micros, wanted):
    assert duration_text(micros) == wanted


@given(st.integers(-(2**63), 2**63))
def test_every_duration_comes_back(micros):
    assert parse_duration(duration_text(micros)) == micros
