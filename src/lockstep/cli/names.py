"""Streams as users know them, and the logs that carry them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.streams.shards import shard_name


def label(row: Mapping[str, Any]) -> str:
    """The log that a row of data is about: orders, or orders/2 for a shard of it."""
    stream, shard = row["stream"], row["shard"]
    return str(stream) if shard is None else shard_name(stream, shard)


def closest(word: str, known: Iterable[str]) -> str | None:
    """What was probably meant."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None
