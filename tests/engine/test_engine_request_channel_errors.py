"""Errors between who asks and who answers: each is raised where it is of use, as what it was."""

from __future__ import annotations

import dataclasses
import json
import string
from pathlib import Path

import pytest
from channel_worlds import STREAMS, World, echo

from lockstep.engine.errors import ModelMismatch, RequestRefused, RequestTimedOut
from lockstep.engine.runtime.control.reports import Report, write_report
from lockstep.engine.runtime.output.spool import all_errors
from lockstep.engine.runtime.requests import channel
from lockstep.engine.runtime.requests.channel import Reply, Request, RequestClient, RequestServer, who_leads
from lockstep.engine.runtime.sequence.streams import REPORTS, ProjectStreams
from lockstep.errors import (
    AppendUncertain,
    BadArgument,
    BadName,
    DataError,
    LockstepError,
    NotFound,
    RecordTooLarge,
    TimedOut,
)
from lockstep.log.config import StreamConfig


@pytest.fixture
def world():
    made = World()
    yield made
    assert made.failed == []


def report(**changes: object) -> Report:
    numbers = {field.name: 0 for field in dataclasses.fields(Report) if field.type == "int"}
    texts = {"engine": "e1", "incarnation": "i", "member": "m", "host": "h1", "role": "active", "state": "running"}
    return Report(**{**numbers, **texts, "model": "f", "counts": {}, **changes})  # type: ignore[arg-type]


# Errors


def test_an_error_is_raised_again_as_it_was(world):
    error = ModelMismatch(place=Path("/state"), found="a", wanted="b")
    world.engine(lambda answerer, request: answerer.refuse(request, error))
    with pytest.raises(ModelMismatch) as raised:
        world.asker.ask("replace", {"model": "x"})
    assert str(raised.value) == str(error)
    assert raised.value.params == {"place": "/state", "found": "a", "wanted": "b"}
    assert world.reply_streams() == []


@pytest.mark.parametrize("kind", all_errors(LockstepError), ids=lambda kind: kind.code)
def test_every_error_survives_the_way(kind):
    text = f"{kind.template} {kind.advice}"
    names = [(name, form) for _, name, form, _ in string.Formatter().parse(text) if name is not None]
    error = kind(**{name: 2.5 if form else f"<{name}>" for name, form in names})
    back = channel.error_of(Reply("i", False, {}, json.loads(json.dumps(channel.error_tree(error))), "e"), "query")
    assert (type(back), str(back)) == (kind, str(error))


@pytest.mark.parametrize(
    "error",
    [
        {"code": "FROM_THE_FUTURE", "message": "No such thing.", "params": {}},
        {"code": "BAD_NAME", "message": "No such thing.", "params": {"wrong": 1}},
        {"code": "TIMED_OUT", "message": "No such thing.", "params": {"what": "x", "seconds": "long"}},
        {"code": ["?"], "message": "No such thing.", "params": 7},
        {"message": "No such thing."},
    ],
)
def test_an_error_without_a_class_here_is_told_in_its_words(error):
    back = channel.error_of(Reply("i", False, {}, error, "e1"), "query")
    assert isinstance(back, RequestRefused)
    assert str(back) == "[REQUEST_REFUSED] The engine e1 refused the request 'query': No such thing."


def test_without_an_engine_the_time_out_says_that_none_has_reported(world):
    with pytest.raises(RequestTimedOut) as raised:
        world.asker.ask("query", {}, timeout_s=3)
    assert isinstance(raised.value, TimedOut)
    assert str(raised.value).startswith(
        "[REQUEST_TIMED_OUT] The request 'query' to project local.trades was not answered within 3 s. "
        "Asked: no engine has reported."
    )
    assert world.clock.monotonic() == 3
    assert world.reply_streams() == []


def test_a_time_out_names_who_leads(world):
    reports = world.bus.create(STREAMS.reports, REPORTS)
    assert who_leads(world.bus, STREAMS) == "no engine has reported"
    write_report(reports, report(engine="calm", role="standby", epoch=9))
    assert who_leads(world.bus, STREAMS) == "no engine leads; there were calm"
    write_report(reports, report(engine="new", pid=71, host="h7", epoch=3))
    write_report(reports, report(engine="old", pid=70, epoch=2, at_ns=10**18))
    with pytest.raises(RequestTimedOut, match="Asked: engine new, pid 71 on host h7"):
        world.asker.ask("query", {}, timeout_s=1)


def test_a_project_that_is_not_there_is_told_at_once_and_nothing_is_made(world):
    nobody = ProjectStreams(cluster="local", project="nobody")
    with pytest.raises(NotFound, match=r"Project 'local\.nobody' does not exist"):
        RequestClient(world.bus, nobody, world.clock).ask("query", {})
    assert world.bus.names() == [STREAMS.requests]


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan")])
def test_a_wait_without_an_end_is_refused(world, timeout_s):
    with pytest.raises(BadArgument, match="timeout_s"):
        world.asker.ask("query", {}, timeout_s=timeout_s)


def test_an_id_that_is_no_name_is_refused(world):
    with pytest.raises(BadName):
        world.asker.ask("query", {}, id="../x")


def test_what_is_too_large_is_refused_before_anything_is_written():
    world = World()
    world.bus.delete(STREAMS.requests)
    world.bus.create(STREAMS.requests, StreamConfig(capacity=1000, max_record_bytes=300))
    with pytest.raises(RecordTooLarge):
        world.asker.ask("replace", {"model": "x" * 300})
    assert world.bus.names() == [STREAMS.requests]


def test_an_answer_that_is_too_large_is_an_error(world, monkeypatch):
    monkeypatch.setattr(channel, "REPLIES", StreamConfig(capacity=16, max_record_bytes=700))
    world.engine(lambda answerer, request: answerer.answer(request, {"rows": "x" * 700}))
    with pytest.raises(RecordTooLarge, match="above the limit"):
        world.asker.ask("query", {})


def test_the_reply_stream_is_deleted_also_if_asking_fails(world, monkeypatch):
    def refuse(*_: object) -> None:
        raise DataError(reason="x")

    monkeypatch.setattr(channel, "_append", refuse)
    with pytest.raises(DataError):
        world.asker.ask("query", {})
    assert world.reply_streams() == []


def test_an_append_that_is_uncertain_is_made_up_for_by_asking_again(world, monkeypatch):
    real, lost = type(world.log).append, [True, True]

    def flaky(log, batches, **options):
        if lost and log.name == STREAMS.requests:
            lost.pop()
            raise AppendUncertain(stream=log.name, reason="no word")
        return real(log, batches, **options)

    monkeypatch.setattr(type(world.log), "append", flaky)
    world.engine(echo)
    assert world.asker.ask("query", {}).ok
    assert lost == []
    assert world.clock.monotonic() >= 2 * channel.ASK_AGAIN_S


def test_an_asker_taken_for_dead_is_told_a_time_out(world):
    def remove(_: RequestServer, request: Request) -> None:
        world.bus.delete(request.reply)

    world.engine(remove)
    with pytest.raises(RequestTimedOut):
        world.asker.ask("query", {})
