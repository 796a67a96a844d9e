"""What can be asked about a project: its queries, windows, schemas and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import to_yaml
from lockstep.errors import BadArgument, NotFound

WHAT = ("project", "queries", "windows", "schema", "model")


def describe(graph: Graph, published: frozenset[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a query: `what` is one of WHAT, `window` the path of a window for its schema."""
    what = params.get("what", "project")
    if what not in WHAT:
        raise BadArgument(name="what", value=what, reason=f"it is one of {', '.join(WHAT)}")
    windows = [_window(node, published) for node in graph.nodes]
    match what:
        case "queries":
            return {"queries": [query.name for query in graph.project.queries]}
        case "windows":
            return {"windows": windows}
        case "schema":
            return _schema(windows, str(params.get("window", "")))
        case "model":
            return {"fingerprint": graph.fingerprint, "model": to_yaml(graph.project)}
    queries = [query.name for query in graph.project.queries]
    return {"project": graph.project.name, "fingerprint": graph.fingerprint, "queries": queries, "windows": windows}


def _window(node: Node, published: frozenset[str]) -> dict[str, Any]:
    return {
        "window": node.path,
        "kind": node.window.kind,
        "schema": str(node.schema),
        "source": node.is_source,
        "published": node.path in published,
    }


def _schema(windows: list[dict[str, Any]], path: str) -> dict[str, Any]:
    found = [window for window in windows if path in (window["window"], window["window"].rpartition("/")[2])]
    if len(found) != 1:
        known = ", ".join(window["window"] for window in windows)
        error = NotFound(what="Window", name=path)
        error.add_note(f"There are: {known}.")
        raise error
    return {"window": found[0]["window"], "schema": found[0]["schema"]}
