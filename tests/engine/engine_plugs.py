"""Functions that tests name as field plugs."""

from __future__ import annotations

import sys


def spread(rows):
    """The distance between the largest and the smallest price."""
    prices = [price for _, price in rows]
    return max(prices) - min(prices)


def whole(rows):
    return len(rows)


def wrong(rows):
    return "three" if len(rows) == 3 else 1.0


def failing(rows):
    if len(rows) > 1:
        raise ZeroDivisionError("two are too many")
    return 0.0


def leaving(rows):
    if len(rows) == 3:
        sys.exit(3)
    return 0.0


def half_a_character(rows):
    return "\ud800" if len(rows) == 3 else "whole"


LIST = [1]
