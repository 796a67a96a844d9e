"""Options of RabbitMQ as Sensu has them, the order of brokers, and pauses between tries."""

from __future__ import annotations

import pytest

from lockstep.monitor.transport.brokers import Broker, Turn, brokers_of, pauses
from lockstep.monitor.transport.errors import BadBroker


def test_nothing_is_the_usual_place():
    assert brokers_of(None) == [Broker("127.0.0.1", 5672, "/", "guest", "guest")]


def test_a_hash_a_url_and_lists_of_them():
    one = {"host": "a", "port": 1, "vhost": "/sensu", "user": "u", "password": "p", "prefetch": 50, "heartbeat": 10}
    expected = Broker("a", 1, "/sensu", "u", "p", 50, 10)
    assert brokers_of(one) == [expected]
    assert brokers_of([one, "amqp://u:p%40@b:2/%2Fsensu?prefetch=7&durable=true"]) == [
        expected, Broker("b", 2, "/sensu", "u", "p@", 7, durable=True),
    ]  # fmt: skip
    assert [broker.host for broker in brokers_of("amqp://a, amqp://b/")] == ["a", "b"]


@pytest.mark.parametrize("options", [None, {"host": "a"}, "amqp://a", [{"host": "a"}]])
def test_who_asks_says_the_prefetch_of_brokers_without_one(options):
    assert [broker.prefetch for broker in brokers_of(options, 1000)] == [1000]
    assert [broker.prefetch for broker in brokers_of({"host": "a", "prefetch": 7}, 1000)] == [7]


def test_tls():
    [broker] = brokers_of({"host": "a", "ssl": {"cert_chain_file": "c.pem", "private_key_file": "k.pem"}})
    assert (broker.port, broker.tls, broker.certificate, broker.key) == (5671, True, "c.pem", "k.pem")
    assert brokers_of("amqps://a")[0].port == 5671
    assert Broker().context() is None
    assert Broker(tls=True).context() is not None


@pytest.mark.parametrize(
    "options",
    [
        5, [], "", "redis://h", "amqp://", "amqp://h:x", "amqp://h:99999", {"port": "5672"}, {"port": 0}, {"host": ""},
        {"prefetch": -1}, {"prefetch": True}, {"durable": 1}, "amqp://h?durable=perhaps", {"management": "mq:1"},
        [[[]]],
    ],
    ids=str,
)  # fmt: skip
def test_what_can_not_be(options):
    with pytest.raises(BadBroker):
        brokers_of(options)


def test_passwords_are_not_shown():
    with pytest.raises(BadBroker) as error:
        brokers_of({"password": ["geheim"]})
    assert "geheim" not in str(error.value)
    assert "geheim" not in repr(Broker(password="geheim"))


def test_a12_all_brokers_are_tried_in_a_shuffled_order_then_again():
    orders = [["b", "c", "a"], ["c", "a", "b"]]

    def shuffle(left):
        order = orders.pop(0)
        left.sort(key=lambda broker: order.index(broker.host))

    turn = Turn([Broker(host) for host in "abc"], shuffle)
    assert [turn.next().host for _ in range(6)] == ["b", "c", "a", "c", "a", "b"]


def test_a13_pauses_grow_by_two_seconds_up_to_twenty():
    next_pause = pauses()
    assert [next_pause() for _ in range(12)] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 20, 20]
