"""A model is replaced and everything ends in the middle of it: what is in force goes on, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from local_cluster import LocalNode
from replacement_worlds import WANTED, WANTED_THEN, ReplaceCluster, new_model, old_model, replace_params

from lockstep.cli import engine_run
from lockstep.core.snapshots import Reach
from lockstep.engine.errors import ModelMismatch, SourceReplaced
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.runtime.control import spec
from lockstep.engine.runtime.output.event_streams import out_batches
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.model_statement import newest_statement
from lockstep.engine.runtime.snapshots import retention

ALL = WANTED | WANTED_THEN
APPENDS = 24
"""Appends of the leader to S, C and out streams while a model is replaced, and a few more."""


def begun(folder: Path, **options: Any) -> ReplaceCluster:
    """An engine that leads, and something out of it."""
    cluster = ReplaceCluster(folder, **options)
    cluster.start("a")
    cluster.until_active("a")
    cluster.send("q/left", 1, 2, 3)
    cluster.send("q/right", 11)
    cluster.settle()
    return cluster


def start_with(node: LocalNode, graph: Graph, wanted: frozenset[str]) -> bool:
    """Start an engine with a model file; whether it was accepted."""
    node.graph, node.wanted = graph, wanted
    try:
        node.start()
    except ModelMismatch:
        return False
    return True


def is_replaced(cluster: ReplaceCluster) -> bool:
    found = newest_statement(cluster.bus, cluster.streams)
    return found is not None and frozenset(found.publish) == WANTED_THEN


def check_goes_on(cluster: ReplaceCluster, first: int) -> None:
    """It leads with the model in force, and what comes out is right."""
    cluster.until_active()
    cluster.send("q/left", first)
    cluster.send("q/right", first + 1)
    cluster.settle()
    in_force = new_model() if is_replaced(cluster) else old_model()
    assert cluster.active.engine.graph.fingerprint == in_force.fingerprint
    cluster.check_answer()


@pytest.mark.parametrize("at", range(APPENDS))
def test_all_engines_die_at_any_append_of_a_replace_and_start_with_the_model_in_force(tmp_path, at):
    cluster = begun(tmp_path)
    a, b = cluster.nodes["a"], cluster.start("b")
    cluster.settle()

    def die() -> None:
        b.kill()
        a._die()

    # Given a replace during which all engines die, with input that is not taken yet
    a.kill_at(("S", "C", "O"), skip=at, after=True)
    a.bus._traps[-1].act = die
    cluster.send("q/left", 4, 5, 6)
    cluster.send("q/right", 12, 13)
    cluster.ask_later("replace", replace_params())
    cluster.advance(5.0)
    if a.is_alive:
        die_all(cluster)
    # When they are started with the new model's file, then it is used if it is in force, and refused if nobody knows it
    assert start_with(a, new_model(), WANTED_THEN) or not is_replaced(cluster)
    if a.is_alive:
        check_goes_on(cluster, 20)
        die_all(cluster)
    # When they are started with the old model's file, then the model in force is used
    assert start_with(b, old_model(), WANTED)
    check_goes_on(cluster, 30)
    # And a new engine joins
    assert start_with(cluster.node("c"), old_model(), WANTED)
    check_goes_on(cluster, 40)


def die_all(cluster: ReplaceCluster) -> None:
    for node in cluster.awake:
        node.kill()


def test_an_engine_joins_between_a_replace_and_the_first_beat_behind_it(tmp_path):
    cluster = begun(tmp_path)
    a = cluster.nodes["a"]
    # Given a leader that stands still before it can say that anything after the new model is published
    a.slow(20.0)
    cluster.ask_later("replace", replace_params())
    cluster.until(lambda: is_replaced(cluster))
    # When an engine joins, with the old file and an empty folder
    assert start_with(cluster.node("b"), old_model(), WANTED)
    cluster.advance(1.0)
    a.kill()
    check_goes_on(cluster, 20)


def test_windows_that_the_new_model_no_longer_publishes_still_give_what_came_before(tmp_path):
    cluster = begun(tmp_path)
    a = cluster.nodes["a"]
    # Given blocks of the old model that are decided and not published when the engine dies
    a.slow(20.0)
    cluster.send("q/left", 4, 5, 6)
    cluster.advance(1.0)
    cluster.ask_later("replace", replace_params())
    cluster.until(lambda: is_replaced(cluster))
    a.kill()
    # When it starts with the new model
    assert start_with(a, new_model(), WANTED_THEN)
    check_goes_on(cluster, 20)
    assert len(cluster.out(old_model(), "q/left")) == 6


def test_a_window_that_is_published_again_goes_on_although_its_stream_was_emptied_meanwhile(tmp_path):
    cluster = begun(tmp_path)
    a, left = cluster.nodes["a"], old_model().find("q/left")
    cluster.ask("replace", replace_params())
    cluster.send("q/left", 4)
    cluster.settle()
    # Given engines that never published the window themselves, and a stream that says nothing
    die_all(cluster)
    out = cluster.bus.open(cluster.streams.output(left))
    out.trim(out.bounds().next)
    assert start_with(a, new_model(), WANTED_THEN)
    cluster.until_active("a")
    cluster.send("q/left", 5)
    cluster.settle()
    # When the window is published again
    cluster.ask("replace", {"model": to_yaml(old_model().project), "publish": sorted(WANTED)})
    cluster.send("q/left", 6)
    cluster.settle()
    # Then what comes stands after the last block that was out
    assert a.failure is None
    assert [batch.block[0] for batch in out_batches(out, left.schema)] == [7]
    assert last_beat(cluster.bus.open(cluster.streams.control)).last["q/left"] == 7


def test_a_model_that_the_log_does_not_know_is_refused_and_the_model_in_force_starts(tmp_path):
    cluster = begun(tmp_path)
    a = cluster.nodes["a"]
    a.kill()
    assert not start_with(a, new_model(), WANTED_THEN)
    assert start_with(a, old_model(), WANTED)
    check_goes_on(cluster, 20)


def test_an_engine_with_an_empty_folder_begins_with_a_snapshot_of_the_model_before(tmp_path):
    kept = tmp_path / "kept"
    cluster = trimmable(tmp_path, kept)
    cluster.ask("replace", replace_params())
    cluster.settle()
    # Snapshots of the model before let nothing be trimmed: windows are rebuilt from all there was
    assert not cluster.ask("trim").result["trimmed"]
    die_all(cluster)
    b = cluster.node("b", persist_to=kept)
    assert start_with(b, new_model(), WANTED_THEN)
    assert b.computing.setup.first > 0
    check_goes_on(cluster, 20)


def trimmable(folder: Path, kept: Path) -> ReplaceCluster:
    """An engine with two snapshots, and much more on the left input than on the right one."""
    cluster = begun(folder, persist_to=kept)
    for first in (100, 200):
        cluster.send("q/left", *range(first, first + 20))
        cluster.settle()
        cluster.ask("persist")
    return cluster


def trim_between(folder: Path) -> ReplaceCluster:
    """The sources change places; then logs are trimmed while acknowledged input is not decided yet."""
    cluster = trimmable(folder, folder / "kept")
    cluster.ask("replace", replace_params())
    cluster.settle()
    for _ in range(2):
        cluster.ask("persist")
    cluster.ask("state", {"value": "stopped"})
    cluster.send("q/right", *range(20, 30))
    assert cluster.ask("trim").result["trimmed"]
    cluster.advance(1.0)
    cluster.ask("state", {"value": "running"})
    return cluster


def test_trimming_goes_by_the_names_of_inputs_and_never_behind_what_is_decided(tmp_path):
    cluster = trim_between(tmp_path)
    cluster.settle()
    (minima,) = cluster.out(new_model(), "q/minima")[-1:]
    assert minima[0] == cluster.active.control.publisher.published
    assert len(cluster.out(new_model(), "q/minima")) >= 10
    assert cluster.bus.open("local.p.q.right.I").bounds().first <= 1


def test_an_input_is_trimmed_by_its_own_offset_and_never_behind_what_is_decided():
    reach = Reach(5, {"q/left": 9, "q/right": 2, "q/gone": 4})
    decided = SequencePosition(ends={"q/right": 7, "q/left": 4})
    assert retention.input_offsets(reach, ["q/right", "q/left", "q/new"], decided) == {
        "q/right": 2,
        "q/left": 4,
        "q/new": 0,
    }


def test_trimming_by_position_would_be_noticed(tmp_path, monkeypatch):
    def by_position(reach: Any, sources: Any, decided: Any) -> dict[str, int]:
        del decided
        return dict(zip(sources, sorted(reach.inputs.values(), reverse=True), strict=True))

    monkeypatch.setattr(retention, "input_offsets", by_position)
    cluster = trim_between(tmp_path)
    with pytest.raises(AssertionError):
        cluster.settle()


def test_starting_with_the_newest_model_at_an_older_position_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(spec, "graph_at", lambda *_: None)
    cluster = begun(tmp_path)
    a = cluster.nodes["a"]
    a.slow(20.0)
    cluster.send("q/left", 4)
    cluster.advance(1.0)
    cluster.ask_later("replace", replace_params())
    cluster.until(lambda: is_replaced(cluster))
    a.kill()
    with pytest.raises(SourceReplaced, match="q/more"):
        start_with(a, new_model(), WANTED_THEN)


def test_after_a_window_was_added_engines_start_with_the_new_and_the_old_file(tmp_path):
    cluster = begun(tmp_path)
    cluster.ask("replace", {"model": replace_params()["model"]})
    die_all(cluster)
    for graph in (new_model(), old_model()):
        # What `lockstep engine run FILE` does without --publish: the new window is not published, and stays so
        given = [node for node in graph.nodes if node.path in (WANTED if graph.find("q/minima") is None else ALL)]
        found, published = engine_run._in_force(cluster.bus, cluster.streams, graph, given, is_chosen=False)
        assert found.fingerprint == new_model().fingerprint
        assert {node.path for node in published} == WANTED
        assert start_with(cluster.nodes["a"], found, WANTED)
        cluster.until_active("a")
        die_all(cluster)
    with pytest.raises(ModelMismatch, match="published"):
        engine_run._in_force(cluster.bus, cluster.streams, new_model(), list(new_model().nodes), is_chosen=True)


def test_counts_of_a_window_that_came_with_a_replace_are_added_over_shards(tmp_path):
    cluster = begun(tmp_path, shards=2)
    cluster.ask("replace", replace_params())
    cluster.send("q/right", *range(20, 32))
    cluster.settle()
    active = cluster.active
    published = {path: counts.dump() for path, counts in active.control.publisher.counts.items()}
    assert active.computed().counts["q/minima"] == published["q/minima"]
    assert published["q/minima"][0] == 3
