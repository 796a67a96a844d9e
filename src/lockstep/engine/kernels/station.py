"""A window at work on columns: its operator, its output options, its counts, and what it last gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.kernels.copying import CopyColumns
from lockstep.engine.kernels.flow import INSERT, Flow
from lockstep.engine.kernels.moments import ColumnOperator, Moments, Pages
from lockstep.engine.kernels.rows import OPTIONS, OptionRows
from lockstep.engine.kernels.traits import has_plain_output
from lockstep.engine.kernels.treepages import ROWS
from lockstep.engine.model.graph import Node
from lockstep.engine.windows.counts import WindowCounts


class Station:
    """Runs one window over spans. `is_looked_at`: another window takes its output."""

    def __init__(self, node: Node, operator: ColumnOperator, is_looked_at: bool) -> None:
        self.node, self.operator = node, operator
        self.counts = WindowCounts()
        self._options = None if has_plain_output(node) else OptionRows(node)
        self._inserts_only = node.window.output_insert_only and self._options is None
        self._is_looked_at = is_looked_at
        self._empty = Flow.empty(node.schema)
        self.output, self._slots = self._empty, dict[int, Flow]()

    @property
    def divides(self) -> bool:
        """Whether the operator itself takes only the rows of its shard."""
        return isinstance(self.operator, CopyColumns)

    def run(self, inputs: Sequence[Flow], moments: Moments, *, shown: bool) -> None:
        """Evaluate a span."""
        changes_output = self._options is not None or self._inserts_only
        emit = shown or self._is_looked_at or changes_output
        made = self.operator.evaluate(inputs, moments, emit=emit)
        self.counts.events_in += sum(map(len, inputs)) if made.taken is None else made.taken
        self.counts.rows += made.rows
        self.output = self._empty if made.flow is None else made.flow
        events = made.events
        if changes_output:
            self._apply_options(moments)
            events = len(self.output)
        self.counts.events_out += events

    def _apply_options(self, moments: Moments) -> None:
        if self._options is not None:
            self.output, self._slots = self._options.apply(self.output, moments)
        else:
            self.output = self.output.select(self.output.opcode == INSERT)

    def seen(self, slot: int) -> Flow:
        """What a child sees of the last span."""
        return self.output if slot < 0 else self._slots.get(slot, self._empty)

    def forget(self) -> None:
        """Let the last output go."""
        self.output, self._slots = self._empty, {}

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """Pages of the window and of its options."""
        yield from self.operator.changed_pages()
        if self._options is not None:
            yield from self._options.changed_pages()

    def load(self, pages: Pages) -> None:
        """Go on from pages."""
        if ROWS in pages and not self.operator.loads_rows:
            reason = f"{self.node.path} worked row by row when it was taken, by an earlier version"
            raise SnapshotDamaged(place=self.node.path, reason=reason)
        self.operator.load({name: page for name, page in pages.items() if name != OPTIONS})
        if self._options is not None:
            self._options.load(pages)
