"""What the routes share: the scheduler, and requests that are carried out in batches."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from lockstep.core.agenda import Remove, Upsert
from lockstep.errors import BadArgument
from lockstep.runtime import Runtime
from lockstep.schedule.client import SchedulerClient
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.times import java_text, parse_time
from lockstep.schedule.validation import Rejection, checked_event
from lockstep.server.errors import BadBody
from lockstep.server.schedule.documents import BAD_REQUEST

EVENTS_MAX = 10_000
"""Events of one request."""
OK, PARTLY = 200, 206
_ALREADY = re.compile(r"already triggered at (-?\d+)")

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScheduleSite:
    """A scheduler as the routes see it."""

    scheduler: Scheduler
    answer_s: float
    """How long requests may take until they are answered."""

    @property
    def client(self) -> SchedulerClient:
        """The way to the scheduler."""
        return self.scheduler.client

    @property
    def runtime(self) -> Runtime:
        """Clocks and ids."""
        return self.scheduler.bus.runtime

    @property
    def now(self) -> int:
        """The time in milliseconds since 1970."""
        return self.runtime.wall_ns() // 10**6

    def nodes(self) -> list[dict[str, Any]]:
        """The cards of the nodes that were heard lately; that of the node here as it is now."""
        own = self.scheduler.node
        return [
            {**card, "master": own.is_master, "shards": own.shards, "underWay": own.under_way}
            if own is not None and card["member"] == own.member.id
            else dict(card)
            for card in self.client.nodes()
        ]

    def ask(self, asked: Sequence[Any]) -> list[dict[str, Any]]:
        """Have requests carried out."""
        return self.client.ask(asked, self.answer_s)

    def carry_out(self, sent: Sequence[Any]) -> list[Item]:
        """Have events carried out as they were sent; return an item for each, in order.

        Those that are rejected do not hold up the others.
        """
        if len(sent) > EVENTS_MAX:
            raise BadBody(reason=f"it has {len(sent)} events, and may have {EVENTS_MAX} at most")
        is_known, new_id = self.client.tenants().__contains__, self.runtime.new_id
        checked = [one if isinstance(one, Rejection) else checked_event(one, is_known, new_id) for one in sent]
        asked = [one for one in checked if not isinstance(one, Rejection)]
        answers = iter(self.ask(asked)) if asked else iter(())
        return [
            _rejected(fields, made) if isinstance(made, Rejection) else _answered(fields, made, next(answers))
            for fields, made in zip(sent, checked, strict=True)
        ]


def items_status(items: Sequence[Item]) -> int:
    """400 if every event was rejected, also if there was none; 206 if some were; else 200."""
    rejected = sum(item["eventStatus"] == "REJECTED" for item in items)
    if rejected == len(items):
        return BAD_REQUEST
    return PARTLY if rejected else OK


def _item(sent: Any, status: str | None, event_id: str | None, triggered: str | None, error: Any) -> Item:
    """An event as it was sent, with defaults, and what became of it."""
    fields: Mapping[str, Any] = sent if isinstance(sent, Mapping) else {}
    return {
        "id": _echo(fields.get("id")),
        "eventTime": _echo(fields.get("eventTime")),
        "tenant": _echo(fields.get("tenant")),
        "payload": _echo(fields.get("payload")),
        "mode": _echo(fields.get("mode")) or "UPSERT",
        "deliveryOption": _echo(fields.get("deliveryOption")) or "FULL_EVENT",
        "eventId": event_id,
        "triggeredAt": triggered,
        "eventStatus": status,
        "error": error,
    }


def _echo(value: Any) -> Any:
    """A value as it was sent, unless it is nested: an echo may not be deeper than what can be printed."""
    if isinstance(value, dict | list) or (isinstance(value, float) and not isfinite(value)):
        return None
    return value


def _rejected(sent: Any, why: Rejection) -> Item:
    return _item(sent, "REJECTED", None, None, {"code": why.code, "message": why.message})


def _answered(sent: Any, request: Upsert | Remove, answer: dict[str, Any]) -> Item:
    event, verdict = answer["event"], answer["verdict"]
    if event is None:
        return _item(sent, None, None, None, answer_error(answer))
    event_id = event["key"] if isinstance(request, Remove) else event["eventId"]
    return _item(sent, verdict, event_id, event["triggeredAt"], answer_error(answer))


def answer_error(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The error of an answer, with times as text."""
    if answer["code"] is None:
        return None
    message = _ALREADY.sub(lambda found: f"already triggered at {java_text(int(found[1]))}", answer["message"] or "")
    return {"code": answer["code"], "message": message}


def parse_moment(text: str | None, name: str) -> int | None:
    """Milliseconds since 1970 of a time in a query; None if it is not given."""
    if text is None:
        return None
    try:
        return parse_time(text)
    except BadArgument as error:
        raise BadArgument(name=name, value=text, reason=error.params["reason"]) from None


def parse_lines(data: bytes) -> list[Any]:
    """Return the plain data of each line that is not blank; a Rejection for a line that is not JSON.

    BadBody if there is no line.
    """
    lines = [_parsed_line(line) for line in data.split(b"\n") if line.strip()]
    if not lines:
        raise BadBody(reason="it has no line")
    return lines


def _parsed_line(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        return Rejection(f"the line is not JSON: {type(error).__name__}: {str(error)[:200]}")
