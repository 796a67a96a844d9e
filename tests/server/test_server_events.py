"""The rows of a window, folded from its out stream."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_worlds import BASE, View, served

from lockstep.core.outputs import Barrier
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import cut_frames
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.output.outlet import encode_barrier
from lockstep.runtime import ThreadRuntime
from lockstep.server.errors import RowsNotReady, RowsUnknown
from lockstep.server.rows import RowLimits, RowsOfWindows

INSERT, DELETE, UPDATE_BLOCK = Opcode.INSERT, Opcode.DELETE, Opcode.UPDATE_BLOCK


def event(opcode: Opcode, symbol: str, total: float | None = 1.0) -> Event:
    return Event(opcode, Flag.NORMAL, (symbol, total))


def update(symbol: str, new: float, old: float) -> list[Event]:
    return [event(UPDATE_BLOCK, symbol, new), event(DELETE, symbol, old)]


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def ask(view):
    with served(view) as client:
        yield client


def rows(ask, query: str = "") -> list[tuple[str, float]]:
    found = ask.get(f"/events/p/q/sums{query}")
    assert found.status == 200, found.text
    return [(row["symbol"], row["total"]) for row in found.json["events"]]


class Stepping(ThreadRuntime):
    """A clock that moves a second at each look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        self.seconds += 1.0
        return self.seconds


def now(view: View, *, runtime: ThreadRuntime | None = None, kept: RowsOfWindows | None = None, **limits: float):
    kept = kept or RowsOfWindows(runtime or ThreadRuntime(), RowLimits(**limits))
    node = view.model.find("q/sums")
    return kept.now(view.out(), node, view.model.fingerprint)


# --- rows --------------------------------------------------------------------------------------------------------


def test_the_rows_that_are_there_now(view, ask):
    assert rows(ask) == []
    view.publish([(1, [event(INSERT, "A", 1.0), event(INSERT, "B", 2.0)]), (2, update("A", 3.0, 1.0))], previous=0)
    assert rows(ask) == [("A", 3.0), ("B", 2.0)]
    view.publish([(5, [event(DELETE, "A", 3.0), event(INSERT, "C", 4.0)])], previous=2)
    assert rows(ask) == [("B", 2.0), ("C", 4.0)]
    view.publish([(6, [event(INSERT, "A", 9.0)])], previous=5)
    assert rows(ask) == [("B", 2.0), ("C", 4.0), ("A", 9.0)]


def test_what_stands_around_them(view, ask):
    view.publish([(4, [event(INSERT, symbol) for symbol in "ABCDE"])], previous=0)
    found = ask.get("/events?window=sums&pagesize=2&page=1").json
    assert {name: value for name, value in found.items() if name != "events"} == {
        "project": "p", "contquery": "q", "window": "sums", "block": 4, "count": 5,
        "page": 1, "pages": 3, "pagesize": 2,
    }  # fmt: skip
    assert found["events"][0] == {"opcode": "insert", "flags": "N", "symbol": "C", "total": 1.0}


def test_as_xml(view, ask):
    view.publish([(1, [event(INSERT, "A&B", 0.1), event(INSERT, "\x01", None)])], previous=0)
    assert ask.xml("/events?project=p&contquery=q&window=sums") == (
        '<events project="p" contquery="q" window="sums" block="1" count="2" page="0" pages="1" pagesize="50">\n'
        '  <event opcode="insert">\n    <value name="symbol">A&amp;B</value>\n    <value name="total">0.1</value>\n'
        '  </event>\n  <event opcode="insert">\n    <value name="symbol" encoding="base64">AQ==</value>\n  </event>\n'
        "</events>\n"
    )


def test_pages(view, ask):
    view.publish([(1, [event(INSERT, f"S{number}") for number in range(7)])], previous=0)
    assert [len(rows(ask, f"?pagesize=3&page={page}")) for page in range(4)] == [3, 3, 1, 0]
    for wrong in ("page=-1", "pagesize=0", "pagesize=1001", "page=x"):
        assert ask.get(f"/events/p/q/sums?{wrong}").status == 422


