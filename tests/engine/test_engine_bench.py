"""What the engine's benchmark is made of: the models, the arithmetic of its figures, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lockstep.bench import (
    engine,
    engine_kernel,
    engine_live,
    engine_peer_spark,
    engine_peers,
    engine_records,
    engine_shards,
)
from lockstep.bench.engine_jobs import steadiness, streams_of
from lockstep.bench.engine_memory import descendants, parts_mb, tree_mb
from lockstep.bench.engine_peer_bytewax import Met, Vwap, read_events, read_trades
from lockstep.bench.rows import Row
from lockstep.cli.main import main
from lockstep.engine.data.models import (
    CASES,
    DAY,
    DOCUMENT,
    NAMED,
    TRADERS,
    VWAP,
    expected_rows,
    items,
    seven_windows,
    trades,
)
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.model.loading import load_model
from lockstep.engine.reference.interpreter import Interpreter
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.sequence.streams import sources
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep

ROOT = Path(__file__).parents[2]


def test_the_measured_model_is_the_one_of_the_example():
    assert load_model(ROOT / "examples" / "trades" / "trades.yaml") == seven_windows()


def test_a_million_trades_must_leave_the_seven_counts_of_the_document():
    assert expected_rows(1_000_000) == DOCUMENT


def test_other_sizes_leave_what_the_interpreter_counts():
    kept = engine_kernel.keep("seven", 31_000)
    plain = Interpreter(CASES["seven"].graph())
    for number, events in kept.batch.blocks():
        plain.evaluate(InputBlock(number, kept.source, tuple(events)))
    assert {path: counts.rows for path, counts in plain.counts.items()} == expected_rows(31_000)
    assert engine_kernel.kernel("seven", kept, (DAY,))["rows"] == expected_rows(31_000)


def test_what_a_day_holds_of_more_trades_than_that_is_not_guessed():
    rows = expected_rows(10_000_000)
    assert rows["trades/Copy24HRRet"] == 8_639_951
    assert DAY not in rows


def test_every_item_is_there_once_before_any_comes_again():
    batches = list(items(250, groups=100))
    found = [item for batch in batches for item in batch.column("item").to_pylist()]
    assert sorted(found[:100]) == sorted(found[100:200]) == list(range(100))
    assert len(set(found[200:])) == 50


def test_the_steady_rate_leaves_the_first_batch_out():
    found = steadiness([(5_000_000_000, 1_000), (6_000_000_000, 1_600), (7_000_000_000, 2_000)])
    assert (found["steady_events"], found["steady_s"], found["steady_events_per_s"]) == (1_000, 2.0, 500)
    assert found["batch_events_per_s"] == [600, 400]


def test_parts_of_the_first_batch_are_left_out_too():
    parts = [(1_000_000_000, 100), (1_000_000_001, 290), (2_000_000_000, 600), (4_000_000_000, 1_000)]
    found = steadiness(parts, 280)
    assert (found["steady_events"], found["steady_s"], found["publications"]) == (710, 3.0, 3)
    # Where nothing would be left, all of it counts
    assert steadiness(parts, 1_000)["steady_events"] == 900


def test_latency_is_from_the_publication_of_an_event_to_the_reading_of_its_block():
    sent = [(1, 2, 10.0), (3, 3, 10.5)]
    read = [(1, 1, 10.1), (2, 3, 11.0)]
    assert engine_live.latencies_ms(sent, read) == pytest.approx([100.0, 1000.0, 500.0])


def test_a_wrong_count_is_named():
    found = {"events": 1_000_000, "rows": {**DOCUMENT, DAY: 3_607}, "events_out": {DAY: 1_996_392}}
    assert engine.wrong_counts(found) == {DAY: {"expected": 3_608, "found": 3_607}}
    assert engine.wrong_counts({**found, "rows": DOCUMENT}) == {}
    assert engine.wrong_counts({**found, "rows": DOCUMENT, "events_out": {DAY: 1}}) == {
        f"{DAY} lines": {"expected": 1_996_392, "found": 1}
    }


def test_parts_are_chosen_by_name_and_the_long_ones_only_when_asked_for():
    assert "large" not in engine.EngineBench().parts
    assert "large" in engine.EngineBench(large=True).parts
    assert "peers" not in engine.EngineBench(peers=False).parts
    assert engine.EngineBench(only=("shards", "one")).parts == ["one", "shards"]
    with pytest.raises(ValueError, match="there is no row speed; there are one, three"):
        engine.EngineBench(only=("speed",))
    with pytest.raises(ValueError, match="must be more than one batch"):
        engine.EngineBench(events=10)


def test_a_part_that_fails_becomes_a_row_that_says_so_and_the_others_are_measured(monkeypatch):
    def broken(_runs):
        message = "no room"
        raise OSError(message)

    monkeypatch.setitem(engine.PARTS, "one", broken)
    monkeypatch.setitem(engine.PARTS, "shards", lambda _: iter([Row(name="fine", value=1.0, unit="s", details={})]))
    failed, fine = engine.all_rows(engine.EngineBench(only=("one", "shards")), lambda _: None)
    assert (failed.name, failed.ok, failed.details) == ("one: failed", False, {"error": "no room"})
    assert fine.name == "fine"


def test_the_command_names_the_rows_there_are(capsys):
    assert main(["bench", "engine", "--only", "speed"]) == 2
    assert "There is no row speed; there are one, three, live" in capsys.readouterr().err


def test_the_price_of_the_others_is_the_price_of_the_window():
    # Given trades far enough apart that rows leave
    chance = np.random.Generator(np.random.PCG64(7))
    seconds = np.cumsum(chance.integers(0, 90, 300)).tolist()
    symbols, prices = chance.choice(list("ABC"), 300).tolist(), chance.integers(100, 999, 300).tolist()
    plain, others = Interpreter(CASES["five"].graph()), {symbol: Vwap() for symbol in "ABC"}
    for number, (second, symbol, price) in enumerate(zip(seconds, symbols, prices, strict=True), 1):
        values = (None, symbol, 1, second, 0, price / 4, number, 1, 1, 1, 1, 0, second * 1_000_000)
        # When both take a trade
        block = InputBlock(number, "vwap/Trades", (Event(Opcode.INSERT, Flag.NORMAL, values),))
        found = plain.evaluate(block)[VWAP]
        mine = [event for event in found if event.opcode is not Opcode.DELETE and event.values[0] == symbol]
        # Then the last word of the window on this symbol is what the others say
        assert mine[-1].values[1] == pytest.approx(others[symbol].add((second, price / 4, number)), rel=1e-12)
    assert min(len(other.rows) for other in others.values()) < 30


class KeptState:
    """A group's state as Spark keeps it: a row of bytes."""

    exists = False
    get: tuple[bytes, ...] = ()

    def update(self, row):
        self.exists, self.get = True, row


