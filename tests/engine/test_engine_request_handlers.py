"""What can be asked of a project: whoever leads answers, once, and says why not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from failover_worlds import WANTED, leader, send
from local_cluster import LocalCluster, LocalNode
from run_worlds import SUMS, sums_graph

from lockstep.core.sequence import SequenceState
from lockstep.engine.errors import ModelNotReplaceable, NoStandby, PublishersActive, RequestTimedOut
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import parse_yaml, to_yaml
from lockstep.engine.model.project import Edge
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow
from lockstep.engine.runtime.requests import handlers
from lockstep.engine.runtime.sequence.entries import Decision, counted
from lockstep.engine.runtime.sequence.model_statement import project_graph
from lockstep.engine.runtime.snapshots.store import SnapshotStore
from lockstep.errors import BadArgument, LockstepError, NotFound, TimedOut

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


def pair(cluster: LocalCluster) -> tuple[LocalNode, LocalNode]:
    active, standby = leader(cluster), cluster.start("b")
    cluster.advance(1.6)  # everybody has reported
    return active, standby


def refused(cluster: LocalCluster, kind: str, params: dict[str, object] | None = None) -> LockstepError:
    with pytest.raises(LockstepError) as told:
        cluster.ask(kind, params)
    return told.value


# Looking


def test_a_project_is_described_by_whoever_leads(cluster):
    leader(cluster)
    reply = cluster.ask("query")
    assert reply.engine == "a"
    assert (reply.result["project"], reply.result["queries"]) == ("p", ["q"])
    assert reply.result["fingerprint"] == cluster.graph.fingerprint
    assert [window["window"] for window in reply.result["windows"]] == ["q/in", "q/sums"]
    assert cluster.ask("query", {"what": "schema", "window": "sums"}).result == {
        "window": "q/sums",
        "schema": str(SUMS),
    }
    model = cluster.ask("query", {"what": "model"}).result["model"]
    assert compile_project(parse_yaml(model, "it")).fingerprint == cluster.graph.fingerprint


def test_what_does_not_exist_is_said(cluster):
    leader(cluster)
    assert isinstance(refused(cluster, "query", {"what": "weather"}), BadArgument)
    error = refused(cluster, "query", {"what": "schema", "window": "sum"})
    assert isinstance(error, NotFound)
    assert error.params["name"] == "sum"


def test_an_unknown_kind_is_refused_with_those_that_are_known(cluster):
    leader(cluster)
    error = refused(cluster, "dance")
    assert isinstance(error, BadArgument)
    for kind in ("query", "persist", "quiesce", "replace", "handover", "reset", "trim", "state"):
        assert kind in str(error)


def test_when_nobody_answers_the_asker_is_told_who_was_asked(cluster):
    active = leader(cluster)
    cluster.advance(1.6)
    active.pause()
    with pytest.raises(RequestTimedOut, match="engine a, pid") as told:
        cluster.ask("query", timeout_s=3.0)
    assert (told.value.params["kind"], told.value.params["seconds"]) == ("query", 3.0)
    assert not [name for name in cluster.bus.names() if ".R." in name]


def test_only_who_leads_answers(cluster):
    active, standby = pair(cluster)
    assert {cluster.ask("query").engine for _ in range(3)} == {"a"}
    active.kill()
    assert cluster.ask("query").engine == "b"
    assert standby.is_active


# Waiting


def test_quiesce_returns_when_everything_that_was_sent_is_out(cluster):
    active = leader(cluster)
    active.slow(0.5)
    send(cluster, *range(1, 6))
    answer = cluster.ask("quiesce")
    assert answer.result == {"block": 5, "events": 5}
    assert active.control.publisher.published == 5
    cluster.check()


def test_quiesce_of_a_project_to_which_nothing_came(cluster):
    leader(cluster)
    assert cluster.ask("quiesce").result == {"block": 0, "events": 0}


def test_who_waits_is_answered_by_the_next_leader(cluster):
    active, standby = pair(cluster)
    active.slow(1e6)
    send(cluster, *range(1, 6))
    cluster.until(lambda: standby.computed().block == 5)
    cluster.clock.spawn("killer", lambda: active.kill() or None, cluster.clock.waiter(), cluster.surprises.append)
    answer = cluster.ask("quiesce")
    assert (answer.engine, answer.result["block"]) == ("b", 5)


def test_a_request_that_can_not_be_done_in_time_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(handlers, "JOB_S", 2.0)
    active = leader(cluster)
    active.slow(1e6)
    send(cluster, 1)
    assert isinstance(refused(cluster, "quiesce"), TimedOut)
    assert cluster.ask("query").engine == "a"


# Acting


def test_a_hand_over_without_a_standby_is_refused(cluster):
    active = leader(cluster)
    error = refused(cluster, "handover")
    assert isinstance(error, NoStandby)
    assert error.params == {"project": "p", "engine": "a"}
    assert active.is_active
    # Also if there was one, and it was not heard of for a while
    standby = cluster.start("b")
    cluster.advance(1.6)
    standby.kill()
    cluster.advance(6.0)
    assert isinstance(refused(cluster, "handover"), NoStandby)


def test_a_standby_that_is_not_in_step_yet_is_none(cluster):
    leader(cluster)
    send(cluster, *range(1, 6))
    cluster.settle()
    late = cluster.node("b", batch_events=1)
    late.start()
    late.slow(1e6)
    cluster.advance(1.6)
    assert cluster.reports()["b"].state == "starting"
    assert isinstance(refused(cluster, "handover"), NoStandby)


def test_the_day_does_not_begin_while_publishers_are_active(cluster):
    leader(cluster)
    send(cluster, 1)
    cluster.settle()
    numbers = iter(range(2, 100))
    task = cluster.clock.spawn(
        "publisher", lambda: send(cluster, next(numbers)) or 1.0, cluster.clock.waiter(), cluster.surprises.append
    )
    error = refused(cluster, "reset")
    assert isinstance(error, PublishersActive)
    assert error.params == {"stream": "local.p.q.in.I"}
    task.stop()
    cluster.settle()
    cluster.check()
    # But it does if it is told to
    assert cluster.ask("reset", {"force": True}).result["block"] == cluster.active.control.sequencer.position.block


def test_a_state_must_be_one_of_two(cluster):
    leader(cluster)
    for value in (None, "paused", 1):
        assert isinstance(refused(cluster, "state", {"value": value}), BadArgument)


def test_a_snapshot_needs_a_place(cluster, tmp_path):
    leader(cluster)
    error = refused(cluster, "persist")
    assert isinstance(error, BadArgument)
    assert "--persist-to" in str(error)
    (tmp_path / "file").write_text("")
    assert refused(cluster, "persist", {"path": str(tmp_path / "file")}).code != "TIMED_OUT"
    send(cluster, 1)
    cluster.settle()
    assert cluster.ask("persist", {"path": str(tmp_path / "there")}).result["block"] == 1


def test_trimming_without_a_place_for_snapshots_is_answered(cluster):
    leader(cluster)
    answer = cluster.ask("trim")
    assert answer.result["trimmed"] is False


# Once


@pytest.mark.parametrize("how", ["at once", "one after the other", "after a takeover"])
def test_a_request_that_is_repeated_with_the_same_id_acts_once(cluster, tmp_path, how):
    active, _ = pair(cluster)
    send(cluster, 1, 2, 3)
    cluster.settle()
    params = {"path": str(tmp_path / "kept")}
    if how == "at once":
        for _ in range(3):
            cluster.ask_later("persist", params, id_="the-one")
        cluster.advance(2.0)
    else:
        cluster.ask("persist", params, id="the-one")
    if how == "after a takeover":
        cluster.ask_later("state", {"value": "stopped"}, id_="stop")
        cluster.advance(0.5)
        cluster.ask("state", {"value": "running"}, id="go")
        active.kill()
        cluster.until_active("b")
        cluster.ask("state", {"value": "stopped"}, id="stop")  # as before: it was done, and undone
    send(cluster, 4)
    cluster.settle()
    if how == "one after the other":
        cluster.ask_later("persist", params, id_="the-one")
        cluster.advance(1.0)
    assert cluster.oracle().persists == 1
    assert len(SnapshotStore(tmp_path / "kept").complete()) == 1
    cluster.check()


def test_a_reset_that_is_asked_for_twice_with_the_same_id_empties_once(cluster):
    active, standby = pair(cluster)
    send(cluster, 1, 2, 3)
    cluster.settle()
    cluster.ask("reset", {"force": True}, id="today")
    send(cluster, 4, 5)
    cluster.settle()
    cluster.ask("reset", {"force": True}, id="today")
    cluster.settle()
    for node in (active, standby):
        assert node.computed().counts["q/in"][0] == 2
        assert node.failure is None


# Another model


def with_minima() -> Graph:
    """The same, with one more window."""
    project = sums_graph().project
    (query,) = project.queries
    minima = AggregateWindow(
        name="minima", schema=Schema.parse("symbol*:string,least:double"), fields=("ESP_aMin(price)",)
    )
    more = replace(query, windows=(*query.windows, minima), edges=(*query.edges, Edge(source="in", target="minima")))
    return compile_project(replace(project, queries=(more,)))


@pytest.mark.parametrize("after", [False, True], ids=["before it is decided", "after it"])
def test_a_leader_that_dies_over_a_new_model_leaves_it_to_the_next(cluster, after):
    # Given a leader that dies at the entry which states the new model
    active, standby = pair(cluster)
    active.kill_at(".S", after=after)
    answer = cluster.ask("replace", {"model": to_yaml(with_minima().project)})
    # Then whoever asked gets one answer, from the next one, and the model changed once
    assert answer.result["changed"]
    assert (answer.engine, active.is_alive) == (standby.name, False)
    send(cluster, 6, 7)
    cluster.settle()
    assert standby.computed().counts["q/minima"]
    stated = [entry for _, entry in counted(cluster.bus.open(cluster.streams.sequence), SequenceState())
              if Decision.of(entry).states is not None]  # fmt: skip
    assert len(stated) == 2


def with_other_sums(schema: Schema | None) -> Graph:
    """The model without its sums, or with a window of that name over another schema."""
    project = sums_graph().project
    query = project.queries[0]
    source, _sums = query.windows
    if schema is None:
        few = replace(query, windows=(source,), edges=())
    else:
        other = AggregateWindow(name="sums", schema=schema, fields=("ESP_aMin(price)",))
        few = replace(query, windows=(source, other))
    return compile_project(replace(project, queries=(few,)))


def test_a_window_under_the_name_of_one_that_was_removed_does_not_write_to_its_stream(cluster):
    leader(cluster)
    send(cluster, 1, 2)
    cluster.settle()
    cluster.ask("replace", {"model": to_yaml(with_other_sums(None).project), "publish": []})
    other = Schema.parse("symbol*:string,least:double")
    params = {"model": to_yaml(with_other_sums(other).project), "publish": ["q/sums"]}
    error = refused(cluster, "replace", params)
    assert isinstance(error, ModelNotReplaceable)
    assert "local.p.q.sums.O, which holds events of another schema" in str(error)
    again = {"model": to_yaml(sums_graph().project), "publish": ["q/sums"]}
    assert cluster.ask("replace", again).result["changed"], "with the schema that readers know it is"


def test_a_model_is_replaced_for_all_engines_at_the_same_block(cluster):
    active, standby = pair(cluster)
    send(cluster, *range(1, 8))
    cluster.settle()
    answer = cluster.ask("replace", {"model": to_yaml(with_minima().project)})
    assert answer.result == {"changed": True, "model": with_minima().fingerprint, "block": 7}
    send(cluster, 8, 9)
    cluster.settle()
    assert project_graph(cluster.bus, "local", "p").fingerprint == with_minima().fingerprint
    assert active.computed().counts == standby.computed().counts
    assert active.computed().counts["q/minima"][0] == 3
    # And whoever takes over goes on with it
    active.kill()
    cluster.until_active("b")
    send(cluster, 10)
    cluster.settle()
    assert standby.computed().counts["q/in"][0] == 10
    assert len(cluster.subscribers["q/in"].got) == 10


def test_a_model_that_is_not_one_or_can_not_take_its_place_is_refused(cluster):
    active = leader(cluster)
    assert refused(cluster, "replace", {"model": "project: ["}).code != "TIMED_OUT"
    other = replace(sums_graph().project, name="other")
    assert isinstance(refused(cluster, "replace", {"model": to_yaml(other)}), ModelNotReplaceable)
    same = cluster.ask("replace", {"model": to_yaml(cluster.graph.project)})
    assert same.result["changed"] is False
    send(cluster, 1)
    cluster.settle()
    cluster.check()
    assert active.is_active


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("replace", {}),
        ("replace", {"model": to_yaml(with_minima().project), "publish": 3}),
        ("persist", {"path": 5}),
        ("query", {"what": []}),
        ("query", {"what": {}}),
        ("state", {"value": ["running"]}),
    ],
)
def test_a_request_with_odd_parameters_does_not_end_the_engine(cluster, kind, params):
    active = leader(cluster)
    assert isinstance(refused(cluster, kind, params), BadArgument)
    assert active.is_active
    assert cluster.ask("query").engine == "a"
