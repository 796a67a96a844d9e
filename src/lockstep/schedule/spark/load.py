"""Files of requests taken in with Spark: read, checked, and written by the workers in one pass."""

from __future__ import annotations

import csv
import gzip
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from lockstep.engine.spark.sources import this_host
from lockstep.errors import BadArgument, PathMissing
from lockstep.schedule.spark import requests as writes
from lockstep.schedule.spark.requests import CHECKED, MINUTE_MS, LineCheck, RequestWriter, in_order, place_of
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.validation import EVENT_FIELDS
from lockstep.streams.client import Lockstep

JSON, CSV, PARQUET = "json", "csv", "parquet"
SUFFIXES = {".jsonl": JSON, ".ndjson": JSON, ".json": JSON, ".csv": CSV, ".parquet": PARQUET}
_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
_CHUNK = 1 << 20
_PATTERN = re.compile(r"[\\*?\[\]{}]")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that is no request: where it is, and why."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What became of the lines of a load."""

    accepted: int
    """Requests that were written, or would be."""
    replaced: int
    """Requests that a later one for the same tenant and id replaced."""
    rejected: int
    faults: Sequence[Rejected] = ()
    """The first rejected lines."""
    hottest: Sequence[tuple[int, int]] = ()
    """Of a dry run: the minutes with most events, as milliseconds since 1970, and how many."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a load, by what they hold."""

    by_format: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def found(cls, given: Sequence[str]) -> Files:
        """Return the files that are named, and those of folders; what is not on this machine is left to Spark."""
        files = cls()
        for name in given:
            if "://" in name:
                files._add(name, name)
                continue
            path = Path(name)
            if not path.exists():
                raise PathMissing(path=name, reason="it does not exist")
            parts = _in_folder(path) if path.is_dir() else [path]
            if not parts:
                raise BadArgument(name="files", value=name, reason=f"it has no file that ends in {_endings()}")
            for part in parts:
                files._add(str(part), str(part.resolve()))
        return files

    def _add(self, name: str, place: str) -> None:
        kind, file = _format(name), place.rpartition("/")[2]
        if kind is None:
            raise BadArgument(name="files", value=name, reason=f"its name must end in {_endings()}")
        if file.startswith(("_", ".")):
            raise BadArgument(
                name="files", value=name, reason="Spark passes over names that begin with _ or .; rename it"
            )
        if ":" in file:
            raise BadArgument(
                name="files", value=name, reason="Spark can't read a file with a colon in its name; rename it"
            )
        listed = self.by_format.setdefault(kind, [])
        if place not in listed:
            listed.append(place)


def _in_folder(folder: Path) -> list[Path]:
    """Return the files of a folder and of those in it; like Spark, without those that begin with _ or a dot."""
    found = sorted(part for part in folder.rglob("*") if _format(part.name) and part.is_file())
    return [part for part in found if not any(name[0] in "_." for name in part.relative_to(folder).parts)]


def _format(name: str) -> str | None:
    return SUFFIXES.get(Path(name.removesuffix(".gz")).suffix.lower())


def _endings() -> str:
    return ", ".join(SUFFIXES)


def load(
    spark: SparkSession,
    files: Files,
    *,
    bus: Lockstep,
    streams: SchedulerStreams,
    tenants: frozenset[str],
    url: str | None,
    listed: int = 100,
    top: int = 10,
) -> Loaded:
    """Check the requests of files and have the workers write the last one for each tenant and id.

    Without `url`, the bus as workers open it, nothing is written, and the hottest minutes are counted.
    """
    logs = bus.logs(streams.requests)
    run = bus.runtime.new_id()
    lines, places = _lines(spark, files)
    check = LineCheck(
        tenants=tenants, shards=len(logs), partitioner=logs[0].config.partitioner, run=run,
        headers={place: _header(place) for place in files.by_format.get(CSV, ())}, places=places,
    )  # fmt: skip
    writer = RequestWriter(url=url, host=this_host(), stream=streams.requests, run=run, listed=listed)
    summary = in_order(lines.mapInArrow(check, CHECKED)).mapInArrow(writer, writes.SUMMARY)
    if url is None:
        return _counted(summary.persist(), places, top)
    return _told(summary.collect(), places)


def _counted(summary: DataFrame, places: dict[str, str], top: int) -> Loaded:
    minutes = summary.where(f.col("kind") == writes.MINUTE).groupBy("start").agg(f.sum("count").alias("count"))
    hottest = minutes.orderBy(f.desc("count"), "start").limit(top).collect()
    told = _told(summary.where(f.col("kind") != writes.MINUTE).collect(), places)
    found = [(row["start"] * MINUTE_MS, row["count"]) for row in hottest]
    summary.unpersist()
    return Loaded(
        accepted=told.accepted, replaced=told.replaced, rejected=told.rejected, faults=told.faults, hottest=found
    )


