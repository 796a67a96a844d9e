"""From the notice stream to the mail server: one after the other, with a durable note of how far it got."""

from __future__ import annotations

import json
from collections import Counter

from lockstep.engine.run.mail import LATER, MailSender
from lockstep.engine.run.reading import values_between
from lockstep.engine.run.streams import ProjectStreams
from lockstep.engine.windows.operator import Notice
from lockstep.log.port import Bus
from lockstep.runtime import logger

_AGAIN_S = 5.0


class Mailer:
    """Sends what notification windows wrote. A message whose note was lost by a crash is sent once more."""

    def __init__(self, bus: Bus, streams: ProjectStreams, sender: MailSender) -> None:
        self._bus, self._sender = bus, sender
        self._log = bus.open(streams.notices)
        self._cell = f"engine-mailed/{self._log.name}/{self._log.identity}".encode()
        self._next = int(bus.atomic(lambda changes: changes.get(self._cell)) or b"0")
        self.outcomes: Counter[str] = Counter()

    def step(self) -> float:
        """Send what is there; how many seconds later to look again."""
        for offset, value in values_between(self._log, self._next, self._log.bounds().next):
            outcome = self._sender.send(_notice(value))
            if outcome.state == LATER:
                return _AGAIN_S
            self.outcomes[outcome.state] += 1
            if outcome.reason:
                logger.warning(
                    "A notice was not sent", extra={"action": "notice_refused", "offset": offset, "why": outcome.reason}
                )
            self._note(offset + 1)
        return 0.1

    def _note(self, position: int) -> None:
        self._bus.atomic(lambda changes: changes.put(self._cell, str(position).encode()))
        self._next = position


def _notice(value: bytes) -> Notice:
    told = json.loads(value)
    return Notice(told["block"], told["window"], told["kind"], tuple(told["content"].items()))
