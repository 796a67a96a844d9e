"""The monitor's own health: what is wrong with deliveries is an event of its own client until it is right again."""

from __future__ import annotations

import pytest
from fleet_world import START_S, FleetWorld

from lockstep.errors import DeliveryRefused, Unavailable
from lockstep.monitor.health import OWN_CLIENT, Health, doubts_of, letters_of, skew_of, waiting_of
from lockstep.runtime import ThreadRuntime
from lockstep.streams.carrier import Carrier, CarrierOptions
from lockstep.streams.client import connect
from lockstep.streams.outbox import item_headers


@pytest.fixture
def bus(tmp_path):
    with connect(f"lmdb:{tmp_path / 'bus'}") as opened:
        yield opened


class Looked:
    """A fleet, an outbox and two groups that carry it out, as a server has them."""

    def __init__(self, folder, bus):
        self.world, self.bus, self.leads, self.ahead = FleetWorld(folder, handlers={}), bus, True, 0
        self.refuses = True
        bus.create("out")
        for group in ("m.handlers", "m.requests"):
            carrier = Carrier(bus, "out", group, CarrierOptions(retries=0))
            carrier.on("handle", self._handle)
            carrier.start()
            setattr(self, group[2:], carrier)
        self.health = Health(
            bus, "out", ["m.handlers", "m.requests"], self.world, leads=lambda: self.leads, is_open=self.is_open,
            model_s=lambda: bus.runtime.wall_ns() // 10**9 - self.ahead,
        )  # fmt: skip

    def _handle(self, item):
        if self.refuses and item.body == b"bad":
            raise DeliveryRefused(reason="no")

    def is_open(self, check):
        return self.world.view.row("event", OWN_CLIENT, check) is not None

    def publish(self, *bodies):
        with self.bus.publisher("out") as publisher:
            for number, body in enumerate(bodies):
                headers = item_headers(id=f"i{number}", kind="handle")
                publisher.publish(body, key=b"k", headers=headers).result(10)

    def settle(self):
        for carrier in (self.handlers, self.requests):
            assert carrier.wait_idle(30)

    def close(self):
        self.handlers.close()
        self.requests.close()


@pytest.fixture
def looked(tmp_path, bus):
    made = Looked(tmp_path / "view", bus)
    yield made
    made.close()


def test_where_nothing_is_wrong_nothing_is_told(looked):
    looked.publish(b"fine")
    looked.settle()
    assert looked.health.look() == []
    assert looked.world.view.row("client", OWN_CLIENT) is None


def test_dead_letters_are_an_event_of_the_own_client(looked):
    looked.publish(b"bad")
    looked.settle()
    looked.health.look()
    event = looked.world.view.row("event", OWN_CLIENT, "dead-letters")
    assert (event["check"]["status"], event["check"]["output"]) == (1, "2 notices were given up in the last hour")


def test_a_clock_that_is_away_from_the_model_is_told_until_it_is_right(looked):
    looked.ahead = 7
    assert [(each.name, each.status) for each in looked.health.look()] == [("server-clock", 1)]
    looked.ahead = 40
    looked.health.look()
    assert looked.world.view.row("event", OWN_CLIENT, "server-clock")["check"]["status"] == 2
    looked.ahead = 0
    assert [(each.name, each.status) for each in looked.health.look()] == [("server-clock", 0)]
    assert not looked.is_open("server-clock")
    assert looked.health.look() == []


def test_only_the_server_that_leads_looks_and_one_that_can_not_goes_on(looked, monkeypatch, caplog):
    looked.ahead, looked.leads = 40, False
    assert looked.health._step() == 30
    assert not looked.is_open("server-clock")
    looked.leads = True
    looked.health._step()
    assert looked.is_open("server-clock")

    def away(kind, fields):
        raise Unavailable(reason="away")

    monkeypatch.setattr(looked.world, "send", away)
    assert looked.health._step() == 30
    assert "health is not known" in caplog.text


@pytest.mark.parametrize(
    ("reading", "status", "words"),
    [
        (waiting_of("handlers", 999), 0, "999 notices"),
        (waiting_of("handlers", 1_000), 1, "1000 notices"),
        (waiting_of("handlers", 10_000), 2, "10000 notices"),
        (doubts_of("handlers", []), 0, "0 deliveries are in doubt"),
        (doubts_of("handlers", ["a.1.x"] * 7), 1, "7 deliveries are in doubt: a.1.x,"),
        (letters_of(0), 0, "0 notices"),
        (letters_of(1), 1, "1 notice was given up"),
        (skew_of(4.9), 0, "5 s ahead of"),
        (skew_of(-6), 1, "6 s behind"),
        (skew_of(31), 2, "31 s ahead of"),
    ],
)
def test_limits(reading, status, words):
    assert (reading.status, words in reading.output) == (status, True)


def test_it_looks_by_itself_until_it_is_ended(looked):
    looked.ahead = 40
    end = looked.health.start(ThreadRuntime())
    pause = ThreadRuntime().waiter()
    while not looked.is_open("server-clock"):
        pause.wait(0.01)
    end()
    assert START_S
