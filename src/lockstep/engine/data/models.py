"""The models that are measured, and the events they are fed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lockstep.engine.data.trades import FIVE_MINUTES, LAST_SECOND, ONE_HOUR, RATE, TRADES_SCHEMA, chunks, symbol_count
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.builder import ProjectBuilder, Stream, sliding
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import JoinField, JoinWindow, SourceWindow

SEED = 1
SPANS = (("5min", "5 minutes"), ("1HR", "1 hour"), ("24HR", "24 hours"))
DAY, HOUR, MINUTES = "trades/Aggregate24HR", "trades/Aggregate1HR", "trades/Aggregate5min"
VWAP = "vwap/Vwap5min"
NAMED = "desk/Named"
TRADERS = 5_000
"""Rows of the table that trades are joined with, less every fiftieth, which is missing."""
GROUPS = 100_000
GROUP_RATE = 1_000
"""Events a second of the model with many groups: each occurs every hundred seconds, so it is in all three windows."""
ONE_DAY = 86_399 * RATE + LAST_SECOND
DOCUMENT = {
    "trades/TradesSource": 1_000_000,
    "trades/Copy24HRRet": 1_000_000,
    "trades/Copy1HRRet": 359_951,
    "trades/Copy5MinRet": 29_951,
    DAY: 3_608,
    HOUR: 3_068,
    MINUTES: 1_941,
}
"""The rows that a million trades leave in each window."""
_UNNAMED = Schema.parse(str(TRADES_SCHEMA).replace("ID*:int32", "ID*:int64"))
_TRADER_SCHEMA = Schema.parse("id*:int32,name:string,country:string,fee:double")
_JOINED = ("l_ID", "l_symbol", "l_price", "l_quantity", "l_buyer", "r_name", "r_country", "r_fee")
_GROUP_SCHEMA = Schema.parse("ID*:int64,item:int32,price:double,quantity:int32,time:stamp")
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Case:
    """A model with a source of events for it."""

    project: Callable[[], Project]
    source: str
    events: Callable[[int], Iterator[EventBatch]]
    table: tuple[str, Callable[[], EventBatch]] | None = None
    """Another source with rows that are there before the events come."""

    def graph(self) -> Graph:
        """The model, compiled."""
        return compile_project(self.project())


def expected_rows(events: int) -> dict[str, int]:
    """What so many trades must leave in each of the seven windows; what can't be computed in advance is left out."""
    spans = {"5Min": FIVE_MINUTES, "1HR": ONE_HOUR, "24HR": ONE_DAY}
    rows = {"trades/TradesSource": events}
    for name, size in spans.items():
        rows[f"trades/Copy{name}Ret"] = min(events, size)
        if name != "24HR" or events <= size:
            rows[f"trades/Aggregate{name.replace('Min', 'min')}"] = symbol_count(min(events, size))
    return rows


def seven_windows() -> Project:
    """Trades over five minutes, an hour and a day: a source, three copies, three aggregates."""
    project = ProjectBuilder("trades")
    trades = project.query("trades").source("TradesSource", TRADES_SCHEMA, insert_only=True).options(index="pi_HASH")
    copies = [
        trades.copy(f"Copy{name.replace('min', 'Min')}Ret", retain=sliding(span, field="time")) for name, span in SPANS
    ]
    for copy, (name, _) in zip(copies, SPANS, strict=True):
        _prices(copy, f"Aggregate{name}", "symbol")
    return project.build()


def five_minutes() -> Project:
    """One window, one figure: the volume-weighted price of each symbol over five minutes."""
    project = ProjectBuilder("vwap")
    trades = project.query("vwap").source("Trades", _UNNAMED, insert_only=True, autogen_key=True)
    trades.options(index="pi_EMPTY")  # it keeps no keys, so that its state does not grow with the number of trades
    last = trades.copy("Last5Min", retain=sliding("5 minutes", field="time"))
    last.aggregate("Vwap5min", by="symbol", vwap="ESP_aWAve(quantity,price)")
    return project.build()


