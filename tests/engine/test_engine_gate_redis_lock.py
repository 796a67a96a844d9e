"""Sensu's election on Redis in virtual time: L1 to L11 of it, clocks that are wrong, and candidates that interleave."""

from __future__ import annotations

import random

import pytest

from lockstep.engine.gates.redis_lock import LEADER, LOCK, STALE_MS, Candidate, number_of
from lockstep.engine.gates.urls import gate_address
from lockstep.errors import BadConfig

START_MS = 1_800_000_000_000


class Keys(dict):
    """What Redis does with the four commands."""

    def run(self, name, key, value=None):
        before = self.get(key)
        if name == "GET":
            return before
        if name == "SETNX":
            self.setdefault(key, value)
            return int(before is None)
        self[key] = value
        return before if name == "GETSET" else True


class Election:
    """Candidates by name, with clocks of their own, on one Redis; commands of several interleave by chance."""

    def __init__(self, *names, ahead=None, seed=0):
        self.keys, self.now, self.chance = Keys(), 0.0, random.Random(seed)
        self.ahead, self.candidates, self.stalled, self.tries = dict(ahead or {}), {}, set(), {}
        self.is_down = False
        for name in names:
            self.start(name)

    def start(self, name):
        clock = lambda: START_MS + round((self.now + self.ahead.get(name, 0)) * 1000)  # noqa: E731
        self.candidates[name] = made = Candidate(f"id-{name}", clock)
        made.stand(self.now)

    def kill(self, name):
        del self.candidates[name]
        self.tries.pop(name, None)

    def run(self, seconds):
        """Time goes by in steps of a quarter of a second; who leads after each is noted."""
        seen = []
        for _ in range(round(seconds * 4)):
            self.now += 0.25
            self._begin()
            while self.tries:
                self._one_command()
            seen.append(self.leaders())
        return seen

    def _begin(self):
        for name, each in self.candidates.items():
            if name in self.stalled or each.due is None or each.due > self.now:
                continue
            if self.is_down:
                each.fail(self.now)
            else:
                self.tries[name] = (each.begin(self.now), None)

    def _one_command(self):
        name = self.chance.choice(sorted(self.tries))
        tried, answer = self.tries.pop(name)
        try:
            command = tried.send(answer)
        except StopIteration as end:
            self.candidates[name].end(leads=end.value)
        else:
            self.tries[name] = (tried, self.keys.run(*command))

    def leaders(self):
        return {name for name, each in self.candidates.items() if each.may_lead(self.now)}


def test_the_keys_are_milliseconds_and_an_id():
    election = Election("a")
    assert election.run(1.75)[-1] == set()
    assert election.keys == {}
    assert election.run(0.25)[-1] == {"a"}
    assert election.keys == {LOCK: str(START_MS + 2000), LEADER: "id-a"}


def test_the_leader_refreshes_every_ten_seconds_and_the_others_wait():
    election = Election("a")
    election.run(5)
    election.start("b")
    assert all(leaders == {"a"} for leaders in election.run(200))
    assert int(election.keys[LOCK]) == START_MS + 202_000


@pytest.mark.parametrize("seed", range(30))
def test_a_killed_leader_is_followed_by_one_of_many_after_20_to_40_seconds(seed):
    election = Election("a", seed=seed)
    chance = random.Random(seed)
    election.run(3)
    for name in "bcde":
        election.start(name)
        election.run(chance.choice([0, 0, 1, 3]))
    election.run(chance.uniform(0, 10))
    (leader,) = election.leaders()
    election.kill(leader)
    seen = election.run(45)
    took = next(number for number, leaders in enumerate(seen) if leaders) / 4
    assert 19.5 <= took <= 40
    assert all(len(leaders) == 1 for leaders in seen[round(took * 4) :])


@pytest.mark.parametrize("seed", range(50))
def test_of_several_that_see_a_stale_lock_at_once_one_gets_it(seed):
    election = Election(seed=seed)
    election.keys[LOCK] = str(START_MS - STALE_MS)
    for name in "abcdef":
        election.start(name)
    assert len(election.run(2)[-1]) == 1
    assert len(election.run(60)[-1]) == 1


@pytest.mark.parametrize(("age_ms", "leads"), [(STALE_MS - 1, False), (STALE_MS, True)])
def test_a_lock_is_stale_at_30_seconds_and_not_before(age_ms, leads):
    election = Election("a")
    election.keys[LOCK] = str(START_MS + 2000 - age_ms)
    assert election.run(2)[-1] == ({"a"} if leads else set())


