"""Micro-batches in the engine's own process: the same workers and windows as on Spark, without a JVM.

Each shard is a thread. What Spark keeps in its checkpoint is an LMDB file for each shard: the pages of the last
snapshot, and how far batches were committed, in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import lmdb
from google_crc32c import value as crc32c

from lockstep.engine.compute.planner import BatchPlanner, Offset, SequenceTail
from lockstep.engine.compute.port import STATE_FILE, BatchFigures, Compute, check_runner
from lockstep.engine.compute.workers import HotWorkers
from lockstep.engine.errors import ComputeFailed, SnapshotDamaged
from lockstep.engine.runtime.sequence.outages import BUS_AWAY, through_outages
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.format import HEAD, Pages, seal, unseal
from lockstep.errors import LockstepError, TimedOut
from lockstep.log.port import Bus, LogWaiter
from lockstep.runtime import Runtime, Task, Waiter, logger

IDLE_S, BUSY_S = 0.1, 0.02
"""How often a shard looks for more without being woken: on its own, and while the publisher lags."""
_MAP_BYTES = 64 << 30
"""Only what is used takes room on the disk."""
_OFFSET = b"offset"
_PAGE = b"page "
_SUM_BYTES = 4
_BATCH_S_MAX, _OLD_BATCH_S_MAX = 10.0, 300.0
"""How long a batch that runs is waited for: at a stop, and before its shard is evaluated anew."""


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
    """A batch that was planned and not committed is planned anew by the next process.

    LMDB has no checksums: each page is stored with one of its name and content, and the offset with one of all of them.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / STATE_FILE
        with self._errors():
            folder.mkdir(parents=True, exist_ok=True)
            self._environment = lmdb.open(str(self._path), subdir=False, map_size=_MAP_BYTES, mode=0o600)
        self._check_size()
        self._sums: dict[str, bytes] = {}
        """The checksums of pages by their names."""
        self.planned = self.committed = self._load()

    def pages(self) -> dict[str, bytes]:
        found = self._stored_pages()
        if {name: page[:_SUM_BYTES] for name, page in found.items()} != self._sums:
            raise self._damaged()
        return {name: page[_SUM_BYTES:] for name, page in found.items()}

    def head(self) -> bytes | None:
        with self._errors(), self._environment.begin() as transaction:
            found = transaction.get(_PAGE + HEAD.encode())
        return None if found is None else bytes(found[_SUM_BYTES:])

    def plan(self, offset: Offset) -> None:
        self.planned = offset

    def commit(self, pages: Pages) -> None:
        sums = {**self._sums, **{name: _sum(name, page) for name, page in pages.items() if page is not None}}
        sums = {name: found for name, found in sums.items() if pages.get(name, b"") is not None}
        with self._errors(), self._environment.begin(write=True) as transaction:
            for name, page in pages.items():
                if page is None:
                    transaction.delete(_PAGE + name.encode())
                else:
                    transaction.put(_PAGE + name.encode(), sums[name] + page)
            transaction.put(_OFFSET, seal(_sum_of_all(sums) + json.dumps(self.planned).encode()))
        self._sums, self.committed = sums, self.planned

    def close(self) -> None:
        self._environment.close()

    def _load(self) -> Offset | None:
        """Check everything that is stored, and return how far it is."""
        with self._errors(), self._environment.begin() as transaction:
            stored = transaction.get(_OFFSET)
        pages = self._stored_pages()
        self._sums = {name: page[:_SUM_BYTES] for name, page in pages.items()}
        if stored is None and not pages:
            return None
        body = unseal(bytes(stored or b""), str(self._path))
        if body[:_SUM_BYTES] != _sum_of_all(self._sums):
            raise self._damaged()
        for name, page in pages.items():
            if _sum(name, page[_SUM_BYTES:]) != page[:_SUM_BYTES]:
                raise self._damaged()
        found: Offset = json.loads(body[_SUM_BYTES:])
        return found

    def _stored_pages(self) -> dict[str, bytes]:
        found = {}
        with self._errors(), self._environment.begin() as transaction:
            cursor = transaction.cursor()
            is_page = cursor.set_range(_PAGE)
            while is_page and cursor.key().startswith(_PAGE):
                found[cursor.key().removeprefix(_PAGE).decode(errors="replace")] = bytes(cursor.value())
                is_page = cursor.next()
        return found

    def _check_size(self) -> None:
        """Reading beyond the end of a file that was cut off would end the process."""
        with self._errors():
            used = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
        if self._path.stat().st_size < used and used > self._environment.stat()["psize"] * 2:
            raise self._damaged()

    def _damaged(self) -> SnapshotDamaged:
        return SnapshotDamaged(place=str(self._path), reason="its checksum does not match")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError) as error:
            raise SnapshotDamaged(place=str(self._path), reason=str(error)) from error


