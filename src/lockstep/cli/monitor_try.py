"""`lockstep monitor try`: which notifications other settings would have made of the stored input."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.monitor_fleet import client_of
from lockstep.cli.monitor_settings import loaded
from lockstep.cli.output import Output, plural

if TYPE_CHECKING:
    from lockstep.monitor.trial import Differences, Told

DIFFERS = 1
"""The exit code if anything differs."""
_SHOWN = 100


def try_settings(options: argparse.Namespace, output: Output) -> int:
    """Compare what the settings in force told with what other ones would have told."""
    from lockstep.monitor.transport.streams import MonitorStreams
    from lockstep.monitor.trial import History, compare

    new = loaded([options.new], is_client=False).order("try")["settings"]
    now = _now(options)
    url = bus_url(options)
    with opened(url) as bus:
        history = History.since(bus, url, MonitorStreams(options.name).input, options.since)
        output.note(f"Running the fleet over {plural(history.end - history.begin, 'record')}, twice ...")
        found = compare(history, bus, now, new) if options.runner == "local" else _on_spark(options, history, now, new)
    _tell(output, found)
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


def _tell(output: Output, found: Differences) -> None:
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
