"""The same model over the project's logs as one batch job gives the bytes that it gave live."""

from __future__ import annotations

import io
from pathlib import Path

import local_engine
import pytest
from local_engine import LocalEngine
from run_worlds import HEAD_DAMAGED, input_log, put, recent_graph, run_all

from lockstep.engine.events.csv_format import CsvOutput, header_line, write_csv
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.runtime.engine import EngineOptions
from lockstep.engine.runtime.output.event_streams import out_batches
from lockstep.engine.spark.history_job import cut_orders, run_history
from lockstep.log.urls import open_bus

WANTED = frozenset({"q/recent", "q/sums"})


@pytest.fixture
def live(tmp_path, monkeypatch):
    """An engine on a disk that other processes can open, with everything published."""

    def on_disk(_: str, runtime):
        return open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed", runtime)

    monkeypatch.setattr(local_engine, "open_bus", on_disk)
    engine = LocalEngine(recent_graph(30), WANTED, tmp_path / "live", entry_events=7)
    publisher = engine.publishers["q/in"]
    for number in range(120):
        values = (number - number % 17 % 2, f"S{number % 5}", number / 7, number)
        publisher.publish([Event(Opcode.INSERT, Flag.NORMAL, values)] * (number % 3))
        if number == 60:
            publisher.flush()
            put(input_log(engine, "q/in"), HEAD_DAMAGED)
            run_all(engine)
            engine.restart()
    run_all(engine)
    yield engine
    engine.connection.close()


def lines_of(engine: LocalEngine, path: str) -> bytes:
    node = engine.graph.find(path)
    assert node is not None
    file = io.BytesIO()
    file.write(header_line(node.schema, CsvOutput()))
    for batch in out_batches(engine.bus.open(engine.streams.output(node)), node.schema):
        write_csv(batch, file, CsvOutput())
    return file.getvalue()


def test_orders_cover_the_log_once(live):
    orders = cut_orders(live.bus, live.streams, 20)
    assert len(orders) > 3
    assert [start for start, _ in orders] == [0, *(stop for _, stop in orders[:-1])]
    assert orders[-1][1] == live.sequencer.position.number
    assert cut_orders(live.bus, live.streams, 10**9) == [(0, live.sequencer.position.number)]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_batch_job_over_the_logs_gives_the_bytes_of_the_live_run(live, tmp_path, shards):
    before = {name: live.bus.open(name).bounds() for name in live.bus.names()}
    outputs: dict[str, Path] = {path: tmp_path / f"{path.replace('/', '-')}.csv" for path in WANTED}
    (tmp_path / "job").mkdir()
    options = EngineOptions(cluster="test", shards=shards, batch_events=20)
    outcome = run_history(live.graph, live.bus, outputs, CsvOutput(), tmp_path / "job", live.runtime, options)
    for path, file in outputs.items():
        assert file.read_bytes() == lines_of(live, path), path
        assert outcome.lines[path] > 50
    assert outcome.counts == live.publisher.counts
    assert outcome.blocks == live.published()
    assert {name: live.bus.open(name).bounds() for name in live.bus.names()} == before
