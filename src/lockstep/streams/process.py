"""Which process an object belongs to: threads and locks do not survive a fork, so a child must open its own."""

from __future__ import annotations

import os

from lockstep.errors import ForkedProcess


class Process:
    """The process that made an object."""

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what, self._pid = what, os.getpid()

    @property
    def is_forked(self) -> bool:
        """True in a child that inherited the object through fork."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """ForkedProcess in such a child."""
        if os.getpid() != self._pid:
            raise ForkedProcess(bus=self._what, parent=self._pid, child=os.getpid())
