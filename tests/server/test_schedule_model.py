"""The answers of /events/schedule and /events/find equal a slow, obvious model of an event's life."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_server_worlds import World, eventually, serving

pytestmark = pytest.mark.slow

TIMES = {
    "2090-01-01T00:00Z": ("A", False), "2090-01-01T02:00:00+02:00": ("A", False), "2090-06-01T00:00Z": ("B", False),
    "2001-01-01T00:00Z": ("C", True), "tomorrow": None, None: None,
}  # fmt: skip
SHOWN = {"A": "2090-01-01T00:00Z", "B": "2090-06-01T00:00Z", "C": "2001-01-01T00:00Z"}


@dataclass(frozen=True)
class Stored:
    """An event of the model. `event_id` is a number until the server gave it a name."""

    instant: str
    lapsed: bool
    event_id: str | None
    payload: str | None
    option: str


class Model:
    """What the table of an event's life says, for a tenant that is paused: nothing fires."""

    def __init__(self) -> None:
        self.events: dict[str, Stored] = {}

    def rejection(self, event: dict[str, Any]) -> str | None:
        if event["mode"] == "REMOVE":
            return None
        if event["eventTime"] is None:
            return "event time not present"
        if event["deliveryOption"] == "PAYLOAD_ONLY" and event["payload"] is None:
            return "payload must not be null for deliveryOption PAYLOAD_ONLY"
        if TIMES[event["eventTime"]] is None:
            return "event time can not be parsed. Must be in ISO 8601 format."
        return None

    def apply(self, event: dict[str, Any], item: dict[str, Any]) -> tuple[str | None, str | None]:
        """Change the model; return the status and event id that the server must have answered."""
        name, option = event["id"], event["deliveryOption"] or "FULL_EVENT"
        before = self.events.get(name)
        if event["mode"] == "REMOVE":
            self.events.pop(name, None)
            if before is None:
                return None, None
            return "DELETED", item["eventId"] if before.lapsed else before.event_id
        instant, lapsed = TIMES[event["eventTime"]]
        if before is not None and before.instant == instant:
            payload = before.payload if event["payload"] is None else event["payload"]
            self.events[name] = replace(before, payload=payload, option=option)
            return "UPDATED", before.event_id
        event_id = None if lapsed else item["eventId"]
        known = {one.event_id for one in self.events.values()}
        assert lapsed or (event_id not in known and event_id.startswith("a-") is (option == "PAYLOAD_ONLY"))
        self.events[name] = Stored(instant, lapsed, event_id, event["payload"], option)
        if lapsed:
            return "TRIGGERED", None
        return "ACCEPTED" if before is None else "UPDATED", event_id


requests = st.fixed_dictionaries({
    "id": st.sampled_from(["x", "y", "z/\u00fc"]),
    "eventTime": st.sampled_from([*TIMES, "2090-01-01T00:00Z"]),
    "payload": st.sampled_from([None, "p1", "p2", ""]),
    "mode": st.sampled_from([None, "UPSERT", "UPSERT", "REMOVE"]),
    "deliveryOption": st.sampled_from([None, "FULL_EVENT", "PAYLOAD_ONLY"]),
})  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with serving("memory:") as made:
        eventually(lambda: made.get("/readyz").status == 200)
        made.tenant = made.stream_tenant()
        assert made.post(f"/v2/tenants/{made.tenant}/pause").json["paused"] is True
        yield made


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(requests, min_size=1, max_size=6), min_size=1, max_size=4))
def test_answers_equal_the_model(world, batches):
    model, start = Model(), world.name("m")
    for batch in batches:
        sent = [{**event, "id": f"{start}.{event['id']}", "tenant": world.tenant} for event in batch]
        answer = world.schedule(*sent)
        rejections = [model.rejection(event) for event in sent]
        rejected = sum(reason is not None for reason in rejections)
        assert answer.status == (400 if rejected == len(sent) else 206 if rejected else 200)
        for event, reason, item in zip(sent, rejections, answer.json, strict=True):
            assert [item[name] for name in ("id", "eventTime", "tenant", "payload")] == [
                event[name] for name in ("id", "eventTime", "tenant", "payload")
            ]
            assert item["mode"] == (event["mode"] or "UPSERT")
            if reason is not None:
                assert (item["eventStatus"], item["error"]) == ("REJECTED", {"code": 400, "message": reason})
                continue
            assert (item["eventStatus"], item["eventId"]) == model.apply(event, item), (event, item)
            assert item["error"] is None
            assert (item["triggeredAt"] is not None) is (item["eventStatus"] == "TRIGGERED")
    for name in ("x", "y", "z/\u00fc"):
        stored, found = model.events.get(f"{start}.{name}"), world.find(world.tenant, f"{start}.{name}")
        if stored is None:
            assert (found.status, found.json) == (404, {"status": "not found"})
            continue
        assert found.json == {
            "id": f"{start}.{name}", "eventTime": SHOWN[stored.instant], "tenant": world.tenant,
            "payload": stored.payload, "mode": "UPSERT", "deliveryOption": stored.option, "eventId": stored.event_id,
            "triggeredAt": None, "eventStatus": "UN_PROCESSED", "error": None,
        }  # fmt: skip
