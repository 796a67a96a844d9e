"""Models at work on streams: feeding them, reading them, looking at them; most of it while no engine runs."""

from __future__ import annotations

import pytest
from cli_command import Command
from cli_models import put_trades, trade

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
INPUT = "local.trades.trades.TradesSource.I"


@pytest.fixture
def lockstep(tmp_path) -> Command:
    put_trades(tmp_path)
    (tmp_path / "two.csv").write_text(trade(1) + "I,N,oops\n" + trade(2))
    return Command(tmp_path)


def test_publishing_counts_blocks_and_bad_lines(lockstep) -> None:
    shown = lockstep("engine", "publish", "trades.yaml", "two.csv")
    assert shown.lines == ["Published 2 events in 2 blocks to trades/TradesSource."]
    assert "  two.csv, line 2: unparsable: it has 1 fields, not 13: I,N,oops" in shown.err
    done = lockstep("engine", "publish", "trades.yaml", "-", "--block", "2", "--json", given=trade(3) + trade(4)).object
    assert (done["stream"], done["events"], done["blocks"]) == (INPUT, 2, 1)
    assert [row["name"] for row in lockstep("stream", "ls", "--json").objects] == [INPUT]


def test_a_rate_is_kept_and_nothing_is_lost(lockstep) -> None:
    lines = "".join(trade(number) for number in range(1, 31))
    done = lockstep("engine", "publish", "trades.yaml", "-", "--rate", "1000", "--json", given=lines).object
    assert (done["events"], done["blocks"]) == (30, 30)


def test_a_project_that_never_ran_has_no_status_and_no_output(lockstep) -> None:
    lockstep("engine", "publish", "trades.yaml", "two.csv")
    assert "No engine has run in cluster local yet" in lockstep("engine", "status", code=1).err
    error = lockstep("engine", "status", "--project", "trades", code=3).err
    assert "project 'trades' does not exist" in error
    error = lockstep("engine", "subscribe", "trades.yaml", "--window", "Aggregate24HR", code=3).err
    assert "[STREAM_NOT_FOUND]" in error
    assert "see --publish" in error


WRONG = [
    (("publish", "trades.yaml", "missing.csv"), 3, "'missing.csv' can't be read"),
    (("publish", "trades.yaml", "two.csv", "--window", "Nope"), 3, "has no source window 'Nope'"),
    (("subscribe", "trades.yaml", "--window", "Nope"), 3, "has no window 'Nope'"),
    (("subscribe", "trades.yaml", "--window", "Copy5MinRet", "--new"), 2, "add --follow"),
    (("subscribe", "trades.yaml", "--window", "Copy5MinRet", "-o", "no/x"), 3, "there is no folder 'no'"),
    (("run", "trades.yaml", "--publish", "Nope"), 3, "has no window 'Nope'"),
    (("run", "trades.yaml", "--url", "memory:"), 6, "its workers are other processes"),
    (("run", "trades.yaml", "--conf", "colour=red"), 2, "is not a setting such as"),
    (("run", "missing.yaml"), 3, "'missing.yaml' can't be read"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_what_is_wrong_is_said_and_nothing_is_made(lockstep, tmp_path, arguments, code, words) -> None:
    before = sorted(tmp_path.iterdir())
    assert words in lockstep("engine", *arguments, code=code).err
    assert sorted(tmp_path.iterdir()) == before


def test_which_window_is_asked_for_if_there_are_several(lockstep, tmp_path) -> None:
    source = '{kind: source, name: NAME, schema: "id*:int32"}'
    windows = ", ".join(source.replace("NAME", name) for name in ("Left", "Right"))
    (tmp_path / "two.yaml").write_text(f"name: two\nqueries: [{{name: q, windows: [{windows}]}}]\n")
    assert (
        "choose one with --window: q/Left, q/Right" in lockstep("engine", "publish", "two.yaml", "two.csv", code=2).err
    )
    lockstep("engine", "publish", "two.yaml", "-", "--window", "Right", given="I,N,1\n")


def test_records_that_are_no_events_are_told_when_an_engine_stops(lockstep, tmp_path) -> None:
    source = '{kind: source, name: Orders, form: records, stream: orders, decode: json, schema: "id*:int64"}'
    (tmp_path / "orders.yaml").write_text(f"name: shop\nqueries: [{{name: q, windows: [{source}]}}]\n")
    lockstep("stream", "create", "orders")
    for value in ('{"id": 1}', "not json", '{"id": null}', "[]"):
        lockstep("stream", "publish", "orders", value)
    run = ("engine", "run", "orders.yaml", "--runner", "local", "--until-idle")
    told = "3 events refused while it led: 1 null-key, 2 unparsable. They are on local.shop.B."
    assert told in lockstep(*run).err
    assert "refused" not in lockstep(*run).err
