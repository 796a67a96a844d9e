"""One member: when it beats, claims, yields and gives up."""

from __future__ import annotations

import pytest

from lockstep.core.group import Beat, Claim, Leave, Record, Release, Reset
from lockstep.core.member import (
    BEATS_IN_FLIGHT,
    EVICT_AFTER_LEASES,
    Assigned,
    Drained,
    MemberState,
    Observed,
    Revoked,
    Send,
    SetActive,
    Tick,
    Timing,
    Yield,
    holds,
    live_members,
    next_wake,
    step,
)


class Bench:
    """Members around one log; every append lands unless the test takes it away."""

    def __init__(self, *names: str, wants: tuple[str, ...] = ("a",)) -> None:
        self.log: list[Record] = []
        self.members = {name: MemberState(name, wants) for name in names}

    def __getitem__(self, name: str) -> MemberState:
        return self.members[name]

    def do(self, name: str, event, *, lost: bool = False) -> list:
        self.members[name], actions = step(self.members[name], event)
        if not lost:
            self.log += [action.record for action in actions if isinstance(action, Send)]
        return actions

    def tick(self, name: str, now: float, *, lost: bool = False, caught_up: bool = True, jitter: float = 0.0) -> list:
        return self.do(name, Tick(now, caught_up, jitter), lost=lost)

    def read(self, name: str, now: float, upto: int | None = None) -> list:
        end = len(self.log) if upto is None else upto + 1
        actions = []
        for at in range(self.members[name].group.upto + 1, end):
            actions += self.do(name, Observed(at, self.log[at], now))
        return actions

    def run(self, names: str, start: float, end: float) -> None:
        """Let these members live through some time, undisturbed."""
        now = start
        while now < end:
            for name in names.split():
                for action in [*self.read(name, now), *self.tick(name, now)]:
                    if isinstance(action, Yield):
                        self.do(name, Drained(action.seat, now))
            now += 0.1


@pytest.fixture
def owned() -> Bench:
    """p1 owns a, p2 stands by, both have read everything; it is 0.2."""
    bench = Bench("p1", "p2")
    bench.run("p1 p2", 0.0, 0.25)
    assert holds(bench["p1"], "a", 0.2) == 1
    return bench


def records(actions: list, kind: type) -> list:
    return [action.record for action in actions if isinstance(action, Send) and isinstance(action.record, kind)]


def test_the_first_member_beats_claims_and_is_assigned() -> None:
    # Given a lone member of a new group
    bench = Bench("p1")
    # When time passes for the first time
    actions = bench.tick("p1", 0.0)
    # Then it beats and claims, and has nothing yet
    assert [type(action.record) for action in actions] == [Beat, Claim]
    assert holds(bench["p1"], "a", 0.0) is None
    # When it reads its claim
    assert bench.read("p1", 0.1) == [Assigned("a", 1, None)]
    # Then it may work for a lease, counted from when it sent the claim
    assert holds(bench["p1"], "a", 0.99) == 1
    assert holds(bench["p1"], "a", 1.0) is None


def test_a_lone_member_keeps_its_seat() -> None:
    bench = Bench("p1")
    bench.run("p1", 0.0, 20.0)
    assert bench["p1"].held == {"a": 1}
    assert len([record for record in bench.log if isinstance(record, Claim)]) == 1


def test_nobody_claims_what_an_owner_beats_for(owned) -> None:
    owned.run("p1 p2", 0.3, 5.0)
    assert owned["p2"].group.seat("a").owner == "p1"


def test_a_silent_owner_is_replaced_after_its_lease(owned) -> None:
    # Given an owner that falls silent
    # When less than a lease has passed on the other's clock, and then a whole one
    for now in (0.5, 0.9, 1.19):
        assert records(owned.tick("p2", now), Claim) == []
    claims = records(owned.tick("p2", 1.21), Claim)
    # Then the other claims, and has it when it reads that
    assert claims == [Claim("p2", "a", 2, claims[0].seen)]
    assert owned.read("p2", 1.5) == [Assigned("a", 2, None)]
    # And the old owner finds out
    assert owned.read("p1", 1.5) == [Revoked("a", 1)]


