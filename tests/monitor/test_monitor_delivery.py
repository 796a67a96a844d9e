"""Handlers and mutators, letters I10 to I16 of Sensu's pipeline: each type against a real receiver."""

from __future__ import annotations

import json
import logging
import socket
import threading
from contextlib import closing
from importlib.metadata import EntryPoint

import pytest

from lockstep.errors import DeliveryRefused, ServerUnreachable, SystemFailed
from lockstep.monitor import delivery
from lockstep.monitor.delivery import HandlerDelivery
from lockstep.streams.client import connect
from lockstep.streams.outbox import Item

EVENT = {
    "id": "e1", "client": {"name": "web-1"}, "action": "create", "occurrences": 1,
    "check": {"name": "disk", "status": 2, "output": "full\n"},
}  # fmt: skip


def item(handler, event=EVENT, filters=()):
    body = json.dumps({"handler": handler, "event": event, "filters": [*filters]}).encode()
    return Item("e1.1.log", "handle", b"web-1/disk/log", body, (), "n", 0, 1, in_doubt=False, epoch=1)


@pytest.fixture
def bus():
    with connect("memory:") as made:
        yield made


@pytest.fixture
def handed(bus):
    """Hands EVENT to a handler of a definition."""

    def hand(definition, mutators=None, pipes=None, **more):
        settings = {"handlers": {"log": definition}, "mutators": mutators or {}}
        HandlerDelivery(bus, lambda: settings, {"PATH": "/usr/bin:/bin"}, pipes)(item("log", **more))

    return hand


@pytest.fixture
def extensions(monkeypatch):
    """Registers functions as entry points of a group."""
    found = {}

    def entry_points(group):
        made = []
        for name, function in found.get(group, {}).items():
            entry = EntryPoint(name, "made:here", group)
            object.__setattr__(entry, "load", lambda function=function: function)
            made.append(entry)
        return made

    monkeypatch.setattr(delivery, "entry_points", entry_points)
    return found


class TestMutators:
    @pytest.mark.parametrize(("mutator", "given"), [
        (None, EVENT), ("json", EVENT), ("ruby_hash", EVENT), ("only_check_output", "full\n"),
    ])  # fmt: skip
    def test_built_in_ones(self, handed, tmp_path, mutator, given):
        definition = {"type": "pipe", "command": f"cat > {tmp_path}/got"}
        handed(definition | ({"mutator": mutator} if mutator else {}))
        text = (tmp_path / "got").read_text()
        assert (json.loads(text) if isinstance(given, dict) else text) == given

    def test_a_command_gets_the_event_and_its_output_goes_to_the_handler(self, handed, tmp_path):
        mutators = {"short": {"command": "tr -d '{}\"' | head -c 5; echo 'not this' >&2"}}
        handed({"type": "pipe", "command": f"cat > {tmp_path}/got", "mutator": "short"}, mutators)
        assert (tmp_path / "got").read_text() == "id:e1"

    @pytest.mark.parametrize(("mutators", "words"), [
        ({"m": {"command": "echo broken >&2; exit 3"}}, "'m' ended with 3: broken"),
        ({"m": {"command": "sleep 60", "timeout": 0.1}}, "'m' ran for too long"),
        ({}, "no extension 'm'"),
    ])  # fmt: skip
    def test_one_that_fails_drops_the_event_and_says_why(self, handed, tmp_path, mutators, words):
        with pytest.raises(DeliveryRefused, match=words):
            handed({"type": "pipe", "command": f"touch {tmp_path}/ran", "mutator": "m"}, mutators)
        assert not (tmp_path / "ran").exists()

    def test_an_extension_is_an_entry_point(self, handed, extensions, tmp_path):
        extensions[delivery.MUTATORS] = {"name": lambda event: event["client"]["name"]}
        handed({"type": "pipe", "command": f"cat > {tmp_path}/got", "mutator": "name"})
        assert (tmp_path / "got").read_text() == "web-1"


