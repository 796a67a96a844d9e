"""Our crons against cron-utils 7.0.2 itself; and every difference that is meant, one test each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC as datetime_utc
from datetime import datetime, timedelta
from typing import Any

import pytest
from cron_oracle import PATIENT_MS, Oracle, cron_utils
from cron_samples import ODD_FIELDS, Known, Samples, known_differences

from lockstep.cron import UTC, Cron, Dialect, instants, parse, syntax
from lockstep.cron.dialect import DEFINITIONS
from lockstep.errors import CronInvalid

SAMPLES = 2_000
OWN_REFUSALS = (
    "Value 6 not in range [1, 5]",
    "Value 7 not in range [1, 5]",
    "Value 31 not in range [1, 30]",
    "Non integer values at intervals are not fully supported yet.",
)
JANUARY_2026, MAY_2026, JUNE_2026 = 1_767_225_600, 1_777_593_600, 1_780_272_000
MINUTES = {"UNIX", "CRON4J"}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with cron_utils() as found:
        yield found


@pytest.fixture(scope="module")
def patient_oracle() -> Iterator[Oracle]:
    """For the second try of a call that was slow, because the machine is busy or because it hangs."""
    with cron_utils(PATIENT_MS) as found:
        yield found


@dataclass
class Comparison:
    """What was compared, how often, and what was not the same."""

    oracle: Oracle
    patient: Oracle
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def compare(self, dialect: Dialect, expression: str, moments: list[int]) -> None:
        try:
            cron = parse(expression, dialect)
        except CronInvalid as error:
            self._refused(dialect, expression, str(error.params["reason"]))
            return
        calls = calls_to_compare(cron)
        following = instants.first_after(cron, moments[0], UTC)
        asked = [*moments, *([following] if following is not None else [])]
        theirs = self.oracle.ask(dialect, expression, asked, calls)
        if "hangs" in theirs:
            theirs = self.patient.ask(dialect, expression, asked, calls)
        if "refused" in theirs:
            self._differs("accepted", cron, "accepted", theirs)
            return
        self.counts["accepted"] += 1
        self._check("d", cron, "fails" if _fails(theirs["d"]) else cron.describe(), theirs["d"])
        for call in calls.removeprefix("d"):
            self._check(call, cron, [ours(call, cron, moment) for moment in asked], theirs.get(call))

    def _refused(self, dialect: Dialect, expression: str, reason: str) -> None:
        self.counts["refused"] += 1
        theirs = self.oracle.ask(dialect, expression)
        if "refused" not in theirs:
            if reason not in OWN_REFUSALS and "|" not in expression and expression.isascii():
                self.differences.append(f"{dialect} {expression!r}: refused ({reason}), and not by cron-utils")
        elif theirs["kind"] in ("IllegalArgumentException", "NumberFormatException"):
            if theirs["refused"] != reason and "|" not in expression and expression.isascii():
                self.differences.append(f"{dialect} {expression!r}: {reason!r}, and not {theirs['refused']!r}")
            self.counts["sentences"] += 1

    def _check(self, what: str, cron: Cron, ours: object, theirs: object) -> None:
        self.counts[what] += 1
        if _fails(theirs):
            # Only the words for years fail, see test_years_in_words.
            theirs = "fails" if cron.dialect is Dialect.QUARTZ and cron.expression.split()[6:] else theirs
        if ours != theirs:
            self._differs(what, cron, ours, theirs)

    def _differs(self, what: str, cron: Cron, ours: object, theirs: object) -> None:
        self.differences.append(f"{cron.dialect} {cron.expression!r}: {what} {ours}, and not {theirs}")


def _fails(answer: object) -> bool:
    return isinstance(answer, dict) and "fails" in answer


def differences_of(cron: Cron) -> set[Known]:
    definition = DEFINITIONS[cron.dialect]
    nodes = syntax.read(syntax.split(cron.expression, definition), definition)
    found = known_differences(nodes, definition)
    has_days = any(cron.days.of_month(first, 31) for first in range(7))
    return found if has_days else found | {Known.NEVER}


def calls_to_compare(cron: Cron) -> str:
    """Everything, unless a difference is meant; with years, what comes next is the same."""
    known = differences_of(cron)
    if known == {Known.YEARS}:
        return "dn"
    return "d" if known else "dnpm"


def ours(call: str, cron: Cron, moment: int) -> object:
    """What we say, in the form of the oracle's answers."""
    if call == "m":
        # cron-utils takes the whole minute for a match where there are no seconds, see test_seconds_of_a_match.
        return instants.is_due(cron, moment - moment % 60 if cron.dialect in MINUTES else moment, UTC)
    step, count = (instants.first_after, 5) if call == "n" else (instants.last_before, 2)
    found: list[int | None] = []
    at: int | None = moment
    while at is not None and len(found) < count:
        at = step(cron, at, UTC)
        found.append(at)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak, id=f"soak-{seed}") for seed in range(2, 32))]
)
def test_random_expressions(seed, oracle, patient_oracle) -> None:
    samples, comparison = Samples(seed), Comparison(oracle, patient_oracle)
    for _ in range(SAMPLES):
        comparison.compare(*samples.draw(), samples.instants())
    assert comparison.differences == []
    least = {"accepted": 0.65, "d": 0.65, "n": 0.4, "p": 0.4, "m": 0.4, "refused": 0.15, "sentences": 0.15}
    assert {name for name, part in least.items() if comparison.counts[name] < part * SAMPLES} == set()


