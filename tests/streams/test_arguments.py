"""Arguments of public calls are checked in one way: what is no integer, offset or time is refused with a sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from worlds import CALM, offsets, publish, take

from lockstep import GroupOptions, OnFailure, StreamConfig
from lockstep.errors import BadArgument, BadConfig, BadOffset, BadRecord, UsageError
from lockstep.streams import arguments
from lockstep.streams.options import PublisherOptions, SubscriberOptions


@pytest.fixture
def node(virtual):
    node = virtual.node()
    publish(node, "orders", *(b"%d" % number for number in range(10)))
    return node


@pytest.mark.parametrize("offset", [0.5, 1.0, math.nan, True, "1", b"1", np.float64(1.0), 2**70, -1])
def test_what_is_no_offset_is_not_confirmed_and_poisons_no_group(node, offset):
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        take(member, 3)
        with pytest.raises((BadArgument, BadOffset)):
            member.confirm(offset)
        member.confirm(1, sync=True)
        assert member.confirmed_offset() == 1


def test_integers_of_numpy_are_integers(node):
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        take(member, 3)
        member.confirm(np.int64(2), sync=True)
        assert member.confirmed_offset() == 2
        assert type(member.confirmed_offset()) is int
    reader = node.subscriber("orders", initial="earliest")
    reader.seek(np.uint8(7))
    assert offsets(reader.poll(max_records=np.int32(2))) == [7, 8]
    assert node.get("orders", np.int16(3)).value == b"3"


CALLS = {
    "poll max_records": lambda node, reader: reader.poll(max_records=2.5),
    "poll max_bytes": lambda node, reader: reader.poll(max_bytes="many"),
    "poll nan": lambda node, reader: reader.poll(math.nan),
    "poll text": lambda node, reader: reader.poll("1"),
    "records": lambda node, reader: reader.records(idle_s=math.nan),
    "seek": lambda node, reader: reader.seek(5.5),
    "seek too far": lambda node, reader: reader.seek(2**70),
    "seek_by": lambda node, reader: reader.seek_by(1.5),
    "seek_to_time": lambda node, reader: reader.seek_to_time(2**70),
    "wait_assigned": lambda node, reader: reader.wait_assigned(math.nan),
    "get": lambda node, reader: node.get("orders", 1.5),
    "get below 0": lambda node, reader: node.get("orders", -1),
    "trim": lambda node, reader: node.trim("orders", 2.0),
    "offset_at": lambda node, reader: node.offset_at("orders", 1.5),
    "wait_for": lambda node, reader: node.wait_for("orders", math.nan),
    "create": lambda node, reader: node.create("other", {}),
    "publisher config": lambda node, reader: node.publisher("other", config={"capacity": 5}),
    "receive": lambda node, reader: node.receive(reader, "handler"),
    "first_time": lambda node, reader: node.first_time("space", 5),
    "reset": lambda node, reader: node.groups.target("orders", 1.5),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_with_a_wrong_argument_is_refused(node, call):
    reader = node.subscriber("orders", initial="earliest")
    with pytest.raises(UsageError, match="is not valid"):
        call(node, reader)
    assert reader.offset() == 0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (PublisherOptions, {"linger_s": math.nan}),
        (PublisherOptions, {"linger_s": math.inf}),
        (PublisherOptions, {"batch_records": 1.5}),
        (PublisherOptions, {"buffer_bytes": "many"}),
        (SubscriberOptions, {"max_records": 0.5}),
        (SubscriberOptions, {"stale_margin": math.nan}),
        (SubscriberOptions, {"on_error": "print"}),
        (GroupOptions, {"lease_s": math.nan}),
        (GroupOptions, {"confirm_s": "soon"}),
        (OnFailure, {"retries": 1.5}),
        (OnFailure, {"backoff_s": math.nan}),
    ],
)
def test_an_option_that_is_no_number_is_refused(kind, options):
    with pytest.raises(BadConfig, match=next(iter(options))):
        kind(**options)


@pytest.mark.parametrize("created_ns", [2**70, -(2**70), 1.5, "now"])
def test_a_time_that_does_not_fit_fails_its_own_record_only(node, created_ns):
    with node.publisher("orders", linger_s=1.0) as publisher:
        before = publisher.publish(b"before")
        with pytest.raises(BadArgument, match="created_ns"):
            publisher.publish(b"x", created_ns=created_ns)
        after = publisher.publish(b"after", created_ns=np.int64(5))
    assert (before.result(), after.result()) == (10, 11)
    assert node.get("orders", 11).created_ns == 5


def test_many_records_may_come_from_a_generator(node):
    with node.publisher("orders") as publisher:
        many = publisher.publish_many((b"%d" % n for n in range(3)), keys=(b"k" for _ in range(3)))
        assert many.result() == [10, 11, 12]
        for wrong in (b"abc", "abc", 5, {b"a": b"b"}):
            with pytest.raises(BadArgument, match="values"):
                publisher.publish_many(wrong)
        with pytest.raises(BadRecord, match="2 keys for 0 values"):
            publisher.publish_many([], keys=[b"a", b"b"])


def test_seconds_may_be_infinite_where_there_need_be_no_limit():
    assert arguments.seconds("timeout", math.inf) == math.inf
    assert arguments.seconds("timeout", np.float32(1.5)) == 1.5
    with pytest.raises(BadArgument, match="finite"):
        arguments.seconds("pause", math.inf, finite=True)


def test_state_of_a_transaction_is_bytes(node):
    node.create("other", StreamConfig())
    with node.transaction() as together:
        for wrong in (lambda: together.put("name", "text"), lambda: together.put(5, b"x")):
            with pytest.raises(BadArgument):
                wrong()
