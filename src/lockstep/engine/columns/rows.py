"""Windows without a column form: row operators called block by block, and their state as pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from zlib import crc32

import msgpack
import numpy as np

from lockstep.engine.columns import pages
from lockstep.engine.columns.flow import Flow
from lockstep.engine.columns.runner import ColumnOperator, Moments, Pages, Yield, no_blocks
from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, changes
from lockstep.engine.model.graph import Node
from lockstep.engine.reference.interpreter import make_operator
from lockstep.engine.reference.operator import Moment, Tree
from lockstep.engine.reference.options import OutputOptions

OPTIONS = "options"
"""The name of the page of a window's output options."""


class Walker:
    """The moments of a span, block by block."""

    def __init__(self, moments: Moments) -> None:
        self._moments = moments
        self._ticks = dict(moments.span.ticks)
        self._times = sorted(moments.span.ticks)
        self._transactional = set(moments.span.transactional.tolist())
        self._clock_us, self._next = moments.clock_us, 0

    def moment(self, block: int) -> Moment:
        """The moment of a block; blocks are asked for in order."""
        while self._next < len(self._times) and self._times[self._next][0] <= block:
            self._clock_us = max(self._clock_us, self._times[self._next][1])
            self._next += 1
        report, notify = self._moments.report, self._moments.notify
        is_lagging = block in self._moments.span.lagging
        return Moment(
            block, self._clock_us, block in self._ticks, block in self._transactional, report, notify, is_lagging
        )

    def blocks(self, inputs: Sequence[dict[int, list[Event]]]) -> list[int]:
        """The blocks in which something happens: events came, or the clock ticked."""
        return sorted(set(self._ticks).union(*inputs))


class RowOperator(ColumnOperator):
    """One of the windows that go row by row. `is_divided` asks for the place of each event."""

    loads_rows = True

    def __init__(self, node: Node, *, is_divided: bool = False) -> None:
        super().__init__(node)
        self._operator = make_operator(node)
        self._is_divided = is_divided
        self._dirty = False
        self._pages = TreePages(node.path)

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Block by block, then back into columns."""
        del emit
        if not any(map(len, inputs)) and not moments.span.ticks:
            return Yield(None, 0, 0)
        self._dirty = True
        if self._is_divided:
            return Yield.of(self._placed(inputs[0], moments))
        walker = Walker(moments)
        streams = [by_block(flow) for flow in inputs]
        out = []
        for block in walker.blocks(streams):
            events = self._operator.evaluate([stream.get(block, []) for stream in streams], walker.moment(block))
            out.append((block, events))
        return Yield.of(Flow.of(EventBatch.of(self.node.schema, out)))

    def _placed(self, flow: Flow, moments: Moments) -> Flow:
        """Change by change, so that each output event gets the place of what caused it."""
        index_of, order_of = flow.places or (no_blocks(), no_blocks())  # a span may hold nothing but ticks
        walker, out, index, order, at = Walker(moments), [], [], [], 0
        streams = by_block(flow)
        for block in walker.blocks([streams]):
            moment, made = walker.moment(block), []
            for event, old in changes(streams.get(block, [])):
                some: list[Event] = []
                self._operator.on_change(0, event, old, moment, some)
                index += [index_of[at]] * len(some)
                order += [order_of[at] * 4 + place for place in range(len(some))]
                at += 1 if old is None else 2
                made += some
            if moment.is_tick:
                # Windows that the clock makes say something are not divided.
                self._operator.on_tick(moment, [])
            out.append((block, made))
        made_flow = Flow.of(EventBatch.of(self.node.schema, out))
        places = np.array(index, np.int64), np.array(order, np.int64)
        return Flow(made_flow.schema, made_flow.block, made_flow.opcode, made_flow.flags, made_flow.parts, None, places)

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """What changed in its state, if anything came."""
        if self._dirty:
            self._dirty = False
            yield from self._pages.changes(self._operator.dump())

    def load(self, pages_: Pages) -> None:
        """Go on from its pages."""
        if pages_:
            self._operator.load(self._pages.load(pages_))


class OptionRows:
    """Output options that go row by row: pulse, collapse and slots."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._options = OutputOptions(node)
        self._dirty = False

    def apply(self, flow: Flow, moments: Moments) -> tuple[Flow, dict[int, Flow]]:
        """What others see of a window's output, and of that the events of each slot."""
        walker, stream = Walker(moments), by_block(flow)
        seen: list[tuple[int, list[Event]]] = []
        slots: dict[int, list[tuple[int, list[Event]]]] = {}
        for block in walker.blocks([stream]):
            moment = walker.moment(block)
            events = self._options.apply(stream.get(block, []), moment)
            for slot, some in self._options.split(events, moment).items():
                slots.setdefault(slot, []).append((block, some))
            seen.append((block, events))
            self._dirty = True
        schema = self._node.schema
        return Flow.of(EventBatch.of(schema, seen)), {
            slot: Flow.of(EventBatch.of(schema, blocks)) for slot, blocks in slots.items()
        }

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """What is held back."""
        if self._dirty:
            self._dirty = False
            yield OPTIONS, pages.pack(self._options.dump())

    def load(self, pages_: Pages) -> None:
        """Go on from its page."""
        if OPTIONS in pages_:
            self._options.load(pages.unpack(pages_[OPTIONS]))


