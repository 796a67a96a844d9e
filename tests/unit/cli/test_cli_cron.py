"""`lockstep cron`: what it prints, for people and as JSON, and how it ends."""

from __future__ import annotations

import pytest


def test_describe_prints_the_sentence_alone(cli) -> None:
    expression = "0 0/5 14,18 * * ?"
    assert cli("cron", "describe", "--type", "QUARTZ", expression).out == "every 5 minutes at 14 and 18 hours\n"
    assert cli("cron", "describe", "--type", "quartz", expression, "--json").object == {
        "expression": expression,
        "type": "QUARTZ",
        "description": "every 5 minutes at 14 and 18 hours",
    }


def test_next_prints_utc(cli) -> None:
    options = ("--from", "2026-01-01T00:00Z", "--count", "3", "--tz", "Europe/Berlin")
    found = ["2026-01-01T23:00:00Z", "2026-01-08T23:00:00Z", "2026-01-12T23:00:00Z"]
    assert cli("cron", "next", "--type", "UNIX", *options, "--json", "0 0 13 * 5").object == {"next": found}
    assert cli("cron", "next", *options, "0 0 13 * 5").out.splitlines()[0] == (
        "2026-01-01T23:00:00Z  2026-01-02 00:00:00 CET"
    )
    assert cli("cron", "next", "--from", "2026-01-01T00:00Z", "30 11 * * *").out == "2026-01-01T11:30:00Z\n"


def test_next_follows_the_policy_for_changed_clocks(cli) -> None:
    options = ("--from", "2026-10-24T12:00Z", "--count", "2", "--tz", "Europe/Berlin", "--json", "30 2 * * *")
    assert cli("cron", "next", *options).object["next"] == ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    literal = cli("cron", "next", "--dst", "literal", *options).object["next"]
    assert literal == ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]


def test_next_ends_without_times(cli) -> None:
    done = cli("cron", "next", "--count", "3", "0 0 30 2 *")
    assert (done.out, "does not fire within 100 years" in done.err) == ("", True)
    done = cli("cron", "next", "--type", "QUARTZ", "--from", "2026-01-01", "--count", "3", "0 0 0 1 7 ? 2026")
    assert (done.out, "does not fire again" in done.err) == ("2026-07-01T00:00:00Z\n", True)
    assert cli("cron", "next", "--json", "0 0 30 2 *").object == {"next": []}


def test_next_prints_so_many_times_at_most(cli) -> None:
    assert len(cli("cron", "next", "--count", "10000", "--json", "* * * * *").object["next"]) == 10_000
    assert "--count may be 10,000 at most" in cli("cron", "next", "--count", "10001", "* * * * *", code=2).err


def test_check_says_all_there_is_to_say(cli) -> None:
    done = cli("cron", "check", "--from", "2026-01-01", "0 9 * * MON-FRI")
    lines = done.out.splitlines()
    assert lines[0] == "Valid: at 09:00 every day between Monday and Friday."
    assert lines[1:] == [f"2026-01-{day:02}T09:00:00Z" for day in (1, 2, 5, 6, 7)]
    found = cli("cron", "check", "--from", "2026-01-01", "--tz", "Asia/Tokyo", "0 9 * * *", "--json").object
    assert found == {
        "expression": "0 9 * * *",
        "type": "UNIX",
        "tz": "Asia/Tokyo",
        "dst": "once",
        "valid": True,
        "description": "at 09:00",
        "next": [f"2026-01-{day:02}T00:00:00Z" for day in (2, 3, 4, 5, 6)],
        "warnings": [],
    }


def test_check_of_an_invalid_expression_finds_something(cli) -> None:
    done = cli("cron", "check", "60 * * * *", code=1)
    assert done.out == "The UNIX expression '60 * * * *' is not valid (minute '60'): Value 60 not in range [0, 59].\n"
    found = cli("cron", "check", "60 * * * *", "--json", code=1).object
    assert (found["valid"], found["reason"]) == (False, "Value 60 not in range [0, 59]")


@pytest.mark.parametrize(
    ("kind", "expression", "warning"),
    [
        ("UNIX", "0 0 31 2 *", "never fires"),
        ("QUARTZ", "* * * * * ?", "every second"),
        ("QUARTZ", "* * * ? 6 MON", "every second"),
        ("QUARTZ", "0 0 0 1 1 ? 2027", "for the last time at 2027-01-01T00:00:00Z"),
    ],
)
def test_check_warns(cli, kind, expression, warning) -> None:
    line = ("cron", "check", "--from", "2026-01-01", "--type", kind, expression)
    assert warning in cli(*line).err
    assert any(warning in each for each in cli(*line, "--json").object["warnings"])


@pytest.mark.parametrize("verb", ["describe", "next"])
def test_a_wrong_expression_is_wrong_usage(cli, verb) -> None:
    done = cli("cron", verb, "--type", "QUARTZ", "* * * * *", "--json", code=2)
    assert done.error["code"] == "CRON_INVALID"
    assert "Cron expression contains 5 parts but we expect one of [6, 7]" in done.error["message"]


def test_a_wrong_zone_is_wrong_usage(cli) -> None:
    done = cli("cron", "next", "* * * * *", "--tz", "europe/berlin", "--json", code=2)
    assert (done.error["code"], "Europe/Berlin" in done.error["message"]) == ("ZONE_UNKNOWN", True)


@pytest.mark.parametrize(
    "line",
    [
        ("next", "* * * * *", "--type", "VIXIE"),
        ("next", "* * * * *", "--dst", "twice"),
        ("next", "* * * * *", "--count", "0"),
        ("next", "* * * * *", "--from", "soon"),
        ("next",),
    ],
)
def test_wrong_options(cli, line) -> None:
    assert "[USAGE]" in cli("cron", *line, code=2).err


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_times_at_both_ends_of_the_calendar(cli, zone) -> None:
    for start, count in (("0001-01-01T00:00Z", 3), ("9999-12-31T23:59:59Z", 0)):
        found = cli("cron", "next", "* * * * *", "--tz", zone, "--from", start, "--count", "3", "--json").object["next"]
        assert len(found) == count
        assert all(time.startswith("0001-01-01T") for time in found)
        assert "every minute" in cli("cron", "check", "* * * * *", "--tz", zone, "--from", start).out
