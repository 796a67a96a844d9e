"""Engines in a program of your own: run a model on the streams of a bus, publish events to it, read what comes out.

Data frames are in `lockstep.engine.spark`, which needs Spark; an engine with `runner="local"` does not.
"""

from __future__ import annotations

from lockstep.engine.runtime.control.options import EngineOptions, EngineStatus
from lockstep.engine.runtime.engine import Engine
from lockstep.engine.runtime.output.event_streams import EventPublisher, out_batches

__all__ = ["Engine", "EngineOptions", "EngineStatus", "EventPublisher", "out_batches"]
