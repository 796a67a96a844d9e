"""Each rule that keeps output right, left out once: the tests that guard it must fail then.

A guard that passes without its rule proves nothing. Variants of the protocol itself are in `lockstep.simulation`; these
are of the classes that engines and subscribers run. Trimming by place, starting in the newest model, wall clocks and
engines that do not wait for their bus have theirs beside their tests (`..._would_be_noticed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import test_engine_failover_lost_tails as lost_tails
import test_engine_output_integrity as integrity
import test_engine_run_clients as clients
from failover_worlds import WANTED
from local_cluster import LocalCluster
from local_engine import LocalEngine
from run_worlds import sums_graph

from lockstep.core import outputs
from lockstep.core.outputs import OutState
from lockstep.engine.runtime.output import outlet, publisher, spool
from lockstep.engine.runtime.sequence import beats
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.engine.runtime.sequence.entries import BlockCounter
from lockstep.engine.runtime.sequence.outages import LengthCheck
from lockstep.engine.runtime.worker import shard_worker
from lockstep.errors import LockstepError
from lockstep.events import subscriber

FRAME_BYTES = 600


def no_digests(patch: pytest.MonkeyPatch) -> None:
    """Blocks of two sequences are taken for the same."""
    for module in (outputs, outlet, shard_worker, subscriber):
        patch.setattr(module, "agree", lambda *_: True)


def no_lengths(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether a log became shorter."""
    for name in ("check", "appended"):
        patch.setattr(LengthCheck, name, lambda *_: None)


def half_writes(patch: pytest.MonkeyPatch) -> None:
    """What the disk did not take is missing from the spool, and nobody looks."""

    def once(file: Any, chunks: Iterable[bytes]) -> None:
        file.writelines(chunks)

    patch.setattr(spool, "write_all", once)


def no_pieces(patch: pytest.MonkeyPatch) -> None:
    """A beat names the last block of a stream, and not how much of it is there."""
    patch.setattr(Beat, "out", lambda beat, path: OutState(beat.last.get(path, 0)))


def all_clients(patch: pytest.MonkeyPatch) -> None:
    """Every beat names every client."""
    for module in (beats, publisher):
        patch.setattr(module, "FEW_CLIENTS", 1 << 60)


def no_producers(patch: pytest.MonkeyPatch) -> None:
    """The fold of the input ignores who sent a record, and under which number."""
    patch.setattr(BlockCounter, "_is_copy", lambda *_: False)


def lost_block(folder: Path) -> None:
    lost_tails.test_a_subscriber_that_read_a_lost_block_gets_an_error_and_not_the_block_after_it(cluster(folder))


def shorter_stream(folder: Path) -> None:
    lost_tails.test_a_stream_that_became_shorter_is_an_error_although_nothing_follows(cluster(folder))


def short_disk(folder: Path) -> None:
    integrity.test_a_disk_that_takes_only_some_bytes_leaves_no_part(folder, 1)


def piece(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (publisher, shard_worker):
            patch.setattr(module, "FRAME_BYTES", FRAME_BYTES)
        integrity.test_a_beat_says_that_the_last_block_is_not_whole(engine(folder), None)


def many_clients(folder: Path) -> None:
    clients.test_with_many_clients_only_one_beat_in_a_second_names_them(folder, None)


def copied_append(folder: Path) -> None:
    clients.test_a_copy_of_what_a_publisher_without_a_name_sent_counts_once_on_every_engine(folder)


def cluster(folder: Path) -> LocalCluster:
    return LocalCluster(sums_graph(), WANTED, folder)


def engine(folder: Path) -> LocalEngine:
    return LocalEngine(sums_graph(), WANTED, folder)


VARIANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Path], None]]] = {
    "out blocks without a digest": (no_digests, lost_block),
    "a log that became shorter is not noticed": (no_lengths, shorter_stream),
    "spool files that were written in part": (half_writes, short_disk),
    "beats without the number of the piece": (no_pieces, piece),
    "copies of publishers without a name count": (no_producers, copied_append),
    "every beat names every client": (all_clients, many_clients),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_without_its_rule_is_caught(name, tmp_path, monkeypatch):
    breaks, guard = VARIANTS[name]
    breaks(monkeypatch)
    with pytest.raises((AssertionError, LockstepError, pytest.fail.Exception)):
        guard(tmp_path)
