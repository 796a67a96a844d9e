"""rabbitmq.cfg and kafka.cfg as people wrote them."""

from __future__ import annotations

import pytest

from lockstep.engine.errors import FileMissing
from lockstep.esp.command import load_config, parse_config
from lockstep.esp.errors import ConfigFileWrong

KAFKA = """kafka
{
hostport = "broker.example.com:9092"
globalconfig = "enable.sparse.connections=false"
partition = "0"
initialoffset = "smallest"
#groupid = "mygroup"
metatopic="ESPAdapterMetapub"
}
sas
{
hotfailover=false
zookeeperhostport="broker.example.com:2181"
failovergroup="ESPadaptergroup1"
numbufferedmsgs="1000"
dateformat="%Y-%m-%d %H:%M:%S"
}
"""


def test_a_kafka_file_of_a_public_example():
    assert parse_config(KAFKA) == {
        "kafka": {
            "hostport": "broker.example.com:9092",
            "globalconfig": "enable.sparse.connections=false",
            "partition": "0",
            "initialoffset": "smallest",
            "metatopic": "ESPAdapterMetapub",
        },
        "sas": {
            "hotfailover": "false",
            "zookeeperhostport": "broker.example.com:2181",
            "failovergroup": "ESPadaptergroup1",
            "numbufferedmsgs": "1000",
            "dateformat": "%Y-%m-%d %H:%M:%S",
        },
    }


@pytest.mark.parametrize(
    "text",
    [
        'rabbitmq { host = "h"; port = 5672 }',
        "[rabbitmq]\nhost = h\nport = 5672",
        "rabbitmq = {\n  host : 'h',\n  port : 5672,\n};",
        "RabbitMQ: {\nHOST: h\nPort: 5672 }",
        "// c\n/* { */ rabbitmq { host = h // x\nport = 5672 }  # y",
        "\trabbitmq\n{\n\thost = h\n\n\tport = 5672\n}\n\nsas\n{\n}\n",
    ],
)
def test_many_ways_to_write_the_same(text):
    found = parse_config(text)
    assert found["rabbitmq"] == {"host": "h", "port": "5672"}


def test_values_with_signs_in_them():
    found = parse_config('x { a = h:1,h:2\n b = k=v\n c = "a;b{}#"\n d =\n e = "q\\"q" }')
    assert found == {"x": {"a": "h:1,h:2", "b": "k=v", "c": "a;b{}#", "d": "", "e": 'q"q'}}


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("kafka {\n  hostport\n}", "line 2", "no = and no value"),
        ("kafka {\n a = 1\n", "line 3", "not closed"),
        ("}\n", "line 1", "belongs to no section"),
        ("a { b { } }", "line 1", "within a"),
        ("a {\n x = 1\n x = 2 }", "line 3", "twice"),
        ("a { 1 = 2 }", "line 1", "no name"),
        ('a = "open', "line 1", "not understood"),
    ],
)
def test_what_can_not_be_understood_is_named_by_its_line(text, place, word):
    with pytest.raises(ConfigFileWrong, match=word) as error:
        parse_config(text, "kafka.cfg")
    assert f"kafka.cfg, {place}" in str(error.value)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(FileMissing, match=r"rabbitmq\.cfg"):
        load_config(tmp_path / "rabbitmq.cfg")
