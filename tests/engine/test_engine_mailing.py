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
from lockstep.testing.virtual import VirtualRuntime

STREAMS = ProjectStreams(cluster="test", project="mail")


class Desk:
    """Stands where the mail server is: says what a test wants and remembers what it was given."""

    def __init__(self, *states: str) -> None:
        self.states, self.given = list(states), []

    def send(self, notice):
        self.given.append(notice.block)
        state = self.states.pop(0) if self.states else SENT
        return Outcome(state, 1, "" if state == SENT else "no")


class AwayDesk(Desk):
    """One server can't be reached."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host

    def send(self, notice):
        if dict(notice.content)["host"] == self.host:
            return Outcome(LATER, 3, "no")
        return super().send(notice)


def bus_with(notices: int, name: str, hosts: str = ""):
    bus = open_bus(f"memory:{name}", ThreadRuntime())
    bus.create(STREAMS.sent, StreamConfig(capacity=100))
    log = bus.create(STREAMS.notices, StreamConfig(capacity=None))
    told = [
        {"block": n, "window": "q/w", "kind": "email", "content": {"to": "a@b", "host": hosts[n - 1 : n]}}
        for n in range(1, notices + 1)
    ]
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
    clock = VirtualRuntime(1)
    mailer = Mailer(bus, STREAMS, desk, clock)
    pause = mailer.step()
    assert pause > 1
    mailer.step()
    assert desk.given == [1, 2]
    clock.advance(pause)
    mailer.step()
    assert desk.given == [1, 2, 2]


def test_a_server_that_is_away_does_not_hold_up_the_others_and_nothing_is_sent_twice():
    bus = bus_with(5, "mail-hosts", hosts="AABAB")
    clock, away = VirtualRuntime(1), AwayDesk("A")
    Mailer(bus, STREAMS, away, clock).step()
    assert away.given == [3, 5]
    # When another engine leads, it knows what was sent, and what was not
    after = AwayDesk("")
    Mailer(bus, STREAMS, after, clock).step()
    assert after.given == [1, 2, 4]
    last = Desk()
    Mailer(bus, STREAMS, last, clock).step()
    assert last.given == []


def test_nothing_more_is_sent_by_an_engine_that_no_longer_leads():
    bus, desk = bus_with(3, "mail-role"), Desk()
    leads = iter([True, True, False])
    Mailer(bus, STREAMS, desk, ThreadRuntime(), lambda: next(leads)).step()
    assert desk.given == [1, 2]


def test_a_notice_that_can_never_be_sent_does_not_hold_up_the_others():
    bus = bus_with(2, "mail-refused")
    mailer = Mailer(bus, STREAMS, Desk(REFUSED), ThreadRuntime())
    mailer.step()
    assert mailer.outcomes == {REFUSED: 1, SENT: 1}
