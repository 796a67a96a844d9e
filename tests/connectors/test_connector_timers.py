"""Connectors of class timer and eventhubs: moments of a timetable, and hubs under Kafka's names."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest

from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.eventhubs import as_kafka, login
from lockstep.connectors.port import Halted, Pace
from lockstep.connectors.properties import read_properties
from lockstep.connectors.timers import TimerSource, Timetable
from lockstep.engine.events.schema import Schema

SCHEMA = Schema.parse("id*:int64,time:stamp,label:string")


def said(kind: str, direction: str = "pub", **given: str):
    return read_properties("q/w/c", kind, direction, {"type": direction, **given})


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("given", "after", "due"),
    [
        ({"interval": "60", "unit": "second"}, "2026-01-05 09:30:10", "2026-01-05 09:31:00"),
        ({"interval": "1", "unit": "hours"}, "2026-01-05 09:00:00", "2026-01-05 10:00:00"),
        ({"interval": "1", "unit": "week", "basetime": "2026-01-01 00:00:00"}, "2026-01-05", "2026-01-08"),
        ({"interval": "1", "unit": "month", "basetime": "2026-01-31 06:00:00"}, "2026-02-01", "2026-02-28 06:00:00"),
        ({"interval": "1", "unit": "month", "basetime": "2026-01-31 06:00:00"}, "2026-03-01", "2026-03-31 06:00:00"),
        ({"interval": "2", "unit": "year", "basetime": "2024-02-29 00:00:00"}, "2024-03-01", "2026-02-28"),
        ({"interval": "5", "basetime": "2030-01-01 00:00:00"}, "2026-01-05 09:30:10", "2030-01-01"),
        ({"interval": "1", "basetime": "05.01.2026", "timeformat": "%d.%m.%Y"}, "2026-01-04", "2026-01-05"),
    ],
)  # fmt: skip
def test_the_next_moment_of_a_timetable(given, after, due):
    assert Timetable.of(said("timer", **given)).next(us(after)) == us(due)


@pytest.mark.parametrize(
    "given",
    [
        {"interval": "0"}, {"interval": "soon"}, {"interval": "nan"}, {"interval": "1e300"}, {"interval": "-1"},
        {"interval": "inf"}, {"interval": "1", "unit": "moon"}, {"interval": "1", "basetime": "now"},
        {"interval": "0.2", "unit": "month"},
    ],
)  # fmt: skip
def test_a_timetable_that_gives_no_moments_is_refused(given):
    with pytest.raises(ConnectorRefused):
        Timetable.of(said("timer", **given))


def test_an_event_at_each_moment_with_its_time_and_label():
    now = [us("2026-01-05 09:30:10")]

    def wait(seconds: float) -> None:
        now[0] += max(int(seconds * 1e6), 1)

    pace = Pace(lambda: now[0] < us("2026-01-05 09:33:30"), wait, lambda: 0.0)
    properties = said("timer", interval="60", label="minutely")
    source, found = TimerSource(Timetable.of(properties), SCHEMA, properties, pace, lambda: now[0]), []
    with suppress(Halted):
        for piece in source.pieces(0, None):
            found += [] if piece is None else [event.values for _, block in piece.batch.blocks() for event in block]
    dues = [us(f"2026-01-05 09:{minute}:00") for minute in (31, 32, 33)]
    assert found == [(due, due, "minutely") for due in dues]


def test_a_window_with_other_fields_is_refused():
    properties = said("timer", interval="60")
    with pytest.raises(ConnectorRefused, match="other fields"):
        TimerSource(Timetable.of(properties), Schema.parse("id*:int64,x:double"), properties, None, lambda: 0)


CONNECTION = "Endpoint=sb://hubs.example.net/;SharedAccessKeyName=listen;SharedAccessKey=s3cret=="


def test_a_hub_is_a_topic_of_kafka_with_the_connection_string_as_its_password():
    given = said("eventhubs", eventhubsconnectionstring=CONNECTION, eventhubspath="weather", eventhubspartition="1",
                 eventhubsformat="json", eventhubsconsumergroup="$default")  # fmt: skip
    found = as_kafka(given, {})
    assert (found.kind, found.text("kafkahostport"), found.text("kafkatopic")) == (
        "kafka",
        "hubs.example.net:9093",
        "weather",
    )
    assert (found.text("kafkapartition"), found.form, found.ignored) == ("1", "json", ("eventhubsconsumergroup",))
    settings = login(found)
    assert (settings["sasl.username"], settings["sasl.password"]) == ("$ConnectionString", CONNECTION)
    assert settings["security.protocol"] == "SASL_SSL"
    assert "s3cret" not in repr(found)


def test_the_emulator_is_reached_without_tls_and_the_hub_may_stand_in_the_connection_string():
    text = (
        "Endpoint=sb://localhost:5672;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;EntityPath=h"
    )
    found = as_kafka(said("eventhubs", "sub", eventhubsconnectionstring=text), {})
    assert (found.text("kafkahostport"), found.text("kafkatopic"), found.text("kafkapartition")) == (
        "localhost:5672",
        "h",
        "-1",
    )
    assert login(found)["security.protocol"] == "SASL_PLAINTEXT"


@pytest.mark.parametrize("text", ["", "hub", "Endpoint=https://x/", "SharedAccessKey=a;EntityPath=h"])
def test_a_connection_string_without_an_endpoint_is_refused_without_showing_it(text):
    with pytest.raises(ConnectorRefused) as raised:
        as_kafka(said("eventhubs", eventhubsconnectionstring=text, eventhubspath="h"), {})
    assert "SharedAccessKey=a" not in str(raised.value)


def test_the_connection_string_of_a_hub_may_stand_in_the_environment():
    given = said("eventhubs", eventhubsconnectionstring="[from the portal]", eventhubspath="my hub-1")
    with pytest.raises(ConnectorRefused, match="no endpoint") as caught:
        as_kafka(given, {})
    assert "LOCKSTEP_EVENTHUBS_MY_HUB_1" in str(caught.value.params["remedy"])
    text = "Endpoint=sb://own.example/;SharedAccessKeyName=n;SharedAccessKey=k"
    found = as_kafka(given, {"LOCKSTEP_EVENTHUBS_MY_HUB_1": text})
    assert found.text("kafkahostport") == "own.example:9093"
    assert login(found)["sasl.password"] == text
