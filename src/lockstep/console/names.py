"""The names of all logs of a bus, read once for many pages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from lockstep.runtime import Runtime
from lockstep.streams.client import Lockstep
from lockstep.streams.deadletters import SUFFIX
from lockstep.streams.grouplog import PREFIX
from lockstep.streams.shards import SEPARATOR

FRESH_S = 1.0
"""How old the names that pages show may be: two hundred viewers cost one reading of all names a second."""
T = TypeVar("T")


class NameIndex:
    """The names of logs, at most `kept_s` seconds old, with what was derived from them. Safe to share."""

    def __init__(self, client: Lockstep, runtime: Runtime, kept_s: float = 0.0) -> None:
        self._client, self._runtime, self._kept_s = client, runtime, kept_s
        self._lock = threading.RLock()
        self._names: list[str] | None = None
        self._read_at = 0.0
        self._derived: dict[str, object] = {}

    def all(self) -> Sequence[str]:
        """Every log, also of groups and shards, in order."""
        with self._lock:
            now = self._runtime.monotonic()
            if self._names is None or now - self._read_at >= self._kept_s:
                names = self._client.bus.names()
                if names != self._names:
                    self._names, self._derived = names, {}
                self._read_at = now
            return self._names

    def derived(self, key: str, make: Callable[[Sequence[str]], T]) -> T:
        """Return `make` of all names, cached while the names stay the same; use one `make` for each key."""
        with self._lock:
            names = self.all()
            if key not in self._derived:
                self._derived[key] = make(names)
            found: T = self._derived[key]  # type: ignore[assignment]
            return found

    def streams(self) -> Sequence[str]:
        """The streams, in order."""
        return self.derived("streams", lambda names: [one for one in names if one[0] != "_" and SEPARATOR not in one])

    def groups(self) -> Sequence[str]:
        """The groups, in order."""
        return self.derived("groups", lambda names: [one.removeprefix(PREFIX) for one in names if
                                                     one.startswith(PREFIX)])  # fmt: skip

    def letters(self) -> Sequence[str]:
        """The streams that hold dead letters by their name."""
        return [one for one in self.streams() if one.endswith(SUFFIX)]

    def present(self) -> frozenset[str]:
        """All names, to ask whether one is there."""
        return self.derived("present", frozenset)

    def forget(self) -> None:
        """Have the names read again at the next look: this process changed them."""
        with self._lock:
            self._names = None
