"""Joins and unions on columns give the interpreter's answer, whatever the model, the cut and the restarts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from join_strategies import joins, unions
from kernel_worlds import Collected, ListedHistory, Pages, bad_texts, interpret, make_span
from model_strategies import cuts, scripts

from lockstep.engine.columns import pages, rowstore
from lockstep.engine.columns import rows as treepages
from lockstep.engine.columns.evaluator import Builder, Evaluator, duty_of
from lockstep.engine.columns.flow import Part
from lockstep.engine.columns.join import JoinColumns
from lockstep.engine.columns.rows import RowOperator
from lockstep.engine.columns.rowstore import RowStore
from lockstep.engine.columns.union import PassingUnion, UnionColumns
from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.yaml_form import parse_yaml
from lockstep.engine.reference.interpreter import make_operator

THOROUGH = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
INS, DEL, UPD, UPS = Opcode.INSERT, Opcode.DELETE, Opcode.UPDATE, Opcode.UPSERT


@pytest.fixture(autouse=True, scope="module")
def small_pages():
    """Chunks and pieces so small that short scripts fill several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowstore, "CHUNK", 4)
        patch.setattr(treepages, "LONG", 2)
        patch.setattr(treepages, "_MOST", 3)
        yield


def every(graph):
    return frozenset(node.path for node in graph.nodes)


def by_others(bad, paths):
    """What was refused by windows that are not among these."""
    return [text for text in bad if text.split()[1] not in paths]


@given(data=st.data(), graph=st.one_of(joins(), joins(), unions()))
@THOROUGH
def test_joins_and_unions_give_the_answer_of_the_interpreter_whatever_the_cuts_and_restarts(data, graph):
    # Given a model, a script, some windows that are looked at, and a log with the columns that are needed
    blocks = data.draw(scripts(graph))
    ends = data.draw(cuts(len(blocks)))
    wanted = data.draw(st.sampled_from([every(graph), *({path} for path in sorted(every(graph)))]))
    again = data.draw(st.sets(st.integers(0, len(ends) - 1)))
    note(f"{graph.project.queries[0].windows} ends {ends} again {again}")
    expected, history = interpret(graph, blocks), ListedHistory(graph, blocks)
    evaluator, kept, found, start = Evaluator(graph, wanted=frozenset(wanted), history=history), Pages(), Collected(), 0
    # When it is evaluated in spans, and now and then another evaluator goes on from the pages that changed
    for number, end in enumerate(ends):
        span = make_span(graph, blocks[start:end], dict(evaluator.needed))
        found.add(evaluator.evaluate(span))
        start = end
        if number in again:
            kept.take(evaluator)
            evaluator = Evaluator(graph, wanted=frozenset(wanted), history=history)
            evaluator.load(kept.kept)
    # Then events, counts and what was refused are the interpreter's
    for path in wanted:
        assert found.answer.get(path, []) == expected.answer[path], path
    assert evaluator.counts() == expected.counts
    # Sources name only the fields that were read; a worker fills in the others
    read = {node.path for node in graph.nodes if node.is_source and wanted != every(graph)}
    assert by_others(bad_texts(found.bad), read) == by_others(expected.bad, read)


@given(graph=st.one_of(joins(), unions()))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_plan_says_what_joins_and_unions_do_and_why_they_go_row_by_row(graph):
    operators, _ = Builder(graph, duty_of(graph, 0, 1), None).build(every(graph))
    for step in make_plan(graph).steps:
        operator = operators[step.node]
        assert (step.form == "rows") == isinstance(operator, RowOperator)
        if graph.nodes[step.node].window.kind in ("join", "union"):
            assert bool(step.form_why) == isinstance(operator, RowOperator)


JOINED = """
name: p
queries:
- name: q
  windows:
  - {kind: source, name: Trades, schema: "id*:int64,who:int64,price:double"%s}
  - {kind: source, name: Traders, schema: "id*:int64,name:string,fees:array(dbl)"}
  - kind: join
    name: Named
    type: %s
    conditions: [who == id]
    fields: {price: l_price, who: l_who, name: r_name, fees: r_fees, both: {expression: "l_price + r_id", type: double}}
  edges: [Trades -> Named, Traders -> Named]
"""
UNITED = """
name: p
queries:
- name: q
  windows:
  - {kind: source, name: One, schema: "id*:int64,s:string"}
  - {kind: source, name: Two, schema: "id*:int64,s:string"}
  - {kind: union, name: All%s}
  edges: [One Two -> All]
"""


