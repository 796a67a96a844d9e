"""Results that agents send to RabbitMQ: how many a server takes from there, each acknowledged when it is durable."""

from __future__ import annotations

import time
from collections.abc import Callable

import lockstep
from lockstep.bench.compare_servers import Wanted, served
from lockstep.bench.monitor.loads import NAME, SETTINGS
from lockstep.bench.monitor.servers import Json, leader, servers, site
from lockstep.bench.processes import Crew, Link
from lockstep.drill import measure
from lockstep.monitor.agent.swarm import Client
from lockstep.monitor.transport.amqp import client_library
from lockstep.monitor.transport.port import KEEPALIVES, RESULTS
from lockstep.monitor.transport.streams import MonitorStreams

Say = Callable[[str], None]
_CLIENTS = 200
_TAKEN_S, _LOOK_S = 120.0, 0.05


def amqp_url(url: str) -> str:
    """Where a RabbitMQ that speaks streams, too, takes AMQP."""
    rest, _, port = url.partition("?amqp_port=")
    host = rest.partition("://")[2].rpartition(":")[0]
    return f"amqp://{host}:{port}"


def publish(link: Link, url: str, results: int) -> Json:
    """Be agents of the old shape: publish results to their exchange."""
    pika = client_library()
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for name in (KEEPALIVES, RESULTS):
        channel.exchange_declare(name, exchange_type="direct")
    clients = [Client(f"old-{number:03d}", f"{number:x}") for number in range(_CLIENTS)]
    now = int(time.time())
    for client in clients:
        channel.basic_publish(KEEPALIVES, "", client.keepalive(now))
    link.ready()
    began = time.monotonic()
    for number in range(results):
        client = clients[number % _CLIENTS]
        channel.basic_publish(RESULTS, "", client.result(f"check-{number // _CLIENTS % 40:02d}", 0, now))
    connection.close()
    return {"seconds": round(time.monotonic() - began, 2), "cpu_s": round(measure.cpu_s(), 2)}


def take_from_rabbitmq(runner: str, results: int, say: Say, url: str | None = None) -> Json:
    """Results a second, from the first that is published to the last that is durable: it is acknowledged then."""
    with served(Wanted("rabbitmq", url), say) as broker, site(runner, SETTINGS) as place:
        amqp = amqp_url(broker.url)
        say("starting a server")
        with servers(place, more=["--transport", amqp]) as [server], lockstep.connect(place.url) as bus, Crew() as crew:
            leader([server])
            time.sleep(1.0)  # for its queues to be there
            log = bus.logs(MonitorStreams(NAME).input)[0]
            others = measure.Others()
            crew.start(publish, amqp, results)
            _taken(server.counters, "keepalives", _CLIENTS)
            began, cpu_s, first = time.monotonic(), server.cpu_s(), log.bounds().next
            crew.go()
            while log.bounds().next < first + results and time.monotonic() < began + _TAKEN_S:
                time.sleep(_LOOK_S)
            seconds = time.monotonic() - began
            sent = crew.answer(0, _TAKEN_S)
            _taken(server.counters, "results", results)
            cpu_s = server.cpu_s() - cpu_s
            counted = int(server.counters()["results"])
            return {
                "results": results, "seconds": round(seconds, 2), "per_s": round(results / seconds, 1),
                "published": sent, "lost": results - counted,
                "cpu_us_per_result": round(cpu_s / results * 1e6, 1), "others_cores": others.cores(),
            }  # fmt: skip


def _taken(counters: Callable[[], Json], name: str, wanted: int) -> None:
    """Return when so many are counted."""
    end = time.monotonic() + _TAKEN_S
    while counters().get(name, 0) < wanted and time.monotonic() < end:
        time.sleep(_LOOK_S)
