"""Window classes that tests name: sound ones, and one broken in each way that `check_window` must catch."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lockstep.windows import Delete, Event, Flag, Notice, Opcode, PagedWindow, Window

ORDERS = "id*:int64,customer:string,amount:double"
TOTALS = "customer*:string,total:double"


class Totals(Window):
    """The sum of each customer's orders; a notice when it passes the property `limit`; on ticks the silent ones go."""

    version = "1"

    def on_event(self, change):
        customer = change["customer"]
        if change.is_delete:
            self.state.pop(customer, None)
            yield Delete({"customer": customer})
            return
        before = change.before[2] if change.before else 0.0
        total = self.state.get(customer, 0.0) + change["amount"] - before
        self.state[customer] = total
        yield {"customer": customer, "total": total}
        if total > float(self.setup.properties.get("limit", "inf")):
            yield Notice("mail", key=customer, body=str(total).encode(), headers={"to": f"{customer}@example.org"})

    def on_tick(self, time_us, lagging):
        if not lagging:
            for customer in [name for name, total in self.state.items() if total < 10]:
                del self.state[customer]
                yield Delete((customer, None))
        yield Notice("tick", body=b"%d %d" % (time_us, lagging))


class Paged(PagedWindow):
    """Totals, a page for each customer."""

    version = "1"

    def __init__(self, setup):
        super().__init__(setup)
        self.totals = {}

    def on_event(self, change):
        name = change["customer"]
        self.mark(name)
        if change["amount"] < 0:
            if self.totals.pop(name, None) is not None:
                yield Delete({"customer": name})
            return
        self.totals[name] = self.totals.get(name, 0.0) + change["amount"]
        yield name, self.totals[name]

    def dump_page(self, page):
        return self.totals.get(page)

    def load_page(self, page, state):
        self.totals[page] = state


class Unmarked(Paged):
    """Broken: a page that changes again is not marked."""

    def mark(self, page):
        if page not in self.totals:
            super().mark(page)


class PageOrder(Paged):
    """Broken: says all totals in the order in which their pages happened to come."""

    def on_tick(self, time_us, lagging):
        yield from self.totals.items()


class Hidden(Totals):
    """Broken: keeps something in the object that is not its state."""

    seen = 0

    def on_event(self, change):
        self.seen += 1
        yield change["customer"], float(self.seen)


class Clock(Totals):
    """Broken: asks a clock."""

    def on_event(self, change):
        yield change["customer"], float(time.perf_counter_ns())


class SetOrder(Totals):
    """Broken: the order of a set is another one in each process."""

    def on_event(self, change):
        self.state[change["customer"]] = 1.0
        for customer in set(self.state):  # the mistake
            yield customer, 1.0


class Doubled(Window):
    """Both forms: twice the amount, orders below zero left out."""

    version = "1"
    factor = 2.0

    def on_event(self, change):
        if not change.is_delete and change["amount"] >= 0:
            yield change["id"], change["amount"] * 2.0

    def on_batch(self, batch):
        wanted = (batch["_opcode"].to_numpy() != Opcode.DELETE) & (batch["amount"].to_numpy() >= 0)
        kept = batch.filter(pa.array(wanted))
        amounts = pa.array(kept["amount"].to_numpy() * self.factor)
        return pa.record_batch([kept["_block"], kept["id"], amounts], names=["_block", "id", "double"])


class Telling(Doubled):
    """Both forms: Doubled, with a notice for each order above 10, which goes by an id of its own."""

    def on_event(self, change):
        yield from super().on_event(change)
        if not change.is_delete and change["amount"] > 10:
            yield self.notice(change["id"], change["customer"])

    def on_batch(self, batch):
        orders = zip(
            *(batch[name].to_pylist() for name in ("_block", "_opcode", "id", "customer", "amount")), strict=True
        )
        told = [
            (block, self.notice(id_, customer))
            for block, opcode, id_, customer, amount in orders
            if opcode != Opcode.DELETE and amount > 10
        ]
        return super().on_batch(batch), told

    def notice(self, id_, customer):
        return Notice("mail", key=customer, body=b"%d" % id_, id=f"order-{id_}")


class TellingOthers(Telling):
    """Broken: the column form gives notices other ids."""

    def on_batch(self, batch):
        made, told = super().on_batch(batch)
        return made, [(block, replace(notice, id=f"{notice.id}x")) for block, notice in told]


class Tripled(Doubled):
    """Broken: the column form gives something else."""

    factor = 3.0


class Answers(Window):
    """Gives what a test says."""

    version = "1"
    gives = None

    def on_event(self, change):
        return type(self).gives

    on_batch = None


class Columns(Window):
    """Gives the batch that a test says."""

    version = "1"
    gives = None

    def on_event(self, change):
        return None

    def on_batch(self, batch):
        made = type(self).gives
        return made(batch) if callable(made) else made


class Failing(Window):
    """Fails where a test says."""

    version = "1"

    def on_event(self, change):
        if change["amount"] == 13.0:
            raise ValueError("thirteen")
        self.state["odd"] = {1, 2} if change["amount"] == 14.0 else None
        yield change["customer"], 1.0


class Careless(Window):
    version = "1"

    def __init__(self, setup):
        pass

    def on_event(self, change):
        return None


class Sources(Window):
    """Tells what it is called with."""

    version = "1"

    def on_event(self, change):
        self.state["n"] = self.state.get("n", 0) + 1
        yield Event(Opcode.INSERT, Flag.NORMAL, (self.state["n"], f"{change!r} {change.before}"))


class Places(Window):
    """Tells where and when it is called."""

    version = "1"

    def on_event(self, change):
        yield change["id"], f"block {self.block}, time {self.time_us}"

    def on_tick(self, time_us, lagging):
        yield -self.block, f"tick, time {self.time_us}"


class Unversioned(Window):
    def on_event(self, change):
        return None


class Unfinished(Window):
    version = "1"


class Plain:
    version = "1"


VERSIONS = np.array([1])
"""A name that is no class."""