class Bench:
    """A model of one query, fed side by side into the interpreter and into evaluators that go on from pages."""

    def __init__(self, text: str) -> None:
        self.graph = compile_project(parse_yaml(text))
        self.blocks: list[InputBlock] = []
        self.kept, self.found = Pages(), Collected()
        self.evaluator = self._new()

    def _new(self) -> Evaluator:
        return Evaluator(self.graph, wanted=every(self.graph))

    def send(self, window: str, *events: tuple[Opcode, tuple[object, ...]], flags: Flag = Flag.NORMAL) -> None:
        made = tuple(Event(opcode, flags, values) for opcode, values in events)
        self.blocks.append(InputBlock(len(self.blocks) + 1, f"q/{window}", made))
        self.found.add(self.evaluator.evaluate(make_span(self.graph, self.blocks[-1:])))

    def restart(self) -> dict[str, bytes | None]:
        """Go on from pages; those that changed since the last time."""
        changed = dict(self.evaluator.changed_pages())
        for name, page in changed.items():
            self.kept.kept.pop(name, None)
            if page is not None:
                self.kept.kept[name] = page
        self.evaluator = self._new()
        self.evaluator.load(self.kept.kept)
        return changed

    def check(self) -> list[str]:
        expected = interpret(self.graph, self.blocks)
        assert self.found.answer == {path: made for path, made in expected.answer.items() if made}
        assert bad_texts(self.found.bad) == expected.bad
        assert self.evaluator.counts() == expected.counts
        return expected.bad


@pytest.mark.parametrize("kind", ["leftouter", "inner"])
def test_updates_deletes_nulls_and_refused_events_of_both_sides(kind):
    bench = Bench(JOINED % ("", kind))
    for again in range(2):
        bench.send("Traders", (INS, (1, "ann", (1.0, None))), (INS, (2, None, None)), (UPS, (again, "bob", ())))
        bench.send("Trades", (INS, (10, 1, 1.5)), (INS, (11, None, 2.0)), (INS, (12, 9, None)), (INS, (10, 2, 0.0)))
        bench.restart()
        bench.send("Trades", (UPD, (10, 2, 1.5)), (UPS, (13, 2, -0.0)), (UPD, (11, 1, 2.5)), (DEL, (99, 0, 0.0)))
        bench.send(
            "Traders",
            (UPD, (1, "anna", (2.0,))),
            (UPD, (2, "otto", None)),
            (INS, (9, "new", None)),
            (DEL, (7, "", None)),
        )
        bench.restart()
        bench.send("Traders", (DEL, (2, "", None)), (DEL, (9, "", None)))
        bench.send("Trades", (DEL, (12, None, None)), (DEL, (13, None, None)), (DEL, (11, None, None)))
    assert [each.split()[1] for each in bench.check()].count("q/Trades") == 5


def test_facts_that_a_dimension_makes_anew_come_in_the_order_in_which_they_came_last_also_after_a_restart():
    bench = Bench(JOINED % ("", "leftouter"))
    for number in (5, 3, 9, 1, 7, 8):
        bench.send("Trades", (INS, (number, 1, 1.0)))
    bench.send("Trades", (UPD, (5, 1, 2.0)), (DEL, (9, 0, 0.0)), (UPD, (8, 2, 0.0)))
    bench.restart()
    bench.send("Trades", (UPD, (8, 1, 0.5)), (UPD, (3, 2, 1.0)))
    bench.send("Traders", (INS, (1, "ann", None)))
    bench.restart()
    bench.send("Traders", (UPD, (1, "anna", None)))
    bench.check()
    last = [text for block, text in bench.found.answer["q/Named"] if block == len(bench.blocks) and text[0] == "U"]
    assert [text.split("(")[1].split(",")[0] for text in last] == ["1", "7", "5", "8"]


def test_a_snapshot_holds_what_changed_alone():
    bench = Bench(JOINED % (", insert_only: true", "leftouter"))
    bench.send("Traders", *[(INS, (number, str(number), None)) for number in range(8)])
    bench.send("Trades", *[(INS, (number, number % 8, 1.0)) for number in range(20)])
    first = bench.restart()
    assert sum(":left." in name for name in first) == 5  # of four facts each
    bench.send("Trades", (INS, (100, 3, 2.0)))
    assert {name for name, page in bench.restart().items() if "Named:" in name and page} == {
        "q/Named:left.5", "q/Named:sides"
    }  # fmt: skip
    bench.send("Traders", (UPD, (3, "three", None)))
    assert {name for name, page in bench.restart().items() if "Named:" in name and page} == {
        "q/Named:right.0.gone", "q/Named:right.2"
    }  # fmt: skip
    bench.check()


