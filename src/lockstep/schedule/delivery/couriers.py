"""All ways of delivery as one courier, which picks by the type of the tenant."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lockstep.errors import ExtraMissing
from lockstep.runtime import Runtime, ThreadRuntime
from lockstep.schedule.delivery.custom import CustomCourier
from lockstep.schedule.delivery.port import Courier, CourierOptions, Delivery, Done, Outcome, Result
from lockstep.schedule.delivery.queue import CLOSED
from lockstep.schedule.tenants import Tenant, TenantType

__all__ = ["CourierOptions", "Couriers"]


class Couriers:
    """Delivers events to tenants of every type but those whose events go to a stream of the bus.

    A courier is made when the first tenant needs it, and so are the packages that it needs: ExtraMissing from `check`,
    or FAILED from `deliver`, says which extra to install.
    """

    def __init__(self, options: CourierOptions | None = None, runtime: Runtime | None = None) -> None:
        self._options = options or CourierOptions()
        self._runtime = runtime or ThreadRuntime()
        self._lock = threading.Lock()
        self._made: dict[TenantType, Courier] = {}
        self._closed = False

    def check(self, tenant: Tenant) -> None:
        """Raise BadArgument if a tenant's props can't work here."""
        courier = None if tenant.stream is not None else self._courier(tenant)
        if courier is not None:
            courier.check(tenant)

    def deliver(self, delivery: Delivery, done: Done) -> None:
        """Begin a delivery."""
        try:
            courier = self._courier(delivery.tenant)
        except ExtraMissing as error:
            done(Result(delivery, Outcome.FAILED, str(error)))
            return
        if courier is None:
            done(Result(delivery, Outcome.FAILED, CLOSED))
        elif delivery.tenant.stream is not None:
            done(Result(delivery, Outcome.FAILED, "Not sent: this tenant's events go to a stream of the bus."))
        else:
            courier.deliver(delivery, done)

    def forget(self, tenant: str) -> None:
        """A tenant was registered anew or removed: give up what is kept for it."""
        with self._lock:
            made = list(self._made.values())
        for courier in made:
            courier.forget(tenant)

    def close(self) -> None:
        """End what is under way, with FAILED, and give everything back."""
        with self._lock:
            self._closed = True
            made = list(self._made.values())
        for courier in made:
            courier.close()

    def _courier(self, tenant: Tenant) -> Courier | None:
        """The courier of a tenant's type; None if all are closed."""
        with self._lock:
            if self._closed:
                return None
            found = self._made.get(tenant.type)
            if found is None:
                found = self._made[tenant.type] = self._makers[tenant.type](self)
            return found

    def _http(self) -> Courier:
        from lockstep.schedule.delivery.http import HttpCourier

        return HttpCourier(self._options, self._runtime)

    def _kafka(self) -> Courier:
        from lockstep.schedule.delivery.kafka import KafkaCourier

        return KafkaCourier(self._options)

    def _custom(self) -> Courier:
        return CustomCourier(self._options)

    _makers: dict[TenantType, Callable[[Couriers], Courier]] = {  # noqa: RUF012  # not changed
        TenantType.HTTP: _http,
        TenantType.MESSAGING: _kafka,
        TenantType.CUSTOM_CLASS: _custom,
    }
