"""REST beside an engine that runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.engine.model.graph import Graph
    from lockstep.engine.run.asking import Reply
    from lockstep.engine.run.reports import Report
    from lockstep.engine.spark.engine import Engine
    from lockstep.log.port import Bus


class View:
    """An engine as REST sees it."""

    def __init__(self, engine: Engine, bus: Bus) -> None:
        self._engine, self._bus = engine, bus
        self.engine, self.cluster = engine.name, engine.streams.cluster

    def graph(self) -> Graph:
        """The model in force."""
        return self._engine.graph

    def report(self) -> Report:
        """How the engine is, now."""
        return self._engine.report()

    def bus(self) -> Bus:
        """Where its streams are."""
        return self._bus

    def published(self) -> frozenset[str]:
        """The windows with an out stream."""
        return self._engine.wanted

    def ask(self, kind: str, params: Mapping[str, Any], timeout_s: float) -> Reply:
        """Ask whoever leads, over the bus."""
        from lockstep.engine.run.asking import Asker
        from lockstep.runtime import ThreadRuntime

        return Asker(self._bus, self._engine.streams, ThreadRuntime()).ask(kind, params, timeout_s=timeout_s)


@contextmanager
def served(engine: Engine, bus: Bus, options: argparse.Namespace) -> Iterator[None]:
    """Serve REST while the engine runs, if it is asked for."""
    if options.http is None:
        yield
        return
    from lockstep.server import read_token, serve

    token = read_token(options.token_file) if options.token_file else None
    root = Path(options.persist_to or options.state or Path.cwd())
    server = serve(View(engine, bus), host=options.http_host, port=options.http, token=token, root=root)
    engine.http = server.url
    try:
        yield
    finally:
        server.stop()
