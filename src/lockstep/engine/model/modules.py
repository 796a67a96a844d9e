"""The Python modules that a model names, and whether they can be found, without running any of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import NamedTuple

from lockstep.engine.model.project import Project
from lockstep.engine.model.windows import AggregateWindow, CustomWindow, FieldPlug, ProceduralWindow, Window


class MissingModule(NamedTuple):
    """A window whose code is not there."""

    path: str
    why: str
    remedy: str


def missing_modules(project: Project) -> list[MissingModule]:
    """The windows that name a module which can't be found from here."""
    remedy = "Put the folder it is in on PYTHONPATH, here and wherever the model runs."
    return [
        MissingModule(f"{query.name}/{window.name}", f"the module {module} can't be found", remedy)
        for query in project.queries
        for window in query.windows
        for module in dict.fromkeys(_modules(window))
        if not _is_there(module)
    ]


def _modules(window: Window) -> Iterator[str]:
    if isinstance(window, ProceduralWindow | CustomWindow):
        yield window.module
    elif isinstance(window, AggregateWindow):
        yield from (maker.module for maker in window.fields if isinstance(maker, FieldPlug))


def _is_there(module: str) -> bool:
    """Packages are looked into by their folders, because finding a part of one by name would import the whole."""
    first, *parts = module.split(".")
    try:
        spec: ModuleSpec | None = find_spec(first)
        name = first
        for part in parts:
            if spec is None or spec.submodule_search_locations is None:
                return False
            name = f"{name}.{part}"
            spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    except (ImportError, ValueError):
        return False
    return spec is not None
