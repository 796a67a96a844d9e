"""Ctrl-C at any point of a commit: what was cut off is stored once or not at all, and nobody else notices."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter

import pytest
from lmdb_child import Child

from lockstep.log.lmdb.verify import verify

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
ROUNDS = 25


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("options", ["durability=fsync", "durability=relaxed&replica={copy}"])
def test_transactions_interrupted_by_signals(tmp_path, options, threads):
    chance = random.Random(f"{options} {threads}")
    url = f"lmdb:{tmp_path / 'bus'}?map_bytes={1 << 30}&{options.format(copy=tmp_path / 'copy')}"
    with Child("interrupted", url, ROUNDS, threads) as child:
        for number in range(ROUNDS):
            assert child.line() == f"main{number}"
            spin(chance.uniform(0.002, 0.02))
            child.process.send_signal(signal.SIGINT)
        done, cut_off, stored = child.line()
        assert child.end() == 0
    counts = Counter(stored)
    assert set(counts.values()) == {1}, "nothing is stored twice"
    assert set(done) <= set(stored), "what was acknowledged is there"
    assert set(stored) <= {*done, *cut_off, "last"}, "what else is there was cut off"
    assert any(value.startswith("worker") for value in done) == bool(threads)
    assert verify(tmp_path / "bus").ok


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
