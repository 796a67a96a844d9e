"""Micro-batches in the engine's own process: the same workers and windows as on Spark, without a JVM.

Each shard is a thread. What Spark keeps in its checkpoint is an LMDB file for each shard: the pages of the last
snapshot, and how far batches were committed, in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import lmdb

from lockstep.engine.compute.planner import BatchPlanner, Offset, SequenceTail
from lockstep.engine.compute.port import STATE_FILE, BatchFigures, Compute, check_runner
from lockstep.engine.compute.workers import HotWorkers
from lockstep.engine.run.outages import through_outages
from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.run.snapshot import HEAD, Pages
from lockstep.errors import StoreBroken
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, Task, Waiter

IDLE_S, BUSY_S = 0.1, 0.02
"""How often a shard looks for more that nobody woke it for: on its own, and while the publisher is behind."""
_MAP_BYTES = 64 << 30
"""Only what is used takes room on the disk."""
_OFFSET = b"offset"
_PAGE = b"page "


class Checkpoint(Protocol):
    """How far the batches of a shard were planned and committed, and the pages of its last snapshot."""

    planned: Offset | None
    committed: Offset | None

    def pages(self) -> dict[str, bytes]:
        """The pages that are stored."""

    def head(self) -> bytes | None:
        """The head page, if there is a snapshot."""

    def plan(self, offset: Offset) -> None:
        """A batch up to this offset begins."""

    def commit(self, pages: Pages) -> None:
        """The batch that was planned is done; pages that are None are removed."""

    def close(self) -> None:
        """Let go of the file."""


class FileCheckpoint:
    """See Checkpoint. A batch that was planned and not committed is planned anew by the next process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / STATE_FILE
        with self._errors():
            self._environment = lmdb.open(str(self._path), subdir=False, map_size=_MAP_BYTES, mode=0o600)
        found = self._get(_OFFSET)
        self.planned = self.committed = None if found is None else json.loads(found)

    def pages(self) -> dict[str, bytes]:
        with self._errors(), self._environment.begin() as transaction:
            cursor = transaction.cursor()
            found = {}
            is_page = cursor.set_range(_PAGE)
            while is_page and cursor.key().startswith(_PAGE):
                found[cursor.key().removeprefix(_PAGE).decode()] = bytes(cursor.value())
                is_page = cursor.next()
        return found

    def head(self) -> bytes | None:
        return self._get(_PAGE + HEAD.encode())

    def plan(self, offset: Offset) -> None:
        self.planned = offset

    def commit(self, pages: Pages) -> None:
        with self._errors(), self._environment.begin(write=True) as transaction:
            for name, page in pages.items():
                if page is None:
                    transaction.delete(_PAGE + name.encode())
                else:
                    transaction.put(_PAGE + name.encode(), page)
            transaction.put(_OFFSET, json.dumps(self.planned).encode())
        self.committed = self.planned

    def close(self) -> None:
        self._environment.close()

    def _get(self, key: bytes) -> bytes | None:
        with self._errors(), self._environment.begin() as transaction:
            found = transaction.get(key)
        return None if found is None else bytes(found)

    def _errors(self) -> _Errors:
        return _Errors(self._path)


class _Errors:
    """Errors of LMDB as one of ours, with the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, lmdb.Error):
            raise StoreBroken(path=str(self._path), reason=str(error)) from error


class LocalCompute(Compute):
    """See Compute. Shards share one process, so more of them are no faster; the answer is the same."""

    def __init__(self, setup: EngineSetup, project: str, divided: frozenset[str], bus: Bus, runtime: Runtime) -> None:
        super().__init__(setup, project, divided)
        self._bus, self._runtime = bus, runtime
        self._workers = HotWorkers(lambda _url: bus)
        self._planners: dict[int, BatchPlanner] = {}
        self._checkpoints: dict[int, Checkpoint] = {}
        self._tasks: list[Task] = []
        self._failure: BaseException | None = None
        self._figures: dict[int, BatchFigures] = {}

    def open(self, inherit: Sequence[int]) -> None:  # noqa: ARG002 - there is no other process
        """Check the folder; nothing has to be started."""
        check_runner(Path(self.setup.folder), "local")

    def start(self) -> None:
        for shard in range(self.setup.shards):
            self._planners[shard] = self._planner(shard)
            step = through_outages(f"shard {shard}", lambda shard=shard: self.step(shard))  # type: ignore[misc]
            self._tasks.append(self._runtime.spawn(f"lockstep-shard-{shard}", step, self._waiter(), self._ended))

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def figures(self) -> Mapping[str, BatchFigures]:
        return {f"lockstep-{shard}": figures for shard, figures in list(self._figures.items())}

    def batches_done(self) -> int:
        return min((self._figures_of(shard).batches for shard in range(self.setup.shards)), default=0)

    def stop_queries(self) -> None:
        for task in self._tasks:
            task.stop()
        self._tasks = []
        for checkpoint in self._checkpoints.values():
            checkpoint.close()
        self._checkpoints.clear()

    def stop(self) -> None:
        self.stop_queries()
        self._workers.forget(self.setup.folder)

    def step(self, shard: int) -> float:
        """Plan a batch, run it, and commit it; a batch that was planned and not committed runs again."""
        planner, kept = self._planners[shard], self.checkpoint(shard)
        if kept.committed is None:
            kept.committed = kept.planned = planner.first()
        if kept.planned == kept.committed:
            planned = planner.next_after(kept.committed)
            if planned == kept.committed:
                return BUSY_S if self.spools[shard].fill().files else IDLE_S
            kept.plan(planned)
        began = self._runtime.monotonic()
        self.evaluate(shard, kept)
        self._count(shard, self._runtime.monotonic() - began)
        return 0.0

    def evaluate(self, shard: int, kept: Checkpoint) -> None:
        """Run the batch that is planned."""
        assert kept.committed is not None
        assert kept.planned is not None
        orders = [(kept.committed["number"], kept.planned["number"])]
        kept.commit(self._workers.run(self.setup, shard, orders, kept.pages, kept.head))

    def checkpoint(self, shard: int) -> Checkpoint:
        """The checkpoint of a shard."""
        if shard not in self._checkpoints:
            self._checkpoints[shard] = FileCheckpoint(Path(self.setup.folder) / "checkpoint" / str(shard))
        return self._checkpoints[shard]

    def _planner(self, shard: int) -> BatchPlanner:
        setup = self.setup
        return BatchPlanner(setup, shard, lambda: SequenceTail.open(setup, self._bus), self._runtime.monotonic)

    def _waiter(self) -> Waiter:
        """Wakes a shard when something was decided."""
        waiter = self._bus.waiter()
        waiter.watch(self._bus.open(self.setup.streams(self.setup.graph()).sequence))
        return waiter

    def _figures_of(self, shard: int) -> BatchFigures:
        return self._figures.setdefault(shard, BatchFigures())

    def _count(self, shard: int, seconds: float) -> None:
        figures, spent = self._figures_of(shard), round(seconds * 1000)
        figures.batches += 1
        figures.last_ms = {"triggerExecution": spent}
        figures.total_ms["triggerExecution"] = figures.total_ms.get("triggerExecution", 0) + spent

    def _ended(self, error: BaseException) -> None:
        """What came first is the reason: after that the others find nothing to work with."""
        self._failure = self._failure or error
