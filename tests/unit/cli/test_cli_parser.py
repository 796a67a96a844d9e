"""The grammar: help, examples, typos, what does not go together."""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
from functools import cache

import pytest

from lockstep import errors
from lockstep.cli.commands import NOUNS
from lockstep.cli.connection import bus_url
from lockstep.cli.main import main
from lockstep.cli.parser import Parser, build, parse
from lockstep.errors import UsageError

VERBS = [(noun.name, verb) for noun in NOUNS for verb in noun.verbs]
VERBS += [(None, noun.alone) for noun in NOUNS if noun.alone is not None]
IDS = [f"{noun}-{verb.name}" for noun, verb in VERBS]


@cache
def parser() -> Parser:
    """The whole grammar, built once: building it takes longer than a test."""
    return build(NOUNS, "1.2.3")


def parsed(line: str):
    return parse(parser(), shlex.split(line))


def test_all_commands_are_there() -> None:
    assert {noun.name: [verb.name for verb in noun.verbs] for noun in NOUNS} == {
        "stream": ["create", "alter", "ls", "show", "publish", "tail", "copy", "trim", "delete", "verify"],
        "group": ["ls", "show", "reset", "delete", "mirror"],
        "dlq": ["ls", "redrive", "show", "drop"],
        "bus": ["show", "check", "backup"],
        "model": ["check", "explain", "graph", "convert", "run"],
        "engine": [
            "run", "ls", "stop", "replay", "status", "publish", "subscribe",
            "handover", "persist", "quiesce", "replace", "reset", "trim", "state", "query",
        ],
        "adapter": ["publish", "subscribe"],
        "schedule": [
            "serve", "add", "cancel", "find", "ls", "dryrun", "why", "load", "ingest", "report", "forecast", "buckets",
            "nodes", "replay",
        ],
        "cron": [
            "add", "rm", "ls", "runs", "pause", "resume", "trigger", "backfill", "describe", "next", "check",
        ],
        "tenant": ["add", "ls", "show", "rm", "pause", "resume"],
        "monitor": [
            "up", "server", "reload", "try", "events", "clients", "show", "checks", "check", "why", "history",
            "silence", "ack", "resolve", "delete", "drill", "request", "agent", "validate", "swarm", "transport",
        ],
        "delivery": ["run", "ls", "doubts", "retry", "skip"],
        "status": [],
        "top": [],
        "serve": [],
        "settings": [],
        "access": ["add", "ls", "show", "rotate", "revoke", "audit"],
        "demo": [],
        "drill": [],
        "data": ["trades"],
        "bench": ["streams", "engine", "failover", "schedule", "monitor", "console", "compare"],
        "dev": ["up", "fetch", "ls", "down"],
        "explain": [],
        "completion": [],
        "debug": ["bundle"],
    }  # fmt: skip


@pytest.mark.parametrize(("noun", "verb"), VERBS, ids=IDS)
def test_every_command_has_a_purpose_and_examples_that_parse(noun, verb) -> None:
    assert verb.purpose.endswith(".")
    assert 1 <= len(verb.examples) <= 3
    for example in verb.examples:
        command = example.rpartition("| ")[2]
        options = parsed(command.removeprefix("lockstep "))
        assert (options.noun, getattr(options, "verb", None)) == ((noun, verb.name) if noun else (verb.name, None))


def test_an_option_that_takes_a_value_takes_one_in_every_command() -> None:
    takes: dict[str, dict[bool, list[str]]] = {}
    for noun, verb in VERBS:
        parser = Parser()
        verb.arguments(parser)
        for action in parser._actions:
            for option in action.option_strings if action.help != argparse.SUPPRESS else ():
                takes.setdefault(option, {}).setdefault(action.nargs != 0, []).append(f"{noun} {verb.name}")
    assert {option: found for option, found in takes.items() if len(found) > 1} == {}


def test_commands_with_a_bus_of_their_own_say_that_the_variable_does_not_count(capsys) -> None:
    for command in (["drill"], ["bench", "streams"], ["bench", "compare"], ["bench", "failover"]):
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        assert "LOCKSTEP_BUS does not count" in " ".join(capsys.readouterr().out.split()), command


