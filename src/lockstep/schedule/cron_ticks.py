"""The ticks of a cron: their seconds, what is decided of them, and which may have fired before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby, islice, pairwise

from lockstep.core import ticks
from lockstep.core.agenda import Event, Form, Status
from lockstep.core.ticks import Decision
from lockstep.cron import parse
from lockstep.cron.instants import first_after
from lockstep.errors import BadArgument
from lockstep.schedule.rows import CronRow, tick_key
from lockstep.schedule.times import LAST_MS, java_text, zone_of

BACKFILL_MAX = 10_000
"""Ticks that one request may ask for."""
GRANULARITIES = ("MINUTES", "HOURS", "DAYS", "WEEKS", "MONTHS", "YEARS")
UNITS_MS = {
    "NANOSECONDS": 1e-6, "MICROSECONDS": 1e-3, "MILLISECONDS": 1, "SECONDS": 1000, "MINUTES": 60_000,
    "HOURS": 3_600_000, "DAYS": 86_400_000,
}  # fmt: skip


def nominal_ticks(row: CronRow, start: int, stop: int) -> Iterator[int]:
    """Yield the seconds after `start` and up to `stop` in which a cron ticks."""
    cron, zone = parse(row.expression, row.type), zone_of(row)
    at = first_after(cron, start, zone)
    while at is not None and at <= stop:
        yield at
        at = first_after(cron, at, zone)


def count_ticks(rows: Iterable[CronRow], start: int, stop: int, now_ms: int, name: str) -> int:
    """Return how many nominal ticks crons have, for a backfill.

    BadArgument for the argument `name` if one has more than 10,000 of them, or if some of that time is still to come.
    """
    if stop * 1000 > now_ms:
        reason = "it is in the future; ticks that are to come fire by themselves"
        raise BadArgument(name=name, value=java_text(stop * 1000), reason=reason)
    counts = [sum(1 for _ in islice(nominal_ticks(row, start, stop), BACKFILL_MAX + 1)) for row in rows]
    if max(counts, default=0) > BACKFILL_MAX:
        reason = f"the cron has more than {BACKFILL_MAX:,} ticks until then; do it in several steps"
        raise BadArgument(name=name, value=java_text(stop * 1000), reason=reason)
    return sum(counts)


def decided(row: CronRow, nominal: list[int], now: int, latest: int | None = None) -> list[Decision]:
    """Decide nominal ticks of a cron up to now. `latest` is the last of all that it has up to now, if that is known."""
    wanted = unfired(row, nominal)
    if wanted and wanted[0] <= row.since:
        wanted = [second for second in wanted if second > row.since]

    @cache
    def found() -> int:
        if latest is not None:
            return latest
        last = parse(row.expression, row.type).previous(_datetime(now + 1), zone_of(row))
        return -1 if last is None else int(last.timestamp())

    decisions = ticks.decide(
        wanted, now, row.policy, latest=found, caught_up=row.caught_up, paused=row.paused, busy=row.running is not None
    )
    return decisions if len(wanted) == len(nominal) else list(_consecutive(decisions, nominal, set(wanted)))


def _consecutive(decisions: Iterable[Decision], nominal: list[int], wanted: set[int]) -> Iterator[Decision]:
    """Divide runs of skipped ticks where other ticks, which fired before, are between them."""
    for decision in decisions:
        seconds = nominal[bisect_left(nominal, decision.first) : bisect_right(nominal, decision.last)]
        runs = [list(run) for is_wanted, run in groupby(seconds, wanted.__contains__) if is_wanted]
        for run in runs:
            late_s = decision.late_s + decision.first - run[0]
            yield replace(decision, first=run[0], last=run[-1], count=len(run), late_s=late_s)


def after_ticks(row: CronRow, decisions: Sequence[Decision], *, is_jump: bool = False) -> CronRow:
    """Return a cron after its ticks: when it fired last, and how many missed ones fired in a row.

    In a jump, ticks of a long time are decided together: the computer slept, or its clock was set.
    """
    fired = [decision for decision in decisions if decision.skipped is None]
    if not fired:
        return row
    caught_up = row.caught_up
    for decision in fired:
        caught_up = caught_up + 1 if decision.late_s > row.policy.grace_s else 0
    spans = row.fired
    if is_jump or spans or row.executed is None or fired[0].first * 1000 < row.executed:
        spans = after_decisions(row, decisions, is_jump=is_jump)
    return replace(row, executed=fired[-1].first * 1000, caught_up=caught_up, fired=spans)


def tick_event(row: CronRow, nominal: int, now_ms: int) -> Event:
    """Return the event of a tick, due when its jitter has passed. Its id is the cron and the nominal second."""
    at = nominal * 1000
    event_id = f"{row.name}/{java_text(at)}"
    spread = int.from_bytes(tick_key(row.tenant, row.name)[:4], "big") if row.jitter_s else 0
    jitter = spread % (row.jitter_s * 1000 + 1)
    payload, form = (row.expression.encode(), Form.TEXT) if row.payload is None else (row.payload, row.form)
    return Event(
        tenant=row.tenant, id=row.name, event_id=event_id, at=at, due=max(at + jitter, 0), status=Status.WAITING,
        payload=payload, form=form, accepted=now_ms, tick=True,
    )  # fmt: skip


def trigger_event(row: CronRow, now_ms: int) -> Event:
    """Return the event of a cron that is fired now. It is between two seconds, so its id is not that of a tick."""
    at = now_ms if now_ms % 1000 else now_ms - 1
    return replace(tick_event(row, at // 1000, now_ms), at=at, due=now_ms, event_id=f"{row.name}/{java_text(at)}")


def bucket_of(at_ms: int, granularity: str) -> int:
    """Return the beginning of the minute, hour, day, ISO week, month or year of a time, in UTC."""
    at = _datetime(at_ms // 1000)
    day = at.replace(hour=0, minute=0, second=0)
    begin = {
        "MINUTES": at.replace(second=0),
        "HOURS": at.replace(minute=0, second=0),
        "DAYS": day,
        "WEEKS": day - timedelta(days=day.weekday()),
        "MONTHS": day.replace(day=1),
        "YEARS": day.replace(month=1, day=1),
    }[granularity]
    return int(begin.timestamp()) * 1000


def expiry_of(row: CronRow, at_ms: int) -> int | None:
    """Return when a logged run may be forgotten; None keeps it."""
    return min(at_ms + round(row.retention * UNITS_MS[row.retention_units]), LAST_MS) if row.retention else None


def _datetime(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


SPANS_MAX = 4
"""More spans are joined, those first that are closest: their ticks in between count as fired."""

Spans = tuple[int, ...]


def has_fired(row: CronRow, second: int) -> bool:
    """Return whether a cron's tick may have fired before."""
    return any(first <= second <= last for first, last in _pairs(row))


