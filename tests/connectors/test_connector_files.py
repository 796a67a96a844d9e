"""Files to and from windows: what was read is read once, what was written is there once, whoever takes over."""

from __future__ import annotations

import logging
import struct

import pytest
from connector_worlds import SCHEMA, World, connector, csv, event, model, running, until

from lockstep.connectors.errors import ConnectorDown
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Flag
from lockstep.engine.events.frames import read_head
from lockstep.events.rows import frame_with_length


@pytest.fixture
def world_of(tmp_path):
    made = []

    def world(**what) -> World:
        made.append(World(f"lmdb:{tmp_path / 'bus'}", model(**what)))
        return made[-1]

    yield world
    for one in made:
        one.close()


def from_file(path, **properties):
    return [connector("fs", "in", type="pub", fsname=path, fstype="csv", **properties)]


def to_file(path, **properties):
    return [connector("fs", "out", type="sub", fsname=path, **{"fstype": "csv", **properties})]


def lines_of(path) -> list[int]:
    return [int(line.split(",")[2]) for line in path.read_text().splitlines()]


# --- in -----------------------------------------------------------------------------------------------------------


def test_a_file_is_read_to_its_end(world_of, tmp_path):
    (tmp_path / "in.csv").write_text("opcode,flags,ID\n" + csv(*range(1, 11)))
    world = world_of(into=from_file(tmp_path / "in.csv", header=1, blocksize=3))
    engine = world.engine()
    assert engine.step() is True
    engine.die()
    assert world.taken() == list(range(1, 11))


def test_who_takes_over_goes_on_behind_the_last_block_of_the_input(world_of, tmp_path):
    # Given a growing file of which the first engine has read a part
    file = tmp_path / "in.csv"
    file.write_text(csv(1, 2, 3))
    world = world_of(into=from_file(file, blocksize=2, growinginputfile="true"))
    with running(world):
        until(lambda: world.taken() == [1, 2])
    # When it dies, the file grows, and another one leads
    with file.open("a") as more:
        more.write(csv(4, 5, 6))
    with running(world):
        until(lambda: world.taken() == [1, 2, 3, 4, 5, 6])


def test_an_old_leader_that_wakes_adds_nothing(world_of, tmp_path):
    (tmp_path / "in.csv").write_text(csv(*range(1, 8)))
    world = world_of(into=from_file(tmp_path / "in.csv", blocksize=2))
    old, new = world.engine(), world.engine()
    assert new.step() is True
    assert old.step() is True
    old.die()
    new.die()
    assert world.taken() == list(range(1, 8))


def test_a_line_that_is_not_whole_yet_waits(world_of, tmp_path):
    file = tmp_path / "in.csv"
    file.write_text(csv(1) + "I,N,2,s2,")
    world = world_of(into=from_file(file, growinginputfile="true"))
    with running(world):
        until(lambda: world.taken() == [1])
        with file.open("a") as more:
            more.write("1.0\n")
        until(lambda: world.taken() == [1, 2])


def test_repeats_and_a_most(world_of, tmp_path):
    (tmp_path / "in.csv").write_text("1;a;0.5\n2;b;1.0\n3;c;1.5\n")
    wish = {"addcsvopcode": "insert", "addcsvflags": "normal", "csvfielddelimiter": ";", "publishwithupsert": "true"}
    world = world_of(into=from_file(tmp_path / "in.csv", repeatcount=1, maxevents=5, **wish))
    engine = world.engine()
    assert engine.step() is True
    engine.die()
    assert world.taken() == [1, 2, 3, 1, 2]


def test_a_json_file(world_of, tmp_path):
    (tmp_path / "in.json").write_text('{"ID":1,"symbol":"a","price":0.5}\n{"ID":2,"symbol":"b","price":1}\n')
    world = world_of(into=[connector("fs", "in", type="pub", fsname=tmp_path / "in.json", fstype="json")])
    engine = world.engine()
    assert engine.step() is True
    engine.die()
    assert world.taken() == [1, 2]


def test_a_binary_file(world_of, tmp_path):
    batches = [EventBatch.of(SCHEMA, [(n, [event(2 * n), event(2 * n + 1)])]) for n in (1, 2)]
    (tmp_path / "in.bin").write_bytes(b"".join(frame_with_length(batch) for batch in batches))
    world = world_of(into=[connector("fs", "in", type="pub", fsname=tmp_path / "in.bin", fstype="binary")])
    engine = world.engine()
    assert engine.step() is True
    assert engine.work.last == 2
    engine.die()
    assert world.taken() == [2, 3, 4, 5]


def test_bad_lines_are_told_and_left_out(world_of, tmp_path, caplog):
    (tmp_path / "in.csv").write_text(csv(1) + "nonsense\n" + csv(2))
    world = world_of(into=from_file(tmp_path / "in.csv"))
    engine = world.engine()
    assert engine.step() is True
    engine.die()
    assert world.taken() == [1, 2]
    assert "q/Trades/in left out line 2" in caplog.text


def test_a_file_that_is_not_there_yet_is_waited_for(world_of, tmp_path, caplog):
    world = world_of(into=from_file(tmp_path / "in.csv"))
    with running(world) as connectors:
        until(lambda: "tried again" in caplog.text)
        (tmp_path / "in.csv").write_text(csv(1))
        until(lambda: connectors.states == {"q/Trades/in": "finished"})
    assert world.taken() == [1]


