"""The inflow from Kafka when something goes wrong, without a broker: settings, sizes, commits and errors that last."""

from __future__ import annotations

import json
import logging

import pytest
from schedule_worlds import World

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, KafkaException

from lockstep.errors import AppendTooLarge, BadConfig, Unavailable
from lockstep.log.port import Limits
from lockstep.schedule.inflow import KafkaInflow, PartitionMoved, Progress

FAR = "2090-01-01T00:00Z"


class Message:
    """A record of Kafka."""

    def __init__(self, offset, value, key=None, partition=0):
        self._offset, self._value, self._key, self._partition = offset, value, key, partition

    def topic(self):
        return "in"

    def partition(self):
        return self._partition

    def offset(self):
        return self._offset

    def value(self):
        return self._value

    def key(self):
        return self._key

    def error(self):
        return None

    def timestamp(self):
        return 1, 1_700_000_000_000 + self._offset


@pytest.fixture
def world():
    made = World(shards=2)
    made.start()
    made.clock.advance(2)
    return made


@pytest.fixture
def inflow(world):
    made = KafkaInflow(world.client, ["in"], "127.0.0.1:1", "g")
    yield made
    made.close()


@pytest.fixture
def progress(world):
    return progress_of(world)


def progress_of(world):
    """The progress of another consumer, which has just been given the partition."""
    made = Progress(world.client.bus.bus, "jobs", "g")
    made.begin([("in", 0)])
    return made


def limit(monkeypatch, logs, most):
    """Have logs take appends of so many bytes at most, as servers do."""
    for log in logs:
        append = log.append

        def limited(batches, append=append, name=log.name, **more):
            size = sum(batch.size for batch in batches)
            if size > most:
                raise AppendTooLarge(size=f"{size} bytes", stream=name, bus="b", limit=f"{most} bytes", setting="it")
            return append(batches, **more)

        monkeypatch.setattr(type(log), "limits", Limits(append_bytes=most, append_setting="it"), raising=False)
        monkeypatch.setattr(log, "append", limited, raising=False)


def request(name, payload="p", **fields):
    return json.dumps({"id": name, "tenant": "s", "eventTime": FAR, "payload": payload, **fields}).encode()


@pytest.mark.parametrize("settings", [
    {"sasl.jaas.config": "x"}, {"auto.offset.reset": "sometimes"}, {"session.timeout.ms": "abc"},
    {"ssl.truststore.location": "x"}, {"security.protocol": "SASL_SSL", "sasl.mechanism": "NONE"},
], ids=lambda settings: next(iter(settings)))  # fmt: skip
def test_settings_that_can_not_work_are_refused_at_the_start(world, settings):
    with pytest.raises(BadConfig, match=r"kafka\.consumers"):
        KafkaInflow(world.client, ["in"], "127.0.0.1:1", settings=settings)


def test_errors_about_settings_show_no_password(world):
    settings = {"sasl.password": "hidden-9f2c", "sasl.mechanism": "hidden-9f2c", "security.protocol": "SASL_SSL"}
    with pytest.raises(BadConfig) as caught:
        KafkaInflow(world.client, ["in"], "127.0.0.1:1", settings=settings)
    assert "hidden-9f2c" not in str(caught.value)


def test_more_requests_than_fit_into_one_append_are_stored_in_parts(world, inflow, progress, monkeypatch):
    monkeypatch.setattr(type(world.client.bus), "promises", NotAtomic(world.client.bus.promises))
    limit(monkeypatch, world.client._logs, 4000)
    inflow._take(progress, [Message(number, request(f"e{number}", "x" * 1000)) for number in range(20)])
    world.clock.advance(1)
    assert inflow.counts.taken == 20
    assert all(world.client.find("s", f"e{number}") is not None for number in range(20))


class NotAtomic:
    """Promises of a bus that has no transactions over several logs."""

    def __init__(self, promises):
        self._promises = promises

    def __getattr__(self, name):
        return False if name == "atomic" else getattr(self._promises, name)


