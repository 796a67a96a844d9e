"""A demonstration: publishers, subscribers and a group as processes, some of which are killed and put to sleep.

python -m lockstep.bench.demo [--records 30000] [--json]

Ends with 1 if a record was lost, duplicated or out of order.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import lockstep
from lockstep.bench import cast
from lockstep.bench.cast import BURST, MEMBERS, PUBLISHERS, RESULTS, SOURCE, SUBSCRIBERS, Plan, Stage
from lockstep.bench.crew import Crew
from lockstep.bench.drama import Drama
from lockstep.bench.progress import Progress
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
        members = [crew.start(cast.take_part, plan, stage, number) for number in range(MEMBERS)]
        alone = [crew.start(cast.subscribe, plan, stage, number) for number in range(SUBSCRIBERS)]
        for number in range(PUBLISHERS):
            crew.start(cast.publish, plan, stage, number)
        progress.say(f"{len(crew.processes)} processes, {plan.records} records, {durability}")
        started = crew.go()
        drama = Drama(crew, plan, stage, members)
        heard = _watch(crew, bus, drama, progress, started + plan.publish_s + _LATE_S_MAX)
        seconds = time.monotonic() - started
        crew.finish()
        received = [heard.get(number) or crew.answer(number, 10.0) for number in alone]
        group = cast.check_results(plan, bus)
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
    return min(drama.stage.received) >= records and cast.count_results(bus) >= records


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
    """The result for people."""
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


if __name__ == "__main__":
    sys.exit(main())
