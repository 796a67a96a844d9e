"""`lockstep cron`: what a cron expression means, when it fires, and whether it is valid."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lockstep.cli import arguments as kinds
from lockstep.cli.output import Output
from lockstep.cli.parser import Noun, Verb
from lockstep.cli.schedule import CRON_VERBS, TYPES
from lockstep.cli.times import SECOND_NS
from lockstep.errors import CronInvalid, UsageError

if TYPE_CHECKING:
    from lockstep.cron import Cron, Zone

DST = ("once", "literal")
VALID, INVALID = 0, 1
COUNT_MAX, _CHECK_COUNT = 10_000, 5
_FAR = datetime(9999, 12, 31, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _expression(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("expression", metavar="EXPRESSION", help="in quotes, as '0 0/5 14,18 * * ?'")
    parser.add_argument("--type", type=str.upper, choices=TYPES, default="UNIX", metavar="TYPE",
                        help=f"the dialect: {', '.join(TYPES)} (UNIX)")  # fmt: skip


def _times(parser: argparse.ArgumentParser) -> None:
    _expression(parser)
    parser.add_argument("--tz", default="UTC", metavar="ZONE", help="whose clock it follows, as Europe/Berlin (UTC)")
    parser.add_argument("--dst", choices=DST, default="once",
                        help="in nights when clocks change: docs/reference/cron.md (once)")  # fmt: skip
    parser.add_argument("--from", dest="start", type=kinds.moment_ns, metavar="TIME",
                        help="look after this time: ISO 8601, 5m (ago), @SECONDS since 1970 (now)")  # fmt: skip


def _next(parser: argparse.ArgumentParser) -> None:
    _times(parser)
    parser.add_argument("--count", type=kinds.positive, default=1, metavar="N", help="how many times, up to 10,000 (1)")


CRON = Noun(
    name="cron",
    purpose="Cron expressions, what they mean and when they fire; and the crons of a scheduler.",
    verbs=(
        *CRON_VERBS,
        Verb(
            name="describe",
            purpose="Say in English what an expression means.",
            run="lockstep.cli.cron:describe",
            arguments=_expression,
            examples=(
                "lockstep cron describe --type QUARTZ '0 0/5 14,18 * * ?'",
                "lockstep cron describe '30 11 * * MON-FRI' --json",
            ),
        ),
        Verb(
            name="next",
            purpose="Print when an expression fires next, in UTC.",
            run="lockstep.cli.cron:next_times",
            arguments=_next,
            examples=(
                "lockstep cron next '*/15 * * * *'",
                "lockstep cron next --type QUARTZ '0 30 2 ? * 1L' --tz Europe/Berlin --count 4",
                "lockstep cron next '0 0 13 * 5' --from 2026-01-01T00:00Z --count 3 --tz Europe/Berlin --json",
            ),
        ),
        Verb(
            name="check",
            purpose="Say whether an expression is valid (else exit code 1), what it means and when it fires.",
            run="lockstep.cli.cron:check",
            arguments=_times,
            examples=(
                "lockstep cron check '0 9 * * MON-FRI' --tz America/New_York",
                "lockstep cron check --type CRON4J '0 0 L * *' --json",
            ),
        ),
    ),
)


def describe(options: argparse.Namespace, output: Output) -> None:
    """Print the sentence."""
    from lockstep.cron import parse

    sentence = parse(options.expression, options.type).describe()
    if output.json:
        output.json_line({"expression": options.expression, "type": options.type, "description": sentence})
    else:
        output.line(sentence)


def next_times(options: argparse.Namespace, output: Output) -> None:
    """Print the next times; in a zone also as its clock shows them."""
    from lockstep.cron import Zone, parse

    if options.count > COUNT_MAX:
        raise UsageError(reason=f"--count may be {COUNT_MAX:,} at most.")
    cron, zone = parse(options.expression, options.type), Zone(options.tz, options.dst)
    found = _after(cron, zone, _start(options), options.count)
    if output.json:
        output.json_line({"next": [_iso(each) for each in found]})
        return
    _show_times(output, found, zone)
    if len(found) < options.count:
        output.note("It does not fire again within 100 years." if found else "It does not fire within 100 years.")


def check(options: argparse.Namespace, output: Output) -> int:
    """Print all that can be said of an expression."""
    from lockstep.cron import Zone, parse

    zone = Zone(options.tz, options.dst)
    about = {"expression": options.expression, "type": options.type, "tz": zone.name, "dst": zone.dst}
    try:
        cron = parse(options.expression, options.type)
    except CronInvalid as error:
        return _refused(error, about, output)
    found = _after(cron, zone, _start(options), _CHECK_COUNT)
    warnings = _warnings(cron, found)
    if output.json:
        times = [_iso(each) for each in found]
        output.json_line({**about, "valid": True, "description": cron.describe(), "next": times, "warnings": warnings})
        return VALID
    output.line(f"Valid: {cron.describe()}.")
    _show_times(output, found, zone)
    for warning in warnings:
        output.warn(warning)
    return VALID


def _refused(error: CronInvalid, about: dict[str, str], output: Output) -> int:
    if output.json:
        output.json_line({**about, "valid": False, "reason": error.params["reason"]})
    else:
        output.line(str(error).removeprefix(f"[{error.code}] ").removesuffix(f" {error.advice}"))
    return INVALID


def _warnings(cron: Cron, found: list[datetime]) -> list[str]:
    counts = [mask.bit_count() for mask in (cron.seconds, cron.minutes, cron.hours)]
    warnings = []
    if not found:
        warnings.append("It never fires: no time within 100 years fits.")
    elif len(found) < _CHECK_COUNT:
        warnings.append(f"It fires for the last time at {_iso(found[-1])}.")
    if counts == [60, 60, 24]:
        warnings.append("It fires every second of the days that it names.")
    return warnings


def _start(options: argparse.Namespace) -> datetime:
    nanos = time.time_ns() if options.start is None else options.start
    return _EPOCH + timedelta(seconds=nanos // SECOND_NS)


def _after(cron: Cron, zone: Zone, start: datetime, count: int) -> list[datetime]:
    return list(cron.occurrences(start, _FAR, zone, limit=count))


def _iso(at: datetime) -> str:
    return f"{at.replace(tzinfo=None).isoformat()}Z"


def _show_times(output: Output, found: list[datetime], zone: Zone) -> None:
    for at in found:
        local = "" if zone.is_utc else f"  {_local(at, zone)}"
        output.line(_iso(at) + local)


def _local(at: datetime, zone: Zone) -> str:
    local = at.astimezone(zone.info)
    return f"{local.replace(tzinfo=None).isoformat(' ')} {local.tzname()}"