@pytest.mark.parametrize("restarts", [True, False])
def test_rows_that_went_leave_no_pages_and_numbers_are_used_again(restarts):
    bench = Bench(JOINED % ("", "inner"))
    for start in range(0, 60, 10):
        bench.send("Traders", *[(INS, (number, "x", None)) for number in range(start, start + 10)])
        bench.send("Trades", *[(INS, (number, number, 1.0)) for number in range(start, start + 10)])
        if restarts and start % 20:
            bench.restart()
        bench.send("Trades", *[(DEL, (number, 0, 0.0)) for number in range(start, start + 10) if number % 20 != 3])
        bench.send("Traders", *[(DEL, (number, "", None)) for number in range(start, start + 10) if number % 20 != 3])
    operators = [station.operator for station in bench.evaluator._stations.values()]
    (operator,) = [each for each in operators if isinstance(each, JoinColumns)]
    assert max(each.size for each in (operator._matches, *(side.numbers for side in operator._sides))) <= 13
    bench.restart()
    bench.check()
    rows = [name for name in bench.kept.kept if "Named:" in name]
    assert len(rows) <= 5, rows


def test_what_leaves_a_join_without_kept_facts_is_not_taken_for_what_came():
    # Given a join whose facts meet what is there when they leave, and groups over it
    over = "- {kind: aggregate, name: n, schema: 'name*:string,n:int64', fields: [ESP_aCount()]}"
    text = (JOINED % ("", "leftouter")).replace("edges: [", f"{over}\n  edges: [Named -> n, ")
    bench = Bench(text.replace("type: leftouter", "type: leftouter\n    left_index: pi_EMPTY"))
    assert [step.form for step in make_plan(bench.graph).steps] == ["rows", "rows", "columns", "rows"]
    bench.send("Traders", (INS, (1, "ann", None)))
    bench.send("Trades", (INS, (7, 1, 1.0)), (INS, (8, 1, 1.0)))
    bench.send("Traders", (UPD, (1, "anna", None)))
    bench.send("Trades", (DEL, (7, 0, 0.0)), (UPD, (8, 1, 2.0)))
    bench.check()


def test_partial_updates_into_a_union_keep_old_values():
    # Given groups over rows that come with the flag P, so that their updates carry it
    sums = "- {kind: aggregate, name: %s, schema: 's*:string,x:double', fields: [ESP_aLast(x)]}"
    bench = Bench(f"""
name: p
queries:
- name: q
  windows:
  - {{kind: source, name: In, insert_only: true, index: pi_EMPTY, schema: "id*:int64,s:string,x:double"}}
  - {{kind: source, name: Out, schema: "s*:string,x:double"}}
  {sums % "a"}
  - {{kind: union, name: All}}
  edges: [In -> a, a Out -> All]
""")
    (union,) = [step for step in make_plan(bench.graph).steps if step.form_why.startswith("an input may give partial")]
    assert union.form == "rows"
    bench.send("In", (INS, (1, "a", 5.0)), flags=Flag.PARTIAL)
    bench.send("Out", (INS, ("a", 9.0)))
    bench.send("In", (INS, (2, "a", None)), flags=Flag.PARTIAL)
    bench.check()
    assert bench.found.answer["q/a"][-2][1] == "UB P ('a', None)"
    assert bench.found.answer["q/All"][-2][1] == "UB N ('a', 9.0)"


@pytest.mark.parametrize("strict", [True, False])
def test_unions_know_who_wrote_a_row_after_a_restart(strict):
    bench = Bench(UNITED % f", strict: {str(strict).lower()}")
    bench.send("One", (INS, (1, "a")), (INS, (2, None)))
    bench.send("Two", (INS, (1, "b")), (INS, (3, "c")))
    bench.restart()
    bench.send("One", (DEL, (1, "")), (UPD, (2, "e")))
    bench.send("Two", (UPD, (1, "f")), (DEL, (3, "")), (DEL, (3, "")))
    bench.restart()
    bench.send("Two", (DEL, (1, "")), (UPS, (2, "g")))
    bench.send("One", (UPS, (2, "h")), (UPS, (1, "i")))
    assert len([each for each in bench.check() if "strict-union" in each]) == (2 if strict else 0)


