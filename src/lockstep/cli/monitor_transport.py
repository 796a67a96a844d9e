"""`lockstep monitor transport`: what a RabbitMQ holds for a monitor, and its set-up."""

from __future__ import annotations

import argparse
import os

from lockstep.cli.monitor_settings import loaded
from lockstep.cli.output import Output
from lockstep.monitor.transport.brokers import Broker, brokers_of
from lockstep.monitor.transport.topology import (
    PATTERN,
    POLICY,
    Control,
    Management,
    Source,
    Topology,
    permissions,
    set_up,
)


def transport(options: argparse.Namespace, output: Output) -> int:
    """Show what there is, or set it up."""
    broker = _broker(options)
    source = _source(options, broker)
    if options.action == "show":
        _show(output, source.topology())
    else:
        set_up(source)
        _tell_set_up(output, broker)
    return 0


def _broker(options: argparse.Namespace) -> Broker:
    given = options.transport
    if given is None and options.config:
        given = loaded(options.config, is_client=False).get("rabbitmq")
    return brokers_of(given)[0]


def _source(options: argparse.Namespace, broker: Broker) -> Source:
    url = options.management or broker.management
    if url:
        return Management(url, broker)
    return Control(node=options.node, vhost=broker.vhost, environ=os.environ)


def _show(output: Output, found: Topology) -> None:
    if output.json:
        output.json_line(found.document())
        return
    output.heading("Channels")
    rows = [(c.name, c.peer, c.user, c.prefetch, c.unacknowledged, c.consumers) for c in found.channels]
    output.table(("channel", "peer", "user", "prefetch", "unacknowledged", "consumers"), rows)
    output.heading("Exchanges")
    output.table(("exchange", "kind", "durable", "auto-delete"),
                 [(e.name, e.kind, _word(e.durable), _word(e.auto_delete)) for e in found.exchanges])  # fmt: skip
    output.heading("Queues")
    output.table(("queue", "messages", "consumers", "durable", "auto-delete", "master", "mirrors", "policy"),
                 [(q.name, q.messages, q.consumers, _word(q.durable), _word(q.auto_delete), q.master,
                   ", ".join(q.mirrors) or None, q.policy or None) for q in found.queues])  # fmt: skip
    output.heading("Bindings")
    output.table(("exchange", "queue", "routing key"),
                 [(b.exchange, b.queue, b.routing_key or None) for b in found.bindings])  # fmt: skip


def _tell_set_up(output: Output, broker: Broker) -> None:
    lines = permissions(broker.vhost)
    if output.json:
        output.json_line({"policy": POLICY, "pattern": PATTERN, "permissions": lines})
        return
    output.note(f"Policy {POLICY} is set: queues that match {PATTERN} are mirrored to all nodes.")
    output.note("Users, so that agents can't read results or keepalives:")
    for line in lines:
        output.line(line)


def _word(value: bool) -> str:
    return "yes" if value else "no"
