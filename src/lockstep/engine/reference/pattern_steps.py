"""The logic of a pattern in motion: each operator as a step that is offered events, one after the other.

What a step remembers is a list whose first item is its status, made by `fresh`; so it can be kept as it is. The meaning
of each operator is in docs/decisions/0016-what-patterns-mean.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Value
from lockstep.engine.reference.pattern_logic import And, Is, Leaf, Logic, Not, NotOccur, Or, is_negative

WAITING, HOLDS, DONE, FAILED = range(4)
"""HOLDS: true for now; a later event may still break it."""

State = list[Any]
Variables = list[Value]
Match = Callable[[str, Variables], Variables | None]
"""Whether the event at hand is the one of that name, given what the variables are bound to: then the new bindings."""


class Offer:
    """One event offered to one open pattern: what it binds and which places take it."""

    def __init__(self, match: Match, row: Row, now: int, variables: Variables, rows: dict[str, Row]) -> None:
        self.match = match
        self.row = row
        self.now = now
        self.variables = variables
        self.rows = rows
        self.taken: set[int] = set()

    def take(self, place: int, part: Logic) -> bool:
        """Take the event at a place of the logic if it is the one that is waited for there."""
        found = judge(part, self.match, self.variables)
        if found is None:
            return False
        self.variables, names = found
        self.rows.update((name, self.row) for name in names)
        self.taken.add(place)
        return True

    def is_a(self, part: Logic) -> bool:
        """Whether it is the one described; nothing is bound by asking."""
        return judge(part, self.match, self.variables) is not None


def judge(part: Logic, match: Match, variables: Variables) -> tuple[Variables, tuple[str, ...]] | None:
    """Whether a single event is what `part` describes: then the bindings, and the names it goes by."""
    if isinstance(part, Leaf):
        bound = match(part.event, variables)
        return None if bound is None else (bound, (part.event,))
    if isinstance(part, Not):
        return (variables, ()) if judge(part.part, match, variables) is None else None
    if isinstance(part, Or):
        found = (judge(choice, match, variables) for choice in part.parts)
        return next((answer for answer in found if answer is not None), None)
    assert isinstance(part, And), "parse_logic lets nothing else in here"
    names: tuple[str, ...] = ()
    for each in part.parts:
        answer = judge(each, match, variables)
        if answer is None:
            return None
        variables, names = answer[0], names + answer[1]
    return variables, names


class Step(ABC):
    """An operator, or an event that is waited for."""

    @abstractmethod
    def fresh(self) -> State:
        """What it remembers when it begins to wait."""

    @abstractmethod
    def offer(self, state: State, offer: Offer) -> int:
        """See an event; the new status."""

    @abstractmethod
    def close(self, state: State) -> int:
        """The time of the operator around it is over: the last status, DONE or FAILED."""

    def deadline(self, state: State) -> int | None:  # noqa: ARG002 - most steps have none
        """When something is decided if nothing comes before."""
        return None

    def expire(self, state: State, at: int) -> int:  # noqa: ARG002 - most steps have no time
        """Time `at`, a deadline, has passed; the new status."""
        return int(state[0])


class LeafStep(Step):
    """Waits for one event."""

    def __init__(self, place: int, part: Leaf) -> None:
        self.place = place
        self.part = part

    def fresh(self) -> State:
        """Waiting."""
        return [WAITING]

    def offer(self, state: State, offer: Offer) -> int:
        """The first event that fits is taken."""
        if offer.take(self.place, self.part):
            state[0] = DONE
        return int(state[0])

    def close(self, state: State) -> int:
        """It did not come."""
        state[0] = FAILED
        return FAILED


class NotStep(Step):
    """Breaks when an event comes; with `until_closed` it holds only once the time is over."""

    def __init__(self, part: Logic, *, until_closed: bool) -> None:
        self.part = part
        self.otherwise = WAITING if until_closed else HOLDS

    def fresh(self) -> State:
        """Waiting."""
        return [WAITING]

    def offer(self, state: State, offer: Offer) -> int:
        """Any other event leaves it whole."""
        state[0] = FAILED if offer.is_a(self.part) else self.otherwise
        return int(state[0])

    def close(self, state: State) -> int:
        """It did not come, as wanted."""
        state[0] = DONE
        return DONE


class IsStep(Step):
    """Waits for the very next events."""

    def __init__(self, place: int, part: Is) -> None:
        self.place = place
        self.part = part

    def fresh(self) -> State:
        """Waiting, with the number of events taken."""
        return [WAITING, 0]

    def offer(self, state: State, offer: Offer) -> int:
        """Any other event breaks it."""
        if offer.take(self.place, self.part.part):
            state[1] += 1
            state[0] = DONE if state[1] == self.part.count else WAITING
        else:
            state[0] = FAILED
        return int(state[0])

    def close(self, state: State) -> int:
        """They did not come."""
        state[0] = FAILED
        return FAILED


class OrStep(Step):
    """Done with the first of its operands."""

    def __init__(self, parts: list[Step]) -> None:
        self.parts = parts

    def fresh(self) -> State:
        """All operands waiting."""
        return [WAITING, [part.fresh() for part in self.parts]]

    def offer(self, state: State, offer: Offer) -> int:
        """All operands that are left see the event, from left to right, until one is done."""
        return self._visit(state, lambda part, inner: part.offer(inner, offer))

    def close(self, state: State) -> int:
        """Done if an operand is."""
        status = self._visit(state, lambda part, inner: part.close(inner))
        state[0] = DONE if status == DONE else FAILED
        return int(state[0])

    def deadline(self, state: State) -> int | None:
        """The first of its operands."""
        return _first(part.deadline(inner) for part, inner in zip(self.parts, state[1], strict=True) if not inner[0])

    def expire(self, state: State, at: int) -> int:
        """Operands whose time is over are decided."""
        return self._visit(state, lambda part, inner: part.expire(inner, at))

    def _visit(self, state: State, look: Callable[[Step, State], int]) -> int:
        for part, inner in zip(self.parts, state[1], strict=True):
            if inner[0] != FAILED and look(part, inner) in (HOLDS, DONE):
                state[0] = DONE
                return DONE
        state[0] = FAILED if all(inner[0] == FAILED for inner in state[1]) else WAITING
        return int(state[0])


class AndStep(Step):
    """Done when all operands are; its time runs from the first event that one of them took."""

    def __init__(self, time_us: int | None, parts: list[Step]) -> None:
        self.time_us = time_us
        self.parts = parts

    def fresh(self) -> State:
        """All operands waiting, and no time running."""
        return [WAITING, None, [part.fresh() for part in self.parts]]

    def offer(self, state: State, offer: Offer) -> int:
        """All operands that are not done see the event, from left to right."""
        before = len(offer.taken)
        self._visit(state, lambda part, inner: part.offer(inner, offer))
        if state[1] is None and len(offer.taken) > before:
            state[1] = offer.now
        return int(state[0])

    def close(self, state: State) -> int:
        """Done if all that is left is what must not come; its own time can't be cut short."""
        if self.time_us is not None:
            state[0] = FAILED
            return FAILED
        return self._finish(state)

    def deadline(self, state: State) -> int | None:
        """The first of its own and its operands'."""
        own = None if state[1] is None or self.time_us is None else state[1] + self.time_us
        inner = (part.deadline(inner) for part, inner in zip(self.parts, state[2], strict=True) if not inner[0])
        return _first((own, *inner))

    def expire(self, state: State, at: int) -> int:
        """Operands whose time is over are decided, then this."""
        self._visit(state, lambda part, inner: part.expire(inner, at))
        if not state[0] and self.time_us is not None and state[1] is not None and state[1] + self.time_us <= at:
            self._finish(state)
        return int(state[0])

    def _finish(self, state: State) -> int:
        self._visit(state, lambda part, inner: part.close(inner))
        state[0] = DONE if state[0] in (HOLDS, DONE) else FAILED
        return int(state[0])

    def _visit(self, state: State, look: Callable[[Step, State], int]) -> None:
        statuses = [
            inner[0] if inner[0] == DONE else look(part, inner)
            for part, inner in zip(self.parts, state[2], strict=True)
        ]
        if FAILED in statuses:
            state[0] = FAILED
        elif WAITING in statuses:
            state[0] = WAITING
        else:
            state[0] = DONE


