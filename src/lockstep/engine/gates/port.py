"""The port of gates: external services, such as ZooKeeper, that say which engine may stand for election.

A gate is not trusted. Who leads is decided on the group's log, and what counts on the sequence log; so a gate that is
wrong, late or open for two costs time, and never an answer.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from lockstep.errors import ExtraMissing


class Gate(Protocol):
    """One engine's place in a line outside. None of these waits for a server, but for `close`."""

    def enter(self) -> None:
        """Stand in line, at its end; one that stands there stays where it is."""

    def leave(self) -> None:
        """Leave the line, so that the next may try; `enter` begins at its end."""

    def may_lead(self) -> bool:
        """Whether this engine may try to lead; False while that is not sure."""

    def state(self) -> str:
        """Where it stands, for people; no secrets."""

    def check(self) -> None:
        """Raise what ended it, if anything did."""

    def close(self) -> None:
        """Leave for good and let go of the connection."""


def needed(module: str, extra: str) -> Any:
    """A module of a client library; if it is not installed, an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ExtraMissing(extra=extra, package=module.partition(".")[0]) from error
