"""State that stays hot in a Python worker between Spark's tasks.

Spark reuses worker processes, but hands nothing from one task to the next; so this module keeps the workers of this
process. A worker is taken out before it is used: one that failed in the middle is never seen again. An engine that
computes again begins a new incarnation in the same folder; its workers take the place of the old ones, whose state is
let go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lockstep.engine.run.kept import note_kept
from lockstep.engine.run.outages import BUS_AWAY, Pauses
from lockstep.engine.run.persisting import SnapshotStore
from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.run.snapshot import Pages
from lockstep.engine.run.spool import Spool
from lockstep.engine.run.worker import ShardWorker
from lockstep.errors import LockstepError
from lockstep.log.port import Bus
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

_workers: dict[tuple[str, int], tuple[str, ShardWorker]] = {}
"""By the engine's folder and shard: for which incarnation, and the worker."""
_buses: dict[str, Bus] = {}


def run_orders(
    setup: EngineSetup,
    shard: int,
    orders: Sequence[tuple[int, int]],
    stored: Callable[[], Mapping[str, bytes]],
    stored_head: Callable[[], bytes | None],
) -> Pages:
    """Evaluate orders with a hot worker if it is where they begin, else with one made from the stored pages.

    A worker whose pages were handed out, but never stored because the task failed behind it, would store only what
    changed since: it is recognised by the head, and not used again.
    """
    place = (setup.folder, shard)
    incarnation, worker = _workers.pop(place, ("", None))
    pages: dict[str, bytes | None] = {}

    def handed_out() -> Pages:
        return {**stored(), **pages}

    try:
        if worker is None or incarnation != setup.incarnation or not _is_at(worker, orders[0][0], stored_head()):
            worker = None  # its state goes before the next one is loaded
            found = stored()
            if not found and setup.seed is not None:
                found = read_seed(setup, setup.seed, shard)
                pages |= found  # Spark keeps it from now on
            worker = ShardWorker(setup, shard, _bus(setup.url), ThreadRuntime(), found)
        elif worker.kept is not None:  # what it handed out last time is in Spark's hands
            note_kept(setup, shard, worker.kept)
            worker.kept = None
        for start, stop in orders:
            pages |= worker.run(start, stop, handed_out)
    except BUS_AWAY:  # a new worker goes on from the last snapshot when it is back
        raise
    except LockstepError as error:
        Spool(setup.spool(shard)).fail(error)
        raise
    _workers[place] = setup.incarnation, worker
    return pages


def _is_at(worker: ShardWorker, number: int, stored_head: bytes | None) -> bool:
    return (worker.position.number, worker.stored_head) == (number, stored_head)


def run_orders_patiently(
    setup: EngineSetup,
    shard: int,
    orders: Sequence[tuple[int, int]],
    stored: Callable[[], Mapping[str, bytes]],
    stored_head: Callable[[], bytes | None],
) -> Pages:
    """As run_orders; while the bus is away Spark's task waits, for to Spark a failed one is a reason to give up."""
    pauses = Pauses(f"the worker of shard {shard}")
    while True:
        try:
            return run_orders(setup, shard, orders, stored, stored_head)
        except BUS_AWAY as error:
            time.sleep(pauses.after(error))


def read_seed(setup: EngineSetup, seed: str, shard: int) -> dict[str, bytes]:
    """The pages of the persisted snapshot that an engine is to begin with."""
    store = SnapshotStore(Path(seed).parent, setup.belongs)
    return store.load(store.find(Path(seed).name, setup.shards), shard)


def _bus(url: str) -> Bus:
    if url not in _buses:
        _buses[url] = open_bus(url, ThreadRuntime(), create=False)
    return _buses[url]
