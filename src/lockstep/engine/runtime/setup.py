"""What a worker must know to evaluate a project: plain values, so that they can travel to any process."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import parse_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.sequence.streams import ProjectStreams


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSetup:
    """One engine of one project.

    `folder` holds what belongs to this engine alone: Spark's checkpoint, the spool, a lock. `host` is where it is.
    """

    url: str
    cluster: str
    model: str
    """The project as YAML."""
    wanted: tuple[str, ...]
    """Paths of the windows whose blocks are published."""
    folder: str
    host: str
    incarnation: str
    shards: int = 1
    batch_events: int = 600_000
    """A micro-batch takes about this many events at most."""
    snapshot_every_s: float = 10.0
    buffer_blocks: int = 1_000_000
    buffer_bytes: int = 512 << 20
    """What may wait to be published; then nothing new is computed until some is."""
    belongs: str = ""
    """The identity of the sequence log: snapshots of another one are refused."""
    seed: str | None = None
    """The persisted snapshot to begin with if Spark has no state: FOLDER/NAME."""
    first: int = 0
    """The entry behind which a new checkpoint begins."""
    known: Mapping[str, Any] | None = None
    """The position of the state that this engine has, as plain values: its orders begin there or later."""
    is_history: bool = False
    """A batch job over everything: nothing counts as published, and no snapshots are taken."""

    def graph(self) -> Graph:
        """The model, compiled."""
        return compile_project(parse_yaml(self.model, "the engine's model"))

    def streams(self, graph: Graph) -> ProjectStreams:
        """Where its events come from and go to."""
        return ProjectStreams(cluster=self.cluster, project=graph.project.name)

    def spool(self, shard: int) -> Path:
        """Where a shard leaves its output; nobody reuses what an earlier process left."""
        return Path(self.folder) / "spool" / self.incarnation / str(shard)

    @property
    def parts(self) -> Path:
        """Where shards that are on this machine leave pieces of input for each other."""
        return Path(self.folder) / "spool" / self.incarnation / f"parts-{socket.gethostname()}"

    def end_orders(self) -> None:
        """Let no batch of this incarnation begin any more; the process that plans them looks at the disk."""
        with suppress(OSError):  # a full disk: what runs is stopped all the same
            self._ended.parent.mkdir(parents=True, exist_ok=True)
            self._ended.touch()

    def orders_ended(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._ended.exists()

    @property
    def _ended(self) -> Path:
        return Path(self.folder) / "spool" / self.incarnation / "ended"

    @property
    def staging(self) -> Path:
        """Where workers put whole snapshots that wait until everything up to them is published."""
        return Path(self.folder) / "staging" / self.incarnation

    def text(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> EngineSetup:
        """Back from JSON."""
        fields = json.loads(text)
        return cls(**{**fields, "wanted": tuple(fields["wanted"])})
