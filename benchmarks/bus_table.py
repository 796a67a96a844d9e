"""Writes the table of what each bus can do into docs/reference/buses.md, from real servers.

python benchmarks/bus_table.py
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from lockstep.dev.servers import RECIPES, start
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus, Limits, Promises
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "buses.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
_ROWS: Mapping[str, Callable[[Promises, Limits], str]] = {
    "acknowledged when it is": lambda said, _: {"memory": "in memory", "relaxed": "given to the system"}.get(
        said.durability, "on disk"
    ),
    "may lose of what it acknowledged": lambda said, _: said.may_lose,
    "readers see a record": lambda said, _: (
        "perhaps before its copies exist; an error if it is lost then" if said.takes_back else "when it is acknowledged"
    ),
    "opened by": lambda said, _: said.opened_by,
    "bounds a stream by": lambda said, _: ", ".join(said.retention),
    "changes several streams in one step": lambda said, _: _yes(said.atomic),
    "appends on a condition": lambda said, _: _yes(said.conditional),
    "drops copies itself": lambda said, _: _yes(said.dedupe) if said.dedupe else "no, readers do",
    "copies of an append": lambda said, _: said.copies,
    "append times": lambda said, _: "never go back" if said.ordered_times else "never go back for one writer",
    "wakes who waits": lambda said, _: _yes(said.notifies),
    "hands old records to a history": lambda said, _: _yes(said.history),
    "offsets": lambda _, limits: "without gaps" if limits.stride == 1 else f"{limits.stride:,} for each append",
    "largest append": lambda _, limits: "any" if limits.append_bytes is None else f"{limits.append_bytes:,} bytes",
}


def capabilities(buses: Mapping[str, Bus]) -> str:
    """A Markdown table with a column for each bus; makes a stream on each to see its limits, and removes it."""
    said = {name: (bus.promises, _limits(bus)) for name, bus in buses.items()}
    lines = [["", *(f"`{name}`" for name in said)], ["---"] * (len(said) + 1)]
    lines += [[title, *(show(*each) for each in said.values())] for title, show in _ROWS.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _limits(bus: Bus) -> Limits:
    name = "capabilities"
    limits = bus.create(name, StreamConfig(capacity=None)).limits
    bus.delete(name)
    return limits


def _yes(whether: bool) -> str:
    return "yes" if whether else "no"


def main() -> None:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        urls = {"memory": "memory:", "lmdb": f"lmdb:{folder / 'bus'}"}
        for name in ("kafka", "rabbitmq", "redis", "hazelcast"):
            server = start(RECIPES[name](), folder / name, owner=os.getpid())
            opened.callback(server.destroy)
            urls[name] = server.url
        buses = {name: open_bus(url, ThreadRuntime()) for name, url in urls.items()}
        for bus in buses.values():
            opened.callback(bus.close)
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + capabilities(buses) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
