"""Checks of connectors, as far as they decide whether an answer is the same on every engine."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.engine.model.checks_survey import Placed, Survey
from lockstep.engine.model.faults import Findings, duplicates
from lockstep.engine.model.windows import Connector, SourceWindow, Window

_FORMATS = {"kafka": "kafkatype", "rmq": "rmqtype", "rabbitmq": "rmqtype", "sol": "soltype", "tva": "tvatype"}
_YES = ("true", "1", "yes")
ANY_PARTITION = "-1"
"""Of Kafka: the client chooses one for each message."""


def check_connectors(seen: Survey, findings: Findings) -> None:
    """Each connector, and streams of different partitions that meet."""
    for placed in seen.windows:
        for name in duplicates(connector.name for connector in placed.window.connectors):
            problem = f"Two of its connectors are called {name!r}."
            findings.add(placed.path, problem, "Give each a name of its own.")
        for connector in placed.window.connectors:
            place = f"{placed.path} connector {connector.name}"
            _check_partition(connector, place, is_publisher(placed.window, connector), findings)
            _check_failover(connector, place, findings)
    _check_meetings(seen, findings)


def _check_partition(connector: Connector, place: str, publishes: bool, findings: Findings) -> None:
    properties = dict(connector.properties)
    text = properties.get("kafkapartition", "0").strip()
    if connector.kind != "kafka" or (text.isdecimal() and text.isascii()) or not connector.active:
        return
    problem = f"It has kafkapartition {text}."
    if text == ANY_PARTITION and publishes:
        problem = "It takes every partition (kafkapartition -1), whose order differs from engine to engine."
    elif text == ANY_PARTITION:
        if not is_failover(properties):
            return
        problem = "It has hotfailover, and writes to any partition (kafkapartition -1)."
    findings.add(place, problem, "Name one fixed partition, 0 for example.")


def _check_failover(connector: Connector, place: str, findings: Findings) -> None:
    properties = dict(connector.properties)
    if not is_failover(properties):
        return
    name = _FORMATS.get(connector.kind)
    form = properties.get(name, "csv") if name is not None else "binary"
    if form.strip().lower() != "binary":
        problem = f"It has hotfailover with the format {form!r}, which carries no block numbers."
        findings.add(place, problem, f"Set {name} to binary.")
    if "kafkaconsumergroupid" in properties:
        problem = "It has hotfailover with a kafkaconsumergroupid, which would share the blocks out among the engines."
        findings.add(place, problem, "Take kafkaconsumergroupid away.")


def is_failover(properties: Mapping[str, str]) -> bool:
    """Whether a connector is one of several that stand in for each other."""
    return properties.get("hotfailover", "false").strip().lower() in _YES


def is_publisher(window: Window, connector: Connector) -> bool:
    """Whether a connector brings events in; without a word about it, a source window's does."""
    said = (connector.direction or dict(connector.properties).get("type", "")).lower()
    return said.startswith("pub") if said else isinstance(window, SourceWindow)


def _check_meetings(seen: Survey, findings: Findings) -> None:
    """Blocks of different partitions come in any order, so what is made of both would differ from run to run."""
    reached: dict[int, dict[str, str]] = {}
    for placed in seen.windows:
        own = _partitions(placed)
        above = [reached[parent] for parent in placed.parents]
        reached[placed.index] = {**own, **{key: text for parent in above for key, text in parent.items()}}
        all_here = reached[placed.index]
        if len(all_here) > 1 and not any(len(parent) == len(all_here) for parent in above):
            streams = " and ".join(f"partition {key} ({text})" for key, text in sorted(all_here.items()))
            problem = f"Streams of different partitions meet here: {streams}."
            remedy = "Let both connectors read the same partition, or keep the streams apart."
            findings.add(placed.path, problem, remedy)


def _partitions(placed: Placed) -> dict[str, str]:
    return {
        dict(connector.properties).get("kafkapartition", "0").strip(): f"{placed.path}/{connector.name}"
        for connector in placed.window.connectors
        if connector.kind == "kafka" and connector.active and is_publisher(placed.window, connector)
    }
