"""The fleet: keepalives, results, orders and ticks in; rows of a changelog and notices out.

    fleet, out = Fleet(), Output()
    fleet.take(b"k:web-1", b'{"name":"web-1","address":"10.0.0.1","subscriptions":["linux"]}', 1, out)
    fleet.tick(1_767_225_600_000_000, False, 2, out)

What comes out follows from the sequence of calls alone, also if the state is put into pages and loaded by a new object
between any two of them. Nothing that is taken raises: what can't be used is counted and told in a row `refused`.
"""

from __future__ import annotations

from typing import Any

from lockstep.monitor.core import clients, pages, results, timers
from lockstep.monitor.core.copies import is_copy
from lockstep.monitor.core.documents import MESSAGE_MAX, fitted, parse_object, scrubbed
from lockstep.monitor.core.fast import Shapes, take_fast
from lockstep.monitor.core.orders import take_order
from lockstep.monitor.core.output import Output, State
from lockstep.monitor.core.state import FleetState

EARLY_MAX, EARLY_BYTES_MAX = 100_000, 64 << 20
"""What waits for the first tick. If there is more, it is taken at the time 0."""
Json = dict[str, Any]


class Fleet:
    """Takes keepalives, results, orders and ticks, and decides what follows from them."""

    def __init__(self) -> None:
        self.state = FleetState()
        self._shapes = Shapes(self.state.rules)
        self._early_bytes = 0

    def take(self, key: bytes, value: bytes, block: int, out: Output) -> None:
        """Take a keepalive (key `k:CLIENT`), a result (`r:CLIENT`) or an order (`o:`)."""
        fleet = self.state
        fleet.begin(block, out)
        if not fleet.clock.is_open and self._waits(key, value, block):
            return
        client = fleet.direct.get(key)
        if client is None or not take_fast(fleet, self._shapes, client, value):
            self._take(key, value)

    def tick(self, time_us: int, lagging: bool, block: int, out: Output) -> None:
        """A second of the model's clock went by; lagging: input that was there has not been taken yet."""
        fleet = self.state
        fleet.begin(block, out)
        if not fleet.clock.is_open:
            fleet.clock.now_us, fleet.now = time_us, time_us // 1_000_000
            self._take_early()
        timers.tick(fleet, time_us, lagging=lagging)

    def marked_pages(self) -> set[str]:
        """The pages that changed since the last call."""
        fleet = self.state
        for name in fleet.waiting:
            fleet.mark(name)
        if fleet.waiting:
            fleet.marked.add("clock")
        marked, fleet.marked = fleet.marked, set()
        return marked

    def dump_page(self, page: str) -> State:
        """What a page holds now; None: it is gone."""
        return pages.dump_page(self.state, page)

    def load_page(self, page: str, state: State) -> None:
        """Take a page over, in a new object; pages come in any order."""
        pages.load_page(self.state, page, state)
        if page == "early":
            self._early_bytes = sum(len(value) for _, value, _ in self.state.early)
        self._shapes = Shapes(self.state.rules)

    def _waits(self, key: bytes, value: bytes, block: int) -> bool:
        """Before the first tick there is no time: what comes waits for it, unless there is too much."""
        fleet = self.state
        if len(fleet.early) >= EARLY_MAX or self._early_bytes >= EARLY_BYTES_MAX:
            self._take_early()
            return False
        fleet.early.append([key, value, block])
        self._early_bytes += len(value)
        fleet.marked.add("early")
        return True

    def _take_early(self) -> None:
        """Each record keeps the block that it came in as the origin of ids; its rows are those of the block at hand."""
        fleet = self.state
        early, fleet.early, self._early_bytes = fleet.early, [], 0
        fleet.clock.is_open = True
        fleet.marked |= {"early", "clock"}
        for key, value, seed in early:
            fleet.seed = seed
            self._take(key, value)
        fleet.seed = fleet.block

    def _take(self, key: bytes, value: bytes) -> None:
        fleet = self.state
        name = key.decode("utf-8", "replace")
        try:
            document = scrubbed(parse_object(value), value)
        except (ValueError, RecursionError) as error:
            fleet.refuse(name, f"it is not JSON of an object: {error}")
            return
        if name[:2] not in ("k:", "r:"):
            fault = self._order(document) if name == "o:" else "the key must begin with k:, r: or o:"
        elif not results.is_name(name[2:]):
            fault = "the client in the key must be 1 to 128 letters, digits, dots, dashes or underscores"
        else:
            fault = self._message(name, document, value)
        if fault is not None:
            fleet.refuse(name, fault)

    def _order(self, document: Json) -> str | None:
        fleet = self.state
        fleet.count("orders")
        fault = take_order(fleet, document)
        if self._shapes.rules is not fleet.rules:
            self._shapes = Shapes(fleet.rules)
        return fault

    def _message(self, name: str, document: Json, value: bytes) -> str | None:
        fleet = self.state
        if len(value) > MESSAGE_MAX:
            short = fitted(document) if name[0] == "r" else None
            if short is None:
                return f"it has {len(value)} bytes; at most {MESSAGE_MAX} are taken"
            document = short
            fleet.count("cut")
        sender = fleet.client(name[2:])
        if is_copy(fleet, sender, name[0], document, value):
            return None
        if name[0] == "k":
            fleet.count("keepalives")
            return clients.take_keepalive(fleet, sender, document)
        fleet.count("results")
        return clients.take_message(fleet, sender, document)
