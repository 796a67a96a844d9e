"""The fleet against a restatement, with restarts anywhere: the same notices, events, histories; broken variants."""

from __future__ import annotations

import json
import random

import pytest
from fleet_oracle import HANDLERS, Oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_worlds import START_S, World, keepalive, result

from lockstep.monitor.core import copies, pages, silences, timers
from lockstep.monitor.core.copies import redelivered
from lockstep.monitor.core.fleet import Fleet

CLIENTS, CHECKS = ("a-1", "b-1"), ("disk", "cpu")


def clients():
    return st.sampled_from(CLIENTS)


def checks():
    return st.sampled_from(CHECKS)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("keepalive"), clients()),
        st.tuples(
            st.just("results"),
            clients(),
            checks(),
            st.lists(st.sampled_from((0, 0, 1, 2, 2)), min_size=1, max_size=6),
            st.sampled_from(({}, {}, {"need": 2}, {"flaps": True}, {"ttl": 40})),
            st.booleans(),
        ),
        st.tuples(st.just("flutter"), clients(), checks()),
        st.tuples(st.just("copy"), st.integers(0, 50)),
        st.tuples(st.just("ticks"), st.integers(1, 65), st.sampled_from((1, 1, 1, 3, 40)), st.booleans()),
        st.tuples(
            st.just("silence"),
            st.sampled_from(("linux", "client:a-1", None)),
            st.sampled_from(("disk", None)),
            st.integers(1, 60),
        ),
        st.tuples(st.just("ack"), clients(), checks()),
        st.tuples(st.just("resolve"), clients(), checks()),
        st.tuples(st.just("restart"), st.integers(0, 9)),
    ),
    max_size=14,
)


def steps_of(seed):
    """The same steps by chance, for variants: many ticks, copies and restarts."""
    chance = random.Random(seed)
    made = [("keepalive", client) for client in CLIENTS]
    for _ in range(25):
        client, check = chance.choice(CLIENTS), chance.choice(CHECKS)
        made.append(
            chance.choice(
                (
                    ("keepalive", client),
                    (
                        "results",
                        client,
                        check,
                        [chance.choice((0, 1, 2)) for _ in range(3)],
                        chance.choice(({}, {"need": 2}, {"ttl": 40})),
                        chance.random() < 0.7,
                    ),
                    ("results", client, check, [0, 0], {}, True),
                    ("copy", chance.randint(0, 50)),
                    ("ticks", chance.randint(1, 65), chance.choice((1, 1, 3, 40)), chance.random() < 0.4),
                    ("silence", "linux", None, chance.randint(1, 60)),
                    ("ack", client, check),
                    ("resolve", client, check),
                    ("restart", chance.randint(0, 9)),
                )
            )
        )
    return made


