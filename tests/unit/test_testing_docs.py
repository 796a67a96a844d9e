"""docs/testing.md names tests, markers and parts that exist, and what it says of missing servers is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import soak
from lockstep.dev.errors import ServerNotAvailable
from servers import server_fixtures

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "testing.md").read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[\w/]+(?:\.py)?(?:::\w+)?)`", TEXT))))
def test_a_test_that_the_page_names_exists(name):
    path, _, function = name.partition("::")
    assert (ROOT / path).exists()
    assert not function or re.search(rf"^\s*(def|class) {function}\b", (ROOT / path).read_text(), re.MULTILINE)


def has_soak_tests(path: Path) -> bool:
    return path.name.startswith("test_") and bool(re.search(r"(?<!\")pytest\.mark\.soak\b", path.read_text()))


@pytest.mark.parametrize("path", [path for path in sorted((ROOT / "tests").rglob("*.py")) if has_soak_tests(path)])
def test_the_page_says_what_guards_the_promises_of_a_file_with_soak_tests(path):
    moved = TEXT.partition("## Streams and servers in the soak run")[2]
    assert f"`{path.relative_to(ROOT)}" in moved


def test_the_page_names_every_part_of_the_soak_run():
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \|$", TEXT.partition("## The soak run")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert [name for name, _ in rows] == [part.name for part in soak.PARTS]


@pytest.mark.parametrize(("value", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_server_that_can_not_be_had_fails_a_run_of_ci_and_skips_a_test_elsewhere(
    monkeypatch, tmp_path, value, outcome
):
    def nowhere(*_: object, **__: object) -> None:
        raise ServerNotAvailable(name="redis", reason="it is not installed", remedy="install it")

    monkeypatch.setenv("CI", value)
    monkeypatch.setattr(server_fixtures, "start", nowhere)
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match="it is not installed") as raised:
        server_fixtures.started(None, tmp_path)
    assert raised.type is outcome


def test_ci_runs_with_the_variable_that_makes_a_missing_server_a_failure():
    lines = [line.partition("#")[0].split() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    assert ["export", "CI=true"] in lines
    assert lines.index(["export", "CI=true"]) < lines.index(["make", "test"])
