"""Functions that depend on the order in which members came: first, last, lag, cat. An update comes in at the end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import ClassVar

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Value
from lockstep.engine.events.text import formatter
from lockstep.engine.language.compiler import AggregateCall
from lockstep.engine.reference.aggregate_functions import Function, Maker, plain
from lockstep.engine.reference.index import key_tree, row_tree, tree_key, tree_row
from lockstep.engine.reference.operator import Tree


class Members(Function):
    """Keeps the argument of every member by the member's key; nulls are members too."""

    __slots__ = ("members",)
    sees: ClassVar[str] = "key"

    def __init__(self) -> None:
        self.members: OrderedDict[Hashable, Value] = OrderedDict()

    def add(self, values: Row) -> None:
        """A member comes in at the end."""
        x, key = values
        self.members[key] = x

    def remove(self, values: Row) -> None:
        """A member leaves."""
        self.members.pop(values[1], None)

    def back(self, steps: int) -> Value:
        """The value `steps` before the last; null if there are not so many."""
        return next(islice(reversed(self.members.values()), steps, None), None)

    def dump(self) -> Tree:
        """Keys and values in order."""
        return [[key_tree(key), *row_tree((x,))] for key, x in self.members.items()]

    def load(self, state: Tree) -> None:
        """Go on from dumped members."""
        self.members = OrderedDict((tree_key(key), tree_row((x,))[0]) for key, x in state)


class First(Members):
    """ESP_aFirst."""

    __slots__ = ()

    def value(self) -> Value:
        """What came first of those that are there."""
        return next(iter(self.members.values()), None)


class Last(Members):
    """ESP_aLast."""

    __slots__ = ()

    def value(self) -> Value:
        """What came last."""
        return self.back(0)


class Lag(Members):
    """ESP_aLag(x, n): what came n before the last; 0 is the last."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def value(self) -> Value:
        """What came `steps` before the last."""
        return self.back(self.steps)


class Cat(Members):
    """ESP_aCat(x[, separator]): all values as texts in order; nulls are left out; null if nothing is left."""

    __slots__ = ("separator", "text_of")

    def __init__(self, separator: str, text_of: Callable[[Value], str]) -> None:
        super().__init__()
        self.separator = separator
        self.text_of = text_of

    def value(self) -> Value:
        """The texts, put together."""
        texts = [self.text_of(x) for x in self.members.values() if x is not None]
        return self.separator.join(texts) if texts else None


def _lag(call: AggregateCall) -> Callable[[], Function]:
    steps = call.constants[0] if call.constants else 1
    assert isinstance(steps, int), "typed when the model was loaded"
    return lambda: Lag(steps)


def _cat(call: AggregateCall) -> Callable[[], Function]:
    separator = call.constants[0] if call.constants else ","
    text_of = formatter(call.arguments[0].type)
    return lambda: Cat(str(separator), text_of)


def makers() -> Mapping[str, Maker]:
    """The functions of this module by name."""
    return {"first": plain(First), "last": plain(Last), "lag": _lag, "cat": _cat}
