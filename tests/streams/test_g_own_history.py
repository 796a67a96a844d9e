"""Part G: a history of the user's own."""

from __future__ import annotations

import pytest
from worlds import everything, publish, values

import lockstep
from lockstep import StreamConfig
from lockstep.errors import BadConfig
from lockstep.log.history import HeapHistory

NUMBERS = [b"%d" % number for number in range(25)]


@pytest.fixture(params=["memory", "lmdb"])
def url(request, tmp_path):
    return "memory:" if request.param == "memory" else f"lmdb:{tmp_path / 'bus'}"


def test_g9_a_history_of_ones_own_is_chosen_by_its_scheme(url):
    # Given a bus with a history that somebody wrote, and a small stream that uses it
    kept = {}

    def open_vault(url, stream):
        return kept.setdefault((url, stream), HeapHistory())

    with lockstep.connect(url, histories={"vault": open_vault}) as bus:
        bus.create("orders", StreamConfig(capacity=10, history="vault:deep"))
        # When more is published than the stream holds
        publish(bus, "orders", *NUMBERS)
        # Then everything is still read, in order, and the history has what the stream has not
        assert values(everything(bus, "orders")) == NUMBERS
        assert list(kept) == [("vault:deep", "orders")]
        assert kept["vault:deep", "orders"].next_offset() == 25


def test_g4_a_history_of_ones_own_that_fails_fails_the_publish(url):
    # Given a history that can't store
    class Broken(HeapHistory):
        def store(self, base, count, data):
            message = "the vault is closed"
            raise OSError(message)

    with lockstep.connect(url, histories={"vault": lambda _url, _stream: Broken()}) as bus:
        bus.create("orders", StreamConfig(history="vault:"))
        # When something is published, then it fails with the cause, and the stream is unchanged
        with bus.publisher("orders") as publisher, pytest.raises(OSError, match="the vault is closed"):
            publisher.publish(b"x").result(20)
        assert bus.bounds("orders").next == 0


def test_g9_an_unknown_history_is_refused_before_anything_is_written(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path / 'bus'}") as bus:
        with pytest.raises(BadConfig, match="vault"):
            bus.create("orders", StreamConfig(history="vault:"))
        assert bus.streams() == []