class Pair:
    """A fleet and the oracle, step by step."""

    def __init__(self):
        self.world = World({"handlers": HANDLERS}, fleet=Fleet())
        self.oracle = Oracle()
        self.oracle.tick(START_S, False)
        self.messages = []
        self.number = 0

    def run(self, steps):
        for name, *given_ in steps:
            self.oracle.told.clear()
            self.world.notices.clear()
            getattr(self, name)(*given_)
            self.compare()
        self.tick(1, False)
        self.compare()
        shown = {id_: row for id_, row in self.world.table.items() if id_.startswith("results/")}
        for id_, row in shown.items():
            for check in row if id_ != "results/lockstep" else ():
                wanted = [each["status"] for each in self.oracle.results[id_.removeprefix("results/"), check["name"]]]
                assert check["history"] == wanted[-21:]

    def compare(self):
        found = []
        for notice in self.world.notices:
            client, check, handler = notice.key.split("/")
            if client == "lockstep":
                continue  # the monitor says of itself that it lags
            event = json.loads(notice.body)["event"]
            revision = int(notice.id.split(".")[1])
            status = event["check"]["status"]
            found.append((client, check, handler, status, event["action"], event["occurrences"], revision))
        assert found == self.oracle.told
        keys = {key for key in self.oracle.results if self.oracle.event(key) is not None}
        rows = {tuple(id_.split("/")): row for id_, row in self.world.table.items() if id_.startswith("event/")}
        events = {(client, check): row for (_, client, check), row in rows.items() if client != "lockstep"}
        assert set(events) == keys
        for key, row in events.items():
            wanted = self.oracle.event(key)
            shown = (row["occurrences"], row["occurrences_watermark"], row["action"], row["check"]["status"])
            assert shown == (wanted["occurrences"], wanted["watermark"], wanted["action"], wanted["status"])
        assert self.world.fleet.state.counters["copies"] == self.oracle.copies

    # steps

    def send(self, kind, client, value, agent, number, act):
        """A message, which may come again."""
        self.messages.append((kind, client, value, agent, number, act))
        self.arrive(kind, client, value, agent, number, act, again=False)

    def arrive(self, kind, client, value, agent, number, act, *, again):
        if not self.oracle.is_copy(kind, client, agent, number, value, again):
            act()
        self.world.take(f"{kind}:{client}".encode(), redelivered(value) if again else value)

    def keepalive(self, client):
        self.number += 1
        value = keepalive(client, _agent="x", _n=self.number, timestamp=self.world.now)
        self.send("k", client, value, "x", self.number, lambda: self.oracle.keepalive(client))

    def results(self, client, check, statuses, more, numbered):
        flags = {"low_flap_threshold": 20, "high_flap_threshold": 50} if more.get("flaps") else {}
        if more.get("ttl"):
            flags["ttl"] = more["ttl"]
        for status in statuses:
            self.number += 1
            agent, number = ("x", self.number) if numbered else (None, None)
            head = {"_agent": agent, "_n": number} if numbered else None
            value = result(
                client,
                check,
                status,
                head=head,
                executed=self.world.now,
                output=f"o {self.number}",
                occurrences=more.get("need", 1),
                interval=60,
                handlers=["default", "patient"],
                **flags,
            )

            def act(status=status):
                if client not in self.oracle.clients():
                    self.oracle.results.setdefault((client, check), [])
                self.oracle.result(client, check, status, **more)

            self.send("r", client, value, agent, number, act)

    def flutter(self, client, check):
        self.results(client, check, [0, 1] * 12, {"flaps": True}, True)

    def copy(self, place):
        if self.messages:
            self.arrive(*self.messages[place % len(self.messages)], again=True)

    def tick(self, seconds, lagging):
        self.world.tick(seconds, lagging=lagging)
        self.oracle.tick(self.world.now, lagging)

    def ticks(self, count, seconds, lagging):
        for _ in range(count):
            self.tick(seconds, lagging)

    def silence(self, subscription, check, expire):
        if subscription is None and check is None:
            return
        self.oracle.silences[f"{subscription or '*'}:{check or '*'}"] = (self.oracle.now + expire, False)
        self.world.order("silence", entry={"subscription": subscription, "check": check, "expire": expire})

    def ack(self, client, check):
        if self.oracle.event((client, check)) is not None:
            self.oracle.silences[f"client:{client}:{check}"] = (None, True)
        self.world.order("ack", client=client, check=check)

    def resolve(self, client, check):
        self.oracle.resolve(client, check)
        self.world.order("resolve", client=client, check=check)

    def restart(self, seed):
        self.world.restart(random.Random(seed))


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_the_fleet_says_what_the_restatement_says_whatever_comes_and_wherever_it_restarts(steps):
    Pair().run(steps)


@pytest.mark.parametrize("seed", range(8))
def test_the_same_for_runs_in_which_variants_are_looked_for(seed):
    Pair().run(steps_of(seed))


def test_a_run_with_restarts_gives_the_same_bytes_as_one_without():
    for seed in range(3):
        steps = steps_of(seed)
        one, other = Pair(), Pair()
        one.run([step for step in steps if step[0] != "restart"])
        other.run([each for step in steps for each in (step, ("restart", seed))])
        assert one.world.rows == other.world.rows


