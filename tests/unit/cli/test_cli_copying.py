"""Copying to another bus: what was written there counts, whatever the source knows of it."""

from __future__ import annotations

import pytest

from lockstep import connect
from lockstep.cli.stream_copy import Copier, place
from lockstep.errors import Conflict


@pytest.fixture
def buses():
    with connect("memory:") as source, connect("memory:") as target:
        with source.publisher("orders") as publisher:
            for number in range(5):
                publisher.publish(b"%d" % number, key=b"k", headers=[("h", b"1")], created_ns=number)
        target.create("copied")
        yield source, target


def test_records_delivered_again_are_not_copied_again(buses) -> None:
    # Given a copier that wrote records and was killed before it confirmed them
    source, target = buses
    with source.subscriber("orders", group="copy") as subscriber:
        records = subscriber.poll(5.0).to_list()
        copier = Copier(subscriber, target, "copied", source.logs("orders"), same_bus=False)
        copier.take(records[:3])
        # When they are delivered again, with more after them
        again = Copier(subscriber, target, "copied", source.logs("orders"), same_bus=False)
        again.take(records)
    # Then only those after them are added, and all is as it was
    assert again.copied == 2
    with target.subscriber("copied", initial="earliest") as reader:
        found = reader.poll().to_list()
    assert [(r.value, r.key, r.headers, r.created_ns) for r in found] == [
        (b"%d" % number, b"k", (("h", b"1"),), number) for number in range(5)
    ]


def test_a_transaction_that_wakes_up_late_writes_nothing(buses) -> None:
    _, target = buses
    late = target.transaction()
    late.expect("position", late.get("position"))
    late.put("position", b"1")
    late.publish("copied", b"late")
    with target.transaction() as together:
        together.expect("position", None)
        together.put("position", b"2")
    with pytest.raises(Conflict, match="nothing was written"):
        late.commit()
    assert target.bounds("copied").count == 0
    assert target.transaction().get("position") == b"2"


def test_records_of_a_transaction_get_their_offsets_in_order(buses) -> None:
    _, target = buses
    target.create("other")
    with target.transaction() as together:
        for stream in ("copied", "copied", "other", "copied"):
            together.publish(stream, b"v")
    assert together.offsets == [0, 1, 0, 2]


def test_a_place_is_the_same_however_it_is_spelled(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place("lmdb:a") == place("lmdb:./a") == place(f"lmdb:{tmp_path}/a?durability=relaxed")
    assert place("lmdb:a") != place("lmdb:b")
    assert place("memory:a") == "memory:a"
