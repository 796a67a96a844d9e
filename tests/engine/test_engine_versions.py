"""What a newer version wrote on the logs of a project is refused, never misread."""

from __future__ import annotations

import json

import pytest

from lockstep.core.sequence import Entry, Mark
from lockstep.engine.runtime.sequence.beats import Beat, last_beat
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition, decode, encode
from lockstep.errors import DataError
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime


def entry(**fields: object) -> Entry:
    body = json.dumps({"ends": {}, "tick_us": 0, "events": 0, **fields})
    return Entry(epoch=1, owner="a", number=1, after="", body=body)


def test_an_entry_with_a_field_that_is_not_known_is_refused():
    with pytest.raises(DataError, match="says pace, which a newer version wrote"):
        Decision.of(entry(pace=3))


def test_a_record_of_a_kind_that_is_not_known_is_refused():
    with pytest.raises(DataError, match="unknown kind 'seal'; a newer version wrote it"):
        decode(b'{"kind":"seal","epoch":1}')


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("persist", {"id": "a", "by": "b", "path": "c"}),
        ("trim", {"sequence": 1, "inputs": {}}),
        ("states", {"model": "name: p", "publish": []}),
        ("prepare", {"model": "name: p", "publish": []}),
    ],
)
def test_a_part_of_an_entry_with_a_field_that_is_not_known_is_refused(name, fields):
    assert getattr(Decision.of(entry(blocks=0, **{name: fields})), name) is not None
    with pytest.raises(DataError, match="says pace, which a newer version wrote"):
        Decision.of(entry(blocks=0, **{name: {**fields, "pace": 3}}))


@pytest.mark.parametrize("record", [Mark(1, "a"), Entry(1, "a", 1, "", "{}")])
def test_a_record_with_a_field_that_is_not_known_is_refused(record):
    with pytest.raises(DataError, match="says pace, which a newer version wrote"):
        decode(encode(record)[:-1] + b',"pace":3}')


def test_a_beat_with_a_field_that_is_not_known_is_refused():
    bus = open_bus("memory:", ThreadRuntime())
    control = bus.create("control", StreamConfig(capacity=None))
    (value,) = BatchView(0, Beat("a1", 7).batch(0).seal(0), "control").values()
    newer = [pack([value[:-1] + b',"pace":3}'], producer=NO_PRODUCER, sequence=0, created_ns=0)]
    control.append(newer)
    with pytest.raises(DataError, match="A beat on control says pace, which a newer version wrote"):
        last_beat(control)


@pytest.mark.parametrize("newer", [{"pace": 3}, {"sequence": {"pace": 3}}])
def test_a_position_with_a_field_that_is_not_known_is_refused(newer):
    tree = SequencePosition().tree()
    assert SequencePosition.of(tree) == SequencePosition()
    with pytest.raises(DataError, match="says pace, which a newer version wrote"):
        SequencePosition.of({**tree, **newer})