def unfired(row: CronRow, seconds: list[int]) -> list[int]:
    """Return the nominal seconds, given in order, of ticks that have not fired."""
    if not row.fired and (row.executed is None or row.executed < seconds[0] * 1000):
        return seconds
    return [second for second in seconds if not has_fired(row, second)]


def closed(row: CronRow) -> Spans:
    """Return the spans of a cron that forgets when it fired last."""
    return tuple(bound for pair in _joined(_pairs(row)) for bound in pair)


def after_decisions(row: CronRow, decisions: Sequence[Decision], *, is_jump: bool) -> Spans:
    """Return the spans after decisions. Where ticks were left out, in a jump or by an earlier step, one begins."""
    after, is_broken = row, False
    for decision in decisions:
        if decision.skipped is not None:
            is_broken = True
            continue
        if _begins_span(after, decision.first, is_jump=is_jump, is_broken=is_broken):
            after = replace(after, fired=(*closed(after), decision.first))
        after, is_broken = replace(after, executed=decision.first * 1000), False
    return after.fired


def _begins_span(row: CronRow, second: int, *, is_jump: bool, is_broken: bool) -> bool:
    if row.executed is None:
        return bool(row.fired) or is_jump
    last = row.executed // 1000
    if second < last:
        return True
    return is_jump and (is_broken or first_after(parse(row.expression, row.type), last, zone_of(row)) != second)


def set_back(row: CronRow, second: int) -> CronRow:
    """Return a cron whose ticks after a second are decided anew, unless they fired."""
    if row.since <= second:
        return row
    has_open_span = len(row.fired) % 2 == 1 or row.executed is None
    return replace(row, since=second, fired=row.fired if has_open_span else (*row.fired, row.since + 1))


def _pairs(row: CronRow) -> list[tuple[int, int]]:
    bounds = row.fired
    if row.executed is not None:
        begin = () if len(bounds) % 2 else (row.since + 1,)
        bounds = (*bounds, *begin, row.executed // 1000)
    return list(zip(bounds[::2], bounds[1::2], strict=False))


def _joined(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that touch as one, and at most so many as are kept."""
    found = list[tuple[int, int]]()
    for first, last in sorted(pairs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    while len(found) > SPANS_MAX:
        gaps = [after[0] - before[1] for before, after in pairwise(found)]
        place = gaps.index(min(gaps))
        found[place : place + 2] = [(found[place][0], found[place + 1][1])]
    return found
