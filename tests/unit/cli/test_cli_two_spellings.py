"""`engine publish|subscribe|status` are other spellings of `adapter publish|subscribe` and `status`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from lockstep.cli.commands import NOUNS
from lockstep.cli.parser import Parser, Verb
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import cut_frames
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.sequence.streams import CONTROL_STREAM, EVENT_STREAM
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.streams.client import connect

MODEL = """
name: desk
queries:
  - name: q
    windows:
      - {kind: source, name: Trades, schema: "id*:int64"}
      - {kind: copy, name: Copy}
    edges: [Trades -> Copy]
"""
OUTPUT = "local.desk.q.Copy.O"
ENGINE, ADAPTER = ("engine", "subscribe", "desk.yaml"), ("adapter", "subscribe", "--model", "desk.yaml")
ALL = "I,N,1\nI,N,2\n"


@pytest.fixture(autouse=True)
def _project(cli) -> None:
    Path("desk.yaml").write_text(MODEL)


@pytest.fixture
def _output(_project) -> None:
    """Two blocks on the out stream."""
    batch = EventBatch.of(
        Schema.parse("id*:int64"), [(number, [Event(Opcode.INSERT, Flag.NORMAL, (number,))]) for number in (1, 2)]
    )
    with connect("lmdb:.lockstep") as client:
        client.bus.create("local.desk.C", CONTROL_STREAM)
        log = client.bus.create(OUTPUT, EVENT_STREAM)
        frames = cut_frames(batch, 1 << 20, previous=0)
        log.append([pack([frame], producer=NO_PRODUCER, sequence=0, created_ns=0) for frame in frames])


def verb(noun: str, name: str) -> Verb:
    return next(verb for each in NOUNS if each.name == noun for verb in each.verbs if verb.name == name)


def options(noun: str, name: str) -> dict[str, str]:
    """What a command's help says of each option; what a default is may differ."""
    parser = Parser()
    verb(noun, name).arguments(parser)
    return {
        option: str(action.help).removesuffix(" (default)")
        for action in parser._actions
        for option in action.option_strings
    }


@pytest.mark.parametrize("name", ["publish", "subscribe"])
def test_both_spellings_have_one_implementation_and_one_vocabulary(name) -> None:
    ours, theirs = options("engine", name), options("adapter", name)
    assert verb("engine", name).run == verb("adapter", name).run
    assert theirs.keys() - ours.keys() == {"--model"}  # there it is the first argument
    assert ours.keys() <= theirs.keys()
    assert {option for option in ours if ours[option] != theirs[option]} == {"--project"}


def test_older_names_of_options_are_accepted_and_hidden() -> None:
    for noun in ("engine", "adapter"):
        assert options(noun, "publish")["--csv-header"] == argparse.SUPPRESS
        assert options(noun, "subscribe")["--no-snapshot"] == argparse.SUPPRESS
        assert {options(noun, name)["--until-idle"] for name in ("publish", "subscribe")} == {argparse.SUPPRESS}


def test_both_publish_the_same_and_say_the_same(cli) -> None:
    Path("lines.csv").write_text("a header\nI,N,1\nI,N,2\n")
    shown = [
        cli(*command, "--header", "1", "--block", "2").out
        for command in (
            ("engine", "publish", "desk.yaml", "lines.csv"),
            ("adapter", "publish", "lines.csv", "--model", "desk.yaml"),
        )
    ]
    assert shown == ["Published 2 events in 1 block to q/Trades.\n"] * 2
    done = cli("engine", "publish", "desk.yaml", "lines.csv", "--csv-header", "1", "--json").object
    assert (done["event"], done["stream"], done["stated"]) == ("done", "local.desk.q.Trades.I", False)


@pytest.mark.usefixtures("_output")
@pytest.mark.parametrize("command", [ENGINE, ADAPTER], ids=["engine", "adapter"])
def test_the_same_options_write_the_same(cli, command) -> None:
    subscribe = (*command, "--window", "Copy")
    assert cli(*subscribe, "--all", "--exit").out == ALL
    assert cli(*subscribe, "--snapshot", "--exit").out == ALL
    assert cli(*subscribe, "--new", "--idle", "0s").out == ""
    assert cli(*subscribe, "--new", "--until-idle", "0s").out == ""
    assert '"opcode":"insert"' in cli(*subscribe, "--all", "--exit", "--json").out.replace(" ", "")
    assert "add --follow" in cli(*subscribe, "--new", "--exit", code=2).err
    assert "There are" not in cli(*subscribe, "--exit", "--follow", code=2).err
    told = cli(*subscribe, "--all", "--exit", "-o", "out.csv").out
    assert told == "Wrote 2 events of q/Copy to out.csv.\n"
    assert Path("out.csv").read_text() == ALL


@pytest.mark.usefixtures("_output")
def test_the_engine_spelling_prints_what_is_there_and_ends(cli) -> None:
    assert cli(*ENGINE, "--window", "Copy").out == ALL
    assert "add --follow" in cli(*ENGINE, "--window", "Copy", "--new", code=2).err


@pytest.mark.usefixtures("_output")
def test_a_file_that_fails_on_the_way_is_not_left_half_written(cli) -> None:
    with connect("lmdb:.lockstep") as client:
        client.bus.open(OUTPUT).append([pack([b"damaged"], producer=NO_PRODUCER, sequence=0, created_ns=0)])
    cli(*ENGINE, "--window", "Copy", "-o", "out.csv", code=1)
    assert not Path("out.csv").exists()


def test_a_wrong_window_is_an_error_before_a_bus_is_made(cli) -> None:
    Path("lines.csv").write_text("I,N,1\n")
    cli("adapter", "publish", "lines.csv", "--model", "desk.yaml", "--window", "Nope", code=3)
    assert "has no window 'Nope'" in cli(*ADAPTER, "--window", "Nope", code=3).err
    assert not Path(".lockstep").exists()


def test_status_has_one_exit_code_for_one_finding(cli) -> None:
    with connect("lmdb:.lockstep") as client:
        client.bus.create("orders", CONTROL_STREAM)
    shown = [cli(*command, code=1).err for command in (("status",), ("engine", "status"))]
    assert shown == ["No engine has run in cluster local yet: 'lockstep engine run MODEL' starts one.\n"] * 2
    assert [cli(*command, "--project", "p", code=3).err for command in (("status",), ("engine", "status"))]
