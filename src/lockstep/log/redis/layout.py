"""Which keys on the server a bus uses.

| key                  | kind   | holds                                                                     |
| -------------------- | ------ | ------------------------------------------------------------------------- |
| {PREFIX}:streams     | hash   | name: JSON with identity and configuration                                |
| {PREFIX}:log:NAME    | stream | a batch each: id 0-(base offset + 1), field b, and t if its time was      |
|                      |        | late; after the letter b is the checksum of the batch before it           |
| {PREFIX}:row:NAME    | hash   | id, first, next, bytes, ns, ver (its last change), born (its first one),  |
|                      |        | tip: next, and after it the checksum of the last batch                    |
| {PREFIX}:sizes:NAME  | list   | for each batch: offset after it, bytes, append time, change               |
| {PREFIX}:seen:NAME   | hash   | producer: next sequence, offset after its last batch, append time         |
| {PREFIX}:holds:NAME  | hash   | holder: offset                                                            |
| {PREFIX}:cells       | hash   | small state of users                                                      |
| {PREFIX}:undo        | stream | what cells held before, for some seconds                                  |
| {PREFIX}:changes     | number | counts up with every change                                               |
| {PREFIX}:bell:NAME   | channel| rung after an append                                                      |

The braces put all of them into one slot of a Redis Cluster, so that one script may use them together.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX_DEFAULT = "lockstep"


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of one log."""

    row: str
    entries: str
    sizes: str
    seen: str
    holds: str
    bell: str

    @property
    def stored(self) -> tuple[str, str, str, str, str]:
        """Those that hold something, in the order in which the scripts take them."""
        return self.row, self.entries, self.sizes, self.seen, self.holds


class Keys:
    """The keys of one bus."""

    def __init__(self, prefix: str) -> None:
        self._base = f"{{{prefix or PREFIX_DEFAULT}}}:"
        self.catalogue = self._base + "streams"
        self.changes = self._base + "changes"
        self.cells = self._base + "cells"
        self.undo = self._base + "undo"

    def log(self, name: str) -> LogKeys:
        """The keys of the log of a name."""
        kinds = ("row", "log", "sizes", "seen", "holds", "bell")
        return LogKeys(*(f"{self._base}{kind}:{name}" for kind in kinds))


def entry_id(offset: int) -> str:
    """The id of the batch with this base offset; ids begin with 1."""
    return f"0-{offset + 1}"


def base_of(entry: bytes) -> int:
    """The base offset of the batch with this id."""
    return int(entry[2:]) - 1
