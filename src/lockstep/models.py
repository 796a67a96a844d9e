"""Models of projects: written in Python or read from files, checked, and evaluated one event after the other.

`lockstep model run` and `lockstep engine run` take the same models; `lockstep.engines` runs them in a program.
"""

from __future__ import annotations

from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model.builder import (
    ProjectBuilder,
    QueryBuilder,
    Stream,
    email,
    jumping,
    jumping_rows,
    lookback,
    pattern,
    plug,
    sliding,
    sliding_rows,
)
from lockstep.engine.model.changes import compare, refusals
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import load_model, parse_model, parse_yaml, write_model
from lockstep.engine.model.project import Project
from lockstep.engine.model.validation import cautions, compile_project, faults
from lockstep.engine.reference.interpreter import Interpreter

__all__ = [
    "Event",
    "FieldType",
    "Flag",
    "Graph",
    "InputBlock",
    "Interpreter",
    "Opcode",
    "Project",
    "ProjectBuilder",
    "QueryBuilder",
    "Schema",
    "Stream",
    "cautions",
    "compare",
    "compile_project",
    "email",
    "faults",
    "jumping",
    "jumping_rows",
    "load_model",
    "lookback",
    "parse_model",
    "parse_yaml",
    "pattern",
    "plug",
    "refusals",
    "sliding",
    "sliding_rows",
    "write_model",
]