@pytest.mark.parametrize("text", [JOINED % ("", "leftouter"), JOINED % ("", "inner"), UNITED % ""])
def test_the_state_of_the_row_form_is_loaded(text):
    # Given a model whose join or union kept all of its state in one page, as earlier versions did
    bench = Bench(text)
    (last,) = [node for node in bench.graph.nodes if not node.is_source]
    names = [node.window.name for node in bench.graph.nodes if node.is_source]
    rows = {"Trades": (7, 1, 1.5), "Traders": (1, "ann", (1.0,)), "One": (1, "a"), "Two": (1, "b")}
    for name in names:
        bench.send(name, (INS, rows[name]))
    operator = make_operator(last)
    for block in bench.blocks:
        port = names.index(block.window.removeprefix("q/"))
        for event in block.events:
            operator.on_change(port, event, None, None, [])
    bench.restart()
    old = {name: page for name, page in bench.kept.kept.items() if not name.startswith(f"{last.path}:")}
    bench.kept.kept = old | {f"{last.path}:rows": pages.pack(operator.dump())}
    # When it is loaded
    changed = bench.restart()
    changed = bench.restart()
    # Then it goes on, and the next pages are those of columns
    assert changed[f"{last.path}:rows"] is None
    assert f"{last.path}:rows" not in bench.kept.kept
    for name in names:
        key = rows[name][0]
        bench.send(name, (UPD, (key, *rows[name][1:-1], None)), (DEL, rows[name]))
    bench.check()


def damaged(bench: Bench, name: str, content: object, others: Mapping[str, object] | None = None) -> str:
    contents = {name: content, **(others or {})}
    pages_ = {**bench.kept.kept, **{path: pages.pack(each) for path, each in contents.items()}}
    if content is None:
        del pages_[name]
    with pytest.raises(SnapshotDamaged) as caught:
        Evaluator(bench.graph, wanted=every(bench.graph)).load(pages_)
    return caught.value.params["reason"]


def test_pages_that_do_not_fit_are_refused_and_nothing_is_guessed():
    bench = Bench(JOINED % ("", "leftouter"))
    bench.send("Trades", *[(INS, (number, number, 1.0)) for number in range(6)])
    bench.send("Trades", (DEL, (1, 0, 0.0)))
    bench.restart()
    path = "q/Named:left.0"
    ids, packed = pages.unpack(bench.kept.kept[path])
    assert "should be [5, 0]" in damaged(bench, path.replace("0", "1"), None)
    assert "page that is not there" in damaged(bench, path, None)
    assert "do not rise" in damaged(bench, path, [ids[::-1], packed])
    assert "do not rise" in damaged(bench, path, [ids[:0], packed])
    assert "do not rise" in damaged(bench, path, [ids.astype(np.float64), packed])
    assert "the fields" in damaged(bench, path, [ids[:-1], packed])
    assert "the fields" in damaged(bench, path, [np.append(ids, 99), packed])
    assert "is broken" in damaged(bench, path, [ids, packed[: len(packed) // 2]])
    assert "is broken" in damaged(bench, path, 5)
    other = pages.pack_columns(Part({"id": pa.array(range(len(ids)))}, len(ids)))
    assert "the fields" in damaged(bench, path, [ids, other])
    assert "does not fit" in damaged(bench, f"{path}.gone", np.zeros(5, np.uint8))
    assert "does not fit" in damaged(bench, f"{path}.gone", [1])
    assert "there twice" in damaged(bench, "q/Named:left.2", [ids + 100, packed], {"q/Named:sides": [9, 0]})
    assert "tail is not a page of a window that works on columns" in damaged(bench, "q/Named:tail", 5)


def test_a_union_refuses_pages_that_do_not_fit():
    bench = Bench(UNITED % "")
    bench.send("One", (INS, (1, "a")))
    bench.restart()
    assert "not 2" in damaged(bench, "q/All:count", 2)
    ids, packed = pages.unpack(bench.kept.kept["q/All:row.0"])
    part = pages.unpack_columns(packed, 1)
    wrong = pages.pack_columns(Part({**part.columns, "#writer": pa.array([7], pa.int32())}, 1))
    assert "input that is not there" in damaged(bench, "q/All:row.0", [ids, wrong])


@given(steps=st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, 60))), max_size=12), again=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_store_holds_the_rows_that_were_added_and_not_dropped(steps, again):
    # Given rows that come in pieces and go anywhere
    types = {"n": pa.int64(), "s": pa.string()}
    store, kept, rows, at = RowStore(types, "row", "here"), {}, {}, 0
    for size, gone in steps:
        ids = np.arange(at, at + size, dtype=np.int64) * 2
        at += size
        store.add(Part({"n": pa.array(ids * 10), "s": pa.array([str(each) for each in ids])}, size), ids)
        rows |= {int(each): (int(each) * 10, str(each)) for each in ids}
        leaving = sorted(gone & rows.keys())
        store.drop(np.array(leaving, np.int64))
        for each in leaving:
            del rows[each]
        for name, page in store.changed_pages():
            kept.pop(name, None)
            if page is not None:
                kept[name] = page
        if again:
            store = RowStore(types, "row", "here")
            store.load(kept)
    # Then they are there, in order, and chunks that are nearly empty are not
    ids = np.array(sorted(rows), np.int64)
    part = store.take(ids)
    assert list(zip(part.columns["n"].to_pylist(), part.columns["s"].to_pylist(), strict=True)) == list(rows.values())
    assert [each for _, some in store.all() for each in some.tolist()] == ids.tolist()
    assert len(store) == len(rows)
    assert len(store._chunks) <= 2 + len(rows)
    fresh = RowStore(types, "row", "here")
    fresh.load(kept)
    assert [each for _, some in fresh.all() for each in some.tolist()] == ids.tolist()


