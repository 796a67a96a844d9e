"""The servers of a comparison: started for it and ended after it, or those of the user."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lockstep.bench.compare_means import PORTS
from lockstep.bench.scratch import scratch_folder
from lockstep.dev.servers import RECIPES, start
from lockstep.dev.supply import Supply
from lockstep.drill import measure
from lockstep.errors import UsageError

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kind of server, and where it is; without a URL one is started."""

    bus: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers, and its first processes, if they are ours."""

    url: str
    pids: tuple[int, ...] = ()

    def cpu_s(self) -> float:
        """Processor time of its processes and of those that they started."""
        return sum(map(_cpu_s, family(self.pids)))


class Shares:
    """The CPU used beside a run: by its server, and by all other processes."""

    def __init__(self, server: Served) -> None:
        self._server, self._others = server, measure.Others()
        self._at, self._cpu_s = time.monotonic(), server.cpu_s()

    def cores(self) -> dict[str, float]:
        """Return the average cores used since creation; call it once the processes of the run have ended."""
        server = (self._server.cpu_s() - self._cpu_s) / (time.monotonic() - self._at)
        return {
            "others_cores": round(max(0.0, self._others.cores() - server), 2),
            "server_cores": round(server, 2),
        }


def parse(text: str) -> tuple[Wanted, ...]:
    """`kafka,redis` or URLs, which may have commas of their own: kafka://one:9092,two:9092,redis."""
    items: list[str] = []
    for part in text.split(","):
        if part in PORTS or "://" in part or not items or "://" not in items[-1]:
            items.append(part)
        else:
            items[-1] += f",{part}"
    return tuple(map(_wanted, items))


def _wanted(item: str) -> Wanted:
    bus, colon, _ = item.partition("://")
    if bus not in PORTS:
        raise UsageError(reason=f"{bus!r} is no bus to compare. Write some of {', '.join(PORTS)}, or their URLs.")
    return Wanted(bus, item if colon else None)


@contextmanager
def served(wanted: Wanted, say: Say) -> Iterator[Served]:
    """A server of that kind, gone at the end with all it held, if it was started here."""
    if wanted.url is not None:
        yield Served(wanted.url)
        return
    say(f"starting {wanted.bus}")
    with scratch_folder() as folder:
        supply = Supply(os.environ, say)
        server = start(RECIPES[wanted.bus](), folder / wanted.bus, supply=supply, owner=os.getpid())
        try:
            yield Served(server.url, tuple(process.pid for process in server.facts.pids.values()))
        finally:
            server.destroy()


def family(pids: Sequence[int]) -> set[int]:
    """The processes and all that they started, as far as their parents live."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(status)
        if fields:
            parents[int(status.parent.name)] = int(fields[1])
    found, fresh = set(pids), set(pids)
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def _cpu_s(pid: int) -> float:
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else 0.0  # with children that have ended


def _fields(status: Path) -> list[str]:
    """Return the fields after the command's name, which may hold any character; empty if the process has ended."""
    try:
        return status.read_text().rpartition(")")[2].split()
    except OSError:
        return []
