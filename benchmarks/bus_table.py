"""Writes the table of what each bus can do into docs/reference/buses.md, from real servers.

python benchmarks/bus_table.py
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from lockstep.dev.servers import RECIPES, start
from lockstep.log.table import capabilities
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "buses.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


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
