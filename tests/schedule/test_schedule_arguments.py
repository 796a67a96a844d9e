"""Wrong arguments of a scheduler are refused with the reason, and nothing is stored; closed ones say so at once."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, date, datetime, timedelta

import pytest

import lockstep
from lockstep.errors import BadArgument, Closed, LockstepError, NotFound, TimedOut
from lockstep.schedule.client import SchedulerClient
from lockstep.schedule.requests import PAYLOAD_BYTES_MAX
from lockstep.testing import VirtualScheduler, contract_case

FAR = "2097-01-01T00:00Z"


@pytest.fixture
def scheduler():
    with VirtualScheduler() as made:
        yield made


def refused(scheduler, call):
    """Why a call is refused; no request was stored, and no tenant changed."""
    logs = [*scheduler.bus.logs(scheduler.streams.requests), *scheduler.bus.logs(scheduler.streams.control)]
    before = [log.bounds().next for log in logs]
    with pytest.raises(LockstepError) as caught:
        call()
    assert [log.bounds().next for log in logs] == before
    return str(caught.value)


def endless():
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda s: s.at(None), "time = None is not valid: give an aware datetime"),
        (lambda s: s.at(1_900_000_000), "give an aware datetime, or write it in ISO 8601"),
        (lambda s: s.at(date(2097, 1, 1)), "give an aware datetime"),
        (lambda s: s.at(datetime(2097, 1, 1)), "it has no time zone"),  # noqa: DTZ001
        (lambda s: s.at("2097-01-01T00:00"), "with an offset"),
        (lambda s: s.at(FAR, id=""), "id = '' is not valid: it must be text of 1 to 1024 bytes"),
        (lambda s: s.at(FAR, id=0), "id = 0 is not valid"),
        (lambda s: s.at(FAR, id="\ud800"), "it must be text"),
        (lambda s: s.at(FAR, "\ud800"), "it must be valid Unicode"),
        (lambda s: s.at(FAR, {"x": float("nan")}), "what JSON can hold"),
        (lambda s: s.at(FAR, {1, 2}), "what JSON can hold"),
        (lambda s: s.at(FAR, endless()), "what JSON can hold"),
        (lambda s: s.at(FAR, b"x" * (PAYLOAD_BYTES_MAX + 1)), "at most 4194304 bytes"),
        (lambda s: s.at(FAR, tenant="nobody"), "not registered; use Scheduler.register or 'lockstep tenant add'"),
        (lambda s: s.after("soon"), "delay = 'soon' is not valid: write it as 30s"),
        (lambda s: s.after(float("inf")), "a span of time"),
        (lambda s: s.after(timedelta.max), "year in UTC"),
        (lambda s: s.schedule_many([(FAR, None)]), "each must be (time, payload, id)"),
        (lambda s: s.schedule_many([(FAR, None, f"e{n}") for n in range(10_001)] + [(FAR, None, "")]), "id = ''"),
        (lambda s: s.every("0 9 * * *", "\ud800", id="x"), "it must be valid Unicode"),
        (lambda s: s.every("0 9 * * *", "x" * (PAYLOAD_BYTES_MAX + 1), id="x"), "at most 4194304 bytes"),
        (lambda s: s.every("0 9 * * *", id="\ud800"), "it must be text of 1 to 1024 bytes"),
        (lambda s: s.every("0 9 * * *", id="x", grace="5 x"), "grace = '5 x' is not valid"),
        (lambda s: s.every("0 9 * * *", id="x", keep="0s"), "keep = '0s' is not valid: it must be at least 1 s"),
        (lambda s: s.events(status=["LOST"]), "status = 'LOST' is not valid: it must be one of WAITING"),
        (lambda s: s.events(limit=0), "limit = 0 is not valid"),
        (lambda s: s.events(start=date(2097, 1, 1)), "give an aware datetime"),
        (lambda s: s.cancel(None), "id = None is not valid"),
        (lambda s: s.pause_tenant("nobody"), "Tenant 'nobody' does not exist"),
        (lambda s: s.remove_tenant("nobody"), "Tenant 'nobody' does not exist"),
        (lambda s: s.on()(5), "it must be a function"),
        (lambda s: s.on("nobody"), "not registered"),
        (lambda s: s.backfill("poll", FAR, "2096-01-01T00:00Z"), "must be after start"),
        (lambda s: s.backfill("poll", "2020-01-01T00:00Z", FAR), "in the future"),
        (lambda s: s.backfill("poll", "1920-01-01T00:00Z", "2020-01-01T00:00Z"), "more than 10,000 ticks until then"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_and_nothing_is_stored(scheduler, call, reason):
    scheduler.every("* * * * *", id="poll")
    assert reason in refused(scheduler, lambda: call(scheduler))


def test_payloads_arrive_as_they_were_given(scheduler):
    payloads = [None, "", b"", "text", "ü", bytearray(b"\xff\x00"), memoryview(b"xy"), 0, False, [], {"ü": [1.5]}]
    for number, payload in enumerate(payloads):
        scheduler.after(number, payload, id=str(number))
    scheduler.clock.advance("1 minute")
    assert [event.value() for event in scheduler.fired()] == payloads


def test_ticks_carry_payloads_as_they_were_given(scheduler):
    payloads = ["text", b"\xff\x00", 0, False, [], {"ü": [1.5]}]
    for number, payload in enumerate(payloads):
        scheduler.every("0 * * * *", payload, id=str(number))
    scheduler.every("0 * * * *", id="without")
    scheduler.clock.advance("1 hour")
    fired = {event.id.split("/")[1]: event.value() for event in scheduler.fired()}
    assert fired == {**{str(number): payload for number, payload in enumerate(payloads)}, "without": "0 * * * *"}


def test_many_events_take_times_of_every_kind(scheduler):
    at = datetime(2097, 1, 1, tzinfo=UTC)
    made = scheduler.schedule_many([(FAR, None, "a"), (at, None, "b"), (round(at.timestamp() * 1000), None, "c")])
    assert [event.at for event in made] == [at] * 3
    assert {event.id for event in scheduler.events(status="WAITING").events} == {"a", "b", "c"}


def test_odd_names_are_stored_found_and_cancelled(scheduler):
    for name in ("a/b", "ü\n☃", "%2F", " ", "'; DROP", "x" * 1024):
        scheduler.at(FAR, id=name)
        assert scheduler.find(name).id == name
        assert isinstance(scheduler.cancel(name), lockstep.Cancelled)


def test_a_function_gets_the_events_of_its_tenant_alone_where_tenants_share_a_stream(scheduler):
    got = []
    names = ["a/b", "a_b", "x" * 50, "x" * 51]
    for name in names:
        scheduler.register(name, "MESSAGING", {"topic": "shared"})
        scheduler.on(name)(lambda event, own=name: got.append((own, event.tenant)))
    for name in names:
        scheduler.after("1m", tenant=name)
    scheduler.clock.advance("1 hour")
    assert sorted(got) == sorted((name, name) for name in names)


def test_an_event_that_a_function_always_fails_on_becomes_a_dead_letter_and_the_next_follows(scheduler):
    got = []

    @scheduler.on()
    def take(event):
        got.append(event.id)
        if event.id == "bad":
            raise ValueError("never")

    scheduler.after("1m", id="bad")
    scheduler.after("2m", id="good")
    scheduler.clock.advance("1 hour")
    assert got == ["bad"] * 4 + ["good"]
    assert scheduler.bus.bounds("test.fired.default.dlq").count == 1


def test_a_backfill_says_how_many_ticks_it_fires(scheduler):
    scheduler.every("0 9 * * *", id="daily")
    assert scheduler.backfill("daily", "2025-12-01T09:00Z", "2025-12-03T09:00Z") == 2
    assert scheduler.backfill("nobody", "2025-12-01T09:00Z", "2025-12-03T09:00Z") == 0
    scheduler.clock.advance("1 minute")
    fired = scheduler.fired()
    assert [event.at.day for event in fired] == [1, 2]
    # They are late from the call on, so that they do not spoil a report; and each has the id of its tick
    records = [value for log in scheduler.bus.logs("test.history") for value in contract_case.values(log)]
    told = list(map(json.loads, records))
    assert [one["lateMs"] < 1000 for one in told if one["what"] == "fired"] == [True, True]
    assert [event.event_id for event in fired] == [f"default/daily/UNIX/2025-12-0{day}T09:00Z" for day in (1, 2)]


def test_a_closed_scheduler_says_so_at_once(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}") as bus:
        jobs = bus.scheduler("jobs")
        jobs.close()
        jobs.close()
        for call in (lambda: jobs.at(FAR), lambda: jobs.cancel("x"), lambda: jobs.find("x"), jobs.on, jobs.crons):
            with pytest.raises(Closed, match="Scheduler 'jobs' is closed"):
                call()


def test_a_call_that_waits_ends_when_its_scheduler_is_closed(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}") as bus:
        bus.scheduler("jobs").close()  # no node runs from here on
        client = bus.scheduler("jobs", node=False)
        client.client.answer_s = 1000.0
        found = []

        def ask():
            try:
                client.at(FAR, id="x")
            except Closed as error:
                found.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        while not client.client._waiting:
            pass
        client.close()
        asking.join()
    assert "The requests are stored" in found[0].__notes__[0]


def test_without_a_node_a_call_ends_and_says_how_to_start_one(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path}") as bus:
        bus.scheduler("jobs").close()
        with bus.scheduler("jobs", node=False) as client:
            client.client.answer_s = 0.01
            with pytest.raises(TimedOut, match="Waiting for an answer of scheduler 'jobs'") as caught:
                client.at(FAR, id="x")
            assert "lockstep schedule serve --name jobs" in caught.value.__notes__[0]
        with bus.scheduler("jobs") as jobs:
            assert isinstance(jobs.cancel("x"), lockstep.Cancelled), (
                "the request was stored, and is carried out by a node"
            )


def test_awaited_calls_leave_the_event_loop_free(tmp_path, monkeypatch):
    threads = set()
    known = SchedulerClient.tenants

    def watched(self):
        threads.add(threading.get_ident())
        return known(self)

    async def work():
        async with lockstep.connect_async(f"lmdb:{tmp_path}") as bus, bus.scheduler("jobs") as jobs:
            monkeypatch.setattr(SchedulerClient, "tenants", watched)
            handled = asyncio.Event()
            loop = asyncio.get_running_loop()

            @jobs.on()
            async def take(event: lockstep.Fired) -> None:
                loop.call_soon_threadsafe(handled.set)

            await jobs.after("0s", id="x")
            await handled.wait()
            jobs.on("nobody")(take)
            with pytest.raises(BadArgument, match="not registered"):
                await jobs.find("x")
            assert (await jobs.find("x")).id == "x", "it is said once"
            with pytest.raises(NotFound):
                await jobs.pause_tenant("nobody")
        return threading.get_ident()

    assert asyncio.run(work()) not in threads
    assert threads


def test_a_function_that_could_not_be_registered_is_told_when_the_scheduler_closes(tmp_path):
    async def work():
        async with lockstep.connect_async(f"lmdb:{tmp_path}") as bus, bus.scheduler("jobs") as jobs:
            jobs.on("nobody")(print)

    with pytest.raises(BadArgument, match="not registered"):
        asyncio.run(work())
