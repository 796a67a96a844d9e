"""Connectors of class websocket against a server: messages become events, and a lost connection is made again."""

from __future__ import annotations

import json

import pytest
from connector_worlds import World, connector, model, running, until
from web_servers import Sockets

from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.properties import read_properties
from lockstep.connectors.websockets import Wanted

CONFIG = """<websocket-connector><generate>0</generate>
 <event-loops><event-loop-json name='each'><use-json>#_content</use-json><json>$.list</json><function-context>
 <functions><function name='ID'>json(#_context,'id')</function></functions></function-context></event-loop-json>
 </event-loops></websocket-connector>"""


def message(*numbers: int) -> str:
    return json.dumps({"list": [{"id": number} for number in numbers]})


@pytest.fixture
def world_of(tmp_path):
    made = []

    def world(**given) -> World:
        link = connector("websocket", "ws", type="pub", **{"config": CONFIG, **given})
        made.append(World(f"lmdb:{tmp_path / 'bus'}", model(into=[link])))
        return made[-1]

    yield world
    for one in made:
        one.close()


def test_messages_are_events_and_a_lost_connection_is_made_again(world_of, caplog):
    with Sockets() as server:
        url = f"ws://127.0.0.1:{server.port}/feed?token=s3cret"
        world = world_of(url=url, requestheaders="X-Key: k1, X-Other: o")
        with running(world) as connectors:
            server.send(message(1, 2), message(3), "not json", message(4).encode(), drop=True)
            until(lambda: world.taken() == [1, 2, 3, 4])
            server.send(message(5))
            until(lambda: world.taken() == [1, 2, 3, 4, 5])
            assert connectors.states == {"q/Trades/ws": "running"}
        assert server.headers[0]["X-Key"] == "k1"
    assert "the other side has closed" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_server_that_is_not_there_is_tried_again(world_of, caplog):
    world = world_of(url="ws://127.0.0.1:1/feed?token=s3cret")
    with running(world) as connectors:
        until(lambda: "is tried again" in caplog.text)
        assert connectors.states == {"q/Trades/ws": "started"}
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "has no url"),
        ({"url": "http://h/"}, "ws://HOST"),
        ({"url": "ws://169.254.169.254/"}, "link-local"),
        ({"url": "ws://h/", "contenttype": "csv"}, "contenttype"),
        ({"url": "ws://h/", "requestheaders": "x"}, "NAME:VALUE"),
        ({"url": "ws://h/", "configurl": "file://c"}, "both"),
    ],
)  # fmt: skip
def test_properties_that_are_wrong_are_refused(given, why):
    with pytest.raises(ConnectorRefused) as raised:
        Wanted.of(read_properties("q/w/c", "websocket", "pub", {"type": "pub", "config": CONFIG, **given}), {})
    assert why in f"{raised.value} {raised.value.advice}"
