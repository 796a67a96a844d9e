"""A bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

_WIDTH = 40
_BAR_EVERY_S, _LINE_EVERY_S = 0.1, 2.0


class Progress:
    """Shows how far something is; never more often than somebody could read."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._shown_at = 0.0

    def say(self, text: str) -> None:
        """One line that stays."""
        self._out.write(f"\r\x1b[K{text}\n" if self._is_terminal else f"{text}\n")
        self._out.flush()

    def show(self, done: int, total: int) -> None:
        """How much is done."""
        now = time.monotonic()
        if now - self._shown_at < (_BAR_EVERY_S if self._is_terminal else _LINE_EVERY_S):
            return
        self._shown_at = now
        if self._is_terminal:
            filled = _WIDTH * done // total
            self._out.write(f"\r[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total}")
        else:
            self._out.write(f"{done}/{total} published\n")
        self._out.flush()

    def end(self) -> None:
        """Leave the bar."""
        if self._is_terminal:
            self._out.write("\n")
            self._out.flush()