class TestPipe:
    def test_the_command_is_told_the_id_and_its_output_is_logged(self, handed, caplog):
        caplog.set_level(logging.INFO, "lockstep")
        handed({"type": "pipe", "command": "cat > /dev/null; echo sent $LOCKSTEP_DELIVERY_ID; echo twice >&2"})
        (record,) = [each for each in caplog.records if getattr(each, "action", "") == "handler_output"]
        assert record.levelname == "INFO"
        assert record.output == "sent e1.1.log twice"

    def test_one_that_fails_is_not_run_again_and_its_output_is_logged_as_an_error(self, handed, caplog):
        with pytest.raises(DeliveryRefused, match="ended with 2: no such pager"):
            handed({"type": "pipe", "command": "echo no such pager; exit 2"})
        (record,) = [each for each in caplog.records if getattr(each, "action", "") == "handler_output"]
        assert record.levelname == "ERROR"

    def test_one_that_says_so_is_tried_again(self, handed):
        with pytest.raises(SystemFailed, match="75"):
            handed({"type": "pipe", "command": "exit 75"})

    def test_one_that_takes_too_long_is_ended(self, handed):
        with pytest.raises(DeliveryRefused, match=r"longer than 0\.1 s"):
            handed({"type": "pipe", "command": "sleep 60", "timeout": 0.1})

    def test_what_is_running_ends_when_the_server_does(self, bus, tmp_path):
        running, ended = tmp_path / "running", []
        settings = {"handlers": {"log": {"type": "pipe", "command": f"touch {running}; sleep 60"}}}
        handler = HandlerDelivery(bus, lambda: settings, {"PATH": "/usr/bin:/bin"})

        def run():
            try:
                handler(item("log"))
            except DeliveryRefused as error:
                ended.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        while not running.exists():
            thread.join(0.01)
        handler.close()
        thread.join(30)
        assert not thread.is_alive()
        assert "-9" in ended[0]


class TestSockets:
    def test_tcp_sends_and_closes(self, handed):
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            handed({"type": "tcp", "socket": {"host": "127.0.0.1", "port": server.getsockname()[1]}})
            connection, _ = server.accept()
            with closing(connection):
                assert json.loads(connection.makefile("rb").read()) == EVENT

    def test_tcp_without_data_is_not_sent(self, handed):
        handed({"type": "tcp", "socket": {"host": "127.0.0.1", "port": 1}, "mutator": "only_check_output"},
               event={**EVENT, "check": {"output": ""}})  # fmt: skip

    def test_nobody_there_is_tried_again(self, handed):
        with pytest.raises(ServerUnreachable):
            handed({"type": "tcp", "socket": {"host": "127.0.0.1", "port": 1}})

    def test_udp_sends_one_datagram(self, handed):
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
            server.bind(("127.0.0.1", 0))
            server.settimeout(10)
            definition = {"type": "udp", "socket": {"host": "127.0.0.1", "port": server.getsockname()[1]}}
            handed(definition)
            assert json.loads(server.recv(65536)) == EVENT
            with pytest.raises(DeliveryRefused, match="do not fit"):
                handed(definition, event={**EVENT, "check": {"output": "x" * 70_000}})


class Pipes:
    def __init__(self):
        self.published = []

    def publish(self, kind, pipe, message):
        self.published.append((kind, pipe, message))


class TestOthers:
    def test_transport_publishes_to_a_pipe_and_nothing_that_is_empty(self, handed):
        pipes = Pipes()
        definition = {"type": "transport", "pipe": {"type": "topic", "name": "events"}, "mutator": "only_check_output"}
        handed(definition, pipes=pipes)
        handed(definition, pipes=pipes, event={**EVENT, "check": {"output": ""}})
        assert pipes.published == [("topic", "events", b"full\n")]

    def test_transport_needs_one(self, handed):
        with pytest.raises(DeliveryRefused, match="needs a transport"):
            handed({"type": "transport", "pipe": {"type": "direct", "name": "events"}})

    def test_stream(self, handed, bus):
        handed({"type": "stream", "stream": "told"})
        with bus.subscriber("told", initial="earliest") as subscriber:
            (record,) = subscriber.poll(timeout=10)
        assert json.loads(record.value) == EVENT

    @pytest.mark.parametrize("definition", [{"type": "python", "function": "pager"}, {"type": "extension"}])
    def test_python_is_an_entry_point(self, handed, extensions, definition):
        got = []
        extensions[delivery.HANDLERS] = {"pager": lambda event, item: got.append((event, item.id))}
        extensions[delivery.HANDLERS]["log"] = extensions[delivery.HANDLERS]["pager"]
        handed(definition)
        assert got == [(EVENT, "e1.1.log")]

    def test_a_handler_that_this_server_does_not_have_is_refused(self, bus):
        with pytest.raises(DeliveryRefused, match="no handler 'log'"):
            HandlerDelivery(bus, dict, {})(item("log"))

    @pytest.mark.parametrize(("status", "told"), [(0, 0), (1, 1)])
    def test_a_filter_extension_holds_back_with_0(self, handed, extensions, status, told):
        got = []
        extensions[delivery.HANDLERS] = {"log": lambda event, _: got.append(event)}
        extensions[delivery.FILTERS] = {"night": lambda _: status}
        handed({"type": "extension"}, filters=["night"])
        assert len(got) == told

    def test_a_filter_that_is_not_known_lets_pass(self, handed, extensions):
        got = []
        extensions[delivery.HANDLERS] = {"log": lambda event, _: got.append(event)}
        handed({"type": "extension"}, filters=["none"])
        assert len(got) == 1
