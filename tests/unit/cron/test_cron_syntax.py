"""What each dialect accepts, and the sentence for what it refuses: those of cron-utils 7.0.2."""

from __future__ import annotations

import pytest

from lockstep.cron import Cron, Dialect, parse
from lockstep.errors import BadArgument, CronInvalid, UsageError

ALL_MINUTES = (1 << 60) - 1
BOTH_DAYS = "Both, a day-of-week AND a day-of-month parameter, are not supported."


def bits(mask: int) -> list[int]:
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


def reason(expression: str, dialect: str) -> str:
    with pytest.raises(CronInvalid) as caught:
        parse(expression, dialect)
    return str(caught.value.params["reason"])


@pytest.mark.parametrize(
    ("field", "minutes"),
    [
        ("*", [*range(60)]),
        ("*/1", [*range(60)]),
        ("0/1", [*range(60)]),
        ("*/01", [*range(60)]),
        ("7", [7]),
        ("+7", [7]),
        ("7-9", [7, 8, 9]),
        ("7-7", [7]),
        ("0/20", [0, 20, 40]),
        ("/20", [0, 20, 40]),
        ("*/20/", [0, 20, 40]),
        ("50/4", [50, 54, 58]),
        ("10-20/5", [10, 15, 20]),
        ("10-20/5/7", [10, 15, 20]),
        ("1-2-3", [1, 2]),
        ("1,*/30,10-12,20/15", [0, 1, 10, 11, 12, 20, 30, 35, 50]),
        ("1,1,1", [1]),
    ],
)
def test_fields(field, minutes) -> None:
    assert bits(parse(f"{field} * * * *").minutes) == minutes


@pytest.mark.parametrize(
    ("field", "hours"), [("22-2", [0, 1, 2, 22, 23]), ("22-2/3", [1, 22]), ("23-0", [0, 23]), ("5-4", [*range(24)])]
)
@pytest.mark.parametrize("dialect", ["QUARTZ", "SPRING"])
def test_ranges_go_on_from_the_lowest_value(field, hours, dialect) -> None:
    assert bits(parse(f"0 0 {field} * * ?", dialect).hours) == hours


def test_ranges_of_months_and_dates_go_on_from_the_lowest_value() -> None:
    cron = parse("0 0 0 30-2 NOV-FEB ?", "QUARTZ")
    assert (bits(cron.months), bits(cron.days.dates)) == ([1, 2, 11, 12], [1, 2, 30, 31])


def test_a_range_of_years_that_ends_before_it_begins_is_empty() -> None:
    assert parse("0 0 0 * * ? 2030-2020", "QUARTZ").years == 0


def test_years() -> None:
    assert bits(parse("0 0 0 1 1 ? 1970,2030/30,2099", "QUARTZ").years) == [0, 60, 90, 120, 129]
    assert parse("0 0 0 1 1 ?", "QUARTZ").years == (1 << 130) - 1
    assert parse("0 0 0 1 1 ?", "SPRING").years is None


def test_unix_and_cron4j_have_second_zero_only() -> None:
    assert parse("* * * * *", "UNIX").seconds == parse("* * * * *", "CRON4J").seconds == 1
    assert parse("* * * * * ?", "QUARTZ").seconds == ALL_MINUTES


@pytest.mark.parametrize(
    ("dialect", "field", "weekdays"),  # Monday is 0
    [
        ("UNIX", "0", [6]),
        ("UNIX", "7", [6]),
        ("UNIX", "SUN", [6]),
        ("UNIX", "1-5", [0, 1, 2, 3, 4]),
        ("UNIX", "FRI-SUN", [4, 5, 6]),
        ("UNIX", "0-7", [0, 1, 2, 3, 4, 5, 6]),
        ("UNIX", "*/2", [1, 3, 5, 6]),
        ("UNIX", "7/2", [6]),
        ("CRON4J", "SUN", [6]),
        ("CRON4J", "SUN-TUE", [0, 1, 6]),
        ("CRON4J", "6", [5]),
        ("QUARTZ", "1", [6]),
        ("QUARTZ", "7", [5]),
        ("QUARTZ", "MON-FRI", [0, 1, 2, 3, 4]),
        ("QUARTZ", "FRI-MON", [0, 4, 5, 6]),
        ("QUARTZ", "6-2/2", [4, 6]),
        ("QUARTZ", "L", [5]),
        ("QUARTZ", "?,2", [0]),
        ("SPRING", "2", [0]),
    ],
)
def test_weekdays(dialect, field, weekdays) -> None:
    text = f"0 0 * * {field}" if dialect in ("UNIX", "CRON4J") else f"0 0 0 ? * {field}"
    assert bits(parse(text, dialect).days.weekdays) == weekdays


