"""Connectors of class url against a web server: what it says becomes events, by functions."""

from __future__ import annotations

import json
import logging

import pytest
from connector_worlds import World, connector, model, running, until
from web_servers import Pages

from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.forms import OnBad
from lockstep.connectors.port import Halted, Pace
from lockstep.connectors.properties import read_properties
from lockstep.connectors.urls import UrlSource, Wanted
from lockstep.engine.events.event import Opcode
from lockstep.engine.events.schema import Schema

SCHEMA = Schema.parse("ID*:int64,symbol:string,price:double")
LOOP = """<event-loops><event-loop-json name='each'><use-json>#_content</use-json><json>$.list</json>
 <function-context><functions>
  <function name='ID'>json(#_context,'id')</function>
  <function name='symbol'>json(#_context,'name.first')</function>
  <function name='price'>json(#_context,'price')</function>
 </functions></function-context></event-loop-json></event-loops>"""
SECRET = "s3cret-key"


def config(*urls: str, opcode: str = "upsert", body: str = LOOP) -> str:
    requests = "".join(f"<request><url><![CDATA[{url}]]></url></request>" for url in urls)
    return f"""<url-connector><url-publishers><url-publisher name='p'><requests>{requests}</requests>
     <generate>0</generate><opcode>{opcode}</opcode>{body}</url-publisher></url-publishers></url-connector>"""


def listed(*numbers: int) -> str:
    return json.dumps({"list": [{"id": n, "name": {"first": f"s{n}"}, "price": n / 2} for n in numbers]})


@pytest.fixture
def pages():
    with Pages() as made:
        yield made


