"""The connectors of a model, beside an engine that runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.connectors.mailer import Mailer
    from lockstep.connectors.running import Connectors
    from lockstep.engine.model.graph import Graph, Node
    from lockstep.engine.runtime.control.options import OnStatus
    from lockstep.engine.runtime.engine import Engine
    from lockstep.engine.runtime.sequence.streams import ProjectStreams
    from lockstep.streams.client import Lockstep


def with_subscribed(graph: Graph, published: Sequence[Node]) -> list[Node]:
    """The windows to be published, and those from which connectors take events."""
    from lockstep.connectors.planning import subscribed_windows

    chosen = {node.path for node in published} | subscribed_windows(graph)
    return [node for node in graph.nodes if node.path in chosen]


def prepared(graph: Graph, client: Lockstep, options: argparse.Namespace, wanted: frozenset[str]) -> Connectors:
    """The connectors, checked, before the engine starts; an error for one that can't be run."""
    from lockstep.connectors.running import Connectors
    from lockstep.engine.model.variables import with_home

    bound: frozenset[str] = getattr(options, "bound_connectors", frozenset())
    environ = with_home(os.environ, options.model)
    made = Connectors(graph, client, options.cluster, environ, bound=bound)
    made.prepare(wanted)
    return made


@contextmanager
def connected(connectors: Connectors, engine: Engine) -> Iterator[None]:
    """Run them while this engine leads."""
    from lockstep.engine.runtime.control.leadership import ACTIVE

    connectors.start(lambda: engine.role == ACTIVE)
    try:
        yield
    finally:
        connectors.stop()


@contextmanager
def mailing(client: Lockstep, streams: ProjectStreams) -> Iterator[Mailer]:
    """Send what notification windows decide, with the carriers of the other engines."""
    from lockstep.connectors.mailer import Mailer

    mailer = Mailer(client, streams, os.environ)
    try:
        yield mailer
    finally:
        mailer.stop()


def drained(connectors: Connectors, engine: Engine, tell: OnStatus) -> None:
    """Return when sources that have an end were read, everything is out, and was sent."""
    engine.run_until(lambda _: connectors.have_read, progress=tell)
    engine.drain(progress=tell)
    published = connectors.published()
    engine.run_until(lambda _: connectors.have_sent(published), progress=tell)
