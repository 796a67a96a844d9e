"""Places in a line of ZooKeeper nodes, without a ZooKeeper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.engine.gates.zookeeper import Place, place_in_line

NODES = [f"server-n_{number:010d}" for number in (7, 9, 12)]


def ours(_node: str) -> bool:
    return True


def test_the_smallest_node_is_active_and_watches_nobody():
    assert place_in_line(NODES, NODES[0], ours) == Place()
    assert Place().is_active


@pytest.mark.parametrize("at", [1, 2])
def test_every_other_watches_the_one_right_below_it(at):
    place = place_in_line(reversed(NODES), NODES[at], ours)
    assert place == Place(NODES[at - 1])
    assert not place.is_active


def test_a_node_that_is_gone_has_no_place():
    assert place_in_line(NODES[1:], NODES[0], ours) is None
    assert place_in_line([], NODES[0], ours) is None


def test_other_nodes_below_the_root_are_not_in_line():
    others = ["another-cluster", "server-n_", "server-n_1", "server-n_00000000010", "server-n_000000000x"]
    assert place_in_line([*others, NODES[1]], NODES[1], ours) == Place()


def test_nodes_of_other_groups_are_passed_over():
    assert place_in_line(NODES, NODES[2], lambda name: name == NODES[0]) == Place(NODES[0])
    assert place_in_line(NODES, NODES[2], lambda _: False) == Place()


@given(st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=20))
def test_one_is_active_and_no_node_is_watched_by_two(numbers):
    line = [f"server-n_{number:010d}" for number in numbers]
    places = [place_in_line(line, name, ours) for name in line]
    below = [place.below for place in places if place is not None]
    assert below.count(None) == 1
    assert len(set(below)) == len(line)
