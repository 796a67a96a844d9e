"""A plain install is small: streams work without Spark, Arrow, numba and FastAPI, and what needs them says so."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lockstep.cli.main import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from lockstep.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def without_extras(*arguments: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    absent = {package for packages in EXTRAS.values() for package in packages} - {"google"}
    command = [sys.executable, "-c", WITHOUT.format(absent=absent), *arguments]
    return subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_streams_work_in_a_plain_install(tmp_path):
    bus = ("--bus", "lmdb:./bus")
    published = without_extras("stream", "publish", "orders", *bus, folder=tmp_path, given="one\ntwo\n")
    assert published.returncode == 0, published.stderr
    read = without_extras("stream", "tail", "orders", *bus, "--from-start", "--exit", folder=tmp_path)
    assert (read.returncode, "two" in read.stdout) == (0, True), read.stderr


@pytest.mark.slow
def test_crons_work_in_a_plain_install(tmp_path):
    checked = without_extras("cron", "check", "0 9 * * MON", "--tz", "Europe/Berlin", folder=tmp_path)
    assert (checked.returncode, checked.stdout.startswith("Valid: at 09:00 at Monday day.")) == (0, True), (
        checked.stderr
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("model", "check", "m.yaml"), "engine"),
        (("engine", "run", "m.yaml"), "engine"),
        (("schedule", "serve", "--bus", "lmdb:./bus"), "schedule"),
        (("monitor", "server", "--config", ".", "--bus", "lmdb:./bus"), "monitor"),
    ],
)
def test_a_command_that_needs_an_extra_says_which(tmp_path, command, extra):
    (tmp_path / "m.yaml").write_text("name: m\nqueries: []\n")
    refused = without_extras(*command, folder=tmp_path)
    assert refused.returncode == 2
    assert f"pip install 'lockstep-events[{extra}]'" in refused.stderr


def test_the_extras_that_messages_name_bring_those_packages():
    for extra, packages in EXTRAS.items():
        named = {re.split(r"[<>=\[]", text)[0] for text in PROJECT["optional-dependencies"][extra]}
        own = {"google": "protobuf"}
        told = [own.get(package, package) for package in packages if package not in ("starlette", "pydantic")]
        assert {*told} <= named


def test_the_first_pages_say_how_to_install_the_distribution_under_a_name_of_its_own():
    readme = (ROOT / "README.md").read_text().partition("## Install")[2].partition("\n## ")[0]
    install = (ROOT / "docs" / "learn" / "install.md").read_text()
    assert PROJECT["name"] == "lockstep-events", "lockstep on PyPI is another project"
    assert f"lockstep_events-{PROJECT['version']}-py3-none-any.whl" in install
    for text in (readme, install):
        assert f"`{PROJECT['name']}`" in text
        named = {name for names in re.findall(r"pip install '\.\[([\w,]+)\]'", text) for name in names.split(",")}
        assert {"engine", "schedule", "monitor"} <= named <= PROJECT["optional-dependencies"].keys()
