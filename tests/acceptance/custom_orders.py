"""A window class that an engine of a process of its own loads: a sum for each customer, a page for each."""

from __future__ import annotations

from lockstep.windows import Notice, PagedWindow


class Sums(PagedWindow):
    version = "7"

    def __init__(self, setup):
        super().__init__(setup)
        self.sums = {}

    def on_event(self, change):
        name = change["customer"]
        total = self.sums[name] = self.sums.get(name, 0.0) + change["amount"]
        self.mark(name)
        yield {"customer": name, "orders": change["id"], "total": total}
        if change["id"] % 50 == 0:
            yield Notice("mail", key=name, body=f"{name}: {total!r}".encode(), headers={"block": str(self.block)})

    def dump_page(self, page):
        return self.sums.get(page)

    def load_page(self, page, state):
        self.sums[page] = state
