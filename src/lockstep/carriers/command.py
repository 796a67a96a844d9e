"""Items as commands: a process for each, with the body on its standard input and the item in its environment.

Status 0 is done; status 65 (EX_DATAERR) refuses the item; anything else is tried again. A command that runs longer than
its time-out is killed with all processes that it started, and is tried again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any

from lockstep.errors import BadArgument, DeliveryRefused, SystemFailed
from lockstep.streams.outbox import Item

REFUSES = 65
TIMEOUT_S = 60.0
_PREFIX = "LOCKSTEP_DELIVERY_"
_SHOWN = 300
_TOLD = 4096
Told = Callable[[Item, int, str], None]
"""Gets an item, the exit status of its command, and the end of what the command wrote."""


class CommandGroup:
    """Commands that are running, so that none of them outlives the process that started them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def start(self, command: Sequence[str], environment: Mapping[str, str], **files: Any) -> subprocess.Popen[bytes]:
        """Start a command in a process group of its own. SystemFailed if it can't be started."""
        try:
            process = subprocess.Popen(  # noqa: S603 - it is what the operator asked for, and no shell
                command, env=dict(environment), stdin=subprocess.PIPE, start_new_session=True, **files
            )
        except OSError as error:
            raise SystemFailed(path=command[0], reason=error.strerror or type(error).__name__) from None
        with self._lock:
            self._running.add(process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End a command with all that it started."""
        with suppress(ProcessLookupError, PermissionError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # it did not read all of it
                    pipe.close()
        with self._lock:
            self._running.discard(process)

    def close(self) -> None:
        """Kill all that are running."""
        with self._lock:
            running = [*self._running]
        for process in running:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


class Command:
    """A handler that runs a command, given as words. No shell reads it; where one is wanted: ["/bin/sh", "-c", ...].

    With `tried_again` only these statuses are tried again: any other but 0, and a time-out, refuse the item.
    With `told` what the command writes on standard output is kept as well, and told with its status.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float = TIMEOUT_S,
        tried_again: Collection[int] | None = None,
        group: CommandGroup | None = None,
        told: Told | None = None,
    ) -> None:
        if not command or isinstance(command, str):
            raise BadArgument(name="command", value=command, reason="it must be a list of words; no shell reads it")
        if not timeout_s > 0:
            raise BadArgument(name="timeout_s", value=timeout_s, reason="it must be above 0")
        self._command = [*command]
        self._environment = {name: text for name, text in environment.items() if not name.startswith(_PREFIX)}
        self._timeout_s, self._tried_again = timeout_s, tried_again
        self._group, self._told = group or CommandGroup(), told

    def __call__(self, item: Item) -> None:
        """Run the command for one item."""
        with TemporaryFile() as written:
            process = self._start(item, written.fileno())
            try:
                process.communicate(item.body, timeout=self._timeout_s)
            except subprocess.TimeoutExpired:
                reason = f"it ran longer than {self._timeout_s:g} s"
                if self._tried_again is not None:
                    raise DeliveryRefused(reason=f"{self._command[0]}: {reason}") from None
                raise SystemFailed(path=self._command[0], reason=reason) from None
            finally:
                self._group.end(process)
            if self._told is not None:
                self._told(item, process.returncode, end_of(written, _TOLD))
            said = end_of(written, _SHOWN)
        said = f": {said}" if said else ""
        if self._is_refused(process.returncode):
            raise DeliveryRefused(reason=f"{self._command[0]} ended with {process.returncode}{said}")
        if process.returncode:
            raise SystemFailed(path=self._command[0], reason=f"it ended with {process.returncode}{said}")

    def _is_refused(self, status: int) -> bool:
        if self._tried_again is None:
            return status == REFUSES
        return status != 0 and status not in self._tried_again

    def _start(self, item: Item, written: int) -> subprocess.Popen[bytes]:
        environment = {**self._environment, **item_environment(item)}
        out = subprocess.DEVNULL if self._told is None else written
        return self._group.start(self._command, environment, stdout=out, stderr=written)


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


def end_of(written: IO[bytes], most: int) -> str:
    """The last of what a command wrote, in one line."""
    size = written.seek(0, os.SEEK_END)
    written.seek(max(0, size - most))
    said = written.read(most).decode(errors="replace")
    return "".join(letter if letter.isprintable() else " " for letter in said).strip()
