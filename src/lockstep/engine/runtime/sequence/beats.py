"""Beats on the control log: what is published, so that no engine has to derive it from an out stream."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lockstep.core.outputs import OutState
from lockstep.engine.runtime.sequence.entries import known_fields
from lockstep.errors import TakenBack, Trimmed
from lockstep.log.batch import NO_PRODUCER, Batch, BatchView, pack
from lockstep.log.offsets import step_back
from lockstep.log.port import Log

_KEEP = 64
"""Beats kept before the newest: each one carries everything."""
_LATE = 8
"""Records at the end of which the one that says most is taken: a leader that slept writes one late, before it looks."""
FEW_CLIENTS = 64
"""If a position knows more clients and producers, not every beat names them."""
_PUBLISHED = re.compile(rb'"published":(\d+)')


@dataclass(frozen=True, slots=True)
class Beat:
    """Everything up to block `published` is on the out streams; `last` names the last block on each of them."""

    incarnation: str = ""
    published: int = 0
    last: Mapping[str, int] = field(default_factory=dict)
    position: Mapping[str, Any] | None = None
    """How far the inputs were read for that, as plain values.

    If `clients` is None there, they are left out, and so are producers.
    """
    counts: Mapping[str, Any] = field(default_factory=dict)
    """The windows' counts up to there, as plain values."""
    epoch: int = 0
    """In which it was written."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """Where on each out stream its last block ends: a reader that goes on from there misses nothing."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Where the last block is not whole: the piece of it that comes next."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digest of the sequence for the last block on each of them."""

    whole_at: int | None = None
    """If it leaves clients out: where on the control log the newest beat stands that names them."""

    @property
    def is_whole(self) -> bool:
        """Whether its position names all clients that are known there."""
        return self.position is None or self.position.get("clients") is not None

    def without_clients(self, whole_at: int | None) -> Beat:
        """A smaller beat, that says where the clients and the producers are found."""
        position = None if self.position is None else {**self.position, "clients": None, "producers": {}}
        return replace(self, position=position, whole_at=whole_at)

    def out(self, path: str) -> OutState:
        """How far the out stream of a window is out."""
        return OutState(self.last.get(path, 0), self.parts.get(path, 0), self.digests.get(path, ""))

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
        """The newest beat, or an empty one; late beats of a leader that was suspended may follow it in the log."""
        try:
            self._read()
        except (Trimmed, TakenBack):  # let go of, and so older than what stays; or lost: what is left counts
            self._at = None
            self._newest.clear()
            self._read()
        if not self._newest:
            return Beat()
        fields = json.loads(max(reversed(self._newest), key=_published))
        del fields["kind"]
        return Beat(**known_fields(Beat, fields, f"A beat on {self._control.name}"))

    def _read(self) -> None:
        if self._at is None:
            bounds = self._control.bounds()
            self._at = step_back(self._control, bounds.next, _LATE, bounds.first)
        while stored := self._control.read(self._at):
            for entry in stored:
                view = BatchView(entry.base, entry.data, self._control.name)
                self._newest.extend(view.values()[max(self._at - view.base, 0) :])
                self._at = view.end


def whole_position(control: Log) -> Mapping[str, Any] | None:
    """The newest position with all its clients, as plain values: that of the newest beat, or of one before it."""
    beat = Beats(control).last()
    if beat.is_whole:
        return beat.position
    if beat.whole_at is None or beat.whole_at < control.bounds().first:
        return None
    for stored in control.read(beat.whole_at, max_bytes=1):
        view = BatchView(stored.base, stored.data, control.name)
        fields = json.loads(view.values()[max(beat.whole_at - view.base, 0)])
        position: Mapping[str, Any] | None = fields["position"]
        return position if position and position.get("clients") is not None else None
    return None


def last_beat(control: Log) -> Beat:
    """The newest fact on a control log, for a caller that looks once."""
    return Beats(control).last()


def _published(value: bytes) -> int:
    """Of a beat that is not worth parsing, if it is not the one."""
    found = _PUBLISHED.search(value)
    return int(found[1]) if found else 0


def trim_beats(control: Log, whole_at: int | None = None) -> None:
    """Let go of old beats, but not of the newest that names all clients."""
    bounds, kept = control.bounds(), _KEEP * control.limits.stride
    if bounds.next - bounds.first > 16 * kept:
        last = bounds.next - kept
        control.trim(last if whole_at is None else min(last, whole_at))
