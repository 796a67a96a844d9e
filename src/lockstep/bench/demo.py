"""A demonstration: publishers, subscribers and a group as processes, some of which are killed and put to sleep.

python -m lockstep.bench.demo [--records 30000] [--json]

Ends with 1 if a record was lost, duplicated or out of order.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import lockstep
from lockstep.bench import demo_processes
from lockstep.bench.demo_processes import BURST, MEMBERS, PUBLISHERS, RESULTS, SOURCE, SUBSCRIBERS, Plan, Stage
from lockstep.bench.processes import Crew
from lockstep.bench.rows import Progress
from lockstep.bench.scratch import make_stream, scratch_bus

_PUBLISH_S_MIN, _RECORDS_PER_S = 8.0, 6000  # long enough for two takeovers, slow enough for the group to keep up
_LATE_S_MAX = 40.0
_FAULTS = ("lost", "doubled", "reordered")


def main(arguments: list[str] | None = None) -> int:
    """Play it and show what came of it."""
    parser = argparse.ArgumentParser(prog="python -m lockstep.bench.demo", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--records", type=int, default=30_000, help="how many records to publish (default: %(default)s)"
    )
    parser.add_argument("--durability", choices=("fsync", "relaxed"), default="fsync")
    parser.add_argument("--json", action="store_true", help="print the result as JSON instead of a table")
    given = parser.parse_args(arguments)
    if given.records < 1:
        parser.error("--records must be at least 1")
    result = play(given.records, given.durability, Progress(sys.stderr))
    sys.stdout.write((json.dumps(result, indent=2) if given.json else table(result)) + "\n")
    return 0 if result["ok"] else 1


def play(records: int, durability: str, progress: Progress) -> dict[str, Any]:
    """Play it; returns what came of it as plain data."""
    bursts = max(20, -(-records // (BURST * PUBLISHERS)))
    stage = Stage()
    with scratch_bus(durability) as url, lockstep.connect(url) as bus, Crew() as crew:
        plan = Plan(url=url, bursts=bursts, publish_s=max(_PUBLISH_S_MIN, records / _RECORDS_PER_S))
        for stream in (SOURCE, RESULTS):
            make_stream(url, stream, None)
        members = [crew.start(demo_processes.take_part, plan, stage, number) for number in range(MEMBERS)]
        alone = [crew.start(demo_processes.subscribe, plan, stage, number) for number in range(SUBSCRIBERS)]
        for number in range(PUBLISHERS):
            crew.start(demo_processes.publish, plan, stage, number)
        progress.say(f"{len(crew.processes)} processes, {plan.records} records, {durability}")
        started = crew.go()
        drama = Drama(crew, plan, stage, members)
        heard = _watch(crew, bus, drama, progress, started + plan.publish_s + _LATE_S_MAX)
        seconds = time.monotonic() - started
        crew.finish()
        received = [heard.get(number) or crew.answer(number, 10.0) for number in alone]
        group = demo_processes.check_results(plan, bus)
    return _result(plan, stage, drama, seconds, received, group)


def _watch(crew: Crew, bus: lockstep.Lockstep, drama: Drama, progress: Progress, end: float) -> dict[int, Any]:
    """Until all is delivered, or the time is up: then what is missing counts as lost."""
    answers: dict[int, Any] = {}
    shown = 0
    while time.monotonic() < end and not (drama.is_over and _is_delivered(bus, drama)):
        for number, kind, what in crew.hear_any(0.02):
            if kind == "done":
                answers[number] = what
            elif number in drama.members:
                drama.hear(number, *what)
        drama.step()
        for takeover in drama.takeovers[shown:]:
            progress.say(f"the group's reader, member {takeover.member + 1}, is {takeover.what}")
            shown += 1
        progress.show(sum(drama.stage.sent), drama.plan.records)
    drama.wake()
    progress.end()
    return answers


def _is_delivered(bus: lockstep.Lockstep, drama: Drama) -> bool:
    records = drama.plan.records
    return min(drama.stage.received) >= records and demo_processes.count_results(bus) >= records


def _result(
    plan: Plan, stage: Stage, drama: Drama, seconds: float, received: list[dict[str, int]], group: dict[str, int]
) -> dict[str, Any]:
    takeovers = [{"what": takeover.what, "seconds": _rounded(takeover.seconds)} for takeover in drama.takeovers]
    faults = {fault: sum(each[fault] for each in [*received, group]) for fault in _FAULTS}
    published = sum(stage.sent)
    delivered = sum(each["delivered"] for each in received) + sum(stage.handed)
    is_whole = published == plan.records and len(takeovers) == 2 and None not in [t["seconds"] for t in takeovers]
    return {
        "ok": is_whole and not any(faults.values()),
        "published": published,
        "subscribers": received,
        "group": {
            **group,
            "handed_out": sum(stage.handed),
            "handed_out_again": sum(stage.handed) - group["results"],
            "refused_as_too_late": sum(stage.fenced),
        },
        **faults,
        "takeovers": takeovers,
        "delivered": delivered,
        "deliveries_per_s": round(delivered / seconds),
        "seconds": round(seconds, 2),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def table(result: dict[str, Any]) -> str:
    """Return the result as a table."""
    lines = [f"{'':28}{'records':>10}{'lost':>8}{'duplicated':>12}{'out of order':>14}"]
    lines.append(f"{f'published by {PUBLISHERS}':28}{result['published']:>10}")
    for number, each in enumerate(result["subscribers"], 1):
        lines.append(_line(f"subscriber {number}", each["delivered"], each))
    group = result["group"]
    lines.append(_line("the group's results", group["results"], group))
    lines.append(f"{'  handed to the group':28}{group['handed_out']:>10}   {group['handed_out_again']} of them again")
    lines.append(f"{'  refused as too late':28}{group['refused_as_too_late']:>10}")
    lines += [f"reader {t['what']}: the next went on after {t['seconds']} s" for t in result["takeovers"]]
    lines.append(f"{result['deliveries_per_s']} deliveries/s over {result['seconds']} s, at the publishers' pace")
    lines.append("nothing lost, duplicated or out of order" if result["ok"] else "FAILED")
    return "\n".join(lines)


def _line(name: str, records: int, faults: dict[str, int]) -> str:
    return f"{name:28}{records:>10}{faults['lost']:>8}{faults['doubled']:>12}{faults['reordered']:>14}"


LEASE_S = 1.0
_ASLEEP_S = LEASE_S + 1.5
_BLOCKED_S = 0.5


@dataclass(slots=True)
class Takeover:
    """One reader that fell out."""

    what: str
    member: int
    at: float
    seconds: float | None = None


@dataclass(slots=True)
class Drama:
    """Goes on whenever `step` is called. `members` has the crew numbers of the group's members."""

    crew: Crew
    plan: Plan
    stage: Stage
    members: list[int]
    takeovers: list[Takeover] = field(default_factory=list)
    reader: int | None = None
    awake: bool = True
    _epoch: int = -1
    _scene: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to happen."""
        return self._scene == 2 and self.awake and self._took_over()

    def hear(self, number: int, at: float, epoch: int) -> None:
        """A member was handed its first records in an epoch; one that wakes from an older epoch is no reader."""
        if epoch <= self._epoch:
            return
        self.reader, self._epoch = number, epoch
        if self.takeovers and self.takeovers[-1].seconds is None:
            self.takeovers[-1].seconds = at - self.takeovers[-1].at

    def step(self) -> None:
        """Do what is due. Publishers are let on only so far that the next scene still has records to play with."""
        self.stage.allowed.value = 1.0 if self.is_over else (0.4, 0.8, 0.99)[self._scene]
        if not self.awake and time.monotonic() - self.takeovers[-1].at > _ASLEEP_S and self._took_over():
            self.wake()
        part = sum(self.stage.sent) / self.plan.records
        if self.reader is None or not self._took_over() or not self.awake:
            return
        if self._scene == 0 and part >= 0.2:
            self._kill(self.reader)
        elif self._scene == 1 and part >= 0.6:
            self._put_to_sleep(self.reader)

    def wake(self) -> None:
        """Let the sleeping member go on."""
        if not self.awake:
            self.awake = True
            self.crew.signal(self.takeovers[-1].member, signal.SIGCONT)

    def _took_over(self) -> bool:
        return not self.takeovers or self.takeovers[-1].seconds is not None

    def _kill(self, reader: int) -> None:
        self.takeovers.append(Takeover("killed with -9", reader, time.monotonic()))
        self.crew.signal(reader, signal.SIGKILL)
        self._scene = 1

    def _put_to_sleep(self, reader: int) -> None:
        at = time.monotonic()
        self.crew.signal(reader, signal.SIGSTOP)
        if self._is_blocked():
            # Stopped in the middle of its commit, it holds the lock that all writers share. Try again at another time.
            self.crew.signal(reader, signal.SIGCONT)
            return
        self.takeovers.append(Takeover("paused longer than its lease", reader, at))
        self.awake = False
        self._scene = 2

    def _is_blocked(self) -> bool:
        before, end = sum(self.stage.sent), time.monotonic() + _BLOCKED_S
        while time.monotonic() < end:
            if sum(self.stage.sent) > before + PUBLISHERS:
                return False
            time.sleep(0.005)
        return True


if __name__ == "__main__":
    sys.exit(main())
