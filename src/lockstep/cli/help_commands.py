"""Commands that help with the command line itself: what an error code means, and completion in a shell."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from contextlib import suppress

from lockstep.cli.connection import closest
from lockstep.cli.output import Output
from lockstep.cli.parser import Noun, Verb, add_common, alone
from lockstep.errors import LockstepError, NotFound

SHELLS = ("bash", "zsh", "fish")
_ERROR_MODULES = ("engine", "server", "esp", "connectors", "drill", "dev")


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("error", metavar="CODE", help="the code of an error, as STREAM_NOT_FOUND")


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="whose script to print")


EXPLAIN = alone(
    Verb(
        name="explain",
        purpose="Say what an error code means, what to do about it, and which exit code it has.",
        run="lockstep.cli.help_commands:explain",
        arguments=_explain,
        examples=("lockstep explain STREAM_NOT_FOUND", "lockstep explain PORT_UNUSABLE --json"),
    )
)
COMPLETION = alone(
    Verb(
        name="completion",
        purpose="Print a script that completes commands and options in a shell.",
        run="lockstep.cli.help_commands:completion",
        arguments=_completion,
        examples=("lockstep completion bash", "lockstep completion zsh", "lockstep completion fish"),
    )
)  # fmt: skip


def explain(options: argparse.Namespace, output: Output) -> None:
    """Print what is known of an error code."""
    known = error_codes()
    code = options.error.strip("[]").upper().replace("-", "_")
    if code not in known:
        error = NotFound(what="Error code", name=options.error)
        if (meant := closest(code, known)) is not None:
            error.add_note(f"Did you mean {meant!r}?")
        raise error
    kind = known[code]
    facts = {
        "code": code,
        "means": (kind.__doc__ or "").strip().splitlines()[0],
        "says": kind.template,
        "advice": kind.advice,
        "exit_code": kind.exit_code,
    }
    if output.json:
        output.json_line(facts)
    else:
        output.facts({name.replace("_", " "): value for name, value in facts.items()})


def error_codes() -> dict[str, type[LockstepError]]:
    """All errors by their codes."""
    for part in _ERROR_MODULES:
        with suppress(ModuleNotFoundError):  # a part whose packages are not installed raises none of its errors
            importlib.import_module(f"lockstep.{part}.errors")
    return {kind.code: kind for kind in _all(LockstepError)}


def _all(kind: type[LockstepError]) -> Iterator[type[LockstepError]]:
    for child in kind.__subclasses__():
        yield from _all(child)
    if "code" in vars(kind):
        yield kind


def completion(options: argparse.Namespace, output: Output) -> None:
    """Print the script."""
    from lockstep.cli.commands import NOUNS

    words = completions(NOUNS)
    output.line(_fish(words) if options.shell == "fish" else _bash(words, is_zsh=options.shell == "zsh"))


def completions(nouns: tuple[Noun, ...]) -> dict[str, list[str]]:
    """What can follow each beginning: nouns after nothing, verbs after a noun, options after a command."""
    found = {"": [noun.name for noun in nouns]}
    for noun in nouns:
        if noun.alone is not None:
            found[noun.name] = _options(noun.alone)
            continue
        found[noun.name] = [verb.name for verb in noun.verbs]
        for verb in noun.verbs:
            found[f"{noun.name} {verb.name}"] = _options(verb)
    return found


def valued() -> list[str]:
    """Options with a value that may stand before a noun or a verb: the word after one of them is neither."""
    parser = argparse.ArgumentParser(add_help=False)
    add_common(parser)
    return [name for action in parser._actions if action.nargs != 0 for name in action.option_strings]


def _options(verb: Verb) -> list[str]:
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    add_common(parser)
    choices = [
        str(choice) for action in parser._actions if not action.option_strings for choice in action.choices or ()
    ]
    return [*choices, *(name for action in parser._actions for name in action.option_strings if name.startswith("--"))]


def _bash(words: dict[str, list[str]], *, is_zsh: bool) -> str:
    def cases(is_command: bool) -> str:
        chosen = {begin: listed for begin, listed in words.items() if begin and (" " in begin) is is_command}
        return "\n".join(f"    '{begin}') words='{' '.join(listed)}' ;;" for begin, listed in chosen.items())

    script = f"""\
_lockstep() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words='{" ".join(words[""])}' noun= verb= word part= value=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in
      [:=]*) part=1 ;;  # bash takes lmdb:folder for three words
      *) if [ -n "$part" ]; then part= value=
         elif [ -n "$value" ]; then value=
         else case "$word" in
           {"|".join(valued())}) value=1 ;;
           -*) ;;
           *) if [ -z "$noun" ]; then noun=$word; elif [ -z "$verb" ]; then verb=$word; fi ;;
         esac; fi ;;
    esac
  done
  if [ -n "$part$value" ]; then COMPREPLY=(); return; fi
  case "$noun" in
{cases(False)}
  esac
  case "$noun $verb" in
{cases(True)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _lockstep lockstep"""
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if is_zsh else script


def _fish(words: dict[str, list[str]]) -> str:
    lines = ["complete -c lockstep -f", *(f"complete -c lockstep -l {name[2:]} -r" for name in valued())]
    for begin, listed in words.items():
        seen = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in begin.split())
        seen = seen or f"not __fish_seen_subcommand_from {' '.join(words[''])}"
        plain = [word for word in listed if not word.startswith("--")]
        if plain:
            lines.append(f"complete -c lockstep -n '{seen}' -a '{' '.join(plain)}'")
        lines += [f"complete -c lockstep -n '{seen}' -l {word[2:]}" for word in listed if word.startswith("--")]
    return "\n".join(lines)
