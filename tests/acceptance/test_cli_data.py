"""Trades to try models with."""

from __future__ import annotations

import pytest
from cli_command import InProcess

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def lockstep(tmp_path) -> InProcess:
    return InProcess(tmp_path)


def test_a_seed_gives_the_same_trades_again_and_another_others(lockstep, tmp_path) -> None:
    make = ("data", "trades", "--events", "500")
    assert lockstep(*make, "--seed", "7", "-o", "one.csv").out.startswith("Wrote 500 trades to one.csv: ")
    made = lockstep(*make, "--seed", "7", "-o", "two.csv", "--json").object
    assert (made["events"], made["seed"], made["bytes"]) == (500, 7, (tmp_path / "two.csv").stat().st_size)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert lockstep(*make, "--seed", "7", "-o", "-").raw == (tmp_path / "one.csv").read_bytes()
    assert lockstep(*make, "--seed", "8", "-o", "-").raw != (tmp_path / "one.csv").read_bytes()


def test_what_can_not_be_written_leaves_nothing(lockstep, tmp_path) -> None:
    assert "[PATH_MISSING]" in lockstep("data", "trades", "--events", "9", "-o", "no/x.csv", code=3).err
    assert "[BAD_ARGUMENT]" in lockstep("data", "trades", "--events", "9999999999", "-o", "x.csv", code=2).err
    assert "do not go together" in lockstep("data", "trades", "-o", "-", "--json", code=2).err
    assert list(tmp_path.iterdir()) == []
