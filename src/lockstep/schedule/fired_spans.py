"""Which nominal ticks of a cron may have fired, after a clock that was wrong: none of them fires a second time.

As long as the clock goes forward, all ticks up to the last one that fired are decided, and nothing more is stored. When
the clock jumps ahead, ticks in between are skipped, and others fire before their time has really come; when it is set
right, only the skipped ones may fire. So a cron's row has spans of seconds in which its ticks fired: first and last
second of each, and the first second of the latest, whose last one is that of `executed`. A row without an open span
begins it after `since`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from lockstep.core.ticks import Decision
from lockstep.cron import parse
from lockstep.cron.instants import first_after
from lockstep.schedule.rows import CronRow
from lockstep.schedule.zones import zone_of

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
