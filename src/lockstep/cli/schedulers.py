"""Opening the scheduler that a command is about, and its events as plain data."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.times import span

if TYPE_CHECKING:
    from lockstep.core.agenda import Event
    from lockstep.schedule.scheduler import Scheduler

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
    """How late, for people."""
    return None if ms is None else span(ms / 1000)
