"""Engines with a window of the user's, killed anywhere, give the same; other versions of its class are refused."""

from __future__ import annotations

import random
from base64 import b64decode

import custom_classes as c
import pytest
from local_cluster import LocalCluster
from test_engine_custom import graph_of

from lockstep.engine.errors import ModelInvalid, ModelNotReplaceable
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.runtime.output.side_streams import origin_of
from lockstep.engine.runtime.sequence.entries import Decision

pytestmark = pytest.mark.slow
WANTED = frozenset({"q/mine"})


def custom_graph(cls=c.Totals, **more) -> Graph:
    return graph_of(cls, properties={"limit": "20"}, **more)


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(custom_graph(), WANTED, tmp_path / "engines")


def order(number: int) -> list[Event]:
    name = ("anna", "bob", "carl")[number % 3]
    return [Event(Opcode.UPSERT, Flag.NORMAL, (number, name, float(number)))]


def send(cluster: LocalCluster, first: int, last: int) -> None:
    cluster.publish("q/Orders", *(order(number) for number in range(first, last + 1)))


def notices(cluster: LocalCluster) -> list[tuple[object, ...]]:
    """As readers take them, without copies."""
    found, last = [], (0, -1)
    for told in cluster.told(cluster.streams.notices):
        if (place := (told["block"], told["index"])) > last:
            found.append((told["id"], told["kind"], told["key"], told["headers"], b64decode(told["body"])))
            last = place
    return found


@pytest.mark.parametrize(("cls", "seed"), [(c.Totals, 0), (c.Paged, 1), (c.Paged, 2)])
def test_engines_that_die_anywhere_give_the_answer_of_the_interpreter(tmp_path, cls, seed):
    cluster = LocalCluster(custom_graph(cls, tick="2 seconds"), WANTED, tmp_path, seed=seed, ticks=True)
    chance = random.Random(seed)
    for name in "ab":
        cluster.start(name)
    cluster.until_active()
    for turn in range(6):
        send(cluster, turn * 10 + 1, turn * 10 + 10)
        victim = cluster.until_active()
        victim.kill_at(chance.choice((".N", ".C", ".O", ".S")), after=chance.random() < 0.5)
        cluster.advance(chance.uniform(0.1, 3.0))
        for node in cluster.nodes.values():
            if not node.is_alive:
                node.start()
        cluster.advance(0.5)
    cluster.until_active()
    cluster.until(lambda: cluster.active.control.sequencer.position.events == 60)
    cluster.active.ask_for(Decision(running=False))  # no more ticks
    cluster.settle()
    cluster.check()
    found = notices(cluster)
    assert len({one[0] for one in found}) == len(found)


def test_notices_are_on_their_stream_once_with_an_id_that_follows_from_the_log(cluster):
    a, b = cluster.start("a"), cluster.start("b")
    cluster.until_active("a")
    send(cluster, 1, 12)
    cluster.settle()
    a.kill_at(".C")
    send(cluster, 13, 15)
    cluster.until(lambda: not a.is_alive)
    cluster.until_active("b")
    a.start()
    cluster.settle()
    cluster.check()
    found = notices(cluster)
    origin = origin_of("p", cluster.bus.open(cluster.streams.sequence).identity)
    assert found[0] == (f"{origin}/q/mine/10/0", "mail", "bob", {"to": "bob@example.org"}, b"22.0")
    assert [one[0] for one in found] == [f"{origin}/q/mine/{block}/0" for block in (10, 11, 12, 13, 14, 15)]
    assert b.is_active
    # And those of one block are in the order in which the window gave them
    cluster.publish("q/Orders", [event for number in (16, 17, 18) for event in order(number)])
    cluster.settle()
    assert [(one[0], one[2]) for one in notices(cluster)[-3:]] == [
        (f"{origin}/q/mine/16/0", "bob"),
        (f"{origin}/q/mine/16/1", "carl"),
        (f"{origin}/q/mine/16/2", "anna"),
    ]


def test_an_engine_with_another_version_of_the_class_does_not_start(cluster, monkeypatch):
    cluster.start("a")
    cluster.until_active("a")
    send(cluster, 1, 3)
    cluster.settle()
    monkeypatch.setattr(c.Totals, "version", "2")
    with pytest.raises(ModelInvalid, match=r"q/mine.*has version '2' here, but the model needs version '1'"):
        cluster.start("b")
    monkeypatch.undo()
    send(cluster, 4, 6)
    cluster.settle()
    cluster.check()


def test_a_model_with_another_version_is_refused_before_it_is_decided(cluster):
    cluster.start("a")
    cluster.start("b")
    cluster.until_active("a")
    send(cluster, 1, 3)
    cluster.settle()
    other = custom_graph(version="2")
    with pytest.raises(ModelNotReplaceable, match=r"(?s)Engine [ab] can't run it.*has version '1' here.*version '2'"):
        cluster.ask("replace", {"model": to_yaml(other.project)})
    assert {node.engine.graph.fingerprint for node in cluster.awake} == {cluster.graph.fingerprint}
    send(cluster, 4, 6)
    cluster.settle()
    cluster.check()


def test_a_new_class_beside_the_old_one_takes_its_place_and_knows_the_past(cluster):
    cluster.start("a")
    cluster.start("b")
    cluster.until_active("a")
    send(cluster, 1, 9)
    cluster.settle()
    other = custom_graph(c.Paged)
    assert cluster.ask("replace", {"model": to_yaml(other.project)}).result["changed"]
    cluster.graph = other
    send(cluster, 10, 12)
    cluster.settle()
    cluster.nodes["a"].kill()
    cluster.nodes["a"].start()
    send(cluster, 13, 15)
    cluster.settle()
    cluster.check()


def test_a_lagging_tick_stays_one_when_the_past_is_replayed_through_another_model(tmp_path):
    cluster = LocalCluster(custom_graph(tick="1 second"), WANTED, tmp_path)
    node = cluster.start("a")
    cluster.until_active("a")
    cluster.publish("q/Orders", [Event(Opcode.UPSERT, Flag.NORMAL, (1, "anna", 5.0))])
    cluster.settle()
    node.ask_for(Decision({}, 0, 0, tick_us=1_000_000, lagging=True))  # a tick that counts would let anna go
    cluster.settle()
    cluster.publish("q/Orders", [Event(Opcode.UPSERT, Flag.NORMAL, (2, "anna", 20.0))])
    cluster.settle()
    for limit in ("30", "40"):  # the second one reads through two models
        other = graph_of(c.Totals, properties={"limit": limit}, tick="1 second")
        assert cluster.ask("replace", {"model": to_yaml(other.project)}).result["changed"]
        cluster.graph = other
        cluster.publish("q/Orders", [Event(Opcode.UPSERT, Flag.NORMAL, (3, "anna", 1.0))])
        cluster.settle()
    cluster.check()
    assert "26.0" in str(cluster.subscribers["q/mine"].got)
    node.ask_for(Decision({}, 0, 0, tick_us=2_000_000))
    cluster.settle()
    cluster.check()
