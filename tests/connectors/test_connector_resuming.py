"""Where a subscriber connector goes on when its target or its stream is not as it left them."""

from __future__ import annotations

import pytest
from connector_worlds import World, connector, model, running, until

from lockstep.connectors.errors import OutputForgot, TargetAhead
from lockstep.connectors.port import Note
from lockstep.core.outputs import Barrier
from lockstep.engine.runtime.output.outlet import encode_barrier
from lockstep.events.rows import read_frames
from lockstep.log.batch import NO_PRODUCER, pack


@pytest.fixture
def worlds(tmp_path):
    made = {}

    def world(bus: str = "bus", **properties) -> World:
        out = connector("fs", "out", type="sub", fsname=tmp_path / "out", **{"fstype": "binary", **properties})
        made[bus] = World(f"lmdb:{tmp_path / bus}", model(out=[out]))
        made[bus].prepare()
        return made[bus]

    yield world
    for one in made.values():
        one.close()


def send(world: World, *blocks: int) -> None:
    """An engine that leads until these blocks are sent, and dies."""
    engine = world.engine()
    world.come_out(*blocks)
    engine.until(lambda: engine.work.sent == blocks[-1])
    engine.die()


def out_log(world: World):
    return world.bus.open(world.streams.output(world.graph.find("q/Copy")))


def barrier(world: World) -> None:
    """As a new leader signs the stream."""
    value = encode_barrier(Barrier(2, "b"))
    out_log(world).append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0)])


def numbers(world: World, path) -> list[int]:
    schema = world.graph.find("q/Copy").schema
    with (path / "out").open("rb") as file:
        return [event.values[0] for batch in read_frames(file, schema, "out") for event in batch.events()]


def test_a_target_that_is_ahead_of_the_stream_is_told_with_both_numbers(worlds, tmp_path):
    # Given a target with three blocks, and a bus that begins anew
    send(worlds(), 1, 2, 3)
    emptied = worlds("emptied")
    before = (tmp_path / "out").read_bytes()
    with pytest.raises(TargetAhead, match=r"q/Copy/out found block 3 .* ended with block 0"):
        emptied.engine()
    # When the stream has caught up, its blocks are still others than those of the same numbers there
    emptied.come_out(1, 2, 3, 4)
    with pytest.raises(TargetAhead, match=r"block 3 .* block 0"):
        emptied.engine()
    assert (tmp_path / "out").read_bytes() == before
    # Then a target that was emptied gets everything
    (tmp_path / "out").unlink()
    send(emptied, 5)
    assert numbers(emptied, tmp_path) == [1, 2, 3, 4, 5]


def test_blocks_that_came_out_before_the_target_was_opened_hide_nothing(worlds):
    send(worlds(), 1, 2, 3)
    emptied = worlds("emptied")
    emptied.come_out(1, 2, 3, 4)
    with pytest.raises(TargetAhead, match=r"block 3 .* block 0"):
        emptied.engine()


def test_a_connector_whose_target_is_ahead_stands_still(worlds, tmp_path, caplog):
    send(worlds(), 1, 2, 3)
    with running(worlds("emptied")) as connectors:
        until(lambda: "TARGET_AHEAD" in caplog.text)
        assert connectors.states == {"q/Copy/out": "started"}


def test_a_stream_that_was_lost_behind_the_notes_is_told(worlds):
    """A text file can't tell what it has: the note does."""
    world = worlds(fstype="csv")
    send(world, 1, 2, 3)
    world.bus.delete(out_log(world).name)
    world.bus.delete(world.streams.control)
    world.streams.create(world.bus, world.graph, frozenset({"q/Copy"}))
    with pytest.raises(TargetAhead, match=r"block 3 .* block 0"):
        world.engine()


def test_killed_between_its_very_first_block_and_the_note_nothing_is_lost_or_doubled(worlds, tmp_path, monkeypatch):
    world = worlds()
    first = world.engine()
    world.come_out(1, 2)
    monkeypatch.setattr(first.work._notes, "write", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        first.until(lambda: False)
    monkeypatch.undo()
    first.die()
    send(world, 3)
    assert numbers(world, tmp_path) == [1, 2, 3]


def test_what_has_no_block_is_noted_when_nothing_is_to_be_sent(worlds):
    world = worlds()
    send(world, 1)
    barrier(world)
    engine = world.engine()
    notes = world.workshop.notes(world.only())
    engine.until(lambda: notes.last().more["position"]["offset"] == out_log(world).bounds().next)
    assert notes.last().at == 1
    engine.die()


def test_a_stream_that_was_trimmed_behind_what_was_sent_is_gone_on_with(worlds, tmp_path):
    # Given a new leader's sign after the last block, and a stream trimmed up to there
    world = worlds()
    send(world, 1, 2)
    barrier(world)
    out_log(world).trim(out_log(world).bounds().next)
    # Then nothing is missing, and what comes is sent
    send(world, 3)
    assert numbers(world, tmp_path) == [1, 2, 3]


def test_blocks_that_are_gone_from_the_stream_are_named(worlds, tmp_path):
    world = worlds()
    send(world, 1, 2)
    for block in (3, 4, 5):
        world.come_out(block)
    out_log(world).trim(out_log(world).bounds().next - 1)
    with pytest.raises(OutputForgot, match=r"up to block 2; blocks 3 to 4 are gone"):
        world.engine()


def test_a_target_that_lost_what_is_trimmed_by_now_is_told(worlds, tmp_path):
    world = worlds()
    for block in (1, 2, 3):
        send(world, block)
    notes = world.workshop.notes(world.only())
    noted = notes.last()
    out_log(world).trim(2)
    with (tmp_path / "out").open("r+b") as file:  # as if the target had kept block 1 only
        file.truncate((tmp_path / "out").stat().st_size // 3)
    notes.write(Note(noted.at, {**noted.more, "bytes": 0}))
    with pytest.raises(OutputForgot, match=r"up to block 1; blocks 2 to 2 are gone"):
        world.engine()
