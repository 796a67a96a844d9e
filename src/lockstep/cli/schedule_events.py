"""`lockstep schedule`: events that are added, cancelled, found, listed and explained."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output, plural
from lockstep.cli.schedule import GROUPED, STATUSES
from lockstep.cli.values import span
from lockstep.errors import NotFound, UsageError

if TYPE_CHECKING:
    from lockstep.core.agenda import Event
    from lockstep.schedule.history import Explanation
    from lockstep.schedule.scheduler import Scheduler
    from lockstep.schedule.store.port import Page

CANCEL_WON, NOT_FOUND, FIRE_WON = 0, 3, 4
UNOWNED = 1
_PAGE = 1000
_MINUTE_MS = 60_000


def add(options: argparse.Namespace, output: Output) -> None:
    """Schedule an event."""
    payload = _standard_input() if options.payload == "-" else options.payload
    with opened_scheduler(options) as scheduler:
        call = {"id": options.id, "tenant": options.tenant, "payload_only": options.payload_only}
        if options.at is not None:
            made = scheduler.at(options.at, payload, **call)
        else:
            made = scheduler.after(options.after, payload, **call)
    at = _iso(made.at)
    triggered = None if made.triggered_at is None else _iso(made.triggered_at)
    if output.json:
        row = {"tenant": made.tenant, "id": made.id, "event_id": made.event_id, "status": made.status}
        output.json_line({**row, "scheduled_for": at, "fired_at": triggered})
    elif made.status == "WAITING" and triggered is None:
        output.line(f"{made.id} fires at {at}.")
    elif made.status == "WAITING":
        output.line(f"The time of {made.id}, {at}, has passed: it fires now.")
    else:
        output.line(f"{made.id} had fired at {triggered} for {at}, and is not fired again.")


def _standard_input() -> str | bytes:
    """Return standard input: text if it is UTF-8, else bytes."""
    given = sys.stdin.buffer.read()
    try:
        return given.decode()
    except UnicodeDecodeError:
        return given


def cancel(options: argparse.Namespace, output: Output) -> int:
    """Cancel an event; the exit code says who won."""
    from lockstep.schedule.scheduler import Cancelled, TooLate

    with opened_scheduler(options) as scheduler:
        found = scheduler.cancel(options.id, tenant=options.tenant)
    about = {"tenant": options.tenant, "id": options.id}
    if isinstance(found, Cancelled):
        _say(output, {**about, "won": "cancel", "event_id": found.event_id}, f"The cancel won: {options.id} is gone.")
        return CANCEL_WON
    if isinstance(found, TooLate):
        at = _iso(found.triggered_at)
        sentence = f"The fire won: the delivery of {options.id} had begun at {at}."
        _say(output, {**about, "won": "fire", "fired_at": at}, sentence)
        return FIRE_WON
    _say(output, {**about, "won": None}, f"There is no event {options.id!r} of tenant {options.tenant!r}.")
    return NOT_FOUND


def find(options: argparse.Namespace, output: Output) -> None:
    """Show an event."""
    from lockstep.schedule.bodies import payload_text

    with opened_scheduler(options) as scheduler:
        event = scheduler.client.find(options.tenant, options.id)
    if event is None:
        raise _missing(options)
    row = {**event_row(event), "payload": payload_text(event), "delivery": event.option.name}
    if output.json:
        output.json_line(row)
        return
    facts = {name.replace("_", " "): value for name, value in row.items() if value is not None and name != "late_s"}
    output.facts({**facts, "late by": late_text(late_ms(event)) or "-"})


def _missing(options: argparse.Namespace) -> NotFound:
    return NotFound(what=f"Event {options.id!r} of tenant", name=options.tenant)


def ls(options: argparse.Namespace, output: Output) -> None:
    """List events."""
    unknown = [name for name in options.status or () if name.upper() not in (*STATUSES, *GROUPED)]
    if unknown:
        raise UsageError(reason=f"Unknown status {unknown[0]!r}. There are: {', '.join((*STATUSES, *GROUPED))}.")
    with opened_scheduler(options) as scheduler:
        pages = _pages(scheduler, options)
        if output.json:
            _print_lines(pages, output)
        else:
            _print_table(list(pages), output)


def _pages(scheduler: Scheduler, options: argparse.Namespace) -> Iterator[Page]:
    """Yield pages up to the requested number of events; a page may be short before the end."""
    cursor, left = options.cursor, options.limit
    while left > 0:
        page = _page(scheduler, options, cursor, max(left, _PAGE) if options.all else left)
        yield page
        cursor = page.next
        if cursor is None:
            return
        if not options.all:
            left -= len(page.events)


def _print_lines(pages: Iterable[Page], output: Output) -> None:
    following = None
    for page in pages:
        for event in page.events:
            output.json_line(event_row(event))
        following = page.next
    if following is not None:
        output.json_line({"next": following})


def _print_table(pages: Sequence[Page], output: Output) -> None:
    events = [event for page in pages for event in page.events]
    if not events:
        output.note("There are no such events.")
    else:
        headings = ["tenant", "id", "scheduled for", "fired at", "late by", "status", "tries"]
        output.table(headings, [_cells(event) for event in events])
    if pages[-1].next is not None:
        output.note(f"There are more: --cursor {pages[-1].next}, or --all.")


def _page(scheduler: Scheduler, options: argparse.Namespace, cursor: str | None, limit: int) -> Page:
    from lockstep.core.agenda import UNFIRED, Status
    from lockstep.schedule.store.port import Filter

    named = getattr(options, "status", None)
    words = [name.upper() for name in named or ()]
    status = frozenset(Status[word] for word in words if word not in GROUPED)
    status |= UNFIRED if any(word in GROUPED for word in words) else frozenset()
    stop = _ms(options.stop)
    if "OVERDUE" in words:
        now = scheduler.bus.runtime.wall_ns() // 10**6
        stop = now if stop is None else min(stop, now)
    chosen = Filter(tenant=options.tenant, status=status or None, start=_ms(options.start), stop=stop)
    return scheduler.client.events(chosen, limit, cursor)


def _cells(event: Event) -> list[str | int | None]:
    late = late_text(late_ms(event))
    return [event.tenant, event.id, shown(event.at), shown(event.triggered), late, event.status.name, event.attempt]


def dryrun(options: argparse.Namespace, output: Output) -> None:
    """Deliver an event as a dry run."""
    from lockstep.schedule.requests import DryRun

    with opened_scheduler(options) as scheduler:
        [answer] = scheduler.client.ask([DryRun(options.tenant, options.id)])
    if answer["verdict"] == "UNKNOWN":
        raise _missing(options)
    about = {"tenant": options.tenant, "id": options.id, "status": answer["status"]}
    _say(output, about, f"{options.id} is being delivered as a dry run; it stays {answer['status']}.")


def nodes(options: argparse.Namespace, output: Output) -> int:
    """List the nodes that are heard."""
    from lockstep.schedule.history import heard_nodes

    with opened_scheduler(options) as scheduler:
        found = sorted(heard_nodes(scheduler), key=lambda card: str(card["node"]))
        shards = len(scheduler.bus.logs(scheduler.streams.requests))
    unowned = sorted(set(range(shards)).difference(*(card["shards"] for card in found)))
    if output.json:
        for card in found:
            output.json_line(dict(card))
        output.json_line({"unowned": unowned})
        return UNOWNED if unowned else 0
    if found:
        rows = [[card["node"], f"{card['host']}:{card['port']}", "yes" if card["master"] else "",
                 ", ".join(map(str, sorted(card["shards"]))), card["underWay"]] for card in found]  # fmt: skip
        output.table(["node", "address", "master", "shards", "under way"], rows)
    if unowned:
        output.line(f"{plural(len(unowned), 'shard')} of {shards} without an owner: {', '.join(map(str, unowned))}.")
    return UNOWNED if unowned else 0


def why(options: argparse.Namespace, output: Output) -> int:
    """Explain an event, or a cron of that id."""
    from lockstep.schedule.history import explain

    with opened_scheduler(options) as scheduler:
        found = explain(scheduler, options.id, options.tenant, scanned=options.history)
        crons = [] if found.is_known else scheduler.client.crons(options.tenant, options.id)
    sentences = found.sentences
    if crons:
        runs = f"lockstep cron runs {shlex.quote(options.id)} --tenant {shlex.quote(options.tenant)}"
        sentences = [f"{options.id} is a cron: '{runs}' shows its ticks.", *sentences[1:]]
    if output.json:
        output.json_line({**_explained(found), "crons": [row.type for row in crons], "sentences": list(sentences)})
        return 0 if found.is_known or crons else NOT_FOUND
    for sentence in sentences:
        output.line(sentence)
    if found.history:
        output.heading("History")
        headings = ["at", "what", "for", "try", "node", "more"]
        output.table(headings, [_history_cells(record) for record in found.history])
    return 0 if found.is_known or crons else NOT_FOUND


def _explained(found: Explanation) -> dict[str, Any]:
    event = None if found.event is None else event_row(found.event)
    return {
        "tenant": found.tenant, "id": found.id, "shard": found.shard, "node": found.node, "won": found.winner,
        "event": event, "history": list(found.history),
    }  # fmt: skip


def _history_cells(record: Any) -> list[str | int | None]:
    more = [f"late by {late_text(record['lateMs'])}"] if "lateMs" in record else []
    more += [f"first tried {late_text(record['at'] - record['triggeredAt'])} before"] if "triggeredAt" in record else []
    more += [f"next try at {shown(record['next'])}"] if "next" in record else []
    more += [f"{record['count']} ticks until {shown(record['lastTime'])}"] if "count" in record else []
    more += [str(record[name]) for name in ("reason", "error") if name in record]
    at, due = shown(record["at"]), shown(record.get("eventTime"))
    return [at, record["what"], due, record.get("attempt"), record.get("node"), "; ".join(more) or None]


def replay(options: argparse.Namespace, output: Output) -> int:
    """Fire FAILED events again."""
    from lockstep.core.agenda import Replay

    if bool(options.ids) == options.failed:
        raise UsageError(reason="Say which events: their ids, or --failed for all FAILED events of the tenant.")
    with opened_scheduler(options) as scheduler:
        names = options.ids or list(_failed(scheduler, options))
        answers = scheduler.client.ask([Replay(options.tenant, name) for name in names])
    rows = [
        {"id": name, "replayed": answer["verdict"] == "UPDATED", "status": answer["status"]}
        for name, answer in zip(names, answers, strict=True)
    ]
    if output.json:
        for row in rows:
            output.json_line({"tenant": options.tenant, **row})
    else:
        for row in rows:
            if not row["replayed"]:
                reason = "is unknown" if row["status"] is None else f"is {row['status']}, not FAILED"
                output.warn(f"{row['id']} {reason}.")
        output.line(f"{plural(sum(row['replayed'] for row in rows), 'event')} will fire again.")
    if all(row["replayed"] for row in rows):
        return 0
    return NOT_FOUND if any(row["status"] is None for row in rows) else FIRE_WON


def _failed(scheduler: Scheduler, options: argparse.Namespace) -> Iterator[str]:
    options.status, options.start, options.stop, cursor = ["FAILED"], None, None, None
    while True:
        page = _page(scheduler, options, cursor, _PAGE)
        yield from (event.id for event in page.events if not event.tick)
        if (cursor := page.next) is None:
            return


def buckets(options: argparse.Namespace, output: Output) -> None:
    """Count events by minute."""
    minutes: dict[int, Counter[str]] = {}
    cursor, more = None, False
    with opened_scheduler(options) as scheduler:
        while not more:
            page = _page(scheduler, options, cursor, _PAGE)
            for event in page.events:
                minutes.setdefault(event.at // _MINUTE_MS * _MINUTE_MS, Counter())[event.status.name] += 1
            more = len(minutes) > options.limit
            if (cursor := page.next) is None:
                break
    rows = [(minute, minutes[minute]) for minute in sorted(minutes)[: options.limit]]
    if output.json:
        for minute, counts in rows:
            output.json_line({"minute": shown(minute), "total": counts.total(), **{n: counts[n] for n in STATUSES}})
        return
    if not rows:
        output.note("There are no such events.")
        return
    cells = [[shown(minute), counts.total(), *(counts[name] for name in STATUSES)] for minute, counts in rows]
    output.table(["minute", "total", *STATUSES], cells)
    if more:
        output.note("There are more minutes: raise --limit, or begin later with --from.")


def _say(output: Output, fields: dict[str, Any], sentence: str) -> None:
    if output.json:
        output.json_line(fields)
    else:
        output.line(sentence)


def _ms(moment_ns: int | None) -> int | None:
    return None if moment_ns is None else moment_ns // 10**6


def _iso(at: Any) -> str | None:
    from lockstep.schedule.times import from_datetime

    return shown(from_datetime(at))


STORE_VARIABLE = "LOCKSTEP_STORE"


def store_url(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> str | None:
    """--store, else the environment, else that of the profile; None is the bus itself."""
    settings: Mapping[str, str] = getattr(options, "settings", {})
    return options.store or environ.get(STORE_VARIABLE) or settings.get("store")


@contextmanager
def opened_scheduler(options: argparse.Namespace) -> Iterator[Scheduler]:
    """The scheduler that options name, to ask: its nodes run elsewhere."""
    from lockstep.schedule.assembly import open_scheduler

    with (
        opened(bus_url(options)) as bus,
        open_scheduler(bus, options.name, node=False, store=store_url(options)) as scheduler,
    ):
        if "answer_s" in options:
            scheduler.client.answer_s = options.answer_s
        yield scheduler


def event_row(event: Event) -> dict[str, Any]:
    """An event in a list."""
    late = late_ms(event)
    return {
        "tenant": event.tenant,
        "id": event.id,
        "event_id": event.event_id,
        "status": event.status.name,
        "scheduled_for": shown(event.at),
        "fired_at": shown(event.triggered),
        "late_s": None if late is None else late / 1000,
        "attempt": event.attempt,
        "next_try": shown(event.due) if event.status.name == "RETRY" else None,
        "ended_at": shown(event.ended),
        "error": event.error,
    }


def late_ms(event: Event) -> int | None:
    """How long after its time an event was first tried; None before that."""
    return None if event.triggered is None else event.late_ms(event.triggered)


def shown(ms: int | None) -> str | None:
    """A time as it is printed, in UTC."""
    from lockstep.schedule.times import java_text

    return None if ms is None else java_text(ms)


def late_text(ms: int | None) -> str | None:
    """Return the delay as text."""
    return None if ms is None else span(ms / 1000)
