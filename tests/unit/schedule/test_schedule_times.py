"""Times as Java's ZonedDateTime reads them; the table was made with Java 17."""

from __future__ import annotations

import pytest

from lockstep.errors import BadArgument
from lockstep.schedule.times import java_text, parse_time

READ = {
    "2018-01-31T04:00Z": "2018-01-31T04:00Z",
    "2018-01-31t04:00z": "2018-01-31T04:00Z",
    "2018-01-31T04:00+05": "2018-01-30T23:00Z",
    "2018-01-31T04:00:00.Z": "2018-01-31T04:00Z",
    "2018-01-31T04:00:00.1239Z": "2018-01-31T04:00:00.123Z",
    "2018-01-31T04:00+01:00[Europe/Paris]": "2018-01-31T03:00Z",
    "2018-01-31T04:00+05:00[Europe/Paris]": "2018-01-30T23:00Z",
    "2018-01-31T04:00Z[UTC]": "2018-01-31T04:00Z",
    "2018-01-31T04:00Z[UTC+01:00]": "2018-01-31T04:00Z",
    "2018-01-31T04:00Z[+01:00]": "2018-01-31T04:00Z",
    "2018-01-31T04:00Z[Z]": "2018-01-31T04:00Z",
    "2018-01-31T04:00-00:00": "2018-01-31T04:00Z",
    "2018-01-31T04:00+18:00": "2018-01-30T10:00Z",
    "2018-01-31T04:00+05:30:15": "2018-01-30T22:29:45Z",
}
REFUSED = [
    "2018-01-31T04:00+0530", "2018-01-31T04:00:00.1234567890Z", "2018-01-31T24:00Z", "2018-01-31T04Z",
    "2018-01-31T04:00+01:00[europe/paris]", "2018-01-31T04:00Z[GMT+1]", "2018-01-31T04:00+18:01", "2018-02-30T04:00Z",
    "2018-01-31T23:59:60Z", "2018-01-31T04:00[Europe/Paris]", "2018-01-31T04:00+18:00:01", "2018-01-31T04:00+05:60",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), READ.items())
def test_a_time_is_read_as_java_reads_it(text, expected):
    assert java_text(parse_time(text)) == expected


@pytest.mark.parametrize("text", REFUSED)
def test_a_time_that_java_refuses_is_refused(text):
    with pytest.raises(BadArgument, match="ISO 8601"):
        parse_time(text)