def test_the_hand_written_job_goes_on_where_the_batch_before_ended_and_sorts_its_rows():
    state, whole, seen = KeptState(), Vwap(), []
    for begin in (0, 200, 400):
        rows = [(begin, 2.0, 6), (begin + 10, 3.0, 7), (begin + 20, 1.0, 5)]
        given = pd.DataFrame(
            [(begin + 3, *rows[2]), (begin + 1, *rows[0]), (begin + 2, *rows[1])],
            columns=["ID", "udate", "price", "quantity"],
        )
        (made,) = engine_peer_spark.vwap(("A",), iter([given]), state)
        assert made["vwap"].tolist() == [whole.add(row) for row in rows]
        seen += made["ID"].tolist()
    assert seen == sorted(seen)
    assert len(whole.rows) == 6, "what is older than five minutes has left"


def test_the_lines_for_others_are_the_trades(tmp_path):
    engine_peers.write_lines(tmp_path / "trades.tsv", 500)
    (batch,) = trades(500)
    names = ("udate", "price", "quantity")
    rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    assert read_trades(str(tmp_path / "trades.tsv")) == list(zip(batch.column("symbol").to_pylist(), rows, strict=True))


def test_the_join_of_the_others_gives_the_rows_of_the_window(tmp_path):
    # Given the trades and the table as the others read them
    kept, (path, rows) = engine_kernel.keep("join", 300), CASES["join"].table
    met, theirs = defaultdict(Met), []
    for key, event in read_events(*map(str, engine_peers.write_join(tmp_path, 300))):
        made = met[key].add(event)
        theirs += [] if made is None else [made]
    # When the window gets the table and then the trades
    plain = Interpreter(CASES["join"].graph())
    plain.evaluate(InputBlock(1, path, tuple(rows().events())))
    found = []
    for number, events in kept.batch.blocks():
        found += plain.evaluate(InputBlock(number + 1, kept.source, tuple(events)))[NAMED]
    # Then both give the same
    assert [event.values for event in found] == theirs
    assert len([row for row in theirs if row[5] is None]) in range(1, 30)


