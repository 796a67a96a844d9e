"""How sending to Kafka gives up: the client can't be broken on order, so a producer of our own plays it."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, KafkaException

from lockstep.log.kafka.client import Partition
from lockstep.log.kafka.sender import GRACE_S, Outgoing, Overdue, Sender, Unsent

PLACE = Partition("orders", 0)


class Told:
    """A message that was delivered."""

    def __init__(self, number):
        self._number = number

    def offset(self):
        return self._number


class ScriptedProducer:
    """Does at each poll what its script says next: raise, or tell errors (None: stored) of the oldest messages."""

    def __init__(self, script, clock):
        self.script, self.clock = script, clock
        self.waiting, self.stored, self.purged = [], 0, False

    def list_topics(self, topic, timeout):
        return type("Found", (), {"topics": {topic: type("Topic", (), {"error": None})}})

    def produce(self, topic, value, key, partition, on_delivery, headers):
        self.waiting.append(on_delivery)

    def poll(self, timeout):
        self.clock.now += timeout
        if not self.script:
            return
        step = self.script.pop(0)
        if isinstance(step, KafkaException):
            raise step
        for error in step:
            told = self.waiting.pop(0)
            if error is None:
                self.stored += 1
            told(error, Told(self.stored - 1))

    def purge(self):
        self.purged = True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def sender_with(*scripts):
    clock, made, left = Clock(), [], [list(script) for script in scripts]

    def make(_settings):
        made.append(ScriptedProducer(left.pop(0), clock))
        return made[-1]

    return Sender({}, 1.0, clock, make), made


def test_a_producer_that_says_it_can_not_go_on_is_replaced():
    broken = KafkaException(KafkaError(KafkaError._FATAL))
    sender, made = sender_with([broken], [[None]])
    with pytest.raises(Unsent):
        sender.send(PLACE, [Outgoing(b"a")])
    assert made[0].purged
    assert sender.send(PLACE, [Outgoing(b"a")]) == [0]
    assert len(made) == 2


def test_a_message_that_a_broken_producer_will_not_take_has_it_replaced():
    sender, made = sender_with([[KafkaError(KafkaError._FATAL)]], [[None]])
    with pytest.raises(Unsent):
        sender.send(PLACE, [Outgoing(b"a")])
    assert sender.send(PLACE, [Outgoing(b"a")]) == [0]
    assert len(made) == 2


def test_a_call_that_is_overdue_gives_up_all_of_its_messages_at_once():
    sender, made = sender_with([[None]], [[None, None]])
    with pytest.raises(Overdue):
        sender.send(PLACE, [Outgoing(b"a"), Outgoing(b"b")])
    assert made[0].purged, "the second message must not be stored without the first of the next try"
    assert made[0].clock.now >= 1.0 + GRACE_S
    assert sender.send(PLACE, [Outgoing(b"a"), Outgoing(b"b")]) == [0, 1]


def test_what_is_stored_of_several_messages_is_told():
    refused = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    sender, _ = sender_with([[None, refused]])
    with pytest.raises(Unsent) as caught:
        sender.send(PLACE, [Outgoing(b"a"), Outgoing(b"b")])
    assert caught.value.is_partial
    sender, _ = sender_with([[refused, refused]])
    with pytest.raises(Unsent) as caught:
        sender.send(PLACE, [Outgoing(b"a"), Outgoing(b"b")])
    assert not caught.value.is_partial