def test_a_request_that_is_too_large_for_the_stream_is_a_dead_letter_and_holds_up_nobody(
    world, inflow, progress, monkeypatch
):
    # Given a bus that takes messages of 40,000 bytes
    monkeypatch.setattr(type(world.client.bus), "promises", NotAtomic(world.client.bus.promises))
    limit(monkeypatch, [*world.client._logs, inflow._dead_letters], 40_000)
    # When requests come of which some are larger, and so are records that are no requests
    large = request("large", "x" * 50_000)
    inflow._take(progress, [
        Message(0, request("a")), Message(1, large, b"k"), Message(2, b"y" * 90_000), Message(3, request("b")),
        Message(4, b"no"),
    ])  # fmt: skip
    world.clock.advance(1)
    # Then the others are stored
    assert [world.client.find("s", name) is not None for name in ("a", "b", "large")] == [True, True, False]
    assert (inflow.counts.taken, inflow.counts.rejected) == (2, 3)
    # And those are dead letters, of which the beginning is kept
    dead = {dict(one.headers)["Lockstep-Offset"]: one for one in world.records("jobs.inflow.dlq")}
    assert sorted(dead) == [b"1", b"2", b"4"]
    assert dead[b"4"].value == b"no"
    assert large.startswith(dead[b"1"].value)
    assert dict(dead[b"1"].headers)["Lockstep-Size"] == str(len(large)).encode()
    assert b"APPEND_TOO_LARGE" in dict(dead[b"1"].headers)["Lockstep-Reason"]


class Committing:
    """A consumer whose commits end as a list says."""

    def __init__(self, *codes):
        self.codes, self.committed = list(codes), []

    def commit(self, *, offsets, asynchronous):
        assert not asynchronous
        code = self.codes.pop(0) if self.codes else None
        if code is not None:
            raise KafkaException(KafkaError(code))
        self.committed += [(one.topic, one.partition, one.offset) for one in offsets]


def test_offsets_that_could_not_be_committed_are_committed_later(inflow, progress):
    progress.to_commit, consumer = {("in", 0): 5, ("in", 1): 7}, Committing(KafkaError._TRANSPORT)
    inflow._commit(consumer, progress)
    assert (progress.to_commit, consumer.committed) == ({("in", 0): 5, ("in", 1): 7}, [])
    inflow._commit(consumer, progress)
    assert (progress.to_commit, consumer.committed) == ({}, [("in", 0, 5), ("in", 1, 7)])


def test_offsets_of_a_partition_that_moved_are_left_to_its_new_consumer(inflow, progress):
    progress.to_commit, consumer = {("in", 0): 5, ("in", 1): 7}, Committing(KafkaError.ILLEGAL_GENERATION)
    inflow._commit(consumer, progress)
    assert (progress.to_commit, consumer.committed) == ({}, [("in", 1, 7)])


def test_an_error_that_lasts_is_logged_once_a_minute(world, inflow, caplog):
    caplog.set_level(logging.WARNING)
    errors = [KafkaError(code) for code in (KafkaError._AUTHENTICATION, KafkaError._SSL)]
    for _ in range(100):
        for error in errors:
            inflow._note(error)
    assert [caplog.text.count(error.name()) for error in errors] == [1, 1]
    world.clock.advance(61)
    inflow._note(errors[0])
    assert [caplog.text.count(error.name()) for error in errors] == [2, 1]


class Moving:
    """A consumer that is given another partition while the bus is away, and a record of it at once."""

    def __init__(self):
        self.given, self.sought = [Message(7, request("other"), partition=1)], []

    def assignment(self):
        return []

    def pause(self, places):
        """Those that are there."""

    def resume(self, places):
        """Those that are there."""

    def poll(self, seconds):
        return self.given.pop() if self.given else None

    def seek(self, place):
        self.sought.append((place.topic, place.partition, place.offset))


