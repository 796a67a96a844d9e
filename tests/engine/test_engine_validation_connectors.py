"""Connectors that would make the answer differ from engine to engine."""

from __future__ import annotations

import pytest
from validation_models import kafka, project, source, told

from lockstep.engine.model.validation import faults
from lockstep.engine.model.windows import Connector, CopyWindow, UnionWindow


def test_a_kafka_connector_reads_one_fixed_partition():
    assert faults(project(source(connectors=(kafka("k", 3),)))) == []
    (fault,) = faults(project(source(connectors=(kafka("k", -1),))))
    assert fault.place == "q/src connector k"
    assert "kafkapartition -1" in fault.problem
    assert "kafkapartition all" in told(project(source(connectors=(kafka("k", "all"),))))


def test_streams_of_different_partitions_must_not_meet():
    # Given two sources that read different partitions, and a union below copies of them
    sources = source("a", connectors=(kafka("ka", 0),)), source("b", connectors=(kafka("kb", 1),))
    windows = (*sources, CopyWindow(name="c"), UnionWindow(name="u"), CopyWindow(name="behind"))
    links = ["a c", "c u", "b u", "u behind"]
    # Then the fault names the window where they meet, once, and both connectors
    (fault,) = faults(project(*windows, links=links))
    assert fault.place == "q/u"
    assert "q/a/ka" in fault.problem
    assert "q/b/kb" in fault.problem


def test_streams_of_one_partition_may_meet():
    sources = source("a", connectors=(kafka("ka"),)), source("b", connectors=(kafka("kb", 0),))
    assert faults(project(*sources, UnionWindow(name="u"), links=["a u", "b u"])) == []


def test_streams_of_different_partitions_that_never_meet_are_sound():
    sources = source("a", connectors=(kafka("ka", 0),)), source("b", connectors=(kafka("kb", 1),))
    assert faults(project(*sources)) == []


def test_they_can_meet_in_a_source():
    (fault,) = faults(project(source(connectors=(kafka("x", 0), kafka("y", 1)))))
    assert fault.place == "q/src"


def test_subscribers_read_no_partition():
    out = Connector(kind="kafka", name="out", properties=(("kafkapartition", "7"),), direction="sub")
    typed = kafka("typed", 8, type="sub")
    assert faults(project(source(connectors=(kafka("in", 0), out, typed)))) == []


@pytest.mark.parametrize(
    ("kind", "name"), [("kafka", "kafkatype"), ("rmq", "rmqtype"), ("sol", "soltype"), ("tva", "tvatype")]
)
def test_failover_needs_the_binary_format(kind, name):
    def model(*pairs):
        return project(
            source(connectors=(Connector(kind=kind, name="k", properties=(("hotfailover", "true"), *pairs)),))
        )

    assert faults(model((name, "binary"))) == []
    (fault,) = faults(model((name, "csv")))
    assert fault.place == "q/src connector k"
    assert "'csv', which carries no block numbers" in fault.problem
    assert f"Set {name} to binary" in fault.remedy
    assert len(faults(model())) == 1, "the format is csv unless said otherwise"


def test_without_failover_any_format_will_do():
    assert faults(project(source(connectors=(kafka("k", kafkatype="csv", hotfailover="false"),)))) == []


def test_failover_does_not_share_a_consumer_group():
    pairs = {"hotfailover": "true", "kafkatype": "binary", "kafkaconsumergroupid": "g"}
    assert "kafkaconsumergroupid" in told(project(source(connectors=(kafka("k", **pairs),))))


def test_connectors_of_a_window_have_different_names():
    assert "Two of its connectors are called 'k'" in told(project(source(connectors=(kafka("k"), kafka("k")))))
