"""When a snapshot may be used, which are kept, and what may be trimmed below them.

A snapshot is a state at the end of one entry, with the place of every log there. It is complete only when every output
up to it is out and was read back: an engine that began at it would never publish what lies before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.core.outputs import OutState, further

KEPT = 2


@dataclass(frozen=True, slots=True)
class Reach:
    """The first offsets that are needed: of the sequence log, and of each input by name."""

    sequence: int = 0
    inputs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was put aside after entry `number`: where to read on, and how far each out stream belongs to it."""

    name: str
    number: int
    reach: Reach
    outs: Mapping[str, OutState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hole:
    """A log that begins at `first`, which is after `needed`. The sequence log has no name of an input."""

    needed: int
    first: int
    input: str | None = None


def is_complete(snapshot: Snapshot, outs: Mapping[str, OutState]) -> bool:
    """Whether every out stream has reached the snapshot; `outs` says how far each was read or is said to be out."""
    return all(_is_out(outs.get(name, OutState()), there) for name, there in snapshot.outs.items())


def complete(snapshots: Iterable[Snapshot], outs: Mapping[str, OutState]) -> list[Snapshot]:
    """The snapshots that may be used, newest last."""
    return sorted((each for each in snapshots if is_complete(each, outs)), key=lambda each: each.number)


def kept(snapshots: Iterable[Snapshot], outs: Mapping[str, OutState]) -> list[Snapshot]:
    """The newest two that are complete, and what is newer than the older of them: it may become complete yet."""
    known = sorted(snapshots, key=lambda each: each.number)
    oldest = _oldest_kept(complete(known, outs))
    return known if oldest is None else [each for each in known if each.number >= oldest.number]


def trimmable(usable: Sequence[Snapshot], cursors: Iterable[Reach] = ()) -> Reach:
    """What lies below this may go, given the complete snapshots and every cursor that holds a log back.

    Nothing may, unless two snapshots are complete. An input that the older one does not know is not trimmed.
    """
    oldest = _oldest_kept(usable) if len(usable) >= KEPT else None
    if oldest is None:
        return Reach()
    held = tuple(cursors)
    inputs = {
        name: min([at, *(cursor.inputs[name] for cursor in held if name in cursor.inputs)])
        for name, at in oldest.reach.inputs.items()
    }
    return Reach(min([oldest.reach.sequence, *(cursor.sequence for cursor in held)]), inputs)


def holes(need: Reach, heads: Reach) -> list[Hole]:
    """The logs that begin too late for a reader that needs `need`."""
    found = [Hole(need.sequence, heads.sequence)] if need.sequence < heads.sequence else []
    for name, needed in need.inputs.items():
        first = heads.inputs.get(name, 0)
        if needed < first:
            found.append(Hole(needed, first, name))
    return found


def newest_usable(usable: Sequence[Snapshot], heads: Reach) -> Snapshot | None:
    """The newest complete snapshot from which every log can still be read."""
    found = [each for each in usable if not holes(each.reach, heads)]
    return max(found, key=lambda each: each.number, default=None)


def _oldest_kept(usable: Sequence[Snapshot]) -> Snapshot | None:
    newest = sorted(usable, key=lambda each: each.number)[-KEPT:]
    return newest[0] if newest else None


def _is_out(reached: OutState, there: OutState) -> bool:
    return further(reached, there) == reached
