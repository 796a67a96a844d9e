"""What a window on columns is to the evaluator: flows of its parents in, a flow out, state in pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lockstep.engine.kernels.flow import DELETE, INSERT, UPDATE_BLOCK, Flow
from lockstep.engine.kernels.span import Span
from lockstep.engine.model.graph import Node
from lockstep.engine.windows.operator import BadEvent, Notice

Pages = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Moments:
    """What is going on: the blocks, the model's clock before them, and where to report."""

    span: Span
    clock_us: int
    report: Callable[[BadEvent], None]
    notify: Callable[[Notice], None]


@dataclass(frozen=True, slots=True)
class Yield:
    """What a window gave: the events (None if nobody wants to see them) and how many there were."""

    flow: Flow | None
    events: int
    rows: int
    """Inserts minus those deletes that are not the old half of an update."""
    taken: int | None = None
    """How many of the events that came were its own, if not all."""

    @classmethod
    def of(cls, flow: Flow) -> Yield:
        """Count a flow."""
        inserts, deletes, updates = (
            int(np.count_nonzero(flow.opcode == code)) for code in (INSERT, DELETE, UPDATE_BLOCK)
        )
        return cls(flow, len(flow), inserts - deletes + updates)


class ColumnOperator(ABC):
    """The meaning of one window, on columns; the same as that of its row form, whatever the cut."""

    loads_rows: ClassVar[bool] = False
    """Whether it can go on from what its row form kept."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @abstractmethod
    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Take the parents' events of all blocks; without `emit` the output itself need not be made."""

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """The pages of its state that changed since the last call; None: the page is gone."""
        return iter(())

    def load(self, pages: Pages) -> None:
        """Go on from pages."""
        del pages

    def earliest_block(self) -> int | None:
        """The first block that it still needs from the log."""
        return None
