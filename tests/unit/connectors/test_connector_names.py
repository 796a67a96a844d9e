"""Topic names of every bus, letter by letter."""

from __future__ import annotations

import pytest

from lockstep.connectors import names
from lockstep.connectors.names import IN, OUT, WindowPath
from lockstep.errors import BadArgument

PATH = WindowPath("saswinsrv01.race.sas.com:5555", "tradesRMQ", "trades", "Aggregate24HR")


@pytest.mark.parametrize(
    ("bus", "direction", "expected"),
    [
        ("rmq", OUT, "saswinsrv01.race.sas.com:5555/tradesRMQ/trades/Aggregate24HR/O"),
        ("rmq", IN, "saswinsrv01.race.sas.com:5555/tradesRMQ/trades/Aggregate24HR/I"),
        ("sol", IN, "saswinsrv01.race.sas.com:5555/tradesRMQ/trades/Aggregate24HR/I"),
        ("kafka", OUT, "saswinsrv01.race.sas.com_5555.tradesRMQ.trades.Aggregate24HR.O"),
        ("kafka", IN, "saswinsrv01.race.sas.com_5555.tradesRMQ.trades.Aggregate24HR.I"),
    ],
)
def test_topics(bus, direction, expected):
    assert names.topic_name(bus, PATH, direction) == expected


def test_tervela_names_the_engine():
    assert (
        names.topic_name("tva", PATH, IN, engine="TradesRMQ")
        == "SAS.ENGINES.TradesRMQ.tradesRMQ.trades.Aggregate24HR.IN"
    )
    assert names.topic_name("tva", PATH, OUT, engine="E").endswith(".OUT")


def test_a_host_and_port_that_has_its_underscore_already_stays():
    path = WindowPath("iot_61001", "p", "q", "w")
    assert names.topic_name("kafka", path, IN) == "iot_61001.p.q.w.I"


def test_where_metadata_is_asked_for():
    assert names.meta_name("rmq", "h:5555") == names.meta_name("sol", "h:5555") == "h:5555/M"
    assert names.meta_name("kafka", "h:5555") == "h_5555.M"
    assert names.meta_name("tva", "h:5555") == "SAS.META.h:5555"
    assert names.meta_inbox("engine") == "engine_meta"
    assert names.presence_name("Trades") == "Trades_failoverpresence"


def test_an_unknown_bus_is_refused():
    with pytest.raises(BadArgument, match="kafka, rmq, sol or tva"):
        names.topic_name("mq", PATH, IN)


def test_the_url_of_a_window():
    url = names.parse_window_url("dfESP://host:5555/tradesRMQ/trades/Aggregate24HR?snapshot=false")
    assert url.path == WindowPath("host:5555", "tradesRMQ", "trades", "Aggregate24HR")
    assert dict(url.options) == {"snapshot": "false"}


@pytest.mark.parametrize(
    "text", ["", "http://h:1/p/q/w", "dfESP://h/p/q/w", "dfESP://h:x/p/q/w", "dfESP://h:1/p/q", "dfESP://h:1/p//w"]
)
def test_what_is_no_url_of_a_window(text):
    with pytest.raises(BadArgument, match="dfESP://HOST:PORT/PROJECT/QUERY/WINDOW"):
        names.parse_window_url(text)
