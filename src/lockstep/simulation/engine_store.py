"""Where snapshots are put: a folder that every engine of a project can read, and that survives crashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lockstep.core import snapshots
from lockstep.core.outputs import OutState
from lockstep.core.snapshots import Reach, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lockstep.core.sequence import SequenceState
    from lockstep.simulation.engine_model import Fold
    from lockstep.simulation.logs import SimLog


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot with everything in it."""

    snapshot: Snapshot
    sequence: SequenceState
    fold: Fold


def save(name: str, sequence: SequenceState, fold: Fold, inputs: list[str]) -> Saved:
    """Save the state after an entry."""
    reach = Reach(sequence.upto + 1, dict(zip(inputs, fold.ends, strict=True)))
    outs = {stream: OutState(last) for stream, (last, _) in fold.windows.outs.items()}
    return Saved(Snapshot(name, fold.number, reach, outs), sequence, fold.copy())


@dataclass(slots=True)
class Store:
    """The snapshots that may be used: only complete ones come here, and the newest two stay."""

    saved: list[Saved] = field(default_factory=list)

    def put(self, saved: Saved, outs: Mapping[str, OutState]) -> None:
        """Add a snapshot, and delete what is no longer needed."""
        self.saved.append(saved)
        names = {each.name for each in snapshots.kept(self._all(), outs)}
        self.saved = [each for each in self.saved if each.snapshot.name in names]

    def newest(self, heads: Reach) -> Saved | None:
        """Where an engine may begin."""
        found = snapshots.newest_usable(self._all(), heads)
        return None if found is None else next(each for each in self.saved if each.snapshot.name == found.name)

    def trimmable(self, cursors: list[Reach]) -> Reach:
        """Return the positions below which nothing is needed any more."""
        return snapshots.trimmable(self._all(), cursors)

    def _all(self) -> list[Snapshot]:
        return sorted((each.snapshot for each in self.saved), key=lambda each: each.number)


def heads(sequence: SimLog[Any], inputs: Mapping[str, SimLog[Any]]) -> Reach:
    """Where the logs begin."""
    return Reach(sequence.first, {name: log.first for name, log in inputs.items()})
