"""The gate by an exclusive queue and the last-value queue, against a real RabbitMQ."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from lockstep.connectors.rabbitmq import LastValueQueue
from lockstep.engine.gates.port import Gate
from lockstep.engine.gates.urls import open_gate
from lockstep.errors import ServerRefused, ServerUnfit, ServerUnreachable
from lockstep.runtime import ThreadRuntime
from servers.gate_process import GateProcess, until
from servers.server_fixtures import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]


def queue_url(server: Any, queue: str, more: str = "") -> str:
    return f"rabbitmq-queue://guest:guest@127.0.0.1:{server.ports[1]}?queue={queue}{more}"


@pytest.fixture
def channel(rabbitmq_server) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", rabbitmq_server.ports[1]))
    yield connection.channel()
    connection.close()


@pytest.fixture
def gates() -> Iterator[list[Gate]]:
    made: list[Gate] = []
    yield made
    for gate in made:
        gate.close()


def opened(gates: list[Gate], url: str) -> Gate:
    gate = open_gate(url, ThreadRuntime(), {}, group="c.p")
    assert gate is not None
    gates.append(gate)
    return gate


def line_of(gates: list[Gate], url: str, count: int) -> list[Gate]:
    """So many in line, the first active."""
    for number in range(count):
        gate = opened(gates, url)
        gate.enter()
        until(gate.may_lead if number == 0 else lambda: gates[-1]._channel is not None, "it stands in line")
    return gates


@pytest.fixture
def processes() -> Iterator[list[GateProcess]]:
    made: list[GateProcess] = []
    yield made
    for process in made:
        if process._process.poll() is None:
            process.end()


def stand(processes: list[GateProcess], url: str, count: int) -> list[GateProcess]:
    for number in range(count):
        processes.append(GateProcess(url))
        processes[-1].until(": standby" if number else ": active")
    return processes


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_when_the_active_one_is_killed_the_next_to_arrive_is_active_soon(rabbitmq_server, processes, kind):
    url = queue_url(rabbitmq_server, f"killed-{kind}", f"&queue_type={kind}")
    first, second, third = stand(processes, url, 3)
    first.kill()
    took = second.until(": active")
    print(f"{kind}: active {took:.2f} s after kill -9")
    assert took < 10
    assert ": standby" in third.state
    second.kill()
    third.until(": active")


def test_one_that_slept_longer_than_its_heartbeat_comes_back_as_a_standby(rabbitmq_server, processes):
    sleeper, second = stand(processes, queue_url(rabbitmq_server, "slept", "&timeout_s=2"), 2)
    said = len(sleeper.said)
    sleeper.pause()
    second.until(": active")
    sleeper.resume()
    sleeper.until(": standby")
    assert not any(line.startswith("True") for line in sleeper.said[said:])
    assert second.is_active


def test_one_that_leaves_goes_to_the_end_of_the_line(rabbitmq_server, gates):
    first, second = line_of(gates, queue_url(rabbitmq_server, "left"), 2)
    first.leave()
    first.enter()  # at once: it must not keep its place
    until(second.may_lead, "the second is active")
    assert not first.may_lead()


def test_a_queue_that_somebody_empties_or_removes_has_one_active_engine_again(rabbitmq_server, gates, channel):
    both = line_of(gates, queue_url(rabbitmq_server, "emptied", "&timeout_s=2"), 2)
    channel.queue_purge("emptied")
    both[0].leave()
    until(both[1].may_lead, "the second is active although there was no token")
    both[0].enter()
    channel.queue_delete("emptied")
    until(lambda: sum(gate.may_lead() for gate in both) == 1, "one is active")


def test_a_broker_that_stands_still_closes_the_gate_within_a_heartbeat(breakable_rabbitmq, gates):
    server = breakable_rabbitmq.server
    (gate,) = line_of(gates, queue_url(server, "still", "&timeout_s=2"), 1)
    server.pause()
    took = until(lambda: not gate.may_lead(), "it is unsure")
    server.resume()
    assert took < 5
    until(gate.may_lead, "it is active again", 60)


def test_a_broker_that_is_killed_and_restarted_has_one_active_engine_again(breakable_rabbitmq, gates):
    server = breakable_rabbitmq.server
    both = line_of(gates, queue_url(server, "broken"), 2)
    server.kill()
    until(lambda: not any(gate.may_lead() for gate in both), "none is active")
    server.restart()
    until(lambda: sum(gate.may_lead() for gate in both) == 1, "one is active again", 60)


def test_a_wrong_password_and_another_kind_of_queue_are_refused_with_the_reason(rabbitmq_server, channel):
    url = queue_url(rabbitmq_server, "refused")
    with pytest.raises(ServerRefused) as refused:
        open_gate(url.replace("guest:guest", "guest:hush"), ThreadRuntime(), {}, group="c.p")
    assert "hush" not in str(refused.value)
    channel.queue_declare("refused")
    with pytest.raises(ServerUnfit, match="queue refused"):
        open_gate(url, ThreadRuntime(), {}, group="c.p")


def test_no_broker_is_an_error_within_a_bound():
    (port,) = free_ports(1)
    began = time.monotonic()
    with pytest.raises(ServerUnreachable, match=f"127.0.0.1:{port}"):
        open_gate(f"rabbitmq-queue://127.0.0.1:{port}?queue=q", ThreadRuntime(), {}, group="c.p")
    assert time.monotonic() - began < 20


# The last value


def last_value(channel: Any, name: str) -> LastValueQueue:
    channel.exchange_declare("values", "topic")
    return LastValueQueue(channel, "values", f"out.{name}", name)


def test_a_last_value_queue_holds_the_last_message_of_its_topic(channel):
    queue = last_value(channel, "last")
    assert queue.last() is None
    for value in (b"1", b"2", b"3"):
        channel.basic_publish("values", "out.last", value)
    channel.basic_publish("values", "out.another", b"4")
    assert [queue.last() for _ in range(3)] == [b"3"] * 3
    channel.basic_publish("values", "out.last", b"5")
    assert queue.last() == b"5"


def test_the_last_value_is_the_newest_also_if_it_came_while_the_older_was_looked_at(rabbitmq_server, channel):
    queue = last_value(channel, "meanwhile")
    channel.basic_publish("values", "out.meanwhile", b"1")
    method, _, _ = channel.basic_get("meanwhile")
    channel.basic_publish("values", "out.meanwhile", b"2")
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert queue.last() == b"2"


def test_a_last_value_stays_for_the_next_who_asks_and_goes_with_its_queue(channel):
    queue = last_value(channel, "stays")
    channel.basic_publish("values", "out.stays", b"1")
    assert queue.last() == b"1"
    assert last_value(channel, "stays").last() == b"1"
    queue.delete()
    assert last_value(channel, "stays").last() is None
