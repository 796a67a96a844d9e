from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from lockstep.engine.data.trades import TRADES_SCHEMA, chunks, symbol_count, write_trades
from lockstep.engine.errors import FileUnwritable
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.csv_format import CsvOptions, read_csv
from lockstep.errors import BadArgument, PathMissing


def trades(events: int, seed: int) -> EventBatch:
    return concat(list(chunks(events, np.random.Generator(np.random.PCG64(seed)))))


def within(batch: EventBatch, seconds: int) -> int:
    """How many events the window of so many seconds keeps: those less than that older than the newest."""
    time = batch.column("time").to_numpy()
    return int((time.max() - time < seconds * 1_000_000).sum())


def symbols(batch: EventBatch, last: int) -> int:
    return len(batch.column("symbol").slice(len(batch) - last).unique())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 20_240_102, 2**63])
def test_a_million_trades_have_the_seven_counts_for_every_seed(seed):
    batch = trades(1_000_000, seed)
    assert [within(batch, seconds) for seconds in (86_400, 3600, 300)] == [1_000_000, 359_951, 29_951]
    assert [symbols(batch, last) for last in (1_000_000, 359_951, 29_951)] == [3608, 3068, 1941]
    assert batch.column("ID").to_numpy().tolist() == list(range(1, 1_000_001))
    assert batch.block.tolist() == list(range(1, 1_000_001))


@pytest.mark.parametrize("events", [1, 2, 51, 52, 100, 1000, 29_951, 29_952, 50_000])
def test_other_sizes_have_the_same_shape(events):
    batch = trades(events, 5)
    assert len(batch) == events
    assert within(batch, 300) == min(events, 29_951)
    assert symbols(batch, events) == symbol_count(events)
    assert symbols(batch, min(events, 29_951)) == symbol_count(min(events, 29_951))
    time = batch.column("time").to_numpy()
    assert (np.diff(time) >= 0).all()
    assert (time % 1_000_000 == 0).all()
    assert np.unique(time, return_counts=True)[1].max() <= 100


def test_the_number_of_symbols_rises_with_the_size():
    counts = [symbol_count(size) for size in (1, 10, 100, 1000, 29_951, 100_000, 359_951, 1_000_000, 10_000_000)]
    assert counts == sorted(set(counts))
    assert (counts[0], counts[4], counts[6], counts[7]) == (1, 1941, 3068, 3608)


def test_values_are_plausible():
    batch = trades(20_000, 3)
    price = batch.column("price").to_numpy()
    assert (price >= 1).all()
    assert (np.round(price * 100) / 100 == price).all()
    assert (batch.column("quantity").to_numpy() > 0).all()
    assert all(
        column.null_count == 0 and column.type == field.type.arrow
        for column, field in zip(batch.columns, TRADES_SCHEMA, strict=True)
    )
    # Prices walk: from one trade of a symbol to its next by three cents at most.
    of_one = price[batch.column("symbol").to_numpy(zero_copy_only=False) == batch.column("symbol")[0].as_py()]
    assert len(of_one) > 2
    assert (np.abs(np.diff(np.round(of_one * 100))) <= 3).all()


def test_a_seed_says_it_all():
    first, again, other = trades(3000, 1), trades(3000, 1), trades(3000, 2)
    assert first.columns == again.columns
    assert first.column("price") != other.column("price")


def test_no_trades_and_too_many():
    assert list(chunks(0, np.random.Generator(np.random.PCG64(1)))) == []
    with pytest.raises(BadArgument):
        list(chunks(2**31, np.random.Generator(np.random.PCG64(1))))


def test_the_file_holds_the_trades(tmp_path):
    path, seen = tmp_path / "trades.csv", []
    write_trades(path, 70_000, 9, lambda done, total: seen.append((done, total)))
    found = concat(list(read_csv(path, TRADES_SCHEMA, CsvOptions(), pytest.fail)))
    assert found.columns == trades(70_000, 9).columns
    assert seen == [(65_536, 70_000), (70_000, 70_000)]
    assert path.read_bytes().startswith(b"I,N,1,")


def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch):
    path = tmp_path / "trades.csv"
    path.write_text("before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lockstep.engine.events.atomic_files.os.fsync", full)
    with pytest.raises(FileUnwritable, match="No space left"):
        write_trades(path, 100, 1)
    assert path.read_text() == "before"
    assert list(Path(tmp_path).iterdir()) == [path]


def test_a_folder_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(PathMissing, match="No such file"):
        write_trades(tmp_path / "none" / "trades.csv", 10, 1)
