"""docs/testing.md names tests, markers and parts that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import soak

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "testing.md").read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[\w/]+(?:\.py)?(?:::\w+)?)`", TEXT))))
def test_a_test_that_the_page_names_exists(name):
    path, _, function = name.partition("::")
    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text()


def test_the_page_names_every_part_of_the_soak_run():
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \|$", TEXT.partition("## The soak run")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert [name for name, _ in rows] == [part.name for part in soak.PARTS]
