"""Input streams that forget sooner than the windows need their events are found before an engine starts."""

from __future__ import annotations

import pytest

from lockstep.engine.model.loading import parse_model
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.engine.runtime.snapshots import retention
from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.testing import VirtualRuntime

MODEL = """
name: desk
queries:
  - name: q
    windows:
      - {kind: source, name: Trades, insert_only: true, schema: "id*:int64,time:stamp"}
      - {kind: source, name: Others, insert_only: true, schema: "id*:int64,time:stamp"}
      - {kind: copy, name: FiveMinutes, retention: bytime_sliding 5 minutes on time}
      - {kind: copy, name: LastThousand, retention: bycount_sliding 1000}
    edges: [Trades -> FiveMinutes, Trades -> LastThousand]
"""
STREAMS = ProjectStreams(cluster="c", project="desk")


def found(**config):
    bus, graph = open_bus("memory:", VirtualRuntime()), compile_project(parse_model(MODEL, "desk.yaml"))
    if config:
        bus.create("c.desk.q.Trades.I", StreamConfig(**config))
        bus.create("c.desk.q.Others.I", StreamConfig(capacity=1))
    return [finding.problem for finding in retention.input_retention(bus, STREAMS, graph)]


def test_streams_that_are_made_later_keep_everything():
    assert found() == []


@pytest.mark.parametrize(
    "config",
    [{"capacity": None}, {"capacity": None, "retain_age_s": 300.0}, {"capacity": None, "retain_age_s": 1e6}],
)
def test_streams_that_keep_as_long_as_the_windows_are_fine(config):
    assert found(**config) == []


def test_a_stream_that_forgets_sooner_names_both_times_and_the_window():
    [problem] = found(capacity=None, retain_age_s=60.0)
    assert "c.desk.q.Trades.I keeps records for 60 s, and the window needs 300 s" in problem
    assert "q/FiveMinutes" in problem


def test_a_number_of_records_says_nothing_about_their_age():
    [problem] = found(capacity=10_000)
    assert "keeps 10,000 records at most, and the window needs 300 s of them" in problem
    assert [name in text for text, name in zip(found(capacity=999), ("Five", "Last"), strict=True)] == [True, True]
