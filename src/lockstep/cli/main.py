"""The `lockstep` command: parse, run, and turn errors into sentences and exit codes."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

from lockstep import __version__
from lockstep.cli import connection
from lockstep.cli.commands import NOUNS
from lockstep.cli.output import Output, check_standard_streams, clean
from lockstep.cli.parser import build, parse
from lockstep.errors import CheckoutNeeded, ExtraMissing, LockstepError, from_os_error

OK, INTERRUPTED, TERMINATED = 0, 130, 143
EXTRAS = {
    "engine": ("pyspark", "pyarrow", "numpy", "pandas", "numba", "msgpack", "google"),
    "rest": ("fastapi", "uvicorn", "starlette", "pydantic"),
    "schedule": ("aiohttp", "numpy", "fastapi", "uvicorn", "starlette", "pydantic"),
    "console": ("jinja2",),
}
"""Packages that a plain install leaves out, by the extra that brings them."""
_OF_NOUNS = {"schedule": "schedule", "tenant": "schedule", "monitor": "monitor", "serve": "console", "top": "console",
             "access": "console"}  # fmt: skip
"""The extra that brings what the commands of a noun need: it is named instead of a part of it, or of a larger one."""
_OF_CHECKOUTS = {"lockstep.bench": "lockstep bench", "lockstep.simulation": "The simulator"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    json_errors, verbose = "--json" in given, "--verbose" in given
    try:
        check_standard_streams()
        options = parse(build(NOUNS, __version__), given, partial(connection.chosen, environ=os.environ))
        with _log_lines(options.verbose), _ended_cleanly():
            return _run(options)
    except LockstepError as error:
        return _fail(error, as_json=json_errors, verbose=verbose)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()  # the reader has seen enough; nobody is left to tell
        return OK
    except ModuleNotFoundError as error:
        return _fail(_missing(error, given), as_json=json_errors, verbose=verbose)
    except OSError as error:
        return _fail(from_os_error(error), as_json=json_errors, verbose=verbose)
    except Exception as error:  # noqa: BLE001 - a defect; the user gets a sentence, and --verbose the rest
        failed = LockstepError(reason=f"{type(error).__name__}: {error}")
        failed.__cause__ = error
        return _fail(failed, as_json=json_errors, verbose=verbose)


def _run(options: argparse.Namespace) -> int:
    module, _, function = options.run.partition(":")
    output = Output(json=options.json, quiet=options.quiet)
    connection.warn_if_overridden(options, os.environ, output)
    code: int | None = getattr(importlib.import_module(module), function)(options, output)
    output.flush()
    return code or OK


def _fail(error: LockstepError, *, as_json: bool, verbose: bool) -> int:
    sentence = " ".join([str(error), *getattr(error, "__notes__", [])])
    if verbose:
        sys.stderr.write("".join(traceback.format_exception(error)))
    if as_json:
        message = sentence.removeprefix(f"[{error.code}] ")
        sys.stderr.write(json.dumps({"error": {"code": error.code, "message": message}}, ensure_ascii=False) + "\n")
    else:
        lines = [clean(line) for line in sentence.split("\n")]  # a list of faults stays one
        sys.stderr.write("lockstep: " + "\n".join(lines) + "\n")
    return error.exit_code


def _missing(error: ModuleNotFoundError, given: Sequence[str]) -> LockstepError:
    own = ".".join((error.name or "").split(".")[:2])
    if own in _OF_CHECKOUTS:
        return CheckoutNeeded(what=_OF_CHECKOUTS[own])
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    whole = next((_OF_NOUNS[word] for word in given if word in _OF_NOUNS), extra)
    if extra is not None and (whole not in EXTRAS or package in EXTRAS[whole]):
        extra = whole
    if extra is None:
        failed = LockstepError(reason=f"ModuleNotFoundError: {error}")
    else:
        failed = ExtraMissing(package=package, extra=extra)
    failed.__cause__ = error
    return failed


@contextmanager
def _log_lines(verbose: bool) -> Iterator[None]:
    """Show the library's log lines only with --verbose.

    Warnings of Spark's client are left out: it logs a traceback for each call that a stop interrupts.
    """
    handler = logging.StreamHandler() if verbose else logging.NullHandler()
    others = logging.StreamHandler()
    others.setLevel(logging.WARNING)
    others.addFilter(_is_of_others if verbose else lambda record: _is_of_others(record) and not _is_of_spark(record))
    logger, root = logging.getLogger("lockstep"), logging.getLogger()
    logger.addHandler(handler)
    root.addHandler(others)
    try:
        yield
    finally:
        root.removeHandler(others)
        logger.removeHandler(handler)


def _is_of_others(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] != "lockstep"


def _is_of_spark(record: logging.LogRecord) -> bool:
    return any(name in record.pathname for name in ("py4j", "pyspark"))


@contextmanager
def _ended_cleanly() -> Iterator[None]:
    """Have a request to end treated as Ctrl-C is, so that groups are left and publishers flushed."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(TERMINATED)


def _drop_stdout() -> None:
    """Keep the interpreter from complaining about what it can't flush at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
