"""An engine's figures as Prometheus sees them, and what the reference says about them."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from lockstep.engine.compute.port import BatchFigures
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.control.metrics import EngineMetrics
from lockstep.engine.runtime.engine import EngineStatus
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.spark.compute import FigureListener

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "engine-metrics.md"


def status() -> EngineStatus:
    counts = {"q/in": WindowCounts(3, 5, 4, {"null-key": 1})}
    figures = {"lockstep-0": BatchFigures(2, {}, {"addBatch": 1500}, 4096)}
    return EngineStatus(SequencePosition(block=9), 7, 12, counts, {"unparsable": 4}, 0.5, figures)


def test_every_figure_is_exposed():
    registry = CollectorRegistry()
    registry.register(EngineMetrics("p", status))
    text = generate_latest(registry).decode()
    assert 'lockstep_engine_lag_blocks{project="p"} 2.0' in text
    assert 'lockstep_engine_window_rows{project="p",window="q/in"} 3.0' in text
    assert 'lockstep_engine_bad_events_total{project="p",reason="null-key",window="q/in"} 1.0' in text
    assert 'lockstep_engine_bad_records_total{project="p",reason="unparsable"} 4.0' in text
    assert 'lockstep_engine_batch_seconds_total{part="addBatch",project="p",query="lockstep-0"} 1.5' in text


def test_the_reference_names_exactly_these():
    written = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]+) \|", PAGE.read_text(), re.MULTILINE)
    found = [(item.name, item.type, ", ".join(item._labelnames)) for item in EngineMetrics("p", status).collect()]
    assert sorted(written) == sorted(found)


def test_the_listener_sums_up_batches():
    listener = FigureListener()
    text = '{"name": "q", "durationMs": {"addBatch": 40}, "stateOperators": [{"memoryUsedBytes": 7}]}'
    listener.take(text)
    listener.take(text)
    figures = listener.figures()["q"]
    assert (figures.batches, figures.total_ms, figures.state_bytes) == (2, {"addBatch": 80}, 7)
