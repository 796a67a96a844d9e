"""Events, tenants and results for tests of deliveries."""

from __future__ import annotations

import threading
from collections import Counter

from lockstep.core.agenda import Event, Form, Option
from lockstep.schedule.delivery.port import Courier, Delivery, Outcome, Result
from lockstep.schedule.tenants import Tenant, TenantType

WAIT_S = 30.0
AT = 1_700_000_000_000


def event(number: int = 1, tenant: str = "Orders/EU", **fields) -> Event:
    shown = {
        "payload": b'{"n":1}', "form": Form.JSON, "option": Option.FULL_EVENT, "attempt": 1, "triggered": AT + 500,
    }  # fmt: skip
    made = {"id": f"e{number}", "event_id": f"id-{number}", "at": AT + number, "due": AT, **shown, **fields}
    return Event(tenant=tenant, **made)


def http_tenant(url: str, name: str = "Orders/EU", **props) -> Tenant:
    return Tenant(tenant=name, type=TenantType.HTTP, props={"url": url, **props})


def custom_tenant(name: str, tenant: str = "Orders/EU", **props) -> Tenant:
    return Tenant(tenant=tenant, type=TenantType.CUSTOM_CLASS, props={"eventProcessorClass": name, **props})


class Results:
    """Takes the results of deliveries, from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: list[Result] = []

    def __call__(self, result: Result) -> None:
        with self._changed:
            self._all.append(result)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Result]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._all) >= count, WAIT_S), f"{len(self._all)} of {count}"
            return list(self._all)

    @property
    def now(self) -> list[Result]:
        with self._changed:
            return list(self._all)

    def times(self) -> Counter[str]:
        return Counter(result.delivery.event.id for result in self.now)


def delivered(courier: Courier, tenant: Tenant, **fields) -> tuple[Outcome, str | None]:
    """Deliver one event, and return what became of it."""
    results = Results()
    courier.deliver(Delivery(event(tenant=tenant.tenant, **fields), tenant), results)
    [result] = results.wait(1)
    return result.outcome, result.error
