"""Workers that keep the state of their shards hot between batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.engine.runtime.output.spool import Spool
from lockstep.engine.runtime.sequence.outages import BUS_AWAY
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.checkpoint import note_checkpoint_position
from lockstep.engine.runtime.snapshots.format import Pages
from lockstep.engine.runtime.snapshots.store import SnapshotStore
from lockstep.engine.runtime.worker.shard_worker import ShardWorker
from lockstep.errors import LockstepError
from lockstep.log.port import Bus
from lockstep.runtime import ThreadRuntime


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What a worker did: blocks `first` to `last`, with those it computed again after a snapshot."""

    first: int
    last: int
    events: int
    output_bytes: int


class HotWorkers:
    """The workers of one process, by the engine's folder and shard.

    A worker is taken out before it is used: one that failed in the middle is never seen again. An engine that computes
    again begins a new incarnation in the same folder; its workers take the place of the old ones, whose state goes.
    """

    def __init__(self, open_bus: Callable[[str], Bus]) -> None:
        self._open_bus = open_bus
        self.held: dict[tuple[str, int], tuple[str, ShardWorker]] = {}
        """For which incarnation, and the worker."""
        self.done: dict[tuple[str, int], WorkDone] = {}
        """What the last call did for each shard."""

    def run(
        self,
        setup: EngineSetup,
        shard: int,
        orders: Sequence[tuple[int, int]],
        stored: Callable[[], Mapping[str, bytes]],
        stored_head: Callable[[], bytes | None],
    ) -> Pages:
        """Evaluate ranges of entries with a hot worker if it is where they begin, else with one from stored pages.

        A worker whose pages were handed out, but never stored because the batch failed after it, would store only what
        changed since: it is recognised by the head, and not used again.
        """
        pages: dict[str, bytes | None] = {}

        def handed_out() -> Pages:
            return {**stored(), **pages}

        try:
            worker, seed = self._worker(setup, shard, orders[0][0], stored, stored_head)
            pages |= seed  # they are kept with the first batch
            before, written = worker.position, worker.written
            for start, stop in orders:
                pages |= worker.run(start, stop, handed_out)
            after = worker.position
            events, size = after.events - before.events, worker.written - written
            self.done[setup.folder, shard] = WorkDone(before.block + 1, after.block, events, size)
        except BUS_AWAY:  # a new worker goes on from the last snapshot when it is back
            raise
        except LockstepError as error:
            Spool(setup.spool(shard)).fail(error)
            raise
        self.held[setup.folder, shard] = setup.incarnation, worker
        return pages

    def _worker(
        self,
        setup: EngineSetup,
        shard: int,
        start: int,
        stored: Callable[[], Mapping[str, bytes]],
        stored_head: Callable[[], bytes | None],
    ) -> tuple[ShardWorker, Mapping[str, bytes]]:
        """The hot worker if it is at entry `start`, else a new one, with the pages that it was seeded with."""
        incarnation, worker = self.held.pop((setup.folder, shard), ("", None))
        if worker is not None and incarnation == setup.incarnation and _is_at(worker, start, stored_head()):
            if worker.kept is not None:  # what it handed out last time is stored
                note_checkpoint_position(setup, shard, worker.kept)
                worker.kept = None
            return worker, {}
        worker = None  # its state goes before the next one is loaded
        found, seed = stored(), dict[str, bytes]()
        if not found and setup.seed is not None:
            found = seed = read_seed(setup, setup.seed, shard)
        return ShardWorker(setup, shard, self._open_bus(setup.url), ThreadRuntime(), found), seed

    def forget(self, folder: str) -> None:
        """Let the state of an engine go."""
        for place in [place for place in self.held if place[0] == folder]:
            self.held.pop(place, None)
            self.done.pop(place, None)


def _is_at(worker: ShardWorker, number: int, stored_head: bytes | None) -> bool:
    return (worker.position.number, worker.stored_head) == (number, stored_head)


def read_seed(setup: EngineSetup, seed: str, shard: int) -> dict[str, bytes]:
    """The pages of the persisted snapshot that an engine is to begin with."""
    store = SnapshotStore(Path(seed).parent, setup.belongs)
    return store.load(store.find(Path(seed).name, setup.shards), shard)