@pytest.mark.parametrize("text", ["  0   0 1\tjan\n*  ", "0 0 1 Jan *", "\x010 0 1 JAN *\x02"])
def test_case_and_white_space_do_not_matter(text) -> None:
    cron = parse(text)
    assert (cron.minutes, cron.hours, cron.months, cron.expression) == (1, 1, 2, text)


@pytest.mark.parametrize(
    ("dialect", "expression", "sentence"),
    [
        ("UNIX", "", "Empty expression!"),
        ("UNIX", " \t\n ", "Empty expression!"),
        ("UNIX", "* * * *", "Cron expression contains 4 parts but we expect one of [5]"),
        ("CRON4J", "* * * * * *", "Cron expression contains 6 parts but we expect one of [5]"),
        ("SPRING", "* * * * *", "Cron expression contains 5 parts but we expect one of [6]"),
        ("QUARTZ", "* * * * *", "Cron expression contains 5 parts but we expect one of [6, 7]"),
        ("QUARTZ", "* * * * * ? * *", "Cron expression contains 8 parts but we expect one of [6, 7]"),
        ("UNIX", "60 * * * *", "Value 60 not in range [0, 59]"),
        ("UNIX", "* 24 * * *", "Value 24 not in range [0, 23]"),
        ("UNIX", "* * 0 * *", "Value 0 not in range [1, 31]"),
        ("UNIX", "* * * 13 *", "Value 13 not in range [1, 12]"),
        ("UNIX", "* * * * 8", "Value 8 not in range [0, 7]"),
        ("CRON4J", "* * * * 7", "Value 7 not in range [0, 6]"),
        ("QUARTZ", "* * * ? * 0", "Value 0 not in range [1, 7]"),
        ("QUARTZ", "* * * * * ? 1969", "Value 1969 not in range [1970, 2099]"),
        ("UNIX", "1-60 * * * *", "Value 60 not in range [0, 59]"),
        ("UNIX", "60/2 * * * *", "Value 60 not in range [0, 59]"),
        ("UNIX", "*/0 * * * *", "Period 0 not in range (0, 59]"),
        ("UNIX", "0/0 * * * *", "Period 0 not in range (0, 59]"),
        ("UNIX", "* * * * */8", "Period 8 not in range (0, 7]"),
        ("UNIX", "* * * 1-5/12 *", "Period 12 not in range (0, 11]"),
        ("UNIX", "*/60 * * * *", "Period 60 not in range (0, 59]"),
        ("UNIX", "5-1 * * * *", "Invalid range! [5,1]"),
        ("UNIX", "* * * * FRI-MON", "Invalid range! [5,1]"),
        ("UNIX", "* * * * SUN-TUE", "Invalid range! [7,2]"),
        ("CRON4J", "9-3/2 * * * *", "Invalid range! [9,3]"),
        ("UNIX", "a * * * *", "Invalid chars in expression! Expression: A Invalid chars: A"),
        ("UNIX", "1,,2 * * * *", "Invalid chars in expression! Expression:  Invalid chars: "),
        ("UNIX", "99999999999 * * * *", "Invalid chars in expression! Expression: 99999999999 Invalid chars: "),
        ("UNIX", "* * * * MONTUE", "Invalid chars in expression! Expression: MONTUE Invalid chars: MONTUE"),
        ("UNIX", "* * L * *", "Invalid chars in expression! Expression: L Invalid chars: L"),
        ("CRON4J", "* * LW * *", "Invalid chars in expression! Expression: LW Invalid chars: LW"),
        ("QUARTZ", "* * * ? * FRIL", "Invalid chars in expression! Expression: FRIL Invalid chars: FRIL"),
        ("QUARTZ", "* * * L5 * ?", "Invalid chars in expression! Expression: L5 Invalid chars: "),
        ("QUARTZ", "* * * ? * 5W", "Invalid chars in expression! Expression: 5W Invalid chars: W"),
        ("UNIX", "? * * * *", "Invalid expression: ?"),
        ("UNIX", "* * ? * *", "Invalid expression: ?"),
        ("QUARTZ", "* * * 2#1 * ?", "Invalid expression: 2#1"),
        ("UNIX", "1/2/3 * * * *", "Invalid expression: 1/2/3"),
        ("UNIX", "/ * * * *", "Invalid expression: /"),
        ("UNIX", "*/ * * * *", "Missing steps for expression: */"),
        ("UNIX", "5, * * * *", "Missing steps for expression: 5,"),
        ("UNIX", "5- * * * *", "Missing steps for expression: 5-"),
        ("UNIX", "*/x * * * *", 'For input string: "X"'),
        ("UNIX", "* * * * MON/2", 'For input string: "MON"'),
        ("UNIX", "*/99999999999 * * * *", 'For input string: "99999999999"'),
        (
            "UNIX",
            "-1 * * * *",
            "Invalid expression! Expression: -1 does not describe a range. Negative numbers are not allowed.",
        ),
        ("QUARTZ", "* * * LW5 * ?", "Expected: LW, found: 5"),
        ("QUARTZ", "* * * ? * #2", "Time should be specified!"),
        ("QUARTZ", "* * * W-5 * ?", "No special characters allowed in range, except for 'L'"),
        ("QUARTZ", "* * * ? * 2#0", "Value 0 not in range [1, 7]"),
        ("QUARTZ", "* * * ? * 2#8", "Value 8 not in range [1, 7]"),
        ("QUARTZ", "* * * L-0 * ?", "Value 0 not in range [1, 31]"),
        (
            "QUARTZ",
            "0 0 0 1 * MON",
            f"Invalid cron expression: 0 0 0 1 * 2. {BOTH_DAYS}",
        ),
        (
            "SPRING",
            "*/5 0 0 ? * ?",
            f"Invalid cron expression: */5 0 0 ? * ?. {BOTH_DAYS}",
        ),
    ],
)
def test_sentences(dialect, expression, sentence) -> None:
    assert reason(expression, dialect) == sentence


