"""What windows over several inputs share: their events in one order, and the rows of events put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.events.columns import Int64s
from lockstep.engine.events.event import Event, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.kernels.flow import Flow, Part
from lockstep.engine.kernels.join_loops import OTHER_INPUT, UNRESOLVED
from lockstep.engine.kernels.moments import Moments, Yield
from lockstep.engine.kernels.rowstore import RowStore
from lockstep.engine.model.graph import Node
from lockstep.engine.windows.operator import BadEvent
from lockstep.engine.windows.source import details


def in_order(flows: Sequence[Flow]) -> Int64s:
    """The events of all inputs by number, which goes on from input to input: by block, within it input by input."""
    blocks = [flow.block for flow in flows if len(flow)]
    if len(blocks) < 2:
        return np.arange(sum(map(len, blocks)), dtype=np.int64)
    return np.argsort(np.concatenate(blocks), kind="stable")


def event_rows(flow: Flow, names: Sequence[str]) -> Part:
    """The rows of a flow, one for each event, with plain columns.

    What was worked out from a part that it is only a slice of is not used, nor are dictionaries: there may be keys in
    them that none of the rows has.
    """
    part = flow.parts[0]
    is_plain = not any(isinstance(part.columns[name], pa.DictionaryArray) for name in names)
    if flow.index is None and len(flow.parts) == 1 and part.whole is None and is_plain:
        return part
    return Part({name: flow.column(name) for name in names}, len(flow))


def counted(
    schema: Schema, flows: Sequence[Flow], lines: Int64s, columns: Mapping[str, pa.Array], *, emit: bool
) -> Yield:
    """The output of lines that a loop made: each names its event, whose block and flags it has, and its opcode."""
    event, opcode = lines[:, 0], lines[:, 1].astype(np.uint8)
    block, flags = (np.concatenate([getattr(flow, name) for flow in flows])[event] for name in ("block", "flags"))
    made = Yield.of(Flow(schema, block, opcode, flags, (Part(columns, len(lines)),)))
    return made if emit else replace(made, flow=None)


class Rows:
    """Rows by number: kept ones below the store's next number, those of the span at hand from there on."""

    def __init__(self, store: RowStore, given: Part) -> None:
        self._store, self._given, self._base = store, given, store.next_id

    def gather(self, numbers: Int64s, names: Sequence[str]) -> dict[str, pa.Array]:
        """The values of the named rows; nulls for a negative number."""
        is_kept = (numbers >= 0) & (numbers < self._base)
        if not is_kept.any():
            places = numbers - self._base
            return {name: _taken(self._given.columns[name], places) for name in names}
        ids, kept_places = _distinct(numbers[is_kept])
        kept = self._store.take(ids)
        places = np.where(numbers < 0, numbers, numbers - self._base + len(ids))
        places[is_kept] = kept_places
        return {
            name: _taken(pa.concat_arrays([kept.columns[name], self._given.columns[name]]), places) for name in names
        }


def report_faults(node: Node, flows: Sequence[Flow], order: Int64s, faults: Int64s, moments: Moments) -> None:
    """Refuse the events that could not be taken, in their order; of these flows all columns are there."""
    if not faults.any():
        return
    events: dict[int, tuple[int, Event]] = {}
    start = 0
    for flow in flows:
        wrong = faults[start : start + len(flow)] > 0
        if wrong.any():
            batch = flow.select(wrong).batch()
            numbers = (start + np.flatnonzero(wrong)).tolist()
            events |= dict(zip(numbers, zip(batch.block.tolist(), batch.events(), strict=True), strict=True))
        start += len(flow)
    for number in order[faults[order] > 0].tolist():
        block, event = events[number]
        moments.report(BadEvent(block, node.path, *_words(int(faults[number]), event.opcode), event))


def _words(fault: int, opcode: Opcode) -> tuple[str, str]:
    if fault == UNRESOLVED:
        return "bad-opcode", f"{opcode.name.lower()} is not resolved: the parent has no index"
    if fault >= OTHER_INPUT:
        return "strict-union", f"the row with this key is from input {fault - OTHER_INPUT + 1}"
    reason = ("duplicate-key", "unknown-key")[fault - 2]
    return reason, details(reason)


def _distinct(numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Each number once, rising, and for each of those given its place there."""
    coded = pc.dictionary_encode(pa.array(numbers))
    found = coded.dictionary.to_numpy()
    order = np.argsort(found)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return found[order], ranks[coded.indices.to_numpy()]


def _taken(column: pa.Array, places: Int64s) -> pa.Array:
    """The values at some places; nulls for negative ones."""
    missing = places < 0
    if missing.any():
        return column.take(pa.array(places, mask=missing))
    if len(places) == len(column) and bool((places == np.arange(len(places))).all()):
        return column
    return column.take(pa.array(places))
