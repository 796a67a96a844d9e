"""What the document's commands have in common: flags, sentences, exit codes, configuration files."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.cli.output import check_standard_streams, clean
from lockstep.cli.parser import EXIT_CODES, Parser
from lockstep.engine.errors import FileMissing
from lockstep.errors import LockstepError, from_os_error
from lockstep.esp.errors import ConfigFileWrong

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


Sections = Mapping[str, Mapping[str, str]]

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*|//[^\n]*|/\*.*?\*/)
      |  \[(?P<bracket>[^\]\n]*)\]
      |  (?P<brace>[{}])
      |  (?P<end>;|,(?=\s|\Z))
      |  (?P<sign>[=:])
      |  "(?P<quoted>(?:[^"\\\n]|\\.)*)"
      |  '(?P<single>[^'\n]*)'
      |  (?P<word>(?:[^\s{}=;,"']|,(?!\s|\Z))+)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_][\w.\-]*")


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    file: str
    sections: dict[str, dict[str, str]] = field(default_factory=dict)
    section: str = ""
    in_braces: bool = False

    def open(self, name: str, line: int) -> None:
        if not _NAME.fullmatch(name):
            raise self.wrong(line, f"{name!r} is no name of a section")
        self.section = name.lower()
        self.sections.setdefault(self.section, {})

    def put(self, name: str, value: str, line: int) -> None:
        if not _NAME.fullmatch(name):
            raise self.wrong(line, f"{name!r} is no name of a setting")
        known = self.sections.setdefault(self.section, {})
        if name.lower() in known:
            raise self.wrong(line, f"{name} is given twice")
        known[name.lower()] = value

    def wrong(self, line: int, reason: str) -> ConfigFileWrong:
        return ConfigFileWrong(file=self.file, place=f", line {line}", reason=reason)


def parse_config(text: str, file: str = "the file") -> Sections:
    """The settings by section; names in small letters. ConfigFileWrong names the line of what can't be understood."""
    reading = _Reading(file)
    tokens = list(_tokens(text, reading))
    at = 0
    while at < len(tokens):
        at = _take(tokens, at, reading)
    if reading.in_braces:
        raise reading.wrong(text.count("\n") + 1, f"the section {reading.section} is not closed")
    return reading.sections


def load_config(path: Path) -> Sections:
    """The settings in a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FileMissing(path=str(path), reason=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigFileWrong(file=str(path), place="", reason="it is not UTF-8 text") from error
    return parse_config(text, path.name)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int
    raw: str


def _tokens(text: str, reading: _Reading) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise reading.wrong(line, f"{text[at]!r} is not understood")
        kind = found.lastgroup or ""
        if kind != "skip":
            yield _Token(kind, found[kind], line, found[0])
        line, at = line + found[0].count("\n"), found.end()


def _take(tokens: list[_Token], at: int, reading: _Reading) -> int:
    """Parse the element at `at`, and return the index after it."""
    token = tokens[at]
    kinds = [one.kind for one in tokens[at : at + 3]] + ["", ""]
    if token.kind == "end":
        return at + 1
    if token.kind == "bracket":
        reading.open(token.text.strip(), token.line)
        return at + 1
    if token.kind == "brace":
        if token.text == "{" or not reading.in_braces:
            raise reading.wrong(token.line, f"{token.text!r} belongs to no section")
        reading.section, reading.in_braces = "", False
        return at + 1
    opened = 1 if kinds[1] == "brace" else 2 if kinds[1] == "sign" and kinds[2] == "brace" else 0
    if token.kind == "word" and opened and tokens[at + opened].text == "{":
        if reading.in_braces:
            raise reading.wrong(token.line, f"{token.text} can't stand within {reading.section}")
        reading.open(token.text.removesuffix(":"), token.line)
        reading.in_braces = True
        return at + opened + 1
    return _setting(tokens, at, reading)


def _setting(tokens: list[_Token], at: int, reading: _Reading) -> int:
    """NAME = VALUE; a value without quotes ends with its line."""
    token = tokens[at]
    name, colon, rest = token.text.partition(":") if token.kind == "word" else (token.text, "", "")
    has_sign = at + 1 < len(tokens) and tokens[at + 1].kind == "sign" and token.kind != "sign"
    if not has_sign and not colon:
        raise reading.wrong(token.line, f"after {token.text!r} there is no = and no value")
    at, value = (at + 2, "") if has_sign else (at + 1, rest)
    while at < len(tokens) and tokens[at].line == token.line and tokens[at].kind not in ("end", "brace", "bracket"):
        found = tokens[at]
        at += 1
        if found.kind in ("quoted", "single") and not value:
            value = re.sub(r"\\(.)", r"\1", found.text) if found.kind == "quoted" else found.text
            break
        value += found.raw if not value or "=" in (found.raw, value[-1:]) else f" {found.raw}"
    reading.put(token.text if has_sign else name, value, token.line)
    return at
