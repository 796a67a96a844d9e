"""Notices go from their stream to the mail server once, also after a restart."""

from __future__ import annotations

import json

from lockstep.engine.run.mail import LATER, REFUSED, SENT, Outcome
from lockstep.engine.run.mailing import Mailer
from lockstep.engine.run.streams import ProjectStreams
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

STREAMS = ProjectStreams(cluster="test", project="mail")


class Desk:
    """Stands where the mail server is: says what a test wants and remembers what it was given."""

    def __init__(self, *states: str) -> None:
        self.states, self.given = list(states), []

    def send(self, notice):
        self.given.append(notice.block)
        state = self.states.pop(0) if self.states else SENT
        return Outcome(state, 1, "" if state == SENT else "no")


def bus_with(notices: int, name: str):
    bus = open_bus(f"memory:{name}", ThreadRuntime())
    bus.create(STREAMS.sent, StreamConfig(capacity=100))
    log = bus.create(STREAMS.notices, StreamConfig(capacity=None))
    told = [{"block": n, "window": "q/w", "kind": "email", "content": {"to": "a@b"}} for n in range(1, notices + 1)]
    log.append([pack([json.dumps(one).encode() for one in told], producer=NO_PRODUCER, sequence=0, created_ns=1)])
    return bus


def test_each_notice_is_sent_once_and_a_restarted_mailer_goes_on_behind_the_last():
    bus = bus_with(3, "mail-once")
    first, second = Desk(), Desk()
    Mailer(bus, STREAMS, first, ThreadRuntime()).step()
    Mailer(bus, STREAMS, second, ThreadRuntime()).step()
    assert first.given == [1, 2, 3]
    assert second.given == []


def test_a_server_that_is_away_is_asked_again_later_and_order_stays():
    bus = bus_with(2, "mail-later")
    desk = Desk(SENT, LATER)
    mailer = Mailer(bus, STREAMS, desk, ThreadRuntime())
    assert mailer.step() > 1
    mailer.step()
    assert desk.given == [1, 2, 2]


def test_a_notice_that_can_never_be_sent_does_not_hold_up_the_others():
    bus = bus_with(2, "mail-refused")
    mailer = Mailer(bus, STREAMS, Desk(REFUSED), ThreadRuntime())
    mailer.step()
    assert mailer.outcomes == {REFUSED: 1, SENT: 1}