class FbyStep(Step):
    """One operand after the other; its time runs from the end of each operand to that of the next."""

    def __init__(self, time_us: int | None, parts: list[Step]) -> None:
        self.time_us = time_us
        self.parts = parts

    def fresh(self) -> State:
        """No time running; the place of the operand that is waited for, and what that remembers."""
        return [WAITING, None, 0, self.parts[0].fresh()]

    def offer(self, state: State, offer: Offer) -> int:
        """Only the operand whose turn it is sees the event; the next one sees later events."""
        return self._settle(state, self.parts[state[2]].offer(state[3], offer), offer.now)

    def close(self, state: State) -> int:
        """Done if all that is left is what must not come; its own time can't be cut short."""
        if self.time_us is not None:
            state[0] = FAILED
            return FAILED
        return self._finish(state)

    def deadline(self, state: State) -> int | None:
        """The first of its own and its operand's."""
        own = None if state[1] is None or self.time_us is None else state[1] + self.time_us
        return _first((own, self.parts[state[2]].deadline(state[3])))

    def expire(self, state: State, at: int) -> int:
        """The operand is decided if its time is over, then this."""
        self._settle(state, self.parts[state[2]].expire(state[3], at), at)
        if not state[0] and self.time_us is not None and state[1] is not None and state[1] + self.time_us <= at:
            self._finish(state)
        return int(state[0])

    def _finish(self, state: State) -> int:
        is_last = state[2] == len(self.parts) - 1
        state[0] = DONE if self.parts[state[2]].close(state[3]) == DONE and is_last else FAILED
        return int(state[0])

    def _settle(self, state: State, status: int, now: int) -> int:
        if status == FAILED:
            state[0] = FAILED
        elif status in (HOLDS, DONE):
            self._advance(state, now)
        return int(state[0])

    def _advance(self, state: State, now: int) -> None:
        state[1] = now
        if state[2] == len(self.parts) - 1:
            state[0] = DONE
        else:
            state[2] += 1
            state[3] = self.parts[state[2]].fresh()


