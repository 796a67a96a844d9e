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
    "models": {"engine"},
    "engines": {"engine"},
    "__main__": {"cli"},
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
    "bench": {"errors", "runtime", "log", "core", "cron", "streams", "engine", "schedule", "dev", "drill", "bench", ""},
    "bench/monitor": {
        "errors",
        "log",
        "streams",
        "dev",
        "bench",
        "drill",
        "monitor",
        "monitor/core",
        "monitor/transport",
        "monitor/agent",
        "",
    },
    "bench/console": {
        "drill",
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


ENGINE = SOURCE / "engine"
MODEL = {"errors", "events", "language", "model"}
ENGINE_MAY_IMPORT = {
    "errors": set(),
    "events": {"errors"},
    "language": {"errors", "events"},
    "model": {"errors", "events", "language"},
    "data": MODEL,
    "reference": MODEL,
    "columns": MODEL | {"reference"},
    "gates": set(),
    "runtime/sequence": MODEL | {"columns"},
    "runtime/setup": MODEL | {"runtime/sequence"},
    "runtime/output": MODEL | {"reference", "columns", "runtime/sequence"},
    "runtime/snapshots": MODEL | {"runtime/sequence", "runtime/setup"},
    "runtime/worker": MODEL
    | {"reference", "columns", "runtime/sequence", "runtime/setup", "runtime/output", "runtime/snapshots"},
    "runtime/files": MODEL | {"reference", "runtime/sequence"},
    "runtime/reference_run": MODEL | {"reference", "runtime/output", "runtime/files"},
    "compute": MODEL | {"runtime/sequence", "runtime/setup", "runtime/output", "runtime/snapshots", "runtime/worker"},
    "runtime/control": MODEL
    | {"reference", "gates", "compute", "runtime/sequence", "runtime/setup", "runtime/output"}
    | {"runtime/snapshots", "runtime/worker"},
    "runtime/requests": MODEL
    | {"runtime/sequence", "runtime/output", "runtime/snapshots", "runtime/worker", "runtime/control"},
    "runtime/coordinator": MODEL | {"columns", "runtime/sequence", "runtime/control", "runtime/requests"},
    "spark": MODEL
    | {"columns", "compute", "runtime/sequence", "runtime/setup", "runtime/output", "runtime/snapshots"}
    | {"runtime/files", "runtime/control"},
    "runtime/engine": MODEL
    | {"reference", "compute", "runtime/sequence", "runtime/setup", "runtime/output", "runtime/snapshots"}
    | {"runtime/control", "runtime/coordinator", "spark"},
    "runtime/file_run": MODEL
    | {"runtime/sequence", "runtime/output", "runtime/files", "runtime/control", "runtime/engine", "spark"},
    "spark/prepare": MODEL
    | {"data", "columns", "spark", "runtime/files", "runtime/control", "runtime/engine", "runtime/file_run"},
}
"""For each part of the engine what it may import of the others, the lowest first: none imports a later one."""
ENGINE_UPWARD = {("language", "model"), ("model", "reference"), ("model", "columns")}
"""The language takes the model's records of functions and first values. Checks and the plan ask
the reference and the columns what they can do, and both are built on the model."""
SPARK = {"pyspark", "py4j"}


def engine_part(names: list[str]) -> str:
    """The part of the engine that a module is in, by the names after lockstep.engine."""
    inner = "/".join(names[:2])
    return inner if inner in ENGINE_MAY_IMPORT else names[0] if names else ""


def modules_of_the_engine() -> dict[str, Path]:
    found = {}
    for path in ENGINE.rglob("*.py"):
        names = path.relative_to(ENGINE).with_suffix("").parts
        found[".".join(names).removesuffix(".__init__")] = path
    return found


def engine_imports(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of the engine that a module imports, also lazily, by their names after lockstep.engine."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("lockstep.engine."):
            base = (node.module or "").removeprefix("lockstep.engine").removeprefix(".")
            for alias in node.names:
                whole = f"{base}.{alias.name}".removeprefix(".")
                found.add(whole if whole in modules else base)
    return found


@pytest.mark.parametrize("part", list(ENGINE_MAY_IMPORT))
def test_parts_of_the_engine_import_lower_parts_only(part):
    order, modules = list(ENGINE_MAY_IMPORT), modules_of_the_engine()
    assert {order.index(other) for other in ENGINE_MAY_IMPORT[part]} <= set(range(order.index(part)))
    own = {name: path for name, path in modules.items() if engine_part(name.split(".")) == part}
    assert own, f"nothing is in {part} any more"
    upward = {other for lower, other in ENGINE_UPWARD if lower == part}
    for path in own.values():
        found = {engine_part(name.split(".")) for name in engine_imports(path, modules)}
        assert found <= ENGINE_MAY_IMPORT[part] | upward | {part}, path


def test_every_module_of_the_engine_is_in_a_part():
    packages = {"__init__", "runtime"}
    parts = {engine_part(name.split(".")) for name in modules_of_the_engine() if name not in packages}
    assert parts <= set(ENGINE_MAY_IMPORT), "say in ENGINE_MAY_IMPORT what a new part may import"


def test_what_runs_an_engine_has_no_circular_imports_lazy_ones_included():
    modules = modules_of_the_engine()
    left = {
        name: {other for other in engine_imports(path, modules) if other != name}
        for name, path in modules.items()
        if name.split(".")[0] in ("runtime", "compute", "spark", "gates")
    }
    while free := [name for name, imports in left.items() if not imports & left.keys()]:
        for name in free:
            del left[name]
    assert not left, f"circular, or on top of a circle: {sorted(left)}"


def test_only_what_is_in_engine_spark_imports_spark():
    for name, path in modules_of_the_engine().items():
        if name.split(".")[0] == "spark":
            continue
        tree = ast.parse(path.read_text())
        typing_only = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if id(node) not in typing_only:
                assert not {each.split(".")[0] for each in names} & SPARK, path


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
             "net", "console", "models", "engines", "annotations", "import_module", "TYPE_CHECKING"}  # fmt: skip
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
