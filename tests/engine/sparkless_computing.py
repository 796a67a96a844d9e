"""A stand-in for Spark in an engine's own process: its threads, its bus and its disk are real. See local_spark.py."""

from __future__ import annotations

import pickle
from pathlib import Path

from local_spark import Checkpoint, Disk, LocalComputing

from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.spark.orders import OrderReader
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime


class SparklessComputing(LocalComputing):
    """See LocalComputing; its threads are real, and so are its bus and its disk."""

    def __init__(self, setup: EngineSetup, project: str, divided: frozenset[str]) -> None:
        runtime = ThreadRuntime()
        bus = open_bus(setup.url, runtime, create=False)
        super().__init__(setup, project, divided, runtime, bus, Disk(Path(setup.folder)))
        self._kept: dict[int, Checkpoint] = {}

    def order_reader(self, shard: int) -> OrderReader:
        return OrderReader(self.setup.text(), shard)

    def checkpoint(self, shard: int) -> Checkpoint:
        """The one on disk, or a new one if its folder was removed."""
        file = self._file(shard)
        if not file.parent.exists():
            file.parent.mkdir(parents=True)
            self._kept[shard] = Checkpoint()
        elif shard not in self._kept:
            self._kept[shard] = pickle.loads(file.read_bytes()) if file.exists() else Checkpoint()
        return self._kept[shard]

    def must_wait(self, shard: int) -> bool:
        """A batch is written down before it runs."""
        self._save(shard)
        return super().must_wait(shard)

    def counted(self) -> None:
        """A batch is done."""
        for shard in self._kept:
            self._save(shard)
        super().counted()

    def _save(self, shard: int) -> None:
        part = self._file(shard).with_suffix(".part")
        part.write_bytes(pickle.dumps(self._kept[shard]))
        part.replace(self._file(shard))

    def _file(self, shard: int) -> Path:
        return Path(self.setup.folder) / "checkpoint" / str(shard) / "batch.pickle"
