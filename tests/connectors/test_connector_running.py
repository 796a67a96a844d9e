"""Connectors beside an engine: only a leader's work, in the order of their groups, tried again when they fail."""

from __future__ import annotations

import logging
import socket
import threading

import pytest
from connector_worlds import World, connector, csv, model, running, until

from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.runner import Connectors
from lockstep.engine.model.project import ConnectorEntry, ConnectorGroup, GroupEdge


@pytest.fixture
def world_of(tmp_path):
    made = []

    def world(**what) -> World:
        made.append(World(f"lmdb:{tmp_path / 'bus'}", model(**what)))
        return made[-1]

    yield world
    for one in made:
        one.close()


def fs(name, path, direction="pub", **properties):
    return connector("fs", name, type=direction, fsname=path, fstype="csv", **properties)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_standby_runs_none_and_a_leader_all(world_of, tmp_path):
    (tmp_path / "in.csv").write_text(csv(1))
    world, leads = world_of(into=[fs("in", tmp_path / "in.csv")]), threading.Event()
    with running(world, leads.is_set) as connectors:
        assert connectors.states == {"q/Trades/in": "stopped"}
        assert world.taken() == []
        leads.set()
        until(lambda: connectors.states == {"q/Trades/in": "finished"})
        assert world.taken() == [1]
        leads.clear()
        until(lambda: connectors.states == {"q/Trades/in": "stopped"})
        leads.set()
        until(lambda: connectors.states == {"q/Trades/in": "finished"})
    assert world.taken() == [1]


def test_a_group_waits_for_the_groups_before_it(world_of, tmp_path):
    # Given two files, of which the second is to be read when the first is finished
    first, second = fs("first", tmp_path / "1.csv"), fs("second", tmp_path / "2.csv")
    groups = (
        ConnectorGroup(name="later", entries=(ConnectorEntry(connector="q/Trades/second", state="finished"),)),
        ConnectorGroup(name="before", entries=(ConnectorEntry(connector="q/Trades/first", state="finished"),)),
    )
    edges = (GroupEdge(source="before", target="later"),)
    world = world_of(into=[first, second], connector_groups=groups, connector_edges=edges)
    (tmp_path / "2.csv").write_text(csv(2))
    with running(world) as connectors:
        # When the first one is not there yet, the second is not read
        until(lambda: connectors.states["q/Trades/first"] == "started")
        assert connectors.states["q/Trades/second"] == "stopped"
        (tmp_path / "1.csv").write_text(csv(1))
        until(lambda: set(connectors.states.values()) == {"finished"})
    assert world.taken() == [1, 2]


def test_what_has_no_effect_is_named_once(world_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "lockstep")
    (tmp_path / "in.csv").write_text(csv(1))
    with running(world_of(into=[fs("in", tmp_path / "in.csv", prebuffer="true", configfilesection="[x]")])):
        assert "Connector q/Trades/in: no effect here has configfilesection, prebuffer" in caplog.text


RMQ = {"rmqhost": "h", "rmqexchange": "x", "rmqtype": "binary", "urlhostport": "h:1"}


def test_what_is_said_of_a_connector_that_need_not_run_is_read_too(world_of, caplog):
    caplog.set_level(logging.INFO, "lockstep")
    world = world_of(out=[connector("rmq", "out", type="sub", collapse="true", numbufferedmsgs=5, **RMQ)])
    made = Connectors(world.graph, world.client, "local", {}, bound={"q/Copy/out"})
    assert made.planned == []
    assert "Connector q/Copy/out: no effect here has collapse, rmqexchange" in caplog.text
    wrong = world_of(out=[connector("rmq", "out", type="sub", rmqport="x", **RMQ)])
    with pytest.raises(ConnectorRefused, match="rmqport"):
        Connectors(wrong.graph, wrong.client, "local", {}, bound={"q/Copy/out"})


def test_a_connector_that_can_not_be_run_stops_everything_before_it_begins(world_of, tmp_path):
    world = world_of(into=[fs("good", tmp_path / "in.csv"), connector("tva", "bad", type="pub")])
    with pytest.raises(ConnectorRefused, match=r"q/Trades/bad.*vendor ended"), running(world):
        pass


def test_from_one_to_the_other_window_through_files(world_of, tmp_path):
    into, out = [fs("in", tmp_path / "in.csv")], [fs("out", tmp_path / "out.csv", "sub")]
    (tmp_path / "in.csv").write_text(csv(1, 2))
    world = world_of(into=into, out=out)
    with running(world) as connectors:
        until(lambda: connectors.have_read)
        world.come_out(1, 2)
        until(lambda: connectors.have_sent(connectors.published()))
    assert (tmp_path / "out.csv").read_text() == csv(1, 2)


def test_a_socket_is_read_one_connection_after_the_other(world_of):
    port = free_port()
    world = world_of(into=[connector("sock", "in", type="pub", host="", port=port, socktype="csv")])
    with running(world) as connectors:
        for number in (1, 2):
            until(lambda: connectors.states == {"q/Trades/in": "running"})
            link = _connected(port)
            link.sendall(csv(number).encode())
            link.close()
            until(lambda number=number: world.taken() == list(range(1, number + 1)))


def test_a_socket_is_connected_to_and_read_to_its_end(world_of):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        name = f"127.0.0.1:{server.getsockname()[1]}"
        world = world_of(into=[connector("fs", "in", type="pub", fsname=name, fstype="csv")])
        with running(world) as connectors:
            link, _ = server.accept()
            link.sendall(csv(1, 2).encode())
            link.close()
            until(lambda: connectors.states == {"q/Trades/in": "finished"})
    assert world.taken() == [1, 2]


def test_blocks_go_to_a_socket_and_a_side_that_has_gone_is_connected_to_again(world_of, caplog):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        port = server.getsockname()[1]
        world = world_of(out=[connector("sock", "out", type="sub", host="127.0.0.1", port=port, socktype="csv")])
        with running(world):
            for number in (1, 2):
                link, _ = server.accept()
                link.settimeout(30)
                world.come_out(number)
                assert link.recv(1000).decode() == csv(number)
                link.close()
                until(lambda: "the other side has closed" in caplog.text or "reset" in caplog.text)


def _connected(port: int) -> socket.socket:
    found = []

    def attempt() -> bool:
        try:
            found.append(socket.create_connection(("127.0.0.1", port), 1))
        except OSError:
            return False
        return True

    until(attempt)
    return found[0]