def test_filters_on_fields(view, ask):
    view.publish([(1, [event(INSERT, "A", 1.5), event(INSERT, "B", 1.5), event(INSERT, "C", None)])], previous=0)
    assert rows(ask, "?filter=symbol=B") == [("B", 1.5)]
    assert rows(ask, "?filter=total=1.5") == [("A", 1.5), ("B", 1.5)]
    assert rows(ask, "?filter=total=1.5&filter=symbol=A") == [("A", 1.5)]
    assert rows(ask, "?filter=total=") == [("C", None)]
    for wrong in ("total", "nix=1", "total=much", "total%3E1"):
        found = ask.get(f"/events/p/q/sums?filter={wrong}")
        assert (found.status, found.code) == (422, "BAD_ARGUMENT")


def test_copies_and_barriers_are_passed_over(view, ask):
    view.put(encode_barrier(Barrier(1, "a")))
    for _ in range(2):
        view.publish([(1, [event(INSERT, "A")])], previous=0)
    view.put(encode_barrier(Barrier(2, "b")))
    view.publish([(1, [event(INSERT, "A")]), (2, update("A", 2.0, 1.0))], previous=0)
    assert rows(ask) == [("A", 2.0)]


# --- what can't be told ------------------------------------------------------------------------------------------


def test_a_window_that_is_not_published(ask):
    found = ask.get("/events/p/q/in")
    assert (found.status, found.code) == (404, "WINDOW_NOT_PUBLISHED")
    assert "--publish q/in" in found.json["error"]["advice"]
    assert "Published: q/sums." in found.json["error"]["advice"]


def test_a_published_window_whose_stream_is_gone(view, ask):
    view.bus().delete(view.out().name)
    found = ask.get("/events/p/q/sums")
    assert (found.status, found.code) == (404, "WINDOW_NOT_PUBLISHED")
    assert "Published: none." in found.json["error"]["advice"]


def test_a_stream_whose_beginning_was_trimmed(view, ask):
    view.publish([(1, [event(INSERT, "A")])], previous=0)
    view.publish([(2, [event(INSERT, "B")])], previous=1)
    view.out().trim(1)
    for _ in range(2):
        found = ask.get("/events/p/q/sums")
        assert (found.status, found.code) == (409, "ROWS_UNKNOWN")
        assert "blocks before 2 are no longer on local.p.q.sums.O" in found.json["error"]["message"]


def test_what_was_read_before_it_was_trimmed_counts(view, ask):
    view.publish([(1, [event(INSERT, "A")])], previous=0)
    assert rows(ask) == [("A", 1.0)]
    view.out().trim(1)
    view.publish([(2, [event(INSERT, "B")])], previous=1)
    assert rows(ask) == [("A", 1.0), ("B", 1.0)]


def test_what_was_trimmed_before_it_was_read_is_missed(view, ask):
    view.publish([(1, [event(INSERT, "A")])], previous=0)
    assert rows(ask) == [("A", 1.0)]
    view.publish([(2, [event(INSERT, "B")])], previous=1)
    view.publish([(3, [event(INSERT, "C")])], previous=2)
    view.out().trim(2)
    assert ask.get("/events/p/q/sums").code == "ROWS_UNKNOWN"


def test_a_stream_made_anew_is_read_anew(view, ask):
    view.publish([(1, [event(INSERT, "A")])], previous=0)
    assert rows(ask) == [("A", 1.0)]
    view.bus().delete(view.out().name)
    view.world.streams.create(view.bus(), view.model, view.wanted)
    view.publish([(1, [event(INSERT, "B")])], previous=0)
    assert rows(ask) == [("B", 1.0)]


def test_a_window_without_an_index_keeps_no_rows():
    window = SourceWindow(name="sums", schema=Schema.parse("symbol*:string"), insert_only=True, index="pi_EMPTY")
    view = View(compile_project(Project(name="p", queries=(ContinuousQuery(name="q", windows=(window,), edges=()),))))
    with served(view) as ask:
        assert ask.get("/events/p/q/sums").code == "ROWS_UNKNOWN"


def test_something_that_is_no_frame(view, ask):
    view.put(b"no frame")
    found = ask.get("/events/p/q/sums")
    assert (found.status, found.code) == (500, "FRAME_DAMAGED")


# --- bounds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"rows": 3}, {"bytes": 400}])
def test_more_rows_than_are_kept(view, limits):
    view.publish([(1, [event(INSERT, symbol) for symbol in "ABC"])], previous=0)
    kept = RowsOfWindows(ThreadRuntime(), RowLimits(**limits))
    assert len(now(view, kept=kept)[1]) == 3
    view.publish([(2, update("A", 2.0, 1.0))], previous=1)
    assert len(now(view, kept=kept)[1]) == 3
    view.publish([(3, [event(INSERT, "D" * 100)])], previous=2)
    for _ in range(2):
        with pytest.raises(RowsUnknown, match="more than"):
            now(view, kept=kept)


def test_deleted_rows_make_room(view):
    kept = RowsOfWindows(ThreadRuntime(), RowLimits(rows=2, bytes=1000))
    for number in range(50):
        block = 2 * number + 1
        view.publish([(block, [event(INSERT, f"S{number}")])], previous=block - 1)
        view.publish([(block + 1, [event(DELETE, f"S{number}")])], previous=block)
        assert now(view, kept=kept) == (block + 1, [])


def test_reading_stops_when_its_time_is_over_and_goes_on_later(view):
    for block in range(1, 6):
        view.publish([(block, [event(INSERT, f"S{block}")])], previous=block - 1)
    kept = RowsOfWindows(Stepping(), RowLimits(seconds=1.5, read_bytes=1))
    with pytest.raises(RowsNotReady, match="2 of 5 records"):
        now(view, kept=kept)
    with pytest.raises(RowsNotReady, match="4 of 5 records"):
        now(view, kept=kept)
    assert len(now(view, kept=kept)[1]) == 5


def test_only_the_windows_asked_for_last_are_kept():
    kept = RowsOfWindows(ThreadRuntime(), RowLimits(windows=2))
    views = [View() for _ in range(3)]
    for number, view in enumerate(views):
        view.publish([(1, [event(INSERT, f"S{number}")])], previous=0)
    for view in [*views, views[0]]:
        assert len(now(view, kept=kept)[1]) == 1
    assert len(kept._known) == 2


# --- against the slow and obvious --------------------------------------------------------------------------------


@st.composite
def histories(draw) -> list[list[Event]]:
    """Blocks of inserts, updates and deletes that a window could publish."""
    rows: dict[str, float] = {}
    blocks = []
    for _ in range(draw(st.integers(1, 8))):
        block: list[Event] = []
        for symbol in draw(st.lists(st.sampled_from("ABCD"), max_size=6)):
            value = draw(st.integers(0, 9)) / 2
            if symbol not in rows:
                block.append(event(INSERT, symbol, value))
                rows[symbol] = value
            elif draw(st.booleans()):
                block += update(symbol, value, rows[symbol])
                rows[symbol] = value
            else:
                block.append(event(DELETE, symbol, rows.pop(symbol)))
        if block:
            blocks.append(block)
    return blocks


def obvious(blocks: list[list[Event]]) -> dict[str, float]:
    rows: dict[str, float] = {}
    for block in blocks:
        pairs = iter(block)
        for item in pairs:
            if item.opcode is UPDATE_BLOCK:
                rows[item.values[0]] = item.values[1]
                next(pairs)
            elif item.opcode is INSERT:
                rows[item.values[0]] = item.values[1]
            else:
                del rows[item.values[0]]
    return rows


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(140, 400), st.data())
def test_rows_are_those_of_a_plain_walk_however_frames_are_cut_and_questions_asked(blocks, size, data):
    view = View()
    schema = view.model.find("q/sums").schema
    batch = EventBatch.of(schema, [(number, block) for number, block in enumerate(blocks, 1)])
    kept = RowsOfWindows(ThreadRuntime(), RowLimits())
    for frame in cut_frames(batch, max_bytes=size, previous=0, limit=10_000) if len(batch) else []:
        view.put(frame)
        if data.draw(st.booleans()):
            now(view, kept=kept)
    last, found = now(view, kept=kept)
    assert [(symbol, total) for symbol, total in found] == list(obvious(blocks).items())
    assert last == len(blocks)


def test_numbers_are_exact(view, ask):
    view.publish([(1, [event(INSERT, "A", 0.1 + 0.2)])], previous=0)
    text = ask("GET", f"{BASE}/events/p/q/sums?format=json").text
    assert '"total":0.30000000000000004' in text
    assert json.loads(text)["count"] == 1
