"""Reports: what every engine of a project says of itself about once a second, and at each change of its role."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from math import inf
from typing import Any, get_type_hints

from lockstep.engine.errors import NameTaken
from lockstep.engine.runtime.sequence.outages import BUS_AWAY
from lockstep.errors import DataError, TakenBack, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger

FRESH_S, SILENT_S = 3.0, 10.0
"""An engine of which a report came so recently is alive; one of which none came for so long is taken for gone."""
_NAME_CHECKS = 10
"""Reports of its own after which an engine no longer looks whether another one has its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """How one engine is, by its own word. Nothing that is computed depends on it."""

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
    persisted: Mapping[str, Any] = field(default_factory=dict)
    """Of the last snapshots that it was to write, by the id of the persist point: `block`, or why it `failed`."""
    ready: Mapping[str, Any] = field(default_factory=dict)
    """Of the last models that were proposed, by the id of the proposal: why it can't run them; empty: it can."""
    state_files: int = 0
    """Files in its state folder, and their bytes, as of at most half a minute before."""
    state_bytes: int = 0
    snapshots_bytes: int = 0
    """Bytes in the folder of its snapshots."""
    trims: int = 0
    """1 if it trims inputs and the sequence log after each snapshot while it leads."""


def write_report(log: Log, report: Report) -> None:
    """Put a report on the stream, under the engine's name as its key."""
    text = json.dumps({"kind": "report", **asdict(report)}, separators=(",", ":"))
    keys = [report.engine.encode()]
    with suppress(*BUS_AWAY):  # the next one says it again
        log.append([pack([text.encode()], producer=NO_PRODUCER, sequence=0, created_ns=report.at_ns, keys=keys)])


class NameCheck:
    """Refuses an engine whose name another one of its project has.

    The one that reported first keeps the name. Two reports of it must come while the newcomer looks: one alone may be
    the last word of an engine that was killed. Order is that of the stream, so that no two clocks are compared. An
    engine that has run for a while is not ended by one that wakes up later.
    """

    def __init__(self, log: Log, project: str, name: str, member: str) -> None:
        self._log, self._project, self._name, self._member = log, project, name, member
        earlier = latest_reports(log).get(name)
        self._earlier = {earlier.member} if earlier is not None else set[str]()
        self._at, self._left = log.bounds().next, _NAME_CHECKS
        self._heard: Counter[str] = Counter()
        self._is_known = False
        """Whether a report of this engine is on the stream: who comes later is the newcomer."""

    def check(self) -> None:
        """Look at what was reported since the last time; NameTaken if another engine has the name."""
        if not self._left:
            return
        self._left -= 1
        for report in self._since():
            if report.member == self._member:
                self._is_known = True
            elif report.member in self._earlier or not self._is_known:
                self._earlier.add(report.member)
                self._heard[report.member] += report.state != "stopping"
                if self._heard[report.member] > 1:
                    raise NameTaken(name=self._name, project=self._project, pid=report.pid, host=report.host)

    def _since(self) -> Iterator[Report]:
        for view in _views(self._log, self._at):
            self._at = view.end
            for key, value in zip(view.keys(), view.values(), strict=True):
                report = _read(value, view) if key == self._name.encode() else None
                if report is not None:
                    yield report


def latest_reports(log: Log) -> dict[str, Report]:
    """The newest report of each engine, by name. One that can't be read is passed over for the one before it."""
    return {engine: report for engine, (_, report) in sorted(_latest(log).items())}


def _latest(log: Log) -> dict[str, tuple[int, Report]]:
    """The newest report of each engine, and where the batch that holds it ends."""
    found: dict[str, tuple[int, Report]] = {}
    for view in reversed(list(_views(log))):
        for key, value in zip(reversed(view.keys()), reversed(view.values()), strict=True):
            if key is not None and key.decode(errors="replace") in found:
                continue  # the key spares the parsing
            report = _read(value, view)
            if report is not None:
                found.setdefault(report.engine, (view.end, report))
    return found


