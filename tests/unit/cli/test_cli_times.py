"""Times, spans and sizes as people type them."""

from __future__ import annotations

import pytest

from lockstep.cli.sizes import parse_size, size
from lockstep.cli.values import SECOND_NS, iso, parse_span_ns, parse_time_ns, span

NOW = 1_800_000_000 * SECOND_NS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("7d", 604_800), ("1w", 604_800), ("1.5s", 1.5), ("0", 0)],
)
def test_a_span_is_a_number_with_units(text, seconds) -> None:
    assert parse_span_ns(text) == int(seconds * SECOND_NS)


def test_a_span_may_be_finer_than_a_second() -> None:
    assert parse_span_ns("500ms") == SECOND_NS // 2
    assert parse_span_ns("3us") == 3_000
    assert parse_span_ns("7ns") == 7


@pytest.mark.parametrize("text", ["", "m", "5x", "-5m", "5 m", "h1", "1e3", "5m!"])
def test_what_is_no_span_is_refused(text) -> None:
    with pytest.raises(ValueError, match="span"):
        parse_span_ns(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("5m", NOW - 300 * SECOND_NS),
        ("1767225600", 1_767_225_600 * SECOND_NS),
        ("1767225600.25", 1_767_225_600 * SECOND_NS + SECOND_NS // 4),
        ("1767225600123", 1_767_225_600_123 * 1_000_000),
        ("1767225600123456", 1_767_225_600_123_456 * 1_000),
        ("1767225600123456789", 1_767_225_600_123_456_789),
        ("@1767225600", 1_767_225_600 * SECOND_NS),
        ("2026-01-01T00:00:00Z", 1_767_225_600 * SECOND_NS),
        ("2026-01-01T00:00Z", 1_767_225_600 * SECOND_NS),
        ("2026-01-01", 1_767_225_600 * SECOND_NS),
        ("2026-01-01 00:00:00", 1_767_225_600 * SECOND_NS),
        ("2026-01-01T02:00:00+02:00", 1_767_225_600 * SECOND_NS),
        ("2026-01-01T00:00:00.000000001Z", 1_767_225_600 * SECOND_NS + 1),
        ("2026-01-01T00:00:00.5+00:00", 1_767_225_600 * SECOND_NS + SECOND_NS // 2),
    ],
)
def test_a_moment_has_many_spellings(text, expected) -> None:
    assert parse_time_ns(text, NOW) == expected


def test_a_span_longer_than_all_time_means_the_beginning() -> None:
    assert parse_time_ns("10000w", NOW) == 0


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "@", "@5m", "12:00:00 or so"])
def test_what_is_no_moment_is_refused_with_an_example(text) -> None:
    with pytest.raises(ValueError, match="for example"):
        parse_time_ns(text, NOW)


@pytest.mark.parametrize("time_ns", [0, 1, 1_767_225_600_123_456_789, NOW])
def test_a_shown_moment_is_read_back_exactly(time_ns) -> None:
    assert parse_time_ns(iso(time_ns), 0) == time_ns


def test_a_moment_beyond_the_calendar_is_shown_all_the_same() -> None:
    assert iso((1 << 63) - 1).startswith("2262-")
    assert iso(10**30) == f"@{10**30}ns"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0ms"), (0.85, "850ms"), (12.7, "12s"), (200, "3m20s"), (7200, "2h"), (356_400, "4d3h")]
)
def test_spans_are_short_for_people(seconds, text) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("812", 812), ("64KiB", 65_536), ("10MB", 10_000_000), ("1.5k", 1500), ("1 GiB", 1 << 30)],
)
def test_sizes_have_units(text, count) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "MB", "-1", "1XB", "ten"])
def test_what_is_no_size_is_refused(text) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (65_536, "64.0 KiB"), (3 << 29, "1.5 GiB"), (2 << 40, "2.0 TiB")]
)
def test_sizes_are_short_for_people(count, text) -> None:
    assert size(count) == text