def test_the_holder_stops_before_others_start(owned) -> None:
    # Given an owner whose beats no longer arrive
    owned.read("p1", 0.2)
    for now in (0.4, 0.6, 0.8, 1.0, 1.19):
        owned.tick("p1", now, lost=True)
        owned.tick("p2", now)
    assert holds(owned["p1"], "a", 1.19) == 1
    # When another may claim
    assert records(owned.tick("p2", 1.21), Claim)
    # Then the owner's lease is over, although it has read nothing of it
    assert holds(owned["p1"], "a", 1.21) is None


def test_a_member_that_is_not_at_the_end_of_the_log_claims_nothing(owned) -> None:
    assert records(owned.tick("p2", 0.6, caught_up=False) + owned.tick("p2", 1.0, caught_up=False), Claim) == []
    assert records(owned.tick("p2", 1.4, caught_up=False), Claim) == []


def test_jitter_keeps_claims_apart(owned) -> None:
    owned.read("p2", 0.2)
    for now in (0.5, 0.9):
        owned.tick("p2", now)
    assert records(owned.tick("p2", 1.25, jitter=1.0), Claim) == []
    assert records(owned.tick("p2", 1.35, jitter=1.0), Claim) != []


def test_silence_is_not_measured_across_a_stall_of_the_observer(owned) -> None:
    # Given a standby that was itself stopped for ten seconds
    # When it runs again, before it has read what came meanwhile
    # Then it cannot know who was silent, and waits a lease from now
    assert records(owned.tick("p2", 10.0), Claim) == []
    assert records(owned.tick("p2", 10.4), Claim) == []
    owned.tick("p2", 10.8)
    assert records(owned.tick("p2", 11.1), Claim) != []


def test_silence_before_a_stall_of_the_observer_counts(owned) -> None:
    # Given an owner that was last heard at 0.2, and a standby that stops for 0.6 s when it was silent for 0.7 s
    owned.read("p2", 0.2)
    for now in (0.5, 0.9):
        owned.tick("p2", now)
    assert records(owned.tick("p2", 1.5), Claim) == []
    # Then it waits for what is left of the lease, and not for a whole one
    assert records(owned.tick("p2", 1.75), Claim) == []
    assert records(owned.tick("p2", 1.85), Claim) != []


def test_a_claim_is_not_repeated_while_it_is_out(owned) -> None:
    for now in (0.5, 0.9):
        owned.tick("p2", now)
    assert records(owned.tick("p2", 1.3, lost=True), Claim)
    assert records(owned.tick("p2", 1.7), Claim) == []
    assert records(owned.tick("p2", 2.1), Claim) == []
    assert records(owned.tick("p2", 2.35), Claim) != []


def test_a_lease_runs_from_the_first_of_two_claims_that_look_alike() -> None:
    # Given a member that claims, reads nothing for a lease, and claims again on the same view
    bench = Bench("p1")
    bench.tick("p1", 0.0)
    for now in (0.4, 0.8, 1.2):
        actions = bench.tick("p1", now, lost=True)
    assert records(actions, Claim)
    # When it reads the first of them
    bench.read("p1", 1.3, upto=1)
    # Then it has the seat, and its lease is long over
    assert bench["p1"].held == {"a": 1}
    assert holds(bench["p1"], "a", 1.3) is None


def test_a_beat_that_does_not_name_a_seat_does_not_prolong_its_lease() -> None:
    # Given a member whose claim has landed, and that beats before it reads it
    bench = Bench("p1", "p2")
    bench.tick("p1", 0.0)
    claim_at = 1
    bench.tick("p1", 0.2)
    bench.tick("p1", 0.4)
    # When it reads all of that, but another only the claim
    bench.read("p1", 0.5)
    bench.read("p2", 0.0, upto=claim_at)
    for now in (0.0, 0.4, 0.8):
        bench.tick("p2", now, lost=True)
    claims = records(bench.tick("p2", 1.1), Claim)
    bench.read("p2", 1.15)
    # Then the other's claim wins a lease after the claim, and the first one has stopped by then
    assert claims == [Claim("p2", "a", 2, claim_at)]
    assert holds(bench["p2"], "a", 1.2) == 2
    assert holds(bench["p1"], "a", 1.2) is None


