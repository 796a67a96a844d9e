"""The output of shards put together again, in the order in which one shard alone would have given it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lockstep.engine.events.columns import EventBatch, Int64s, concat

Part = tuple[EventBatch, tuple[Int64s, Int64s]]
"""A shard's output of a window, with the place of each event below its block."""


def merge_shards(parts: Sequence[Part]) -> EventBatch:
    """By block, then by the causing event, then by the order below it."""
    if len(parts) == 1:
        return parts[0][0]
    whole = concat([batch for batch, _ in parts])
    index = np.concatenate([places[0] for _, places in parts])
    order = np.concatenate([places[1] for _, places in parts])
    return whole.take(np.lexsort((order, index, whole.block)))
