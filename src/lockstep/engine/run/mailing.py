"""From the notice stream to the mail server: one after the other, with a durable note of how far it got."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from lockstep.engine.errors import LogTooShort
from lockstep.engine.run.mail import LATER, MailSender
from lockstep.engine.run.outages import BUS_AWAY
from lockstep.engine.run.reading import values_between
from lockstep.engine.run.sidelog import NOWHERE, Item, place_of
from lockstep.engine.run.streams import ProjectStreams
from lockstep.engine.windows.operator import Notice
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, logger

_LOOK_S, _AGAIN_S, _AGAIN_MAX_S = 0.1, 5.0, 300.0
"""A mail server that could not be used is left alone for so long, twice as long each time up to a bound."""
AHEAD_MAX = 1_000
"""Notices that wait for their servers; those behind them wait too."""


class Mailer:
    """Sends what notification windows wrote, copies of it once. One whose note was lost by a crash is sent again.

    Notices of one server stay in order; a server that can't be used holds up its own only. `may_send` is asked before
    each mail: another engine may lead by then.
    """

    def __init__(
        self,
        bus: Bus,
        streams: ProjectStreams,
        sender: MailSender,
        runtime: Runtime,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sender, self._runtime, self._may_send = sender, runtime, may_send
        self._log, self._notes = bus.open(streams.notices), bus.open(streams.sent)
        self._notes_at = self._notes.bounds().first
        self._next, self._last = 0, NOWHERE
        self._ahead: set[tuple[int, int]] = set()
        """The places of notices that were sent although one before them was not."""
        self._again: dict[str, tuple[float, float]] = {}
        """For each server that could not be used when to try it again, and the pause before that."""
        self.outcomes: Counter[str] = Counter()

    def step(self) -> float:
        """Send what is there; how many seconds later to look again."""
        self._look()
        bounds, waiting = self._log.bounds(), 0
        if bounds.first > self._next > 0:
            extra = {"action": "mail", "from": self._next, "to": bounds.first}
            logger.warning("Notices that were not sent yet are gone from their stream", extra=extra)
        with suppress(LogTooShort):  # it was trimmed meanwhile
            for offset, value in values_between(self._log, max(self._next, bounds.first), bounds.next):
                if not self._may_send() or waiting >= AHEAD_MAX:
                    break
                told = json.loads(value)
                if "content" not in told:  # a custom window's: no mail
                    if not waiting:
                        self._next, self._last = offset + 1, max(self._last, place_of(told))
                    continue
                is_known = place_of(told) <= self._last or place_of(told) in self._ahead
                if not is_known and not self._sent(offset, told):
                    waiting += 1
                elif not waiting:
                    self._ahead.discard(place_of(told))
                    self._note(offset + 1, max(self._last, place_of(told)))
                elif not is_known:
                    self._ahead.add(place_of(told))
                    self._note(self._next, self._last)
        return _LOOK_S if not waiting else self._pause_s()

    def _pause_s(self) -> float:
        """Until the first server is tried again."""
        now = self._runtime.monotonic()
        return max(_LOOK_S, min((at for at, _ in self._again.values()), default=now) - now)

    def _look(self) -> None:
        """Another engine may have led, and sent."""
        bounds = self._notes.bounds()
        for offset, value in values_between(self._notes, max(self._notes_at, bounds.first), bounds.next):
            self._notes_at = offset + 1
            told = json.loads(value)
            if told["identity"] == self._log.identity:
                self._next = max(self._next, told["next"])
                self._last = max(self._last, (told["block"], told["index"]))
                self._ahead |= {(block, index) for block, index in told.get("ahead", ())}
        self._ahead = {place for place in self._ahead if place > self._last}

    def _sent(self, offset: int, told: Item) -> bool:
        """Whether it was sent, or never will be."""
        server, now = f"{told['content'].get('host')}:{told['content'].get('port')}", self._runtime.monotonic()
        due, pause = self._again.get(server, (now, _AGAIN_S / 2))
        if now < due:
            return False
        outcome = self._sender.send(_notice(told))
        if outcome.state == LATER:
            pause = min(2 * pause, _AGAIN_MAX_S)
            self._again[server] = (self._runtime.monotonic() + pause, pause)
            return False
        self._again.pop(server, None)
        self.outcomes[outcome.state] += 1
        if outcome.reason:
            logger.warning(
                "A notice was not sent", extra={"action": "notice_refused", "offset": offset, "why": outcome.reason}
            )
        return True

    def _note(self, position: int, place: tuple[int, int]) -> None:
        """For whoever leads next; a note that is lost costs a copy of a mail, and never one that is not sent."""
        ahead = sorted(self._ahead)
        note = {"identity": self._log.identity, "next": position, "block": place[0], "index": place[1], "ahead": ahead}
        now_ns = self._runtime.wall_ns()
        try:
            self._notes.append([pack([json.dumps(note).encode()], producer=NO_PRODUCER, sequence=0, created_ns=now_ns)])
        except BUS_AWAY as error:
            logger.warning("How far notices were sent was not noted", extra={"action": "mail", "reason": str(error)})
        self._next, self._last = position, place


def _notice(told: Item) -> Notice:
    return Notice(told["block"], told["window"], told["kind"], tuple(told["content"].items()))