def many_groups() -> Project:
    """The same three windows over a hundred thousand items."""
    project = ProjectBuilder("items")
    trades = project.query("items").source("Sales", _GROUP_SCHEMA, insert_only=True).options(index="pi_HASH")
    for name, span in SPANS:
        _prices(trades.copy(f"Copy{name}", retain=sliding(span, field="time")), f"Aggregate{name}", "item")
    return project.build()


def stream_to_table() -> Project:
    """Each trade with the buyer's row of a table; no trade is kept, and a change of the table says nothing."""
    return _desk(left_index="pi_EMPTY")


def stream_and_table() -> Project:
    """The same, but trades are kept: a change of the table makes those that meet the row anew."""
    return _desk(left_index=None)


def _desk(left_index: str | None) -> Project:
    windows = (
        SourceWindow(name="Traders", schema=_TRADER_SCHEMA),
        SourceWindow(name="Trades", schema=TRADES_SCHEMA, insert_only=True),
        JoinWindow(
            name="Named",
            conditions=(("buyer", "id"),),
            fields=tuple(JoinField(name=source[2:], source=source) for source in _JOINED),
            left_index=left_index,
        ),
    )
    edges = (Edge(source="Trades", target="Named"), Edge(source="Traders", target="Named"))
    return Project(name="desk", queries=(ContinuousQuery(name="desk", windows=windows, edges=edges),))


def traders() -> EventBatch:
    """The table as one block of inserts."""
    number = np.array([each for each in range(1, TRADERS + 1) if each % 50], np.int32)
    size = len(number)
    columns = (
        pa.array(number),
        pa.array([f"Trader {each}" for each in number.tolist()]),
        pa.array([("CH", "DE", "FR", "GB", "US")[each % 5] for each in number.tolist()]),
        pa.array(number / 8.0),
    )
    plain = np.full(size, Opcode.INSERT, np.uint8), np.full(size, Flag.NORMAL, np.uint8)
    return EventBatch(_TRADER_SCHEMA, np.ones(size, np.int64), *plain, columns)


def _prices(trades: Stream, name: str, by: str) -> None:
    trades.aggregate(
        name,
        by=by,
        vwap="ESP_aWAve(quantity,price)",
        low="ESP_aMin(price)",
        high="ESP_aMax(price)",
        deviation="ESP_aStd(price)",
    )


def trades(events: int) -> Iterator[EventBatch]:
    """Trades in blocks of one."""
    return chunks(events, _chance())


def unnamed_trades(events: int) -> Iterator[EventBatch]:
    """Trades whose source gives them their keys."""
    for batch in trades(events):
        columns = (batch.column("ID").cast(pa.int64()), *batch.columns[1:])
        yield EventBatch(_UNNAMED, batch.block, batch.opcode, batch.flags, columns)


def items(events: int, groups: int = GROUPS) -> Iterator[EventBatch]:
    """Sales in blocks of one: all items once in a random order, then all again in another."""
    random = _chance()
    order = np.concatenate([random.permutation(groups) for _ in range(-(-events // groups))])[:events]
    for start in range(0, events, _CHUNK):
        size = min(_CHUNK, events - start)
        number = np.arange(start + 1, start + size + 1, dtype=np.int64)
        columns = (
            pa.array(number),
            pa.array(order[start : start + size].astype(np.int32)),
            pa.array(random.integers(100, 100_000, size) / 100.0),
            pa.array(random.integers(1, 1_000, size).astype(np.int32)),
            pa.array(number // GROUP_RATE * 1_000_000),
        )
        plain = np.full(size, Opcode.INSERT, np.uint8), np.full(size, Flag.NORMAL, np.uint8)
        yield EventBatch(_GROUP_SCHEMA, number, *plain, columns)


def _chance() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(SEED))


CASES: Mapping[str, Case] = {
    "seven": Case(seven_windows, "trades/TradesSource", trades),
    "five": Case(five_minutes, "vwap/Trades", unnamed_trades),
    "groups": Case(many_groups, "items/Sales", items),
    "join": Case(stream_to_table, "desk/Trades", trades, ("desk/Traders", traders)),
    "join_kept": Case(stream_and_table, "desk/Trades", trades, ("desk/Traders", traders)),
}
"""The cases by name, so that other processes can look one up."""
