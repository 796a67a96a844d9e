"""Custom windows on columns: their class's column form if it has one, else change by change; state in pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.engine.columns import pages
from lockstep.engine.columns.flow import Flow
from lockstep.engine.columns.rows import RowOperator, Walker
from lockstep.engine.columns.runner import Moments, Pages, Yield
from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.model.graph import Node
from lockstep.engine.reference.custom import CustomOperator
from lockstep.engine.reference.custom_window import BLOCK, OPCODE, Notice
from lockstep.engine.reference.operator import BadEvent, Moment
from lockstep.engine.reference.user_code import shown


class CustomColumns(RowOperator):
    """Calls the class, and keeps only those pages that changed."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        assert isinstance(self._operator, CustomOperator), "made by kind"
        self._custom = self._operator
        self._on_batch = self._custom.window.on_batch if len(node.inputs) == 1 else None

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Whole ranges between ticks at once, if the class can."""
        if self._on_batch is None or not (len(inputs[0]) or moments.span.ticks):
            return super().evaluate(inputs, moments, emit=emit)
        walker, batch, start = Walker(moments), inputs[0].batch(), 0
        made = [EventBatch.empty(self.node.schema)]
        for block, _ in moments.span.ticks:
            stop = int(np.searchsorted(batch.block, block, side="right"))
            made += [self._columns(batch.slice(start, stop), moments), self._ticked(walker.moment(block))]
            start = stop
        made.append(self._columns(batch.slice(start, len(batch)), moments))
        return Yield.of(Flow.of(concat([part for part in made if len(part)] or made[:1])))

    def _ticked(self, moment: Moment) -> EventBatch:
        events: list[Event] = []
        self._custom.on_tick(moment, events)
        return EventBatch.of(self.node.schema, [(moment.block, events)])

    def _columns(self, batch: EventBatch, moments: Moments) -> EventBatch:
        if not len(batch):
            return EventBatch.empty(self.node.schema)
        self._custom.code.block = int(batch.block[0])
        made = self._custom.call_batch(_record_batch(batch))
        if isinstance(made, tuple):
            made = self._told(made, batch.block, moments)
        found = self._checked(made, batch.block)
        return self._resolved(found, moments) if self.node.is_indexed else self._with_keys(found, moments)

    def _told(self, made: tuple[Any, ...], given: Int64s, moments: Moments) -> Any:
        """The batch of a pair; its notices are reported, if their blocks are in order among those that came."""
        code = self._custom.code
        if len(made) != 2 or not isinstance(made[1], list):
            code.fail(None, "on_batch gave a tuple that is no pair of a record batch and a list of notices")
        known, last = frozenset(given.tolist()) if made[1] else frozenset(), 0
        for each in made[1]:
            if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[1], Notice)):
                code.fail(None, f"on_batch gave {shown(each)} among its notices; give pairs of a block and a Notice")
            block, notice = each
            if type(block) is not int or block < last or block not in known:
                code.fail(
                    None, f"on_batch gave a notice of block {shown(block)}, not in order or not of those that came"
                )
            last = block
            moments.notify(self._custom.placed(notice, None, block))
        return made[0]

    def _checked(self, made: Any, given: Int64s) -> EventBatch:
        """What the class gave, if it has the columns of the schema and blocks in order among those that came."""
        code, schema = self._custom.code, self.node.schema
        if made is None:
            return EventBatch.empty(schema)
        if not isinstance(made, pa.RecordBatch):
            code.fail(None, f"on_batch gave a {type(made).__name__}; give a record batch of pyarrow")
        missing = [name for name in (BLOCK, *schema.names) if made.schema.get_field_index(name) < 0]
        if missing:
            code.fail(None, f"on_batch gave a record batch without one column {missing[0]}")
        block = _numbers(made.column(BLOCK), np.dtype(np.int64))
        if block is None or not np.isin(block, given).all() or (np.diff(block) < 0).any():
            code.fail(None, f"on_batch gave a column {BLOCK} that is not in order, or not of the blocks that came")
        opcode = np.full(len(block), int(Opcode.UPSERT), np.uint8)
        if made.schema.get_field_index(OPCODE) >= 0:
            found = _numbers(made.column(OPCODE), np.dtype(np.uint8))
            if found is None or not np.isin(found, list(Opcode)).all():
                code.fail(None, f"on_batch gave a column {OPCODE} with something else than opcodes")
            opcode = found
        for field in schema:
            if made.column(field.name).type != field.type.arrow:
                kinds = f"{made.column(field.name).type}; it must be {field.type.arrow}"
                code.fail(None, f"on_batch gave a column {field.name} of type {kinds}")
        columns = tuple(made.column(name) for name in schema.names)
        return EventBatch(schema, block, opcode, np.full(len(block), int(Flag.NORMAL), np.uint8), columns)

    def _resolved(self, batch: EventBatch, moments: Moments) -> EventBatch:
        return EventBatch.of(
            self.node.schema,
            [(block, self._resolved_block(block, events, moments)) for block, events in batch.blocks()],
        )

    def _resolved_block(self, block: int, events: Sequence[Event], moments: Moments) -> list[Event]:
        out: list[Event] = []
        for event in events:
            found = self._custom.rows.resolve(*event)
            if isinstance(found, str):
                moments.report(BadEvent(block, self.node.path, found, f"{self._custom.code.what} made it", event))
            else:
                out += found
        return out

    def _with_keys(self, batch: EventBatch, moments: Moments) -> EventBatch:
        """Without an index opcodes pass as they are; only a null in a key is refused, as row by row."""
        keys = [batch.columns[place] for place in self.node.schema.keys]
        if any(column is not None and column.null_count for column in keys):
            return self._resolved(batch, moments)
        batch.opcode[batch.opcode == int(Opcode.UPDATE_BLOCK)] = int(Opcode.UPDATE)
        return batch

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """The pages that changed."""
        for name, page in self._custom.changed_pages():
            yield name, None if page is None else pages.pack(page)

    def load(self, pages_: Pages) -> None:
        """Go on from pages."""
        self._custom.load_pages({name: pages.unpack(page) for name, page in pages_.items()})


def _record_batch(batch: EventBatch) -> pa.RecordBatch:
    names = [BLOCK, OPCODE, *batch.schema.names]
    return pa.record_batch([pa.array(batch.block), pa.array(batch.opcode), *batch.columns], names=names)


def _numbers(column: pa.Array, kind: np.dtype[Any]) -> Any:
    """A column as whole numbers of a kind; None if it is something else."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return None
    values = column.to_numpy(zero_copy_only=False)
    limits = np.iinfo(kind)
    is_small = not len(values) or (values.min() >= limits.min and values.max() <= limits.max)
    return values.astype(kind) if is_small else None