def test_a_record_that_comes_while_the_bus_is_away_is_read_again(world, inflow, progress, monkeypatch):
    # Given a bus that is away twice
    send, failures = world.client.send, iter([Unavailable(reason="away"), Unavailable(reason="away")])

    def away(asked, changes=None):
        for error in failures:
            raise error
        send(asked, changes)

    monkeypatch.setattr(world.client, "send", away)
    # When a record of another partition comes meanwhile
    consumer = Moving()
    assert inflow._store(consumer, progress, [Message(0, request("a"))])
    # Then the consumer goes back to it
    assert consumer.sought == [("in", 1, 7)]
    world.clock.advance(1)
    assert world.client.find("s", "a") is not None


# --- records that are read again ---

PAST = "2010-01-01T00:00Z"
RECORDS = [
    Message(10, request("a", eventTime=PAST)), Message(11, request("a", mode="REMOVE")), Message(12, b"no"),
    Message(13, request("b", eventTime=PAST)), Message(14, request("c", eventTime=PAST)),
]  # fmt: skip
LATER = [Message(number, request(f"later{number}", eventTime=PAST)) for number in range(15, 20)]


def taken(world, inflow, progress, records):
    """Store records as a consumer does, and return what fired, by name, and how many dead letters there are."""
    inflow._take(progress, records)
    progress.stored(records)
    world.clock.advance(1)
    return sorted(world.fired()), len(world.records("jobs.inflow.dlq"))


def taken_before(world, inflow, progress):
    """Store records, of which one removes an event that has fired."""
    assert taken(world, inflow, progress, RECORDS[:1])[0] == ["a"]
    assert taken(world, inflow, progress, RECORDS[1:]) == (["a", "b", "c"], 1)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7, 10])
def test_records_that_are_read_again_after_a_crash_are_not_stored_again(world, inflow, progress, size):
    # Given records that were stored, and not committed before the process died
    taken_before(world, inflow, progress)
    # When another one reads them again, in other parts
    again, read = progress_of(world), [*RECORDS, *LATER]
    for start in range(0, len(read), size):
        fired = taken(world, inflow, again, read[start : start + size])
        # Then it commits nothing before it is past them
        assert again.to_commit == ({("in", 0): min(10 + start + size, 20)} if start + size >= 5 else {})
    # And only those after them are stored
    assert fired == (["a", "b", "c", *(f"later{number}" for number in range(15, 20))], 1)


def test_after_a_commit_what_is_stored_next_is_recognized_too(world, inflow, progress):
    taken(world, inflow, progress, RECORDS[:1])
    progress.committed(("in", 0))
    taken(world, inflow, progress, RECORDS[1:4])
    assert taken(world, inflow, progress_of(world), RECORDS[1:]) == (["a", "b", "c"], 1)


def test_a_group_that_was_set_back_reads_all_records_again(world, inflow, progress):
    taken_before(world, inflow, progress)
    progress.committed(("in", 0))
    taken(world, inflow, progress, LATER)
    assert taken(world, inflow, progress_of(world), RECORDS)[1] == 2
    assert (inflow.counts.taken, inflow.counts.rejected) == (13, 2)


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(world, inflow, progress):
    taken_before(world, inflow, progress)
    made_anew = [Message(10, request("n", eventTime=PAST)), Message(11, request("m", eventTime=PAST))]
    assert taken(world, inflow, progress_of(world), made_anew)[0] == ["a", "b", "c", "m", "n"]


def test_a_consumer_that_lost_its_partition_stores_nothing(world, inflow, progress):
    # Given a consumer that was paused after it read records, and another that took them over
    taken_before(world, inflow, progress_of(world))
    # When the first one goes on
    with pytest.raises(PartitionMoved):
        inflow._take(progress, RECORDS)
    # Then nothing of it is stored
    world.clock.advance(1)
    assert sorted(world.fired()) == ["a", "b", "c"]
