"""The sentences of cron-utils 7.0.2, word by word. `tests/integration/test_cron_oracle.py` compares very many more."""

from __future__ import annotations

import pytest

from lockstep.cron import parse


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("*/5 * * * * ? *", "every 5 seconds"),
        ("*/45 * * * * ?", "every 45 seconds"),
        ("* * * * * ?", "every second"),
        ("0 * * * * ?", "every minute"),
        ("7 * * * * ?", "every minute at second 07"),
        ("0 0 * * * ?", "every hour"),
        ("0 5 * * * ?", "every hour at minute 5"),
        ("9 5 * * * ?", "every hour at minute 5 and second 9"),
        ("9 0 * * * ?", "every hour at minute 0 and second 9"),
        ("* 5 7 * * ?", "every second at 07:05"),
        ("0 0 12 * * ?", "at 12:00"),
        ("9 5 7 * * ?", "at 07:05:09"),
        ("* * 11 * * ?", "at 11:00"),
        ("0 * 14 * * ?", "at 14 hour"),
        ("0 0-5 14 * * ?", "every minute between 14:00 and 14:05"),
        ("* 0-5 14 * * ?", "every second between 14:00 and 14:05"),
        ("0 */2 * * * ?", "every 2 minutes"),
        ("5 0/1 * * * ?", "every 1 minutes"),
        ("0 1-30/2 * * * ?", "every 2 minutes between 1 and 30"),
        ("0 0 0/1 * * ?", "every hour"),
        ("0 0 */2 * * ?", "every 2 hours at minute 0"),
        ("0 0/5 14,18 * * ?", "every 5 minutes at 14 and 18 hours"),
        ("* 0/1 * ? * TUE", "every minute at Tuesday day"),
        ("* * 1,2,3,4 * * ? *", "at 1, 2, 3 and 4 hours"),
        ("0 0 0 L * ?", "at 00:00 last day of month"),
        ("0 0 0 LW * ?", "at 00:00 last weekday of month"),
        ("0 0 0 15W * ?", "at 00:00 the nearest weekday to the 15 of the month"),
        ("0 0 0 ? * 2#3", "at 00:00 Monday 3 of every month"),
        ("0 0 0 ? * 6L", "at 00:00 last Friday of every month"),
        ("0 0 0 ? 2-3 *", "at 00:00 every month between February and March"),
        ("0 0 0 1 1 ? 2030", "at 00:00 at 1 day at January month at 2030 year"),
        ("0 0 0 1 1 ? 2030-2032", "at 00:00 at 1 day at January month every year between 2030 and 2032"),
    ],
)
def test_quartz(expression, sentence) -> None:
    assert parse(expression, "QUARTZ").describe() == sentence


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("* * * * *", "every minute"),
        ("*/1 * * * *", "every minute"),
        ("0/1 * * * *", "every minute"),
        ("30 11 * * *", "at 11:30"),
        ("0 0 13 * 5", "at 00:00 at 13 day at Friday day"),
        ("0 0 * * 0,7", "at 00:00 at Sunday and Sunday days"),
        ("0 0 * JAN,MAR-MAY *", "at 00:00 at and January months and every month between March and May"),
    ],
)
def test_unix(expression, sentence) -> None:
    assert parse(expression).describe() == sentence


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("0 0 0 L-3 * ?", "at 00:00 last day of month"),
        ("0 0 0 L,15 * ?", "at 00:00 at -1 and 15 days"),
        ("0 0 0 ? * L", "at 00:00 last Sunday of every month"),
        ("0 0 0 ? */2 2", "at 00:00 every February months at Monday day"),
        ("0 0 0 ? * 2/2", "at 00:00 every Monday days"),
        ("7 5 */2 * * ?", "and second 7"),
    ],
)
def test_odd_words_are_kept(expression, sentence) -> None:
    assert parse(expression, "QUARTZ").describe() == sentence


@pytest.mark.parametrize(
    ("year", "sentence"),
    [
        ("2030/2", "every 2 years"),
        ("2030-2040/2", "every 2 years between 2030 and 2040"),
        ("2030,2032", "at 2030 and 2032 years"),
        ("2030-2031,2040-2041", "every year between 2030 and 2031 and every year between 2040 and 2041"),
    ],
)
def test_years_that_crash_the_description_of_cron_utils(year, sentence) -> None:
    assert parse(f"0 0 0 * * ? {year}", "QUARTZ").describe() == f"at 00:00 {sentence}"