def test_a_window_row_by_row_writes_the_pieces_that_changed(monkeypatch):
    monkeypatch.setattr(treepages, "LONG", 256)
    monkeypatch.setattr(treepages, "_MOST", 1024)
    # Given a join that goes row by row, over thousands of facts
    text = (JOINED % ("", "leftouter")).replace("type: leftouter", "type: leftouter\n    no_regenerates: true")
    bench = Bench(text)
    assert "no_regenerates" in make_plan(bench.graph).steps[-1].form_why
    bench.send("Trades", *[(INS, (number, number % 50, number / 8)) for number in range(5_000)])
    whole = {name: page for name, page in bench.restart().items() if "Named:" in name}
    # When one of them changes
    bench.send("Trades", (UPD, (77, 3, 0.5)))
    changed = {name: page for name, page in bench.restart().items() if "Named:" in name}
    # Then the pages are small, those they replace are gone, and the answer is the same after a restart
    assert sum(len(page) for page in changed.values() if page) < sum(map(len, whole.values())) / 5
    assert [name for name, page in changed.items() if page is None]
    bench.send("Traders", (INS, (3, "ann", None)))
    bench.send("Trades", (DEL, (77, 0, 0.0)))
    bench.check()


def test_a_window_row_by_row_refuses_pages_that_are_not_its_own():
    text = (JOINED % ("", "leftouter")).replace("type: leftouter", "type: leftouter\n    no_regenerates: true")
    bench = Bench(text)
    bench.send("Trades", *[(INS, (number, 1, 1.0)) for number in range(9)])
    bench.restart()
    piece = next(name for name in bench.kept.kept if "Named:rows." in name)
    assert piece.partition(":")[2] in damaged(bench, piece, None)
    assert "not a page of a window that works row by row" in damaged(bench, "q/Named:left.0", [1])


def test_a_window_over_a_union_that_went_row_by_row_in_an_earlier_version_is_refused():
    over = "- {kind: aggregate, name: n, schema: 's*:string,n:int64', fields: [ESP_aCount()]}"
    bench = Bench(UNITED.replace("edges: [", f"{over}\n  edges: [All -> n, ") % "")
    bench.send("One", (INS, (1, "a")))
    bench.restart()
    assert "q/n worked row by row when it was taken" in damaged(bench, "q/n:rows", {})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (JoinColumns, JOINED % ("", "leftouter")),
        (UnionColumns, UNITED % ""),
        (PassingUnion, UNITED % ", index: pi_EMPTY"),
    ],
)
def test_which_form_a_window_has(kind, text):
    graph = compile_project(parse_yaml(text))
    operators, _ = Builder(graph, duty_of(graph, 0, 1), None).build(every(graph))
    assert sum(type(operator) is kind for operator in operators.values()) == 1


def test_a_change_of_one_row_that_many_facts_meet_makes_all_of_them_anew_in_one_span():
    bench = Bench(JOINED % (", insert_only: true", "leftouter"))
    many = 12_000
    bench.send("Trades", *[(INS, (number, 1, 1.0)) for number in range(many)])
    bench.send("Traders", (INS, (1, "ann", None)), (UPD, (1, "anna", None)), (DEL, (1, "", None)))
    assert len(bench.found.answer["q/Named"]) == many * 7
    bench.check()
