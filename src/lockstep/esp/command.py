"""What the document's commands have in common: flags, the sentence of an error, and the exit code."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from lockstep.cli.output import check_standard_streams, clean
from lockstep.cli.parser import EXIT_CODES, Parser
from lockstep.errors import LockstepError, from_os_error

INTERRUPTED = 130
VERBOSE = "LOCKSTEP_VERBOSE"


def flags(name: str, purpose: str, examples: Sequence[str]) -> Parser:
    """A parser of flags with one dash; -h is taken, so help is --help."""
    listed = "\n".join(f"  {example}" for example in examples)
    parser = Parser(
        prog=name,
        description=purpose,
        epilog=f"examples:\n{listed}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("--help", action="help", help="show this and stop")
    return parser


def parsed(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options; with nothing given the usage is shown, and what is missing."""
    if not arguments:
        sys.stderr.write(parser.format_help() + "\n")
    options, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def run_command(name: str, work: Callable[[Sequence[str]], int], arguments: Sequence[str] | None) -> int:
    """Run it, and turn an error into a sentence and an exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        check_standard_streams()
        return work(given)
    except LockstepError as error:
        return _fail(name, error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _fail(name, from_os_error(error))


def _fail(name: str, error: LockstepError) -> int:
    if os.environ.get(VERBOSE):
        sys.stderr.write("".join(traceback.format_exception(error)))
    sentence = " ".join([str(error), *getattr(error, "__notes__", [])])
    sys.stderr.write(f"{name}: " + "\n".join(clean(line) for line in sentence.split("\n")) + "\n")
    return error.exit_code
