"""Imports point down the layers, and the public names are the ones that are meant."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

import lockstep

SOURCE = Path(lockstep.__file__).parent
LONG_LINES = 600
MAY_IMPORT = {
    "errors": set(),
    "runtime": {"errors"},
    "log": {"errors", "runtime", "log"},
    "core": {"errors", "core"},
    "cron": {"errors", "cron"},
    "net": {"errors", "net"},
    "streams": {"errors", "runtime", "log", "core", "streams"},
    "simulation": {"errors", "core", "simulation"},
    "carriers": {"errors", "runtime", "log", "core", "net", "streams", "carriers"},
    "schedule": {"errors", "runtime", "log", "core", "cron", "net", "streams", "schedule"},
    "schedule/spark": {"errors", "runtime", "log", "core", "cron", "net", "streams", "schedule", "engine"},
    "engine": {"errors", "runtime", "log", "core", "streams", "engine"},
    "monitor/core": {"errors", "cron", "monitor/core"},
    "monitor/settings": {"errors", "cron", "monitor/core", "monitor/settings"},
    "monitor/transport": {"errors", "runtime", "log", "streams", "monitor/core", "monitor/transport"},
    "monitor/agent": {
        "errors",
        "runtime",
        "log",
        "cron",
        "streams",
        "monitor",
        "monitor/core",
        "monitor/settings",
        "monitor/transport",
        "monitor/agent",
    },
    "monitor": {
        "errors",
        "runtime",
        "log",
        "core",
        "cron",
        "net",
        "streams",
        "carriers",
        "engine",
        "events",
        "windows",
        "monitor",
        "monitor/core",
        "monitor/settings",
        "monitor/transport",
    },
    "windows": {"engine"},
    "events": {"errors", "runtime", "log", "core", "streams", "engine", "events"},
    "server": {"errors", "runtime", "log", "core", "cron", "streams", "schedule", "engine", "monitor", "server", ""}
    | {"monitor/core", "monitor/settings"},
    "console": {
        "errors",
        "runtime",
        "log",
        "core",
        "cron",
        "streams",
        "schedule",
        "engine",
        "events",
        "monitor",
        "monitor/core",
        "monitor/transport",
        "server",
        "console",
        "",
    },
    "testing": {"errors", "runtime", "log", "core", "cron", "streams", "schedule", "engine", "testing"},
    "bench": {"errors", "runtime", "log", "core", "cron", "streams", "engine", "schedule", "dev", "bench", ""},
    "bench/monitor": {
        "errors",
        "log",
        "streams",
        "dev",
        "bench",
        "monitor",
        "monitor/core",
        "monitor/transport",
        "monitor/agent",
        "",
    },
    "bench/console": {
        "errors",
        "runtime",
        "log",
        "core",
        "streams",
        "schedule",
        "bench",
        "bench/monitor",
        "monitor/transport",
        "",
    },
    "drill": {
        "errors",
        "runtime",
        "log",
        "core",
        "streams",
        "engine",
        "events",
        "monitor",
        "bench",
        "dev",
        "drill",
        "",
    },
    "dev": {"errors", "runtime", "dev"},
    "connectors": {"errors", "runtime", "log", "core", "net", "streams", "carriers", "engine", "events", "connectors"},
    "esp": {
        "errors",
        "runtime",
        "log",
        "core",
        "streams",
        "engine",
        "events",
        "connectors",
        "server",
        "cli",
        "esp",
        "",
    },
    "cli": {
        "errors",
        "runtime",
        "log",
        "core",
        "cron",
        "streams",
        "schedule",
        "engine",
        "events",
        "connectors",
        "carriers",
        "net",
        "server",
        "console",
        "bench",
        "drill",
        "dev",
        "monitor",
        "monitor/core",
        "monitor/settings",
        "monitor/transport",
        "monitor/agent",
        "cli",
        "",
    },
    "platform": {"errors", "runtime", "log", "streams", "schedule"},
    "": {"errors", "log", "streams", "schedule", "platform"},
}
"""For each part what it may import; '' is the package itself, the public face."""


def part_of(path: Path) -> str:
    first, *others = path.relative_to(SOURCE).parts
    if f"{first}/{others[0] if others else ''}" in MAY_IMPORT:
        return f"{first}/{others[0]}"
    return "" if first == "__init__.py" else first.removesuffix(".py")


def named_part(names: list[str]) -> str:
    """The part of an imported module; of the monitor each folder is one."""
    inner = "/".join(names[:2])
    if names[:1] == ["monitor"] and inner in MAY_IMPORT:
        return inner
    return names[0] if names and names[0] in MAY_IMPORT else ""


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lockstep":
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "lockstep" else [node.module]
            )
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "lockstep"]
        for name in names:
            found.add(named_part(name.split(".")[1:]))
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down_the_layers(path):
    part = part_of(path)
    assert part in MAY_IMPORT, f"{part} is a new part: say in MAY_IMPORT what it may import"
    assert imported_parts(path) <= MAY_IMPORT[part] | {part}


def test_the_core_has_no_clock_no_threads_and_no_files():
    forbidden = {"time", "threading", "asyncio", "os", "pathlib", "random", "socket", "subprocess", "lmdb", "datetime"}
    for path in (SOURCE / "core").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & forbidden, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in forbidden, path


def test_the_public_names_are_exactly_those_exported():
    for name in lockstep.__all__:
        getattr(lockstep, name)  # those of the scheduler are imported when they are asked for
    public = {name for name in vars(lockstep) if name.isidentifier() and not name.startswith("_")} | {"__version__"}
    parts = {"core", "cron", "log", "streams", "runtime", "testing", "cli", "bench", "simulation", "engine", "events",
             "connectors", "dev", "esp", "server", "drill", "schedule", "platform", "monitor", "windows", "carriers",
             "net", "console", "annotations", "import_module", "TYPE_CHECKING"}  # fmt: skip
    assert public - parts == set(lockstep.__all__)


def test_every_public_name_is_documented():
    undocumented = [name for name in lockstep.__all__ if not getattr(getattr(lockstep, name), "__doc__", None)]
    assert undocumented == []


@pytest.mark.filterwarnings("default:long files")
def test_long_files_are_named_in_the_summary_of_the_run():
    """Advice, not a rule: a file may be long if it is one thing. The summary of pytest shows the warning."""
    sizes = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    found = [f"{path.relative_to(SOURCE)} ({lines})" for path, lines in sizes.items() if lines > LONG_LINES]
    if found:
        warnings.warn(f"long files, of more than {LONG_LINES} lines: {', '.join(sorted(found))}", stacklevel=1)
