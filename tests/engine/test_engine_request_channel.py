"""Requests and replies: a client gets the answer of the engine that leads, once, and nothing stays on the streams."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import threading

import pytest
from channel_worlds import REQUEST, STREAMS, World, echo
from hypothesis import given
from hypothesis import strategies as st
from test_engine_docs import STREAMS as PAGE
from test_engine_docs import section, table

from lockstep.engine.errors import RequestTimedOut
from lockstep.engine.runtime.requests import channel
from lockstep.engine.runtime.requests.channel import (
    REPLIES,
    Reply,
    Request,
    RequestClient,
    RequestServer,
    reply_of,
    request_of,
)
from lockstep.engine.runtime.sequence.streams import REQUESTS
from lockstep.errors import (
    DataError,
    StreamNotFound,
)
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.memory import MemoryBroker
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime


@pytest.fixture
def world():
    made = World()
    yield made
    assert made.failed == []


# Asked and answered


def test_the_answer_comes_back_and_nothing_is_left(world):
    world.engine(echo)
    reply = world.asker.ask("query", {"of": "windows", "n": [1, None]})
    assert reply.result == {"kind": "query", "of": "windows", "n": [1, None]}
    assert (reply.ok, reply.error, reply.engine, len(reply.id)) == (True, None, "one", 32)
    assert world.reply_streams() == []


def test_the_answer_goes_only_to_who_asked(world):
    world.engine(echo)
    others = world.bus.create(STREAMS.replies("other"), REPLIES)
    world.asker.ask("query", {})
    assert others.bounds().next == 0


def test_an_answer_that_takes_long_is_asked_for_again_and_given_once(world):
    heard = []

    def slowly(answerer: RequestServer, request: Request) -> None:
        heard.append(request.id)
        if world.clock.monotonic() > 12:
            answerer.answer(request, {"times": len(heard)})

    world.engine(slowly)
    reply = world.asker.ask("persist", {}, id="p1")
    assert reply.id == "p1"
    assert set(heard) == {"p1"}
    assert 12 < world.clock.monotonic() < 13
    assert 10 < world.log.bounds().next < 16


def test_an_engine_that_begins_to_lead_hears_who_still_waits(world):
    world.engine(echo, after=4.0)
    world.asker.ask("query", {}, timeout_s=10)
    assert 4.0 <= world.clock.monotonic() < 4.0 + channel.ASK_AGAIN_S + 0.2


def test_what_was_asked_before_by_somebody_who_is_gone_is_never_carried_out(world):
    # Given the request of an asker that was killed: its reply stream is there, empty
    world.bus.create(REQUEST.reply, REPLIES)
    world.ask_raw(REQUEST)
    # When an engine begins to lead, or leads again after a long while
    answerer = world.answerer()
    assert answerer.waiting() == []
    world.clock.advance(channel.STALL_S + 1)
    world.ask_raw(REQUEST)
    # Then it hears nothing but what is asked from then on
    assert answerer.waiting() == []
    world.ask_raw(REQUEST)
    assert answerer.waiting() == [REQUEST]


def test_what_was_heard_before_a_long_stall_must_be_heard_again(world):
    world.bus.create(REQUEST.reply, REPLIES)
    answerer = world.answerer()
    answerer.waiting()
    world.ask_raw(REQUEST)
    assert answerer.waiting() == [REQUEST]
    world.clock.advance(channel.STALL_S + 1)
    assert answerer.waiting() == []


def test_the_same_id_asked_twice_is_answered_twice(world):
    world.engine(echo)
    first, second = (world.asker.ask("persist", {}, id="same") for _ in range(2))
    assert first == second


def test_of_two_engines_the_first_answer_is_taken(world):
    one, two = world.answerer("one"), world.answerer("two")

    def both(_: RequestServer, request: Request) -> None:
        assert one.waiting() == two.waiting() == [request]
        two.answer(request, {})
        assert one.waiting() == []
        one.answer(request, {})

    one.waiting(), two.waiting()
    world.engine(both, "clockwork")
    assert world.asker.ask("query", {}).engine == "two"
    assert world.reply_streams() == []


def test_an_answer_that_comes_too_late_is_dropped(world):
    kept = []
    world.engine(lambda _, request: kept.append(request))
    with pytest.raises(RequestTimedOut):
        world.asker.ask("query", {}, timeout_s=1)
    names = world.bus.names()
    answerer = world.answerer()
    answerer.answer(kept[0], {})
    answerer.refuse(kept[0], DataError(reason="x"))
    assert world.bus.names() == names


def test_who_no_longer_waits_is_forgotten(world):
    world.bus.create(REQUEST.reply, REPLIES)
    answerer = world.answerer()
    answerer.waiting()
    world.ask_raw(REQUEST)
    assert answerer.waiting() == answerer.waiting() == [REQUEST]
    world.bus.delete(REQUEST.reply)
    assert answerer.waiting() == []


# What else may stand on the streams


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"7", b"{}", b'{"id":"a","kind":"query"}'])
def test_records_that_are_no_requests_are_passed_over(world, value):
    answerer = world.answerer()
    answerer.waiting()
    world.put(value)
    world.bus.create(REQUEST.reply, REPLIES)
    world.ask_raw(REQUEST)
    assert answerer.waiting() == [REQUEST]


@pytest.mark.parametrize(
    "change",
    [
        {"reply": STREAMS.sequence},
        {"reply": "local.other.R.r1"},
        {"id": 7},
        {"id": "x" * 600},
        {"kind": None},
        {"params": []},
        {"at_ns": "now"},
    ],
)
def test_a_request_can_not_have_an_engine_write_elsewhere_or_choke_on_it(world, change):
    for name in (STREAMS.sequence, "local.other.R.r1", REQUEST.reply):
        world.bus.create(name, REPLIES)
    answerer = world.answerer()
    answerer.waiting()
    world.put(json.dumps(dataclasses.asdict(REQUEST) | change).encode())
    assert answerer.waiting() == []


def test_fields_that_a_newer_version_added_are_left_out():
    assert request_of(json.dumps(dataclasses.asdict(REQUEST) | {"new": 1}).encode()) == REQUEST
    reply = Reply("id1", True, {}, None, "e")
    assert reply_of(json.dumps(dataclasses.asdict(reply) | {"new": 1}).encode()) == reply


@given(
    st.binary()
    | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_no_bytes_are_too_strange(value):
    assert request_of(value) is None
    assert reply_of(value) is None


def test_a_strange_record_on_a_reply_stream_is_not_the_answer(world):
    def act(answerer: RequestServer, request: Request) -> None:
        log = world.bus.open(request.reply)
        for value in (b"?", b"{}", json.dumps(dataclasses.asdict(Reply("other", True, {}, None, "e"))).encode()):
            log.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0)])
        answerer.answer(request, {"this": "one"})

    world.engine(act)
    assert world.asker.ask("query", {}).result == {"this": "one"}


def test_a_damaged_batch_is_passed_over(world, monkeypatch):
    answerer = world.answerer()
    answerer.waiting()
    world.put(b"damaged")
    world.bus.create(REQUEST.reply, REPLIES)
    world.ask_raw(REQUEST)
    real = type(world.log).read

    def damage(log, offset, **options):
        found = real(log, offset, **options)
        return [dataclasses.replace(one, data=one.data.replace(b"damaged", b"DAMAGED")) for one in found]

    monkeypatch.setattr(type(world.log), "read", damage)
    assert answerer.waiting() == [REQUEST]


def test_more_requests_than_the_stream_holds_do_no_harm(world):
    answerer = world.answerer()
    answerer.waiting()
    for number in range(REQUESTS.capacity + 5):
        world.ask_raw(dataclasses.replace(REQUEST, id=f"i{number}", reply=STREAMS.replies(f"gone{number}")))
    world.bus.create(REQUEST.reply, REPLIES)
    world.ask_raw(REQUEST)
    assert answerer.waiting() == [REQUEST]


def test_at_most_so_many_wait_at_a_time_and_the_others_come_later(world, monkeypatch):
    monkeypatch.setattr(channel, "WAITING_MAX", 2)
    requests = [dataclasses.replace(REQUEST, id=f"i{n}", reply=STREAMS.replies(f"r{n}")) for n in range(3)]
    answerer = world.answerer()
    answerer.waiting()
    for request in requests:
        world.bus.create(request.reply, REPLIES)
        world.ask_raw(request)
    assert answerer.waiting() == requests[:2]
    answerer.answer(requests[0], {})
    world.ask_raw(requests[2])
    assert answerer.waiting() == requests[1:]


# Streams of the dead


def look_for(world: World, answerer: RequestServer, seconds: float) -> None:
    for _ in range(round(seconds)):
        world.clock.advance(1)
        answerer.waiting()


def test_the_stream_of_a_killed_asker_is_removed_and_that_of_a_live_one_is_not(world):
    alive, dead = STREAMS.replies("alive"), STREAMS.replies("dead")
    for name in (alive, dead, "local.trades.RX"):
        world.bus.create(name, REPLIES)
    answerer = world.answerer()
    answerer.waiting()
    for _ in range(round(2.5 * channel.SWEEP_S)):
        world.ask_raw(dataclasses.replace(REQUEST, reply=alive))
        look_for(world, answerer, 1)
    assert world.reply_streams() == [alive]
    look_for(world, answerer, 2.5 * channel.SWEEP_S)
    assert world.reply_streams() == []
    assert "local.trades.RX" in world.bus.names()


def test_with_too_many_to_tell_apart_nothing_is_swept(world, monkeypatch):
    monkeypatch.setattr(channel, "HEARD_MAX", 1)
    streams, dead = [STREAMS.replies(f"r{number}") for number in range(3)], STREAMS.replies("dead")
    for name in (*streams, dead):
        world.bus.create(name, REPLIES)
    answerer = world.answerer()
    answerer.waiting()
    for _ in range(round(3 * channel.SWEEP_S)):
        for name in streams:
            world.ask_raw(dataclasses.replace(REQUEST, reply=name))
        look_for(world, answerer, 1)
    assert world.reply_streams() == [dead, *streams]


# Threads and processes


def test_many_askers_at_once_each_get_their_own():
    runtime = ThreadRuntime()
    bus = MemoryBroker().bus(runtime)
    log = bus.create(STREAMS.requests, REQUESTS)
    answerer, ended, waiter = RequestServer(bus, STREAMS, "one", runtime), threading.Event(), bus.waiter()
    waiter.watch(log)

    def lead() -> None:
        while not ended.is_set():
            for request in answerer.waiting():
                answerer.answer(request, {"double": 2 * request.params["number"]})
            waiter.wait(0.5)

    results: dict[int, int] = {}

    def ask(number: int) -> None:
        results[number] = RequestClient(bus, STREAMS, runtime).ask("query", {"number": number}).result["double"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    leader = threading.Thread(target=lead)
    for thread in (leader, *threads):
        thread.start()
    for thread in threads:
        thread.join(60)
    ended.set()
    waiter.wake()
    leader.join(60)
    assert results == {number: 2 * number for number in range(8)}
    assert bus.names() == [STREAMS.requests]


def lead(url: str) -> None:
    """The child process: an engine that answers what it is asked, and refuses the rest."""
    runtime = ThreadRuntime()
    bus = open_bus(url, runtime)
    answerer, waiter = RequestServer(bus, STREAMS, "child", runtime), bus.waiter()
    waiter.watch(bus.open(STREAMS.requests))
    answerer.waiting()
    print("leads", flush=True)
    while True:
        for request in answerer.waiting():
            if request.kind == "query":
                answerer.answer(request, request.params)
            else:
                answerer.refuse(request, StreamNotFound(name=request.kind, bus=url))
        waiter.wait(0.5)


@pytest.mark.slow
def test_between_processes_and_past_the_death_of_the_one_that_leads(tmp_path):
    url, runtime = f"lmdb:{tmp_path}/bus?map_bytes={1 << 26}", ThreadRuntime()
    bus = open_bus(url, runtime)
    bus.create(STREAMS.requests, REQUESTS)
    asker = RequestClient(bus, STREAMS, runtime)
    for _ in range(2):
        with subprocess.Popen([sys.executable, __file__, url], stdout=subprocess.PIPE) as child:
            try:
                assert child.stdout.readline() == b"leads\n"
                reply = asker.ask("query", {"text": "ä"}, timeout_s=60)
                assert (reply.engine, reply.result) == ("child", {"text": "ä"})
                with pytest.raises(StreamNotFound, match="'persist' does not exist"):
                    asker.ask("persist", {}, timeout_s=60)
            finally:
                child.send_signal(signal.SIGKILL)
        with pytest.raises(RequestTimedOut):
            asker.ask("query", {}, timeout_s=0.01)
    assert bus.names() == [STREAMS.requests]
    bus.close()


# The page


def names_in(heading: str) -> list[str]:
    return [name.strip("`") for name, *_ in table(PAGE, heading)]


def test_the_page_says_what_stands_on_the_streams():
    assert names_in("A request") == [field.name for field in dataclasses.fields(Request)]
    assert names_in("A reply") == [field.name for field in dataclasses.fields(Reply)]
    error = channel.error_tree(DataError(reason="x"))
    assert set(error) <= set(section(PAGE, "A reply").replace("`", " ").split())
    text = section(PAGE, "Requests")
    assert f"`{STREAMS.requests}`" in text
    assert f"`{STREAMS.replies('ID')}`" in text
    assert f"{REQUESTS.capacity:,}" in text
    for seconds in (channel.ASK_AGAIN_S, channel.STALL_S, channel.SWEEP_S):
        assert f"{seconds:g} second" in text


def test_a_request_looks_as_shown():
    shown = [json.loads(line) for line in section(PAGE, "Requests").splitlines() if line.startswith("{")]
    assert [request_of(json.dumps(tree).encode()) is not None for tree in shown] == [True, False]
    assert reply_of(json.dumps(shown[1]).encode()) is not None


if __name__ == "__main__":
    lead(sys.argv[1])
