"""Reports: what every engine of a project says of itself about once a second, and at each change of its role."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from lockstep.errors import AppendUncertain, DataError, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.port import Log
from lockstep.runtime import logger


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """How one engine is, by its own word. Nothing is decided by it: it is for people."""

    engine: str
    incarnation: str
    member: str
    pid: int
    host: str
    role: str
    """active or standby."""
    epoch: int
    """Of the leader that this engine follows, or its own."""
    state: str
    """starting, running, draining or stopping."""
    number: int
    """The last entry that it computed, and below its last block and the events up to there."""
    block: int
    events: int
    sequenced: int
    """The last block that is decided, as this engine knows it."""
    published: int
    """The last block that is out, as this engine knows it."""
    buffer_blocks: int
    buffer_bytes: int
    buffer_blocks_max: int
    buffer_bytes_max: int
    buffer_peak_blocks: int
    snapshot_block: int
    """Of the last persisted snapshot that it knows; 0: none. Below when it was made."""
    snapshot_ns: int
    model: str
    """Fingerprint of the model in force."""
    counts: Mapping[str, Any]
    """The counts of this engine's windows by path, as WindowCounts.dump gives them."""
    http: str = ""
    """Where its REST is, if it has one."""
    at_ns: int = 0
    """Wall clock of its machine."""
    takeovers: int = 0
    """How often it took over since it started."""
    election: str = ""
    """What says whether it may try to lead, and what that says now; empty: the group's log alone."""


def write_report(log: Log, report: Report) -> None:
    """Put a report on the stream, under the engine's name as its key."""
    text = json.dumps({"kind": "report", **asdict(report)}, separators=(",", ":"))
    keys = [report.engine.encode()]
    with suppress(AppendUncertain):  # the next one says it again
        log.append([pack([text.encode()], producer=NO_PRODUCER, sequence=0, created_ns=report.at_ns, keys=keys)])


def latest_reports(log: Log) -> dict[str, Report]:
    """The newest report of each engine, by name. One that can't be read is passed over for the one before it."""
    found: dict[str, Report] = {}
    for view in reversed(list(_views(log))):
        for key, value in zip(reversed(view.keys()), reversed(view.values()), strict=True):
            if key is not None and key.decode(errors="replace") in found:
                continue  # the key spares the parsing
            report = _read(value, view)
            if report is not None:
                found.setdefault(report.engine, report)
    return dict(sorted(found.items()))


def all_reports(log: Log) -> Iterator[Report]:
    """Every report that is still there, in order."""
    for view in _views(log):
        yield from filter(None, (_read(value, view) for value in view.values()))


def _views(log: Log) -> Iterator[BatchView]:
    at, end = log.bounds().first, log.bounds().next
    while at < end:
        try:
            stored = log.read(at)
        except Trimmed:  # engines wrote meanwhile, and the oldest went
            at = max(at + 1, log.bounds().first)
            continue
        if not stored:
            return
        for entry in stored:
            at = entry.base + 1
            try:
                view = BatchView(entry.base, entry.data, log.name)
            except DataError as error:
                _warn(log.name, entry.base, error)
                continue
            yield view
            at = view.end


def _read(value: bytes, view: BatchView) -> Report | None:
    try:
        return parse_report(value)
    except DataError as error:
        _warn(view.stream, view.base, error)
        return None


def _warn(stream: str, offset: int, error: DataError) -> None:
    detail = {"stream": stream, "offset": offset, "reason": str(error)}
    logger.warning("A report can't be read", extra={"action": "report_unreadable", **detail})


def parse_report(value: bytes) -> Report:
    """Back from a record; names that a newer version added are left out. DataError if it is no report."""
    try:
        tree = json.loads(value)
    except ValueError as error:
        raise DataError(reason=f"It is not JSON: {error}.") from error
    if not isinstance(tree, dict) or tree.get("kind") != "report":
        raise DataError(reason="It is not of kind 'report'.")
    given = {field.name: tree[field.name] for field in fields(Report) if field.name in tree}
    for name, kind in get_type_hints(Report).items():
        if name in given and not _fits(given[name], kind):
            raise DataError(reason=f"Its {name} is {given[name]!r}.")
    try:
        return Report(**given)
    except TypeError as error:  # a field that it must have is not there
        raise DataError(reason=f"{error}.") from error


def _fits(value: Any, kind: Any) -> bool:
    if kind in (int, str):
        return type(value) is kind
    return isinstance(value, dict)