class Clock:
    """A pace whose rests take no time; it halts at a moment."""

    def __init__(self, until_s: float) -> None:
        self.now, self.until_s, self.rests = 0.0, until_s, 0

    def pace(self) -> Pace:
        return Pace(lambda: self.now < self.until_s, self.wait, lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.rests += 1
        self.now += max(seconds, 0.001)


def source(clock: Clock, text: str, bad: OnBad = lambda _: None, **more: object) -> UrlSource:
    given = {"type": "pub", "config": text, **{name: str(value) for name, value in more.items()}}
    wanted = Wanted.of(read_properties("q/w/c", "url", "pub", given), {"HOST": "x"})
    return UrlSource(wanted, SCHEMA, clock.pace(), bad, lambda: 1_000_000)


def events_of(made: UrlSource) -> list:
    found = []
    try:
        for piece in made.pieces(0, None):
            found += [] if piece is None else [event for _, block in piece.batch.blocks() for event in block]
    except Halted:
        return found
    return found


def test_each_item_of_an_answer_is_an_event_and_the_server_is_asked_again_and_again(pages):
    pages.put("/a", listed(1, 2))
    found = events_of(source(Clock(25.0), config(pages.url("/a"))))
    assert [(event.opcode, *event.values) for event in found] == [
        (Opcode.UPSERT, 1, "s1", 0.5),
        (Opcode.UPSERT, 2, "s2", 1.0),
    ] * 3  # at 0, 10 and 20 seconds
    assert len(pages.asked) == 3


def test_a_server_that_fails_is_asked_sooner_and_does_not_keep_the_others_waiting(pages, caplog):
    pages.put("/good", listed(1))
    pages.put("/bad", "no", 503)
    text = config(pages.url(f"/bad?key={SECRET}"), pages.url("/good"), pages.url("/bad"))
    found = events_of(source(Clock(100.0), text, interval="1 minute"))
    assert [event.values[0] for event in found] == [1, 1]
    asked = [path for path, _ in pages.asked]
    assert asked.count("/good") == 2
    assert 6 <= asked.count("/bad") <= 20, "after 0.5, 1, 2, 4, 8 and then every 15 seconds"
    assert "HTTP 503" in caplog.text
    assert SECRET not in caplog.text


def test_redirections_are_followed_without_headers_for_others_and_not_for_ever(pages, caplog):
    with Pages() as other:
        other.put("/there", listed(7), Content_Type="application/json; charset=utf-8")
        pages.put("/here", "", 302, Location=other.url("/there"))
        pages.put("/round", "", 301, Location="/round")
        text = config(pages.url("/here"), pages.url("/round")).replace(
            "</url></request>", f"</url><headers><header name='X-Key'>{SECRET}</header></headers></request>"
        )
        found = events_of(source(Clock(0.1), text))
    assert [event.values[0] for event in found] == [7]
    assert pages.asked[0][1]["X-Key"] == SECRET
    assert "X-Key" not in other.asked[0][1]
    assert "redirects more than 5 times" in caplog.text


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest", "file:///etc/passwd", "http://u:p@h/"])
def test_a_redirection_to_what_must_not_be_called_is_not_followed(pages, caplog, target):
    pages.put("/here", "", 302, Location=target)
    assert events_of(source(Clock(0.1), config(pages.url("/here")))) == []
    assert "can't be called" in caplog.text


def test_an_answer_that_is_too_long_or_no_document_makes_no_event_and_is_told(pages, caplog):
    bad = []
    pages.put("/long", b"[" + b"1," * 600_000 + b"1]")
    pages.put("/broken", '{"list": [')
    found = events_of(source(Clock(0.1), config(pages.url("/long"), pages.url("/broken")), bad.append))
    assert found == []
    assert "more than 1000000 bytes" in caplog.text
    assert "can't be read" in bad[0].detail


def test_news_in_xml_with_two_publishers_and_an_opcode_of_a_loop_of_its_own(pages):
    pages.put("/rss", "<rss><item><title>One</title></item><item><title>Zwei &amp; Ü</title></item></rss>")
    body = """<function-context><functions><function name='symbol'>string('news')</function></functions>
     </function-context><event-loops><event-loop-xml name='i' data='element'><use-xml>#_content</use-xml>
     <xpath>//item</xpath><opcode>insert</opcode><function-context><functions>
     <function name='ID'>eventCounter()</function>
     <function name='symbol'>concat($symbol,': ',xpath(#_context,'./title/text()'))</function>
     </functions></function-context></event-loop-xml></event-loops>"""
    found = events_of(source(Clock(0.1), config(pages.url("/rss"), body=body)))
    assert [(event.opcode, event.values) for event in found] == [
        (Opcode.INSERT, (1, "news: One", None)),
        (Opcode.INSERT, (2, "news: Zwei & Ü", None)),
    ]


def test_names_between_at_signs_are_values_and_never_elements(pages):
    pages.put("/x?key=a%3Cb", listed(1))
    text = config(pages.url("/x?key=@KEY@"))
    assert len(events_of(source(Clock(0.1), text, properties="KEY=a<b"))) == 1
    with pytest.raises(ConnectorRefused, match=r"@KEY@ has no value.*KEY=\.\.\."):
        source(Clock(0.1), text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<url-connector/>", "has no url-publisher"),
        ("<other/>", "root element 'other'"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><url-connector/>", "document type"),
        ("<url-connector", "line 1"),
        (config(), "has no request"),
        (config("ftp://h/x"), "it must be http"),
        (config("http://169.254.169.254/x"), "link-local"),
        (config("http://h/x", body=LOOP.replace("json(#_context,'id')", "jsn(#_context,'id')")), "no function 'jsn'"),
        (config("http://h/x", body=LOOP.replace("$.list", "$..[x")), "not like a.b"),
        (config("http://h/x", body="<surprise/>"), "'surprise' is not known"),
    ],
)  # fmt: skip
def test_a_configuration_that_is_wrong_is_refused_before_anything_starts(text, why):
    with pytest.raises(ConnectorRefused, match=why):
        source(Clock(1), text)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "neither config nor configurl"),
        ({"config": "<a/>", "configurl": "file://c"}, "both"),
        ({"configurl": "https://h/c.xml"}, "not supported"),
        ({"config": config("http://h/"), "interval": "soon"}, "interval"),
        ({"config": config("http://h/"), "interval": "0"}, "interval"),
        ({"config": config("http://h/"), "properties": "a"}, "NAME=VALUE"),
        ({"config": config("http://h/"), "intervall": "1"}, "Did you mean 'interval'"),
    ],
)  # fmt: skip
def test_properties_that_are_wrong_are_refused(given, why):
    with pytest.raises(ConnectorRefused) as raised:
        Wanted.of(read_properties("q/w/c", "url", "pub", {"type": "pub", **given}), {})
    assert why in f"{raised.value} {raised.value.advice}"
    with pytest.raises(ConnectorRefused, match="can't take events out"):
        read_properties("q/w/c", "url", "sub", {"type": "sub", **given})


def test_it_waits_for_its_configuration_file_and_then_feeds_the_window(pages, tmp_path, caplog):
    caplog.set_level(logging.INFO, "lockstep")
    pages.put("/a", listed(1, 2))
    given = {"type": "pub", "configurl": f"file://{tmp_path / 'c.xml'}", "maxevents": 2}
    world = World(f"lmdb:{tmp_path / 'bus'}", model(into=[connector("url", "web", **given)]))
    try:
        with running(world) as connectors:
            until(lambda: "is tried again" in caplog.text)
            (tmp_path / "c.xml").write_text(config(pages.url("/a"), opcode="insert"))
            until(lambda: connectors.states == {"q/Trades/web": "finished"})
        assert world.taken() == [1, 2]
    finally:
        world.close()
