"""kill -9 of an engine with a window of the user's: its rows and notices are those of a run without kills."""

from __future__ import annotations

import json
import random
import shutil
import signal
from base64 import b64encode
from pathlib import Path

import pytest
from cli_command import Command
from custom_orders import Sums
from test_engine_kill import TIMEOUT_S, Sparkless, wait_for

from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.model.builder import ProjectBuilder
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.reference.interpreter import Interpreter
from lockstep.engine.runtime.output.event_streams import EventPublisher, out_batches
from lockstep.engine.runtime.output.side_streams import origin_of
from lockstep.engine.runtime.requests.channel import RequestClient
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.streams.client import Lockstep, connect

EVENTS, AHEAD, KILLS = 3_000, 100, 2


@pytest.fixture
def lockstep(tmp_path, request):
    command = (Command if getattr(request, "param", None) == "spark" else Sparkless)(tmp_path)
    command.environ["PYTHONPATH"] = str(Path(__file__).parent)
    yield command
    command.close()


class Shop:
    """The model, its orders in blocks of one to three, and what the interpreter says to them."""

    def __init__(self) -> None:
        project = ProjectBuilder("shop")
        orders = project.query("q").source("Orders", "id*:int64,customer:string,amount:double", insert_only=True)
        orders.custom("Sums", "customer*:string,orders:int64,total:double", Sums)
        self.graph = compile_project(project.build())
        chance = random.Random(7)
        rows = [(n, f"c{chance.randint(0, 99)}", chance.random()) for n in range(1, EVENTS + 1)]
        events = [Event(Opcode.INSERT, Flag.NORMAL, row) for row in rows]
        self.blocks: list[list[Event]] = []
        while events:
            size = chance.randint(1, 3)
            self.blocks.append(events[:size])
            events = events[size:]
        self.sent = 0

    def expected(self, origin: str) -> tuple[list[tuple[int, list[Event]]], list[dict[str, object]]]:
        """Blocks and notices."""
        interpreter, rows, told = Interpreter(self.graph), [], []
        for number, events in enumerate(self.blocks, 1):
            rows.append((number, interpreter.evaluate(InputBlock(number, "Orders", tuple(events)))["q/Sums"]))
        counts: dict[int, int] = {}
        for index, one in enumerate(interpreter.notices):
            index = counts[one.block] = counts.get(one.block, -1) + 1
            told.append(
                {"block": one.block, "window": "q/Sums", "kind": "mail", "number": index,
                 "id": f"{origin}/q/Sums/{one.block}/{index}", "key": one.key, "headers": dict(one.headers),
                 "body": b64encode(one.body or b"").decode(), "index": index}
            )  # fmt: skip
        return rows, told

    def feed(self, publisher: EventPublisher, until: int) -> None:
        """Blocks up to a number."""
        for events in self.blocks[self.sent : until]:
            publisher.publish(events)
        self.sent = max(self.sent, min(until, len(self.blocks)))
        publisher.flush()


def published(client: Lockstep) -> int:
    return last_beat(client.bus.open("local.shop.C")).published


def notices(client: Lockstep) -> list[dict[str, object]]:
    """As a reader takes them, without copies."""
    log, found = client.bus.open("local.shop.N"), []
    for _, value in values_between(log, log.bounds().first, log.bounds().next):
        told = json.loads(value)
        if not found or (told["block"], told["index"]) > (found[-1]["block"], found[-1]["index"]):
            found.append(told)
    return found


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("lockstep", ["sparkless", pytest.param("spark", marks=pytest.mark.soak)], indirect=True)
def test_an_engine_with_a_custom_window_is_killed_and_gives_every_byte_and_notice_once(lockstep, tmp_path):
    # Given a model with a custom window, and what the plain interpreter makes of its orders
    shop = Shop()
    (tmp_path / "shop.yaml").write_text(to_yaml(shop.graph.project))
    url = f"lmdb:{tmp_path / 'bus'}"
    run = ("engine", "run", "shop.yaml", "--url", url, "--publish", "Sums", "--batch", "200",
           "--state", "state", "--persist-to", "kept")  # fmt: skip
    with connect(url) as client:
        streams, (source, sums) = ProjectStreams(cluster="local", project="shop"), shop.graph.nodes
        streams.create(client.bus, shop.graph, frozenset({sums.path}))
        rows, told = shop.expected(origin_of("shop", client.bus.open(streams.sequence).identity))
        publisher = EventPublisher(client, streams.input(source), source.schema)
        # When the engine is killed again and again in the middle of its work
        chance = random.Random(5)
        for turn in range(KILLS):
            engine, before = lockstep.start(*run), published(client)
            target = before + chance.randint(50, 200)

            def is_there(target=target):
                found = published(client)
                shop.feed(publisher, found + AHEAD)
                return found >= target

            wait_for(is_there, engine)
            RequestClient(client.bus, streams, client.runtime).ask("persist", {}, timeout_s=60.0)
            shop.feed(publisher, published(client) + AHEAD)  # it is at work when it dies
            engine.send_signal(signal.SIGKILL)
            engine.communicate()
            if turn == 0:  # it goes on from the pages of the snapshot; then from what it has itself
                shutil.rmtree(tmp_path / "state")
        assert 0 < published(client) < len(shop.blocks)
        shop.feed(publisher, len(shop.blocks))
        # Then a last run finishes it: every row and every notice as if nothing had been
        last = lockstep.start(*run, "--until-idle")
        _, errors = last.communicate(timeout=TIMEOUT_S)
        assert last.returncode == 0, errors
        found = [
            block
            for batch in out_batches(client.bus.open(streams.output(sums)), sums.schema)
            for block in batch.blocks()
        ]
        assert found == rows
        assert notices(client) == told


@pytest.mark.slow
@pytest.mark.acceptance
def test_another_version_of_the_class_is_an_error_before_anything_is_computed(lockstep, tmp_path):
    text = to_yaml(Shop().graph.project).replace("version: '7'", "version: '8'")
    (tmp_path / "shop.yaml").write_text(text)
    engine = lockstep.start("engine", "run", "shop.yaml", "--url", f"lmdb:{tmp_path / 'bus'}", "--until-idle")
    _, errors = engine.communicate(timeout=TIMEOUT_S)
    assert engine.returncode == 2, errors
    for word in (b"MODEL_INVALID", b"q/Sums", b"custom_orders.Sums", b"'7' here", b"version '8'"):
        assert word in errors, errors
