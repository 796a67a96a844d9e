"""Cases people argue about, written down so that they can be read.

Set LOCKSTEP_REWRITE=1 to write what the code prints now into the files, and read the difference before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from monitor_scenario_runner import Runner, parse

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_monitor_scenario(file: Path) -> None:
    # Given a scenario, begun afresh
    runner, blocks = Runner(), parse(file.read_text())
    # When its commands are carried out
    printed = [runner.run(block) for block in blocks]
    if os.environ.get("LOCKSTEP_REWRITE"):
        for block, lines in zip(blocks, printed, strict=True):
            block.expected = lines
        file.write_text("\n".join(block.text() for block in blocks))
    # Then they print what is written below them
    assert [(block.commands, lines) for block, lines in zip(blocks, printed, strict=True)] == [
        (block.commands, block.expected) for block in blocks
    ]


def test_there_are_monitor_scenarios() -> None:
    assert len(FILES) >= 9
    assert all(parse(file.read_text()) for file in FILES)