def make_steps(tree: Logic) -> Step:
    """The steps of a logic; each place that takes events has a number of its own."""
    return _make(tree, count())


def _make(tree: Logic, places: count[int]) -> Step:
    if isinstance(tree, Leaf):
        return LeafStep(next(places), tree)
    if isinstance(tree, Not | NotOccur):
        return NotStep(tree.part, until_closed=isinstance(tree, NotOccur))
    if isinstance(tree, Is):
        return IsStep(next(places), tree)
    if isinstance(tree, Or):
        return OrStep([_make(part, places) for part in tree.parts])
    if isinstance(tree, And):
        return AndStep(tree.time_us, [_make(part, places) for part in tree.parts])
    return FbyStep(tree.time_us, [_make(part, places) for part in _guarded(tree.parts)])


def _guarded(parts: tuple[Logic, ...]) -> list[Logic]:
    """Operands of fby with what must not come put beside what is waited for meanwhile; at the end it stands alone."""
    steps: list[Logic] = []
    guards: list[Logic] = []
    for part in parts:
        if is_negative(part):
            guards.append(part)
        else:
            # Here the next operand ends the waiting, not a time, so notoccur means the same as not.
            before = [Not(guard.part) if isinstance(guard, NotOccur) else guard for guard in guards]
            steps.append(And(None, (*before, part)) if before else part)
            guards = []
    if guards:
        steps.append(guards[0] if len(guards) == 1 else And(None, tuple(guards)))
    return steps


def _first(times: Any) -> int | None:
    return min((time for time in times if time is not None), default=None)
