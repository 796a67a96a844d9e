"""What a subscriber wants to see of blocks: updates as one event, deletes by retention left out."""

from __future__ import annotations

import numpy as np

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Flag, Opcode


def shaped(batch: EventBatch, *, collapse: bool = False, no_retention_deletes: bool = False) -> EventBatch:
    """The events of whole blocks that are wanted.

    With `collapse` an update is one event U instead of UB and D. `no_retention_deletes` leaves out deletes that
    retention caused, but not the old half of an update.
    """
    is_new = batch.opcode == Opcode.UPDATE_BLOCK
    is_old = np.zeros(len(batch), bool)
    is_old[1:] = is_new[:-1]
    drop = np.zeros(len(batch), bool)
    opcode = batch.opcode
    if no_retention_deletes:
        drop |= (opcode == Opcode.DELETE) & ((batch.flags & Flag.RETENTION) != 0) & ~is_old
    if collapse:
        drop |= is_old
        opcode = np.where(is_new, np.uint8(Opcode.UPDATE), opcode)
    changed = EventBatch(batch.schema, batch.block, opcode, batch.flags, batch.columns)
    return changed.take(np.flatnonzero(~drop)) if drop.any() else changed
