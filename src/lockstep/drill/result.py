"""What a drill found: figures of every fault, and everything that is not as it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.drill.arrivals import Arrival, Injected, Takeover, first_behind, longest_gap
from lockstep.drill.check import Account, Difference, account, wrong_counts
from lockstep.drill.measure import percentile
from lockstep.drill.options import DrillOptions, Fault
from lockstep.engine.data.models import DOCUMENT

_DOCUMENT_EVENTS = 1_000_000
_NEAR_S = 5.0
"""A silence that begins later than so long after a fault is not its doing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What was seen, as it came."""

    options: DrillOptions
    began_at: float
    ended_at: float
    arrivals: Sequence[Arrival]
    faults: Sequence[Injected]
    takeovers: Sequence[Takeover]
    """Since the first event, in the order of time."""
    expected: Mapping[str, int]
    counts: Mapping[str, Mapping[str, int]]
    buffer_peak: int
    difference: Difference | None
    size: int


@dataclass(frozen=True, slots=True)
class FaultFigures:
    """The figures of one fault."""

    kind: str
    engine: str
    at_s: float
    """Seconds from the first event."""
    events: int
    by: str | None
    """The engine that took over."""
    last: int | None
    current: int | None
    silence_s: float | None
    silence: tuple[float, float] | None
    """From when to when, in seconds from the first event."""
    drained_s: float | None
    in_step_s: float | None
    stopped_again: int


@dataclass(frozen=True, slots=True)
class Result:
    """All of it. `anomalies` are sentences; there must be none."""

    measured: Measured
    account: Account
    faults: tuple[FaultFigures, ...]
    unexplained: tuple[Takeover, ...]
    """Takeovers without a fault: a waste of time, not of data; an overloaded machine is a reason too."""
    anomalies: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as it must be."""
        return not self.anomalies

    @property
    def seconds(self) -> float:
        """From the first event to the last block at the subscriber."""
        return self.measured.ended_at - self.measured.began_at

    @property
    def rate(self) -> int:
        """Events a second over all that time."""
        return round(self.measured.options.total / self.seconds) if self.seconds > 0 else 0

    def silences(self) -> dict[str, float] | None:
        """Return the figures of all faults together."""
        found = [fault.silence_s for fault in self.faults if fault.silence_s is not None]
        if not found:
            return None
        return {"p50": _round(percentile(found, 50)), "p99": _round(percentile(found, 99)), "max": _round(max(found))}

    def drain_s(self) -> float | None:
        """The longest time that a new leader needed to send what it held."""
        return max((fault.drained_s for fault in self.faults if fault.drained_s is not None), default=None)

    def tree(self) -> dict[str, Any]:
        """As plain data."""
        measured = self.measured
        return {
            "ok": self.ok,
            "identical": measured.difference is None,
            "silence_s": self.silences(),
            "drain_s": self.drain_s(),
            "lost": self.account.lost,
            "doubled": self.account.doubled,
            "out_of_order": self.account.out_of_order,
            "takeovers": len(measured.takeovers),
            "false_takeovers": len(self.unexplained),
            "unexplained": [
                {"at": _round(taken.at - measured.began_at), "engine": taken.engine, "epoch": taken.epoch}
                for taken in self.unexplained
            ],
            "counts": {"expected": _short(measured.expected)}
            | {name: _short(counts) for name, counts in measured.counts.items()},
            "events": measured.options.total,
            "blocks": self.account.blocks,
            "bytes": measured.size,
            "rate": self.rate,
            "buffer_peak": measured.buffer_peak,
            "engines": measured.options.engines,
            "faults": [_fault_tree(fault) for fault in self.faults],
            "seconds": _round(self.seconds),
            "anomalies": list(self.anomalies),
        }


def evaluate(measured: Measured) -> Result:
    """Judge what was seen."""
    found = account(measured.arrivals, measured.options.blocks)
    explained = [_explained(fault) for fault in measured.faults]
    unexplained = tuple(taken for taken in measured.takeovers if taken not in explained)
    figures = [figures_of(fault, taken, measured) for fault, taken in zip(measured.faults, explained, strict=True)]
    return Result(measured, found, tuple(figures), unexplained, tuple(_anomalies(measured, found, explained)))


