"""The row form of a model in one go: in this process, or in one of its own with another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgpack

from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import parse_yaml, to_yaml
from lockstep.engine.model.project import Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.reference.interpreter import Interpreter
from lockstep.engine.reference.operator import BadEvent, Notice


class WindowDiffers(AssertionError):
    """Two runs over the same events gave different answers."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))


Answer = dict[str, list[str]]
"""What a block gave: events, notices and bad events as text, by what and whose they are."""
_PROCESS_S = 120.0


def run_in_one_go(graph: Graph, blocks: Sequence[InputBlock]) -> list[Answer]:
    """The answer of the row form, block by block."""
    answers: list[Answer] = []
    interpreter = Interpreter(
        graph,
        on_bad=lambda bad: add_bad(answers[-1], bad),
        on_notice=lambda notice: add_notice(answers[-1], notice),
    )
    for block in blocks:
        answers.append({})
        for path, events in interpreter.evaluate(block).items():
            for event in events:
                add_event(answers[-1], path, event)
    return answers


def add_event(answer: Answer, path: str, event: Event) -> None:
    """Note what a window gave."""
    _add(answer, f"window {path}", _text(event))


def add_bad(answer: Answer, bad: BadEvent) -> None:
    """Note what a window refused."""
    _add(answer, f"bad events of {bad.window}", f"{bad.reason}: {_text(bad.event)}")


def add_notice(answer: Answer, notice: Notice) -> None:
    """Note what is to be done outside."""
    told = (notice.kind, notice.key, notice.headers, notice.body, notice.content, notice.id)
    _add(answer, f"notices of {notice.window}", repr(told))


def _add(answer: Answer, key: str, text: str) -> None:
    answer.setdefault(key, []).append(text)


def _text(event: Event) -> str:
    return f"{event.opcode.letter},{event.flags.letters},{tuple(event.values)!r}"


def run_elsewhere(project: Project, blocks: Sequence[InputBlock]) -> list[Answer]:
    """The answers of a process of its own, in which sets have another order."""
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    given = msgpack.packb({"model": to_yaml(project), "blocks": [_tree(block) for block in blocks]})
    command = [sys.executable, "-m", "lockstep.testing.window_process"]
    try:
        done = subprocess.run(  # noqa: S603 - this very program
            command, input=given, env=environment, capture_output=True, timeout=_PROCESS_S, check=True
        )
    except subprocess.CalledProcessError as error:
        lines = ["In another process the window fails:", error.stderr.decode(errors="replace")[-2000:]]
        raise WindowDiffers(lines) from None
    except subprocess.TimeoutExpired:
        lines = [f"In another process the window gave no answer within {_PROCESS_S:g} s."]
        raise WindowDiffers(lines) from None
    answers: list[Answer] = msgpack.unpackb(done.stdout)
    return answers


def _tree(block: InputBlock) -> list[Any]:
    events = [[int(event.opcode), int(event.flags), list(event.values)] for event in block.events]
    return [block.number, block.window, events, block.transactional, block.tick_us, block.lagging]


def _block(tree: Sequence[Any]) -> InputBlock:
    number, window, events, *others = tree
    made = tuple(Event(Opcode(opcode), Flag(flags), _row(values)) for opcode, flags, values in events)
    return InputBlock(number, window, made, *others)


def _row(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def main() -> None:
    """The second process: a model and blocks come in, the answers go out."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # what a window prints is no answer
    given = msgpack.unpackb(sys.stdin.buffer.read())
    graph = compile_project(parse_yaml(given["model"], "the model"))
    answers = run_in_one_go(graph, [_block(tree) for tree in given["blocks"]])
    out.write(msgpack.packb(answers))


if __name__ == "__main__":
    main()
