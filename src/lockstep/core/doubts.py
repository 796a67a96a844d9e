"""Signs that a sequence log lost records that it had acknowledged.

Entries that do not count are nothing unusual: a stale leader wrote them, or they are copies. But some can't stand where
they stand, because the owner in force writes number n + 1 only after it read back number n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.core.sequence import Entry, SequenceState


def contradicts(state: SequenceState, entry: Entry) -> bool:
    """Whether an entry read in this state shows that the log is not the one its writer read."""
    if (entry.epoch, entry.owner) != (state.epoch, state.owner):
        return entry.epoch >= state.epoch  # the mark that must stand before it is gone
    if entry.number == state.number + 1:
        return entry.after != state.digest
    return entry.number > state.number + 1
