"""`lockstep model`: is it valid, how is it run, what does it look like, how is it said in another form."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli import values as kinds
from lockstep.cli.model_files import STANDARD, load_graph, write_file
from lockstep.cli.output import Output, plural
from lockstep.cli.parser import Arguments, Noun, Verb
from lockstep.cli.values import add_spark, cut, window_file
from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.engine.model.project import Project
    from lockstep.engine.model.xml_reader import Reading

FAULTS_FOUND = 1
_FORMS = {".xml": "xml", ".yaml": "yaml", ".yml": "yaml", ".py": "py"}


def check(options: argparse.Namespace, output: Output) -> int:
    """Print all that is in the way, and every window that depends on a wall clock; 1 if something is in the way."""
    from lockstep.connectors.validation import connector_blockers
    from lockstep.engine.model.blockers import blockers, in_order, warnings
    from lockstep.engine.model.loading import read_model_file
    from lockstep.engine.model.variables import with_home

    environ = with_home(os.environ, options.model)
    reading = read_model_file(options.model, os.environ)
    found = in_order([*blockers(reading), *connector_blockers(reading, environ)])
    report = {
        **_checked(reading, options.model, sound=not found),
        "blockers": [asdict(one) for one in found],
        "warnings": [asdict(one) for one in warnings(reading)],
    }
    if output.json:
        output.json_line(report)
    else:
        _show_check(output, report)
    return FAULTS_FOUND if found else 0


def _checked(reading: Reading, file: str, *, sound: bool) -> dict[str, Any]:
    """Return the further findings about a model, most of them only for a valid one."""
    from lockstep.engine.model.blockers import without_effect
    from lockstep.engine.model.guard import clock_dependence
    from lockstep.engine.model.modules import missing_modules
    from lockstep.engine.model.validation import compile_project

    project = reading.project
    uses = [use._asdict() for use in clock_dependence(compile_project(project))] if project and sound else []
    missing = missing_modules(project) if project else []
    return {
        **(summary(project) if project else {"project": file, "windows": 0, "edges": 0, "sources": []}),
        "ok": sound,
        "clock_dependence": [{"window": use["path"], "why": f"{use['why']}.", "remedy": use["remedy"]} for use in uses],
        "missing_modules": [{"window": item.path, "why": f"{item.why}.", "remedy": item.remedy} for item in missing],
        "without_effect": [asdict(item) for item in without_effect(reading)],
    }


def summary(project: Project) -> dict[str, Any]:
    """What a model consists of."""
    windows = [(query, window) for query in project.queries for window in query.windows]
    return {
        "project": project.name,
        "windows": len(windows),
        "edges": sum(len(query.edges) for query in project.queries),
        "sources": [f"{query.name}/{window.name}" for query, window in windows if window.kind == "source"],
    }


def _show_check(output: Output, report: Mapping[str, Any]) -> None:
    size = f"{plural(report['windows'], 'window')}, {plural(report['edges'], 'edge')}"
    for item in report["without_effect"]:
        where = f"line {item['line']}: " if item["line"] else ""
        output.note(f"{where}{item['what']} has no effect here: {item['why']}.")
    for item in report["warnings"]:
        output.warn(f"{_where(item)}: {item['message']} {item['fix']}")
    if not report["ok"]:
        output.line(f"{report['project']} ({size}) has {plural(len(report['blockers']), 'fault')}.")
        _items(output, [(_where(one), one["message"], one["fix"]) for one in report["blockers"]])
        return
    inputs = f"events come in at {', '.join(report['sources'])}" if report["sources"] else "no events come in"
    output.line(f"{report['project']} is valid: {size}; {inputs}.")
    for item in report["missing_modules"]:
        output.warn(f"{item['window']}: {item['why']} {item['remedy']}")
    uses = report["clock_dependence"]
    if uses:
        output.heading(f"{plural(len(uses), 'window')} with answers that depend on a wall clock")
        _items(output, [(use["window"], use["why"], use["remedy"]) for use in uses])
    else:
        output.line("No answer depends on a wall clock.")


def _where(blocker: Mapping[str, Any]) -> str:
    line = f"line {blocker['line']}, " if blocker["line"] else ""
    return f"{line}{blocker['place']}"


def _items(output: Output, items: Sequence[tuple[str, str, str]]) -> None:
    for place, problem, remedy in items:
        output.heading(place)
        output.line(f"  {problem[:1].upper()}{problem[1:]}")
        output.line(f"  {remedy}")


def explain(options: argparse.Namespace, output: Output) -> None:
    """Print how each window is run, what it keeps, and why."""
    from lockstep.engine.model import plan as plans
    from lockstep.engine.model.plan import make_plan

    plan = make_plan(load_graph(options.model))
    data = plans.explain(plan).data
    if output.json:
        output.json_line(data)
        return
    reason = data["reason"]
    output.line(f"{data['project']} runs on {plans.shards_in_words(plan)}.")
    output.line(f"{reason[:1].upper()}{reason[1:]}.")
    output.line("")
    output.table(
        ["window", "kind", "stage", "runs", "clock", "rows kept in", "works on"],
        [
            [
                row["window"], row["kind"], row["stage"], row["mode"],
                *(None if row[name] == "none" else row[name] for name in ("clock", "members")), row["form"],
            ]
            for row in data["windows"]
        ],
    )  # fmt: skip
    _grouped(output, "State", data["windows"], "state")
    _grouped(output, "Why", data["windows"], "why")
    slow = [row for row in data["windows"] if row["form_why"]]
    if slow:
        _grouped(output, "Row by row, with the same answer", slow, "form_why")
    if data["clock_dependence"]:
        output.heading("Answers that depend on a wall clock")
        _items(output, [(use["path"], f"{use['why']}.", use["remedy"]) for use in data["clock_dependence"]])


def _grouped(output: Output, heading: str, rows: Sequence[Mapping[str, Any]], name: str) -> None:
    """What several windows have in common, said once."""
    output.heading(heading)
    for text in dict.fromkeys(row[name] for row in rows):
        output.line(f"  {text}")
        output.line(f"    {', '.join(row['window'] for row in rows if row[name] == text)}")


def graph(options: argparse.Namespace, output: Output) -> None:
    """Draw a model as SVG."""
    from lockstep.engine.model.drawing import draw_svg
    from lockstep.engine.model.plan import make_plan

    drawn = load_graph(options.model)
    svg = draw_svg(drawn, make_plan(drawn))
    project = summary(drawn.project)
    if options.out != STANDARD:
        write_file(Path(options.out), svg.encode())
    if output.json:
        file, text = (options.out, None) if options.out != STANDARD else (None, svg)
        output.json_line({**project, "file": file, "svg": text})
    elif options.out == STANDARD:
        output.raw(svg.encode())
    else:
        size = f"{plural(project['windows'], 'window')} and {plural(project['edges'], 'edge')}"
        output.line(f"Drew {size} of {project['project']} into {options.out}.")


def convert(options: argparse.Namespace, output: Output) -> None:
    """Write a model in another form."""
    from lockstep.engine.model.loading import load_model, write_model

    form = _form(options)
    project = load_model(options.model)
    text = write_model(project, form)
    is_file = options.out is not None and options.out != STANDARD
    if is_file:
        write_file(Path(options.out), text.encode())
    if output.json:
        file, said = (options.out, None) if is_file else (None, text)
        output.json_line({"project": project.name, "form": form, "file": file, "text": said})
    elif is_file:
        output.line(f"Wrote {project.name} as {form} to {options.out}.")
    else:
        output.raw(text.encode())


def _form(options: argparse.Namespace) -> str:
    """The form that was asked for, by --to or by the ending of the file."""
    if options.to is not None:
        return str(options.to)
    if options.out is None or options.out == STANDARD:
        raise UsageError(reason="Say which form you want: -o FILE.xml, .yaml or .py, or --to xml, yaml or py.")
    form = _FORMS.get(Path(options.out).suffix.lower())
    if form is None:
        reason = (
            f"The ending of {options.out!r} does not say which form you want: name it .xml, .yaml or .py, or add --to."
        )
        raise UsageError(reason=reason)
    return form


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a .yaml, .xml or .py file; a .py file is run")


def _graph(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    parser.add_argument("-o", "--out", metavar="FILE", required=True, help="the SVG file; - is stdout")


def _convert(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    parser.add_argument("-o", "--out", metavar="FILE", help="where to; its ending names the form (stdout)")
    parser.add_argument("--to", choices=("xml", "yaml", "py"), help="the form, if there is no ending to tell it")


def _run(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    files = parser.add_argument_group("what is fed, and what is written")
    files.add_argument("--in", dest="inputs", type=window_file, action="append", default=[], metavar="WINDOW=FILE",
                       help="CSV lines opcode,flag,fields... for a source window; several are fed one after the other, "
                       "- is stdin")  # fmt: skip
    files.add_argument("--script", metavar="FILE",
                       help="the exact order instead: lines window,opcode,flag,fields..., a blank line ends a block; "
                       "tick,TIME moves the model's clock")  # fmt: skip
    files.add_argument("--out", dest="outputs", type=window_file, action="append", default=[], metavar="WINDOW=FILE",
                       help="write the events of a window; - is stdout")  # fmt: skip
    files.add_argument("--counts", action="store_true", help="print the counts also when events go to stdout")
    files.add_argument("--block", type=kinds.positive, default=1, metavar="N", help="events of --in in a block (1)")
    files.add_argument("--transactional", action="store_true", help="take blocks of --in whole or not at all")
    files.add_argument("--csv-header", type=kinds.not_negative, default=0, metavar="N",
                       help="lines to skip at the beginning of each --in (0)")  # fmt: skip
    files.add_argument("--date-format", metavar="FORMAT",
                       help="of dates and stamps, as %%Y-%%m-%%d (seconds and microseconds since 1970)")  # fmt: skip
    files.add_argument("--add-opcode", action="store_true", help="lines have no opcode: all are inserts")
    files.add_argument("--add-flags", action="store_true", help="lines have no flag: all are normal")
    files.add_argument("--no-key", action="store_true", help="lines have no key field: the source window makes it")
    files.add_argument("--delimiter", default=",", metavar="C", help="what stands between fields (,)")
    files.add_argument("--collapse", action="store_true", help="write an update as one line U, not as UB and D")
    files.add_argument("--final", action="store_true",
                       help="write the rows that a window has at the end, with names, not all changes")  # fmt: skip
    how = parser.add_argument_group("how it is run; the answer does not depend on it")
    how.add_argument("--runner", choices=("spark", "local", "reference"), default="spark",
                     help="Spark; the same code in this process, at once; or the plain interpreter that both are "
                     "compared to (spark)")  # fmt: skip
    how.add_argument("--cut", type=cut, default=300_000, metavar="N|all",
                     help="events in a micro-batch (300000)")  # fmt: skip
    how.add_argument("--shards", type=kinds.positive, default=1, metavar="N", help="see 'lockstep model explain' (1)")
    add_spark(how)
    how.add_argument("--keep-state", metavar="FOLDER", help="keep the run's streams and state in a new folder")


def _trades(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=kinds.not_negative, default=1_000_000, metavar="N", help="how many (1000000)")
    parser.add_argument(
        "--seed", type=kinds.not_negative, default=1, metavar="S", help="another seed, other trades (1)"
    )
    parser.add_argument("-o", "--out", metavar="FILE", required=True, help="where to; - is stdout")


def _verb(name: str, purpose: str, function: str, arguments: Arguments, *examples: str) -> Verb:
    return Verb(name=name, purpose=purpose, run=f"lockstep.cli.{function}", arguments=arguments, examples=examples)


MODEL = Noun(
    name="model",
    purpose="Window models: check, explain, draw, convert, and run over files.",
    verbs=(
        _verb("check", "Find all faults of a model (exit code 1), and the windows that depend on a wall clock.",
              "model:check", _model, "lockstep model check trades.yaml", "lockstep model check trades.xml --json"),
        _verb("explain", "Show how each window is run: stage, shards, state kept, clock, and why.", "model:explain",
              _model, "lockstep model explain trades.yaml", "lockstep model explain trades.yaml --json"),
        _verb("graph", "Draw a model as SVG.", "model:graph", _graph,
              "lockstep model graph trades.yaml -o trades.svg", "lockstep model graph trades.py -o -"),
        _verb("convert", "Write a model in another form, without loss.", "model:convert", _convert,
              "lockstep model convert trades.xml -o model.yaml", "lockstep model convert trades.yaml --to py"),
        _verb("run", "Run a model over files, and print the counts of every window.", "model_run:run", _run,
              "lockstep model run trades.yaml --in TradesSource=trades.csv --out Aggregate24HR=day.csv",
              "lockstep model run trades.yaml --in TradesSource=trades.csv --shards 2 --cut 1000 --json",
              "lockstep model run trades.yaml --script trades.script --out Aggregate5min=- --runner local"),
    ),
)  # fmt: skip

DATA = Noun(
    name="data",
    purpose="Data to try models with.",
    verbs=(
        _verb("trades", "Make trades for the trades example: for every seed the same counts, for any size.",
              "model_files:trades", _trades, "lockstep data trades --events 1000 --seed 7 -o more.csv",
              "lockstep data trades --events 3 -o -"),
    ),
)  # fmt: skip