class ReportBoard:
    """The newest report of each engine, and how long ago it came, on the clock of the process that looks.

    The times that reports carry are wall clocks of other machines, and say nothing about how fresh they are.
    """

    def __init__(self, log: Log, runtime: Runtime, *, pause_s: float = inf) -> None:
        """`pause_s`: what is read after a longer pause may be as old as that, and is not taken for heard now."""
        self._log, self._runtime, self._pause_s = log, runtime, pause_s
        self._at: int | None = None
        self._since = self._looked = 0.0
        self._newest: dict[str, Report] = {}
        self._ends: dict[str, int] = {}
        """Where on the stream the batches of these reports end."""
        self._heard: dict[str, float] = {}
        self._late: dict[str, float] = {}
        """Engines whose last reports were read after a pause: when. They came at some time within it."""

    def look(self) -> dict[str, Report]:
        """Read what is new; the newest report of each engine of which one is still on the stream."""
        now = self._runtime.monotonic()
        if self._at is None:  # when these were written nobody knows
            self._at, self._since = self._log.bounds().next, now
            self._begin()
        else:
            self._read_on(self._at, now, is_late=now - self._looked > self._pause_s)
        self._looked = now
        return dict(sorted(self._newest.items()))

    def _begin(self) -> None:
        found = _latest(self._log)
        self._newest = {engine: report for engine, (_, report) in found.items()}
        self._ends = {engine: end for engine, (end, _) in found.items()}

    def _read_on(self, at: int, now: float, *, is_late: bool) -> None:
        try:
            for view in _views(self._log, at):
                for report in filter(None, (_read(value, view) for value in view.values())):
                    self._newest[report.engine], self._ends[report.engine] = report, view.end
                    self._heard[report.engine] = now
                    self._late[report.engine] = now if is_late else -inf
                self._at = view.end
        except TakenBack:  # some that were read are lost: go by what is left, and from here on
            self._at = self._log.bounds().next
            self._begin()
        first = self._log.bounds().first
        for gone in [engine for engine, end in self._ends.items() if end <= first]:
            del self._newest[gone], self._ends[gone]

    def reports(self) -> dict[str, Report]:
        """The newest report of each engine that was read so far."""
        return dict(self._newest)

    def silence_s(self, engine: str) -> float:
        """Seconds since a report of an engine came; infinite if none came since this process began to look."""
        return self._runtime.monotonic() - self._heard.get(engine, -inf)

    def heard(self, sure_s: float) -> dict[str, float]:
        """The silence of each engine of which it is known.

        Of one that was never heard, or whose last reports came while nobody looked, it is known after looking for
        `sure_s`.
        """
        now, is_sure = self._runtime.monotonic(), self.watched_s() > sure_s
        known = [engine for engine in list(self._newest) if now - self._late.get(engine, -inf) > sure_s]
        silences = {engine: self.silence_s(engine) for engine in known}
        return {engine: silence for engine, silence in silences.items() if silence < inf or is_sure}

    def watched_s(self) -> float:
        """For how many seconds this process has been looking."""
        return 0.0 if self._at is None else self._runtime.monotonic() - self._since


def all_reports(log: Log) -> Iterator[Report]:
    """Every report that is still there, in order."""
    for view in _views(log):
        yield from filter(None, (_read(value, view) for value in view.values()))


def _views(log: Log, start: int = 0) -> Iterator[BatchView]:
    bounds = log.bounds()
    at, end = max(start, bounds.first), bounds.next
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
    for name, kind in _report_types().items():
        if name in given and not _fits(given[name], kind):
            raise DataError(reason=f"Its {name} is {given[name]!r}.")
    try:
        return Report(**given)
    except TypeError as error:  # a field that it must have is not there
        raise DataError(reason=f"{error}.") from error


@cache
def _report_types() -> dict[str, Any]:
    """The types of a report's fields: working them out takes a millisecond, and reports are read all the time."""
    return get_type_hints(Report)


def _fits(value: Any, kind: Any) -> bool:
    if kind in (int, str):
        return type(value) is kind
    return isinstance(value, dict)