def test_the_lease_of_all_that_is_held_ends_with_the_first() -> None:
    # Given a member with two seats, won 0.3 apart
    bench = Bench("p1", wants=("a", "b"))
    claims = [action.record for action in bench.tick("p1", 0.0, lost=True) if isinstance(action.record, Claim)]
    assert bench["p1"].lease_until == float("-inf")
    bench.log.append(claims[0])
    bench.read("p1", 0.1)
    assert bench["p1"].lease_until == 1.0
    # When it beats for the one it has, and then gets the other by its first claim
    bench.tick("p1", 0.3)
    bench.log.append(claims[1])
    bench.read("p1", 0.4)
    # Then each has a lease of its own
    assert (holds(bench["p1"], "a", 1.2), holds(bench["p1"], "b", 1.2)) == (1, None)
    assert bench["p1"].lease_until == 1.0


def test_a_late_claim_made_before_a_release_loses(owned) -> None:
    # Given a claim on an older view that was lost so far, and a newer one that is out
    for now in (0.5, 0.9):
        owned.tick("p2", now)
    late = records(owned.tick("p2", 1.3, lost=True), Claim)[0]
    owned.log.append(Release("p1", "a", 1))
    owned.read("p2", 1.4)
    owned.tick("p2", 1.7, lost=True)
    owned.tick("p2", 2.1, lost=True)
    assert records(owned.tick("p2", 2.4, lost=True), Claim)
    # When the older one lands: it was made before the release
    owned.log.append(late)
    # Then it loses
    assert owned.read("p2", 2.5) == []
    assert owned["p2"].held == {}


def test_a_joining_member_gets_a_seat_from_a_fuller_one() -> None:
    # Given one member with two seats
    bench = Bench("p1", "p2", wants=("a", "b"))
    bench.run("p1", 0.0, 1.0)
    assert set(bench["p1"].held) == {"a", "b"}
    # When another joins
    bench.run("p1 p2", 1.0, 2.0)
    # Then each has one
    assert len(bench["p1"].held) == len(bench["p2"].held) == 1


def test_a_yielded_seat_is_released_when_its_work_is_drained() -> None:
    # Given a member with two seats, and one that joins
    bench = Bench("p1", "p2", wants=("a", "b"))
    bench.run("p1", 0.0, 1.0)
    bench.tick("p2", 1.0)
    bench.read("p1", 1.0)
    # When the first notices
    yielded = [action for action in bench.tick("p1", 1.1) if isinstance(action, Yield)]
    # Then it is asked once for one of them, and keeps it until it is drained
    assert len(yielded) == 1
    assert [action for action in bench.tick("p1", 1.15) if isinstance(action, Yield)] == []
    assert len(bench["p1"].held) == 2
    assert records(bench.do("p1", Drained(yielded[0].seat, 1.2)), Release) == [Release("p1", yielded[0].seat, 1)]
    assert holds(bench["p1"], yielded[0].seat, 1.2) is None


def test_draining_what_is_not_held_does_nothing(owned) -> None:
    assert owned.do("p2", Drained("a", 0.5)) == []


def test_a_lost_release_is_sent_again(owned) -> None:
    # Given an owner whose release was lost
    owned.do("p1", Drained("a", 0.3), lost=True)
    # When it still reads itself as the owner
    assert owned.read("p1", 0.3) == []
    assert records(owned.tick("p1", 0.7), Release) == []
    # Then it says so again, until it reads it
    assert records(owned.tick("p1", 0.8), Release) == [Release("p1", "a", 1)]
    owned.read("p1", 0.9)
    assert owned["p1"].releasing == {}


def test_a_reset_takes_the_seat_from_its_owner(owned) -> None:
    owned.log.append(Reset("a", 5, "r1"))
    assert owned.read("p1", 0.4) == [Revoked("a", 1)]
    claims = records(owned.tick("p1", 0.5), Claim)
    assert [claim.epoch for claim in claims] == [3]
    assert owned.read("p1", 0.6) == [Assigned("a", 3, 5)]


