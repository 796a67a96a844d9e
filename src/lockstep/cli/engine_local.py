"""The engines of this machine, by their state folders: which run, and stopping one."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

from lockstep.cli.output import Output
from lockstep.errors import Conflict, NotFound, TimedOut, UsageError

FOLDER = ".lockstep-engine"
_LOOK_S = 0.1
_PID_DIGITS = 9


def ls(options: argparse.Namespace, output: Output) -> None:
    """List the state folders below a folder, and the processes that use them."""
    rows = [row(folder) for folder in state_folders(Path(options.folder))]
    if output.json:
        for each in rows:
            output.json_line(each)
        return
    if not rows:
        output.note(f"There is no engine in {options.folder}. Start one with 'lockstep engine run MODEL'.")
        return
    cells = [[each["name"], "running" if each["running"] else "stopped", each["pid"], each["state"]] for each in rows]
    output.table(["engine", "is", "pid", "state"], cells)


def stop(options: argparse.Namespace, output: Output) -> None:
    """Have an engine of this machine end in order, and wait until it has."""
    folder = _find(Path(options.folder), options.engine)
    found = row(folder)
    if not found["running"]:
        raise Conflict(reason=f"No engine runs in {folder}.")
    pid = found["pid"]
    if pid is None or not _holds(pid, folder / "lock"):
        raise Conflict(reason=f"The engine in {folder} is not a process of this user that can be told to end.")
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + options.timeout
    while is_locked(folder):
        if time.monotonic() > end:
            raise TimedOut(what=f"Stopping the engine in {folder} (pid {pid})", seconds=options.timeout)
        time.sleep(_LOOK_S)
    if output.json:
        output.json_line({"state": str(folder), "pid": pid, "stopped": True})
    else:
        output.line(f"Stopped {found['name']} (pid {pid}).")


def state_folders(root: Path) -> list[Path]:
    """The state folders of engines: `root` itself, or those below it."""
    if (root / "lock").is_file():
        return [root]
    found = (*sorted(root.glob("*/lock")), *sorted(root.glob("*/*/lock")))
    return [path.parent for path in found if path.is_file()]


def row(folder: Path) -> dict[str, Any]:
    """What is known of a state folder."""
    running = is_locked(folder)
    pid = _pid(folder / "lock") if running else None
    return {"name": folder.name, "running": running, "pid": pid, "state": str(folder)}


def _pid(lock: Path) -> int | None:
    """The process that a lock names; None if what it holds is no such number."""
    with lock.open("rb") as file:
        text = file.read(_PID_DIGITS + 2).strip()
    return int(text) if text.isdigit() and len(text) <= _PID_DIGITS else None


def is_locked(folder: Path) -> bool:
    """Whether an engine, or something of it, uses a state folder."""
    with (folder / "lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False


def _find(root: Path, name: str) -> Path:
    if (Path(name) / "lock").is_file():
        return Path(name)
    known = state_folders(root)
    found = [folder for folder in known if name in (folder.name, folder.name.partition(".")[2])]
    if len(found) > 1:
        raise UsageError(reason=f"Several engines are called {name!r}: name one of {', '.join(map(str, found))}.")
    if not found:
        error = NotFound(what=f"In {root} engine", name=name)
        error.add_note(f"There are: {', '.join(folder.name for folder in known) or 'none'}.")
        raise error
    return found[0]


def _holds(pid: int, lock: Path) -> bool:
    """Whether a process has the lock open, and is one that this user may signal: the number may be another's by now."""
    try:
        os.kill(pid, 0)
        return any(link.resolve() == lock.resolve() for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
