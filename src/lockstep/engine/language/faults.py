"""How a fault in an expression is reported: the place, what is wrong there, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from lockstep.engine.errors import BadExpression

_SHOWN = 200


class Misfit(Exception):
    """Operands that an operator or function can't take; becomes a BadExpression once the place is known.

    `argument` is the one that is wrong, None if it is all of them together.
    """

    def __init__(self, argument: int | None, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.argument = argument


def fault(text: str, at: int, reason: str, remedy: str) -> BadExpression:
    """The error for character `at` (counted from 0; shown to users from 1)."""
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return BadExpression(text=shown, at=at + 1, reason=reason, remedy=remedy)


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Did you mean ...? Else the known names, or what to do if there are none."""
    names = sorted(set(known))
    lowered = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {lowered[close[0]]}?"
    return f"Known are: {', '.join(names[:40])}." if names else otherwise
