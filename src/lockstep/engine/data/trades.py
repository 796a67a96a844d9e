"""Made-up trades in the shape of a real feed: a hundred a second, many symbols of which few are busy.

A million of them, for every seed: 359,951 within the last hour and 29,951 within the last five minutes, of 3,608
symbols in all, 3,068 in the last hour and 1,941 in the last five minutes. Other sizes lie on the same curve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.engine.events.atomic_files import new_file, unwritable
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.events.csv_format import write_csv
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.errors import BadArgument

TRADES_SCHEMA = Schema.parse(
    "ID*:int32,symbol:string,currency:int32,udate:int64,msecs:int32,price:double,quantity:int32,"
    "venue:int32,broker:int32,buyer:int32,seller:int32,buysellflg:int32,time:stamp"
)
RATE = 100
"""Events a second, except in the first second, which has what is left over, and the last."""
LAST_SECOND = 51
FIVE_MINUTES = 299 * RATE + LAST_SECOND
ONE_HOUR = 3599 * RATE + LAST_SECOND
_CURVE = ((1, 1), (FIVE_MINUTES, 1941), (ONE_HOUR, 3068), (1_000_000, 3608))
"""How many symbols occur in so many last events."""
_BEGIN = 1_704_205_800
_CHUNK = 1 << 16
_CURRENCIES = (840, 978, 826, 392, 756)

Progress = Callable[[int, int], None]


def symbol_count(events: int) -> int:
    """How many symbols trade in so many events: straight lines in a double-logarithmic picture of the known sizes."""
    for (low, symbols), (high, more) in pairwise(_CURVE):
        if events <= high or high == _CURVE[-1][0]:
            steepness = log(more / symbols) / log(high / low)
            return max(1, round(symbols * exp(steepness * log(max(1, events) / low))))
    raise AssertionError


def chunks(events: int, random: np.random.Generator) -> Iterator[EventBatch]:
    """Trades as inserts in blocks of one, numbered from 1; a generator in the same state gives the same trades."""
    if not 0 <= events < 2**31:
        raise BadArgument(name="events", value=events, reason="the ID of a trade is an int32")
    if not events:
        return
    market = _Market(events, random)
    for start in range(0, events, _CHUNK):
        yield market.trade(start, min(start + _CHUNK, events))


def write_trades(path: str | Path, events: int, seed: int, progress: Progress | None = None) -> None:
    """Write trades as CSV lines; the file appears when it is complete, and not at all if that fails."""
    random = np.random.Generator(np.random.PCG64(seed))
    with unwritable(path), new_file(path, sync=True) as file:
        _write(file, events, random, progress)


def _write(file: BinaryIO, events: int, random: np.random.Generator, progress: Progress | None) -> None:
    done = 0
    for batch in chunks(events, random):
        done += write_csv(batch, file)
        if progress is not None:
            progress(done, events)


class _Market:
    """Symbols with their prices, trading on.

    Three ages of the feed: in the last five minutes only the liveliest symbols trade, in the hour before them more, and
    before that all. Each symbol that an age adds trades at least once in it, at a random moment.
    """

    def __init__(self, events: int, random: np.random.Generator) -> None:
        self.events, self.random = events, random
        self.ages = _ages(events)
        self.names = pa.array(_names(self.ages[0][2], random), pa.string())
        weights = 1.0 / (np.arange(len(self.names)) + 20.0)
        self.cumulated = np.cumsum(weights)
        self.cents = random.integers(500, 50_000, len(self.names))
        self.sure_at, self.sure_symbol = self._sure_trades()

    def _sure_trades(self) -> tuple[Int64s, Int64s]:
        """Where the symbols that must occur in an age do so."""
        places, symbols = [], []
        for (start, stop, count), fewer in zip(self.ages, [*(age[2] for age in self.ages[1:]), 0], strict=True):
            places.append(start + self.random.choice(stop - start, count - fewer, replace=False))
            symbols.append(np.arange(fewer, count))
        at, symbol = np.concatenate(places), np.concatenate(symbols)
        order = np.argsort(at)
        return at[order].astype(np.int64), symbol[order].astype(np.int64)

    def trade(self, start: int, stop: int) -> EventBatch:
        """Trades number start to stop, counted from 0; must be called in order."""
        random, size = self.random, stop - start
        symbol = self._symbols(start, stop)
        seconds = _BEGIN + _seconds(self.events, np.arange(start, stop))
        columns = {
            "ID": np.arange(start + 1, stop + 1),
            "symbol": self.names.take(pa.array(symbol)),
            "currency": np.array(_CURRENCIES)[symbol % 17 % len(_CURRENCIES)],
            "udate": seconds,
            "msecs": random.integers(0, 1000, size),
            "price": self._prices(symbol) / 100.0,
            "quantity": 100 * random.geometric(0.3, size) + random.integers(0, 2, size) * random.integers(0, 100, size),
            "venue": random.integers(1, 13, size),
            "broker": random.integers(1, 201, size),
            "buyer": random.integers(1, 5001, size),
            "seller": random.integers(1, 5001, size),
            "buysellflg": random.integers(0, 2, size),
            "time": seconds * 1_000_000,
        }
        made = tuple(
            column if isinstance(column, pa.Array) else pa.array(column.astype(field.type.arrow.to_pandas_dtype()))
            for column, field in ((columns[field.name], field) for field in TRADES_SCHEMA)
        )
        plain = np.full(size, Opcode.INSERT, np.uint8), np.full(size, Flag.NORMAL, np.uint8)
        return EventBatch(TRADES_SCHEMA, np.arange(start + 1, stop + 1, dtype=np.int64), *plain, made)

    def _symbols(self, start: int, stop: int) -> Int64s:
        """Lively symbols often, others seldom, those that must occur where they must."""
        most = np.empty(stop - start, np.int64)
        for age_start, age_stop, count in self.ages:
            most[max(0, age_start - start) : max(0, age_stop - start)] = count
        drawn = self.random.random(stop - start) * self.cumulated[most - 1]
        symbol = np.minimum(np.searchsorted(self.cumulated, drawn, "right"), most - 1)
        low, high = np.searchsorted(self.sure_at, [start, stop])
        symbol[self.sure_at[low:high] - start] = self.sure_symbol[low:high]
        return symbol

    def _prices(self, symbol: Int64s) -> Int64s:
        """Each symbol walks on from its last price by up to three cents, and never below a dollar."""
        order = np.argsort(symbol, kind="stable")
        walked = np.cumsum(self.random.integers(-3, 4, len(symbol)))
        ordered = symbol[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        before = np.concatenate(([0], walked))[starts]
        lengths = np.diff(starts, append=len(symbol))
        cents = np.maximum(self.cents[ordered] + walked - np.repeat(before, lengths), 100)
        self.cents[ordered[starts]] = cents[starts + lengths - 1]
        prices = np.empty(len(symbol), np.int64)
        prices[order] = cents
        return prices


def _ages(events: int) -> list[tuple[int, int, int]]:
    """First and last event of each age, and how many symbols trade in it; the oldest first."""
    bounds = [size for size in (FIVE_MINUTES, ONE_HOUR) if size < events]
    sizes = [*reversed([*bounds, events]), 0]
    return [(events - old, events - young, symbol_count(old)) for old, young in pairwise(sizes)]


def _seconds(events: int, place: Int64s) -> Int64s:
    """The second in which each trade falls, counted from the first: full seconds, counted from the end."""
    back = events - 1 - place
    seconds_back = np.where(back < LAST_SECOND, 0, (back - LAST_SECOND) // RATE + 1)
    first = 0 if events <= LAST_SECOND else (events - 1 - LAST_SECOND) // RATE + 1
    return (first - seconds_back).astype(np.int64)


def _names(count: int, random: np.random.Generator) -> list[str]:
    """Different symbols of one to four letters, the way they are spread over the alphabet being random."""
    room = 26 + 26**2 + 26**3 + 26**4
    chosen: npt.NDArray[np.int64] = random.choice(room, count, replace=False)
    return [_name(number) for number in chosen.tolist()]


def _name(number: int) -> str:
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters
