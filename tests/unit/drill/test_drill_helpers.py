"""The publisher and the subscriber of a drill, killed wherever that can hurt; on a bus in memory."""

from __future__ import annotations

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.drill.arrivals import Notes, parse
from lockstep.drill.check import Account, account, reference
from lockstep.drill.plan import Pace
from lockstep.drill.publisher import Permission, Progress, client_id, send
from lockstep.drill.scene import MODEL, PublishErrand, SubscribeErrand, scene, write_model
from lockstep.drill.subscriber import Taking
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Span
from lockstep.engine.events.csv_format import CsvOptions, read_csv, write_csv
from lockstep.engine.events.frames import cut_frames, read_head
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.sequence.entries import BlockCounter, SequencePosition
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.streams.client import connect

EVENTS, BLOCK = 300, 2


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The model, trades, what must come out of them, and that in frames."""
    folder = tmp_path_factory.mktemp("world")
    write_model(folder / MODEL)
    place = scene(folder / MODEL, "drill")
    known = reference(place, folder / "cache", events=EVENTS, block=BLOCK, seed=3)
    evaluator = Evaluator(place.graph, wanted=frozenset({place.window.path}))
    (batch,) = read_csv(known.events, place.source.schema, CsvOptions(block_size=BLOCK), pytest.fail)
    span = Span(1, EVENTS // BLOCK, {place.source.path: batch})
    frames = cut_frames(evaluator.evaluate(span).outputs[place.window.path], max_bytes=1_500, previous=0)
    assert len(frames) > 20
    return place, known, frames


def test_the_reference_is_made_once_and_is_what_the_windows_give(world, tmp_path):
    place, known, _frames = world
    assert known.rows["trades/TradesSource"] == EVENTS
    again = reference(place, known.events.parent.parent, events=EVENTS, block=BLOCK, seed=3)
    assert again.expected == known.expected
    other = reference(place, tmp_path, events=EVENTS, block=BLOCK, seed=4)
    assert other.expected.read_bytes() != known.expected.read_bytes()


def taking(world, folder):
    place, _known, _ = world
    errand = SubscribeErrand(
        url="", model="", cluster="drill", block=BLOCK, events=EVENTS, until=EVENTS // BLOCK,
        file=str(folder / "out.csv"), arrivals=str(folder / "arrivals"),
    )  # fmt: skip
    for name in ("out.csv", "arrivals"):
        (folder / name).touch()
    file, notes = (folder / "out.csv").open("r+b"), (folder / "arrivals").open("r+b")
    return Taking(errand, place, file, notes), file, notes


kills = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(["clean", "unnoted", "torn"]), st.integers(1, 30)), max_size=8
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(kills)
def test_a_subscriber_killed_at_any_moment_writes_the_same_file(world, tmp_path_factory, kills):
    _place, known, frames = world
    folder = tmp_path_factory.mktemp("subscriber")
    for number, how, size in [*kills, (len(frames), "clean", 0)]:
        reader, file, notes = taking(world, folder)
        for offset in range(reader.offset, min(reader.offset + number, len(frames))):
            reader.take(offset, frames[offset])
        if how == "unnoted":  # killed when the lines were written and the note was not
            file.write(b"I,N,half a line"[:size])
        elif how == "torn":  # killed within the note
            file.write(b"U,N,x,1.0\n")
            notes.write(f"{123.5} 7 8"[:size].encode())
        file.close()
        notes.close()
    assert reader.is_over
    assert (folder / "out.csv").read_bytes() == known.expected.read_bytes()
    found = parse((folder / "arrivals").read_text())
    assert account(found, EVENTS // BLOCK) == Account(EVENTS // BLOCK, 0, 0, 0)
    assert found[-1].events == EVENTS


def test_notes_are_followed_while_they_are_written(tmp_path):
    notes = Notes(tmp_path / "arrivals")
    assert notes.new() == []
    lines = ["1.5 1 2 2 2 10 1 0\n", "2.5 3 4 2 4 20 2 0\n"]
    (tmp_path / "arrivals").write_text(lines[0] + lines[1][:7])
    assert [note.last for note in notes.new()] == [2]
    (tmp_path / "arrivals").write_text(lines[0] + lines[1])
    assert [note.last for note in notes.new()] == [4]
    assert notes.new() == []


def published(client, place) -> bytes:
    """What engines take from the input: each message once."""
    log, tally = client.bus.open(place.input), BlockCounter.at(SequencePosition())
    blocks = []
    for _, value in values_between(log, 0, log.bounds().next):
        head = read_head(value)
        known = tally.take(head, 0)
        assert known is not None, "messages of the client are missing"
        blocks += range(head.first + known, head.last + 1)
    return blocks


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)
@given(st.lists(st.integers(0, EVENTS), max_size=5), st.integers(1, 60))
def test_a_publisher_killed_at_any_moment_sends_every_block_once(world, tmp_path_factory, stops, piece):
    place, known, _ = world
    folder = tmp_path_factory.mktemp("publisher")
    errand = PublishErrand(
        url="", model="", cluster="drill", file=str(known.events), block=BLOCK, rate=None, piece=piece, client="drill",
        progress=str(folder / "published"),
    )  # fmt: skip
    with connect(f"memory:{folder.name}") as client:
        place.streams.create(client.bus, place.graph, frozenset())
        for stop in [*stops, EVENTS]:
            progress = Progress(folder / "published")
            given = {"client": client_id("drill"), "next_id": progress.first()}
            publisher = EventPublisher(client, place.input, place.source.schema, **given)
            send(errand, place, publisher, progress, io.StringIO(f"{stop}\n"))
            publisher.close()
            progress.close()
        assert published(client, place) == list(range(1, EVENTS // BLOCK + 1))


def test_permission_is_what_the_last_line_says_and_ends_with_the_lines():
    permission = Permission(io.StringIO("5\n9\n"))
    assert permission.wait_for(9)
    assert not permission.wait_for(10)


def test_an_even_pace_does_not_hurry_after_a_long_wait():
    pace = Pace(100.0)
    assert pace.wait_s(1000.0, 10) == 0.0
    assert pace.wait_s(1000.0, 10) == pytest.approx(0.1)
    assert pace.wait_s(1000.1, 10) == pytest.approx(0.1)
    assert pace.wait_s(1060.0, 10) == 0.0  # held up for a minute
    assert pace.wait_s(1060.0, 10) == pytest.approx(0.1)
    assert Pace(None).wait_s(1000.0, 10) == 0.0


def test_lines_of_the_expected_file_are_those_of_the_frames(world):
    place, known, frames = world
    from lockstep.engine.events.frames import decode_frame

    out = io.BytesIO()
    for frame in frames:
        write_csv(decode_frame(frame, place.window.schema).batch, out)
    assert out.getvalue() == known.expected.read_bytes()
