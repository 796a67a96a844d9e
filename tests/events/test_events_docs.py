"""The pages on events and adapters say what the code says."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
from pathlib import Path

import pytest

from lockstep import events
from lockstep.cli.adapter import ADAPTER
from lockstep.events.connection import Events, ProjectEvents

DOCS = Path(__file__).parents[2] / "docs"
API, ADAPTERS = (DOCS / "reference" / "events-api.md").read_text(), (DOCS / "howto" / "adapters.md").read_text()


def test_every_public_name_is_documented():
    for name in events.__all__:
        assert getattr(events, name).__doc__, name
    named = {name for name in events.__all__ if name not in ("Event", "Flag", "Opcode")}
    assert {name for name in named if name not in API} == set()


@pytest.mark.parametrize("kind", [Events, ProjectEvents, events.WindowPublisher, events.Subscription])
def test_every_public_call_is_documented(kind):
    calls = [name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    internal = {"source", "input", "output", "last_id", "is_published", "is_at_end"}
    missing = [name for name in calls if f"`{name}" not in API and f"{name}(" not in API and name not in internal]
    assert missing == []


def test_options_of_a_subscription_and_their_defaults():
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", API, re.MULTILINE)
    written = {name: ast.literal_eval(default) for name, default in rows}
    assert written == {item.name: item.default for item in dataclasses.fields(events.SubscribeOptions)}


def test_fields_of_a_position():
    section = API.partition("### Position")[2]
    names = [
        name
        for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section, re.MULTILINE)
        for name in re.findall(r"\w+", row)
    ]
    assert names == [item.name for item in dataclasses.fields(events.Position)]


@pytest.mark.parametrize("verb", ADAPTER.verbs, ids=lambda verb: verb.name)
def test_every_option_of_an_adapter_is_described(verb):
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # others are old spellings
    options = [name for action in shown for name in action.option_strings if name.startswith("--")]
    known = {"--help", "--cluster"}  # as for all commands
    assert [name for name in options if name not in ADAPTERS and name not in known] == []