def test_all_fields_are_read_before_the_first_is_checked() -> None:
    assert reason("60 * * * x", "UNIX") == "Invalid chars in expression! Expression: X Invalid chars: X"
    assert reason("60 24 * * *", "UNIX") == "Value 60 not in range [0, 59]"


@pytest.mark.parametrize(
    ("dialect", "expression", "sentence"),
    [
        ("QUARTZ", "0 0 0 ? * 2#6", "Value 6 not in range [1, 5]"),
        ("QUARTZ", "0 0 0 ? * MON,2#7", "Value 7 not in range [1, 5]"),
        ("CRON4J", "0 0 L-31 * *", "Value 31 not in range [1, 30]"),
        ("QUARTZ", "0 0 0 1-L * ?", "Non integer values at intervals are not fully supported yet."),
        ("QUARTZ", "0 0 0 ? * 2-L/2", "Non integer values at intervals are not fully supported yet."),
        ("UNIX", "0|30 * * * *", "Currently not supported for CompositeCron"),
        ("UNIX", "\uff15 * * * *", "Invalid chars in expression! Expression: \uff15 Invalid chars: \uff15"),
        ("UNIX", "- * * * *", "Invalid expression: -"),
        ("UNIX", "1-5/ * * * *", "Invalid expression: 1-5/"),
        ("UNIX", "1-/ * * * *", "Invalid expression: 1-/"),
        ("QUARTZ", "* * * L- * ?", "Invalid expression: L-"),
        ("QUARTZ", "* * * ? * 5#", "Invalid expression: 5#"),
    ],
)
def test_what_hangs_or_crashes_cron_utils_is_refused(dialect, expression, sentence) -> None:
    assert reason(expression, dialect) == sentence


def test_the_error_says_where_and_what_to_do() -> None:
    with pytest.raises(CronInvalid) as caught:
        parse("0 61 * * * ?", Dialect.QUARTZ)
    assert str(caught.value) == (
        "[CRON_INVALID] The QUARTZ expression '0 61 * * * ?' is not valid (minute '61'): "
        "Value 61 not in range [0, 59]. "
        "Correct it; 'lockstep cron check' tries an expression, docs/reference/cron.md has the fields."
    )
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, UsageError)
    assert "supported. Correct" in str(made("0 0 0 1 1 1", "QUARTZ"))
    assert "expression! Correct" in str(made(" ", "UNIX"))


def made(expression: str, dialect: str) -> CronInvalid:
    with pytest.raises(CronInvalid) as caught:
        parse(expression, dialect)
    return caught.value


def test_dialects_are_known_by_name() -> None:
    assert parse("* * * * *", "unix").dialect is Dialect.UNIX
    with pytest.raises(BadArgument, match="one of QUARTZ, UNIX, CRON4J, SPRING"):
        parse("* * * * *", "VIXIE")


def test_crons_are_values() -> None:
    one = parse("0 0 1 1 *")
    again = Cron(one.expression, one.dialect, one.seconds, one.minutes, one.hours, one.months, one.days, one.years)
    assert (one == again, hash(one) == hash(again)) == (True, True)
    assert parse("0 0 1 1 *") is one
    with pytest.raises(AttributeError):
        one.hours = 1  # type: ignore[misc]


def test_a_very_long_expression_is_read_in_time_that_grows_with_its_length() -> None:
    assert parse(f"{','.join(['5'] * 20_000)} * * * *").minutes == 1 << 5
    assert reason(f"{'9' * 100_000} * * * *", "UNIX").startswith("Invalid chars in expression!")
