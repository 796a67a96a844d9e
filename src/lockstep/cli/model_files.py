"""Models in, files out: what all commands of the engine do with paths; and data to try models with."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli.connection import closest
from lockstep.cli.model_report import per_second
from lockstep.cli.output import Output, plural
from lockstep.errors import Forbidden, PathMissing, UsageError

if TYPE_CHECKING:
    from lockstep.engine.model.graph import Graph, Node

STANDARD = "-"
"""Standard input or output, where a file could be named."""


def load_graph(path: str) -> Graph:
    """The model in a file, checked; an error with all its faults if it has any."""
    from lockstep.engine.model.loading import load_model
    from lockstep.engine.model.validation import compile_project

    return compile_project(load_model(path, os.environ))


def find_source(graph: Graph, name: str) -> Node:
    """A source window by its name or path."""
    return _find(graph, name, "source window", [node for node in graph.nodes if node.is_source])


def find_window(graph: Graph, name: str) -> Node:
    """Any window by its name or path."""
    return _find(graph, name, "window", graph.nodes)


def _find(graph: Graph, name: str, what: str, nodes: Sequence[Node]) -> Node:
    """One of `nodes`; the error for another name says which one was probably meant."""
    from lockstep.engine.errors import WindowNotFound

    node = graph.find(name)
    if node is not None and node in nodes:
        return node
    error = WindowNotFound(model=graph.project.name, what=what, name=name, known=", ".join(item.path for item in nodes))
    same = [item.path for item in nodes if item.window.name == name]
    meant = closest(name, [text for item in nodes for text in (item.window.name, item.path)])
    if same:
        error.add_note(f"Several have that name: say {' or '.join(same)}.")
    elif meant is not None:
        error.add_note(f"Did you mean {meant!r}?")
    raise error


def check_readable(path: Path) -> None:
    """Refuse a file that can't be read, before anything is done."""
    from lockstep.engine.errors import FileMissing
    from lockstep.engine.runtime.files import open_input

    if path.is_dir():
        raise FileMissing(path=str(path), reason="it is a folder")
    if str(path) != STANDARD and not path.is_fifo() and not path.is_char_device():
        open_input(path).close()


def check_writable(path: Path) -> None:
    """Raise if no file can be created there, before anything is done."""
    from lockstep.engine.events.atomic_files import is_plain, unwritable

    if path.is_dir():
        raise UsageError(reason=f"{str(path)!r} is a folder: name a file in it.")
    with unwritable(path):
        if not is_plain(path):
            if not os.access(path, os.W_OK):
                raise Forbidden(path=str(path), action="written", reason="the mode of the file says no")
            return
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise PathMissing(path=str(path), reason=f"there is no folder {str(folder)!r}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Forbidden(path=str(path), action="written", reason=f"the folder {str(folder)!r} can't be written to")


def write_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file that appears when it is complete, and not at all if that fails; `mode` says who may read it."""
    from lockstep.engine.events.atomic_files import new_file, unwritable

    check_writable(path)
    with unwritable(path), new_file(path, mode=mode) as file:
        file.write(data)


def trades(options: argparse.Namespace, output: Output) -> None:
    """Write trades as CSV lines."""
    from lockstep.engine.data.trades import write_trades
    from lockstep.errors import UsageError

    if options.out == STANDARD:
        if output.json:
            raise UsageError(reason="--json and -o - do not go together: name a file.")
        _print(options, output)
        return
    path = Path(options.out)
    check_writable(path)
    progress, began = output.progress("trades", options.events), time.monotonic()
    try:
        write_trades(path, options.events, options.seed, lambda done, _: progress.add(done - progress.count))
    finally:
        progress.end()
    seconds, size = time.monotonic() - began, path.stat().st_size
    if output.json:
        output.json_line(
            {
                "file": options.out,
                "events": options.events,
                "seed": options.seed,
                "bytes": size,
                "seconds": round(seconds, 3),
            }
        )
        return
    rate = per_second(options.events, seconds)
    output.line(f"Wrote {plural(options.events, 'trade')} to {options.out}: {seconds:,.1f} s ({rate:,} events/s).")


def _print(options: argparse.Namespace, output: Output) -> None:
    import numpy as np

    from lockstep.engine.data.trades import chunks
    from lockstep.engine.events.csv_format import write_csv

    for batch in chunks(options.events, np.random.Generator(np.random.PCG64(options.seed))):
        lines = BytesIO()
        write_csv(batch, lines)
        output.raw(lines.getvalue())
