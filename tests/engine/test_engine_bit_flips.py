"""A disk changes bits of an engine's files while it is down: the output is the same to the byte, or an error tells."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from failover_worlds import WANTED, finish, leader, send
from local_cluster import LocalCluster, LocalNode
from run_worlds import frame, sums_graph

from lockstep.errors import LockstepError

PAGE = Path(__file__).parents[2] / "docs" / "failover.md"
VISIBLE = {"SNAPSHOT_DAMAGED", "MODEL_MISMATCH"}
"""What an engine whose files were changed may end with, as docs/failover.md says; then it gets another folder."""
CLIENT = b"a client of ours"


def test_the_page_on_failover_names_what_an_engine_may_end_with():
    row = next(line for line in PAGE.read_text().splitlines() if "test_engine_bit_flips.py" in line)
    assert [code for code in VISIBLE if f"`{code}`" not in row] == []


@pytest.fixture
def cluster(tmp_path):
    """An engine that has taken snapshots, also of a client's messages."""
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path)
    leader(cluster)
    return cluster


class Flipping:
    """One engine that is killed at work, again and again, and finds other bits on its disk when it starts."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster, self.told = cluster, set[str]()
        self._next, self._messages = 1, 0

    @property
    def node(self) -> LocalNode:
        return self.cluster.nodes["a"]

    def work_and_die(self) -> None:
        """Some blocks are out, with a snapshot of them; some are computed, and some wait on the input."""
        self._messages += 1
        self.cluster.sent += 1
        self.cluster.put("q/in", frame([self._take()], client=CLIENT, first_id=self._messages))
        finish(self.cluster, self._take())
        self.cluster.advance(0.3)
        self.node.kill_at("q.sums.O")
        send(self.cluster, self._take(), self._take())
        self.cluster.until(lambda: not self.node.is_alive)

    def start_again(self) -> None:
        """It goes on, or says why not; then it begins anew, and nothing on the bus is the worse for it."""
        try:
            self.node.start()
            self.cluster.until(lambda: self.node.failure is not None or self.cluster.is_settled())
        except LockstepError as error:
            self.node.failure = error
        if self.node.failure is not None:
            self.told.add(self.node.failure.code)
            assert self.node.failure.code in VISIBLE, self.node.failure
            self.cluster.remove_disk(self.node)
            self.node.start()
        finish(self.cluster, self._take())

    def _take(self) -> int:
        self._next += 1
        return self._next - 1


def kinds(node: LocalNode) -> dict[str, list[Path]]:
    """The files that an engine leaves on its disk, by their names without numbers."""
    found: dict[str, list[Path]] = {}
    for path in sorted(node.disk.folder.rglob("*")):
        if path.is_file():
            found.setdefault(re.sub(r"\d+", "", path.name), []).append(path)
    return found


def flipped(data: bytes, chance: random.Random) -> bytes:
    """With one other bit, if there is any."""
    changed = bytearray(data)
    if changed:
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
@pytest.mark.parametrize("kind", ["kept-.msgpack", "belongs.json", "lock", "-.spool", "progress.msgpack"])
def test_a_bit_of_a_file_changes_while_an_engine_is_down(cluster, kind, rounds):
    world, chance = Flipping(cluster), random.Random(f"{kind} 1")
    for _ in range(rounds):
        world.work_and_die()
        files = kinds(world.node)
        assert len(files) == 5, files
        for path in files[kind]:
            path.write_bytes(flipped(path.read_bytes(), chance))
        world.start_again()
    assert not world.told or kind == "belongs.json"


@pytest.mark.parametrize("rounds", [1, pytest.param(15, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_a_bit_of_any_page_of_the_state_changes_while_an_engine_is_down(cluster, rounds):
    world, chance = Flipping(cluster), random.Random(rounds)
    world.work_and_die()
    names = sorted(world.node.disk.shards[0].stored)
    assert len(names) > 3
    world.start_again()
    for name in names * rounds:
        world.work_and_die()
        pages = world.node.disk.shards[0].stored
        pages[name] = flipped(pages[name], chance)
        world.start_again()
    assert world.told == {"SNAPSHOT_DAMAGED"}