# --- out ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "json", "binary"])
def test_killed_between_writing_and_noting_nothing_is_lost_or_doubled(world_of, tmp_path, form, monkeypatch):
    # Given a connector that has written blocks 1 and 2, and noted it
    out = tmp_path / "out"
    world = world_of(out=to_file(out, fstype=form))
    world.prepare()
    first = world.engine()
    world.come_out(1, 2)
    first.until(lambda: first.work.sent == 2)
    # When it writes 3 and 4 and is killed before it notes that; of a further block half is on the disk
    world.come_out(3, 4)
    monkeypatch.setattr(first.work._notes, "write", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        first.until(lambda: first.work.sent == 4)
    monkeypatch.undo()
    with out.open("ab") as torn:
        torn.write(struct.pack("<I", 300) + b"LE")
    first.die()
    # Then the next one makes the file what an undisturbed run makes it
    second = world.engine()
    world.come_out(5)
    second.until(lambda: second.work.sent == 5)
    second.die()
    undisturbed = tmp_path / "undisturbed"
    other = World(f"lmdb:{tmp_path / 'other'}", model(out=to_file(undisturbed, fstype=form)))
    other.prepare()
    only = other.engine()
    other.come_out(1, 2, 3, 4, 5)
    only.until(lambda: only.work.sent == 5)
    only.die()
    other.close()
    assert out.read_bytes() == undisturbed.read_bytes()


def test_binary_blocks_carry_their_numbers(world_of, tmp_path):
    out = tmp_path / "out"
    world = world_of(out=to_file(out, fstype="binary"))
    world.prepare()
    engine = world.engine()
    world.come_out(3, 7)
    engine.until(lambda: engine.work.sent == 7)
    engine.die()
    data, found = out.read_bytes(), []
    while data:
        size = int.from_bytes(data[:4], "little")
        found.append(read_head(data[4 : 4 + size]).last)
        data = data[4 + size :]
    assert found == [3, 7]


def test_what_came_out_before_the_first_engine_led_is_sent(world_of, tmp_path):
    world = world_of(out=to_file(tmp_path / "out.csv"))
    world.prepare()
    world.come_out(1, 2)
    engine = world.engine()
    engine.until(lambda: engine.work.sent == 2)
    engine.die()
    assert lines_of(tmp_path / "out.csv") == [1, 2]


def test_without_a_snapshot_only_what_is_new_comes(world_of, tmp_path):
    world = world_of(out=to_file(tmp_path / "out.csv", snapshot="false"))
    world.come_out(1, 2)
    world.prepare()
    engine = world.engine()
    world.come_out(3)
    engine.until(lambda: engine.work.sent == 3)
    engine.die()
    assert lines_of(tmp_path / "out.csv") == [3]


def test_with_a_snapshot_the_rows_come_first_and_once(world_of, tmp_path):
    world = world_of(out=to_file(tmp_path / "out.csv", snapshot="true"))
    world.blocks_come_out((1, [event(1)]), (2, [event(2)]), (3, [event(1, "D")]))
    world.prepare()
    for number in (4, 5):
        engine = world.engine()
        world.come_out(number)
        engine.until(lambda engine=engine, number=number: engine.work.read == number)
        engine.die()
    assert lines_of(tmp_path / "out.csv") == [2, 4, 5]


def test_collapse_rmretdel_and_a_header(world_of, tmp_path):
    out = tmp_path / "out.csv"
    world = world_of(out=to_file(out, collapse="true", rmretdel="true", header="true"))
    world.prepare()
    engine = world.engine()
    world.blocks_come_out(
        (1, [event(1)]), (2, [event(1, "UB"), event(1, "D")]), (3, [event(1, "D", Flag.RETENTION)]), (4, [event(4)])
    )
    engine.until(lambda: engine.work.read == 4)
    engine.die()
    lines = out.read_text().splitlines()
    assert lines[0].endswith("ID,symbol,price")
    assert [line[:4] for line in lines[1:]] == ["I,N,", "U,N,", "I,N,"]


def test_two_engines_never_write_to_the_file_at_once(world_of, tmp_path):
    world = world_of(out=to_file(tmp_path / "out.csv"))
    world.prepare()
    asleep = world.engine()
    with pytest.raises(ConnectorDown, match="another engine has it open"):
        world.engine()
    asleep.die()
    world.engine().die()


def test_a_takeover_is_told_and_a_gap_above_the_buffer_is_warned_of(world_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "lockstep")
    world = world_of(out=to_file(tmp_path / "out.csv", numbufferedmsgs=2))
    world.prepare()
    world.come_out(1, 2, 3)
    engine = world.engine()
    engine.until(lambda: engine.work.sent == 3)
    engine.die()
    said = [record.getMessage() for record in caplog.records]
    assert said[:2] == [
        "Standby sending buffered messages, last message id = 0, current message id = 3 (q/Copy/out)",
        "Standby synced, current message id = 3 (q/Copy/out)",
    ]
    assert "numbufferedmsgs = 2; nothing was lost" in said[2]


def test_a_file_that_was_taken_away_goes_on_with_what_is_new(world_of, tmp_path):
    out = tmp_path / "out.csv"
    world = world_of(out=to_file(out))
    world.prepare()
    first = world.engine()
    world.come_out(1)
    first.until(lambda: first.work.sent == 1)
    first.die()
    out.unlink()
    second = world.engine()
    world.come_out(2)
    second.until(lambda: second.work.sent == 2)
    second.die()
    assert lines_of(out) == [2]


def test_what_a_connector_writes_another_reads(world_of, tmp_path):
    out = tmp_path / "blocks"
    world = world_of(out=to_file(out, fstype="binary"))
    world.prepare()
    engine = world.engine()
    world.come_out(1, 2)
    engine.until(lambda: engine.work.sent == 2)
    engine.die()
    into = [connector("fs", "in", type="pub", fsname=out, fstype="binary")]
    other = World(f"lmdb:{tmp_path / 'other'}", model(into=into))
    reader = other.engine()
    assert reader.step() is True
    reader.die()
    assert other.taken() == [1, 2]
    other.close()
