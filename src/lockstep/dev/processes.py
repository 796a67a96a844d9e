"""Processes by pid, ports that are free, and what is written down about a server."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.dev.recipe import HOST
from lockstep.errors import DataError, Unavailable

_DEFAULTED = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORCED = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)
_STATE, _STARTED = 0, 19  # fields of /proc/PID/stat after the name
_AT_REST = "TtZX"  # stopped, traced, dead


@dataclass(frozen=True, kw_only=True, slots=True)
class Pid:
    """A process: its number, and the tick it started at, since numbers are given again."""

    pid: int
    started: int


def spawn(command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> Pid:
    """Start a command in a folder and in a session of its own, so that it outlives the process that started it."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    words = ["/usr/bin/env", f"--chdir={folder}", *command]
    pid = os.posix_spawn(
        words[0], words, dict(environment), file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULTED
    )
    return Pid(pid=pid, started=_started(pid) or 0)


def identify(pid: int) -> Pid | None:
    """The process that has this number now."""
    started = _started(pid)
    return None if started is None else Pid(pid=pid, started=started)


def is_alive(process: Pid) -> bool:
    """Whether the process runs (or is paused); one that ended is reaped if it is a child of ours."""
    if _started(process.pid) == process.started:
        return True
    reap(process.pid)
    return False


def send(process: Pid, number: signal.Signals) -> None:
    """Send a signal to the process and those it started; nothing if it is gone.

    Children that left its group are killed, stopped and continued with it; to be ended in order is for it to tell them.
    """
    if not is_alive(process):
        return
    apart = _apart(process.pid) if number in _FORCED else ()
    for ask, pid in ((os.killpg, process.pid), *((os.kill, child) for child in apart)):
        try:
            ask(pid, number)
        except ProcessLookupError:
            continue  # it ended between the look and the signal


def is_stopped(pids: Iterable[int]) -> bool:
    """Whether no thread of these processes runs.

    SIGSTOP takes effect when one thread of a process is scheduled; on a busy machine the others go on until then.
    """
    return all(state in _AT_REST for pid in pids for state in _thread_states(pid))


def family(process: Pid) -> list[int]:
    """The numbers of a process and of its children."""
    return [process.pid, *_children(process.pid)]


def reap(pid: int) -> int | None:
    """The exit status of a child of ours that has ended."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it ended meanwhile


def _apart(pid: int) -> list[int]:
    """The children of a process that are not in its group."""
    found = []
    for child in _children(pid):
        with suppress(ProcessLookupError):  # it ended meanwhile
            found += [child] if os.getpgid(child) != pid else []
    return found


def _thread_states(pid: int) -> list[str]:
    found = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            found.append(stat.read_text().rpartition(")")[2].split()[_STATE])
    return found


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else int(fields[_STARTED])


# Below the range that the system takes for outgoing connections: a port of a killed server must stay free for its
# restart, and a client that knocks at such a port in the meantime could even end up connected to itself.
_LOWEST, _HIGHEST = 10_000, 32_000
_MOST_TRIES = 1_000


def free_ports(count: int, random: Callable[[], float]) -> tuple[int, ...]:
    """Return different free ports on loopback; another process may still take one before it is used."""
    found: dict[int, None] = {}
    for _ in range(_MOST_TRIES):
        if len(found) == count:
            return tuple(found)
        port = _LOWEST + int(random() * (_HIGHEST - _LOWEST))
        if is_free(port):
            found[port] = None
    raise Unavailable(reason=f"No {count} free ports between {_LOWEST} and {_HIGHEST} on {HOST}.")


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
        return True


FILE = "server.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The facts about a server: `pids` by the name of the process, in the order in which they were started."""

    name: str
    url: str
    folder: Path
    ports: tuple[int, ...]
    pids: dict[str, Pid] = field(default_factory=dict)

    @property
    def alive(self) -> dict[str, Pid]:
        """The processes that still run."""
        return {name: process for name, process in self.pids.items() if is_alive(process)}

    @property
    def is_running(self) -> bool:
        """Whether every process runs."""
        return bool(self.pids) and self.alive == self.pids

    def tree(self) -> dict[str, Any]:
        """As JSON."""
        pids = {name: {"pid": process.pid, "started": process.started} for name, process in self.pids.items()}
        return {"name": self.name, "url": self.url, "folder": str(self.folder), "ports": [*self.ports], "pids": pids}


def write(server: Server) -> None:
    """Put the facts into the server's folder, whole or not at all."""
    fresh = server.folder / f".{FILE}"
    fresh.write_text(json.dumps(server.tree(), indent=2) + "\n")
    fresh.rename(server.folder / FILE)


def read(folder: Path) -> Server | None:
    """The facts in a folder; None if no server was ever started in it."""
    try:
        text = (folder / FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        tree = json.loads(text)
        pids = {name: Pid(pid=item["pid"], started=item["started"]) for name, item in tree["pids"].items()}
        return Server(name=tree["name"], url=tree["url"], folder=folder, ports=tuple(tree["ports"]), pids=pids)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{folder / FILE} does not say which server is there. End it by hand, then remove the folder."
        raise DataError(reason=reason) from error
