"""The model of a project as a graph with rates, and what limits it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lockstep.console.count_rates import Rates
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.runtime.control.status import ACTIVE, ProjectStatus

WAIT_S = 2.0
"""A backlog that takes longer than this to clear, at the recent rate, counts as behind."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a project's events wait."""

    at: str
    """nothing, input, engines, output, stopped, no engine or unknown."""
    sentence: str
    window: str | None = None
    """The window with the most events, if the engines limit."""


def limit_of(status: ProjectStatus, rates: Rates | None, waiting: int) -> Limit:
    """What limits a project: where more waits than is done in a second. `waiting`: records on its inputs."""
    active = next((row for row in status.engines if row.role == ACTIVE), None)
    if active is None:
        return Limit("no engine", f"No engine is active: {waiting:,} records wait on the inputs.")
    if status.state == "stopped":
        return Limit("stopped", f"The project is stopped: {waiting:,} records wait on the inputs.")
    if rates is None:
        return Limit("unknown", "Not measured yet: rates need two looks, a second apart.")
    uncomputed, unpublished = active.lag_blocks, max(0, active.block - status.published)
    if uncomputed > rates.blocks * WAIT_S and uncomputed >= unpublished:
        busiest = _busiest(rates)
        most = f" Window {busiest} has the most events." if busiest else ""
        words = f"The engines limit: {uncomputed:,} blocks are decided and not computed yet by {active.engine}.{most}"
        return Limit("engines", words, busiest)
    if unpublished > rates.blocks * WAIT_S:
        return Limit("output", f"The bus limits: {unpublished:,} blocks are computed and not published yet.")
    if waiting > rates.events * WAIT_S:
        return Limit(
            "input", f"{waiting:,} records wait on the inputs, and {rates.events:,.0f} a second are published."
        )
    return Limit("nothing", "Nothing limits: what comes in is out within two seconds.")


def _busiest(rates: Rates) -> str | None:
    work = {path: rates.taken.get(path, 0.0) + rates.made.get(path, 0.0) for path in {**rates.taken, **rates.made}}
    return max(work, key=lambda path: (work[path], path), default=None) if any(work.values()) else None


def graph_tree(
    status: ProjectStatus, graph: Graph, published: frozenset[str], rates: Rates | None, waiting: Mapping[str, int]
) -> dict[str, Any]:
    """Windows as nodes, and the events between them a second. `waiting`: records on the input of each source."""
    counted = {row["window"]: row for row in status.windows()}
    limit = limit_of(status, rates, sum(waiting.values()))
    return {
        "limit": {"at": limit.at, "sentence": limit.sentence, "window": limit.window},
        "nodes": [_node(status, node, counted.get(node.path), published, limit) for node in graph.nodes],
        "edges": [_edge(graph, node, parent.node, rates) for node in graph.nodes for parent in node.parents],
        "sources": [{"window": path, "waiting": count,
                     "rate": None if rates is None else rates.taken.get(path)} for path, count in waiting.items()],
    }  # fmt: skip


def _node(
    status: ProjectStatus, node: Node, counts: Mapping[str, Any] | None, published: frozenset[str], limit: Limit
) -> dict[str, Any]:
    is_limiting = node.path == limit.window
    rows = "rows unknown" if counts is None else f"{counts['rows']:,} rows"
    return {
        "id": node.path, "label": node.window.name, "kind": node.window.kind,
        "note": f"{node.window.kind}, {'limits' if is_limiting else rows}", "state": "limiting" if is_limiting else "",
        "link": window_link(status.project, node), "rows": None if counts is None else counts["rows"],
        "is_published": node.path in published,
        "bad": None if counts is None else sum(counts["bad"].values()),
    }  # fmt: skip


def _edge(graph: Graph, node: Node, parent: int, rates: Rates | None) -> dict[str, Any]:
    """What a window gives goes to all that follow it."""
    path = graph.nodes[parent].path
    rate = None if rates is None else rates.made.get(path)
    return {"from": path, "to": node.path, "rate": rate, "label": rate_text(rate)}


def rate_text(rate: float | None) -> str:
    """A rate as the edge of a graph has it."""
    if rate is None:
        return "-"
    return f"{rate:,.0f}/s" if rate >= 10 or rate == 0 else f"{rate:.1f}/s"


def window_link(project: str, node: Node) -> str:
    """The page of a window."""
    query, name = quote(node.query, safe=""), quote(node.window.name, safe="")
    return f"/projects/{quote(project, safe='')}/windows/{query}/{name}"
