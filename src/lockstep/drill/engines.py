"""The engines of a drill: what each says of itself, and who leads."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lockstep.drill.options import DrillOptions
from lockstep.drill.processes import Child
from lockstep.drill.records import Takeover, takeover
from lockstep.engine.runtime.control.reports import Report

ACTIVE = "active"


class EngineCommand(Protocol):
    """How an engine is started."""

    def __call__(
        self, name: str, *, model: Path, url: str, state: Path, cluster: str, window: str, lease_s: float
    ) -> Sequence[str]:
        """The words of the command."""


@dataclass(slots=True)
class EngineSeat:
    """A place for an engine: one process after the other, all with the same name and the same folder."""

    name: str
    command: Sequence[str]
    log: Path
    child: Child | None = None
    is_ready: bool = False
    role: str = ""
    epoch: int = 0
    report: Report | None = None
    buffer_peak: int = 0
    takeovers: list[Takeover] = field(default_factory=list)

    def start(self) -> None:
        """A new process."""
        self.is_ready, self.role, self.report = False, "", None
        self.child = Child(self.name, self.command, self.log)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.child is not None and self.child.code is None

    @property
    def leads(self) -> bool:
        """Whether it said so, and is there."""
        return self.is_alive and self.role == ACTIVE

    @property
    def block(self) -> int:
        """The last block that the running process has computed, by its own word."""
        return self.report.block if self.report else 0

    def listen(self) -> None:
        """Take in what its process printed."""
        for at, line in self.child.lines() if self.child else []:
            told = _parsed(line)
            if told.get("event") == "ready":
                self.is_ready = True
                self.role = told.get("role", self.role)
            elif told.get("event") == "role":
                self.role = told["role"]
                if self.role == ACTIVE:
                    self.epoch = int(told.get("epoch", 0))
                    self.takeovers.append(takeover(at, self.name, told))

    def hear(self, report: Report) -> None:
        """A report under its name; one of an earlier process says nothing of this one."""
        self.buffer_peak = max(self.buffer_peak, report.buffer_peak_blocks)
        if self.child is not None and report.pid == self.child.pid:
            self.report = report
            self.epoch = max(self.epoch, report.epoch)


def leader(seats: Sequence[EngineSeat]) -> EngineSeat | None:
    """Who leads: the one with the newest epoch of those that say so."""
    return max((seat for seat in seats if seat.leads), key=lambda seat: seat.epoch, default=None)


def engine_command(
    name: str, *, model: Path, url: str, state: Path, cluster: str, window: str, lease_s: float
) -> list[str]:
    """How an engine is started: as anybody would do it."""
    return [
        sys.executable, "-m", "lockstep.cli.main", "engine", "run", str(model), "--bus", url, "--state", str(state),
        "--name", name, "--cluster", cluster, "--publish", window, "--lease", str(lease_s), "--json",
    ]  # fmt: skip


def spark_words(options: DrillOptions) -> list[str]:
    """What an engine is told of a Spark cluster: to take a slot on each of two workers, if nothing else is said."""
    if options.master is None:
        return [word for name, value in options.conf for word in ("--conf", f"{name}={value}")]
    conf = {"spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "768m", **dict(options.conf)}
    return ["--master", options.master, *(word for item in conf.items() for word in ("--conf", "=".join(item)))]


def _parsed(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
