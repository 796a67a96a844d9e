"""Workflow with suspended states: an order waits for payment; it is reminded, and cancelled if nobody pays.

Events wake suspended orders, and a payment cancels them: the cancel says whether it came before the fire.
"""

from __future__ import annotations

import lockstep
from lockstep.testing import VirtualScheduler


class Orders:
    """Orders and the states they are in."""

    def __init__(self, scheduler: VirtualScheduler) -> None:
        self.scheduler, self.states = scheduler, dict[str, str]()
        scheduler.on()(self.wake)

    def place(self, order: str) -> None:
        """Suspend an order until it is paid: a reminder after a day, the end after three."""
        self.move(order, "waiting for payment")
        self.scheduler.after("1d", {"order": order, "to": "reminded"}, id=f"{order}/remind")
        self.scheduler.after("3d", {"order": order, "to": "expired"}, id=f"{order}/expire")

    def pay(self, order: str) -> None:
        """Resume an order, unless it expired meanwhile: the cancel says which came first."""
        self.scheduler.cancel(f"{order}/remind")
        won = self.scheduler.cancel(f"{order}/expire")
        if isinstance(won, lockstep.Cancelled):
            self.move(order, "paid")

    def wake(self, event: lockstep.Fired) -> None:
        """A suspension is over."""
        found = event.value()
        self.move(found["order"], found["to"])

    def move(self, order: str, state: str) -> None:
        """Go to another state."""
        self.states[order] = state
        print(f"{self.scheduler.clock.now:%d %b %H:%M}  {order}: {state}")


def main() -> None:
    with VirtualScheduler(start="2026-06-01T12:00Z") as scheduler:
        orders = Orders(scheduler)
        for order in ("apples", "pears", "plums"):
            orders.place(order)
        scheduler.clock.advance("2 hours")
        orders.pay("apples")
        scheduler.clock.advance("2 days")
        orders.pay("pears")  # after the reminder
        scheduler.clock.advance("1 week")
        orders.pay("plums")  # too late
        assert orders.states == {"apples": "paid", "pears": "paid", "plums": "expired"}
        suspended = scheduler.events(status=["WAITING"]).events
        assert suspended == []
        print("Two orders were paid, one expired, and nothing is suspended any more.")


if __name__ == "__main__":
    main()
