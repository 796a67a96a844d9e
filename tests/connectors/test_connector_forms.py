"""What connectors of public models say: blockers of their configurations, texts taken as they are, quoted settings."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.forms import ReadForm, WriteForm
from lockstep.connectors.kafka import Place
from lockstep.connectors.properties import read_properties
from lockstep.connectors.validation import connector_blockers
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.xml_reader import read_xml

CONFIG = """<![CDATA[<url-connector><url-publishers><url-publisher name="p"><requests>
<request><url>{url}</url></request></requests><generate>0</generate></url-publisher></url-publishers></url-connector>]]>"""
MODEL = """<project name="p"><contqueries><contquery name="q"><windows><window-source name="S">
<schema-string>id*:int64,time:stamp,label:string</schema-string><connectors>
<connector class="{kind}" name="c"><properties><property name="type">pub</property>{properties}</properties></connector>
</connectors></window-source></windows></contquery></contqueries></project>"""


def blockers_of(kind: str, environ: dict[str, str] | None = None, **given: str) -> list:
    properties = "".join(f'<property name="{name}">{text}</property>' for name, text in given.items())
    return connector_blockers(read_xml(MODEL.format(kind=kind, properties=properties), "m.xml"), environ or {})


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("url", {"config": CONFIG.format(url="https://example.org/")}),
        ("url", {"configurl": "file:///not/there/yet.xml"}),
        ("url", {"config": CONFIG.format(url="https://example.org/?k=@K@"), "properties": "K=1"}),
        ("websocket", {"url": "ws://example.org/", "configurl": "file:///not/there/yet.xml", "contenttype": "json"}),
        ("db", {"connectstring": "DSN=any;uid=u;pwd=p", "selectstatement": "SELECT * FROM t"}),
        ("timer", {"interval": "5", "unit": "minute"}),
        ("eventhubs", {"eventhubsconnectionstring": "Endpoint=sb://h/;SharedAccessKey=k", "eventhubspath": "hub"}),
        ("kafka", {"kafkahostport": "h:1", "kafkatopic": "t", "kafkatype": "opaquestring"}),
        ("fs", {"fsname": "f.xml", "fstype": "xml"}),
        ("rest", {"type": "sub", "resturl": "https://h/post", "esprespurl": "dfESP://h:1/p/q/S"}),
        (
            "adapter",
            {"type": "sub", "command": "dfesp_rest_subscriber -C resturl=https://h/post,url=dfESP://h:1/p/q/S"},
        ),
    ],
)
def test_a_connector_whose_other_side_is_not_there_is_no_blocker(kind, given):
    assert blockers_of(kind, **given) == []


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        ("url", {"config": CONFIG.format(url="file:///etc/passwd")}, "it must be http"),
        ("url", {"config": CONFIG.format(url="https://h/?k=@K@")}, "@K@ has no value"),
        ("url", {}, "neither config nor configurl"),
        ("websocket", {"url": "ws://169.254.169.254/", "config": "a"}, "link-local"),
        ("db", {"connectstring": "DSN=any;pwd=p", "pwdencrypted": "true", "selectstatement": "SELECT 1"}, "encrypted"),
        ("timer", {"interval": "never"}, "interval"),
        ("eventhubs", {"eventhubsconnectionstring": "placeholder", "eventhubspath": "hub"}, "no endpoint"),
        ("fs", {"fsname": "f", "fstype": "opaquestring"}, "not supported"),
        ("lua", {"code": "function publish() end"}, "Its class is lua"),
        ("python", {"code": "def publish(): pass"}, "nothing in a model is run"),
        ("videocap", {}, "no connector for devices"),
        ("mqtt", {}, "'mqtt' is unknown"),
        ("rest", {"type": "sub", "resturl": "https://h/", "esprespurl": "dfESP://h:1/p/q/v"}, "no source window"),
        ("rest", {"type": "pub", "resturl": "https://h/"}, "can't bring events in"),
        ("adapter", {"type": "sub", "command": "sh -c 'true'"}, "nothing in a model is"),
    ],
)
def test_what_can_never_run_is_a_blocker_with_its_line(kind, given, why):
    [only] = blockers_of(kind, **given)
    assert why in only.message
    assert (only.line, bool(only.fix)) == (3, True)


def test_a_value_of_the_environment_can_not_become_a_part_of_a_configuration():
    hostile = {"K": "</url></request><request><url>file:///etc/passwd"}
    [only] = blockers_of("url", hostile, config=CONFIG.format(url="@K@"))
    assert "it must be http" in only.message, "one URL, and a wrong one"


def form_of(schema: str, **given: str) -> ReadForm:
    wish = {"type": "pub", "kafkahostport": "h:1", "kafkatopic": "t", "kafkatype": "opaquestring", **given}
    return ReadForm.of(read_properties("q/w/c", "kafka", "pub", wish), Schema.parse(schema), "here")


def test_a_message_may_be_taken_as_it_is():
    bad = []
    for schema in ("index*:int64,message:string", "index*:int64,message:string,other:string", "k*:int64,text:string"):
        batch, _ = form_of(schema).message('{"a": "ü"}'.encode(), 17, bad.append)
        [(number, [event])] = batch.blocks()
        assert (number, event.values[:2]) == (17, (17, '{"a": "ü"}'))
    assert bad == []
    for schema, value in (("k*:int64,a:string,b:string", b"x"), ("index*:int64,message:string", b"\xff")):
        batch, _ = form_of(schema).message(value, 18, bad.append)
        assert len(batch) == 0
    assert [line.line for line in bad] == [18, 18]
    with pytest.raises(ConnectorRefused, match="not supported"):
        WriteForm.of(
            read_properties("q/w/c", "kafka", "sub", {"kafkahostport": "h", "kafkatopic": "t", "kafkatype": "opaque"}),
            Schema.parse("a*:int64"),
        )


def test_settings_of_kafkas_client_may_be_in_quotes():
    text = """security.protocol=SASL_SSL;sasl.password="Endpoint=sb://h/;Key='x'";client.id='a;b';"""
    given = {"type": "pub", "kafkahostport": "h:1", "kafkatopic": "t", "kafkaglobalconfig": text}
    properties = read_properties("q/w/c", "kafka", "pub", given)
    place = Place.of(SimpleNamespace(properties=properties, topic=lambda: "t"))
    assert place.client == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "Endpoint=sb://h/;Key='x'",
        "client.id": "a;b",
    }
