"""What `make coverage` measures: pure modules, all that the page about tests names, with tests that exist."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURED = runpy.run_path(str(ROOT / "tests" / "coverage_of_pure_modules.py"))
PACKAGES = MEASURED["PACKAGES"]

OUTSIDE = {
    *(
        "asyncio",
        "fcntl",
        "glob",
        "http",
        "io",
        "logging",
        "mmap",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
    ),
    *("secrets", "select", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time"),
    *("lmdb", "pyspark", "confluent_kafka", "redis", "pika", "rstream", "hazelcast", "kazoo", "aiohttp", "starlette"),
}
"""With these a module reads, writes, waits, or draws a number."""


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not (node.module == "pathlib" and is_pure(node)):
            found.add(node.module.partition(".")[0])
    return found


def is_pure(node: ast.ImportFrom) -> bool:
    """Paths without a disk."""
    return all(name.name.startswith("Pure") for name in node.names)


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_measured_as_pure_imports_nothing_that_reads_writes_waits_or_draws(package):
    files = [ROOT / name for name in MEASURED["files"](package)]
    assert files
    assert {str(path): found for path in files if (found := imported(path) & OUTSIDE)} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_left_out_of_a_package_is_there_and_not_pure(package):
    for name in PACKAGES[package]:
        (path,) = (ROOT / "src" / "lockstep" / package).rglob(name)
        assert imported(path) & (OUTSIDE | {"importlib"}), f"{name} is pure: measure it"


def test_every_pattern_of_tests_finds_some():
    assert [pattern for pattern in MEASURED["TESTS"] if not list(ROOT.glob(pattern))] == []


def test_the_page_about_tests_lists_what_is_measured():
    page = (ROOT / "docs" / "testing.md").read_text().partition("\n## Coverage\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `src/lockstep/([\w/]+)`", page, re.MULTILINE)) == set(PACKAGES)
