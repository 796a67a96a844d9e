"""A worker: evaluates ranges of the sequence for one shard, and keeps its state hot between them.

State is a snapshot and a position; the log is the difference. A worker whose position is not where an order begins is
thrown away, and a new one loads the last snapshot and replays the log up to there. What it publishes is a function of
the log, so that computing it again changes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lockstep.core.outputs import agree, digest_of
from lockstep.engine.columns.runner import Results
from lockstep.engine.errors import BusNotShared, OutputDiffers, SnapshotDamaged, SnapshotFolderUnusable
from lockstep.engine.events.frames import cut_frames
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.reference.operator import BadEvent
from lockstep.engine.runtime.output.side_streams import bad_tree, broken_tree, notice_trees, origin_of, with_all_fields
from lockstep.engine.runtime.output.spool import UNKNOWN, Spool, SpoolPart, WorkerProgress
from lockstep.engine.runtime.sequence.beats import Beat, Beats
from lockstep.engine.runtime.sequence.entries import Decision, PersistPoint, SequencePosition, Statement
from lockstep.engine.runtime.sequence.model_statement import compiled, first_statement, last_reset
from lockstep.engine.runtime.sequence.reader import Range, RangeReader
from lockstep.engine.runtime.sequence.streams import FRAME_BYTES, FRAME_LIMIT
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.format import HEAD, Head, Pages, decode_head, encode_head, seal, unseal
from lockstep.engine.runtime.snapshots.staging import failure_note
from lockstep.engine.runtime.snapshots.store import SnapshotStore, snapshot_name
from lockstep.engine.runtime.worker.divided_input import PartFolder
from lockstep.engine.runtime.worker.history import ModelHistory, VersionedReader, read_model_history
from lockstep.engine.runtime.worker.replacement import (
    ShardContext,
    WorkerState,
    empty_windows,
    load_evaluator,
    page_changes,
    replace_model,
)
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, logger

_REPLAY_EVENTS = 200_000
PART_EVENTS = 90_000
"""Of a large order the output is left in parts of about this many events: the first is published while the next is
computed, and the columns of all of it are never in memory together."""
Stored = Callable[[], Pages]
"""Reads all pages that a worker handed out."""


class ShardWorker:
    """Evaluates one shard of a project. Not to be shared between threads."""

    def __init__(self, setup: EngineSetup, shard: int, bus: Bus, runtime: Runtime, stored: Mapping[str, bytes]) -> None:
        check_host(setup, bus)
        self._setup, self._shard, self._runtime = setup, shard, runtime
        streams = setup.streams(setup.graph())
        parts = PartFolder(setup.parts, shard, setup.shards, runtime) if setup.shards > 1 else None
        self._context = ShardContext(bus=bus, streams=streams, shard=shard, shards=setup.shards, parts=parts)
        self._origin = origin_of(streams.project, bus.open(streams.sequence).identity)
        self._control = bus.open(streams.control)
        self._beats = Beats(self._control)
        self._spool = Spool(setup.spool(shard))
        head = decode_head(stored[HEAD], None, setup.folder) if HEAD in stored else None
        self._stored: Stored = dict
        """Reads all pages that it handed out so far, while it runs: a copy here would double the state in memory."""
        self._unstored: dict[str, bytes | None] = {}
        """Those that changed since a snapshot was handed out; None: the page is gone."""
        self._beat = Beat() if setup.is_history else self._beats.last()
        self._check_published(head)
        sealed = {name: page for name, page in stored.items() if name != HEAD}
        reset = reset_since(setup, self._context, head, self._published)
        if reset is not None:  # the windows were emptied since: nothing of this state counts any more
            head, self._unstored = None, dict.fromkeys(sealed)
        self._last_out: dict[str, tuple[int, str]] = dict(head.last_out) if head else {}
        self._stand(*first_state(setup, self._context, head, sealed, reset))
        self._begin_outputs()
        self._check_reach()
        self._seconds = 0.0
        self.written = 0
        """Bytes of output so far."""
        self.stored_head: bytes | None = stored.get(HEAD)
        """The head that is stored, if everything it handed out was: else it must not be used again."""
        self.kept: SequencePosition | None = None
        """Where the snapshot stands that was handed out last."""
        self._taken: tuple[SequencePosition, bytes] | None = None
        """A snapshot that may be stored once everything up to its block is published: where it is, and its head."""
        self._stored_at = runtime.monotonic()

    def _stand(self, state: WorkerState, position: SequencePosition) -> None:
        """Replace the model, its state and the readers."""
        self._graph, self._shown, self._past = state.graph, state.wanted, state.past
        self._evaluator, self._history = load_evaluator(state, self._context)
        self._wanted = {node.path: node for node in self._graph.nodes if node.path in self._shown}
        self._full_reader = self._new_reader()
        self._reader = self._context.reader(self._full_reader, self._evaluator)
        self.position = position

    def _new_reader(self) -> RangeReader:
        """The reader of whole blocks; a job over history reads all of it as if its model had always been in force."""
        bus, streams = self._context.bus, self._context.streams
        if self._setup.is_history and first_statement(bus.open(streams.sequence)) is not None:
            past = read_model_history(bus, streams)
            if len(past.versions) > 1:
                return VersionedReader(bus, self._graph, streams, past)
        return RangeReader(bus, self._graph, streams)

    def run(self, start: int, stop: int, stored: Stored) -> Pages:
        """Evaluate the entries after `start` through `stop`; the pages to store, if it is time for that.

        `stored` reads all pages that it was made from or handed out before.
        """
        self._stored = stored
        try:
            return self._run(start, stop)
        finally:
            self._stored = dict  # the store is open for this call only

    def _run(self, start: int, stop: int) -> Pages:
        while self.position.number < start:
            self._advance(self._reader.read(self.position, start, _REPLAY_EVENTS))
        self._note()
        while self.position.number < stop:
            self._advance(self._reader.read(self.position, stop, PART_EVENTS))
            self._note()
        return self._snapshot()

    @property
    def _published(self) -> int:
        return self._beat.published

    def _check_published(self, head: Head | None) -> None:
        """A snapshot is stored once its output is out; if it is not, the bus lost what it had acknowledged."""
        if head is not None and head.position.block > self._published:
            reason = (
                f"it holds block {head.position.block}, but only {self._published} is published: the bus lost records"
            )
            raise SnapshotDamaged(place=self._setup.folder, reason=reason)

    def _check_reach(self) -> None:
        """Refuse to start if the inputs no longer hold what the windows still need."""
        earliest = self._history.earliest
        if earliest is not None:
            self._history.reader.check_reach(earliest)

    def _advance(self, taken: Range) -> None:
        if taken.control is not None:
            self._pass_control(taken, taken.control)
            return
        began, start = self._runtime.monotonic(), self.position
        self._history.add(start, taken.end, taken.span)
        silent = taken.end.block <= self._published
        results = self._evaluator.evaluate(taken.span, silent=silent)
        self.position = taken.end
        if silent:
            self._pass(start, taken)
        else:
            self._write(start, taken, results, began)
        self._history.forget_before(self._evaluator.earliest_block())
        self._seconds += self._runtime.monotonic() - began

    def _pass(self, start: SequencePosition, taken: Range) -> None:
        """Note the last block of each out stream after a replay of published blocks, as the newest beat has it."""
        for path in self._wanted:
            out = self._beat.out(path)
            if path not in self._beat.last or out.last > taken.end.block:
                self._last_out[path] = UNKNOWN
            elif out.last > start.block:
                digest = digest_of(taken.lineage, out.last)
                if not agree(digest, out.digest):
                    stream = self._context.streams.output(self._wanted[path])
                    raise OutputDiffers(block=out.last, stream=stream, found=out.digest, known=digest)
                self._last_out[path] = (out.last, digest)

    def _begin_outputs(self) -> None:
        """Note the last published block of each window that is published from here on, or UNKNOWN."""
        block = self.position.block
        for path in self._wanted:
            out = self._beat.out(path)
            if block == 0:
                self._last_out.setdefault(path, (0, ""))
            elif path in self._beat.last and out.last <= block:
                self._last_out.setdefault(path, (out.last, out.digest))
            else:
                self._last_out.setdefault(path, UNKNOWN)

    def _pass_control(self, taken: Range, decision: Decision) -> None:
        """Carry out a control entry."""
        is_new = not self.position.knows(decision)
        if is_new and self._changes(decision):
            self._change(taken.end, decision)
        else:
            self.position = taken.end
            self._history.seal(self.position)
        if is_new and decision.persist is not None and decision.persist.by == self._setup.incarnation:
            self._persist(decision.persist)

    def _changes(self, decision: Decision) -> bool:
        """Whether the windows change at an entry; a job over history takes its own model for all of it."""
        if self._setup.is_history:
            return decision.reset
        states = decision.states
        is_other = states is not None and (
            compiled(states).fingerprint != self._graph.fingerprint or frozenset(states.publish) != self._shown
        )
        return decision.reset or is_other

    def _change(self, end: SequencePosition, decision: Decision) -> None:
        """Empty the windows, or go over to another model: what it does not touch stays as it is."""
        graph, wanted = self._graph, self._shown
        if decision.states is not None:
            graph, wanted = compiled(decision.states), frozenset(decision.states.publish)
        self._collect(self._evaluator.changed_pages())
        old = {name: unseal(page, name) for name, page in self._pages().items()}
        before = WorkerState(
            graph=self._graph, wanted=self._shown, pages=old, marks=self._history.marks, past=self._past
        )
        change = empty_windows if decision.reset else replace_model
        after = change(before, end, graph, wanted, self._context)
        self._collect(page_changes(old, after.pages).items())
        marks = after.history.marks
        self._stand(
            WorkerState(graph=graph, wanted=wanted, pages=after.pages, marks=marks, past=after.past), after.position
        )
        self._begin_outputs()
        self._take()

    def _persist(self, point: PersistPoint) -> None:
        """Stage a whole snapshot; the engine hands it out when everything up to it is published.

        If the disk does not take it, there is no snapshot, and the engine goes on.
        """
        head = self._take()
        name = snapshot_name(self.position.number, point.id)
        try:
            self._setup.staging.mkdir(parents=True, exist_ok=True)
            store = SnapshotStore(self._setup.staging, self._setup.belongs, self._runtime)
            store.write(name=name, shard=self._shard, shards=self._setup.shards, head=head, pages=self._pages())
        except (SnapshotFolderUnusable, OSError) as error:
            logger.warning("A snapshot could not be staged: %s", error, extra={"action": "persist"})
            with suppress(OSError):  # a full disk takes an empty file, and perhaps not the reason
                failure_note(self._setup, name).write_text(str(error))

    def _note(self) -> None:
        """Write down how far it is, also where other engines have published it already."""
        counts = {path: counts.dump() for path, counts in self._evaluator.counts().items()}
        self._spool.note(
            WorkerProgress(
                number=self.position.number,
                block=self.position.block,
                events=self.position.events,
                seconds=self._seconds,
                counts=counts,
                fingerprint=self._graph.fingerprint,
            )
        )

    def _write(self, start: SequencePosition, taken: Range, results: Results, began: float) -> None:
        before = {path: self._last_out[path] for path in self._wanted}
        frames = {path: self._frames(path, results, taken) for path in results.outputs if path in self._wanted}
        broken = taken.broken if self._shard == 0 else ()
        counts = {path: counts.dump() for path, counts in self._evaluator.counts().items()}
        part = SpoolPart(
            first=taken.span.first,
            last=taken.span.last,
            position=taken.end.tree(),
            frames=frames,
            bad=[*map(broken_tree, broken), *map(bad_tree, self._whole(results.bad, start))],
            notices=notice_trees(self._origin, results.notices),
            counts=counts,
            seconds=self._runtime.monotonic() - began,
            lineage=taken.lineage,
            before=before,
        )
        self._spool.write(part)
        self.written += sum(len(frame) for each in frames.values() for frame in each)

    def _whole(self, bad: Sequence[BadEvent], start: SequencePosition) -> list[BadEvent]:
        """Bad events with all their fields; windows read only the columns that they need."""
        if not bad:
            return []
        return with_all_fields(bad, self._full_reader.read(start, self.position.number).span, self._evaluator.needed)

    def _frames(self, path: str, results: Results, taken: Range) -> list[bytes]:
        """A window's blocks as frames that follow each other on its out stream."""
        batch, places = results.outputs[path], results.places.get(path)
        if not len(batch):
            return []
        previous, before = self._last_out[path]
        frames = cut_frames(batch, max_bytes=FRAME_BYTES, previous=previous, places=places, limit=FRAME_LIMIT,
                            before=before, lineage=taken.lineage)  # fmt: skip
        last = int(batch.block[-1])
        self._last_out[path] = (last, digest_of(taken.lineage, last))
        return frames

    def _snapshot(self) -> Pages:
        """The pages of the last snapshot if its output is published by now; takes one when it is due."""
        if self._setup.is_history:
            return {}
        if self._taken is None:
            if self._runtime.monotonic() - self._stored_at < self._setup.snapshot_every_s:
                return {}
            self._take()
        assert self._taken is not None
        self._beat = max(self._beat, self._beats.last(), key=lambda beat: beat.published)
        position, head = self._taken
        if self._published < position.block:
            return {}
        pages = {**self._unstored, HEAD: head}
        self.kept, self._taken, self._unstored, self.stored_head = position, None, {}, head
        self._stored_at = self._runtime.monotonic()
        return pages

    def _take(self) -> bytes:
        """Take a snapshot, which replaces one that could not be stored yet, and return its head."""
        self._collect(self._evaluator.changed_pages())
        head = Head(
            self._graph.fingerprint, self.position, self._history.marks, dict(self._last_out),
            to_yaml(self._graph.project), tuple(sorted(self._shown)), self._past.tree(),
        )  # fmt: skip
        self._taken = (self.position, encode_head(head))
        return self._taken[1]

    def _collect(self, changed: Iterable[tuple[str, bytes | None]]) -> None:
        fresh = {name: None if page is None else seal(page) for name, page in changed}
        self._unstored |= fresh

    def _pages(self) -> dict[str, bytes]:
        """All pages of the state as it was taken last, sealed."""
        pages = {**self._stored(), **self._unstored}
        return {name: page for name, page in pages.items() if page is not None and name != HEAD}