@pytest.mark.parametrize("text", ["", "soon", "-5"])
def test_a_lock_that_is_no_time_is_an_old_one(text):
    election = Election("a")
    election.keys[LOCK] = text
    assert election.run(2)[-1] == {"a"}
    assert [number_of(each) for each in (None, "12x", " 7", "٣")] == [0, 12, 7, 0]


def test_one_who_is_not_the_leader_any_more_resigns_with_its_next_refresh():
    election = Election("a")
    election.run(3)
    election.keys[LEADER] = "somebody-else"
    seen = election.run(10)
    assert seen[0] == {"a"}
    assert seen[-1] == set()
    assert election.keys[LEADER] == "somebody-else"


def test_one_who_resigns_leaves_the_keys_and_may_stand_again():
    election = Election("a")
    election.run(3)
    kept = dict(election.keys)
    election.candidates["a"].resign()
    assert election.run(5)[-1] == set()
    assert election.keys == kept
    election.candidates["a"].stand(election.now)
    assert election.run(20)[-1] == set()
    assert election.run(12)[-1] == {"a"}


def test_to_stand_twice_is_to_stand_once():
    election = Election("a")
    election.run(1)
    election.candidates["a"].stand(election.now)
    assert election.run(1)[-1] == {"a"}


def test_a_leader_that_was_stalled_is_not_believed_and_finds_out_when_it_wakes():
    # Given a leader that is paused for a minute, and another one that took the lock
    election = Election("a")
    election.run(3)
    election.start("b")
    election.stalled.add("a")
    assert election.run(60)[-1] == {"b"}
    # When it wakes, before it asked anybody
    assert election.candidates["a"].leads
    election.stalled.clear()
    # Then its gate is closed: it was sure for 30 seconds only
    assert all(leaders == {"b"} for leaders in election.run(20))
    assert not election.candidates["a"].leads


def test_a_dead_leader_whose_clock_was_ahead_is_waited_for_as_much_longer():
    election = Election("a", ahead={"a": 50})
    election.run(3)
    election.start("b")
    election.kill("a")
    assert not any(election.run(75))
    assert election.run(16)[-1] == {"b"}


def test_a_clock_that_is_30_seconds_ahead_takes_the_lock_of_a_leader_that_is_well():
    election = Election("a", ahead={"b": 41})
    election.run(3)
    election.start("b")
    seen = election.run(14)
    assert {"a", "b"} in seen  # the marks of the log are for that
    assert seen[-1] == {"b"}


def test_a_leader_without_redis_is_believed_until_the_lock_is_stale():
    election = Election("a")
    election.run(3)
    election.is_down = True
    seen = election.run(40)
    assert sum(leaders == {"a"} for leaders in seen) / 4 == pytest.approx(29, abs=0.5)
    assert seen[-1] == set()
    election.is_down = False
    assert election.run(12)[-1] == {"a"}


def test_after_a_short_outage_of_redis_the_leader_leads_on():
    election = Election("a", "b")
    election.run(3)
    (leader,) = election.leaders()
    election.is_down = True
    election.run(20)
    election.is_down = False
    assert all(leaders == {leader} for leaders in election.run(60))


@pytest.mark.parametrize("seed", range(20))
def test_with_right_clocks_two_never_lead_and_after_40_quiet_seconds_one_does(seed):
    election, chance = Election("a", "b", "c", seed=seed), random.Random(seed)
    for number in range(12):
        fate, names = chance.randrange(4), sorted(election.candidates)
        if fate == 0 and len(names) > 1:
            election.kill(chance.choice(names))
        elif fate == 1:
            election.start(f"n{number}")
        elif fate == 2:
            election.stalled = {chance.choice(names)}
        else:
            election.is_down = chance.random() < 0.5
        assert all(len(leaders) <= 1 for leaders in election.run(chance.uniform(0, 40)))
    election.stalled, election.is_down = set(), False
    assert all(len(leaders) <= 1 for leaders in election.run(40))
    assert len(election.run(1)[-1]) == 1


@pytest.mark.parametrize(
    "url", ["redis-lock://h:1,i:2/0", "redis-lock://h/none", "redis-lock://h?queue=x", "redis://h"]
)
def test_urls_that_can_not_be_meant_are_refused(url):
    with pytest.raises(BadConfig, match="redis-lock"):
        gate_address(url, {})


def test_a_password_comes_from_the_environment_and_is_not_shown():
    address = gate_address("redis-lock://h/3", {"LOCKSTEP_REDIS_LOCK_PASSWORD": "hush"})
    assert (address.hosts, address.path, address.password.reveal()) == ((("h", 6379),), "3", "hush")
    assert "hush" not in repr(address) + address.safe_url
