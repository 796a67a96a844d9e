"""Models and events for the tests of the engine's command line."""

from __future__ import annotations

import shutil
from pathlib import Path

TRADES = Path(__file__).parents[2] / "examples" / "trades"
TRADE = "I,N,{id},{symbol},840,1704205800,256,{price},100,12,81,2512,3752,0,{time}"

FAULTY = """
name: faulty
queries:
  - name: q
    windows:
      - {kind: source, name: S, schema: "id*:int32, x:double, when:stamp"}
      - {kind: aggregate, name: A, schema: "id*:int32, sum:double", fields: {sum: ESP_aSum(y)}}
      - {kind: filter, name: F, expression: "x >"}
      - {kind: copy, name: C, retention: bytime_sliding 5 minutes on tim}
    edges: [S -> A F, S -> C, S -> Nope]
"""
CLOCKED = """
name: clocked
queries:
  - name: q
    windows:
      - {kind: source, name: S, schema: "id*:int32, x:double"}
      - {kind: copy, name: C, retention: bytime_sliding 5 minutes}
      - {kind: filter, name: F, expression: x > 1}
    edges: [S -> C, C -> F]
"""
THREE_ROWS = """
name: three
queries:
  - name: q
    windows:
      - {kind: source, name: S, schema: "id*:int32, all:int32, x:int32"}
      - {kind: copy, name: C, retention: KIND 3}
      - {kind: aggregate, name: Total, schema: "all*:int32, sum:int64", fields: {sum: ESP_aSum(x)}}
    edges: [S -> C, C -> Total]
"""


def put_trades(folder: Path) -> None:
    """The trades model in its three forms."""
    for file in TRADES.glob("trades.*"):
        shutil.copy(file, folder)


def trade(number: int, *, symbol: str = "IBM", price: float = 101.5, second: int = 0) -> str:
    """One line."""
    time = (1_704_205_800 + second) * 1_000_000
    return TRADE.format(id=number, symbol=symbol, price=price, time=time) + "\n"
