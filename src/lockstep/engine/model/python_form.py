"""Projects as Python code that builds them, and the projects that such code builds."""

from __future__ import annotations

import runpy
import traceback
from pathlib import Path

from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model.builder import ProjectBuilder
from lockstep.engine.model.builder_parts import MODEL_MODULE
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.python_form_code import Code, call, quoted, text_block, variable, window_code
from lockstep.errors import LockstepError

_OPTIONS = (
    "pubsub",
    "threads",
    "index",
    "heartbeat_us",
    "restore",
    "disk_store_path",
    "retention_tracking",
    "use_tagged_token",
    "compress_open_patterns",
    "port",
    "metadata",
    "description",
)
_QUERY_OPTIONS = ("trace", "index", "timing_threshold", "include_singletons", "metadata", "description")


def run_model(path: Path) -> Project:
    """The project that a Python file builds as `project`.

    The file is run: it is code that its user chose to trust, like any other program.
    """
    try:
        found = runpy.run_path(str(path), run_name=MODEL_MODULE).get("project")
    except (LockstepError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        line, column = _place(error, path)
        reason = f"it failed with {type(error).__name__}: {error}"
        raise ModelUnreadable(
            source=str(path), line=line, column=column, reason=reason, remedy="Fix the code there."
        ) from error
    if isinstance(found, ProjectBuilder):
        return found.build()
    if not isinstance(found, Project):
        remedy = "Assign a ProjectBuilder or a Project to the name project."
        raise ModelUnreadable(source=str(path), line=1, column=1, reason="it has no project", remedy=remedy)
    return found


def _place(error: BaseException, path: Path) -> tuple[int, int]:
    if isinstance(error, SyntaxError):
        return error.lineno or 1, error.offset or 1
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return (lines[-1] or 1) if lines else 1, 1


def to_python(project: Project) -> str:
    """The project as a Python file; run_model gives it back."""
    code = Code()
    code.needs("builder", "ProjectBuilder")
    head = call("ProjectBuilder", [code.literal(project.name)], code.options(project, _OPTIONS))
    lines = [f"project = {head}"]
    for group in project.connector_groups:
        entries = tuple((entry.connector, entry.state) for entry in group.entries)
        lines.append(call("project.connector_group", [quoted(group.name), code.literal(entries)]))
    lines += [
        call("project.connector_edge", [quoted(edge.source), quoted(edge.target)]) for edge in project.connector_edges
    ]
    taken = {"project"}
    for query in project.queries:
        lines += ["", *_query(query, code, taken)]
    title = text_block(f"The model {project.name}.")
    return "\n".join([title, "", "from __future__ import annotations", "", *code.imports(), "", *lines, ""])


def _query(query: ContinuousQuery, code: Code, taken: set[str]) -> list[str]:
    name = variable("query", taken)
    head = call("project.query", [code.literal(query.name)], code.options(query, _QUERY_OPTIONS))
    lines = [f"{name} = {head}"]
    parents = _drawn(query)
    variables: dict[str, str] = {}
    for window in query.windows:
        inputs = [_stream(edge, variables[edge.source]) for edge in (parents or {}).get(window.name, ())]
        variables[window.name] = variable(window.name, taken)
        lines.append(f"{variables[window.name]} = {window_code(window, name, inputs, code)}")
    loose = query.edges if parents is None else ()
    lines += [
        call(f"{name}.edge", [quoted(edge.source), quoted(edge.target)], code.options(edge, ("slot", "role")))
        for edge in loose
    ]
    return lines


def _stream(edge: Edge, name: str) -> str:
    role = "" if edge.role is None else f".role({quoted(edge.role)})"
    return name + ("" if edge.slot == -1 else f".slot({edge.slot})") + role


def _drawn(query: ContinuousQuery) -> dict[str, list[Edge]] | None:
    """The edges into each window, if drawing them with the windows gives the same order; None if it does not."""
    before: set[str] = set()
    found: dict[str, list[Edge]] = {}
    for window in query.windows:
        found[window.name] = [edge for edge in query.edges if edge.target == window.name]
        if any(edge.source not in before for edge in found[window.name]):
            return None
        before.add(window.name)
    drawn = [edge for edges in found.values() for edge in edges]
    return found if drawn == list(query.edges) else None
