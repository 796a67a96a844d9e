"""Groups as the console sees them: who is silent is known by listening, whatever the clocks of hosts say."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lockstep.errors import GroupNotFound
from lockstep.streams.admin import GroupView
from lockstep.streams.client import Lockstep

LEASES = 1.2
"""A member is silent when nothing came of it for so many of its leases, as members have it among themselves."""
GROUPS_MAX = 20_000
"""Groups that are remembered; of more, the one that was looked at longest ago is forgotten."""


@dataclass(slots=True)
class _Heard:
    """The last beat of a member, and when this process saw it first, by its own clock."""

    beat_at: int
    at_s: float
    is_known: bool
    """Whether the beat came while this process listened: the age of one that was there before is not known."""


@dataclass(frozen=True, slots=True)
class Presence:
    """A group, with those members as silent that were listened to in vain."""

    view: GroupView
    unsure: frozenset[str] = frozenset()
    """Members that were listened to for less than a lease, and of which no beat came so far."""
    suspects: frozenset[str] = frozenset()
    """Those of them whose last beat is old by the time stamps of the bus."""

    def word(self, member: str) -> str:
        """heard, silent, or listening where that is not known yet."""
        return "silent" if member in self.view.silent else "listening" if member in self.unsure else "heard"


class GroupWatch:
    """Looks at groups and remembers when members were heard. Safe to share between threads."""

    def __init__(self, client: Lockstep) -> None:
        self._client = client
        self._groups: OrderedDict[str, dict[str, _Heard]] = OrderedDict()
        self._lock = threading.Lock()

    def describe(self, group: str) -> Presence:
        """A group as of now; GroupNotFound. Each look is one to listen by: nothing is waited for."""
        try:
            view = self._client.groups.describe(group)
        except GroupNotFound:
            with self._lock:
                self._groups.pop(group, None)
            raise
        now = self._client.runtime.monotonic()
        with self._lock:
            before = self._groups.pop(group, None)
            known = {name: _heard(before, name, beat, now) for name, beat in view.beats.items()}
            self._groups[group] = known
            while len(self._groups) > GROUPS_MAX:
                self._groups.popitem(last=False)
        late = {name for name, heard in known.items() if now - heard.at_s > LEASES * view.leases[name]}
        unsure = {name for name, heard in known.items() if not heard.is_known and name not in late}
        return Presence(replace(view, silent=frozenset(late)), frozenset(unsure), view.silent & unsure)


def _heard(before: Mapping[str, _Heard] | None, member: str, beat_at: int, now: float) -> _Heard:
    if before is None:  # the first look at the group
        return _Heard(beat_at, now, is_known=False)
    last = before.get(member)
    return last if last is not None and last.beat_at == beat_at else _Heard(beat_at, now, is_known=True)
