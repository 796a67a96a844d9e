"""What a window class of the user is written with. `lockstep.windows` is where it is imported from.

    class Totals(Window):
        version = "1"

        def on_event(self, change):
            total = self.state.get(change["customer"], 0.0) + change["amount"]
            self.state[change["customer"]] = total
            yield {"customer": change["customer"], "total": total}

What a window gives back must follow from its state and from what it is called with, and from nothing else: no clock, no
random numbers, no files, no order of a set. Then any engine gives the same bytes, after any kill.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lockstep.engine.events.event import Event, Opcode, Row
from lockstep.engine.events.schema import Schema, Value

BLOCK, OPCODE = "_block", "_opcode"
"""The columns that `on_batch` sees beside the fields."""

State = Any
"""What is kept: None, bool, int, float, str, bytes, and lists and dicts with texts as keys of these."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the model says of a window."""

    path: str
    """Its name in the project: query/window."""
    properties: Mapping[str, str]
    schema: Schema
    """The rows that it makes."""
    inputs: Mapping[str, Schema]
    """The rows of its inputs, by the names of their windows."""


class Change:
    """A change of a row of an input: an insert, a delete, or an update with the row before it.

    `change["price"]` is a field of the row; `source` names the window that it comes from. After a window without an
    index the opcode is as it came, and an update has no row before it.
    """

    __slots__ = ("_places", "before", "opcode", "source", "values")

    def __init__(self, source: str, opcode: Opcode, values: Row, before: Row | None, places: Mapping[str, int]) -> None:
        self.source, self.opcode, self.values, self.before = source, opcode, values, before
        self._places = places

    def __getitem__(self, name: str) -> Value:
        return self.values[self._places[name]]

    @property
    def is_delete(self) -> bool:
        """Whether the row is gone."""
        return self.opcode in (Opcode.DELETE, Opcode.SAFEDELETE)

    @property
    def row(self) -> dict[str, Value]:
        """The fields by name."""
        return dict(zip(self._places, self.values, strict=True))

    def __repr__(self) -> str:
        return f"Change({self.source!r}, {self.opcode.letter}, {self.row!r})"


@dataclass(frozen=True, slots=True)
class Delete:
    """The row with this key goes: a dict with the fields of the key, or a whole row."""

    row: Mapping[str, Value] | Row


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to be done once, outside: it goes to the project's notice stream with an id that follows from the log.

    Notices with the same `key` are to be carried out in their order. With an `id` of its own, printable text of at most
    512 bytes, it goes by that one: a consumer treats two notices with the same id as one.
    """

    kind: str
    key: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None


Made = Mapping[str, Value] | Row | Delete | Event | Notice
"""A row replaces the one with its key, or is new; a dict may leave fields out, which are null then."""


class Window(ABC):
    """A window of your own. It keeps what `dump` gives; without it that is the dict `state`.

    `version` must be the one that the model names. Raise it with every change that changes an answer or the state.
    """

    version: ClassVar[str]
    block: int = 0
    """The number of the block at hand, the same on every engine."""
    time_us: int | None = None
    """The model's clock at the event or tick at hand: the time of the last tick, None before the first."""
    on_batch: Callable[[Any], Any] | None = None
    """The column form of `on_event`, if there is one and the window has one input: on_batch(batch) gives a batch.

    Both are record batches of pyarrow: the fields, `_block`, and `_opcode`, which may be left out of the answer. An
    update comes as two rows: the new one as UPDATE_BLOCK, and the old one as DELETE. Answers keep the order of blocks,
    and are those of `on_event`, however the changes are cut into batches. With notices it gives a pair: the batch (or
    None) and a list of (block, Notice), in the order of blocks.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.state: State = {}

    @abstractmethod
    def on_event(self, change: Change) -> Iterable[Made] | None:
        """Take a change of an input; give rows, deletes and notices back, or yield them."""

    def on_tick(self, time_us: int, lagging: bool) -> Iterable[Made] | None:  # noqa: ARG002 - called by position
        """The model's clock reached a multiple of the window's `tick`; it is `time_us` microseconds since 1970 now.

        `lagging`: input that was there has not been taken yet, so that silence says nothing.
        """
        return None

    def dump(self) -> State:
        """Everything that later answers depend on."""
        return self.state

    def load(self, state: State) -> None:
        """Go on from a dumped state, in a new object."""
        self.state = state


class PagedWindow(Window):
    """A window with much state: it is kept in pages, and a snapshot writes only those that were marked as changed."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._marked: set[str] = set()

    def mark(self, page: str) -> None:
        """A page has changed, is new, or is gone."""
        self._marked.add(page)

    @abstractmethod
    def dump_page(self, page: str) -> State:
        """What a page holds now; None: it is gone."""

    @abstractmethod
    def load_page(self, page: str, state: State) -> None:
        """Take a page over, in a new object. Pages come in no particular order."""

    def take_marked(self) -> set[str]:
        """The pages that were marked since the last call; the engine calls it."""
        marked, self._marked = self._marked, set()
        return marked
