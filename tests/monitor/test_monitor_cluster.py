"""Engines of a monitor that are killed: the same changelog, and each notice once, under its own id."""

from __future__ import annotations

import random
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from test_monitor_window import fleet_blocks

from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.sequence.entries import Decision
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.monitor.window import monitor_model

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from local_cluster import LocalCluster

pytestmark = pytest.mark.slow
WANTED = frozenset({"monitor/Fleet"})


def notices(cluster):
    """As readers take them, without copies."""
    found, last = [], (0, -1)
    for told in cluster.told(cluster.streams.notices):
        if (place := (told["block"], told["index"])) > last:
            found.append((told["id"], told["kind"], told["key"], b64decode(told["body"])))
            last = place
    return found


def run(tmp_path, blocks, *, kills):
    """Records and ticks as entries of the sequence log, one after the other, while the leader is killed."""
    graph = compile_project(monitor_model("monitor", "in"))
    cluster = LocalCluster(graph, WANTED, tmp_path, others={"in": StreamConfig(capacity=None)})
    for name in "ab":
        cluster.start(name)
    cluster.until_active()
    chance = random.Random(kills)
    at = set(chance.sample(range(len(blocks)), kills))
    stream = cluster.bus.open("in")
    for number, block in enumerate(blocks):
        if number in at:
            victim = cluster.until_active()
            victim.kill_at(chance.choice((".N", ".C", ".O", ".S")), after=chance.random() < 0.5)
        if block.tick_us is None:
            (event,) = block.events
            cluster.sent += 1
            stream.append(
                [pack([event.values[2]], producer=NO_PRODUCER, sequence=0, created_ns=0, keys=[event.values[1]])]
            )
        else:
            cluster.settle()
            cluster.until_active().ask_for(Decision({}, 0, 0, tick_us=block.tick_us, lagging=block.lagging))
        cluster.settle()
        for node in cluster.nodes.values():
            if not node.is_alive:
                node.start()
    cluster.until_active()
    cluster.settle()
    cluster.check()
    return cluster


def test_a_killed_leader_changes_no_row_and_no_notice(tmp_path):
    blocks = fleet_blocks(5, 60)
    quiet = run(tmp_path / "quiet", blocks, kills=0)
    killed = run(tmp_path / "killed", blocks, kills=6)
    wanted = notices(quiet)
    assert notices(killed) == wanted
    assert killed.subscribers["monitor/Fleet"].got == quiet.subscribers["monitor/Fleet"].got
    ids = [id_ for id_, kind, *_ in wanted if kind == "handle"]
    assert len(ids) > 5
    assert len(set(ids)) == len(ids)
    assert all(id_.count(".") == 2 for id_ in ids)
