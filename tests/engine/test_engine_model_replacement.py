"""Another model while the project runs: kept windows go on, others are as if they had always been so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from change_strategies import edits, later
from change_worlds import ChangingProject, Oracle, check, every, leaves
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from model_strategies import SECOND, models, scripts, shardable_models

from lockstep.engine.columns import aggregate, copy
from lockstep.engine.columns import keys as groups
from lockstep.engine.columns import source as seen
from lockstep.engine.errors import LogTooShort
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.changes import compare, refusals
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, CopyWindow, Retention, SourceWindow, UnionWindow, Window
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.sequence.streams import sources
from lockstep.engine.runtime.worker import history as history_module
from lockstep.engine.runtime.worker.history import read_model_history
from lockstep.engine.runtime.worker.replacement import missing_history
from lockstep.errors import DataError

THOROUGH = settings(max_examples=30, suppress_health_check=list(HealthCheck))


@pytest.fixture
def small_pages(monkeypatch):
    """Segments, pages and chunks so small that short scripts fill several of them."""
    monkeypatch.setattr(copy, "_SEGMENT", 8)
    monkeypatch.setattr(seen, "PAGE_KEYS", 4)
    monkeypatch.setattr(groups, "PAGE", 2)
    monkeypatch.setattr(aggregate, "PAGE", 2)
    monkeypatch.setattr(history_module, "_SEGMENT_EVENTS", 3)
    monkeypatch.setattr(history_module, "_CACHED_SPANS", 1)


def allows(graph: Graph, shards: int) -> bool:
    plan = make_plan(graph)
    return plan.max_shards is None or shards <= plan.max_shards


@pytest.mark.slow
@pytest.mark.timeout(600)  # a failure is made smaller before it is shown
@pytest.mark.usefixtures("small_pages")
@THOROUGH
@given(st.data())
def test_changes_do_not_show_in_kept_windows_and_rebuilt_ones_are_as_if_they_had_always_been_so(data):
    shards = data.draw(st.sampled_from([1, 1, 2, 3]), label="shards")
    graph = data.draw(models() if shards == 1 else st.one_of(shardable_models(), shardable_models(), models()))
    assume(allows(graph, shards))
    shown = data.draw(st.sampled_from([every, leaves]), label="shown")
    project, oracle = ChangingProject(graph, shards=shards, shown=shown), Oracle(graph, shown)
    blocks = data.draw(scripts(graph))
    for age in range(1, data.draw(st.sampled_from([2, 2, 3, 4]), label="models") + 1):
        note(f"{graph.project.queries[0]}")
        project.feed(blocks)
        oracle.feed(blocks)
        fate = data.draw(st.sampled_from(["run", "run", "behind", "restart", "reset"]), label="fate")
        if fate == "reset":
            project.reset()
            project.run()
            oracle.reset()
        elif fate != "behind":
            project.run(max_events=data.draw(st.sampled_from([None, 1, 5])))
            check(project, oracle)
        if fate == "restart":
            for worker in project.workers:
                worker.restart()
        new = data.draw(edits(graph, age))
        if allows(new, shards) and not refusals(graph, new, published=frozenset(), shards=shards):
            note(f"{compare(graph, new)}")
            graph = new
            project.change(graph)
            oracle.change(graph)
        blocks = data.draw(later(graph, project.sequencer.position.block, age))
    project.run(max_events=data.draw(st.sampled_from([None, 1, 5])))
    check(project, oracle)
    project.feed(blocks)
    oracle.feed(blocks)
    project.run(max_events=data.draw(st.sampled_from([None, 1, 5])))
    check(project, oracle)


# One at a time

ROWS = "id*:int64,s:string,n:int64,x:double,t:date"
CLIENT = b"somebody".ljust(16)
BYTIME = Retention(kind="bytime_sliding", limit=4 * SECOND, field="t")
BYCLOCK = Retention(kind="bytime_sliding", limit=4 * SECOND)


def source(name: str = "in") -> SourceWindow:
    return SourceWindow(name=name, schema=Schema.parse(ROWS), insert_only=True)


def totals(name: str, text: str = "ESP_aSum(x)", keys: str = "s*:string", kind: str = "double") -> AggregateWindow:
    return AggregateWindow(name=name, schema=Schema.parse(f"{keys},total:{kind}"), fields=(text,))


def model(windows: Sequence[Window], *edges: str) -> Graph:
    pairs = (edge.split(">") for edge in edges)
    drawn = tuple(Edge(source=one, target=other) for one, other in pairs)
    query = ContinuousQuery(name="q", windows=tuple(windows), edges=drawn)
    return compile_project(Project(name="p", queries=(query,)))


def row(number: int) -> Event:
    return Event(Opcode.INSERT, Flag.NORMAL, (number, "abcde"[number % 5], number % 4, number / 2, 1000 + number))


def rows(window: str, *numbers: int, first: int = 1) -> list[InputBlock]:
    """A block for each row."""
    return [InputBlock(first + place, f"q/{window}", (row(number),)) for place, number in enumerate(numbers)]


def started(graph: Graph, blocks: Sequence[InputBlock], **more: object) -> tuple[ChangingProject, Oracle]:
    project, oracle = ChangingProject(graph, **more), Oracle(graph, more.get("shown", every))  # type: ignore[arg-type]
    project.feed(blocks)
    oracle.feed(blocks)
    project.run()
    return project, oracle


def goes_on(project: ChangingProject, oracle: Oracle, blocks: Sequence[InputBlock]) -> None:
    """The change is made, and then all is as it should be."""
    project.run()
    check(project, oracle)
    project.feed(blocks)
    oracle.feed(blocks)
    project.run()
    check(project, oracle)


def change(project: ChangingProject, oracle: Oracle, graph: Graph) -> None:
    project.change(graph)
    oracle.change(graph)


def trim_all(project: ChangingProject) -> None:
    """Nothing that was sequenced is held any more."""
    for name in (project.streams.sequence, *(project.streams.input(node) for node in sources(project.graph))):
        log = project.bus.open(name)
        log.trim(log.bounds().next)


PLAIN = model([source(), totals("sums")], "in>sums")


def test_kept_windows_keep_their_very_pages_and_nothing_of_the_past_comes_out():
    # Given a project that ran
    project, oracle = started(PLAIN, rows("in", *range(1, 9)))
    worker = project.workers[0]
    worker.snapshot()
    worker.stored["q/sums:0"] = other_page("q/sums:0")
    before, said = dict(worker.stored), dict(project.found.answer)
    # When a window is added
    change(project, oracle, model([source(), totals("sums"), totals("most", "ESP_aMax(x)")], "in>sums", "in>most"))
    project.run()
    # Then the others have the pages they had, whatever they say, the new one has the state of the past
    for name, page in before.items():
        assert name == "model" or worker.stored[name] is page, name
    assert worker.evaluator.counts()["q/most"] == oracle.interpreter.counts["q/most"]
    # And nothing was said of it
    assert project.found.answer == said


def other_page(name: str) -> bytes:
    """The page of a project that got other events."""
    project, _ = started(PLAIN, rows("in", 1, 2))
    project.workers[0].snapshot()
    return project.workers[0].stored[name]


def test_a_window_that_reads_further_back_finds_its_rows(monkeypatch):
    monkeypatch.setattr(history_module, "_CACHED_SPANS", 1)
    monkeypatch.setattr(history_module, "_SEGMENT_EVENTS", 2)
    short, long = (CopyWindow(name="recent", retention=replace(BYTIME, limit=n * SECOND)) for n in (1, 9))
    project, oracle = started(model([source(), short], "in>recent"), [])
    for block in rows("in", *range(1, 9)):
        goes_on(project, oracle, [block])
    assert project.workers[0].history.marks[0].block > 1
    change(project, oracle, model([source(), long], "in>recent"))
    goes_on(project, oracle, rows("in", 9, 10, 11, 30, first=9))


def test_a_page_of_a_removed_or_rebuilt_window_does_not_stay_in_the_store():
    recent = CopyWindow(name="recent", retention=BYCLOCK)
    project, oracle = started(model([source(), recent, totals("sums")], "in>recent", "in>sums"), rows("in", 1, 2, 3))
    worker = project.workers[0]
    worker.snapshot()
    assert any(name.startswith("q/recent:") for name in worker.stored)
    change(project, oracle, PLAIN)
    project.run()
    assert {name.rpartition(":")[0] for name in worker.stored} == {"q/in", "q/sums", ""}
    worker.restart()
    goes_on(project, oracle, rows("in", 4, 5, first=4))


def test_removing_a_window_needs_no_history():
    both = model([source(), totals("sums"), totals("most", "ESP_aMax(x)")], "in>sums", "in>most")
    project, oracle = started(both, rows("in", 1, 2, 3))
    trim_all(project)
    change(project, oracle, PLAIN)
    goes_on(project, oracle, rows("in", 4, 5, first=4))
    assert project.sequencer.position.block == 5


def test_a_query_behind_a_new_source_needs_no_history():
    project, oracle = started(PLAIN, rows("in", 1, 2, 3))
    trim_all(project)
    windows = [source("more"), totals("others"), source(), totals("sums")]
    change(project, oracle, model(windows, "in>sums", "more>others"))
    goes_on(project, oracle, [*rows("more", 4, 5, first=4), *rows("in", 6, first=6)])
    assert project.sequencer.position.block == 6


def test_what_is_no_longer_held_is_refused_with_the_range():
    # Given a project whose first input records are gone
    project, _ = started(PLAIN, rows("in", 1, 2, 3))
    project.bus.open("test.p.q.in.I").trim(2)
    # When a window must be rebuilt
    new = model([source(), totals("sums", "ESP_aMax(x)")], "in>sums")
    # Then whoever leads can say so before, and a worker refuses
    found = missing_history(PLAIN, new, project.workers[0].seat, past=project.past)
    assert found == ["To rebuild q/sums, test.p.q.in.I is needed from offset 0 on, but it begins at 2."]
    project.change(new)
    with pytest.raises(LogTooShort, match=r"q/sums.* needs test.p.q.in.I from offset 0 on, but it begins at 2"):
        project.run()


def test_a_trimmed_sequence_log_is_refused_too():
    project, _ = started(PLAIN, rows("in", 1, 2, 3))
    project.bus.open("test.p.S").trim(2)
    new = model([source(), totals("sums", "ESP_aMax(x)")], "in>sums")
    assert missing_history(PLAIN, new, project.workers[0].seat, past=project.past) == [
        "To rebuild q/sums, test.p.S is needed from offset 0 on, but it begins at 2."
    ]
    assert missing_history(PLAIN, PLAIN, project.workers[0].seat) == []
    with pytest.raises(LogTooShort):
        read_model_history(project.bus, project.streams)
    assert missing_history(PLAIN, new, project.workers[0].seat) == [
        "To rebuild q/sums, test.p.S is needed from offset 0 on, but it begins at 2."
    ]


def test_a_rebuild_begins_behind_the_last_reset():
    # Given a project that was emptied, and whose logs hold only what came since
    project, oracle = started(PLAIN, rows("in", 1, 2, 3))
    project.reset()
    oracle.reset()
    project.run()
    trim_all(project)
    more = rows("in", 1, 5, 6, first=4)
    project.feed(more)
    oracle.feed(more)
    # When a window is rebuilt, then from there: key 1 came once
    change(project, oracle, model([source(), totals("sums", "ESP_aCount()", kind="int64")], "in>sums"))
    goes_on(project, oracle, rows("in", 7, 8, first=7))
    assert project.counts()["q/in"].events_in == 5


def test_an_entry_may_bring_a_model_and_empty_the_windows():
    project, _ = started(PLAIN, rows("in", 1, 2, 3))
    other = model([replace(source(), schema=Schema.parse("id*:int64,x:double"))])
    project.change(other, reset=True)
    project.run()
    assert project.counts() == {"q/in": WindowCounts()}


def test_rows_that_are_read_from_the_log_again_are_found_across_changes(monkeypatch):
    # Given a window that reads its leaving rows from the log, and a history that remembers little
    monkeypatch.setattr(history_module, "_CACHED_SPANS", 1)
    windows = [source(), CopyWindow(name="recent", retention=BYTIME), totals("sums")]
    project, oracle = started(model(windows, "in>recent", "recent>sums"), rows("in", 1, 2, 3, 4))
    assert project.workers[0].evaluator.earliest_block() == 1
    # When a source comes before the other one, and goes again
    with_more = model([source("more"), *windows], "in>recent", "recent>sums")
    change(project, oracle, with_more)
    goes_on(project, oracle, [*rows("more", 1, 2, first=5), *rows("in", 5, first=7)])
    change(project, oracle, model(windows, "in>recent", "recent>sums"))
    # Then rows of all three times leave as they came
    goes_on(project, oracle, rows("in", 6, 7, 8, 9, 20, first=8))


def test_an_entry_takes_its_inputs_in_the_order_of_its_time():
    # Given entries that take two inputs at once, before and after their order changed
    both = [source("left"), source("right")]
    edges = ("left>both", "right>both", "both>sums")
    old = model([*both, UnionWindow(name="both"), totals("sums", "ESP_aLast(x)")], *edges)
    new = model([*reversed(both), UnionWindow(name="both"), totals("sums", "ESP_aFirst(x)")], *edges)
    project, oracle = ChangingProject(old, entry_events=100), Oracle(old)
    publish_both(project, 1)
    oracle.feed([*rows("left", 1, 2, first=1), *rows("right", 4, 5, first=3)])
    # When the model changes
    change(project, oracle, new)
    project.run()
    check(project, oracle)
    # Then blocks are numbered in the new order, and a rebuild knows the old one
    publish_both(project, 7)
    oracle.feed([*rows("right", 10, 11, first=5), *rows("left", 7, 8, first=7)])
    change(project, oracle, old)
    goes_on(project, oracle, [])
    assert project.sequencer.position.block == 8


def publish_both(project: ChangingProject, number: int) -> None:
    for path, first in (("q/left", number), ("q/right", number + 3)):
        for each in (first, first + 1):
            project.publishers[path].publish([row(each)])
    project.settle()


def test_a_client_is_known_under_the_new_place_of_its_input():
    # Given a client that numbers its messages
    project, oracle = ChangingProject(PLAIN), Oracle(PLAIN)
    client = EventPublisher(project.connection, "test.p.q.in.I", Schema.parse(ROWS), client=CLIENT)
    client.publish([row(1)])
    client.publish([row(2)])
    client.flush()
    project.settle()
    oracle.feed(rows("in", 1, 2))
    # When another source comes before its input, and the client sends its last message again
    change(project, oracle, model([source("more"), source(), totals("sums")], "in>sums"))
    project.run()
    again = EventPublisher(project.connection, "test.p.q.in.I", Schema.parse(ROWS), client=CLIENT, next_id=2)
    again.publish([row(2)])
    again.publish([row(3)])
    again.flush()
    project.settle()
    # Then it is dropped, by the leader and by the workers, and the next one is taken
    oracle.feed(rows("in", 3, first=3))
    goes_on(project, oracle, rows("more", 4, first=4))
    assert project.sequencer.position.clients == {f"q/in/{CLIENT.hex()}": 3}


def test_a_source_that_comes_back_is_a_new_one():
    # Given a source that was there, was removed, and got a record meanwhile
    both = model([source("more"), source(), UnionWindow(name="all")], "in>all", "more>all")
    project, oracle = started(both, [*rows("more", 1, 2), *rows("in", 3, first=3)])
    forgotten = project.publishers["q/more"]
    change(project, oracle, model([source(), totals("sums")], "in>sums"))
    forgotten.publish([row(4)])
    forgotten.flush()
    # When it comes back, all that its stream holds is taken as new
    change(project, oracle, both)
    project.settle()
    oracle.feed(rows("more", 1, 2, 4, first=4))
    goes_on(project, oracle, [*rows("more", 5, first=7), *rows("in", 6, first=8)])
    # Then what it took in its first life does not count, then or when it is rebuilt
    counts = totals("counts", "ESP_aCount()", kind="int64")
    change(project, oracle, model([source(), source("more"), counts], "more>counts"))
    goes_on(project, oracle, rows("more", 7, first=9))
    assert project.counts()["q/more"].events_in == 5
    assert project.counts()["q/counts"].events_in == 5


def test_what_was_published_for_a_new_source_before_the_change_is_taken():
    project, oracle = started(PLAIN, rows("in", 1))
    new = model([source("more"), source(), totals("sums")], "in>sums")
    project.streams.create(project.bus, new, frozenset())
    early = EventPublisher(project.connection, "test.p.q.more.I", Schema.parse(ROWS))
    early.publish([row(7)])
    early.flush()
    change(project, oracle, new)
    project.settle()
    oracle.feed(rows("more", 7, first=2))
    goes_on(project, oracle, [])
    assert project.counts()["q/more"].events_in == 1


@pytest.mark.parametrize("shown", [every, leaves])
def test_a_window_that_kept_few_columns_gets_those_that_a_new_reader_needs(shown):
    # Given a window that keeps its rows itself, and of these only what is looked at
    recent = CopyWindow(name="recent", retention=BYCLOCK)
    blocks = [*rows("in", 1, 2), InputBlock(3, tick_us=SECOND), *rows("in", 3, 4, first=4)]
    project, oracle = started(
        model([source(), recent, totals("sums")], "in>recent", "recent>sums"), blocks, shown=shown
    )
    # When somebody looks at another column, or at all of them
    counts = totals("counts", "ESP_aMax(n)", kind="int64")
    change(
        project, oracle, model([source(), recent, totals("sums"), counts], "in>recent", "recent>sums", "recent>counts")
    )
    goes_on(project, oracle, [*rows("in", 5, first=6), InputBlock(7, tick_us=3 * SECOND)])
    change(project, oracle, model([source(), recent], "in>recent"))
    goes_on(project, oracle, [*rows("in", 6, first=8), InputBlock(9, tick_us=30 * SECOND)])
    assert project.counts()["q/recent"].rows == 0


def test_rows_may_move_to_other_shards():
    # Given a project divided by two fields
    fine = totals("fine", keys="s*:string,n*:int64")
    project, oracle = started(model([source(), fine], "in>fine"), rows("in", *range(1, 20)), shards=3)
    places = [worker.evaluator.counts()["q/fine"].rows for worker in project.workers]
    # When a window groups by one of them
    change(project, oracle, model([source(), fine, totals("sums")], "in>fine", "in>sums"))
    goes_on(project, oracle, rows("in", *range(20, 30), first=20))
    # Then all is divided by that one
    assert [worker.evaluator.counts()["q/fine"].rows for worker in project.workers] != places


def test_parts_may_move_to_other_shards():
    one = [source("a"), totals("as"), source("b"), totals("bs")]
    blocks = [*rows("a", 1, 2), *rows("b", 3, 4, first=3)]
    pulsed = [replace(window, collapse_updates=True) for window in one[1::2]]
    windows = [one[0], pulsed[0], one[2], pulsed[1]]
    project, oracle = started(model(windows, "a>as", "b>bs"), blocks, shards=2)
    assert make_plan(project.graph).splits == ()
    more = [source("c"), replace(totals("cs"), collapse_updates=True), *windows]
    change(project, oracle, model(more, "c>cs", "a>as", "b>bs"))
    goes_on(project, oracle, [*rows("a", 5, first=5), *rows("b", 6, first=6), *rows("c", 7, first=7)])


def test_the_past_can_be_read_from_the_sequence_log():
    project, _ = started(PLAIN, rows("in", 1, 2))
    first = project.sequencer.position
    project.change(PLAIN)
    project.change(model([source("more"), source(), totals("sums")], "in>sums"))
    found = read_model_history(project.bus, project.streams)
    assert found.base.number == first.number + 1
    assert [version.paths for version in found.versions] == [("q/in",), ("q/more", "q/in")]
    assert found.versions[-1] == project.past.versions[-1]
    project.reset()
    assert [version.paths for version in read_model_history(project.bus, project.streams).versions] == [
        ("q/more", "q/in")
    ]


def test_a_sequence_log_without_a_model_says_so():
    project, _ = started(PLAIN, rows("in", 1))
    with pytest.raises(DataError, match=r"No model is stated on test\.p\.S"):
        read_model_history(project.bus, project.streams)
