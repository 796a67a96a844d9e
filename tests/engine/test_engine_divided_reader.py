"""Shards on one machine read each piece of input once: what one has read the others take from a file, or do without."""

from __future__ import annotations

import errno
import fcntl
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_worlds import interpret, texts
from local_engine import LocalEngine
from model_strategies import scripts, shardable_models
from run_worlds import HEAD_DAMAGED, told
from test_engine_run_property import feed

from lockstep.core.sequence import SequenceState
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.yaml_form import parse_yaml
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition
from lockstep.engine.runtime.sequence.reader import Range
from lockstep.engine.runtime.worker import divided_input, history
from lockstep.engine.runtime.worker.divided_input import DividedReader, PartCounts, pieces, read_part
from lockstep.errors import DataError
from lockstep.log.batch import NO_PRODUCER, pack

MODEL = """
name: p
queries:
  - name: q
    windows:
      - {kind: source, name: in, insert_only: true, schema: "id*:int64,s:string,x:double,note:string,t:date"}
      - {kind: copy, name: last, retention: bytime_sliding 5 seconds on t}
      - kind: aggregate
        name: sums
        schema: "s*:string,total:double,n:int64"
        fields: {total: ESP_aSum(x), n: ESP_aCount()}
    edges: [in -> last, last -> sums]
"""
PIECE = 8


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces so small that short scripts have several; nobody waits, as shards take turns in one thread."""
    monkeypatch.setattr(divided_input, "PIECE_EVENTS", PIECE)
    monkeypatch.setattr(divided_input, "_WORTH_EVENTS", 1)
    monkeypatch.setattr(divided_input, "_TURN_LOOKS", 0)
    monkeypatch.setattr(divided_input, "_WAIT_S", 0.0)


def graph() -> Graph:
    return compile_project(parse_yaml(MODEL, "the model of a test"))


def row(number: int, **other: object) -> Event:
    values = {"id": number, "s": "äbcdefg"[number % 7], "x": number / 4, "note": f"nr {number}", "t": number // 3}
    return Event(Opcode.INSERT, Flag.NORMAL, tuple({**values, **other}.values()))


def fed(folder: Path, shards: int, blocks: list[list[Event]], entry_events: int = 3) -> LocalEngine:
    """An engine with input that is sequenced, and one first batch after it, so that all shards are at work.

    A bus in memory is called as the folder, so that each needs a name of its own.
    """
    engine = LocalEngine(graph(), frozenset({"q/sums"}), folder, shards=shards, entry_events=entry_events)
    for block in blocks:
        engine.publishers["q/in"].publish(block)
        engine.publishers["q/in"].flush()
    engine.settle()
    engine.run_batch(1)
    return engine


def counts(engine: LocalEngine) -> list[PartCounts]:
    """For each shard, how many events it has read, and how many it has found."""
    found = []
    for worker in engine.workers:
        assert worker is not None
        assert isinstance(worker._reader, DividedReader)
        found.append(worker._reader.counts)
    return found


def files(engine: LocalEngine) -> list[Path]:
    return sorted(engine.setup.parts.glob("*.part"))


def answer(blocks: list[list[Event]], folder: Path) -> object:
    """What one shard gives."""
    engine = fed(folder, 1, blocks)
    engine.run_batch(engine.sequencer.position.number)
    return engine.out("q/sums"), engine.publisher.counts, told(engine, engine.streams.bad)


SOME = [[row(number)] for number in range(1, 121)]


@pytest.mark.parametrize("shards", [2, 3, 4])
def test_each_event_is_read_by_one_shard_and_the_answer_is_that_of_one(tmp_path, shards):
    engine = fed(tmp_path / f"{tmp_path.name}-many", shards, SOME)
    before = [counted.made + counted.alone for counted in counts(engine)]
    engine.run_batch(engine.sequencer.position.number)
    # Nearly every event was read from the log once, by whichever shard came first, and found by all others
    read = sum(counted.made + counted.alone for counted in counts(engine)) - sum(before)
    assert read <= len(SOME) + shards * 2 * PIECE
    assert sum(counted.found for counted in counts(engine)) >= (shards - 1) * (len(SOME) - 4 * PIECE)
    found = engine.out("q/sums"), engine.publisher.counts, told(engine, engine.streams.bad)
    assert found == answer(SOME, tmp_path / f"{tmp_path.name}-one")


def test_shards_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(divided_input, "_TURN_LOOKS", 1_000)
    monkeypatch.setattr(divided_input, "_LOOKS", 1)
    engine = fed(tmp_path, 2, SOME)
    # Given that nobody reads in the place of another, each leaves the pieces whose turn it has
    engine.run_batch(engine.sequencer.position.number)
    first, second = counts(engine)
    assert first.made >= len(SOME) // 3
    assert second.made >= len(SOME) // 3


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path, place: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[int(place * (len(data) - 1))] ^= 4
    path.write_bytes(bytes(data))


DAMAGES = {
    "gone": Path.unlink,
    "cut off": cut_off,
    "empty": emptied,
    "size of head": lambda path: flipped(path, 0.0),
    "head": lambda path: flipped(path, 0.02),
    "middle": flipped,
    "end": lambda path: flipped(path, 1.0),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_read_from_the_logs(tmp_path, damage):
    # Given pieces that a shard has left, each of them damaged before another shard takes it
    engine = fed(tmp_path / f"{tmp_path.name}-many", 2, SOME)
    stop = engine.sequencer.position.number
    for shard, worker in enumerate(engine.workers):
        assert worker is not None
        worker.run(1, stop, lambda shard=shard: engine.stored[shard])
        if not shard:
            assert len(files(engine)) > 3
            for path in files(engine):
                damage(path)
    engine.committed = stop
    engine.publish()
    # Then the answer is the same
    found = engine.out("q/sums"), engine.publisher.counts, told(engine, engine.streams.bad)
    assert found == answer(SOME, tmp_path / f"{tmp_path.name}-one")


def plainly(taken: Range) -> list[object]:
    """What a shard has of a range."""
    batch = taken.span.inputs["q/in"]
    assert batch.own is not None
    columns = [None if column is None else column.to_pylist() for column in (*batch.columns, *batch.own.columns)]
    return [taken.end, batch.block.tolist(), batch.own.rows.tolist(), columns]


def test_no_bit_of_a_file_goes_unseen(tmp_path):
    engine = fed(tmp_path, 2, SOME)
    (first, second), stop = engine.workers, engine.sequencer.position.number
    assert first is not None
    assert second is not None
    first.run(1, stop, lambda: engine.stored[0])
    path = files(engine)[1]
    reader = second._reader
    assert isinstance(reader, DividedReader)
    whole = path.read_bytes()
    good = read_part(path, reader._shares, reader._schemas)
    for place in range(0, len(whole), 7):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        path.write_bytes(bytes(data))
        try:
            found = read_part(path, reader._shares, reader._schemas)
        except DataError:
            continue
        # Only in what the other shard alone looks at, or between sections
        assert plainly(found) == plainly(good)


def test_without_a_folder_every_shard_reads_the_logs(tmp_path):
    (tmp_path / f"{tmp_path.name}-many").mkdir()
    (tmp_path / f"{tmp_path.name}-many" / "spool").mkdir()
    engine = LocalEngine(graph(), frozenset({"q/sums"}), tmp_path / f"{tmp_path.name}-many", shards=2, entry_events=3)
    engine.setup.parts.parent.mkdir(parents=True, exist_ok=True)
    engine.setup.parts.write_text("no folder")
    for block in SOME:
        engine.publishers["q/in"].publish(block)
    engine.settle()
    engine.run_batch(engine.sequencer.position.number)
    assert [counted.found for counted in counts(engine)] == [0, 0]
    assert engine.out("q/sums") == answer(SOME, tmp_path / f"{tmp_path.name}-one")[0]


def test_a_full_disk_leaves_nothing_behind_and_stops_nobody(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(divided_input, "write_all", full)
    engine = fed(tmp_path / f"{tmp_path.name}-many", 2, SOME)
    engine.run_batch(engine.sequencer.position.number)
    assert not [path for path in engine.setup.parts.iterdir() if path.suffix in (".part", ".tmp")]
    assert engine.out("q/sums") == answer(SOME, tmp_path / f"{tmp_path.name}-one")[0]


def test_who_waits_too_long_for_another_shard_reads_the_logs(tmp_path, monkeypatch):
    monkeypatch.setattr(divided_input, "_LOOKS", 2)
    engine = fed(tmp_path / f"{tmp_path.name}-many", 2, SOME)
    # Given pieces that somebody has begun to read, and does not get done
    held = []
    for slot in range(divided_input._SLOTS):
        file = (engine.setup.parts / f"{slot}.claim").open("ab")
        fcntl.flock(file, fcntl.LOCK_EX)
        held.append(file)
    engine.run_batch(engine.sequencer.position.number)
    assert not files(engine)
    assert engine.out("q/sums") == answer(SOME, tmp_path / f"{tmp_path.name}-one")[0]
    for file in held:
        file.close()


def test_the_folder_holds_no_more_than_it_may(tmp_path, monkeypatch):
    engine = fed(tmp_path, 2, SOME)
    engine.run_batch(12)
    monkeypatch.setattr(divided_input, "FOLDER_BYTES", 3 * files(engine)[0].stat().st_size)
    engine.run_batch(engine.sequencer.position.number)
    assert 1 <= len(files(engine)) <= 4
    assert sum(path.stat().st_size for path in files(engine)) <= divided_input.FOLDER_BYTES
    assert [block for block, _ in engine.out("q/sums")] == list(range(1, len(SOME) + 1))


def test_a_shard_that_is_alone_on_its_machine_leaves_nothing(tmp_path):
    engine = LocalEngine(graph(), frozenset({"q/sums"}), tmp_path, shards=2, entry_events=3)
    for block in SOME:
        engine.publishers["q/in"].publish(block)
    engine.settle()
    engine.shards = 1  # the other one is on another machine
    engine.run_batch(engine.sequencer.position.number)
    assert not files(engine)
    (worker, _) = engine.workers
    assert worker is not None
    assert isinstance(worker._reader, DividedReader)
    assert worker._reader.counts == PartCounts()


def test_bad_events_are_told_with_the_fields_that_were_not_read(tmp_path):
    # Given two events with the same key and time in one block, and one without a key
    twice = [row(200, note="good"), row(200, note="bad", x=-1.0), row(201, id=None), row(202)]
    blocks = [*SOME[:30], twice, *SOME[30:60]]
    engine = fed(tmp_path / f"{tmp_path.name}-many", 3, blocks)
    engine.run_batch(engine.sequencer.position.number)
    bad = told(engine, engine.streams.bad)
    assert [(each["reason"], each["values"][3]) for each in bad] == [("duplicate-key", "bad"), ("null-key", "nr 201")]
    assert (engine.out("q/sums"), engine.publisher.counts, bad) == answer(blocks, tmp_path / f"{tmp_path.name}-one")


def with_a_broken_record(folder: Path) -> LocalEngine:
    """An engine of two shards, of whose input one record is no frame; what follows the first entry is to be read."""
    engine = fed(folder, 2, SOME[:30])
    log = engine.bus.open(engine.streams.input(graph().nodes[0]))
    log.append([pack([HEAD_DAMAGED], producer=NO_PRODUCER, sequence=0, created_ns=1)])
    for block in SOME[30:]:
        engine.publishers["q/in"].publish(block)
    engine.settle()
    return engine


def test_what_is_read_of_the_past_again_says_all_that_who_reads_it_first_needs(tmp_path):
    engine = with_a_broken_record(tmp_path)
    (first, second), stop = engine.workers, engine.sequencer.position.number
    assert first is not None
    assert second is not None
    # Given pieces that a shard leaves as it reads them again for a window over the log, and that another one comes to
    assert isinstance(second._history.reader, DividedReader)
    second._history.reader.read(second.position, stop)
    assert second._history.reader.counts.made > len(SOME) - 2 * PIECE
    taken = first._reader.read(first.position, stop)
    assert counts(engine)[0].found > len(SOME) - 2 * PIECE
    # Then it knows which records were none, and the digests of its blocks
    whole = first._full_reader.read(first.position, stop)
    assert [each.block for each in whole.broken] == [31]
    assert (taken.broken, taken.lineage) == (whole.broken, whole.lineage)


def test_a_shard_that_is_late_tells_of_bad_records_although_another_one_left_them_reading_the_past(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(history, "_CACHED_EVENTS", 0)
    monkeypatch.setattr(history, "_CACHED_SPANS", 1)
    engine = with_a_broken_record(tmp_path / f"{tmp_path.name}-many")
    (first, second), stop = engine.workers, engine.sequencer.position.number
    assert first is not None
    assert second is not None
    # Given a shard that is far ahead: what it left as it went had to make room, and it has read it again since
    second.run(1, stop - 1, lambda: engine.stored[1])
    for path in files(engine):
        path.unlink()
    second.run(stop - 1, stop, lambda: engine.stored[1])
    first.run(1, stop, lambda: engine.stored[0])
    engine.committed = stop
    engine.publish()
    bad = told(engine, engine.streams.bad)
    assert [(each["block"], each["reason"]) for each in bad] == [(31, "unparsable")]
    assert counts(engine)[0].found > len(SOME) - 3 * PIECE


@pytest.mark.slow
@pytest.mark.timeout(600)  # a failure is made smaller before it is shown
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_files_that_come_go_and_break_do_not_show(data):
    graph = data.draw(shardable_models())
    blocks = data.draw(scripts(graph))
    all_rows = data.draw(st.booleans(), label="source published")  # then one shard takes all rows, and reads for itself
    wanted = frozenset(node.path for node in graph.nodes if all_rows or not node.is_source)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(divided_input, "PIECE_EVENTS", data.draw(st.sampled_from([1, 2, 5]), label="piece"))
        engine = LocalEngine(graph, wanted, Path(folder), shards=data.draw(st.integers(2, 4), label="shards"))
        feed(engine, blocks)
        while engine.committed < engine.sequencer.position.number:
            stop = data.draw(st.integers(engine.committed + 1, engine.sequencer.position.number), label="stop")
            fate = data.draw(st.sampled_from(["fine", "fine", "killed", "unpublished", "restarted"]), label="fate")
            engine.run_batch(stop, commit=fate != "killed", publish=fate != "unpublished")
            for path in filter(Path.is_file, files(engine)):
                damage = data.draw(st.sampled_from(["", "", "", *DAMAGES]), label=path.name)
                if damage:
                    DAMAGES[damage](path)
            if fate != "fine":
                engine.restart(snapshot_every_s=data.draw(st.sampled_from([0.0, 1e9]), label="snapshots"))
        expected = interpret(graph, blocks)
        for path in sorted(wanted):
            found = [line for number, events in engine.out(path) for line in texts(number, events)]
            assert found == expected.answer[path], path
        assert engine.publisher.counts == expected.counts


@given(
    sizes=st.lists(st.sampled_from([0, 0, 1, 2, 3, 9, 20]), min_size=1, max_size=30),
    turns=st.sets(st.integers(1, 30), max_size=2),
    data=st.data(),
)
def test_shards_find_the_same_pieces_wherever_they_begin(sizes, turns, data):
    # Given entries of these sizes
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    log = [
        (
            SequenceState(number=number, digest=str(number)),
            Decision({}, ends[number], ends[number], reset=number in turns),
        )
        for number in range(1, len(ends))
    ]

    def found(start: int, upto: int, max_events: int | None) -> list[tuple[int, int, bool]]:
        position = SequencePosition(SequenceState(number=start, digest=str(start)), events=ends[start])
        made = list(pieces(iter(log[start:]), position, upto, max_events))
        return [
            (a, piece.last, piece.is_whole) for (a, piece) in zip([start, *(m.last for m in made)], made, strict=False)
        ]

    # When one begins here, and another one there
    whole = found(0, len(sizes), None)
    start = data.draw(st.integers(0, len(sizes) - 1))
    upto = data.draw(st.integers(start + 1, len(sizes)))
    some = found(start, upto, data.draw(st.none() | st.integers(1, 30)))
    # Then both cover entries without a gap, none past the next turn
    for each in (whole, some):
        assert all(last > first for first, last, _ in each)
    assert some[0][0] == start
    assert some[-1][1] <= upto
    assert not any(start + 1 < turn <= some[-1][1] for turn in turns)
    # And no whole piece of one cuts a whole piece of the other in two
    spans = {(first, last) for first, last, is_whole in [*whole, *some] if is_whole}
    for (first, last), (second, end) in pairwise(sorted(spans)):
        assert second >= last or (first, last) == (second, end)
