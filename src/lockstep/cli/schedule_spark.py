"""`lockstep schedule load`, `ingest`, `report` and `forecast`: what Spark does for a scheduler."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli.connection import bus_url
from lockstep.cli.output import Output, Progress, plural
from lockstep.cli.schedule_events import opened_scheduler, shown, store_url
from lockstep.errors import LockstepError, TimedOut, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lockstep.schedule.scheduler import Scheduler
    from lockstep.schedule.spark.load import Loaded

_LOOK_S = 0.2
FOUND = 1
"""The exit code if lines were rejected."""


@contextmanager
def _spark(options: argparse.Namespace) -> Iterator[SparkSession]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from lockstep.engine.errors import SparkFailed
    from lockstep.schedule.spark.session import reason_of, spark_session

    with spark_session(master=options.master, own=dict(options.conf), verbose=options.verbose_spark) as spark:
        try:
            yield spark
        except (PySparkException, Py4JJavaError) as error:
            raise SparkFailed(project=options.name, reason=reason_of(error)) from error


def load(options: argparse.Namespace, output: Output) -> int:
    """Take in files."""
    from lockstep.engine.spark.session import check_java
    from lockstep.schedule.spark.load import Files
    from lockstep.schedule.spark.load import load as load_files
    from lockstep.schedule.spark.session import shared_url

    check_java()
    files = Files.found(options.files)
    with opened_scheduler(options) as scheduler:
        url = shared_url(scheduler.bus.bus, bus_url(options))  # what can't work is said before Spark starts
    begun = time.monotonic()
    with _spark(options) as spark, opened_scheduler(options) as scheduler:
        progress = output.progress("requests written")
        with _counting(scheduler, progress):
            loaded = load_files(
                spark, files, bus=scheduler.bus, streams=scheduler.streams,
                tenants=frozenset(scheduler.tenants()), url=None if options.dry_run else url,
                listed=options.rejected, top=options.top,
            )  # fmt: skip
        written = time.monotonic() - begun
        applied = None
        if not options.dry_run and options.wait:
            applied = _applied(scheduler, output, options.timeout)
    took = time.monotonic() - begun
    _tell_loaded(options, output, loaded, applied, written, took)
    return FOUND if loaded.rejected else 0


def _tell_loaded(
    options: argparse.Namespace, output: Output, loaded: Loaded, applied: bool | None, written: float, took: float
) -> None:
    if output.json:
        counts = {"accepted": loaded.accepted, "replaced": loaded.replaced, "rejected": loaded.rejected}
        faults = [{"file": fault.file, "line": fault.line, "reason": fault.reason} for fault in loaded.faults]
        hottest = [{"minute": shown(minute), "events": count} for minute, count in loaded.hottest]
        times = {"written_s": round(written, 3), "seconds": round(took, 3)}
        output.json_line({**counts, "applied": applied, "dry_run": options.dry_run, **times, "hottest": hottest,
                          "faults": faults})  # fmt: skip
        return
    if loaded.hottest:
        output.table(["minute", "events"], [[shown(minute), count] for minute, count in loaded.hottest])
    for fault in loaded.faults:
        output.line(f"{fault.file}:{fault.line} {fault.reason}")
    if loaded.rejected > len(loaded.faults):
        output.note(f"... and {plural(loaded.rejected - len(loaded.faults), 'more rejected line')}.")
    verb = "would be taken in" if options.dry_run else "carried out" if applied else "stored"
    said = f"{plural(loaded.accepted, 'request')} {verb}, {loaded.replaced:,} replaced by later ones"
    output.note(f"{said}, {loaded.rejected:,} rejected, in {took:.1f} s.")
    if applied is False:
        start = f"lockstep schedule serve --name {options.name}"
        output.warn(f"No node is running: the requests are carried out when one starts ({start}).")


@contextmanager
def _counting(scheduler: Scheduler, progress: Progress) -> Iterator[None]:
    """Show how many requests are written while Spark works."""
    logs = scheduler.bus.logs(scheduler.streams.requests)
    before = sum(log.bounds().next for log in logs)
    ended = threading.Event()

    def count() -> None:
        while not ended.wait(_LOOK_S):
            written = sum(log.bounds().next for log in logs) - before
            progress.add(written - progress.count)

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        yield
    finally:
        ended.set()
        counter.join()
        progress.end()


def _applied(scheduler: Scheduler, output: Output, timeout: float) -> bool:
    """Wait until nodes have carried out all requests that are there now; False if no node runs."""
    ends = {log.name: log.bounds().next for log in scheduler.bus.logs(scheduler.streams.requests)}
    if not scheduler.client.nodes():
        return False
    progress = output.progress("requests left to carry out")
    end = time.monotonic() + timeout
    try:
        while True:
            group = scheduler.bus.groups.describe(scheduler.streams.group)
            done = {part.stream: part.next or 0 for part in group.streams}
            left = sum(max(last - done.get(name, 0), 0) for name, last in ends.items())
            if not left:
                return True
            if not scheduler.client.nodes():
                return False
            if time.monotonic() > end:
                error = TimedOut(what=f"Waiting for {left:,} requests to be carried out", seconds=timeout)
                error.add_note("They are stored, and nodes go on with them.")
                raise error
            progress.add(left - progress.count)
            time.sleep(_LOOK_S)
    finally:
        progress.end()


def ingest(options: argparse.Namespace, output: Output) -> int:
    """Take in requests from a streaming source until asked to end."""
    from lockstep.cli.output import Stopping
    from lockstep.engine.spark.session import check_java
    from lockstep.schedule.spark.ingest import Ingestion
    from lockstep.schedule.spark.session import shared_url

    check_java()
    with opened_scheduler(options) as scheduler:
        url = shared_url(scheduler.bus.bus, bus_url(options))
    source = {name: value.decode() for name, value in options.source_options}
    with _spark(options) as spark, opened_scheduler(options) as scheduler, Stopping().listening() as stopping:
        work = Ingestion(
            spark, scheduler, url=url, checkpoint=Path(options.checkpoint), kind=options.format, options=source
        )
        work.start(every_s=options.every, available_now=options.available_now)
        progress = output.progress("requests taken in")
        try:
            while work.is_active and not stopping.wait(_LOOK_S):
                progress.add(work.accepted - progress.count)
            work.stop()
        finally:
            progress.end()
    counts = {"accepted": work.accepted, "replaced": work.replaced, "rejected": work.rejected}
    if output.json:
        output.json_line({**counts, "batches": work.batches, "rejected_stream": work.rejected_stream})
    else:
        output.note(f"{plural(work.accepted, 'request')} taken in, {work.replaced:,} replaced by later ones.")
        if work.rejected:
            where = f"see 'lockstep stream tail {work.rejected_stream} --from-start --exit'"
            output.warn(f"{plural(work.rejected, 'record')} rejected: {where}.")
    return stopping.code


def report(options: argparse.Namespace, output: Output) -> None:
    """Report lateness, retries and misses by tenant and hour."""
    from lockstep.engine.spark.session import check_java
    from lockstep.schedule.spark import report as reports
    from lockstep.schedule.spark.session import shared_url

    check_java()
    _check_plot(options.plot)
    if options.parquet and Path(options.parquet).exists():
        raise UsageError(reason=f"--parquet {options.parquet!r} exists: name a new folder.")
    with opened_scheduler(options) as scheduler:
        url, stream = shared_url(scheduler.bus.bus, bus_url(options)), scheduler.streams.history
    with _spark(options) as spark:
        rows = reports.by_hour(
            spark, url, stream, tenant=options.tenant, start=_ms(options.start), stop=_ms(options.stop),
            parquet=options.parquet,
        )  # fmt: skip
    if options.plot:
        reports.plot(rows, Path(options.plot))
    if output.json:
        for row in rows:
            output.json_line({**row.plain(), "hour": shown(row.hour)})
    elif not rows:
        output.note("The history has no such records.")
    else:
        output.table(reports.HEADINGS, [row.cells() for row in rows])


def forecast(options: argparse.Namespace, output: Output) -> None:
    """Count what will fire."""
    from lockstep.engine.spark.session import check_java
    from lockstep.schedule.spark import forecast as forecasts
    from lockstep.schedule.spark.session import shared_url

    check_java()
    _check_plot(options.plot)
    with opened_scheduler(options) as scheduler:
        url = shared_url(scheduler.bus.bus, bus_url(options))
    with _spark(options) as spark, opened_scheduler(options) as scheduler:
        now = scheduler.bus.runtime.wall_ns() // 10**6
        found = forecasts.forecast(spark, scheduler, url=url, store=store_url(options), start=now, days=options.days,
                                   tenant=options.tenant, top=options.top, series=options.plot is not None)  # fmt: skip
    if options.plot:
        forecasts.plot(found, Path(options.plot))
    if output.json:
        busiest = [{"minute": shown(row.minute), "events": row.events, "ticks": row.ticks} for row in found.busiest]
        output.json_line({"days": options.days, "events": found.events, "ticks": found.ticks, "busiest": busiest})
        return
    rows = [[shown(row.minute), row.events + row.ticks, row.events, row.ticks] for row in found.busiest]
    if rows:
        output.table(["minute", "fires", "events", "ticks"], rows)
    output.note(f"{plural(found.events, 'event')} and {plural(found.ticks, 'tick')} in {options.days:g} days.")


def _check_plot(plot: str | None) -> None:
    """Say before Spark starts that there can be no picture."""
    from importlib.util import find_spec

    if plot is not None and find_spec("matplotlib") is None:
        raise LockstepError(reason="a picture needs matplotlib: pip install matplotlib")


def _ms(moment_ns: int | None) -> int | None:
    return None if moment_ns is None else moment_ns // 10**6
