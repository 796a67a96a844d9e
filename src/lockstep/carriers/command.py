"""Items as commands: a process for each, with the body on its standard input and the item in its environment.

Status 0 is done; status 65 (EX_DATAERR) refuses the item; anything else is tried again. A command that runs longer than
its time-out is killed with all processes that it started, and is tried again.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO

from lockstep.errors import BadArgument, DeliveryRefused, SystemFailed
from lockstep.streams.outbox import Item

REFUSES = 65
TIMEOUT_S = 60.0
_PREFIX = "LOCKSTEP_DELIVERY_"
_SHOWN = 300


class Command:
    """A handler that runs a command, given as words. No shell reads it; where one is wanted: ["/bin/sh", "-c", ...]."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        if not command or isinstance(command, str):
            raise BadArgument(name="command", value=command, reason="it must be a list of words; no shell reads it")
        if not timeout_s > 0:
            raise BadArgument(name="timeout_s", value=timeout_s, reason="it must be above 0")
        self._command = [*command]
        self._environment = {name: text for name, text in environment.items() if not name.startswith(_PREFIX)}
        self._timeout_s = timeout_s

    def __call__(self, item: Item) -> None:
        """Run the command for one item."""
        with TemporaryFile() as errors:
            process = self._start(item, errors.fileno())
            try:
                process.communicate(item.body, timeout=self._timeout_s)
            except subprocess.TimeoutExpired:
                raise SystemFailed(path=self._command[0], reason=f"it ran longer than {self._timeout_s:g} s") from None
            finally:
                _end(process)
            said = _end_of(errors)
        if process.returncode == REFUSES:
            raise DeliveryRefused(reason=f"{self._command[0]} ended with {REFUSES}{said}")
        if process.returncode:
            raise SystemFailed(path=self._command[0], reason=f"it ended with {process.returncode}{said}")

    def _start(self, item: Item, errors: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - it is what the operator asked for, and no shell
                self._command,
                env={**self._environment, **item_environment(item)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise SystemFailed(path=self._command[0], reason=error.strerror or type(error).__name__) from None


def item_environment(item: Item) -> dict[str, str]:
    """What a command learns of its item. A key that is not text is left out."""
    facts = {
        "ID": item.id,
        "KIND": item.kind,
        "STREAM": item.stream,
        "OFFSET": str(item.offset),
        "ATTEMPT": str(item.attempt),
        "EPOCH": str(item.epoch),
        "IN_DOUBT": "1" if item.in_doubt else "0",
    }
    if item.key is not None and b"\0" not in item.key:
        facts["KEY"] = os.fsdecode(item.key)
    return {_PREFIX + name: text for name, text in facts.items()}


def _end(process: subprocess.Popen[bytes]) -> None:
    """What the command left behind ends with it."""
    with suppress(ProcessLookupError, PermissionError):  # all of it has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with suppress(BrokenPipeError):  # it did not read all of it
            process.stdin.close()


def _end_of(errors: IO[bytes]) -> str:
    """The last of what a command said on standard error."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _SHOWN))
    said = errors.read(_SHOWN).decode(errors="replace")
    text = "".join(letter if letter.isprintable() else " " for letter in said).strip()
    return f": {text}" if text else ""
