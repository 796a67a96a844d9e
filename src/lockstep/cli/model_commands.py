"""The verbs of `lockstep model` and `lockstep data`."""

from __future__ import annotations

import argparse

from lockstep.cli import arguments as kinds
from lockstep.cli.model_arguments import add_spark, cut, window_file
from lockstep.cli.parser import Arguments, Noun, Verb


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
              "data:trades", _trades, "lockstep data trades --events 1000 --seed 7 -o more.csv",
              "lockstep data trades --events 3 -o -"),
    ),
)  # fmt: skip
