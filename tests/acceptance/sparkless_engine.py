"""`lockstep engine run` without a JVM: the real command, the real engine, and a stand-in for Spark.

    python sparkless_engine.py engine run model.yaml --bus lmdb:bus
    python sparkless_engine.py lockstep.esp.xml_server -model file://model.xml     another command that runs an engine

The stand-in runs micro-batches with an offset log, a commit log and a state store on disk, as Spark does, in a thread
of the engine's process. So an engine starts in a second or two, may be killed with -9, and goes on from its checkpoint.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from unittest import mock

TESTS = Path(__file__).parents[1]


def sparkless_command(name: str, **given) -> list[str]:
    """In the place of engine_command."""
    from lockstep.drill.engines import engine_command

    _, _, _, *rest = engine_command(name, **given)
    return [sys.executable, __file__, *rest]


def main(arguments: list[str]) -> int:
    sys.path[:0] = [str(TESTS / "engine"), str(TESTS)]
    from sparkless_computing import SparklessComputing

    from lockstep.engine.spark import engine, session

    module = arguments.pop(0) if arguments[0].startswith("lockstep.") else "lockstep.cli.main"
    with (
        mock.patch.object(engine, "Computing", SparklessComputing),
        mock.patch.object(session, "check_java", return_value="none"),
    ):
        return importlib.import_module(module).main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