def test_the_join_is_measured_with_and_without_changes_of_the_table():
    kept = engine_kernel.keep("join_kept", 3_000)
    found = engine_kernel.kernel("join_kept", kept, (NAMED,))
    assert found["rows"] == {"desk/Traders": TRADERS - TRADERS // 50, "desk/Trades": 3_000, NAMED: 3_000}
    found = engine_kernel.changed_table("join_kept", kept, (NAMED,))
    assert found["changes"] == 2
    assert found["out"] >= 3_000


def test_without_bytewax_it_says_how_to_get_it():
    found = engine_peers.run_bytewax(10, "/no/such/python")
    assert "pip install --require-hashes -r requirements/bench.txt" in found["missing"]


@pytest.mark.parametrize("key", ["pathway", "flink"])
def test_without_another_means_it_says_how_to_name_it(key, monkeypatch):
    other = engine_peers.OTHERS[key]
    for python in ("", "/no/such/python"):
        monkeypatch.setenv(other.variable, python)
        missing = engine_peers.run_other(key, 10, engine_peers.write_join)["missing"]
        assert missing == f"{other.name} is not installed: set {other.variable} to a Python that has it"


def test_the_memory_of_children_is_counted():
    with subprocess.Popen(
        [sys.executable, "-c", "data = bytearray(64 << 20); print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in list(descendants(os.getpid()))
        assert tree_mb(child.pid) > 64
        assert tree_mb() > tree_mb(child.pid)
        assert set(parts_mb()) > {"driver"}
        child.communicate(b"\n")


@pytest.mark.soak
def test_every_shard_has_work_and_every_number_of_shards_is_reported(tmp_path):
    runtime, graph = ThreadRuntime(), CASES["seven"].graph()
    with Lockstep(open_bus("memory:shards-of-a-bench", runtime), runtime) as connection:
        streams_of("seven").create(connection.bus, graph, frozenset(engine_kernel.ALL_THREE))
        (node,) = sources(graph)
        publisher = EventPublisher(connection, streams_of("seven").input(node), node.schema)
        publisher.publish_batch(engine_kernel.keep("seven", 1_000).batch)
        publisher.close()
        found = engine_shards.measure(connection.bus, "seven", engine_kernel.ALL_THREE, 1_000, tmp_path, lambda _: None)
    assert found["shards"]["1"]["decoded"] == [1_000]
    assert {number: len(each["busy_s"]) for number, each in found["shards"].items()} == {"1": 1, "2": 2, "4": 4}


@pytest.mark.soak
def test_records_of_every_form_are_sequenced_and_read():
    found = [
        engine_records.measure(f"memory:records-{place}", form, 500) for place, form in enumerate(engine_records.FORMS)
    ]
    assert [(each["events"], each["entries"]) for each in found] == [(500, 1)] * 3
    assert all(each["read_per_s"] > 0 for each in found)


def test_frames_csv_and_the_interpreter_are_measured():
    kept = engine_kernel.keep("seven", 3_000)
    found = engine_kernel.forms("seven", kept, (DAY,))
    assert all(value > 0 for value in found.values())
    assert engine_kernel.interpreter("seven", kept, 200)["events"] == 200


def test_the_page_shows_what_rows_know(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from engine_report import markdown

    shards = {"shards": {"1": {"busy_s": [2.0], "longest_s": 2.0, "together_s": 2.0}}}
    facts = {"cores": 2, "processor": "x", "memory_gb": 1, "kernel": "1", "python": "3", "date": "today",
             "load_before": 0.0, "quick": True}  # fmt: skip
    page = markdown(facts, [Row(name="busiest", value=2.0, unit="processor s", details=shards)])
    assert "| busiest | - | 2 processor s | - | 0.0 |" in page
    assert "| 1 | 2.00 | 2.00 | 2.00 |" in page
    assert "Beside others" not in page
