"""An engine without Spark as a process of its own, on any bus: `python engine_process.py URL NAME FOLDER LEASE`.

It says on standard output what it is, a line of JSON each: {"role": "active"}, and {"error": CODE, "text": ...} when it
ends by itself. It ends when its standard input is closed.
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path

from failover_worlds import WANTED
from run_worlds import sums_graph

from lockstep.engine.runtime.engine import Engine, EngineOptions
from lockstep.errors import LockstepError
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

LOOK_S = 0.1


def say(**words) -> None:
    print(json.dumps(words), flush=True)


def main(url: str, name: str, folder: str, lease_s: str) -> int:
    runtime = ThreadRuntime()
    bus = open_bus(url, runtime)
    options = EngineOptions(
        name=name, lease_s=float(lease_s), snapshot_every_s=0.0, ticks=False, entry_events=1, runner="local"
    )
    engine = Engine(sums_graph(), WANTED, bus, Path(folder), runtime, options, lambda change: say(role=change.role))
    try:
        engine.start()
        while not select.select([sys.stdin], [], [], LOOK_S)[0]:
            engine.check()
    except LockstepError as error:
        say(error=error.code, text=str(error))
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))  # its threads may be in the middle of a call