def by_block(flow: Flow) -> dict[int, list[Event]]:
    """The events of each block."""
    return dict(flow.batch().blocks()) if len(flow) else {}


ROWS = "rows"
"""The page with the state, but for its pieces, which are called `rows.DIGEST`."""
LONG = 256
"""Lists with more items are cut."""
_ENDS, _MOST = 0x7F, 1024
"""A piece has some 128 items, and at most 1,024."""
_PIECES = 3
_DIGEST_BYTES = 12


class TreePages:
    """Remembers which pieces are stored. `place` says in errors whose state it is."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._stored: frozenset[str] = frozenset()

    def changes(self, tree: Tree) -> Iterator[tuple[str, bytes | None]]:
        """The pages of a state that are not stored yet, and those that are no longer needed."""
        pieces: dict[str, bytes] = {}
        page = pages.pack(_cut(tree, pieces))
        for name in sorted(self._stored - pieces.keys()):
            yield name, None
        for name, piece in pieces.items():
            if name not in self._stored:
                yield name, piece
        self._stored = frozenset(pieces)
        yield ROWS, page

    def load(self, found: Mapping[str, bytes]) -> Tree:
        """The state in pages, or None if there is none. What is not one of them is refused."""
        odd = sorted(name for name in found if name != ROWS and not name.startswith(f"{ROWS}."))
        if odd or (found and ROWS not in found):
            reason = f"{odd[0] if odd else next(iter(found))} is not a page of a window that works row by row"
            raise SnapshotDamaged(place=self._place, reason=reason)
        if not found:
            return None
        self._stored = frozenset(name for name in found if name != ROWS)
        return self._whole(pages.unpack(found[ROWS]), found)

    def _whole(self, tree: Tree, found: Mapping[str, bytes]) -> Tree:
        if isinstance(tree, dict):
            return {key: self._whole(value, found) for key, value in tree.items()}
        if isinstance(tree, list):
            return [self._whole(value, found) for value in tree]
        if not isinstance(tree, msgpack.ExtType):
            return tree
        names = msgpack.unpackb(tree.data)
        missing = [name for name in names if name not in found]
        if missing:
            raise SnapshotDamaged(place=self._place, reason=f"its page {missing[0]} is not there")
        return [item for name in names for item in pages.unpack(found[name])]


def _cut(tree: Tree, pieces: dict[str, bytes]) -> Tree:
    """The state with its long lists taken out, which are put to the pieces."""
    if isinstance(tree, dict):
        return {key: _cut(value, pieces) for key, value in tree.items()}
    if not isinstance(tree, list | tuple):
        return tree
    if len(tree) <= LONG:
        return [_cut(value, pieces) for value in tree]
    names = []
    for piece in _pieces(tree):
        names.append(f"{ROWS}.{blake2b(piece, digest_size=_DIGEST_BYTES).hexdigest()}")
        pieces[names[-1]] = piece
    return msgpack.ExtType(_PIECES, msgpack.packb(names))


def _pieces(items: Sequence[Tree]) -> Iterator[bytes]:
    packed: list[bytes] = []
    for item in items:
        packed.append(pages.pack(item))
        if not crc32(packed[-1]) & _ENDS or len(packed) == _MOST:
            yield _list_of(packed)
            packed = []
    if packed:
        yield _list_of(packed)


def _list_of(packed: Sequence[bytes]) -> bytes:
    """Packed items as one packed list."""
    header: bytes = msgpack.Packer().pack_array_header(len(packed))
    return header + b"".join(packed)
