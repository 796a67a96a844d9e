"""Rates, lags and who reads what, folded in the background: pages use it instead of reading every stream and group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock, RLock

from lockstep.console.group_watch import GroupWatch
from lockstep.console.port import Site
from lockstep.errors import LockstepError
from lockstep.log.offsets import records_between
from lockstep.runtime import Task, logger
from lockstep.streams.admin import GroupView
from lockstep.streams.shards import split_log

EVERY_S = 5.0
KEPT = 120
_ELECTING = (".engines", ".nodes")
LOOKS_MAX = 1_000
"""Streams, groups or streams of dead letters that one round looks at; of more, each round takes the next ones."""
ROUND_S = 0.25
"""After so long a round leaves the rest for the next one: at any scale, measuring takes a few percent of a core."""
LOOKS_LEAST = 50
"""So many are looked at in any case."""
AGAIN_MAX = 100
"""Groups of which something is wrong that each round looks at again."""


@dataclass(slots=True)
class Series:
    """Values of the last rounds, oldest first; None for a round that did not look."""

    values: deque[float | None] = field(default_factory=lambda: deque(maxlen=KEPT))
    last: tuple[float, int] | None = None
    known: float | None = None
    """What was measured last, as the total counts it; it stays when a round does not look."""
    round: int = 0

    def add(self, number: int, value: float | None) -> None:
        """Take the value of a round; those since the last one did not look."""
        if self.values:
            self.values.extend([None] * min(KEPT, number - self.round - 1))
        self.values.append(value)
        self.known, self.round = self.known if value is None else value, number

    def until(self, number: int) -> list[float | None]:
        """The values up to a round, with None for those at the end that did not look."""
        return [*self.values, *[None] * (number - self.round)][-KEPT:] if self.values else []


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupFacts:
    """What the last look at a group saw."""

    name: str
    streams: tuple[str, ...]
    members: int
    silent: tuple[str, ...]
    suspects: tuple[str, ...]
    """Members that are silent by the time stamps of the bus, and were not listened to for long enough to be sure."""
    lag: int

    @property
    def unheard(self) -> list[str]:
        """Members that are silent, or seem to be."""
        return sorted({*self.silent, *self.suspects})

    @property
    def is_wrong(self) -> bool:
        """Whether members are silent, or records wait without a reader."""
        return bool(self.unheard) or (not self.members and self.lag > 0)


class Sampler:
    """Looks at streams and groups in rounds that are bounded in work. What was not looked at yet is not known.

    Without `start` each `look` reads what is asked for.
    """

    def __init__(self, site: Site, every_s: float = EVERY_S) -> None:
        self._site, self._client, self._every_s = site, site.client, every_s
        self.groups = GroupWatch(site.client)
        """Each look at a group is one to listen to its members by."""
        self._rates: dict[str, Series] = {}
        self._lags: dict[str, Series] = {}
        self._totals = {"streams": Series(), "groups": Series()}
        self._at_ms: int | None = None
        self._facts: dict[str, GroupFacts] = {}
        self._wrong: dict[str, GroupFacts] = {}
        self._readers: dict[str, set[str]] = {}
        self._held: dict[str, int] = {}
        self._next = {"streams": 0, "groups": 0, "letters": 0}
        self._round = 0
        self._lock, self._sampling = Lock(), RLock()
        self._waiter = self._client.runtime.waiter()
        self._task: Task | None = None

    @property
    def every_s(self) -> float:
        """The time between two values."""
        return self._every_s

    @property
    def at_ms(self) -> int | None:
        """When the last round was, in milliseconds since 1970; None before the first."""
        return self._at_ms

    @property
    def seconds(self) -> float:
        """The time that a full series covers."""
        return KEPT * self._every_s

    def start(self) -> None:
        """Begin to look."""
        self._task = self._client.runtime.spawn("lockstep-console-sampler", self._step, self._waiter, _crashed)

    def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.stop()

    # what is known

    def look(self) -> None:
        """Return when there is something to go by: at once, except before the first round."""
        if self._task is not None and self._round > 0:
            return
        with self._sampling:
            if self._task is None:
                self._look_once()
            elif self._round == 0:
                self.sample()

    def _look_once(self) -> None:
        """Look at groups and dead letters as a round does, and measure nothing over time."""
        names = self._site.names
        self._forget_gone(set(names.streams()), set(names.groups()))
        self._look_at("letters", names.letters(), self._sample_letters)
        self._look_at("groups", names.groups(), self._sample_group)

    def rates(self, stream: str) -> list[float | None]:
        """Records a second that were appended to a stream."""
        with self._lock:
            return self._rates[stream].until(self._round) if stream in self._rates else []

    def lags(self, group: str) -> list[float | None]:
        """Records that a group had before it."""
        with self._lock:
            return self._lags[group].until(self._round) if group in self._lags else []

    def total_rates(self) -> list[float | None]:
        """Records a second that were appended to all streams; unknown until each was looked at."""
        with self._lock:
            return list(self._totals["streams"].values)

    def total_lags(self) -> list[float | None]:
        """Records that wait for all groups; unknown until each was looked at."""
        with self._lock:
            return list(self._totals["groups"].values)

    def last_rate(self, stream: str) -> float | None:
        """The last rate that was measured of a stream; None before two looks at it."""
        with self._lock:
            known = self._rates.get(stream)
            return None if known is None else known.known

    def last_lag(self, group: str) -> int | None:
        """The lag of a group at the last look at it; None before one."""
        with self._lock:
            found = self._facts.get(group)
            return None if found is None else found.lag

    def readers(self, stream: str) -> list[str]:
        """The groups that had a position on a stream when they were looked at, in order."""
        with self._lock:
            return sorted(self._readers.get(stream, ()))

    def not_looked_at(self) -> int:
        """How many groups were not looked at yet."""
        with self._lock:
            return sum(name not in self._facts for name in self._site.names.groups())

    def wrong_groups(self) -> list[GroupFacts]:
        """Groups of which something is wrong."""
        with self._lock:
            return list(self._wrong.values())

    def letters(self) -> dict[str, int]:
        """Streams that hold dead letters, and how many."""
        with self._lock:
            return {name: count for name, count in self._held.items() if count}

    # rounds

    def sample(self) -> None:
        """One round."""
        with self._sampling, suppress(LockstepError):  # the bus is away: what was not seen stays unknown
            number, names = self._round + 1, self._site.names
            self._forget_gone(set(names.streams()), set(names.groups()))
            self._look_at("streams", names.streams(), lambda name: self._sample_stream(name, number))
            self._look_at("letters", names.letters(), self._sample_letters)
            again = list(islice(self._wrong, AGAIN_MAX))
            self._look_at("groups", names.groups(), lambda name: self._sample_group(name, number), again)
            self._end_round(number)

    def _end_round(self, number: int) -> None:
        streams, groups = self._site.names.streams(), self._site.names.groups()
        with self._lock:
            self._totals["streams"].add(number, _sum(streams, self._rates))
            self._totals["groups"].add(number, _sum(groups, self._lags))
            self._round, self._at_ms = number, self._site.now_ms

    def _step(self) -> float:
        self.sample()
        return self._every_s

    def _look_at(self, kind: str, names: Sequence[str], look: Callable[[str], None], first: Iterable[str] = ()) -> None:
        for name in first:
            with suppress(LockstepError):
                look(name)
        monotonic, looked = self._client.runtime.monotonic, 0
        end = monotonic() + ROUND_S
        for name in self._turn(kind, names):
            if looked >= LOOKS_LEAST and monotonic() >= end:
                break
            looked += 1
            with suppress(LockstepError):  # deleted meanwhile, or not readable
                look(name)
        self._next[kind] = (self._next[kind] + looked) % max(1, len(names))

    def _turn(self, kind: str, names: Sequence[str]) -> Iterator[str]:
        start = self._next[kind] = self._next[kind] % max(1, len(names))
        for number in range(min(LOOKS_MAX, len(names))):
            yield names[(start + number) % len(names)]

    def _forget_gone(self, streams: set[str], groups: set[str]) -> None:
        with self._lock:
            for gone in self._rates.keys() - streams:
                del self._rates[gone]
            for gone in self._held.keys() - streams:
                del self._held[gone]
            for gone in (self._facts.keys() | self._lags.keys()) - groups:
                self._note(gone, None)

    def _sample_stream(self, stream: str, number: int) -> None:
        with self._lock:
            series = self._rates.setdefault(stream, Series())  # also of one that can't be read: totals are of the rest
        end, now = sum(log.bounds().next for log in self._client.logs(stream)), self._client.runtime.monotonic()
        with self._lock:
            last, series.last = series.last, (now, end)
            is_known = last is not None and now > last[0]
            series.add(number, max(0, end - last[1]) / (now - last[0]) if last is not None and is_known else None)

    def _sample_letters(self, stream: str) -> None:
        held = 0
        for log in self._client.logs(stream):
            bounds = log.bounds()
            held += records_between(log, bounds.first, bounds.next)
        with self._lock:
            self._held[stream] = held

    def _sample_group(self, group: str, number: int | None = None) -> None:
        if number is not None:
            with self._lock:
                self._lags.setdefault(group, Series())
        presence = self.groups.describe(group)
        view = presence.view
        facts = GroupFacts(
            name=group, streams=tuple({split_log(one.stream)[0] for one in view.streams}), members=len(view.members),
            silent=tuple(sorted(view.silent)), suspects=tuple(sorted(presence.suspects)),
            lag=lag_of(view),
        )  # fmt: skip
        with self._lock:
            self._note(group, facts)
            if number is None:
                return
            series = self._lags.setdefault(group, Series())
            if series.round != number:
                series.add(number, float(facts.lag))

    def _note(self, group: str, facts: GroupFacts | None) -> None:
        """Have everything that follows from the facts of a group follow from these."""
        before = self._facts.pop(group, None)
        for stream in () if before is None else before.streams:
            self._readers[stream].discard(group)
            if not self._readers[stream]:
                del self._readers[stream]
        self._wrong.pop(group, None)
        if facts is None:
            self._lags.pop(group, None)
            return
        self._facts[group] = facts
        for stream in facts.streams:
            self._readers.setdefault(stream, set()).add(group)
        if facts.is_wrong:
            self._wrong[group] = facts


def lag_of(group: GroupView) -> int:
    """Records that wait for a group. Groups of engines and nodes elect over streams of which they confirm nothing."""
    is_electing = group.name.endswith(_ELECTING)
    return sum(progress.lag for progress in group.streams if progress.confirmed is not None or not is_electing)


def elects(group: GroupView) -> bool:
    """Whether a group does nothing but elect a leader."""
    return group.name.endswith(_ELECTING) and all(progress.confirmed is None for progress in group.streams)


def _sum(names: Sequence[str], found: Mapping[str, Series]) -> float | None:
    """Of what was measured last; None while something was never looked at. What is new counts from its second look."""
    if not all(name in found for name in names):
        return None
    known = [value for name in names if (value := found[name].known) is not None]
    return float(sum(known)) if known else None


def _crashed(error: BaseException) -> None:
    logger.error("The console measures nothing any more", exc_info=error, extra={"action": "sampler_ended"})
