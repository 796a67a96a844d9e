"""What a drill says while it runs, and its result as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lockstep.drill.result import FaultFigures, Result
from lockstep.engine.data.models import DOCUMENT

Cell = str | int | None
Rows = list[list[Cell]]
_PLACES = 5

FAULT_HEADINGS = (
    "fault", "engine", "at event", "taken over by", "last id", "current id", "silence s", "drained s", "in step s",
)  # fmt: skip


def fault_rows(faults: Sequence[FaultFigures]) -> Rows:
    """A line for each fault."""
    return [
        [fault.kind, fault.engine, _number(fault.events), fault.by, _number(fault.last), _number(fault.current),
         _seconds(fault.silence_s), _seconds(fault.drained_s), _seconds(fault.in_step_s)]
        for fault in faults
    ]  # fmt: skip


def count_headings(result: Result) -> tuple[str, ...]:
    """The expected rows and those of each engine."""
    is_document = result.measured.expected == DOCUMENT
    return ("window", "the document" if is_document else "undisturbed", *result.measured.counts)


def count_rows(result: Result) -> Rows:
    """A line for each window."""
    measured = result.measured
    return [
        [path.rpartition("/")[2], f"{rows:,}", *(f"{counts.get(path, 0):,}" for counts in measured.counts.values())]
        for path, rows in measured.expected.items()
    ]


def facts(result: Result) -> dict[str, str]:
    """Everything else, one below the other."""
    measured, silences = result.measured, result.silences()
    found = {
        "events": f"{measured.options.total:,} in {result.account.blocks:,} blocks, {result.seconds:,.1f} s",
        "rate": f"{result.rate:,} events/s at the subscriber, faults and waiting included",
        "takeovers": f"{len(measured.takeovers)}, {_without_a_fault(result)}",
    }
    if silences:
        found["silence"] = f"p50 {silences['p50']:.3f} s, p99 {silences['p99']:.3f} s, longest {silences['max']:.3f} s"
    if (drained := result.drain_s()) is not None:
        found["drain"] = f"{drained:.3f} s at the longest"
    found["buffer peak"] = f"{measured.buffer_peak:,} blocks"
    if again := sum(fault.stopped_again for fault in result.faults):
        found["stopped again"] = f"{again} times: it was within a write to the bus, and held it"
    account = result.account
    found["blocks"] = f"{account.lost:,} lost, {account.doubled:,} duplicated, {account.out_of_order:,} out of order"
    found["identical"] = f"yes, {measured.size:,} bytes" if measured.difference is None else "NO"
    return found


def difference_lines(result: Result) -> list[str]:
    """The first line that is not as it must be, and how it must be."""
    differs = result.measured.difference
    if differs is None:
        return []
    return [
        f"The first difference is in line {differs.line:,}:",
        f"  expected  {_shown(differs.expected)}",
        f"  found     {_shown(differs.found)}",
    ]


def verdict(result: Result) -> str:
    """The last line."""
    if result.ok:
        return "The subscriber's file is the same, byte for byte: nothing lost, duplicated or out of order."
    return "FAILED: " + "; ".join(result.anomalies) + "."


def summary(name: str, result: Result) -> str:
    """One line."""
    measured = result.measured
    silences = result.silences()
    silent = f", silence at most {silences['max']:.2f} s" if silences else ""
    found = "; ".join(result.anomalies) if result.anomalies else "none"
    return (
        f"{name}: {result.account.blocks:,} blocks checked, {len(measured.faults)} faults, "
        f"{len(measured.takeovers)} takeovers ({_without_a_fault(result)}){silent}; anomalies: {found}"
    )


def _without_a_fault(result: Result) -> str:
    """How many takeovers nothing was done for, and when they were."""
    places = [f"{taken.engine} at {taken.at - result.measured.began_at:.1f} s" for taken in result.unexplained]
    shown = f": {', '.join(places[:_PLACES])}{', ...' if len(places) > _PLACES else ''}" if places else ""
    return f"{len(places)} of them without a fault{shown}"


def _number(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _shown(line: str | None) -> str:
    return "(the file has ended)" if line is None else line


class Telling(Protocol):
    """Receives what a drill reports."""

    def say(self, text: str) -> None:
        """Report an event."""

    def show(self, text: str) -> None:
        """Report progress; the next report replaces it."""


class Silence:
    """Drops all reports."""

    def say(self, text: str) -> None:
        """Ignore the text."""

    def show(self, text: str) -> None:
        """Ignore the progress."""
