"""Everything that runs in a drill, and what is known of it from moment to moment."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from lockstep.drill.arrivals import Arrival, Notes, Reports
from lockstep.drill.check import Reference
from lockstep.drill.engines import EngineCommand, EngineSeat, engine_command, leader, spark_words
from lockstep.drill.options import DrillOptions
from lockstep.drill.processes import Child, send_signal
from lockstep.drill.report import Telling
from lockstep.drill.scene import Area, PublishErrand, SubscribeErrand, save
from lockstep.errors import TimedOut
from lockstep.streams.client import Lockstep

READY_S_MAX, STEP_S_MAX, QUIET_S_MAX, END_S_MAX = 240.0, 240.0, 120.0, 30.0
"""The longest waits: until Spark runs, until an engine is in step, without any arrival, until a process has ended."""
_LOOK_S, _REPORTS_S = 0.01, 0.25
_SLACK_S = 2.0
"""An engine that lags by no more than this is in step: it reports once a second."""
_PIECE = 10_000
PIECES_A_SECOND = 20


class Stage:
    """Leaving the with block ends every process that was started, whatever happened."""

    def __init__(
        self,
        options: DrillOptions,
        area: Area,
        client: Lockstep,
        reference: Reference,
        telling: Telling,
        command: EngineCommand = engine_command,
    ) -> None:
        self.options, self.area, self.client, self._telling = options, area, client, telling
        self.scene, self._reference = area.scene(), reference
        self.scene.streams.create(client.bus, self.scene.graph, frozenset({self.scene.window.path}))
        self.seats = [self._seat(f"e{number}", command) for number in range(1, options.engines + 1)]
        self.publisher: Child | None = None
        self.subscriber: Child | None = None
        self.arrivals: list[Arrival] = []
        self.down: set[str] = set()
        """Engines that may be dead just now."""
        self._notes = Notes(self._path("arrivals"))
        self._reports = Reports(client.bus.open(self.scene.streams.reports))
        self._reports_at = self._shown_at = 0.0
        self._allowed = 0

    # --- the processes -------------------------------------------------------------------------------------------

    def start_engines(self) -> None:
        """All engines, each with a folder of its own."""
        for seat in self.seats:
            seat.start()

    def start_subscriber(self) -> None:
        """It goes on where the last one was."""
        errand = SubscribeErrand(
            url=self.area.url,
            model=str(self.area.model),
            cluster=self.area.cluster,
            block=self.options.block,
            events=self.options.total,
            until=self.options.blocks,
            file=str(self.file),
            arrivals=str(self._path("arrivals")),
        )
        self.subscriber = self._helper("subscriber", errand)

    def start_publisher(self) -> None:
        """It goes on where the last one was, and waits for permission."""
        pace, total = self.options.pace, self.options.total
        piece = min(_PIECE, total // 20) if pace is None else round(pace / PIECES_A_SECOND)
        errand = PublishErrand(
            url=self.area.url,
            model=str(self.area.model),
            cluster=self.area.cluster,
            file=str(self._reference.events),
            block=self.options.block,
            rate=pace,
            piece=max(piece, 1),
            client="drill",
            progress=str(self._path("published")),
        )
        self.publisher = self._helper("publisher", errand)
        self.publisher.tell(str(self._allowed))

    def allow(self, events: int) -> None:
        """So many events may be published."""
        self._allowed = events
        if self.publisher is not None:
            self.publisher.tell(str(events))

    # --- what is known -------------------------------------------------------------------------------------------

    @property
    def file(self) -> Path:
        """What the subscriber writes."""
        return self._path("aggregate24hr.csv")

    @property
    def seen(self) -> int:
        """Input events whose output has arrived."""
        return self.arrivals[-1].events if self.arrivals else 0

    @property
    def block(self) -> int:
        """The last block that has arrived."""
        return self.arrivals[-1].last if self.arrivals else 0

    def leader(self) -> EngineSeat | None:
        """Return the active engine, or None."""
        return leader(self.seats)

    def is_in_step(self, seat: EngineSeat) -> bool:
        """Whether an engine has computed what is out, or nearly so at a live pace."""
        slack = (self.options.pace or 0.0) * _SLACK_S / self.options.block
        return seat.is_alive and seat.is_ready and seat.report is not None and seat.block >= self.block - slack

    def poll(self) -> None:
        """Look at everything once."""
        self.arrivals += self._notes.new()
        for seat in self.seats:
            seat.listen()
            if seat.child is not None and seat.child.code is not None and seat.name not in self.down:
                raise seat.child.failure(what="An engine ended by itself")
        for helper in (self.publisher, self.subscriber):
            if helper is not None and helper.code not in (None, 0):
                raise helper.failure(what="The drill can't go on")
        self._hear()

    def wait(self, is_done: Callable[[], bool], what: str, seconds: float, *, while_quiet: bool = False) -> None:
        """Look until something is so. `while_quiet`: the time runs only as long as nothing arrives."""
        end, known = time.monotonic() + seconds, self.block
        while True:
            self.poll()
            if is_done():
                return
            if while_quiet and self.block != known:
                end, known = time.monotonic() + seconds, self.block
            if time.monotonic() > end:
                raise self._late(what, seconds)
            self._show(what)
            time.sleep(_LOOK_S)

    def _hear(self) -> None:
        if time.monotonic() - self._reports_at < _REPORTS_S:
            return
        self._reports_at = time.monotonic()
        named = {seat.name: seat for seat in self.seats}
        for report in self._reports.new():
            if report.engine in named:
                named[report.engine].hear(report)

    def _late(self, what: str, seconds: float) -> TimedOut:
        error = TimedOut(what=what, seconds=seconds)
        children = [seat.child for seat in self.seats] + [self.publisher, self.subscriber]
        words = [f"{child.name}, last words:\n{child.tail()}" for child in children if child is not None]
        error.add_note("\n" + "\n".join(words))
        return error

    def _show(self, what: str) -> None:
        if time.monotonic() - self._shown_at < _REPORTS_S:
            return
        self._shown_at = time.monotonic()
        roles = ", ".join(f"{seat.name} {seat.role or 'starting' if seat.is_alive else 'dead'}" for seat in self.seats)
        self._telling.show(f"{self.seen:,} of {self.options.total:,} events, {self._rate():,}/s; {roles}; {what}")

    def _rate(self) -> int:
        now, recent = time.monotonic(), 0
        for arrival in reversed(self.arrivals):
            recent = arrival.events
            if now - arrival.at > 1.0:
                break
        return self.seen - recent if self.arrivals and now - self.arrivals[-1].at < 1.0 else 0

    # --- the end -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        engines = [seat.child for seat in self.seats if seat.child is not None]
        if kind is None:
            for child in engines:
                send_signal(child.pid, signal.SIGTERM)
            for child in engines:
                child.stop(END_S_MAX)
        for child in [*engines, *filter(None, (self.publisher, self.subscriber))]:
            child.kill()

    # --- parts ---------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self.area.folder / name

    def _seat(self, name: str, command: EngineCommand) -> EngineSeat:
        words = command(
            name,
            model=self.area.model,
            url=self.area.url,
            state=self._path(name),
            cluster=self.area.cluster,
            window=self.scene.window.path,
            lease_s=self.options.lease,
        )
        return EngineSeat(name, [*words, *spark_words(self.options)], self._path(f"{name}.log"))

    def _helper(self, name: str, errand: PublishErrand | SubscribeErrand) -> Child:
        path = self._path(f"{name}.json")
        save(errand, path)
        command = [sys.executable, "-m", f"lockstep.drill.{name}", str(path)]
        return Child(name, command, self._path(f"{name}.log"))
