"""What tests cover of the pure modules: those that import nothing with which a program reads, writes, waits or draws.

    make coverage
    python tests/coverage_of_pure_modules.py --missing    # also the lines that no test reaches

Each package has a line with its lines and branches that are reached; the exit code is 1 if one is below 95 %.
`tests/unit/test_coverage.py` checks that the packages are pure, and that docs/testing.md lists them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEAST = 95.0

PACKAGES = {
    "core": (),
    "cron": (),
    "monitor/core": (),
    "engine/language": (),
    "engine/reference": (),
    "engine/model": ("loading.py", "modules.py", "python_form.py", "variables.py"),
    "engine/events": ("atomic_files.py", "csv_format.py"),
}
"""Below src/lockstep, with the modules in them that are not pure: they read or write files."""

TESTS = (
    "tests/unit/core",
    "tests/unit/cron",
    "tests/unit/log/test_network_copies.py",
    "tests/scenarios",
    "tests/monitor/settings",
    "tests/monitor/test_monitor_gates.py",
    "tests/monitor/test_monitor_orders.py",
    "tests/monitor/test_monitor_property.py",
    "tests/monitor/test_monitor_repeats.py",
    "tests/monitor/test_monitor_results.py",
    "tests/monitor/test_monitor_scenarios.py",
    "tests/monitor/test_monitor_ticks.py",
    "tests/monitor/test_monitor_window.py",
    *(f"tests/engine/test_engine_{name}*.py" for name in ("expressions", "windows", "pattern", "functional", "others")),
    *(f"tests/engine/test_engine_{name}*.py" for name in ("validation", "forms", "plan", "builder", "drawing")),
    *(f"tests/engine/test_engine_{name}*.py" for name in ("explain", "guard", "blockers", "changes", "join_roles")),
    *(f"tests/engine/test_engine_{name}*.py" for name in ("csv", "json", "frames", "record_forms", "record_models")),
    *(f"tests/engine/test_engine_{name}*.py" for name in ("xmlform", "far_times", "conversions", "golden", "docs")),
    *(f"tests/engine/test_engine_{name}.py" for name in ("custom", "writing", "trades_data", "kernels_parts")),
)
"""In one process, without a server or a JVM."""


def files(package: str) -> list[str]:
    """The pure modules of a package, from the root."""
    found = sorted((ROOT / "src" / "lockstep" / package).rglob("*.py"))
    return [str(path.relative_to(ROOT)) for path in found if path.name not in PACKAGES[package]]


def tests() -> list[str]:
    """Files and folders of tests, from the root."""
    return [str(path.relative_to(ROOT)) for pattern in TESTS for path in sorted(ROOT.glob(pattern))]


def coverage(data: Path, *arguments: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """Call coverage.py with this file of data."""
    first, *others = arguments
    command = [sys.executable, "-m", "coverage", first, f"--data-file={data}", *others]
    return subprocess.run(command, cwd=ROOT, text=True, check=False, stdout=subprocess.PIPE if quiet else None)


def measure(data: Path) -> int:
    """Run the tests; their exit code."""
    source = ",".join(f"lockstep.{package.replace('/', '.')}" for package in PACKAGES)
    run = ("run", "--branch", f"--source={source}", "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests())
    return coverage(data, *run).returncode


def covered(data: Path, package: str) -> float:
    """Lines and branches that were reached, in percent."""
    report = ("report", "--format=total", "--precision=1", f"--include={','.join(files(package))}")
    return float(coverage(data, *report, quiet=True).stdout)


def main() -> int:
    """Print a line for each package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", action="store_true", help="list the lines that no test reaches")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "coverage"
        if code := measure(data):
            return code
        found = {package: covered(data, package) for package in PACKAGES}
        if options.missing:
            every = [name for package in PACKAGES for name in files(package)]
            coverage(data, "report", "--show-missing", "--skip-covered", f"--include={','.join(every)}")
    for package, share in found.items():
        print(f"{share:5.1f} %  src/lockstep/{package}{'' if share >= LEAST else f'   below {LEAST:g} %'}")
    return int(any(share < LEAST for share in found.values()))


if __name__ == "__main__":
    sys.exit(main())
