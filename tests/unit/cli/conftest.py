from __future__ import annotations

import os

import pytest
from cli_main import Cli


@pytest.fixture
def cli(tmp_path, monkeypatch, capfd) -> Cli:
    """The command in an empty folder, without anything of the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LOCKSTEP_")]:
        monkeypatch.delenv(name)
    return Cli(capfd)
