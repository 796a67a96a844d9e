"""`lockstep delivery`: carry items out, look at them, and decide about them."""

from __future__ import annotations

import json

import pytest

ITEM = ("-H", "delivery-id=i-1", "-H", "delivery-kind=page", "--key", "k")


def rows(done):
    return [json.loads(line) for line in done.out.splitlines()]


def test_items_are_carried_out_by_a_command_once(cli, tmp_path):
    cli("stream", "publish", "outbox", "hello", "hello", *ITEM)
    run = ("delivery", "run", "outbox", "--shell", "cat >> found", "--until-idle")
    ended = cli(*run, "--json")
    assert ended.object == {"outbox": "outbox", "group": "carriers", "done": 1, "failed": 0, "refused": 0, "dead": 0,
                            "doubts": 0, "passed": 0, "lost": 0}  # fmt: skip
    assert cli(*run).out == "Carried out 0 items.\n"
    assert (tmp_path / "found").read_text() == "hello"
    [row] = rows(cli("delivery", "ls", "outbox", "--json"))
    assert row == {"id": "i-1", "stream": "outbox", "offset": 0, "state": "done", "attempts": 1, "in_doubt": False,
                   "reason": ""}  # fmt: skip
    assert cli("delivery", "doubts", "outbox", "--json").out == ""
    assert "Nothing is in doubt" in cli("delivery", "doubts", "outbox").err
    assert cli("delivery", "retry", "outbox", "i-1", "--json", code=4).error["code"] == "ILLEGAL_STATE"


def test_what_is_refused_can_be_tried_anew_and_skipped(cli, tmp_path):
    cli("stream", "publish", "outbox", "a", *ITEM)
    cli("stream", "publish", "outbox", "b", "-H", "delivery-id=i-2", "-H", "delivery-kind=other")
    run = ("delivery", "run", "outbox", "--kind", "page", "--until-idle")
    refused = cli(*run, "--command", "sh -c 'echo no such pager >&2; exit 65'", "--json")
    assert (refused.object["refused"], refused.object["dead"], refused.object["passed"]) == (1, 1, 1)
    assert "no such pager" in cli("delivery", "ls", "outbox").out
    assert cli("delivery", "retry", "outbox", "i-1", "--json").object == {"id": "i-1", "offset": 2}
    cli("delivery", "skip", "outbox", "i-1")
    assert cli(*run, "--command", "touch found", "--json").object["done"] == 0
    assert not (tmp_path / "found").exists()
    assert [row["state"] for row in rows(cli("delivery", "ls", "outbox", "--json"))] == ["skipped"]
    assert cli("delivery", "ls", "outbox", "--unfinished", "--json").out == ""


def test_items_go_to_another_bus(cli):
    cli("stream", "publish", "outbox", "a", *ITEM)
    cli("delivery", "run", "outbox", "--stream", "copies", "--to-bus", "lmdb:./other", "--until-idle")
    [record] = rows(cli("stream", "tail", "copies", "--from-start", "--exit", "--bus", "lmdb:./other", "--json"))
    assert (record["value"], record["key"], record["headers"][0]) == ("a", "k", {"name": "delivery-id", "value": "i-1"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--http --command --shell --stream --mail is required"),
        (("--http", "http://127.0.0.1:1/"), "loopback"),
        (("--http", "ftp://x/"), "http://HOST/PATH"),
        (("--command", "a 'b"), "split into words"),
        (("--command", ""), "list of words"),
        (("--mail", "--to-bus", "lmdb:./b"), "--to-bus belongs to --stream"),
        (("--mail", "-H", "a=b"), "belong to --http"),
        (("--mail", "--workers", "0"), "positive integer"),
        (("--mail", "--on-doubt", "maybe"), "There are: again, skip"),
        (("--mail", "--command", "x"), "not allowed with"),
    ],
)
def test_wrong_calls_are_told_what_is_wrong(cli, arguments, words):
    cli("stream", "create", "outbox")
    told = cli("delivery", "run", "outbox", "--until-idle", *arguments, code=2).err
    assert any(word in told for word in words.split("|")), told


def test_an_outbox_that_is_missing_is_said(cli):
    cli("stream", "create", "outbox")
    assert cli("delivery", "run", "outbx", "--mail", "--json", code=3).error["code"] == "STREAM_NOT_FOUND"
    assert cli("delivery", "ls", "outbox", "--json", code=3).error["code"] == "STREAM_NOT_FOUND"
