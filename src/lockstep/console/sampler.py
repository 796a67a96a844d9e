"""Rates and lags over the last minutes, measured in the background in rounds that are bounded in work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from lockstep.console.group_watch import GroupWatch
from lockstep.errors import LockstepError
from lockstep.runtime import Task, logger
from lockstep.streams.admin import GroupView
from lockstep.streams.client import Lockstep

EVERY_S = 5.0
KEPT = 120
_ELECTING = (".engines", ".nodes")
LOOKS_MAX = 200
"""Streams and groups that one round looks at; of more, each round takes the next ones."""


@dataclass(slots=True)
class Series:
    """Values of the last rounds, oldest first; None for a round that did not look."""

    values: deque[float | None] = field(default_factory=lambda: deque(maxlen=KEPT))
    last: tuple[float, int] | None = None
    known: float | None = None
    """What was measured last, as the total counts it; it stays when a round does not look."""


class Sampler:
    """Counts records of streams and lags of groups. Only what was looked at is known; the rest is None."""

    def __init__(self, client: Lockstep, every_s: float = EVERY_S) -> None:
        self._client, self._every_s = client, every_s
        self.groups = GroupWatch(client)
        """Each round listens to groups, too."""
        self._rates: dict[str, Series] = {}
        self._lags: dict[str, Series] = {}
        self._totals = {"streams": Series(), "groups": Series()}
        self._at_ms: int | None = None
        self._next = {"streams": 0, "groups": 0}
        self._lock = Lock()
        self._waiter = client.runtime.waiter()
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

    def rates(self, stream: str) -> list[float | None]:
        """Records a second that were appended to a stream."""
        with self._lock:
            return list(self._rates[stream].values) if stream in self._rates else []

    def lags(self, group: str) -> list[float | None]:
        """Records that a group had before it."""
        with self._lock:
            return list(self._lags[group].values) if group in self._lags else []

    def total_rates(self) -> list[float | None]:
        """Records a second that were appended to all streams; unknown until each was looked at."""
        with self._lock:
            return list(self._totals["streams"].values)

    def total_lags(self) -> list[float | None]:
        """Records that wait for all groups; unknown until each was looked at."""
        with self._lock:
            return list(self._totals["groups"].values)

    def sample(self) -> None:
        """One round."""
        with suppress(LockstepError):  # the bus is away: what was not seen stays unknown
            self._round("streams", self._client.streams(), self._rates, self._sample_stream)
            self._round("groups", self._client.groups.names(), self._lags, self._sample_group)
            self._at_ms = self._client.runtime.wall_ns() // 10**6

    def _step(self) -> float:
        self.sample()
        return self._every_s

    def _round(
        self, kind: str, names: Sequence[str], found: dict[str, Series], look: Callable[[str, Series], float | None]
    ) -> None:
        start = self._next[kind] % max(1, len(names))
        chosen = [*names[start:], *names[:start]][:LOOKS_MAX]
        self._next[kind] = (start + len(chosen)) % max(1, len(names))
        with self._lock:
            for gone in found.keys() - set(names):
                del found[gone]
        for name in chosen:
            with suppress(LockstepError):
                with self._lock:
                    series = found.setdefault(name, Series())
                value = look(name, series)
                with self._lock:
                    series.values.append(value)
        with self._lock:
            for name in found.keys() - set(chosen):
                found[name].values.append(None)
            self._totals[kind].values.append(_sum(names, found))

    def _sample_stream(self, stream: str, series: Series) -> float | None:
        end, now = sum(log.bounds().next for log in self._client.logs(stream)), self._client.runtime.monotonic()
        last, series.last = series.last, (now, end)
        if last is None or now <= last[0]:
            return None
        series.known = max(0, end - last[1]) / (now - last[0])
        return series.known

    def _sample_group(self, group: str, series: Series) -> float | None:
        series.known = float(lag_of(self.groups.describe(group).view))
        return series.known


def lag_of(group: GroupView) -> int:
    """Records that wait for a group. Groups of engines and nodes elect over streams of which they confirm nothing."""
    is_electing = group.name.endswith(_ELECTING)
    return sum(progress.lag for progress in group.streams if progress.confirmed is not None or not is_electing)


def elects(group: GroupView) -> bool:
    """Whether a group does nothing but elect a leader."""
    return group.name.endswith(_ELECTING) and all(progress.confirmed is None for progress in group.streams)


def _sum(names: Sequence[str], found: Mapping[str, Series]) -> float | None:
    """Of what was measured last; None while something was never looked at. What is new counts from its second look."""
    if not found.keys() >= set(names):
        return None
    known = [value for name in names if (value := found[name].known) is not None]
    return float(sum(known)) if known else None


def _crashed(error: BaseException) -> None:
    logger.error("The console measures nothing any more", exc_info=error, extra={"action": "sampler_ended"})