@pytest.mark.parametrize("numbered", [True, False])
def test_a_restart_does_not_change_how_a_result_is_written(numbered):
    """The text of an OK result is passed on as it came: also by a process that never saw its client before."""
    rows = []
    for restarts in (False, True):
        world = World({"checks": {"disk": {"command": "df", "interval": 60, "aggregate": None}}})
        world.keepalive(signature="s")
        for number in range(1, 6):
            head = {"signature": "s", **({"_agent": "a", "_n": 2 * number} if numbered else {})}
            value = result(name="cpu", head=head, executed=world.now, output="x").replace(b'"x"', b'"\\u00fc\\/"')
            world.take(b"r:web-1", value.replace(b"0.012", b"1.20E1"))
            world.result(head={**head, "_n": 2 * number + 1} if numbered else head, standalone=number % 2 == 0)
            if restarts:
                world.restart(random.Random(number))
            world.tick()
        rows.append(world.rows)
    assert rows[0] == rows[1]
    assert "1.20E1" in next(row.body for row in reversed(rows[0]) if row.kind == "results")


# Variants that are broken: each must be found


def wall_age(monkeypatch):
    """Ages count by the time of ticks, whether or not anything was listened to."""

    def move(fleet, time_us, *, lagging):
        fleet.clock.listened_us += max(0, time_us - (fleet.clock.now_us or time_us))
        true_move(fleet, time_us, lagging=True)

    true_move = timers._move
    monkeypatch.setattr(timers, "_move", move)


def client_age(monkeypatch):
    """Ages count by the clock of the client, as in Sensu."""

    def judge(fleet, client):
        client.heard = fleet.clock.listened_us - (fleet.now - client.doc["timestamp"]) * 1_000_000
        true_judge(fleet, client)

    true_judge = timers._judge
    monkeypatch.setattr(timers, "_judge", judge)


def ticks_while_behind(monkeypatch):
    """Lagging ticks age clients."""
    true_tick = timers.tick
    monkeypatch.setattr(timers, "tick", lambda fleet, time_us, *, lagging: true_tick(fleet, time_us, lagging=False))


def private_dedupe(monkeypatch):
    """What came before is remembered outside the pages."""

    def state(client):
        made = true_state(client)
        made[4], made[5] = [], []
        return made

    true_state = pages._client_state
    monkeypatch.setattr(pages, "_client_state", state)


def pending_outside_pages(monkeypatch):
    """Results that wait for the next tick are lost with the process."""

    def state(client):
        made = true_state(client)
        made[6] = []
        return made

    true_state = pages._client_state
    monkeypatch.setattr(pages, "_client_state", state)


def no_dedupe(monkeypatch):
    """Copies are taken as new."""
    monkeypatch.setattr("lockstep.monitor.core.fleet.is_copy", lambda *_: False)
    monkeypatch.setattr("lockstep.monitor.core.fleet.take_fast", lambda *_: False)


def swallowed_resolve(monkeypatch):
    """The resolve that ends a silence is itself silenced, as in 0.26."""

    def silenced_by(fleet, client, check, status, action):
        before = dict(fleet.silences)
        found = true_silenced_by(fleet, client, check, status, action)
        return [*found, *(id_ for id_ in before if id_ not in fleet.silences)]

    true_silenced_by = silences.silenced_by
    monkeypatch.setattr(silences, "silenced_by", silenced_by)


def digests_of_copies(monkeypatch):
    """A message that was delivered again is not compared with what it was the first time."""
    monkeypatch.setattr(copies, "_digest", lambda document, value: copies.digest_of(value))


VARIANTS = {
    "wall-age": wall_age,
    "client-age": client_age,
    "ticks-while-behind": ticks_while_behind,
    "private-dedupe": private_dedupe,
    "pending-outside-pages": pending_outside_pages,
    "no-dedupe": no_dedupe,
    "swallowed-resolve": swallowed_resolve,
    "digests-of-copies": digests_of_copies,
}
FOUND_BY = {"swallowed-resolve": 1, "digests-of-copies": 7, "pending-outside-pages": 25}
"""The seed that finds a variant first, tried first."""


@pytest.mark.parametrize("name", VARIANTS)
def test_broken_variants_are_found(name, monkeypatch):
    VARIANTS[name](monkeypatch)
    for seed in [FOUND_BY.get(name, 0), *range(60)]:
        try:
            Pair().run(steps_of(seed))
        except AssertionError:
            return
    pytest.fail(f"{name} was not found")


if __name__ == "__main__":
    for each, break_ in VARIANTS.items():
        with pytest.MonkeyPatch.context() as patch:
            break_(patch)
            for number in range(60):
                try:
                    Pair().run(steps_of(number))
                except AssertionError:
                    print(each, number)
                    break