@pytest.mark.parametrize(("noun", "verb"), VERBS, ids=IDS)
def test_every_command_has_its_function(noun, verb) -> None:
    module, _, function = verb.run.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize(("noun", "verb"), VERBS, ids=IDS)
def test_every_command_shows_help_with_examples_and_json(noun, verb, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*filter(None, [noun, verb.name]), "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert verb.examples[0] in shown
    assert "--json" in shown


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("steam ls", "'stream'"),
        ("stream tial orders", "'tail'"),
        ("stream ls --jsno", "'--json'"),
        ("group rest g s --to latest", "'reset'"),
    ],
)
def test_a_typo_is_answered_with_what_was_meant(line, meant) -> None:
    with pytest.raises(UsageError, match=f"Did you mean {meant}"):
        parsed(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "stream",
        "stream show",
        "stream tail orders -n -1",
        "stream tail orders -n 1 -o 2",
        "stream tail orders --since yesterday",
        "stream trim orders",
        "stream trim orders --keep 1 --before 2",
        "stream create orders --capacity 0",
        "stream create orders --retain-age soon",
        "stream create orders --max-record-bytes big",
        "stream publish orders v -H nonsense",
        "stream publish orders v --rate 0",
        "stream publish orders v --rate fast",
        "group reset g s",
        "group reset g s --to sometime",
        "dlq redrive",
        "dlq redrive orders --limit 0",
        "bench streams --publishers 0",
        "stream ls extra",
        "stream ls --jso",
    ],
)
def test_wrong_usage_ends_with_code_two_and_a_sentence(line, capsys) -> None:
    assert main(shlex.split(line)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("lockstep: [USAGE] ")
    assert "--help'" in last


def test_common_options_may_stand_before_and_behind() -> None:
    assert parsed("--json --bus memory:a stream ls").bus == "memory:a"
    assert parsed("--json stream ls").json
    assert parsed("stream ls --json --quiet").quiet
    assert not parsed("stream ls").json


@pytest.mark.parametrize(
    ("text", "meaning"),
    [("earliest", "earliest"), ("latest", "latest"), ("17", 17), ("@1767225600", "time:1767225600000000000")],
)
def test_positions(text, meaning) -> None:
    assert parsed(f"group reset g s --to {text}").to == meaning


def test_the_bus_is_the_option_then_the_environment_then_a_folder() -> None:
    assert bus_url(parsed("stream ls --bus memory:a"), {"LOCKSTEP_BUS": "memory:b"}) == "memory:a"
    assert bus_url(parsed("stream ls"), {"LOCKSTEP_BUS": "memory:b"}) == "memory:b"
    assert bus_url(parsed("stream ls"), {}) == "lmdb:.lockstep"


def test_a_defect_is_a_sentence_and_with_verbose_a_traceback(capsys, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("lockstep.cli.stream_admin.ls", broken)
    assert main(["stream", "ls"]) == 1
    assert capsys.readouterr().err.startswith("lockstep: [INTERNAL] Something went wrong: ZeroDivisionError: oh.")
    assert main(["stream", "ls", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_code_130(monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lockstep.cli.stream_admin.ls", interrupted)
    assert main(["stream", "ls"]) == 130


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DataError(reason="Odd."), 1),
        (errors.UsageError(reason="No."), 2),
        (errors.StreamNotFound(name="x", bus="memory:"), 3),
        (errors.Fenced(member="m", group="g", stream="s", epoch=1, reason="late"), 4),
        (errors.GroupBusy(group="g", stream="s", member="m"), 4),
        (errors.Forbidden(path="x", action="opened", reason="no"), 5),
        (errors.TimedOut(what="It", seconds=1.0), 6),
        (PermissionError(13, "Permission denied"), 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_error_has_its_code_and_its_json(error, code, capsys, monkeypatch) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr("lockstep.cli.stream_admin.ls", failing)
    assert main(["stream", "ls", "--json"]) == code
    shown = json.loads(capsys.readouterr().err)
    assert set(shown) == {"error"}
    assert set(shown["error"]) == {"code", "message"}
    assert shown["error"]["code"] == getattr(error, "code", "FORBIDDEN")
    assert not shown["error"]["message"].startswith("[")
