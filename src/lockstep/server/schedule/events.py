"""Our own routes for events: one by its tenant and id, lists, batches, replays, and the view by minutes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from lockstep.core.agenda import Remove, Replay, Status, Upsert, Verdict
from lockstep.errors import BadArgument
from lockstep.schedule.store.port import Filter
from lockstep.schedule.times import checked_ms, java_text, span_ms
from lockstep.schedule.validation import Rejection, checked_event
from lockstep.server.bodies import NDJSON, Reply, lines_reply, reply
from lockstep.server.routes import Call, Route, Work
from lockstep.server.schedule import examples
from lockstep.server.schedule.documents import EventNotFailed, EventNotFound, parse_object, payload_form
from lockstep.server.schedule.site import (
    EVENTS_MAX,
    ScheduleSite,
    answer_error,
    items_status,
    parse_lines,
    parse_moment,
)
from lockstep.server.schedule.views import event_view, minute_of

PATH = "/v2/events/{tenant}/{id}"
PAGE_DEFAULT, PAGE_MAX = 100, 1000
BUCKET_PAGE, BUCKET_EVENTS_MAX = 10_000, 200_000
BUCKETS_BEFORE_MS, BUCKETS_AFTER_MS = 10 * 60_000, 60 * 60_000
PUT_FIELDS = frozenset({"id", "tenant", "eventTime", "after", "payload", "deliveryOption"})
_FILTERS = {
    "tenant": "only of this tenant",
    "status": f"only with one of these, separated by commas: {', '.join(Status.__members__)}",
    "from": "only with an eventTime at or after this",
    "to": "only with an eventTime before this",
}


class EventRoutes:
    """The routes for events."""

    def __init__(self, site: ScheduleSite) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """All of them."""
        paging = {"limit": f"events of a page, 1 to {PAGE_MAX}; {PAGE_DEFAULT} by default",
                  "cursor": "`next` of the page before"}  # fmt: skip
        span = {"from": "10 minutes ago by default", "to": "an hour from now by default",
                "tenant": "only of this tenant"}  # fmt: skip
        return [
            Route(method="PUT", path=PATH, handle=self.put, work=Work.CHANGE, tag="events", body=examples.EVENT_PUT,
                  summary="Schedule an event at `eventTime`, or `after` a span as 30m; the same id again changes it",
                  answers={201: examples.PUT_ANSWER, 200: {**examples.PUT_ANSWER, "verdict": "UPDATED"}}),
            Route(method="GET", path=PATH, handle=self.get, tag="events", summary="One event as stored",
                  answers={200: examples.EVENT_STORED, 404: examples.ERROR}),
            Route(method="DELETE", path=PATH, handle=self.delete, work=Work.CHANGE, tag="events",
                  summary="Cancel an event, and tell who won",
                  answers={200: examples.CANCELLED, 404: examples.ERROR, 409: examples.TOO_LATE}),
            Route(method="POST", path=f"{PATH}/replay", handle=self.replay, work=Work.CHANGE, tag="events",
                  summary="Fire a FAILED event again, from the first try",
                  answers={200: examples.REPLAYED, 404: examples.ERROR, 409: examples.ERROR}),
            Route(method="GET", path="/v2/events", handle=self.page, tag="events", query={**_FILTERS, **paging},
                  summary="Events in the order of their next step, in pages", answers={200: examples.PAGE}),
            Route(method="POST", path="/v2/events", handle=self.batch, work=Work.CHANGE, tag="events", body_type=NDJSON,
                  summary=f"Up to {EVENTS_MAX:,} requests, one a line; one line is answered for each",
                  body=json.dumps(examples.EVENT) + "\n",
                  answers={200: json.dumps(examples.ACCEPTED) + "\n", 206: json.dumps(examples.REJECTED) + "\n",
                           400: json.dumps(examples.REJECTED) + "\n"}),
            Route(method="GET", path="/v2/buckets", handle=self.buckets, tag="events", query=span,
                  summary="How many events each minute has, by status", answers={200: examples.BUCKETS}),
        ]  # fmt: skip

    def put(self, call: Call) -> Reply:
        """201 if it is new; 200 if there was one, or if its time has passed and it fires at once."""
        [answer] = self._site.ask([self._upsert(call)])
        event = answer["event"]
        tree = {
            "verdict": answer["verdict"], "eventId": event["key"], "eventTime": event["eventTime"],
            "triggeredAt": event["triggeredAt"], "error": answer_error(answer),
        }  # fmt: skip
        return reply(tree, 201 if answer["verdict"] == Verdict.ACCEPTED else 200)

    def _upsert(self, call: Call) -> Upsert:
        fields = parse_object(call.body, PUT_FIELDS)
        for name in ("tenant", "id"):
            if fields.setdefault(name, call.names[name]) != call.names[name]:
                raise BadArgument(name=name, value=fields[name], reason="it is another one than in the path")
        after = fields.pop("after", None)
        if after is not None:
            if "eventTime" in fields:
                raise BadArgument(name="after", value=after, reason="give eventTime or after, not both")
            fields["eventTime"] = java_text(checked_ms(self._site.now + span_ms(after)))
        form = payload_form(fields)
        made = checked_event(fields, self._site.client.tenants().__contains__, self._site.runtime.new_id)
        if isinstance(made, Rejection):
            raise BadArgument(name="event", value=call.names["id"], reason=made.message)
        assert isinstance(made, Upsert)  # there is no mode
        return replace(made, form=form)

    def get(self, call: Call) -> Reply:
        """404 if there is none."""
        event = self._site.client.find(call.names["tenant"], call.names["id"])
        if event is None:
            raise EventNotFound(**call.names)
        return reply(event_view(event))

    def delete(self, call: Call) -> Reply:
        """The fire has won if the delivery had begun, or if the event had been delivered before."""
        [answer] = self._site.ask([Remove(call.names["tenant"], call.names["id"])])
        event = answer["event"]
        if event is None:
            raise EventNotFound(**call.names)
        removed = answer["verdict"] == Verdict.DELETED
        if removed and answer["status"] != Status.DONE.name:
            return reply({"won": "cancel", "eventId": event["key"]})
        tree = {"won": "fire", "triggeredAt": event["triggeredAt"], "eventId": event["key"], "removed": removed}
        return reply(tree, 409)

    def replay(self, call: Call) -> Reply:
        """409 if it has not failed."""
        [answer] = self._site.ask([Replay(call.names["tenant"], call.names["id"])])
        if answer["event"] is None:
            raise EventNotFound(**call.names)
        if answer["verdict"] == Verdict.ERROR:
            raise EventNotFailed(**call.names, reason=answer["message"])
        event = answer["event"]
        tree = {"verdict": answer["verdict"], "eventId": event["key"], "eventTime": event["eventTime"]}
        return reply(tree)

    def page(self, call: Call) -> Reply:
        """`next` is null on the last page."""
        limit = call.whole("limit", PAGE_DEFAULT, 1, PAGE_MAX)
        page = self._site.client.events(_filter(call), limit, call.query.get("cursor"))
        return reply({"events": [event_view(event) for event in page.events], "next": page.next})

    def batch(self, call: Call) -> Reply:
        """The status is that of /events/schedule."""
        items = self._site.carry_out(parse_lines(call.body))
        return lines_reply(items, items_status(items))

    def buckets(self, call: Call) -> Reply:
        """`complete` is false if there were too many events to count."""
        chosen, now = _filter(call), self._site.now
        chosen = replace(
            chosen,
            start=minute_of(now - BUCKETS_BEFORE_MS) if chosen.start is None else chosen.start,
            stop=minute_of(now + BUCKETS_AFTER_MS) if chosen.stop is None else chosen.stop,
        )
        counts: dict[int, Counter[str]] = {}
        cursor, pages = None, 0
        while pages == 0 or (cursor is not None and pages < BUCKET_EVENTS_MAX // BUCKET_PAGE):
            page = self._site.client.events(chosen, BUCKET_PAGE, cursor)
            for event in page.events:
                counts.setdefault(minute_of(event.at), Counter())[event.status.name] += 1
            cursor, pages = page.next, pages + 1
        rows = [
            {"minute": java_text(minute), "total": counts[minute].total(), **dict(sorted(counts[minute].items()))}
            for minute in sorted(counts)
        ]
        return reply({"buckets": rows, "complete": cursor is None})


def _filter(call: Call) -> Filter:
    status: frozenset[Status] | None = None
    text: Any = call.query.get("status")
    if text is not None:
        names = text.split(",")
        wrong = [name for name in names if name not in Status.__members__]
        if wrong:
            raise BadArgument(name="status", value=wrong[0], reason=f"known: {', '.join(Status.__members__)}")
        status = frozenset(Status[name] for name in names)
    return Filter(
        tenant=call.query.get("tenant"), status=status, start=parse_moment(call.query.get("from"), "from"),
        stop=parse_moment(call.query.get("to"), "to"),
    )  # fmt: skip