def test_stepping_back_yields_everything_and_claims_nothing(owned) -> None:
    # When an owner is asked to step back
    actions = owned.do("p1", SetActive(False, 0.3))
    # Then it yields, says that it leaves, and is silent after the last seat is released
    assert [action for action in actions if isinstance(action, Yield)] == [Yield("a", 1)]
    assert records(actions, Leave) == [Leave("p1", owned["p1"].group.upto)]
    owned.do("p1", Drained("a", 0.4))
    owned.read("p1", 0.5)
    assert owned.tick("p1", 0.6) == []
    # And asking twice changes nothing
    assert owned.do("p1", SetActive(False, 0.7)) == []
    # When it takes part again
    assert owned.do("p1", SetActive(True, 0.8)) == []
    assert records(owned.tick("p1", 0.9), Beat)


def test_a_seat_won_after_stepping_back_is_yielded_at_once() -> None:
    # Given a member that stepped back while its claim was out
    bench = Bench("p1")
    bench.tick("p1", 0.0)
    bench.do("p1", SetActive(False, 0.1))
    # When the claim wins after all
    assert bench.read("p1", 0.2) == [Assigned("a", 1, None)]
    # Then it gives the seat up
    assert Yield("a", 1) in bench.tick("p1", 0.3)


def test_the_dead_are_evicted_after_a_long_while(owned) -> None:
    # Given a member that was last heard at 0.2
    # When ten leases pass, and a little more
    leaves = {}
    for tenth in range(4, 10 * EVICT_AFTER_LEASES + 5):
        owned.read("p2", tenth / 10)
        leaves |= {leave.member: tenth / 10 for leave in records(owned.tick("p2", tenth / 10), Leave)}
    # Then it is said to be gone, once
    assert leaves == {"p1": 0.2 + EVICT_AFTER_LEASES}
    assert set(owned["p2"].group.members) == {"p2"}


def test_who_is_alive_is_who_was_heard_within_the_lease(owned) -> None:
    assert live_members(owned["p2"], 1.1) == {"p1": ("a",), "p2": ("a",)}
    assert live_members(owned["p2"], 1.3) == {"p2": ("a",)}
    owned.do("p2", SetActive(False, 1.4))
    assert live_members(owned["p2"], 1.4) == {}


def test_a_member_wakes_for_its_beat_or_when_an_owner_falls_silent(owned) -> None:
    assert next_wake(owned["p1"]) == pytest.approx(0.4)
    for now in (0.5, 0.9, 1.15):
        owned.tick("p2", now)
    assert next_wake(owned["p2"]) == pytest.approx(1.3)


def test_a_member_that_does_not_beat_has_no_wake_in_the_past(owned) -> None:
    owned.do("p2", SetActive(False, 0.3))
    owned.tick("p2", 7.0)
    assert next_wake(owned["p2"]) > 7.0


def test_only_so_many_beats_are_remembered() -> None:
    bench = Bench("p1")
    for second in range(100):
        bench.tick("p1", float(second), lost=True)
    assert len(bench["p1"].sent) == BEATS_IN_FLIGHT


def test_a_step_leaves_the_state_it_was_given_alone(owned) -> None:
    before = repr(owned["p1"])
    step(owned["p1"], Tick(5.0, True))
    step(owned["p1"], Drained("a", 5.0))
    assert repr(owned["p1"]) == before


def test_a_member_with_a_longer_lease_is_given_the_time_it_asked_for():
    # Given an owner that works under a lease of five seconds, heard at 10.0
    state = MemberState("b", ("orders",), timing=Timing(beat=0.2, lease=1.0), silence_from=0.0, last_tick=9.9)
    state, _ = step(state, Observed(0, Claim("a", "orders", 1, -1), 10.0))
    state, _ = step(state, Observed(1, Beat("a", 1, ("orders",), {"orders": 1}, lease=5.0), 10.0))
    # When one second passed, and when five did
    claims = []
    for tenth in range(1, 70):
        now = 10.0 + tenth / 10
        state, actions = step(state, Tick(now, caught_up=True))
        claims += [now for action in actions if isinstance(action, Send) and isinstance(action.record, Claim)]
    # Then it is claimed only after five
    assert claims
    assert claims[0] >= 15.0
