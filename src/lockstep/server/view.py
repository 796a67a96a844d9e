"""What REST needs of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from lockstep.engine.model.graph import Graph
from lockstep.engine.runtime.control.reports import Report
from lockstep.engine.runtime.requests.channel import Reply
from lockstep.log.port import Bus


class EngineView(Protocol):
    """An engine as REST sees it. Called from several threads at once; no call but `ask` may wait."""

    engine: str
    cluster: str

    def graph(self) -> Graph:
        """The model in force."""

    def report(self) -> Report:
        """How the engine is, now."""

    def heard(self) -> Mapping[str, float]:
        """For how many seconds it has heard nothing of engines of the project, where it knows that."""

    def bus(self) -> Bus:
        """Where its streams are."""

    def published(self) -> frozenset[str]:
        """The paths of the windows with an out stream."""

    def ask(self, kind: str, params: Mapping[str, Any], timeout_s: float) -> Reply:
        """Send a request to the project's active engine over the bus; raises the error that it replies with."""
