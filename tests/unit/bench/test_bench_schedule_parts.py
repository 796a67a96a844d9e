"""The arithmetic of the scheduler's benchmark."""

from __future__ import annotations

import pytest

from lockstep.bench.schedule.arrivals import Arrivals, event_name, lateness, shares, wrong
from lockstep.bench.schedule.cron_load import expressions
from lockstep.bench.schedule.due_events import Fresh
from lockstep.bench.schedule.peers import PACKAGES, jdbc, joined, sqlalchemy_url
from lockstep.bench.schedule.table import PARTS, ScheduleBench
from lockstep.bench.schedule.takeovers import Silence
from lockstep.cron import parse

AT = 1_800_000_000_000
MS = 10**6


def key(number, at=AT):
    return event_name(number, at).encode()


def test_what_arrives_once_and_in_time_has_no_fault():
    arrivals = Arrivals(3)
    arrivals.add([key(0), key(1)], (AT + 5) * MS)
    arrivals.add([key(2)], (AT + 20) * MS)
    assert wrong(arrivals.faults(3)) == 0
    assert arrivals.lateness() == {"p50": 5.0, "p99": 20.0, "max": 20.0}
    assert (arrivals.first_ns, arrivals.last_ns) == ((AT + 5) * MS, (AT + 20) * MS)


def test_lost_duplicated_early_and_unknown_events_are_counted():
    arrivals = Arrivals(4)
    arrivals.add([key(0), key(0), key(1, AT + 100), key(9)], (AT + 1) * MS)
    assert arrivals.faults(4) == {"lost": 2, "duplicated": 1, "early": 1, "unknown": 1}
    assert arrivals.missing(2) == 0


def test_shares_are_compared_with_equal_ones():
    assert shares({"a": 40, "b": 60}) == {"shares": {"a": 0.4, "b": 0.6}, "off": 0.2}
    assert shares({"a": 0, "b": 0}) == {"shares": {}, "off": 0.0}


def test_lateness_rounds_to_tenths():
    assert lateness([1.26, 1.21, 9.99]) == {"p50": 1.3, "p99": 10.0, "max": 10.0}


def test_fresh_events_count_only_while_the_backlog_is_fired():
    fresh = Fresh(2)
    fresh.add([key(0)], (AT + 1000) * MS)
    fresh.add([key(2, AT + 500), key(3, AT + 1500)], (AT + 1600) * MS)
    fresh.add([key(1), key(4, AT + 9000)], (AT + 9100) * MS)
    assert (fresh.old, fresh.first_old_ns) == (2, (AT + 1000) * MS)
    assert fresh.lateness(AT * MS, (AT + 5000) * MS)["max"] == 100.0


def test_a_silence_lasts_until_the_slowest_shard_is_heard():
    silence = Silence(lambda name: int(name[:1]) % 2)
    silence.killed(AT * MS)
    silence.add([key(0, AT - 1), key(2, AT + 10)], (AT + 20) * MS)
    assert silence.heard() == 1
    silence.add([key(4, AT + 30), key(1, AT + 30)], (AT + 1500) * MS)
    silence.over()
    silence.add([key(3, AT + 9000)], (AT + 9000) * MS)
    assert silence.heard() == 2
    assert silence.seconds() == [1.5]


def test_crons_are_the_same_in_each_run_and_valid():
    found = list(expressions(50))
    assert found == list(expressions(50))
    assert len({parse(text, "UNIX").expression for text in found}) > 40


def test_parts_of_several_processes_are_joined():
    part = {"ran": 3, "seconds": 2.0, "duplicated": 0, "early": 0, "late_ms": {"p50": 1, "p99": 2, "max": 3}}
    other = {**part, "ran": 4, "seconds": 4.0, "late_ms": {"p50": 5, "p99": 1, "max": 9}}
    found = joined(8, [part, other])
    assert (found["ran"], found["per_s"], found["lost"], found["duplicated"]) == (7, 1.8, 1, 0)
    assert found["late_ms"] == {"p50": 5, "p99": 2, "max": 9}
    assert joined(3, [part]) == part


def test_urls_are_written_as_peers_want_them():
    assert jdbc("postgresql://me@h:1/db") == "jdbc:postgresql://h:1/db?user=me"
    assert jdbc("postgresql://me:pw@h/db") == "jdbc:postgresql://h/db?user=me&password=pw"
    assert jdbc("postgresql://h/db") == "jdbc:postgresql://h/db"
    assert sqlalchemy_url("postgresql://me@h/db") == "postgresql+psycopg://me@h/db"


def test_peers_have_pinned_versions():
    assert all("==" in package for packages in PACKAGES.values() for package in packages)


def test_rows_are_chosen_by_name_and_keep_their_order():
    assert ScheduleBench(only=("kill", "now")).parts == ["now", "kill"]
    assert ScheduleBench().parts == list(PARTS)
    with pytest.raises(ValueError, match="there is no row what; there are now, minute"):
        ScheduleBench(only=("what",))
    with pytest.raises(ValueError, match="events=3"):
        ScheduleBench(events=3)