@pytest.mark.slow
@pytest.mark.parametrize("dialect", list(Dialect))
def test_odd_fields_in_every_place(dialect, oracle, patient_oracle) -> None:
    comparison = Comparison(oracle, patient_oracle)
    definition = DEFINITIONS[dialect]
    for place, odd in ((place, odd) for place in range(len(definition.fields)) for odd in ODD_FIELDS):
        parts = ["*"] * len(definition.fields)
        if definition.monday == 2:
            parts[3 if place == 5 else 5] = "?"
        parts[place] = odd
        comparison.compare(dialect, " ".join(parts), [JUNE_2026])
    assert comparison.differences == []


# --- what differs, on purpose ------------------------------------------------------------------------------------


def both(oracle: Oracle, dialect: str, expression: str, call: str, moment: int = JUNE_2026) -> tuple[Any, Any]:
    """What we say, and what cron-utils says."""
    cron = parse(expression, dialect)
    assert differences_of(cron), "it is compared with the others"
    theirs = oracle.ask(dialect, expression, [moment], call)
    return ours(call, cron, moment), "hangs" if "hangs" in theirs else theirs[call][0]


def hours(found: list[int]) -> list[int]:
    return [each // 3600 % 24 for each in found]


def minutes(found: list[int]) -> list[int]:
    return [each // 60 % 60 for each in found]


def days(found: list[int], month: int = JUNE_2026) -> list[int]:
    """Days counted from the first of a month, which is 1."""
    return [(each - month) // 86_400 + 1 for each in found]


def test_wrapped_ranges(oracle) -> None:
    mine, theirs = both(oracle, "QUARTZ", "0 0 22-2 * * ?", "n")
    assert (hours(mine), hours(theirs)) == ([1, 2, 22, 23, 0], [22] * 5)
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 ? * FRI-MON", "n")
    assert (days(mine), theirs) == ([5, 6, 7, 8, 12], [None])
    assert both(oracle, "QUARTZ", "0 0 0 ? * FRI-MON", "p")[1] == "hangs"


def test_steps_begin_at_their_start(oracle) -> None:
    mine, theirs = both(oracle, "QUARTZ", "0 30/10 * * * ?", "n")
    assert (minutes(mine), minutes(theirs)) == ([30, 40, 50, 30, 40], [10, 20, 30, 40, 50])


def test_steps_in_lists(oracle) -> None:
    mine, theirs = both(oracle, "UNIX", "5/20,7 * * * *", "n")
    assert (minutes(mine), minutes(theirs)) == ([5, 7, 25, 45, 5], [7, 25, 45, 7, 25])


def test_steps_of_weekdays(oracle) -> None:
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 ? * 2/2", "n")  # Monday, Wednesday, Friday; June begins on a Monday
    assert (days(mine), days(theirs)) == ([3, 5, 8, 10, 12], [2, 4, 6, 32, 34])


def test_special_days_in_lists(oracle) -> None:
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 L,15 6 ?", "n")
    assert (days(mine)[:2], days(theirs)[:2]) == ([15, 30], [15, 380])
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 13W,1 6 ?", "n")
    assert (days(mine)[0], days(theirs)[0]) == (12, 13)
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 ?,15 6 ?", "n")
    assert (days(mine)[0], theirs[0]["kind"]) == (15, "IllegalArgumentException")


def test_nearest_weekday_at_the_end_of_a_month(oracle) -> None:
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 31W 5 ?", "n", MAY_2026)  # the 31st is a Sunday
    assert (days(mine, MAY_2026)[0], days(theirs, MAY_2026)[0]) == (29, 31)
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 31W * ?", "n", MAY_2026)
    assert days(mine, MAY_2026) == [29, 92, 123, 183, 245]
    assert theirs[1]["fails"] == "Invalid date 'JUNE 31'"


def test_steps_from_a_date_that_a_month_has_not(oracle) -> None:
    mine, theirs = both(oracle, "UNIX", "0 0 29-31/2 * *", "n", JANUARY_2026)
    assert days(mine, JANUARY_2026) == [29, 31, 88, 90, 119]
    assert theirs[2]["fails"] == "Invalid date 'February 29' as '2026' is not a leap year"


def test_steps_of_years(oracle) -> None:
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 1 1 ? 2030/2", "n")
    assert [(each - mine[0]) // 86_400 for each in mine] == [0, 730, 1461, 2191, 2922]
    assert theirs[0] < mine[0] - 2 * 365 * 86_400


def test_previous_over_years(oracle) -> None:
    mine, theirs = both(oracle, "QUARTZ", "0 0 0 L * ? 2020", "p", 1_613_347_200)  # from 15 February 2021
    assert mine[0] == 1_609_372_800  # 31 December 2020
    assert theirs[0] == mine[0] - 31 * 86_400


def test_the_first_time_of_all_matches(oracle) -> None:
    assert both(oracle, "QUARTZ", "0 0 0 1 1 ? 2020", "m", 1_577_836_800) == (True, False)


def test_searches_for_days_that_no_month_has_end(oracle) -> None:
    assert both(oracle, "QUARTZ", "0 0 0 ? * ?,?", "n") == ([None], [None])
    assert both(oracle, "QUARTZ", "0 0 0 ? * ?,?", "p") == ([None], "hangs")
    assert both(oracle, "QUARTZ", "0 0 0 ? * ?,?", "m") == (False, "hangs")


def test_seconds_of_a_match(oracle) -> None:
    theirs = oracle.ask("UNIX", "* * * * *", [JUNE_2026, JUNE_2026 + 30], "m")["m"]
    cron = parse("* * * * *")
    assert theirs == [True, True]
    assert [instants.is_due(cron, JUNE_2026 + second, UTC) for second in (0, 30)] == [True, False]


def test_fractions_of_a_second(oracle) -> None:
    theirs = oracle.ask("QUARTZ", "* * * * * ?", [JUNE_2026], "f")["f"][0]
    half = datetime.fromtimestamp(JUNE_2026 + 0.5, datetime_utc)
    assert theirs == JUNE_2026 * 1000 + 1500
    assert parse("* * * * * ?", "QUARTZ").next(half) == half + timedelta(seconds=0.5)


@pytest.mark.parametrize(
    "years", ["2030/2", "2030-2040/2", "2030,2032", "2030-2031,2040-2041", "2030,2040-2041", "2030,*"]
)
def test_years_in_words(years, oracle) -> None:
    expression = f"0 0 0 1 1 ? {years}"
    assert "fails" in oracle.ask("QUARTZ", expression)["d"]
    assert parse(expression, "QUARTZ").describe().startswith("at 00:00 at 1 day at January month ")


@pytest.mark.parametrize(
    ("dialect", "expression", "calls", "outcome"),
    [
        ("QUARTZ", "0 0 0 ? * 2#6", "p", "hangs"),
        ("QUARTZ", "0 0 0 L-31 * ?", "p", "hangs"),
        ("QUARTZ", "0 0 0 1-L * ?", "n", "IllegalArgumentException"),
        ("QUARTZ", "0 0 0 ? * 2-L", "n", "ClassCastException"),
        ("UNIX", "0|30 * * * *", "d", "UnsupportedOperationException"),
        ("UNIX", "\uff15 * * * *", "d", "every hour at minute 5"),
    ],
)
def test_what_cron_utils_accepts_and_we_refuse(dialect, expression, calls, outcome, oracle) -> None:
    theirs = oracle.ask(dialect, expression, [JUNE_2026], calls)
    assert "refused" not in theirs
    said = "hangs" if "hangs" in theirs else theirs["d"] if calls == "d" else theirs[calls][0][0]
    assert (said["kind"] if isinstance(said, dict) else said) == outcome
    with pytest.raises(CronInvalid):
        parse(expression, dialect)


@pytest.mark.parametrize("part", ["-", "1-5/", "1-/", "L-"])
def test_crashes_of_the_parser_are_sentences(part, oracle) -> None:
    expression = f"{part} * * * *"
    assert oracle.ask("UNIX", expression)["kind"] == "ArrayIndexOutOfBoundsException"
    with pytest.raises(CronInvalid) as caught:
        parse(expression)
    assert caught.value.params["reason"] == f"Invalid expression: {part}"
