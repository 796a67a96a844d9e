"""Which bus and which cluster a model or a client's file means."""

from __future__ import annotations

import pytest

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import Connector, CopyWindow, SourceWindow
from lockstep.esp.config_file import parse_config
from lockstep.esp.errors import ClusterUnclear, ConfigFileWrong
from lockstep.esp.places import place_of_file, place_of_model

RMQ = {"rmqhost": "rh1", "rmqport": "5672", "rmquserid": "me", "rmqpassword": "hush", "rmqexchange": "Trades",
       "rmqtype": "binary", "urlhostport": "esp:5555"}  # fmt: skip
KAFKA = {"kafkahostport": "b1:9092,b2:9092", "kafkatype": "binary", "urlhostport": "esp_61001"}


def connector(kind: str, name: str, **properties: str) -> Connector:
    return Connector(kind=kind, name=name, properties=tuple(properties.items()))


def graph(into: list[Connector], out: list[Connector]) -> Graph:
    schema = Schema.parse("ID*:int64,price:double")
    windows = (
        SourceWindow(name="Source", schema=schema, connectors=tuple(into)),
        CopyWindow(name="Copy", connectors=tuple(out)),
    )
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="Source", target="Copy"),))
    return compile_project(Project(name="trades", queries=(query,)))


def test_failover_connectors_of_rabbitmq_name_the_cluster():
    found = place_of_model(
        graph([connector("rmq", "in", **RMQ)], [connector("rmq", "out", **RMQ, hotfailover="true")]), {}
    )
    assert found is not None
    assert (found.url, found.cluster) == ("rabbitmq://me@rh1:5552", "esp_5555")
    assert found.bound == {"q/Source/in", "q/Copy/out"}
    assert found.secrets == {"LOCKSTEP_RABBITMQ_PASSWORD": "hush"}
    assert "hush" not in repr(found)


def test_the_port_of_streams_comes_from_the_environment_or_a_property():
    out = connector("rmq", "out", **RMQ, hotfailover="true", rmqstreamport="7000", rmqvhost="a/b")
    assert place_of_model(graph([], [out]), {}).url == "rabbitmq://me@rh1:7000/a%2Fb"
    environ = {"LOCKSTEP_RABBITMQ_STREAM_PORT": "7001"}
    assert place_of_model(graph([], [out]), environ).url == "rabbitmq://me@rh1:7001/a%2Fb"


def test_failover_connectors_of_kafka_name_the_cluster_and_the_election():
    topic = "esp_61001.trades.q.Source.I"
    out = connector("kafka", "out", **KAFKA, hotfailover="true", zookeeperhostport="zk:2181")
    found = place_of_model(graph([connector("kafka", "in", **KAFKA, kafkatopic=topic)], [out]), {})
    assert (found.url, found.cluster, found.zookeeper) == ("kafka://b1:9092,b2:9092", "esp_61001", "zk:2181")
    assert found.bound == {"q/Source/in", "q/Copy/out"}


def test_how_a_client_of_kafka_gets_in_is_taken_over():
    config = "security.protocol=SASL_SSL;sasl.mechanism=SCRAM-SHA-256;sasl.username=u;sasl.password=hush"
    out = connector("kafka", "out", **KAFKA, hotfailover="true", kafkaglobalconfig=config)
    found = place_of_model(graph([], [out]), {})
    assert found.url == "kafka://b1:9092,b2:9092?tls=true&mechanism=SCRAM-SHA-256&user=u"
    assert found.secrets == {"LOCKSTEP_KAFKA_PASSWORD": "hush"}


def test_text_and_topics_of_ones_own_are_left_to_connectors():
    text, own = {**RMQ, "rmqtype": "csv"}, {**RMQ, "rmqtopic": "mine"}
    into = [connector("rmq", "text", **text), connector("rmq", "own", **own), connector("fs", "file", fsname="f")]
    found = place_of_model(graph(into, [connector("rmq", "out", **RMQ, hotfailover="true")]), {})
    assert found.bound == {"q/Copy/out"}


def test_a_model_without_failover_names_none():
    assert place_of_model(graph([connector("rmq", "in", **RMQ)], [connector("rmq", "out", **RMQ)]), {}) is None


@pytest.mark.parametrize(("name", "value"), [("rmqhost", "rh2"), ("urlhostport", "other:5555")])
def test_connectors_that_do_not_agree_are_refused(name, value):
    out = [connector("rmq", "one", **RMQ, hotfailover="true"),
           connector("rmq", "two", **{**RMQ, name: value}, hotfailover="true")]  # fmt: skip
    with pytest.raises(ClusterUnclear, match=f"q/Copy/two has {name}"):
        place_of_model(graph([], out), {})


def test_a_clients_file():
    text = 'rabbitmq { host = "rh1"; port = 5672; userid = me; password = hush; streamport = 7000 }'
    found = place_of_file("rabbitmq", parse_config(text), "esp_5555", {}, "rabbitmq.cfg")
    assert (found.url, found.cluster) == ("rabbitmq://me@rh1:7000", "esp_5555")
    assert found.secrets == {"LOCKSTEP_RABBITMQ_PASSWORD": "hush"}
    same = text.replace("host", "rmqhost").replace("userid", "rmquserid").replace(" port", " rmqport")
    assert place_of_file("rabbitmq", parse_config(same), "esp_5555", {}, "rabbitmq.cfg") == found
    found = place_of_file("kafka", parse_config('kafka { hostport = "b:9092" }'), "c", {}, "kafka.cfg")
    assert found.url == "kafka://b:9092"


@pytest.mark.parametrize(("bus", "word"), [("rabbitmq", "no host"), ("kafka", "no hostport")])
def test_a_clients_file_without_a_server(bus, word):
    with pytest.raises(ConfigFileWrong, match=word):
        place_of_file(bus, {"sas": {}}, "c", {}, f"{bus}.cfg")
