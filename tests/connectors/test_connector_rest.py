"""Connectors of class rest, and the adapter of that name: each event is posted, and answers become events."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from connector_worlds import World, connector, event
from web_servers import Pages

from lockstep.connectors.adapters import as_connector
from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.plan import plan_connectors
from lockstep.connectors.properties import read_properties
from lockstep.connectors.rest import Wanted, flattened
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import decode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BadText
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import CopyWindow, SourceWindow
from lockstep.engine.runtime.sequence.entries import BlockCounter, SequencePosition
from lockstep.engine.runtime.sequence.reader import head_of, values_between

SCHEMA = Schema.parse("ID*:int64,symbol:string,price:double")
ANSWERS = Schema.parse("ID*:int64,symbol:string,price:double,token:string,risk_level:int32")
COMMAND = "dfesp_rest_subscriber -C "


@pytest.fixture
def pages():
    with Pages() as made:
        yield made


@pytest.fixture
def world_of(tmp_path):
    made = []

    def world(*out) -> World:
        made.append(World(f"lmdb:{tmp_path / 'bus'}", model(*out)))
        return made[-1]

    yield world
    for one in made:
        one.close()


def model(*out) -> Graph:
    windows = (
        SourceWindow(name="Trades", schema=SCHEMA),
        CopyWindow(name="Copy", connectors=tuple(out)),
        SourceWindow(name="Answers", schema=ANSWERS),
    )
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="Trades", target="Copy"),))
    return compile_project(Project(name="desk", queries=(query,)))


def rest(url: str, **given: object):
    return connector("rest", "out", type="sub", resturl=url, **given)


def adapter(command: str):
    return connector("adapter", "out", type="sub", command=command)


@dataclass
class Risk:
    """A server that rates a trade, and may be away for its first requests."""

    away: int = 0
    status: int = 200

    def __call__(self, _path: str, body: bytes):
        if self.away:
            self.away -= 1
            return 503, {}, b""
        symbol = json.loads(body)["symbol"]
        return self.status, {}, json.dumps({"token": f"t-{symbol}", "risk": {"level": 3, "of": "x"}, "ID": 99}).encode()


def answered(world: World) -> list[tuple]:
    """The rows of the answers, as engines count them: copies once, and nothing that skips."""
    log, tally, found = (
        world.bus.open(world.streams.input(world.graph.find("q/Answers"))),
        BlockCounter.at(SequencePosition()),
        [],
    )
    for _, value in values_between(log, log.bounds().first, log.bounds().next):
        before, head = tally.block, head_of(value)
        known = tally.take(head, 0)
        assert known is not None, "answers before it are missing"
        batch = decode_frame(value, ANSWERS, number_from=before + 1 - known).batch
        found += [one.values for number, events in batch.blocks() if number > before for one in events]
    return found


def test_each_event_is_posted_as_json_and_its_answer_becomes_a_row(world_of, pages):
    pages.answer = Risk()
    world = world_of(rest(pages.url("/rate"), esprespurl="q/Answers"))
    world.prepare()
    world.come_out(1, 2)
    lead = world.engine()
    lead.until(lambda: lead.work.sent == 2)
    assert [(path, json.loads(body)) for path, _, body in pages.posted] == [
        ("/rate", {"ID": 1, "symbol": "s1", "price": 0.5}),
        ("/rate", {"ID": 2, "symbol": "s2", "price": 1.0}),
    ]
    assert {headers["Content-Type"] for _, headers, _ in pages.posted} == {"application/json"}
    assert answered(world) == [(1, "s1", 0.5, "t-s1", 3), (2, "s2", 1.0, "t-s2", 3)]
    lead.die()


def test_whoever_leads_next_posts_only_what_has_no_answer_yet(world_of, pages):
    pages.answer = Risk()
    world = world_of(rest(pages.url("/rate"), esprespurl="q/Answers"))
    world.prepare()
    world.come_out(1, 2, 5)  # blocks without an event lie between
    first = world.engine()
    first.work._notes.write = lambda _: None  # killed before it noted anything
    first.until(lambda: first.work.sent == 5)
    first.die()
    world.come_out(7)
    second = world.engine()
    second.until(lambda: second.work.sent == 7)
    second.die()
    assert [json.loads(body)["ID"] for _, _, body in pages.posted] == [1, 2, 5, 7]
    assert [row[0] for row in answered(world)] == [1, 2, 5, 7]


def test_an_event_that_is_posted_again_has_the_same_key_and_its_answer_counts_once(world_of, pages):
    pages.answer = Risk()
    world = world_of(rest(pages.url("/rate"), esprespurl="q/Answers"))
    world.prepare()
    world.come_out(1, 2)
    first, second = world.engine(), world.engine()  # one does not know yet that it leads no longer
    first.until(lambda: first.work.sent == 2)
    second.until(lambda: second.work.sent == 2)
    first.die()
    second.die()
    keys = [(json.loads(body)["ID"], headers["Idempotency-Key"]) for _, headers, body in pages.posted]
    assert len(keys) == 4
    assert len(set(keys)) == 2
    assert [row[0] for row in answered(world)] == [1, 2]


def test_a_server_that_is_away_is_asked_again_and_nothing_is_left_out(world_of, pages, caplog):
    pages.answer = Risk(away=2)
    world = world_of(rest(pages.url("/rate"), esprespurl="q/Answers"))
    world.prepare()
    world.come_out(1)
    lead = world.engine()
    waits = []
    lead.work._target._pace = replace(lead.pace, wait=waits.append, monotonic=lambda: sum(waits))
    lead.until(lambda: lead.work.sent == 1)
    lead.die()
    assert len(pages.posted) == 3
    assert sum(waits) == pytest.approx(1.5), "half a second, and twice as long"
    assert "HTTP 503" in caplog.text
    assert [row[0] for row in answered(world)] == [1]


def test_an_answer_that_does_not_count_is_told_and_the_next_event_is_posted(world_of, pages, caplog):
    pages.answer = Risk(status=500)
    world = world_of(rest(pages.url("/rate?key=s3cret"), esprespurl="q/Answers", httpstatuscodes="200,201"))
    world.prepare()
    world.come_out(1, 2)
    lead = world.engine()
    lead.until(lambda: lead.work.sent == 2)
    pages.answer = Risk(status=201)
    world.come_out(3)
    lead.until(lambda: lead.work.sent == 3)
    lead.die()
    assert [row[0] for row in answered(world)] == [3]
    assert "HTTP 500" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_server_that_can_not_be_reached_is_passed_over_only_if_that_is_wanted(world_of, pages, caplog):
    url = pages.url("/rate")
    pages.server_close()
    pages.shutdown()
    world = world_of(rest(url, ignorefailedhttpconnects="true"))
    world.prepare()
    world.come_out(1)
    lead = world.engine()
    lead.until(lambda: lead.work.sent == 1)
    lead.die()
    assert "no answer to an event" in caplog.text


def test_a_field_is_the_text_or_the_token_and_deletes_are_not_posted(world_of, pages):
    pages.put("/", '{"token": "x"}')
    world = world_of(rest(pages.url("/"), opaquejson="symbol", tokeneventfield="symbol", httpcontenttype="text/plain"))
    world.prepare()
    world.blocks_come_out((1, [event(1)]), (2, [event(1, "UB"), event(1, "D")]), (3, [event(1, "D")]))
    lead = world.engine()
    lead.until(lambda: lead.work.sent == 3)
    lead.die()
    assert [body for _, _, body in pages.posted] == [b"s1", b"s1"], "an update is posted once"
    _, headers, _ = pages.posted[0]
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer s1", "text/plain")


def test_the_adapters_command_is_read_and_not_run(world_of, pages):
    pages.answer = Risk()
    command = (
        f'{COMMAND}url="dfESP://<host>:31416/desk/q/Copy?snapshot=true",resturl={pages.url("/rate")},'
        "httpcontenttype=application/json,esprespurl=dfESP://<host>:31416/desk/q/Answers,"
        'httprequestproperties="Accept:application/x+json,X-Own:1",httpstatuscodes=200,201'
    )
    world = world_of(adapter(command))
    world.prepare()
    world.come_out(1)
    lead = world.engine()
    lead.until(lambda: bool(pages.posted) and lead.work.sent == 1)
    lead.die()
    _, headers, _ = pages.posted[0]
    assert (headers["Accept"], headers["X-Own"]) == ("application/x+json", "1")
    assert [row[0] for row in answered(world)] == [1]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("rm -rf /", "nothing in a model is"),
        ("/opt/bin/dfesp_fs_adapter -k pub", "nothing in a model is"),
        ("dfesp_rest_subscriber resturl=http://h/", "no -C"),
        (COMMAND + "url=dfESP://h:1/p/q/Copy", "no resturl"),
        (COMMAND + "resturl=http://h/,unheard=1", "no property 'unheard'"),
        (COMMAND + "resturl=ftp://h/x", "resturl can't be called"),
        (COMMAND + "resturl=http://169.254.169.254/latest", "resturl can't be called"),
        (COMMAND + "resturl=http://h/,httpstatuscodes=2xx", "httpstatuscodes are '2xx'"),
        (COMMAND + "resturl=http://h/,url=dfESP://h:1/p/q/Other", "its url names the window q/Other"),
    ],
)
def test_what_an_adapter_can_not_do_here_is_refused(command, words):
    with pytest.raises(ConnectorRefused, match="can't be run") as caught:
        Wanted.of(read_properties("q/Copy/out", "adapter", "sub", {"type": "sub", "command": command}))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"esprespurl": "dfESP://h:1/desk/q/Elsewhere"}, "no source window"),
        ({"esprespurl": "q/Copy"}, "no source window"),
        ({"opaquejson": "text"}, "no field text"),
        ({"tokeneventfield": "login"}, "no field login"),
        ({"esprespurl": "q/Answers", "espopaquejson": "whole"}, "the field whole of q/Answers"),
    ],
)
def test_windows_and_fields_that_are_not_there_are_refused_before_anything_starts(world_of, given, words):
    world = world_of(rest("http://127.0.0.1:9/", **given))
    with pytest.raises(ConnectorRefused) as caught:
        world.workshop.check(plan_connectors(world.graph)[0])
    assert words in str(caught.value)


def test_a_part_without_an_equals_sign_goes_on_with_the_value_before_it():
    _, found = as_connector("q/w/c", "adapter", {"command": COMMAND + 'a=1,2,b="x,y=z",url=u?snapshot=true&c=d'})
    assert found == {"a": "1,2", "b": "x,y=z", "url": "u?snapshot=true&c=d", "snapshot": "true"}


def test_values_within_objects_and_arrays_have_the_names_of_both():
    names = frozenset({"id", "out_name", "out_value"})
    found = {"id": "7", "links": [{"a": "b"}], "out": [{"name": "n", "value": "1.0"}, {"name": "m"}], "more": {}}
    assert list(flattened(found, names)) == [
        {"id": "7", "out_name": "n", "out_value": "1.0"},
        {"id": "7", "out_name": "m"},
    ]
    assert list(flattened({"out": []}, names)) == [{}], "an answer without items is an answer"
    many = {"out": [{"name": str(n)} for n in range(1_001)]}
    with pytest.raises(BadText, match="more than 1000 rows"):
        list(flattened(many, names))


def test_an_answer_may_be_taken_as_it_is(tmp_path, pages):
    pages.put("/", "not json")
    windows = (
        SourceWindow(name="Trades", schema=SCHEMA),
        CopyWindow(name="Copy", connectors=(rest(pages.url("/"), esprespurl="q/A", espopaquejson="whole"),)),
        SourceWindow(name="A", schema=Schema.parse("ID*:int64,whole:string")),
    )
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="Trades", target="Copy"),))
    world = World(f"lmdb:{tmp_path / 'bus'}", compile_project(Project(name="desk", queries=(query,))))
    world.prepare()
    world.come_out(4)
    lead = world.engine()
    lead.until(lambda: lead.work.sent == 4)
    lead.die()
    log = world.bus.open(world.streams.input(world.graph.find("q/A")))
    values = [value for _, value in values_between(log, log.bounds().first, log.bounds().next)]
    rows = [one for value in values for one in decode_frame(value, windows[2].schema).batch.events()]
    assert rows == [Event(Opcode.UPSERT, Flag.NORMAL, (4, "not json"))]
    world.close()


def test_what_is_posted_with_it_is_no_secret_that_is_shown():
    from lockstep.engine.model.values import shown

    text = COMMAND + 'resturl=http://h/,httprequestproperties="Authorization:Bearer abc"'
    assert shown("command", text) == "dfesp_rest_subscriber ********"
