"""What becomes of each nominal tick of a cron: it fires, fires late, or is skipped for a reason that is recorded.

A shard's owner moves a mark forward and decides every tick between the old mark and the new one; mark and decisions are
stored together. Times are seconds since 1970.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

CAUGHT_UP_MAX = 1000
"""With `misfire` ALL, so many missed ticks in a row fire; more are skipped."""
PAUSED, OVERLAP, TOO_OLD, LATER_FIRES = "paused", "overlap", "older than catch_up", "missed, a later tick fires"


class Misfire(StrEnum):
    """What happens to ticks that could not fire in time."""

    ONCE = "once"
    ALL = "all"
    SKIP = "skip"


class Overlap(StrEnum):
    """Whether a tick fires while the delivery of an earlier one is under way."""

    ALLOW = "allow"
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How a cron treats ticks that are late, and ticks that overlap."""

    misfire: Misfire = Misfire.ONCE
    grace_s: int = 60
    """A tick that is later than this is missed; one within it fires late."""
    catch_up_s: int = 86_400
    """Missed ticks older than this are skipped."""
    overlap: Overlap = Overlap.ALLOW


@dataclass(slots=True, unsafe_hash=True)
class Decision:
    """What was decided: about one nominal tick that fires, or about consecutive ones that are skipped for one reason.

    Not frozen, as one is made for each tick: making a frozen one takes several times as long.
    """

    first: int
    """The nominal second; of a run, that of its first tick."""
    late_s: int
    skipped: str | None = None
    """Why they are skipped; None if the tick fires."""
    last: int = 0
    """The nominal second of the last tick of a run."""
    count: int = 1


def decide(
    nominal: Sequence[int],
    now: int,
    policy: Policy,
    *,
    latest: Callable[[], int],
    caught_up: int = 0,
    paused: bool = False,
    busy: bool = False,
) -> list[Decision]:
    """Decide ticks in order. `latest` tells the last nominal tick up to now, `caught_up` how many missed ones fired."""
    found = list[Decision]()
    place = 0
    while place < len(nominal):
        at = nominal[place]
        late, end = now - at, place + 1
        reason = _reason(at, late, policy, latest, caught_up, paused, busy)
        if reason is None:
            busy = busy or policy.overlap is Overlap.SKIP
            caught_up = caught_up + 1 if late > policy.grace_s else 0
        else:
            end = max(_end_of_run(nominal, reason, now, policy, latest), end)
        found.append(Decision(at, late, reason, nominal[end - 1], end - place))
        place = end
    return found


def _reason(
    at: int, late: int, policy: Policy, latest: Callable[[], int], caught_up: int, paused: bool, busy: bool
) -> str | None:
    if paused:
        return PAUSED
    if late > policy.grace_s:
        if late > policy.catch_up_s:
            return TOO_OLD
        if policy.misfire is Misfire.SKIP:
            return "missed"
        if policy.misfire is Misfire.ONCE and at != latest():
            return LATER_FIRES
        if policy.misfire is Misfire.ALL and caught_up >= CAUGHT_UP_MAX:
            return f"missed, after {CAUGHT_UP_MAX} that fired"
    if busy and policy.overlap is Overlap.SKIP:
        return OVERLAP
    return None


def _end_of_run(nominal: Sequence[int], reason: str, now: int, policy: Policy, latest: Callable[[], int]) -> int:
    """Return up to which place ticks are skipped for the reason that the first of them has."""
    if reason in (PAUSED, OVERLAP):
        return len(nominal)
    in_grace = now - policy.grace_s
    if reason == TOO_OLD:
        return bisect_left(nominal, min(now - policy.catch_up_s, in_grace))
    return bisect_left(nominal, min(latest(), in_grace) if reason == LATER_FIRES else in_grace)
