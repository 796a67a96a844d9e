"""How loops are compiled: once for each kind of arguments, kept on disk, with the arithmetic exactly as written."""

from __future__ import annotations

from typing import Any

from numba import njit


def compiled(function: Any) -> Any:
    """A function as machine code."""
    return njit(cache=True)(function)
