from __future__ import annotations

import math
import subprocess
import sys

import pytest

from lockstep.errors import BadArgument, IllegalState
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import Runtime
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer


def fail(error):
    raise AssertionError from error


def every(clock, seconds, seen, name="task", times=math.inf):
    left = [times]

    def step():
        seen.append((name, clock.monotonic()))
        left[0] -= 1
        return seconds if left[0] > 0 else None

    return clock.spawn(name, step, clock.waiter(), fail)


def test_it_is_a_runtime():
    clock: Runtime = VirtualRuntime()
    assert clock.monotonic() == 0.0
    assert len(clock.new_id()) == 16
    assert 0 <= clock.random() < 1


def test_the_same_seed_gives_the_same_chance():
    def drawn(seed, jitter):
        clock = VirtualRuntime(seed)
        rolls = [clock.random() for _ in range(jitter)]
        return rolls[:3], [clock.new_id() for _ in range(3)]

    assert drawn(1, 3) == drawn(1, 3)
    assert drawn(1, 3)[1] == drawn(1, 99)[1], "jitter does not change the ids"
    assert drawn(1, 3) != drawn(2, 3)


def test_nothing_runs_before_time_may_pass():
    clock, seen = VirtualRuntime(), []
    every(clock, 1.0, seen)
    assert seen == []
    clock.run_until_idle()
    assert seen == [("task", 0.0)]


def test_tasks_run_in_the_order_of_time():
    clock, seen = VirtualRuntime(), []
    every(clock, 0.3, seen, "a")
    every(clock, 0.2, seen, "b")
    clock.advance(0.6)
    assert seen == [("a", 0), ("b", 0), ("b", 0.2), ("a", 0.3), ("b", 0.4), ("a", 0.6), ("b", 0.6)]
    assert clock.monotonic() == 0.6


def test_a_finished_task_is_gone():
    clock, seen = VirtualRuntime(), []
    every(clock, 0.1, seen, times=2)
    clock.advance(1)
    assert len(seen) == 2
    assert clock.task_names == []


def test_the_wall_clock_jumps_and_monotonic_time_does_not():
    clock, seen = VirtualRuntime(wall_ns=1000), []
    every(clock, 1.0, seen)
    clock.advance(0.5)
    assert clock.wall_ns() == 1000 + 500_000_000
    clock.jump_wall(-3600)
    assert clock.wall_ns() == 1000 + 500_000_000 - 3600 * 10**9
    clock.set_wall(7)
    assert (clock.wall_ns(), clock.monotonic()) == (7, 0.5)
    clock.advance(0.5)
    assert seen == [("task", 0), ("task", 1.0)]


def test_a_wait_runs_what_is_due_until_it_is_woken():
    clock, seen = VirtualRuntime(), []
    waiter = clock.waiter()
    every(clock, 1.0, seen)
    clock.spawn("waker", lambda: waiter.wake() if clock.monotonic() >= 2.5 else 2.5, clock.waiter(), fail)
    waiter.wait(10)
    assert clock.monotonic() == 2.5
    assert [at for _, at in seen] == [0, 1, 2]
    waiter.wait(0.25)
    assert clock.monotonic() == 2.75, "a wake-up counts once"


def test_a_wake_up_before_the_wait_counts():
    clock = VirtualRuntime()
    waiter = clock.waiter()
    waiter.wake()
    waiter.wait(10)
    assert clock.monotonic() == 0


def test_waking_a_task_runs_it_at_once():
    clock, seen = VirtualRuntime(), []
    waiter = clock.waiter()
    task = clock.spawn("task", lambda: seen.append(clock.monotonic()) or 100.0, waiter, fail)
    clock.advance(1)
    waiter.wake()
    clock.advance(1)
    task.wake()
    clock.advance(1)
    assert seen == [0, 1, 2]


def test_an_append_wakes_a_task_that_waits_on_a_log():
    clock, seen = VirtualRuntime(), []
    bus = MemoryBroker().bus(clock)
    log = bus.create("orders", StreamConfig())
    waiter = bus.waiter()
    waiter.watch(log)
    clock.spawn("reader", lambda: seen.append((clock.monotonic(), log.bounds().next)) or 100.0, waiter, fail)
    clock.advance(1)
    log.append([Producer().batch(b"a")])
    clock.run_until_idle()
    assert seen == [(0, 0), (1, 1)]


def test_a_task_that_waits_is_not_entered_again():
    clock, depth, seen = VirtualRuntime(), [0], []
    inner = clock.waiter()

    def step():
        assert depth[0] == 0
        depth[0] += 1
        inner.wait(1.0)  # others run meanwhile, this one does not
        depth[0] -= 1
        return 0.1

    clock.spawn("blocking", step, clock.waiter(), fail)
    every(clock, 0.25, seen, "other")
    clock.advance(2)
    assert len([at for _, at in seen if at <= 2]) == 9
    assert clock.monotonic() >= 2


def test_a_crash_ends_the_task_and_tells_its_owner():
    clock, told = VirtualRuntime(), []
    error = ValueError("boom")

    def step():
        raise error

    clock.spawn("task", step, clock.waiter(), told.append)
    clock.advance(10)
    assert told == [error]
    assert clock.task_names == []


def test_stop_from_outside_and_from_within():
    clock, seen = VirtualRuntime(), []
    outside = every(clock, 1.0, seen, "outside")
    tasks = []

    def step():
        seen.append(("within", clock.monotonic()))
        tasks[0].stop()
        return 0.0

    tasks.append(clock.spawn("within", step, clock.waiter(), fail))
    clock.advance(0.5)
    outside.stop()
    outside.stop()
    clock.advance(10)
    assert seen == [("outside", 0), ("within", 0)]


def test_tasks_that_are_due_together_take_turns():
    clock, seen = VirtualRuntime(max_steps_per_instant=10), []
    every(clock, 0.0, seen, "a", times=3)
    every(clock, 0.0, seen, "b", times=3)
    clock.run_until_idle()
    assert [name for name, _ in seen] == ["a", "b", "a", "b", "a", "b"]


def test_a_task_that_never_rests_is_named():
    clock = VirtualRuntime(max_steps_per_instant=100)
    every(clock, 1.0, [], "calm")
    every(clock, 0.0, [], "busy")
    with pytest.raises(IllegalState, match="task 'busy' ran 100 steps without time passing"):
        clock.advance(1)


def test_a_task_of_tiny_steps_is_named():
    clock = VirtualRuntime(max_steps_per_call=100)
    every(clock, 1e-9, [], "tiny")
    with pytest.raises(IllegalState, match="task 'tiny' ran 101 steps in one call"):
        clock.advance(1)


def test_a_wait_without_end_that_nobody_ends():
    with pytest.raises(IllegalState, match="nobody to end it"):
        VirtualRuntime().waiter().wait(math.inf)


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_time_only_goes_forward(seconds):
    with pytest.raises(BadArgument):
        VirtualRuntime().advance(seconds)


@pytest.mark.parametrize(
    ("module", "absent"),
    [("lockstep.testing.plugin", ("lmdb", "yaml")), ("lockstep.testing.virtual", ("pytest", "lmdb"))],
)
def test_imports_are_light(module, absent):
    code = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"[]\n"
