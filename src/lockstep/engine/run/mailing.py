"""From the notice stream to the mail server: one after the other, with a durable note of how far it got."""

from __future__ import annotations

import json
from collections import Counter

from lockstep.engine.run.mail import LATER, MailSender
from lockstep.engine.run.reading import values_between
from lockstep.engine.run.sidelog import NOWHERE, Item, place_of
from lockstep.engine.run.streams import ProjectStreams
from lockstep.engine.windows.operator import Notice
from lockstep.errors import AppendUncertain
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, logger

_AGAIN_S = 5.0


class Mailer:
    """Sends what notification windows wrote, copies of it once. One whose note was lost by a crash is sent again."""

    def __init__(self, bus: Bus, streams: ProjectStreams, sender: MailSender, runtime: Runtime) -> None:
        self._sender, self._runtime = sender, runtime
        self._log, self._notes = bus.open(streams.notices), bus.open(streams.sent)
        self._notes_at = self._notes.bounds().first
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
        bounds = self._notes.bounds()
        for offset, value in values_between(self._notes, max(self._notes_at, bounds.first), bounds.next):
            self._notes_at = offset + 1
            told = json.loads(value)
            if told["identity"] == self._log.identity:
                self._next = max(self._next, told["next"])
                self._last = max(self._last, (told["block"], told["index"]))

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
        """For whoever leads next; a note that is lost costs a copy of a mail, and never one that is not sent."""
        note = {"identity": self._log.identity, "next": position, "block": place[0], "index": place[1]}
        now_ns = self._runtime.wall_ns()
        try:
            self._notes.append([pack([json.dumps(note).encode()], producer=NO_PRODUCER, sequence=0, created_ns=now_ns)])
        except AppendUncertain as error:
            logger.warning("How far notices were sent was not noted", extra={"action": "mail", "reason": str(error)})
        self._next, self._last = position, place


def _notice(told: Item) -> Notice:
    return Notice(told["block"], told["window"], told["kind"], tuple(told["content"].items()))
