"""What may be said of a connector: used, taken without effect, or refused by name."""

from __future__ import annotations

import pytest

from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.properties import PUBLISH, SUBSCRIBE, read_properties

RMQ_OUT = {
    "type": "sub", "rmquserid": "u", "rmqpassword": "secret", "rmqhost": "h", "rmqport": "5672", "rmqexchange": "T",
    "rmqtopic": "t", "rmqtype": "binary", "urlhostport": "h:5555", "numbufferedmsgs": "10000", "snapshot": "true",
    "collapse": "true", "rmretdel": "true", "hotfailover": "true", "dateformat": "%Y", "buspersistence": "true",
    "rmqvhost": "/", "rmqcontenttype": "x", "rmqheaders": "a=b", "rmqssl": "true", "rmqsslcacert": "a",
    "rmqsslcert": "c", "rmqsslkey": "k", "csvincludeschema": "never", "useclientmsgid": "true",
    "configfilesection": "[x]", "csvmsgperevent": "true", "csvmsgpereventblock": "true", "protofile": "f",
    "protomsg": "m", "rmqpasswordencrypted": "false",
}  # fmt: skip
RMQ_NOTHING = ("configfilesection", "csvincludeschema", "csvmsgperevent", "csvmsgpereventblock", "protofile",
               "protomsg")  # fmt: skip
RMQ_IN = {
    **{name: value for name, value in RMQ_OUT.items()
       if name not in ("collapse", "rmretdel", "hotfailover", "rmqcontenttype", "rmqheaders")},
    "type": "pub", "transactional": "true", "blocksize": "4", "buspersistencequeue": "q",
    "ignorecsvparseerrors": "true", "csvfielddelimiter": ";",
    "noautogenfield": "true", "publishwithupsert": "true", "addcsvopcode": "true",
    "addcsvflags": "normal", "maxevents": "5",
}  # fmt: skip
KAFKA_OUT = {
    "type": "sub", "kafkahostport": "h:9092", "kafkatopic": "t", "kafkapartition": "0", "kafkatype": "binary",
    "urlhostport": "h_1", "numbufferedmsgs": "10000", "snapshot": "true", "collapse": "true", "rmretdel": "true",
    "hotfailover": "true", "dateformat": "%Y", "zookeeperhostport": "zk:2181", "useclientmsgid": "true",
    "kafkaglobalconfig": "a=b", "kafkatopicconfig": "a=b", "csvincludeschema": "never", "csvmsgperevent": "true",
    "csvmsgpereventblock": "true", "protofile": "f", "protomsg": "m", "configfilesection": "[x]",
    "avroschemaregistryurl": "x", "avroschemadefinition": "d", "avroschemaname": "n", "avroschemanoopcode": "true",
}  # fmt: skip
KAFKA_OUT_NOTHING = (
    "avroschemadefinition", "avroschemaname", "avroschemanoopcode", "avroschemaregistryurl", "configfilesection",
    "csvincludeschema", "csvmsgperevent", "csvmsgpereventblock", "kafkatopicconfig", "protofile", "protomsg",
    "useclientmsgid", "zookeeperhostport",
)  # fmt: skip
KAFKA_IN = {
    "type": "pub", "kafkahostport": "h:9092", "kafkatopic": "t", "kafkapartition": "0", "kafkatype": "binary",
    "urlhostport": "h_1", "transactional": "true", "blocksize": "4", "dateformat": "%Y", "ignorecsvparseerrors": "true",
    "csvfielddelimiter": ";", "noautogenfield": "true", "publishwithupsert": "true", "kafkainitialoffset": "smallest",
    "addcsvopcode": "true", "addcsvflags": "normal", "kafkaglobalconfig": "a=b", "kafkatopicconfig": "a=b",
    "useclientmsgid": "true", "useoffsetmsgid": "true", "maxevents": "5", "avroschemaregistryurl": "x",
    "kafkaconsumergroupid": "g",
}  # fmt: skip
FS_IN = {
    "type": "pub", "fsname": "f", "fstype": "csv", "blocksize": "2", "transactional": "true", "rate": "5",
    "repeatcount": "1", "maxevents": "3", "header": "1", "prebuffer": "true", "growinginputfile": "true",
    "addcsvopcode": "insert", "addcsvflags": "normal", "publishwithupsert": "true", "noautogenfield": "true",
    "ignorecsvparseerrors": "true", "csvfielddelimiter": ",", "dateformat": "%Y", "snapshot": "false",
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "direction", "given", "ignored"),
    [
        ("rmq", SUBSCRIBE, RMQ_OUT, (*RMQ_NOTHING, "useclientmsgid")),
        ("rabbitmq", SUBSCRIBE, RMQ_OUT, (*RMQ_NOTHING, "useclientmsgid")),
        ("rmq", PUBLISH, RMQ_IN, tuple(sorted((*RMQ_NOTHING, "blocksize", "numbufferedmsgs", "snapshot")))),
        ("kafka", SUBSCRIBE, KAFKA_OUT, KAFKA_OUT_NOTHING),
        (
            "kafka",
            PUBLISH,
            KAFKA_IN,
            ("avroschemaregistryurl", "blocksize", "kafkaconsumergroupid", "kafkatopicconfig"),
        ),
        ("fs", PUBLISH, FS_IN, ("prebuffer", "snapshot")),
    ],
)
def test_public_parameters_are_taken(kind, direction, given, ignored):
    found = read_properties("q/w/c", kind, direction, given)
    assert found.ignored == ignored
    assert "secret" not in repr(found)
    off = read_properties("q/w/c", kind, direction, {name: _off(value) for name, value in given.items()})
    assert not any(off.flag(name) for name, value in given.items() if value in ("true", "false"))


