"""What an engine does when it is asked to, beside its daily work: the other side of the desk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from lockstep.engine.compute.port import Compute
from lockstep.engine.model.graph import Graph
from lockstep.engine.runtime.control.leadership import Election
from lockstep.engine.runtime.control.options import EngineOptions
from lockstep.engine.runtime.control.reports import Report, ReportBoard
from lockstep.engine.runtime.output.publisher import Publisher
from lockstep.engine.runtime.requests.handlers import standbys
from lockstep.engine.runtime.sequence.entries import Decision, PersistPoint, SequencePosition, Statement
from lockstep.engine.runtime.sequence.model_statement import input_logs, last_reset, statement_of
from lockstep.engine.runtime.sequence.outages import BUS_AWAY
from lockstep.engine.runtime.sequence.sequencer import Sequencer
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.engine.runtime.snapshots.checkpoint import check_restorable
from lockstep.engine.runtime.snapshots.retention import trim_point
from lockstep.engine.runtime.worker.replacement import ShardContext
from lockstep.errors import LockstepError
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime, logger


@dataclass(slots=True)
class ModelInForce:
    """The model that runs now, and what it publishes."""

    graph: Graph
    wanted: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineControl:
    """See lockstep.engine.runtime.requests.handlers.Leading."""

    name: str
    runtime: Runtime
    bus: Bus
    streams: ProjectStreams
    in_force: ModelInForce
    sequencer: Sequencer
    publisher: Publisher
    computing: Compute
    election: Election
    books: Lock
    report: Callable[[], Report]
    folder: Path | None
    restore_from: Callable[[Path], None]
    board: ReportBoard

    def graph(self) -> Graph:
        """The model in force."""
        return self.in_force.graph

    def published_windows(self) -> frozenset[str]:
        """The windows that are published."""
        return self.in_force.wanted

    def decide(self, decision: Decision) -> None:
        """Have something decided; a new model's streams are made first, and its inputs begin where they are."""
        with self.books:
            self.sequencer.ask(decision)

    def decided(self) -> SequencePosition:
        """What is decided."""
        return self.sequencer.position

    def published(self) -> SequencePosition | None:
        """What is out."""
        return self.publisher.position

    def computed_fingerprint(self) -> str:
        """The model that this engine computes with."""
        computed = self.computing.computed()
        return computed.fingerprint if computed else ""

    def seat(self) -> ShardContext:
        """Where its workers sit."""
        return ShardContext(bus=self.bus, streams=self.streams, shards=self.computing.setup.shards)

    def inputs(self) -> Mapping[str, Log]:
        """The inputs of the model in force, by name."""
        return input_logs(self.bus, self.streams, self.in_force.graph)

    def own_inputs(self) -> Mapping[str, Log]:
        """Those that are the project's own."""
        return input_logs(self.bus, self.streams, self.in_force.graph, is_own=True)

    def reports(self) -> dict[str, Report]:
        """What all engines say of themselves."""
        return self.board.look()

    def silence_s(self, engine: str) -> float:
        """Seconds since a report of an engine came, on this engine's own clock."""
        return self.board.silence_s(engine)

    def watched_s(self) -> float:
        """For how many seconds this engine has read reports."""
        return self.board.watched_s()

    def hand_over(self) -> None:
        """Let a standby lead."""
        self.election.step_back()

    def persist_folder(self) -> str | None:
        """Where snapshots go if nobody says."""
        return str(self.folder) if self.folder is not None else None

    def restore(self, folder: Path) -> int:
        """Begin again with the newest snapshot in a folder; a standby leads meanwhile, if there is one."""
        found = check_restorable(self.computing.setup, folder)
        if standbys(self):
            self.hand_over()
        self.restore_from(folder)
        return found.block

    def output_ends(self) -> dict[str, int]:
        """Where the out streams end, by the paths of their windows."""
        return {path: log.bounds().next for path, log in self._outputs().items()}

    def last_reset(self) -> SequencePosition | None:
        """Where windows were emptied last; None if the sequence log does not tell any more."""
        found = last_reset(self.bus.open(self.streams.sequence))
        return None if found is None else found[0]

    def purge(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
        """Let go of everything on the project's own inputs and on the out streams below these offsets."""
        for logs, ends in ((self.own_inputs(), inputs), (self._outputs(), outputs)):
            for path, log in logs.items():
                log.trim(ends.get(path, 0))

    def _outputs(self) -> dict[str, Log]:
        nodes = [node for node in self.in_force.graph.nodes if node.path in self.in_force.wanted]
        return {node.path: self.bus.open(self.streams.output(node)) for node in nodes}

    def statement(self) -> Statement:
        """The model in force and what it publishes, as the log states it."""
        return statement_of(self.in_force.graph, self.in_force.wanted)

    def trim(self) -> Mapping[str, Any]:
        """Have everybody let go of what no snapshot needs, behind the last statement of the model."""
        if self.folder is None:
            return {"trimmed": False, "reason": "the engine has no --persist-to folder"}
        inputs, sequence = self.own_inputs(), self.bus.open(self.streams.sequence)
        published = self.published() or SequencePosition()
        point = trim_point(self.folder, self.computing.setup.belongs, sequence, list(inputs), self.decided(), published)
        if point is None:
            return {"trimmed": False, "reason": "two complete snapshots of the model in force are needed"}
        self.decide(Decision({}, 0, 0, trim=point))
        offsets = {log.name: point.inputs[path] for path, log in inputs.items()}
        return {"trimmed": True, "sequence": point.sequence, "inputs": offsets}


class Maintenance:
    """What an engine that leads does by itself: snapshots now and then, and letting go of what they make needless."""

    def __init__(self, office: EngineControl, options: EngineOptions) -> None:
        self._office, self._every, self._trims = office, options.persist_every_s, options.trim
        self._due = office.runtime.monotonic() + (options.persist_every_s or 0.0)
        self._persisted = office.decided().block

    def step(self) -> None:
        """Have the next snapshot decided on when it is due, and something has happened since the last."""
        office = self._office
        if self._every is None or office.folder is None or office.runtime.monotonic() < self._due:
            return
        self._due = office.runtime.monotonic() + self._every
        try:
            self._keep_house()
        except BUS_AWAY:
            raise
        except LockstepError as error:  # a folder that can't be used now, perhaps later: that must not end the engine
            logger.warning("Nothing was persisted or trimmed: %s", error, extra={"action": "persist"})

    def _keep_house(self) -> None:
        office, decided = self._office, self._office.decided()
        if decided.block > self._persisted:
            self._persisted = decided.block
            by = next(iter(standbys(office)), office.report())
            point = PersistPoint(office.runtime.new_id().hex()[:16], by.incarnation, str(office.folder))
            office.decide(Decision({}, 0, 0, persist=point))
            if self._trims:
                office.trim()
                office.decide(Decision({}, 0, 0, states=office.statement()))  # so that the next one reaches further