def _sum(name: str, page: bytes) -> bytes:
    checksum: int = crc32c(name.encode() + b"\0" + page)
    return checksum.to_bytes(_SUM_BYTES, "little")


def _sum_of_all(sums: Mapping[str, bytes]) -> bytes:
    checksum: int = crc32c(b"".join(sums[name] for name in sorted(sums)))
    return checksum.to_bytes(_SUM_BYTES, "little")


class LocalCompute(Compute):
    """Shards share one process, so more of them are no faster; the answer is the same."""

    def __init__(self, setup: EngineSetup, project: str, divided: frozenset[str], bus: Bus, runtime: Runtime) -> None:
        super().__init__(setup, project, divided)
        self._bus, self._runtime = bus, runtime
        self._workers = HotWorkers(lambda _url: bus)
        self._planners: dict[int, BatchPlanner] = {}
        self._checkpoints: dict[int, Checkpoint] = {}
        self._tasks: dict[int, Task] = {}
        self._waiters: list[LogWaiter] = []
        self._failure: BaseException | None = None
        self._figures: dict[int, BatchFigures] = {}

    def open(self, inherit: Sequence[int]) -> None:  # noqa: ARG002 - there is no other process
        """Check the folder; nothing has to be started."""
        check_runner(Path(self.setup.folder), "local")

    def start(self) -> None:
        for task in self._tasks.values():
            task.stop(_OLD_BATCH_S_MAX)  # a long batch of before a restart: two must not write one checkpoint
        self._close_checkpoints()
        for shard in range(self.setup.shards):
            self._planners[shard] = self._planner(shard)
            step = through_outages(f"shard {shard}", partial(self.step, shard))
            self._tasks[shard] = self._runtime.spawn(f"lockstep-shard-{shard}", step, self._waiter(), self._ended)

    def works_here(self) -> bool:
        return True

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def figures(self) -> Mapping[str, BatchFigures]:
        return {f"lockstep-{shard}": figures for shard, figures in list(self._figures.items())}

    def batches_done(self) -> int:
        return min((self._figures_of(shard).batches for shard in range(self.setup.shards)), default=0)

    def stop_queries(self) -> None:
        self.setup.end_orders()
        end = self._runtime.monotonic() + _BATCH_S_MAX
        for shard, task in list(self._tasks.items()):
            try:
                task.stop(max(0.0, end - self._runtime.monotonic()))
            except TimedOut:
                words = "A batch of shard %d takes long: the engine does not wait for it any more"
                logger.warning(words, shard, extra={"action": "stop"})
            else:
                del self._tasks[shard]
        if not self._tasks:
            self._close_checkpoints()

    def stop(self) -> None:
        self.stop_queries()
        self._workers.forget(self.setup.folder)

    def _close_checkpoints(self) -> None:
        self._tasks.clear()
        for waiter in self._waiters:
            waiter.close()
        self._waiters.clear()
        for checkpoint in self._checkpoints.values():
            checkpoint.close()
        self._checkpoints.clear()

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
        """Wakes a shard when something was decided; while the bus is away it looks now and then."""
        waiter = self._bus.waiter()
        self._waiters.append(waiter)
        with suppress(*BUS_AWAY):
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
        if isinstance(error, OSError | MemoryError | lmdb.Error) and not isinstance(error, LockstepError):
            failed = ComputeFailed(project=self.project, reason=str(error) or type(error).__name__)
            failed.__cause__ = error
            error = failed
        self._failure = self._failure or error
