"""`lockstep engine run --runner local`, for tests of engines that need no JVM.

python sparkless_engine.py engine run model.yaml --bus lmdb:bus
python sparkless_engine.py lockstep.esp.xml_server -model file://model.xml     another command that runs an engine
"""

from __future__ import annotations

import importlib
import sys


def sparkless_command(name: str, **given) -> list[str]:
    """In the place of engine_command."""
    from lockstep.drill.engines import engine_command

    _, _, _, *rest = engine_command(name, **given)
    return [sys.executable, __file__, *rest]


def main(arguments: list[str]) -> int:
    if arguments[0].startswith("lockstep."):
        module, *words = arguments
        return importlib.import_module(module).main([*words, "-engine", "runner=local"])
    if arguments[:2] == ["engine", "run"]:
        arguments = sys.argv[1:] = [*arguments, "--runner", "local"]  # an engine that starts again reads them there
    return importlib.import_module("lockstep.cli.main").main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
