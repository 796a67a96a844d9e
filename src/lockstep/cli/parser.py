"""The grammar of the command line: nouns and verbs, help with examples, and errors that say what was probably meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from lockstep.cli.connection import closest
from lockstep.errors import UsageError

_CHOICE = re.compile(r"argument ([^:]+): invalid choice: '([^']*)' \(choose from (.*)\)")
_UNKNOWN = re.compile(r"unrecognized arguments: (\S+)")

EXIT_CODES = """\
exit codes:
  0 done   1 failed, or something was found   2 wrong usage   3 not found   4 conflict   5 forbidden
  6 unavailable or timed out   130 ended by Ctrl-C   143 ended by SIGTERM"""


BUS_HELP = "the bus (LOCKSTEP_BUS, else that of the profile, else lmdb:.lockstep)"
Arguments = Callable[[argparse.ArgumentParser], None]
Profile = Callable[[argparse.Namespace], Mapping[str, str]]


def _no_profile(_options: argparse.Namespace) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """One command. `run` names its function as module:function, imported only when it is called."""

    name: str
    purpose: str
    run: str
    arguments: Arguments
    examples: tuple[str, ...]
    bus_help: str = BUS_HELP


@dataclass(frozen=True, kw_only=True, slots=True)
class Noun:
    """What commands are about; or a command by itself, `alone`, that has no verbs."""

    name: str
    purpose: str
    verbs: tuple[Verb, ...] = ()
    alone: Verb | None = None


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UsageError, with a suggestion where there is a likely one."""

    def error(self, message: str) -> NoReturn:
        """Turn argparse's message into a sentence."""
        raise UsageError(reason=f"{_sentence(message, self)} See '{self.prog} --help'.")


def _sentence(message: str, parser: argparse.ArgumentParser) -> str:
    if found := _CHOICE.match(message):
        argument, given, listed = found.groups()
        known = [word.strip("' ") for word in listed.split(",")]
        what = "command" if argument in ("COMMAND", "NOUN") else argument
        return _unknown(what, given, known) + f" There are: {', '.join(known)}."
    if found := _UNKNOWN.match(message):
        options = [name for action in parser._actions for name in action.option_strings]
        return _unknown("argument", found[1], options)
    return message[:1].upper() + message[1:] + ("" if message.endswith((".", "?")) else ".")


def _unknown(what: str, given: str, known: Sequence[str]) -> str:
    meant = closest(given, known)
    tail = f" Did you mean {meant!r}?" if meant else ""
    return f"Unknown {what} {given!r}.{tail}"


def build(nouns: Sequence[Noun], version: str) -> Parser:
    """The parser for all commands."""
    root = Parser(
        prog="lockstep",
        description="Ordered event streams: nothing lost, duplicated or out of order.",
        epilog=_root_epilog(nouns),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    root.add_argument("--version", action="version", version=f"lockstep {version}", help="show the version and stop")
    add_common(root)
    groups = root.add_subparsers(dest="noun", metavar="NOUN", title="commands")
    for noun in nouns:
        if noun.alone is not None:
            _add_verb(groups, noun.alone)
            continue
        group = groups.add_parser(noun.name, help=noun.purpose, description=noun.purpose, allow_abbrev=False)
        add_common(group)
        group.set_defaults(leaf=group, run=None)
        verbs = group.add_subparsers(dest="verb", metavar="COMMAND", title="commands")
        for verb in noun.verbs:
            _add_verb(verbs, verb)
    return root


def _root_epilog(nouns: Sequence[Noun]) -> str:
    listed = [f"  lockstep {noun.name} {' | '.join(verb.name for verb in noun.verbs)}".rstrip() for noun in nouns]
    verbs = "\n".join(listed)
    return (
        f"all commands:\n{verbs}\n\n"
        "examples:\n"
        "  lockstep stream publish orders 'first order'\n"
        "  lockstep stream tail orders\n"
        "  lockstep group ls --json\n\n"
        "The bus is --bus URL, else LOCKSTEP_BUS, else that of the profile (--profile, LOCKSTEP_PROFILE), else\n"
        "lmdb:.lockstep in the current folder. Profiles are in ~/.config/lockstep/config.toml.\n\n"
        f"{EXIT_CODES}"
    )


def alone(verb: Verb) -> Noun:
    """A command that needs no verb."""
    return Noun(name=verb.name, purpose=verb.purpose, alone=verb)


def _add_verb(verbs: argparse._SubParsersAction[Parser], verb: Verb) -> None:
    parser = verbs.add_parser(
        verb.name,
        help=verb.purpose,
        description=verb.purpose,
        epilog="examples:\n" + "\n".join(f"  {example}" for example in verb.examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.arguments(parser)
    add_common(parser, verb.bus_help)
    parser.set_defaults(run=verb.run, leaf=parser)


def add_common(parser: argparse.ArgumentParser, bus_help: str = BUS_HELP) -> None:
    """Options that may stand before the noun, before the verb or after it."""
    common = parser.add_argument_group("for every command")
    absent = argparse.SUPPRESS
    common.add_argument("--bus", metavar="URL", default=absent, help=bus_help)
    common.add_argument("--profile", metavar="NAME", default=absent, help="settings by name (LOCKSTEP_PROFILE)")
    common.add_argument("--json", action="store_true", default=absent, help="print JSON, and errors as JSON")
    common.add_argument("--quiet", action="store_true", default=absent, help="print no messages, only data and errors")
    common.add_argument("--verbose", action="store_true", default=absent, help="show where an error came from")


def parse(parser: Parser, arguments: Sequence[str], profile: Profile = _no_profile) -> argparse.Namespace:
    """The options; UsageError for anything that is not understood or not complete.

    `profile` gives the settings of the profile that the options choose: they are defaults of options.
    """
    options = _parsed(parser, arguments)
    settings = profile(options)
    if settings:
        leaf: argparse.ArgumentParser = options.leaf
        has_default = [name for name in settings if leaf.get_default(name) not in (None, argparse.SUPPRESS)]
        leaf.set_defaults(**{name: settings[name] for name in has_default})
        options = _parsed(parser, arguments)
    options.settings = settings
    return options


def _add_words(leaf: argparse.ArgumentParser, options: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Give words that stand after an option to an optional argument: argparse takes those before it only.

    Returns what is not understood.
    """
    if any(word.startswith("-") and word != "-" for word in unknown):
        return unknown
    for action in leaf._actions:
        if action.option_strings or not unknown:
            continue
        if action.nargs == argparse.ZERO_OR_MORE:
            setattr(options, action.dest, [*getattr(options, action.dest), *unknown])
            return []
        if action.nargs == argparse.OPTIONAL and getattr(options, action.dest) == action.default and len(unknown) == 1:
            if action.choices is not None and unknown[0] not in action.choices:
                return unknown
            setattr(options, action.dest, unknown[0])
            return []
    return unknown


def _parsed(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(arguments)
    leaf: argparse.ArgumentParser = getattr(options, "leaf", parser)
    unknown = _add_words(leaf, options, unknown)
    if unknown:
        leaf.error(f"unrecognized arguments: {' '.join(unknown)}")
    if getattr(options, "run", None) is None:
        sys.stderr.write(leaf.format_help() + "\n")
        leaf.error("a command is missing.")
    for name in ("json", "quiet", "verbose"):
        setattr(options, name, getattr(options, name, False))
    return options