def _told(rows: Sequence[Any], places: dict[str, str]) -> Loaded:
    counts = dict.fromkeys((writes.WRITTEN, writes.REPLACED, writes.REFUSED), 0)
    faults: list[tuple[str, int, int, str]] = []
    names = {short: place for place, short in places.items()}
    for kind, place, start, row, reason, count in rows:
        counts[kind] += count
        if reason is not None:
            faults.append((names[place], start, row, reason))
    shown = [Rejected(_name(place), _line(place, start, row), reason) for place, start, row, reason in sorted(faults)]
    return Loaded(
        accepted=counts[writes.WRITTEN], replaced=counts[writes.REPLACED], rejected=counts[writes.REFUSED], faults=shown
    )


# reading


def _lines(spark: SparkSession, files: Files) -> tuple[DataFrame, dict[str, str]]:
    """All lines with their places, and short names of the places in the order of the paths."""
    parts = []
    for kind, listed in files.by_format.items():
        paths = [_spark_path(place) for place in listed]
        parts.append(_parquet(spark, paths) if kind == PARQUET else _text(spark, paths))
    given = {place for listed in files.by_format.values() for place in listed}
    found = {place_of(uri) for part in parts for uri in part.inputFiles()}
    places = {place: f"{number:06}" for number, place in enumerate(sorted(given | found))}
    return reduce(DataFrame.union, parts), places


def _spark_path(place: str) -> str:
    """A path as Spark takes it: it would read some letters as patterns."""
    return "file://" + _PATTERN.sub(r"\\\g<0>", place) if place.startswith("/") else place


def _text(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    lines = spark.read.option("lineSep", "\n").text(list(paths))
    return lines.select(
        f.col("value").cast("binary"),
        f.col("_metadata.file_path").alias("place"),
        f.col("_metadata.file_block_start").alias("start"),
        f.lit(None).cast("long").alias("row"),
    )


def _parquet(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    rows = spark.read.option("mergeSchema", "true").parquet(*paths)
    return rows.select(
        as_json(rows).alias("value"),
        f.col("_metadata.file_path").alias("place"),
        f.lit(0).cast("long").alias("start"),
        f.col("_metadata.row_index").alias("row"),
    )


def as_json(rows: DataFrame) -> Column:
    """Return the columns of each row as a line of JSON: times with an offset, bytes as text, nulls left out."""
    columns, texts = [], []
    for column in rows.schema.fields:
        kind = column.dataType.simpleString()
        item = f.col(f"`{column.name}`")
        if kind == "binary":
            texts.append(item)
        if kind == "binary" or (column.name == "id" and kind in ("int", "bigint")):
            item = item.cast("string")
        columns.append(item.alias(column.name))
    line = f.to_json(f.struct(*columns), {"timestampFormat": _TIME_FORMAT}).cast("binary")
    for text in texts:  # to_json would replace bytes that are no text; the bytes alone are a line that is rejected
        line = f.when(f.coalesce(f.is_valid_utf8(text.cast("string")), f.lit(True)), line).otherwise(text)
    return line


def _header(place: str) -> list[str]:
    path = Path(place)
    if not path.is_absolute():
        raise BadArgument(name="files", value=place, reason="files of comma-separated values must be on this machine")
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rt", encoding="utf-8-sig", newline="\n") as file:
            [names] = csv.reader(islice(file, 1), strict=True)
    except (ValueError, csv.Error, EOFError, gzip.BadGzipFile) as error:
        raise BadArgument(name="files", value=str(path), reason=f"it has no header: {error}") from None
    names = [name.strip() for name in names]
    unknown = [name for name in names if name not in EVENT_FIELDS]
    if unknown or len(set(names)) < len(names):
        reason = f"its header has {unknown[0]!r}" if unknown else "its header names a column twice"
        reason += f"; the columns are {', '.join(sorted(EVENT_FIELDS))}"
        raise BadArgument(name="files", value=str(path), reason=reason)
    return names


def _name(place: str) -> str:
    path = Path(place)
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else place


def _line(place: str, start: int, row: int) -> int:
    """Return the number of a line, from 1: that of its part, and the lines of the file before it.

    A part that does not begin with the file begins after the first line end at or after its start, as the part before
    it reads on to there.
    """
    if start == 0 or not place.startswith("/"):
        return row + 1
    before, left = 1, start
    with Path(place).open("rb") as file:
        while left and (chunk := file.read(min(_CHUNK, left))):
            before += chunk.count(b"\n")
            left -= len(chunk)
    return before + row + 1
