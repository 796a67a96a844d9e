"""Beats on the control log: what is published, so that nobody has to guess it from an out stream."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.errors import Trimmed
from lockstep.log.batch import NO_PRODUCER, Batch, BatchView, pack
from lockstep.log.offsets import step_back
from lockstep.log.port import Log

_KEEP = 64
"""Beats kept behind the newest: each one carries everything."""
_LATE = 8
"""Records at the end of which the one that says most is taken: a leader that slept writes one late, before it looks."""
_PUBLISHED = re.compile(rb'"published":(\d+)')


@dataclass(frozen=True, slots=True)
class Beat:
    """Everything up to block `published` is on the out streams; `last` names the last block on each of them."""

    incarnation: str = ""
    published: int = 0
    last: Mapping[str, int] = field(default_factory=dict)
    position: Mapping[str, Any] | None = None
    """How far the inputs were read for that, as plain values."""
    counts: Mapping[str, Any] = field(default_factory=dict)
    """The windows' counts up to there, as plain values."""
    epoch: int = 0
    """In which it was written."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """Where on each out stream its last block ends: whoever reads on from there misses nothing."""

    def batch(self, now_ns: int) -> Batch:
        """As a record for the log."""
        text = json.dumps({"kind": "beat", **asdict(self)}, separators=(",", ":"))
        return pack([text.encode()], producer=NO_PRODUCER, sequence=0, created_ns=now_ns)


class Beats:
    """Reads a control log as it grows, so that looking again costs one empty read."""

    def __init__(self, control: Log) -> None:
        self._control = control
        self._at: int | None = None
        self._newest: deque[bytes] = deque(maxlen=_LATE)

    def last(self) -> Beat:
        """The newest fact; an empty one if there is none. Behind it may stand what a leader that slept said late."""
        try:
            self._read()
        except Trimmed:  # what was let go of is older than what stays
            self._at = None
            self._read()
        if not self._newest:
            return Beat()
        fields = json.loads(max(reversed(self._newest), key=_published))
        del fields["kind"]
        return Beat(**fields)

    def _read(self) -> None:
        if self._at is None:
            bounds = self._control.bounds()
            self._at = step_back(self._control, bounds.next, _LATE, bounds.first)
        while stored := self._control.read(self._at):
            for entry in stored:
                view = BatchView(entry.base, entry.data, self._control.name)
                self._newest.extend(view.values()[max(self._at - view.base, 0) :])
                self._at = view.end


def last_beat(control: Log) -> Beat:
    """The newest fact on a control log, for whoever looks once."""
    return Beats(control).last()


def _published(value: bytes) -> int:
    """Of a beat that is not worth parsing, if it is not the one."""
    found = _PUBLISHED.search(value)
    return int(found[1]) if found else 0


def trim_beats(control: Log) -> None:
    """Let go of old beats."""
    bounds, kept = control.bounds(), _KEEP * control.limits.stride
    if bounds.next - bounds.first > 16 * kept:
        control.trim(bounds.next - kept)
