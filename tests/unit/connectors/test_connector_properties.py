"""What may be said of a connector: used, taken without effect, or refused by name."""

from __future__ import annotations

import pytest

from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.properties import PUBLISH, SUBSCRIBE, read_properties

RMQ_OUT = {
    "type": "sub", "rmquserid": "u", "rmqpassword": "secret", "rmqhost": "h", "rmqport": "5672", "rmqexchange": "T",
    "rmqtopic": "t", "rmqtype": "binary", "urlhostport": "h:5555", "numbufferedmsgs": "10000", "snapshot": "true",
    "collapse": "true", "rmretdel": "true", "hotfailover": "true", "dateformat": "%Y", "buspersistence": "true",
    "rmqvhost": "/", "rmqcontenttype": "x", "rmqheaders": "a=b", "rmqssl": "false", "csvincludeschema": "never",
    "useclientmsgid": "true", "configfilesection": "[x]", "csvmsgperevent": "1",
}  # fmt: skip
KAFKA_IN = {
    "type": "pub", "kafkahostport": "h:9092", "kafkatopic": "t", "kafkapartition": "0", "kafkatype": "binary",
    "urlhostport": "h_1", "transactional": "true", "blocksize": "4", "dateformat": "%Y", "ignorecsvparseerrors": "true",
    "csvfielddelimiter": ";", "noautogenfield": "true", "publishwithupsert": "true", "kafkainitialoffset": "smallest",
    "addcsvopcode": "true", "addcsvflags": "normal", "kafkaglobalconfig": "a=b", "kafkatopicconfig": "a=b",
    "useclientmsgid": "true", "useoffsetmsgid": "true", "maxevents": "5", "avroschemaregistryurl": "x",
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
        ("rmq", SUBSCRIBE, RMQ_OUT, ("configfilesection", "csvincludeschema", "csvmsgperevent", "useclientmsgid")),
        ("rabbitmq", SUBSCRIBE, RMQ_OUT, ("configfilesection", "csvincludeschema", "csvmsgperevent", "useclientmsgid")),
        ("kafka", PUBLISH, KAFKA_IN, ("avroschemaregistryurl", "blocksize", "kafkatopicconfig")),
        ("fs", PUBLISH, FS_IN, ("prebuffer", "snapshot")),
    ],
)
def test_public_parameters_are_taken(kind, direction, given, ignored):
    found = read_properties("q/w/c", kind, direction, given)
    assert found.ignored == ignored
    assert "secret" not in repr(found)


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


def test_numbers_and_switches_are_checked():
    found = read_properties("q/w/c", "fs", PUBLISH, {"fsname": "f", "blocksize": "x", "transactional": "maybe"})
    with pytest.raises(ConnectorRefused, match="blocksize"):
        found.number("blocksize", 1, 1)
    with pytest.raises(ConnectorRefused, match="true or false"):
        found.flag("transactional")
    assert found.number("maxevents", 7) == 7
    assert found.form == "csv"
