"""bus.scheduler, the same to await, and a scheduler in virtual time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta

import pytest

import lockstep
from lockstep.errors import BadArgument, Closed, IllegalState, SchedulerNotFound
from lockstep.testing import VirtualScheduler
from lockstep.testing.schedule import virtual_ms


@pytest.fixture
def scheduler():
    with VirtualScheduler() as made:
        yield made


def test_a_program_schedules_cancels_and_receives(tmp_path):
    handled = []
    with lockstep.connect(f"lmdb:{tmp_path}") as bus, bus.scheduler("jobs") as jobs:
        far = jobs.at("2097-01-01T00:00Z", {"mail": 7}, id="mail-7")
        assert isinstance(far, lockstep.Scheduled)
        assert isinstance(jobs.cancel("mail-7"), lockstep.Cancelled)
        assert jobs.cancel("mail-7") == lockstep.Unknown()

        @jobs.on()
        def take(event: lockstep.Fired) -> None:
            handled.append((event.id, event.value()))

        jobs.after("0s", b"x", id="now")
        receiver = jobs._receivers[0]
        while not handled and receiver.is_running:
            jobs.bus.runtime.waiter().wait(0.01)
    assert handled == [("now", b"x")]


def test_closing_the_connection_closes_its_schedulers(tmp_path):
    bus = lockstep.connect(f"lmdb:{tmp_path}")
    made = bus.scheduler("jobs")
    bus.close()
    assert made.node.error is None
    with pytest.raises(Closed):
        bus.scheduler("jobs")


def test_a_client_needs_a_scheduler_that_was_set_up(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}") as bus:
        with pytest.raises(SchedulerNotFound, match="lockstep schedule serve --name jobs"):
            bus.scheduler("jobs", node=False)
        with bus.scheduler("jobs"), bus.scheduler("jobs", node=False) as client:
            assert client.at("2097-01-01T00:00Z", id="x").status == "WAITING"
            assert client.find("x").at.year == 2097


def test_the_same_names_can_be_awaited(tmp_path):
    async def work():
        async with lockstep.connect_async(f"lmdb:{tmp_path}") as bus:
            not_open = bus.scheduler("jobs")
            with pytest.raises(IllegalState):
                await not_open.find("x")
            async with bus.scheduler("jobs") as jobs:
                made = await jobs.at("2097-01-01T00:00Z", {"n": 1}, id="x")
                found = await jobs.find("x")
                assert await jobs.every("0 9 * * *", id="daily") == "at 09:00"
                assert [row.id for row in await jobs.crons()] == ["daily"]
                assert (await jobs.events(limit=10)).events[0].id == "x"
                assert list(await jobs.tenants()) == ["default"]
                return made, found, await jobs.cancel("x"), await jobs.cancel("x")

    made, found, cancelled, unknown = asyncio.run(work())
    assert made.event_id == found.event_id == cancelled.event_id
    assert unknown == lockstep.Unknown()


def test_every_call_of_a_scheduler_can_be_awaited():
    own = {name for name in vars(lockstep.Scheduler) if not name.startswith("_")}
    assert own <= set(vars(lockstep.AsyncScheduler))


def test_a_plain_program_imports_neither_the_scheduler_nor_numpy_and_a_client_no_numpy():
    code = """if True:
        import sys, lockstep
        from lockstep.schedule.streams import SchedulerStreams

        print([name for name in sys.modules if name in ("numpy", "lockstep.schedule.scheduler")])
        with lockstep.connect("memory:") as bus:
            SchedulerStreams("jobs").create(bus)
            with bus.scheduler("jobs", node=False) as client:
                client.every, client.find("x")
        print("numpy" in sys.modules, "aiohttp" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False False"]


def test_a_day_passes_and_only_what_is_due_has_fired(scheduler):
    scheduler.after("30m", {"mail": 7}, id="mail-7")
    scheduler.after("25h", id="tomorrow")
    scheduler.clock.advance("29 minutes 59 seconds")
    assert scheduler.fired() == []
    scheduler.clock.advance("1 day")
    [fired] = scheduler.fired()
    assert (fired.id, fired.value(), fired.triggered_at) == ("mail-7", {"mail": 7}, fired.at)
    scheduler.clock.advance(timedelta(days=40))
    assert [event.id for event in scheduler.fired()] == ["mail-7", "tomorrow"]


def test_crons_tick_in_virtual_time_also_in_the_night_when_clocks_change():
    with VirtualScheduler(start="2026-03-27T12:00Z") as scheduler:
        scheduler.every("30 2 * * *", id="night", tz="Europe/Berlin")
        scheduler.clock.advance("3 days")
        times = [event.at.isoformat() for event in scheduler.fired()]
    assert times == ["2026-03-28T01:30:00+00:00", "2026-03-29T01:00:00+00:00", "2026-03-30T00:30:00+00:00"]


def test_deliveries_are_answered_as_told(scheduler):
    scheduler.register("calls", "HTTP", {"url": "http://localhost/"})
    scheduler.answers("calls", 500, ConnectionError("gone"), 200)
    scheduler.after("1m", "x", id="c", tenant="calls")
    scheduler.after("2m", "x", id="refused", tenant="calls")
    scheduler.clock.advance("90s")
    assert scheduler.find("c", tenant="calls").attempt == 3
    scheduler.answers("calls", 404)
    scheduler.clock.advance("2 minutes")
    assert scheduler.find("refused", tenant="calls").status == "FAILED"
    assert [event.id for event in scheduler.fired("calls")] == ["c"]
    with pytest.raises(BadArgument):
        scheduler.answers("calls")


def test_functions_are_called_while_time_passes(scheduler):
    handled, tries = [], []

    @scheduler.on(on_failure=lockstep.OnFailure(retries=2, backoff_s=5.0))
    def take(event):
        tries.append(scheduler.clock.now)
        if len(tries) == 1:
            raise ValueError("not yet")
        handled.append(event.id)

    scheduler.after("3h", id="x")
    scheduler.clock.advance("1 day")
    assert handled == ["x"]
    assert len(tries) == 2
    assert tries[1] - tries[0] < timedelta(minutes=1)


def test_a_paused_tenant_waits_without_holding_up_time(scheduler):
    scheduler.after("1m", id="x")
    scheduler.pause_tenant("default")
    scheduler.clock.advance("10m")
    assert scheduler.fired() == []
    scheduler.resume_tenant("default")
    scheduler.clock.advance("1s")
    assert [event.id for event in scheduler.fired()] == ["x"]
    scheduler.clock.advance_to("2026-01-01T01:00Z")
    assert scheduler.clock.now.isoformat() == "2026-01-01T01:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1 day", 86_400_000), ("2 hours 30 minutes", 9_000_000), ("5 milliseconds", 5), ("90m", 5_400_000),
     ("1 week, 1 second", 604_801_000), (1.5, 1500), ("1 hour and 1 minute", 3_660_000)]
)  # fmt: skip
def test_spans_in_words(text, ms):
    assert virtual_ms(text) == ms


def test_a_cancel_after_the_fire_is_told_that_it_was_too_late(scheduler):
    scheduler.after("1s", "x", id="a")
    scheduler.clock.advance("2s")
    answer = scheduler.cancel("a")
    assert isinstance(answer, lockstep.TooLate)
    assert scheduler.cancel("a") == lockstep.Unknown()
