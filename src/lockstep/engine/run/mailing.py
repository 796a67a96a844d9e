"""From the notice stream to the mail server: one after the other, with a durable note of how far it got."""

from __future__ import annotations

import json
from collections import Counter

from lockstep.engine.run.mail import LATER, MailSender
from lockstep.engine.run.reading import values_between
from lockstep.engine.run.sidelog import NOWHERE, Item, place_of
from lockstep.engine.run.streams import ProjectStreams
from lockstep.engine.windows.operator import Notice
from lockstep.log.port import Bus
from lockstep.runtime import logger

_AGAIN_S = 5.0


class Mailer:
    """Sends what notification windows wrote, copies of it once. One whose note was lost by a crash is sent again."""

    def __init__(self, bus: Bus, streams: ProjectStreams, sender: MailSender) -> None:
        self._bus, self._sender = bus, sender
        self._log = bus.open(streams.notices)
        self._cell = f"engine-mailed/{self._log.name}/{self._log.identity}".encode()
        self._next, self._last = 0, NOWHERE
        self.outcomes: Counter[str] = Counter()

    def step(self) -> float:
        """Send what is there; how many seconds later to look again."""
        self._look()
        for offset, value in values_between(self._log, self._next, self._log.bounds().next):
            told = json.loads(value)
            if place_of(told) > self._last and not self._sent(offset, told):
                return _AGAIN_S
            self._note(offset + 1, max(self._last, place_of(told)))
        return 0.1

    def _look(self) -> None:
        """Another engine may have led, and sent."""
        noted = self._bus.atomic(lambda changes: changes.get(self._cell)) or b"0"
        self._next, *place = map(int, noted.split())
        self._last = max(self._last, (place[0], place[1]) if place else NOWHERE)

    def _sent(self, offset: int, told: Item) -> bool:
        """Whether it was sent, or never will be."""
        outcome = self._sender.send(_notice(told))
        if outcome.state == LATER:
            return False
        self.outcomes[outcome.state] += 1
        if outcome.reason:
            logger.warning(
                "A notice was not sent", extra={"action": "notice_refused", "offset": offset, "why": outcome.reason}
            )
        return True

    def _note(self, position: int, place: tuple[int, int]) -> None:
        text = f"{position} {place[0]} {place[1]}".encode()
        self._bus.atomic(lambda changes: changes.put(self._cell, text))
        self._next, self._last = position, place


def _notice(told: Item) -> Notice:
    return Notice(told["block"], told["window"], told["kind"], tuple(told["content"].items()))