def reset_since(
    setup: EngineSetup, context: ShardContext, head: Head | None, published: int
) -> tuple[SequencePosition, Statement] | None:
    """Where windows were emptied last, after a state that is stored, of the places up to which all is published.

    A worker begins there: the input that led to it may be gone. What is not published must be computed.
    """
    sequence, is_stored = context.bus.open(context.streams.sequence), head is not None and head.past is not None
    if setup.is_history:
        return None if is_stored else last_reset(sequence)
    if head is None or not is_stored:
        return last_reset(sequence, upto_block=published)
    return last_reset(sequence, head.position, Statement(head.model, head.publish), upto_block=published)


def first_state(
    setup: EngineSetup,
    context: ShardContext,
    head: Head | None,
    sealed: Mapping[str, bytes],
    reset: tuple[SequencePosition, Statement] | None,
) -> tuple[WorkerState, SequencePosition]:
    """The state and position that a worker starts with: what is stored, or empty with the model of that time."""
    if head is not None and head.past is not None and reset is None:
        pages = {name: unseal(page, name) for name, page in sealed.items()}
        graph, wanted = compiled(Statement(head.model, head.publish)), frozenset(head.publish)
        past = ModelHistory.of(head.past)
        return WorkerState(graph=graph, wanted=wanted, pages=pages, marks=head.marks, past=past), head.position
    sequence = context.bus.open(context.streams.sequence)
    first = None if reset else first_statement(sequence)
    states = reset[1] if reset else first.states if first else None
    if states is None or setup.is_history:
        graph, wanted = setup.graph(), frozenset(setup.wanted)
    else:
        graph, wanted = compiled(states), frozenset(states.publish)
    if reset:
        start = reset[0]
    else:
        start = RangeReader(context.bus, graph, context.streams).start()
        start = replace(start, ends=first.ends) if first and not setup.is_history else start
    return WorkerState(graph=graph, wanted=wanted, pages={}, marks=(), past=ModelHistory.begin(start, graph)), start


def check_host(setup: EngineSetup, bus: Bus) -> None:
    """Raise BusNotShared where the bus can't be reached, rather than make an empty one."""
    here = socket.gethostname()
    if bus.promises.opened_by != "network" and here != setup.host:
        raise BusNotShared(url=setup.url, host=setup.host, other=here)
