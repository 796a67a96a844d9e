"""Running a model over files."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lockstep.cli import model_report as report
from lockstep.cli.model_files import (
    STANDARD,
    check_readable,
    check_writable,
    find_source,
    find_window,
    load_graph,
)
from lockstep.cli.output import Output, Progress, plural
from lockstep.cli.values import EVERYTHING, check_runner
from lockstep.errors import BadArgument, LockstepError, UsageError

if TYPE_CHECKING:
    from lockstep.engine.events.csv_reader import CsvOutput
    from lockstep.engine.model.graph import Graph
    from lockstep.engine.runtime.engine import EngineStatus
    from lockstep.engine.runtime.files import BadLines, FileInputs, FileOutcome

_STDIN = Path("/dev/stdin")
_SHOW_S = 0.2


def run(options: argparse.Namespace, output: Output) -> None:
    """Feed the files to the model, write what comes out, and print the counts of every window."""
    from lockstep.engine.errors import NoLineTaken
    from lockstep.engine.runtime.files import BadLines, write_final_rows

    graph = load_graph(options.model)
    inputs, outputs = _inputs(options, graph), _outputs(options, graph)
    check_runner(options)
    bad, run_it = BadLines(), _run_reference if options.runner == "reference" else _run_engine
    progress = output.progress("events")
    try:
        with _folder(options) as folder, _written(outputs, folder, output) as files, _errors(outputs):
            changes = _change_files(files, folder) if options.final else files
            outcome = run_it(graph, options, inputs, changes, bad, folder, progress)
            if options.final:
                lines = write_final_rows(graph, changes, files, _csv_output(options))
                outcome = replace(outcome, lines=lines)
    except NoLineTaken:
        progress.end()
        report.show_bad_lines(output, bad)
        raise
    finally:
        progress.end()
    if output.json:
        output.json_line(_tree(graph, options, outcome, bad))
        return
    report.show_bad_lines(output, bad)
    report.show_refused(output, outcome.refused)
    aside = _prints(outputs)
    output.flush()
    if options.counts or not aside:
        report.show_windows(output, report.window_rows(graph, outcome.counts), outcome.lines, aside=aside)
    output.flush()
    report.show_speed(output, outcome, on_spark=options.runner == "spark")


def _inputs(options: argparse.Namespace, graph: Graph) -> FileInputs:
    """What to feed; everything that can be known to be wrong is found here, before anything runs."""
    from lockstep.engine.events.csv_reader import CsvOptions
    from lockstep.engine.runtime.files import FileInputs

    if options.final and options.collapse:
        raise UsageError(reason="--final and --collapse do not go together: rows at the end are no changes.")
    if options.script and (options.add_opcode or options.add_flags or options.no_key or options.delimiter != ","):
        raise UsageError(
            reason="A --script has whole lines: leave out --add-opcode, --add-flags, --no-key and --delimiter."
        )
    if options.script and options.inputs:
        raise UsageError(reason="--script says what goes where: leave out --in, or the script.")
    if not options.script and not options.inputs:
        raise UsageError(reason="Say what to feed: --in WINDOW=FILE for each file, or --script FILE.")
    files = tuple((find_source(graph, window).path, _in_file(path)) for window, path in options.inputs)
    csv = CsvOptions(
        header=options.csv_header,
        block_size=options.block,
        transactional=options.transactional,
        date_format=options.date_format,
        add_opcode=options.add_opcode,
        add_flags=options.add_flags,
        no_autogen_field=options.no_key,
        delimiter=options.delimiter,
    )
    return FileInputs(files=files, script=_in_file(options.script) if options.script else None, csv=csv)


def _in_file(name: str) -> Path:
    path = _STDIN if name == STANDARD else Path(name)
    check_readable(path)
    return path


def _outputs(options: argparse.Namespace, graph: Graph) -> dict[str, Path]:
    found: dict[str, Path] = {}
    taken = {Path(name).resolve() for _, name in options.inputs if name != STANDARD}
    if options.json and any(name == STANDARD for _, name in options.outputs):
        raise UsageError(reason="--json and --out WINDOW=- do not go together: name a file.")
    for window, name in options.outputs:
        path, file = find_window(graph, window).path, Path(name)
        if path in found:
            raise UsageError(reason=f"--out names {path} twice: one file is enough.")
        if name != STANDARD:
            check_writable(file)
        if file.resolve() in taken:
            raise UsageError(
                reason=f"{name!r} is given twice: each window needs a file of its own, no input is overwritten."
            )
        taken.add(file.resolve())
        found[path] = file
    return found


def _prints(outputs: Mapping[str, Path]) -> bool:
    """Whether events go to standard output."""
    return STANDARD in map(str, outputs.values())


@contextmanager
def _folder(options: argparse.Namespace) -> Iterator[Path]:
    """Where the run keeps its store and state: gone at its end, unless they are to be kept."""
    if options.keep_state is not None:
        folder = Path(options.keep_state)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadArgument(
                name="--keep-state", value=options.keep_state, reason="it must be a new or an empty folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with TemporaryDirectory(prefix="lockstep-run-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def _written(outputs: Mapping[str, Path], folder: Path, output: Output) -> Iterator[dict[str, Path]]:
    """The files to write; what is for standard output is printed when all is done."""
    printed = {path: folder / "stdout.csv" for path, file in outputs.items() if str(file) == STANDARD}
    yield {**outputs, **printed}
    for file in printed.values():
        with file.open("rb") as lines:
            while data := lines.read(1 << 20):
                output.raw(data)


def _change_files(files: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """Where the changes of windows are kept until the rows at the end are known."""
    return {path: folder / f"changes-{number}.csv" for number, path in enumerate(files)}


@contextmanager
def _errors(outputs: Mapping[str, Path]) -> Iterator[None]:
    """A disk that is full is said in words; the files are gone by then."""
    from lockstep.engine.errors import FileUnwritable

    try:
        yield
    except LockstepError:
        raise
    except OSError as error:
        place = error.filename or ", ".join(map(str, outputs.values())) or "the run's state"
        raise FileUnwritable(path=str(place), reason=error.strerror or str(error)) from error


def _run_reference(
    graph: Graph,
    options: argparse.Namespace,
    inputs: FileInputs,
    outputs: Mapping[str, Path],
    bad: BadLines,
    _folder: Path,
    progress: Progress,
) -> FileOutcome:
    from lockstep.engine.runtime.reference_run import run_reference
    from lockstep.runtime import ThreadRuntime

    def tell(events: int) -> None:
        progress.add(events - progress.count)

    progress.say("Running ...")
    return run_reference(graph, inputs, outputs, _csv_output(options), bad, ThreadRuntime(), tell)


def _run_engine(
    graph: Graph,
    options: argparse.Namespace,
    inputs: FileInputs,
    outputs: Mapping[str, Path],
    bad: BadLines,
    folder: Path,
    progress: Progress,
) -> FileOutcome:
    from lockstep.engine.model.plan import make_plan
    from lockstep.engine.runtime.engine import EngineOptions, check_shards
    from lockstep.engine.runtime.file_run import run_engine, run_job
    from lockstep.runtime import ThreadRuntime

    check_shards(make_plan(graph), options.shards)
    if options.runner == "spark":
        from lockstep.engine.spark.session import check_java

        check_java()
    wanted = EngineOptions(
        shards=options.shards, runner=options.runner, master=options.master, spark=dict(options.conf),
        verbose=options.verbose,
    )  # fmt: skip
    progress.say("Reading the input and starting Spark ..." if options.runner == "spark" else "Running ...")
    run_it = run_job if options.runner == "spark" else run_engine
    return run_it(
        graph, inputs, outputs, _csv_output(options), bad, folder, ThreadRuntime(), wanted, options.cut, shown(progress)
    )


def shown(progress: Progress) -> Callable[[EngineStatus], None]:
    """Draws how far an engine is: events, rate, lag."""
    began = drawn = 0.0

    def draw(status: EngineStatus) -> None:
        nonlocal began, drawn
        now = time.monotonic()
        began = began or now
        if now - drawn >= _SHOW_S:
            drawn = now
            progress.say(_state(status, now - began))

    return draw


def _state(status: EngineStatus, seconds: float) -> str:
    done, known = status.published_events, status.sequenced.events
    percent = f" ({done * 100 // known} %)" if known else ""
    rate = report.per_second(done, seconds)
    return f"{done:,} of {known:,} events{percent}, {rate:,}/s, {plural(status.lag, 'block')} behind"


def _csv_output(options: argparse.Namespace) -> CsvOutput:
    from lockstep.engine.events.csv_reader import CsvOutput

    return CsvOutput(collapse=options.collapse, date_format=options.date_format)


def _tree(graph: Graph, options: argparse.Namespace, outcome: FileOutcome, bad: BadLines) -> dict[str, object]:
    in_batches = options.runner != "reference"
    return {
        "project": graph.project.name,
        "runner": options.runner,
        "cut": options.cut if in_batches and options.cut != EVERYTHING else None,
        "shards": options.shards if in_batches else None,
        "events": outcome.events,
        "blocks": outcome.blocks,
        "seconds": round(outcome.seconds, 6),
        "events_per_s": report.per_second(outcome.events, outcome.seconds),
        "spark_ready_s": round(outcome.started_s, 3) if options.runner == "spark" else None,
        "start_parts_s": {name: round(spent, 3) for name, spent in outcome.start_parts_s.items()},
        "windows": report.window_rows(graph, outcome.counts),
        "lines": dict(outcome.lines),
        "bad_lines": report.bad_lines_tree(bad),
        "refused": [dict(item) for item in outcome.refused],
    }
