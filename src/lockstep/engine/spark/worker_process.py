"""The workers of one of Spark's Python processes: Spark reuses processes, but hands nothing from a task to the next."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence

from lockstep.engine.compute.workers import HotWorkers, WorkDone
from lockstep.engine.runtime.sequence.outages import BUS_AWAY, Pauses
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.format import Pages
from lockstep.log.port import Bus
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

WHOLE_S = 60.0
"""How often garbage is looked for everywhere."""
_buses: dict[str, Bus] = {}


def _bus(url: str) -> Bus:
    if url not in _buses:
        _buses[url] = open_bus(url, ThreadRuntime(), create=False)
    return _buses[url]


WORKERS = HotWorkers(_bus)


def run_orders_patiently(
    setup: EngineSetup,
    shard: int,
    orders: Sequence[tuple[int, int]],
    stored: Callable[[], Mapping[str, bytes]],
    stored_head: Callable[[], bytes | None],
) -> tuple[Pages, WorkDone]:
    """Evaluate orders; while the bus is away the task waits, for to Spark a failed one is a reason to give up."""
    _COLLECTOR.spare(is_fresh=(setup.folder, shard) not in WORKERS.held)
    pauses = Pauses(f"the worker of shard {shard}")
    while True:
        try:
            pages = WORKERS.run(setup, shard, orders, stored, stored_head)
            return pages, WORKERS.done[setup.folder, shard]
        except BUS_AWAY as error:
            time.sleep(pauses.after(error))


class Collector:
    """Lets Python's garbage collector leave alone what has been there for a while.

    Spark has it go through every object of a process after each task, twice in a batch: with compiled loops, pandas
    and pyarrow in the process that takes longer than all the rest of a small batch. Now and then it does look at
    everything.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._whole_at = monotonic()

    def spare(self, *, is_fresh: bool) -> None:
        """To be called when a task begins, so after a collection. `is_fresh`: if there is a state before, it goes."""
        now = self._monotonic()
        if is_fresh or now - self._whole_at >= WHOLE_S:
            self._whole_at = now
            gc.unfreeze()
        else:
            gc.freeze()


_COLLECTOR = Collector()
