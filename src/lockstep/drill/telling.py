"""What a drill says while it runs."""

from __future__ import annotations

from typing import Protocol


class Telling(Protocol):
    """Somebody who listens."""

    def say(self, text: str) -> None:
        """Something happened."""

    def show(self, text: str) -> None:
        """How far it is; the next one takes its place."""


class Silence:
    """Nobody listens."""

    def say(self, text: str) -> None:
        """See Telling."""

    def show(self, text: str) -> None:
        """See Telling."""