def _off(value: str) -> str:
    return "false" if value == "true" else value


def refused(kind, direction, given) -> str:
    with pytest.raises(ConnectorRefused) as error:
        read_properties("q/w/c", kind, direction, given)
    return str(error.value)


def test_an_unknown_property_is_named_with_the_one_that_was_meant():
    said = refused("fs", PUBLISH, {"fsname": "f", "blocksiz": "2"})
    assert "q/w/c" in said
    assert "'blocksiz'" in said
    assert "Did you mean 'blocksize'?" in said


@pytest.mark.parametrize(
    ("kind", "given", "word"),
    [
        ("fs", {}, "fsname"),
        ("kafka", {"kafkatopic": "t"}, "kafkahostport"),
        ("rmq", {"rmqhost": "h", "rmqtopic": "t"}, "rmqexchange"),
        ("kafka", {"kafkahostport": "h:1"}, "topic"),
        ("fs", {"fsname": "f", "fstype": "hdat"}, "'hdat', which is not supported"),
        ("fs", {"fsname": "f", "addcsvflags": "partialupdate"}, "partialupdate"),
        ("rmq", {"rmqhost": "h", "rmqexchange": "x", "rmqtopic": "t", "rmqpasswordencrypted": "true"}, "encrypted"),
        ("mqtt", {}, "class 'mqtt' is unknown"),
        ("tva", {}, "vendor ended"),
        ("tervela", {}, "vendor ended"),
        ("sol", {}, "Use class rmq"),
    ],
)
def test_what_can_not_be_is_refused_with_the_reason(kind, given, word):
    assert word in refused(kind, PUBLISH, given)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("transactional", "true", True),
        ("transactional", "Transactional", True),
        ("transactional", "normal", False),
        ("transactional", "", False),
        ("addcsvflags", "normal", True),
        ("addcsvflags", "false", False),
        ("addcsvopcode", "insert", True),
    ],
)
def test_words_mean_what_they_mean_for_their_property(name, text, expected):
    found = read_properties("q/w/c", "fs", PUBLISH, {"fsname": "f", name: text})
    assert found.flag(name) is expected


@pytest.mark.parametrize(("name", "text"), [("transactional", "insert"), ("growinginputfile", "normal")])
def test_a_word_of_another_property_is_refused(name, text):
    found = read_properties("q/w/c", "fs", PUBLISH, {"fsname": "f", name: text})
    with pytest.raises(ConnectorRefused, match=f"its {name} is '{text}'"):
        found.flag(name)


def test_numbers_and_switches_are_checked():
    found = read_properties("q/w/c", "fs", PUBLISH, {"fsname": "f", "blocksize": "x", "transactional": "maybe"})
    with pytest.raises(ConnectorRefused, match="blocksize"):
        found.number("blocksize", 1, 1)
    with pytest.raises(ConnectorRefused, match="true or false"):
        found.flag("transactional")
    assert found.number("maxevents", 7) == 7
    assert found.form == "csv"


def test_a_kafka_subscriber_may_leave_the_partition_to_the_client():
    from lockstep.connectors.kafka import ANYWHERE, Place
    from lockstep.connectors.plan import Planned

    given = {"kafkahostport": "h:1", "kafkatopic": "t", "kafkapartition": "-1"}
    place = Place.of(Planned(None, "p", read_properties("q/w/c", "kafka", SUBSCRIBE, given)))
    assert place.partition == ANYWHERE
    with pytest.raises(ConnectorRefused, match="kafkapartition is '-1'"):
        Place.of(Planned(None, "p", read_properties("q/w/c", "kafka", PUBLISH, given)))
