"""Lists and changes of a fleet, asked of a server: `lockstep monitor events`, `silence`, `why` and others."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lockstep.cli.output import Output, confirm, plural
from lockstep.cli.values import parse_span_ns, parse_time_ns
from lockstep.errors import UsageError
from lockstep.monitor.client import DEFAULT_URL, MonitorClient, NotInFleet
from lockstep.monitor.core.conditions import DAYS, WindowTime

URL_VARIABLE, TOKEN_VARIABLE = "LOCKSTEP_MONITOR_URL", "LOCKSTEP_TOKEN"
SEVERITIES = ("ok", "warning", "critical", "unknown")


def client_of(options: argparse.Namespace) -> MonitorClient:
    """A client of the server that is meant: --url, else the environment, else this machine."""
    url = options.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    if options.user is None:
        return MonitorClient(url, token=os.environ.get(TOKEN_VARIABLE))
    if options.password_file is None:
        raise UsageError(reason="--user needs --password-file FILE.")
    return MonitorClient(url, user=options.user, password=Path(options.password_file).read_text().strip())


def severity(status: Any) -> str:
    """The name of a status."""
    return SEVERITIES[status] if isinstance(status, int) and 0 <= status < len(SEVERITIES) else "unknown"


def when(seconds: Any) -> str:
    """A time in UTC."""
    if not isinstance(seconds, int | float):
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _line(text: Any, most: int = 60) -> str:
    first = str(text or "").strip().split("\n", 1)[0]
    return first if len(first) <= most else f"{first[: most - 3]}..."


def events(options: argparse.Namespace, output: Output) -> None:
    """List the open events, the worst first."""
    found = client_of(options).events(options.client)
    found.sort(key=lambda event: (-_rank(event["check"]["status"]), event["client"]["name"], event["check"]["name"]))
    if output.json:
        for event in found:
            output.json_line(event)
    elif not found:
        output.note("There are no open events.")
    else:
        rows = [
            [
                severity(event["check"]["status"]), event["client"]["name"], event["check"]["name"],
                event["occurrences"], "yes" if event["silenced"] else "", when(event["last_state_change"]),
                _line(event["check"].get("output")),
            ]
            for event in found
        ]  # fmt: skip
        output.table(["severity", "client", "check", "occurrences", "silenced", "since", "output"], rows)


def _rank(status: Any) -> int:
    return {1: 1, 2: 3}.get(status, 2) if status else 0


def clients(options: argparse.Namespace, output: Output) -> None:
    """List the clients."""
    found = client_of(options).clients()
    if output.json:
        for client in found:
            output.json_line(client)
    elif not found:
        output.note("There are no clients. Start an agent: lockstep monitor agent --config DIR")
    else:
        rows = [
            [each["name"], each.get("address"), ", ".join(each.get("subscriptions", [])), when(each.get("timestamp"))]
            for each in found
        ]
        output.table(["client", "address", "subscriptions", "last keepalive"], rows)


def show(options: argparse.Namespace, output: Output) -> None:
    """Show one client."""
    fleet = client_of(options)
    found, name = fleet.client(options.client), options.client
    tree: dict[str, Any] = {"client": found, "events": fleet.events(name), "results": fleet.results(name)}
    if output.json:
        output.json_line(tree)
        return
    output.facts({key: _text(value) for key, value in found.items()} | {"timestamp": when(found.get("timestamp"))})
    output.heading("checks")
    rows = [[each["check"]["name"], severity(each["check"]["status"]), when(each["check"].get("executed")),
             _line(each["check"].get("output"))] for each in tree["results"]]  # fmt: skip
    output.table(["check", "severity", "at", "output"], rows)


def delete(options: argparse.Namespace, output: Output) -> None:
    """Forget a client."""
    fleet, name = client_of(options), options.client
    fleet.client(name)
    events, results = len(fleet.events(name)), len(fleet.results(name))
    effect = f"resolve {plural(events, 'open event')} and forget {plural(results, 'result')} of client {name}"
    if not options.dry_run:
        confirm(options, name, effect)
        fleet.delete_client(name, invalidate=options.invalidate)
    tree = {"client": name, "events": events, "results": results, "deleted": not options.dry_run}
    _say(output, tree, f"Would {effect}." if options.dry_run else f"Deleted client {name}.")


def checks(options: argparse.Namespace, output: Output) -> None:
    """List the checks that are published, with when they run; or show one of them."""
    found = [each for each in client_of(options).checks() if options.check in (None, each["name"])]
    if options.check is not None and not found:
        raise NotInFleet(what=f"No check {options.check} is published")
    if output.json:
        for check in found:
            output.json_line(check)
    elif not found:
        output.note("No checks are published.")
    elif options.check is not None:
        output.facts({key: _text(value) for key, value in found[0].items()})
    else:
        rows = [
            [each["name"], str(each.get("cron") or f"{each.get('interval')} s"), ", ".join(each.get("subscribers", [])),
             _line(each.get("command"))] for each in found
        ]  # fmt: skip
        output.table(["check", "every", "subscribers", "command"], rows)


def check(options: argparse.Namespace, output: Output) -> int:
    """Print the last result of a check; the exit code is its status, as of a Nagios plugin."""
    found = client_of(options).result(options.client, options.check)["check"]
    if output.json:
        output.json_line(found)
    else:
        output.line(f"{severity(found['status']).upper()}: {_line(found.get('output'), 200)}")
    return int(found["status"]) if 0 <= found["status"] <= 3 else 3


def silence(options: argparse.Namespace, output: Output) -> None:
    """List the silences, begin one, or end one."""
    fleet = client_of(options)
    if options.end is not None:
        fleet.end_silence(options.end)
        _say(output, {"id": options.end, "ended": True}, f"Ended the silence {options.end}.")
        return
    if options.show is not None:
        _show_silence(fleet, options.show, output)
        return
    entry = silence_entry(options, time.time())
    if not entry:
        _silences(fleet, output)
        return
    if not entry.keys() & {"subscription", "check", "match"}:
        raise UsageError(reason="Say what is to be silent: --client, --subscription, --check or --match.")
    found = fleet.silence(**entry, creator=options.by or os.environ.get("USER", ""))
    _say(output, found, f"Silenced {found['id']}.")


def silence_entry(options: argparse.Namespace, now_s: float) -> dict[str, Any]:
    """The silence that options describe, without those that were not given."""
    if options.client and options.subscription:
        raise UsageError(reason="Give --client or --subscription, not both: a silence has one of them.")
    subscription = f"client:{options.client}" if options.client else options.subscription
    match = dict(_pair(text, "--match", "ATTRIBUTE=PATTERN") for text in options.match)
    entry = {
        "subscription": subscription, "check": options.check, "reason": options.reason, "match": match,
        "id": options.id or (" ".join(options.match) if match else None),
        "begin": None if options.begin is None else _begin(options.begin, now_s),
        "expire": None if options.expire is None else max(1, round(options.expire)),
        "when": _windows(options.when), "planned": options.planned, "expire_on_resolve": options.until_resolved,
    }  # fmt: skip
    return {name: value for name, value in entry.items() if value}


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise UsageError(reason=f"{option} is written {form}, not {text!r}.")
    return name, value


def _begin(text: str, now_s: float) -> int:
    """A moment, or a span from now."""
    try:
        return round(now_s + parse_span_ns(text) / 10**9) if text[-1:].isalpha() and text[-1] != "Z" else (
            parse_time_ns(text, 0) // 10**9
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(reason=f"--begin: {error}.") from None


def _windows(texts: Sequence[str]) -> dict[str, Any]:
    """Time windows as filters have them: DAY=BEGIN-END."""
    days: dict[str, list[dict[str, str]]] = {}
    for text in texts:
        day, window = _pair(text, "--when", "DAY=BEGIN-END")
        begin, dash, end = window.partition("-")
        try:
            WindowTime(begin), WindowTime(end)
        except ValueError as error:
            raise UsageError(reason=f"--when: {error}.") from None
        if day.lower() not in ("all", *DAYS) or not dash:
            raise UsageError(reason=f"--when is written DAY=BEGIN-END with a day of the week or all, not {text!r}.")
        days.setdefault(day.lower(), []).append({"begin": begin, "end": end})
    return {"days": days} if days else {}


def _show_silence(fleet: MonitorClient, id_: str, output: Output) -> None:
    found = next((entry for entry in fleet.silences() if entry["id"] == id_), None)
    if found is None:
        raise NotInFleet(what=f"There is no silence {id_}")
    if output.json:
        output.json_line(found)
    else:
        output.facts({name.replace("_", " "): _text(value) for name, value in found.items()})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _silences(fleet: MonitorClient, output: Output) -> None:
    found = fleet.silences()
    if output.json:
        for entry in found:
            output.json_line(entry)
    elif not found:
        output.note("Nothing is silenced.")
    else:
        rows = [
            [each["id"], "-" if each["expire"] < 0 else f"{each['expire']} s",
             "yes" if each.get("expire_on_resolve") else "", each.get("creator"), _line(each.get("reason"))]
            for each in found
        ]  # fmt: skip
        output.table(["id", "ends in", "until resolved", "by", "reason"], rows)


def ack(options: argparse.Namespace, output: Output) -> None:
    """Acknowledge an event."""
    by = options.by or os.environ.get("USER", "")
    client_of(options).acknowledge(options.client, options.check, by=by, reason=options.reason or "")
    _say(output, {"client": options.client, "check": options.check, "acknowledged": True},
         f"Acknowledged {options.client}/{options.check}: silent until it is resolved.")  # fmt: skip


def resolve(options: argparse.Namespace, output: Output) -> None:
    """Resolve an event."""
    client_of(options).resolve(options.client, options.check)
    _say(output, {"client": options.client, "check": options.check, "resolved": True},
         f"Resolved {options.client}/{options.check}.")  # fmt: skip


def request(options: argparse.Namespace, output: Output) -> None:
    """Have a check run now."""
    more = {"reason": options.reason, "creator": options.by or os.environ.get("USER")}
    given = {name: text for name, text in more.items() if text}
    client_of(options).request(options.check, options.subscriber or None, **given)
    _say(output, {"check": options.check, "requested": True}, f"Requested {options.check}.")


def why(options: argparse.Namespace, output: Output) -> None:
    """Say what each gate said of the last event of a check, handler by handler."""
    found = client_of(options).why(options.client, options.check)
    if output.json:
        output.json_line(found)
        return
    state = f"{severity(found['status'])}, {found['action']}, occurrence {found['occurrences']}"
    output.line(f"{options.client}/{options.check} at {when(found['time'])}: {state}")
    for handler in found["handlers"]:
        verdict = "was told" if handler.get("handled") else "was not told"
        output.line(f"  {handler['handler']} {verdict}:")
        for gate in handler["gates"]:
            output.line(f"    {_gate(gate)}")


def _gate(gate: Mapping[str, Any]) -> str:
    return f"{'open' if gate['passed'] else 'closed':<7} {gate['gate']}: {gate['reason']}"


def history(options: argparse.Namespace, output: Output) -> None:
    """List the newest transitions."""
    found = client_of(options).history(options.client, options.check, limit=options.limit)
    if output.json:
        for each in found:
            output.json_line(each)
        return
    rows = [
        [when(each["time"]), each["client"], each["check"], severity(each["status"]), each["action"],
         each["occurrences"], _line(each.get("output"))] for each in found
    ]  # fmt: skip
    output.table(["time", "client", "check", "severity", "action", "occurrences", "output"], rows)


def _say(output: Output, tree: Mapping[str, Any], sentence: str) -> None:
    if output.json:
        output.json_line(tree)
    else:
        output.line(sentence)
