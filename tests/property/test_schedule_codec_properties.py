"""Rows and requests come back from bytes as they were."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.agenda import Event, Form, Option, Remove, Replay, Status, Upsert
from lockstep.core.ticks import Misfire, Overlap, Policy
from lockstep.errors import DataError, FormatTooNew
from lockstep.schedule import requests
from lockstep.schedule.requests import Ask, DryRun, PauseCron, PutCron, RemoveCron, TriggerCron
from lockstep.schedule.rows import CronRow, Run
from lockstep.schedule.store import codec

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
times = st.integers(-62_135_596_800_000, 253_402_300_799_999)
"""From year 1 to the end of year 9999, in milliseconds."""
known = st.one_of(st.none(), st.integers(0, 2**60))
payloads = st.tuples(st.sampled_from(list(Form)), st.none() | texts.map(str.encode) | st.just(b""))
events = st.builds(
    Event,
    texts, texts, texts, times, st.integers(0, 2**60), st.sampled_from(list(Status)),
    st.none() | st.binary(max_size=99), st.sampled_from(list(Form)), st.sampled_from(list(Option)),
    st.booleans(), st.integers(0, 2**60),
    st.integers(0, 2**32 - 1), known, known, st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(0, 2**60), st.booleans(),
)  # fmt: skip
crons = st.builds(
    CronRow,
    tenant=texts,
    id=texts,
    type=st.just("UNIX"),
    expression=st.sampled_from(["* * * * *", "0 9 * * MON-FRI", "*/5 1,2 1-5 * *"]),
    tz=st.sampled_from(["UTC", "Europe/Berlin"]),
    dst=st.sampled_from(["once", "literal"]),
    policy=st.builds(
        Policy, misfire=st.sampled_from(list(Misfire)), grace_s=st.integers(0, 10**9),
        catch_up_s=st.integers(0, 10**9), overlap=st.sampled_from(list(Overlap)),
    ),
    jitter_s=st.integers(0, 1000),
    paused=st.booleans(),
    log_granularity=st.sampled_from([None, "MINUTES", "YEARS"]),
    retention=st.integers(0, 10**9),
    retention_units=st.sampled_from(["NANOSECONDS", "DAYS"]),
    since=st.integers(0, 2**40),
    updated=st.integers(0, 2**50),
    executed=st.none() | st.integers(0, 2**50),
    caught_up=st.integers(0, 1000),
    running=st.none() | texts,
)  # fmt: skip


@given(events)
def test_an_event_comes_back_from_storage(event) -> None:
    assert codec.unpack_event(codec.pack_event(event)) == event


@given(crons, texts.map(str.encode), st.sampled_from([Form.TEXT, Form.JSON]))
def test_a_cron_comes_back_from_storage(cron, payload, form) -> None:
    for row in (cron, replace(cron, payload=payload, form=form)):
        assert codec.unpack_cron(codec.pack_cron(row)) == row


@given(crons, st.binary())
def test_a_cron_with_bytes_comes_back_from_storage(cron, payload) -> None:
    row = replace(cron, payload=payload, form=Form.BYTES)
    assert codec.unpack_cron(codec.pack_cron(row)) == row


@given(texts, st.integers(), st.integers(), texts, st.none() | st.integers())
def test_a_run_comes_back_from_storage(cron, bucket, at, event, expires) -> None:
    run = Run(cron, bucket, at, event.encode(), expires)
    assert codec.unpack_run(codec.pack_run(run), bucket, at) == run


@st.composite
def asked(draw: st.DrawFn) -> requests.Request:
    tenant, name = draw(texts), draw(texts)
    form, payload = draw(payloads)
    kind = st.sampled_from(["UNIX", "QUARTZ", "*"])
    return draw(
        st.one_of(
            st.builds(Upsert, st.just(tenant), st.just(name), times, texts, st.just(payload),
                      st.just(form if payload is not None else Form.TEXT), st.sampled_from(list(Option))),
            st.sampled_from([Remove(tenant, name), Replay(tenant, name), DryRun(tenant, name)]),
            st.builds(PutCron, crons),
            st.builds(RemoveCron, st.just(tenant), st.just(name), kind),
            st.builds(PauseCron, st.just(tenant), st.just(name), kind, st.booleans()),
            st.builds(TriggerCron, st.just(tenant), st.just(name), kind),
            st.builds(TriggerCron, st.just(tenant), st.just(name), kind, st.integers(0, 2**32), st.integers(0, 2**32)),
        )
    )  # fmt: skip


@settings(max_examples=300)
@given(asked(), st.none() | st.builds(Ask, texts, st.integers(0, 2**50)))
def test_a_request_comes_back_from_its_record(request_, ask) -> None:
    key, value = requests.encode(request_, ask)
    assert requests.decode(value) == (request_, ask)
    # And all requests of a key go to one shard
    assert key == f"{request_.tenant}\0{request_.id}".encode()


def test_bytes_that_are_no_text_come_back_too() -> None:
    upsert = Upsert("t", "e", 5, "id", bytes(range(256)), Form.BYTES)
    assert requests.decode(requests.encode(upsert)[1]) == (upsert, None)


@settings(max_examples=300)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["upsert", "remove", "put_cron", "trigger_cron", "ask", "kind"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["kind", "tenant", "id", "at", "row", "ask", "x"]), inner, max_size=4),
))  # fmt: skip
def test_what_is_no_request_is_refused_with_one_kind_of_error(fields) -> None:
    try:
        requests.decode(json.dumps(fields).encode())
    except DataError:
        return


@given(st.binary(max_size=50))
def test_bytes_that_are_no_json_are_refused(data) -> None:
    with pytest.raises(DataError):
        requests.decode(b"\xff" + data)


def test_the_version_of_a_row_is_looked_at() -> None:
    event = Event("t", "e", "id", 1, 1)
    data = codec.pack_event(event)
    with pytest.raises(FormatTooNew):
        codec.unpack_event(bytes([codec.VERSION + 1]) + data[1:])
    cron = CronRow(tenant="t", id="c", type="UNIX", expression="* * * * *")
    with pytest.raises(FormatTooNew):
        codec.unpack_cron(codec.pack_cron(cron).replace(b'"version":1', b'"version":2'))
    assert replace(event, at=2) != event
