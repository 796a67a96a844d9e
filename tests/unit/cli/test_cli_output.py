"""Tables, progress, colours, questions: what people see."""

from __future__ import annotations

import argparse
import io

import pytest

from lockstep.cli.bench import flat
from lockstep.cli.connection import closest, label
from lockstep.cli.output import Output, Progress, clean, confirm, plural, progress_line, table, use_colour
from lockstep.errors import UsageError
from lockstep.streams.shards import split_log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_numbers_stand_to_the_right_and_nothing_is_a_dash() -> None:
    assert table(["name", "lag"], [["orders", 5], ["x", 12_000], ["none", None]]) == [
        "NAME      LAG",
        "orders      5",
        "x       12000",
        "none        -",
    ]


def test_a_table_without_rows_is_its_heading() -> None:
    assert table(["name", "lag"], []) == ["NAME  LAG"]


def test_what_could_play_tricks_on_a_terminal_is_escaped() -> None:
    assert clean("a\x1b[31mb\nc é") == "a\\x1b[31mb\\nc é"
    assert table(["reason"], [["two\nlines"]])[1] == "two\\nlines"


@pytest.mark.parametrize(("count", "text"), [(0, "0 records"), (1, "1 record"), (12_000, "12,000 records")])
def test_plural(count, text) -> None:
    assert plural(count, "record") == text


@pytest.mark.parametrize(
    ("terminal", "environ", "wanted"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": ""}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(terminal, environ, wanted) -> None:
    assert use_colour(Terminal() if terminal else io.StringIO(), environ) is wanted


def test_progress_says_how_far_it_is() -> None:
    assert progress_line("records", 1500, None) == "1,500 records"
    assert progress_line("records", 1500, 3000) == "1,500 of 3,000 records (50 %)"
    assert progress_line("records", 11, 10) == "11 of 10 records (100 %)"


def test_progress_is_drawn_over_itself_and_wiped_away() -> None:
    terminal = Terminal()
    progress = Progress(terminal, "records", 10)
    progress.add(5)
    progress.say("done")
    progress.end()
    drawn = terminal.getvalue()
    assert drawn.startswith("\r5 of 10 records (50 %)\rdone")
    assert drawn.endswith(" \r")


def test_progress_is_not_drawn_where_nobody_looks() -> None:
    progress = Progress(None, "records", 10)
    progress.add(5)
    progress.say("x")
    progress.end()
    assert progress.count == 5


@pytest.mark.parametrize(("json", "quiet", "told"), [(False, False, True), (True, False, False), (False, True, False)])
def test_messages_are_for_people(json, quiet, told, capsys) -> None:
    output = Output(json=json, quiet=quiet, out=io.BytesIO())
    output.warn("look out.")
    assert capsys.readouterr().err == ("Warning: look out.\n" if told else "")


@pytest.fixture
def at_a_terminal(monkeypatch):
    def type_in(text: str) -> Terminal:
        err = Terminal()
        monkeypatch.setattr("sys.stdin", Terminal(text))
        monkeypatch.setattr("sys.stderr", err)
        return err

    return type_in


def test_the_name_typed_at_a_terminal_confirms(at_a_terminal) -> None:
    err = at_a_terminal("orders\n")
    confirm(argparse.Namespace(yes=False), "orders", "delete stream orders")
    assert err.getvalue() == "This will delete stream orders. Type the name orders to go on: "


@pytest.mark.parametrize("typed", ["yes\n", "\n", "", "Orders\n"])
def test_anything_else_typed_changes_nothing(typed, at_a_terminal) -> None:
    at_a_terminal(typed)
    with pytest.raises(UsageError, match="Nothing was changed"):
        confirm(argparse.Namespace(yes=False), "orders", "delete stream orders")


def test_without_a_terminal_it_takes_the_option(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("orders\n"))
    with pytest.raises(UsageError, match="add --yes"):
        confirm(argparse.Namespace(yes=False), "orders", "delete stream orders")
    confirm(argparse.Namespace(yes=True), "orders", "delete stream orders")


def test_logs_are_shown_as_streams() -> None:
    assert split_log("orders") == ("orders", None)
    assert split_log("my.orders/12") == ("my.orders", 12)
    assert label({"stream": "my.orders", "shard": 12}) == "my.orders/12"
    assert label({"stream": "my.orders", "shard": None}) == "my.orders"


def test_the_closest_word_is_suggested_if_there_is_one() -> None:
    assert closest("ordres", ["orders", "payments"]) == "orders"
    assert closest("zebra", ["orders", "payments"]) is None


def test_figures_are_flattened_for_people() -> None:
    figures = {"rate": 1234567, "latency": {"p50": 0.25}, "ok": True, "none": None, "codec": "lz4"}
    assert dict(flat(figures)) == {
        "rate": "1,234,567", "latency.p50": "0.250", "ok": "yes", "none": "-", "codec": "lz4"
    }  # fmt: skip
