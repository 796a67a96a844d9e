"""`lockstep monitor validate`, `transport` and `try`: settings, and what others would have sent."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import bus_url, opened
from lockstep.cli.monitor_fleet import client_of
from lockstep.cli.output import Output, plural
from lockstep.errors import UsageError
from lockstep.monitor.settings.errors import SettingsInvalid, fault_line
from lockstep.monitor.settings.settings import Host, Settings, load, shown
from lockstep.monitor.settings.validation import CATEGORIES
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

if TYPE_CHECKING:
    from lockstep.monitor.trial import Differences, Told


def loaded(paths: Sequence[str], *, is_client: bool) -> Settings:
    """The settings at paths, with those of the environment."""
    return load([Path(path) for path in paths], os.environ, host=Host.here(), is_client=is_client)


def validate(options: argparse.Namespace, output: Output) -> int:
    """Say what is wrong with settings."""
    if not options.config:
        raise UsageError(reason="Name a folder or a file of settings with --config PATH.")
    try:
        settings = loaded(options.config, is_client=False)
    except SettingsInvalid as error:
        if not output.json:
            raise
        faults = [
            {"file": fault.file, "name": fault.name, "value": shown(fault), "sentence": fault.sentence,
             "line": fault_line(fault)} for fault in error.faults
        ]  # fmt: skip
        output.json_line({"valid": False, "faults": faults})
        return error.exit_code
    _tell(options, output, settings)
    return 0


def _tell(options: argparse.Namespace, output: Output, settings: Settings) -> None:
    from lockstep.monitor.settings.expressions import unreadable  # agents load this module, too, and have no filters

    warnings = unreadable(settings.document)
    counts = {category: len(settings[category]) for category in CATEGORIES}
    if options.shows:
        output.json_line(settings.redacted)
    elif output.json:
        told = [{"name": each.name, "value": shown(each), "sentence": each.sentence} for each in warnings]
        output.json_line(
            {"valid": True, "files": settings.files, "digest": settings.digest, "warnings": told, **counts}
        )
    else:
        listed = ", ".join(plural(count, category.removesuffix("s")) for category, count in counts.items() if count)
        output.facts({"valid": "yes", "files": len(settings.files), "holds": listed or "-", "digest": settings.digest})
        for each in warnings:
            output.warn(fault_line(each))


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


DIFFERS = 1
"""The exit code if anything differs."""
_SHOWN = 100


def try_settings(options: argparse.Namespace, output: Output) -> int:
    """Compare the notifications of the settings in force with those that other settings would have sent."""
    from lockstep.monitor.transport.streams import MonitorStreams
    from lockstep.monitor.trial import History, compare

    new = loaded([options.new], is_client=False).order("try")["settings"]
    now = _now(options)
    url = bus_url(options)
    with opened(url) as bus:
        history = History.since(bus, url, MonitorStreams(options.name).input, options.since)
        output.note(f"Running the fleet over {plural(history.end - history.begin, 'record')}, twice ...")
        found = compare(history, bus, now, new) if options.runner == "local" else _on_spark(options, history, now, new)
    _tell_differences(output, found)
    return DIFFERS if found.only_now or found.only_new else 0


def _now(options: argparse.Namespace) -> Mapping[str, Any]:
    """The settings in force: those at --config, or those that a server says."""
    if options.config:
        found: Mapping[str, Any] = loaded(options.config, is_client=False).order("try")["settings"]
    else:
        found = client_of(options).get("settings")
    return found


def _on_spark(options: argparse.Namespace, history: Any, now: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    from dataclasses import replace

    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from lockstep.engine.errors import SparkFailed
    from lockstep.engine.spark.session import check_java
    from lockstep.monitor.trial import compare_on_spark
    from lockstep.schedule.spark.session import reason_of, shared_url, spark_session

    check_java()
    with opened(bus_url(options)) as bus:
        url = shared_url(bus.bus, bus_url(options))
    with spark_session() as spark:
        try:
            return compare_on_spark(spark, replace(history, url=url), now, new)
        except (PySparkException, Py4JJavaError) as error:
            raise SparkFailed(project=options.name, reason=reason_of(error)) from error


def _tell_differences(output: Output, found: Differences) -> None:
    if output.json:
        sides = {"only_now": found.only_now, "only_new": found.only_new}
        output.json_line(
            {name: [told._asdict() for told in side] for name, side in sides.items()} | {"same": found.same}
        )
        return
    rows = sorted([(told, "-") for told in found.only_now] + [(told, "+") for told in found.only_new])
    if rows:
        headings = ("", "time", "client", "check", "handler", "status", "action")
        output.table(headings, [(sign, *_cells(told)) for told, sign in rows[:_SHOWN]])
    if len(rows) > _SHOWN:
        output.note(f"... and {len(rows) - _SHOWN:,} more; --json has all.")
    gone, made = plural(len(found.only_now), "notification"), plural(len(found.only_new), "notification")
    output.note(f"{found.same:,} are the same; {gone} would not be made (-), {made} would be made besides (+).")


def _cells(told: Told) -> tuple[str, ...]:
    time = datetime.fromtimestamp(told.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return (time, told.client, told.check, told.handler, str(told.status), told.action)
