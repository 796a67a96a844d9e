"""What a newer version wrote on the sequence log is refused, never misread."""

from __future__ import annotations

import json

import pytest

from lockstep.core.sequence import Entry
from lockstep.engine.run.decisions import Decision, decode
from lockstep.errors import DataError


def entry(**fields: object) -> Entry:
    body = json.dumps({"ends": {}, "tick_us": 0, "events": 0, **fields})
    return Entry(epoch=1, owner="a", number=1, after="", body=body)


def test_an_entry_with_a_field_that_is_not_known_is_refused():
    with pytest.raises(DataError, match="says pace, which a newer version wrote"):
        Decision.of(entry(pace=3))


def test_a_record_of_a_kind_that_is_not_known_is_refused():
    with pytest.raises(DataError, match="unknown kind 'seal'; a newer version wrote it"):
        decode(b'{"kind":"seal","epoch":1}')
