"""Calls that are wrong in a usual way: one clear sentence, and the exit code of its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.cli.commands import NOUNS
from lockstep.cli.parser import build

MODEL = "name: m\nqueries: [{name: q, windows: [{kind: source, name: S, schema: 'id*:int32'}]}]\n"
WRONG = [
    ("stream publish orders --file missing", 3, "The path 'missing' can't be used: No such file or directory."),
    ("stream publish orders --file folder", 3, "The path 'folder' can't be used: Is a directory."),
    ("stream tail orders --max 0", 2, "'0' must be a positive integer"),
    ("stream tail orders -n -1", 2, "-n"),
    ("stream trim orders --before 9 --yes", 2, "Offset 9 of orders is not valid: the stream ends at 1."),
    ("stream publish orders v --rate 0", 2, "'0' must be a number above 0"),
    ("status --every 0", 2, "'0' must be a time above 0, as 500ms or 2s"),
    ("status --every soon", 2, "'soon' is not a span of time"),
    ("model check folder", 3, "The file 'folder' can't be read: it is a folder."),
    ("model graph m.yaml -o folder", 2, "'folder' is a folder: name a file in it."),
    ("explain NO_SUCH_CODE_AT_ALL", 3, "does not exist. Check how it is spelled."),
    ("stream ls --bus rabbitmq://127.0.0.1:1", 6, "the plugin rabbitmq_stream is enabled. Check the address"),
]


@pytest.fixture(autouse=True)
def _folder(cli) -> None:
    Path("folder").mkdir()
    Path("m.yaml").write_text(MODEL)
    cli("stream", "publish", "orders", "first")


@pytest.mark.parametrize(("line", "code", "words"), WRONG, ids=[line for line, *_ in WRONG])
def test_what_is_wrong_is_said(cli, line, code, words) -> None:
    failed = cli(*line.split(), code=code)
    assert words in failed.err
    assert "?." not in failed.err


def test_words_may_stand_after_options(cli) -> None:
    cli("stream", "publish", "orders", "--key", "k", "second", "third")
    assert cli("stream", "tail", "orders", "--exit", "--format", r"%k=%v\n").out.endswith("k=second\nk=third\n")
    cli("stream", "publish", "orders.dlq", "bad", "-H", "dlq-stream=orders")
    assert cli("dlq", "ls", "--json", "orders").out == cli("dlq", "ls", "orders", "--json").out
    assert "does not run" in cli("dev", "down", "--folder", "servers", "redis").err


@pytest.mark.parametrize(
    "line",
    ["dlq ls a b", "dlq ls a --quiet b", "dev down --folder x nothing", "stream ls x", "stream publish o v --ky k"],
)
def test_a_word_too_many_is_still_refused(cli, line) -> None:
    assert "[USAGE] Unknown " in cli(*line.split(), code=2).err


FOREIGN = ("whoever", "mend ", "sound:", " is sound", "so it is anyway", "is off.")


def test_help_is_in_plain_english() -> None:
    parsers = [build(NOUNS, "1")]
    said = []
    while parsers:
        parser = parsers.pop()
        said.append(parser.format_help())
        for action in parser._subparsers._actions if parser._subparsers else ():
            parsers += {id(each): each for each in (getattr(action, "choices", None) or {}).values()}.values()
    text = " ".join("\n".join(said).lower().split())
    assert len(said) > 50
    assert [words for words in FOREIGN if words in text] == []
