"""The view: rows and position in one step, lists in order, history by client and check, bounds."""

from __future__ import annotations

import json

import pytest

from lockstep.monitor.view import ANSWERS_MAX, HISTORY_S, FleetView, RowChange


@pytest.fixture
def view(tmp_path):
    with FleetView(tmp_path) as made:
        yield made


def row(kind, client="", name="", place=(0, 0), **body):
    return RowChange(kind, client, name, json.dumps(body), place)


def transition(block, client, check, time, number=0):
    body = {"client": client, "check": check, "time": time, "block": block}
    return RowChange("transition", client, check, json.dumps(body), (block, number))


def test_a_row_replaces_the_one_before_and_a_deleted_one_is_gone(view):
    view.apply([row("event", "web-1", "disk", n=1), row("event", "web-1", "disk", n=2)], "a", 0)
    assert view.row("event", "web-1", "disk") == {"n": 2}
    view.apply([RowChange("event", "web-1", "disk", None)], "b", 0)
    assert view.row("event", "web-1", "disk") is None


def test_clients_of_a_kind_are_told_in_order_each_once(view):
    rows = [row("event", "web-2", "disk"), row("event", "web-1", "disk"), row("event", "web-1", "load")]
    view.apply([*rows, row("client", "db-1"), row("eventual", "x", "y")], "a", 0)
    assert view.clients("event") == ["web-1", "web-2"]
    assert view.clients("client") == ["db-1"]
    assert view.clients("none") == []


def test_rows_and_position_are_there_after_a_restart(tmp_path):
    with FleetView(tmp_path) as first:
        assert first.position is None
        first.apply([row("client", "web-1", n=1)], "after", 0)
    with FleetView(tmp_path) as second:
        assert second.position == "after"
        assert second.row("client", "web-1") == {"n": 1}


def test_of_changes_that_fail_none_is_stored(view):
    view.apply([row("client", "web-1", n=1)], "a", 0)
    with pytest.raises(ValueError):
        view.apply([row("client", "web-2", n=1), RowChange("results", "web-2", "", "no line")], "b", 0)
    assert view.position == "a"
    assert view.listing("client").total == 1


def test_lists_are_pages_in_the_order_of_client_and_name(view):
    view.apply([row("event", client, check, c=client, k=check) for client in "cab" for check in "zy"], "a", 0)
    listing = view.listing("event", offset=1, limit=3)
    assert listing.total == 6
    assert [json.loads(body) for body in listing.bodies] == [
        {"c": "a", "k": "z"}, {"c": "b", "k": "y"}, {"c": "b", "k": "z"},
    ]  # fmt: skip
    assert view.listing("event", "b").total == 2
    assert view.listing("event", "").total == 0


def test_a_client_whose_name_begins_like_another_is_another(view):
    view.apply([row("event", "web-1", "disk", n=1), row("event", "web-10", "disk", n=10)], "a", 0)
    assert [each["n"] for each in view.rows("event", "web-1")] == [1]


def test_results_of_a_tick_are_rows_by_check(view):
    checks = 'disk\t{"name": "disk", "status": 0}\nload\t{"name": "load", "status": 1}'
    view.apply([RowChange("results", "web-1", "", checks)], "a", 0)
    assert view.row("result", "web-1", "load") == {"client": "web-1", "check": {"name": "load", "status": 1}}
    view.apply([RowChange("results", "web-1", "", "load\t")], "b", 0)
    assert [each["check"]["name"] for each in view.rows("result", "web-1")] == ["disk"]
    view.apply([RowChange("results", "web-1", "", None)], "c", 0)
    assert view.listing("result").total == 0


def test_of_changes_in_one_step_the_last_one_of_a_row_counts(view):
    lines = RowChange("results", "web-1", "", 'disk\t{"n":1}')
    gone = RowChange("results", "web-1", "", None)
    again = RowChange("results", "web-1", "", 'load\t{"n":2}')
    event = [row("event", "web-1", "disk", n=1), RowChange("event", "web-1", "disk", None)]
    view.apply([lines, gone, again, *event, row("event", "web-1", "load", n=3)], "a", 0)
    assert [*view.rows("result")] == [{"client": "web-1", "check": {"n": 2}}]
    assert [*view.rows("event")] == [{"n": 3}]


def test_names_that_are_too_long_for_a_key_are_told_apart(view):
    names = ["x" * 600 + end for end in "ab"]
    view.apply([row("stash", "", name, n=name[-1]) for name in names], "a", 0)
    assert [view.row("stash", "", name)["n"] for name in names] == ["a", "b"]


def test_history_is_newest_first_of_the_fleet_a_client_or_a_check(view):
    view.apply(
        [
            transition(1, "web-1", "disk", 10),
            transition(2, "web-1", "load", 20),
            transition(2, "web-2", "disk", 20, 1),
            transition(300, "web-1", "disk", 30),
        ],
        "a",
        30,
    )
    assert [each["block"] for each in view.transitions()] == [300, 2, 2, 1]
    assert [each["block"] for each in view.transitions("web-1")] == [300, 2, 1]
    assert [each["block"] for each in view.transitions("web-1", "disk")] == [300, 1]
    assert [each["block"] for each in view.transitions("web-1", limit=1)] == [300]
    assert view.transitions("web-3") == []


def test_transitions_go_when_they_are_older_than_the_history(view):
    view.apply([transition(block, "web-1", "disk", block) for block in range(1, 6)], "a", 5)
    view.apply([], "b", HISTORY_S + 3)
    assert [each["block"] for each in view.transitions("web-1", "disk")] == [5, 4, 3]
    assert view.listing("transition").total == 3


def test_of_answers_the_last_ten_thousand_are_kept(view):
    orders = [f"order-{number}" for number in range(ANSWERS_MAX + 2)]
    view.apply([row("answer", "", order, status=200) for order in orders], "a", 0)
    assert view.row("answer", "", "order-1") is None
    assert view.row("answer", "", "order-2") == {"status": 200}
    assert view.listing("answer").total == ANSWERS_MAX


def test_a_view_that_is_reset_begins_anew(view):
    view.apply([row("client", "web-1", n=1), transition(1, "web-1", "disk", 1)], "a", 1)
    view.reset()
    assert view.position is None
    assert view.listing("client").total == 0
    assert view.transitions() == []
