"""Which bus and which cluster a model or a client's file means."""

from __future__ import annotations

import pytest

from lockstep.connectors.errors import ConnectorRefused
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import Connector, CopyWindow, SourceWindow
from lockstep.esp.command import parse_config
from lockstep.esp.errors import ClusterUnclear, ConfigFileWrong, FailoverIncomplete
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


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("rmq", {**RMQ, "rmqtopic": "mine"}, "its rmqtopic 'mine' is not 'esp:5555/trades/q/Copy/O'"),
        ("kafka", {**KAFKA, "kafkatopic": "mine"}, "its kafkatopic 'mine' is not 'esp_61001.trades.q.Copy.O'"),
        ("kafka", {**KAFKA, "urlhostport": "", "kafkatopic": "t"}, "has no urlhostport"),
    ],
)
def test_failover_without_a_cluster_is_refused_unless_the_bus_is_named(kind, given, said):
    model = graph([], [connector(kind, "out", **given, hotfailover="true")])
    with pytest.raises(FailoverIncomplete, match="q/Copy/out has hotfailover") as error:
        place_of_model(model, {})
    assert said in str(error.value)
    assert place_of_model(model, {"LOCKSTEP_BUS": "lmdb:/shared"}) is None


def test_one_connector_with_a_cluster_is_enough():
    out = [connector("rmq", "own", **RMQ, rmqtopic="mine", hotfailover="true"),
           connector("rmq", "out", **RMQ, hotfailover="true")]  # fmt: skip
    assert place_of_model(graph([], out), {}).bound == {"q/Copy/out"}


def test_how_much_a_standby_keeps_is_the_most_that_a_connector_wants():
    out = [connector("rmq", name, **RMQ, hotfailover="true", numbufferedmsgs=count)
           for name, count in (("one", "100"), ("two", "300"))]  # fmt: skip
    into = [connector("rmq", "in", **RMQ, numbufferedmsgs="900")]
    assert place_of_model(graph(into, out), {}).buffered == 300
    assert place_of_model(graph([], [connector("rmq", "out", **RMQ, hotfailover="true")]), {}).buffered == 0


@pytest.mark.parametrize("more", [{"numbufferedmsgs": "many"}, {"colapse": "true"}])
def test_connectors_of_a_cluster_are_checked_as_others_are(more):
    out = connector("rmq", "out", **RMQ, hotfailover="true", **more)
    with pytest.raises(ConnectorRefused, match="q/Copy/out"):
        place_of_model(graph([], [out]), {})


@pytest.mark.parametrize(
    ("environ", "url", "secrets"),
    [
        ({}, "rabbitmq://guest@rh1:5552", {"LOCKSTEP_RABBITMQ_PASSWORD": "guest"}),
        ({"LOCKSTEP_RABBITMQ_PASSWORD": "hush"}, "rabbitmq://guest@rh1:5552", {}),
        ({"LOCKSTEP_RABBITMQ_PASSWORD_FILE": "f", "LOCKSTEP_RABBITMQ_USER": "us"}, "rabbitmq://us@rh1:5552", {}),
    ],
)
def test_the_environment_counts_where_nothing_is_given(environ, url, secrets):
    bare = {name: value for name, value in RMQ.items() if name not in ("rmquserid", "rmqpassword")}
    found = place_of_model(graph([], [connector("rmq", "out", **bare, hotfailover="true")]), environ)
    assert (found.url, found.secrets) == (url, secrets)


def test_what_is_given_counts_more_than_the_environment():
    out = connector("rmq", "out", **RMQ, hotfailover="true")
    environ = {"LOCKSTEP_RABBITMQ_PASSWORD_FILE": "f", "LOCKSTEP_RABBITMQ_USER": "us"}
    found = place_of_model(graph([], [out]), environ)
    assert found.url == "rabbitmq://me@rh1:5552"
    assert found.secrets == {"LOCKSTEP_RABBITMQ_PASSWORD": "hush", "LOCKSTEP_RABBITMQ_PASSWORD_FILE": ""}


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
