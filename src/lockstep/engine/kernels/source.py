"""Insert-only sources on columns: keys are checked, rows are passed on and not kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lockstep.engine.events.columns import Bytes, Int64s
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.kernels import pages
from lockstep.engine.kernels.flow import INSERT, NORMAL, UPDATE_BLOCK, Flow, Mask, Part
from lockstep.engine.kernels.moments import ColumnOperator, Moments, Pages, Yield
from lockstep.engine.kernels.seen import Seen, SeenKeys, SeenNumbers
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.windows.operator import BadEvent
from lockstep.engine.windows.source import details

_FINE, _OPCODE, _NULL, _KNOWN, _TRANSACTION = range(5)


class SourceColumns(ColumnOperator):
    """An insert-only source; without an index every row passes."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(SourceWindow, node.window)
        self._keys = tuple(node.schema.names[place] for place in node.schema.keys)
        self._autogen = self._keys[0] if window.autogen_key else None
        self._seen: Seen | None = None
        if node.is_indexed and self._autogen is None:
            single = len(self._keys) == 1 and node.schema[self._keys[0]].type.is_integer
            self._seen = SeenNumbers() if single else SeenKeys()
        self._keys_made = 0
        self._key_kept = 0

    @property
    def checked(self) -> frozenset[str] | None:
        """The columns that it looks at in every row; None if it looks at all, as it makes new rows."""
        return frozenset(self._keys) if self._autogen is None else None

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Check all events; those that are fine go on."""
        del emit
        (flow,) = inputs
        if not len(flow):
            return Yield(None, 0, 0)
        part = flow.parts[0]
        faults = self._faults(flow, part, moments.span.transactional)
        good = faults == _FINE
        if not good.all():
            self._refuse(flow, faults, moments)
            flow = replace(flow.select(good), refused=_positions(flow.block, ~good))
        if self._autogen is not None:
            flow = self._keyed(flow, part)
        if self.node.is_indexed:
            flow = replace(flow, flags=resolved_flags(flow.flags))
        return Yield(flow, len(flow), len(flow))

    def _faults(self, flow: Flow, part: Part, transactional: Int64s) -> Bytes:
        faults = np.zeros(len(flow), np.uint8)
        if (flow.opcode != INSERT).any():
            faults[flow.opcode != INSERT] = _OPCODE
        if self._autogen is None:
            for name in self._keys:
                if part.columns[name].null_count:
                    faults[part.columns[name].is_null().to_numpy(zero_copy_only=False) & (faults == _FINE)] = _NULL
        blocks = transactional[np.isin(transactional, flow.block)] if len(transactional) else transactional
        self._check_keys(flow, part, faults, blocks)
        return faults

    def _check_keys(self, flow: Flow, part: Part, faults: Bytes, transactional: Int64s) -> None:
        keys = None if self._seen is None else self._seen.keys_of(part, self._keys)
        start = 0
        for block in transactional.tolist():
            first, last = np.searchsorted(flow.block, [block, block + 1]).tolist()
            self._check_run(keys, faults, start, first)
            self._check_whole(keys, faults, first, last)
            start = last
        self._check_run(keys, faults, start, len(flow))

    def _check_run(self, keys: Int64s | list[object] | None, faults: Bytes, start: int, stop: int) -> None:
        if self._seen is not None and keys is not None and stop > start:
            faults[start:stop][self._seen.add(keys[start:stop], faults[start:stop] == _FINE)] = _KNOWN

    def _check_whole(self, keys: Int64s | list[object] | None, faults: Bytes, start: int, stop: int) -> None:
        """A transactional block: nothing of it is taken if something is wrong."""
        some = faults[start:stop]
        fine = np.flatnonzero(some == _FINE)
        if self._seen is not None and keys is not None:
            tried = keys[start:stop][fine] if isinstance(keys, np.ndarray) else [keys[start + place] for place in fine]
            some[fine[self._seen.known(tried)]] = _KNOWN
        if some.any():
            some[some == _FINE] = _TRANSACTION
        else:
            self._check_run(keys, faults, start, stop)

    def _keyed(self, flow: Flow, part: Part) -> Flow:
        assert self._autogen is not None
        field = self.node.schema[self._autogen]
        numbers = np.arange(self._keys_made, self._keys_made + len(flow), dtype=np.int64)
        self._keys_made += len(flow)
        keys = pa.array(numbers).cast(pa.string() if field.type is FieldType.STRING else field.type.arrow)
        columns = {name: flow.column(name) for name in part.columns if name != self._autogen}
        return replace(flow, parts=(Part({**columns, self._autogen: keys}, len(flow)),), index=None)

    def _refuse(self, flow: Flow, faults: Bytes, moments: Moments) -> None:
        places = np.flatnonzero(faults)
        _, indexes = _positions(flow.block, faults != _FINE)
        bad = flow.select(faults != _FINE)
        known = [name in bad.parts[0].columns for name in self.node.schema.names]
        columns = [
            bad.column(name).to_pylist() if there else [None] * len(places)
            for name, there in zip(self.node.schema.names, known, strict=True)
        ]
        for number, place in enumerate(places.tolist()):
            values = tuple([_value(column[number]) for column in columns])
            event = Event(Opcode(int(flow.opcode[place])), Flag(int(flow.flags[place])), values)
            reason, detail = self._words(int(faults[place]), event)
            moments.report(
                BadEvent(int(flow.block[place]), self.node.path, reason, detail, event, int(indexes[number]))
            )

    def _words(self, fault: int, event: Event) -> tuple[str, str]:
        if fault == _OPCODE and event.opcode == UPDATE_BLOCK:
            return "bad-opcode", "update blocks are made by windows, they can't come in"
        if fault == _OPCODE:
            return "bad-opcode", f"{event.opcode.name.lower()} into a window that takes inserts only"
        if fault == _NULL:
            null = next(name for name in self._keys if event.values[self.node.schema.places[name]] is None)
            return "null-key", f"{null} is null"
        reason = "duplicate-key" if fault == _KNOWN else "transaction"
        return reason, details(reason)

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """New keys, and how many were made."""
        if self._seen is not None:
            yield from self._seen.changed_pages()
        if self._keys_made != self._key_kept:
            self._key_kept = self._keys_made
            yield "last", pages.pack(self._keys_made)

    def load(self, pages_: Pages) -> None:
        """Go on from pages."""
        for name, page in pages_.items():
            kind, _, number = name.partition(".")
            if kind == "keys" and self._seen is not None:
                self._seen.restore(int(number), pages.unpack(page))
            elif kind == "last":
                self._keys_made = self._key_kept = pages.unpack(page)


def _value(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def resolved_flags(flags: Bytes) -> Bytes:
    """The flags of what leaves an index: nothing is partial any more."""
    if (flags == NORMAL).all():
        return flags
    kept = flags & ~np.uint8(Flag.PARTIAL)
    return np.where(kept == 0, np.uint8(NORMAL), kept).astype(np.uint8)


def _positions(block: Int64s, mask: Mask) -> tuple[Int64s, Int64s]:
    """Block and index in the block of some events."""
    places = np.flatnonzero(mask)
    return block[places], places - np.searchsorted(block, block[places])
