"""Ticks and crons against walking through time second by second."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.ticks import CAUGHT_UP_MAX, Misfire, Overlap, Policy, decide
from lockstep.cron import Zone, instants, parse
from lockstep.schedule.cron_columns import Crons
from lockstep.schedule.cron_ticks import after_ticks, bucket_of, decided
from lockstep.schedule.rows import CronRow, cron_key

NOW = 1_700_000_000
NIGHTS = {  # the hour in which clocks change
    "UTC": 1_700_000_000,
    "Europe/Berlin": 1_698_541_200,  # 2023-10-29T01:00Z, put back
    "America/New_York": 1_710_054_000,  # 2024-03-10T07:00Z, put forward
    "Australia/Lord_Howe": 1_696_087_800,  # 2023-09-30T15:30Z, put forward by half an hour
}
EXPRESSIONS = [
    ("QUARTZ", "* * * * * ?"), ("QUARTZ", "0/7 * * * * ?"), ("QUARTZ", "30 */2 * * * ?"), ("QUARTZ", "0 30 2 * * ?"),
    ("UNIX", "* * * * *"), ("UNIX", "*/5 * * * *"), ("UNIX", "30 2 * * *"), ("UNIX", "15,45 1-3 * * *"),
    ("SPRING", "0 0 * * * ?"), ("CRON4J", "*/3 * * * *"), ("QUARTZ", "0 0 0 1 1 ? 2020"),
]  # fmt: skip


# core/ticks

policies = st.builds(
    Policy,
    misfire=st.sampled_from(list(Misfire)),
    grace_s=st.integers(0, 40),
    catch_up_s=st.integers(0, 200),
    overlap=st.sampled_from(list(Overlap)),
)


def oracle(nominal, now, policy, latest, caught_up, paused, busy):
    """Each tick by itself, with the reasons in the order in which they are documented."""
    found = []
    for at in nominal:
        missed = now - at > policy.grace_s
        if paused:
            reason = "paused"
        elif missed and now - at > policy.catch_up_s:
            reason = "older than catch_up"
        elif missed and policy.misfire is Misfire.SKIP:
            reason = "missed"
        elif missed and policy.misfire is Misfire.ONCE and at < latest:
            reason = "missed, a later tick fires"
        elif missed and policy.misfire is Misfire.ALL and caught_up >= CAUGHT_UP_MAX:
            reason = f"missed, after {CAUGHT_UP_MAX} that fired"
        elif busy and policy.overlap is Overlap.SKIP:
            reason = "overlap"
        else:
            reason, busy = None, True
            caught_up = caught_up + 1 if missed else 0
        found.append((at, reason))
    return found


def each(nominal, decisions):
    """What was decided about each tick."""
    found = []
    for decision in decisions:
        seconds = [second for second in nominal if decision.first <= second <= decision.last]
        assert len(seconds) == decision.count
        found += [(second, decision.skipped) for second in seconds]
    return found


@settings(max_examples=300)
@given(st.sets(st.integers(-300, 0), max_size=30), policies, st.sampled_from([0, 998, 1000]), st.booleans(),
       st.booleans())  # fmt: skip
def test_ticks_are_decided_one_by_one(seconds, policy, caught_up, paused, busy) -> None:
    nominal = sorted(NOW + second for second in seconds)
    latest = nominal[-1] if nominal else 0
    more = {"caught_up": caught_up, "paused": paused, "busy": busy}
    decisions = decide(nominal, NOW, policy, latest=lambda: latest, **more)
    assert each(nominal, decisions) == oracle(nominal, NOW, policy, latest, **more)
    # And consecutive ticks that are skipped for one reason are one decision
    reasons = [decision.skipped for decision in decisions]
    assert not any(before == after and before is not None for before, after in pairwise(reasons))


# crons of a shard


def rows(draw, count):
    found = []
    for number in range(count):
        kind, expression = draw(st.sampled_from(EXPRESSIONS))
        zone, dst = draw(st.sampled_from(sorted(NIGHTS))), draw(st.sampled_from(["once", "literal"]))
        found.append(CronRow(tenant="t", id=f"c{number}", type=kind, expression=expression, tz=zone, dst=dst))
    return found


def walked(row, start, stop):
    """The seconds after `start` and up to `stop` in which a cron ticks: each is asked for by itself."""
    cron, zone = parse(row.expression, row.type), Zone(row.tz, row.dst)
    return [second for second in range(start + 1, stop + 1) if instants.is_due(cron, second, zone)]


@settings(max_examples=60)
@given(st.data())
def test_crons_tick_in_the_seconds_that_a_walk_finds(data) -> None:
    # Given crons that are added, replaced and removed
    crons, known = Crons(), dict[str, CronRow]()
    start = data.draw(st.sampled_from(sorted(NIGHTS.values()))) + data.draw(st.integers(-300, 200))
    for row in rows(data.draw, data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()) and known:
            gone = known.pop(data.draw(st.sampled_from(sorted(known))))
            crons.drop(cron_key(gone.tenant, gone.id, gone.type))
        crons.put(row)
        known[row.name] = row
    # When time passes in steps of any size
    found: dict[str, list[int]] = {name: [] for name in known}
    now = start
    for step in data.draw(st.lists(st.integers(0, 130), max_size=6)):
        _, due = crons.due(now, now + step)
        for one in due:
            found[one.row.name] += one.seconds
        now += step
    # Then each ticks when a walk says so
    assert found == {name: walked(row, start, now) for name, row in known.items()}
    assert len(crons) == len(known)


@settings(max_examples=60)
@given(st.data())
def test_the_steps_in_which_a_pause_is_worked_off_do_not_matter(data) -> None:
    # Given a cron that was not looked at for a while, on the night in which clocks change
    kind, expression = data.draw(st.sampled_from(EXPRESSIONS))
    zone = data.draw(st.sampled_from(sorted(NIGHTS)))
    policy = Policy(misfire=data.draw(st.sampled_from(list(Misfire))), grace_s=data.draw(st.integers(0, 120)))
    mark = NIGHTS[zone] + data.draw(st.integers(-4000, 2000))
    row = CronRow(
        tenant="t", id="c", type=kind, expression=expression, tz=zone, policy=policy, since=mark - 5,
        dst=data.draw(st.sampled_from(["once", "literal"])),
    )  # fmt: skip
    now = mark + data.draw(st.integers(1, 2500))
    # When its ticks are decided at once, and in pieces
    whole, pieces = Crons([row]), Crons([row])
    at_once = list[tuple[int, str | None]]()
    for one in whole.due(mark, now)[1]:
        at_once += each(one.seconds, decided(one.row, one.seconds, now))
        assert decided(one.row, one.seconds, now, one.seconds[-1]) == decided(one.row, one.seconds, now)
    in_pieces, position = [], mark
    while position < now:
        stop = min(position + data.draw(st.sampled_from([1, 7, 60])) * 10, now)
        most = data.draw(st.sampled_from([1, 50, 10**6]))
        position, due = pieces.due(position, stop, most)
        for one in due:
            decisions = decided(one.row, one.seconds, now)
            pieces.put(after_ticks(one.row, decisions, is_jump=data.draw(st.booleans())))
            in_pieces += each(one.seconds, decisions)
    # Then each nominal tick has the same outcome
    assert in_pieces == at_once
    # And with ONCE the last one fires, if it is not in time anyway
    fired = [(second, reason) for second, reason in at_once if reason is None]
    if policy.misfire is not Misfire.SKIP and at_once and now - at_once[-1][0] <= policy.catch_up_s:
        assert fired
        assert fired[-1] == at_once[-1]


@given(st.integers(0, 4_000_000_000_000), st.sampled_from(["MINUTES", "HOURS", "DAYS", "WEEKS", "MONTHS", "YEARS"]))
def test_a_bucket_begins_at_or_before_its_times_and_is_its_own_bucket(at, granularity) -> None:
    bucket = bucket_of(at, granularity)
    begin, moment = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (bucket, at))
    assert bucket <= at
    assert bucket_of(bucket, granularity) == bucket
    assert (begin.second, begin.microsecond) == (0, 0)
    longest = {"MINUTES": 60, "HOURS": 3600, "DAYS": 86_400, "WEEKS": 7 * 86_400, "MONTHS": 31 * 86_400}
    assert (moment - begin).total_seconds() < longest.get(granularity, 366 * 86_400)
    assert granularity != "WEEKS" or begin.isoweekday() == 1