def _explained(fault: Injected) -> Takeover | None:
    """The takeover that a fault is the reason for."""
    return fault.takeovers[0] if fault.takeovers and fault.kind.may_change_the_lead else None


def figures_of(fault: Injected, taken: Takeover | None, measured: Measured) -> FaultFigures:
    """The figures of one fault."""
    gap, begin = silence(fault, taken, measured.arrivals, live=measured.options.pace is not None), measured.began_at
    return FaultFigures(
        kind=str(fault.kind),
        engine=fault.engine,
        at_s=_round(fault.at - begin),
        events=fault.events,
        by=taken.engine if taken else None,
        last=taken.last if taken else None,
        current=taken.current if taken else None,
        silence_s=_round(gap[1] - gap[0]) if gap else None,
        silence=(_round(gap[0] - begin), _round(gap[1] - begin)) if gap else None,
        drained_s=_round(taken.drained_s) if taken else None,
        in_step_s=None if fault.in_step_s is None else _round(fault.in_step_s),
        stopped_again=fault.stopped_again,
    )


def silence(
    fault: Injected, taken: Takeover | None, arrivals: Sequence[Arrival], *, live: bool
) -> tuple[float, float] | None:
    """From the fault to the first block that the new leader sent; without a new leader the longest wait near it.

    What the old leader had sent just before it died arrives a moment later, and does not end the silence. None if there
    was nothing left to be sent: then the silence is the publisher's, which waits until all engines are in step.
    """
    leads_anew = taken is not None and fault.kind is not Fault.HANDOVER
    if live and not leads_anew:
        near = [arrival for arrival in arrivals if arrival.at <= fault.at + 2 * _NEAR_S]
        return longest_gap(near, fault.at, fault.at + _NEAR_S)
    last = taken.last if taken is not None and leads_anew else fault.block
    found = first_behind(arrivals, max(last, fault.block), fault.at)
    return (fault.at, found.at) if found and (live or found.at <= fault.settled_at) else None


def _anomalies(measured: Measured, found: Account, explained: Sequence[Takeover | None]) -> list[str]:
    anomalies = []
    if (differs := measured.difference) is not None:
        anomalies.append(f"the file differs from that of an undisturbed run in line {differs.line:,}")
    wrong = {"lost": found.lost, "doubled": found.doubled, "out of order": found.out_of_order}
    anomalies += [f"{count:,} blocks {name}" for name, count in wrong.items() if count]
    anomalies += wrong_counts(measured.expected, measured.counts)
    if measured.options.total == _DOCUMENT_EVENTS:
        anomalies += wrong_counts(DOCUMENT, measured.counts)
    anomalies += [
        f"no engine took over after fault {number} ({fault.kind})"
        for number, (fault, taken) in enumerate(zip(measured.faults, explained, strict=True), 1)
        if taken is None and fault.kind.changes_the_lead and measured.options.engines > 1
    ]
    if missing := measured.options.faults - len(measured.faults):
        anomalies.append(f"{missing} faults could not be done")
    return list(dict.fromkeys(anomalies))


def _short(counts: Mapping[str, int]) -> dict[str, int]:
    """By the name of the window alone, as the document has it."""
    return {path.rpartition("/")[2]: rows for path, rows in counts.items()}


def _fault_tree(fault: FaultFigures) -> dict[str, Any]:
    return {
        "kind": fault.kind,
        "at": fault.at_s,
        "events": fault.events,
        "engine": fault.engine,
        "by": fault.by,
        "last": fault.last,
        "current": fault.current,
        "silence_s": fault.silence_s,
        "drained_s": fault.drained_s,
        "in_step_s": fault.in_step_s,
        "stopped_again": fault.stopped_again,
    }


def _round(seconds: float) -> float:
    return round(seconds, 3)
