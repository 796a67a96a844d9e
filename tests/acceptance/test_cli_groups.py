"""lockstep group and lockstep dlq, as a user runs them."""

from __future__ import annotations

import pytest
from cli_command import InProcess, read_line

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def lockstep(tmp_path):
    command = InProcess(tmp_path)
    yield command
    command.close()


def given_a_group(lockstep, read: int = 4) -> None:
    lockstep("stream", "publish", "orders", "order {n}", "--count", "10", "--quiet")
    lockstep("stream", "tail", "orders", "--group", "billing", "--max", str(read))


def test_groups_are_listed_and_shown(lockstep) -> None:
    given_a_group(lockstep)
    assert lockstep("group", "ls").lines == ["NAME     MEMBERS  STREAMS  LAG", "billing        0  orders     6"]
    assert lockstep("group", "ls", "--json").object == {
        "name": "billing", "members": 0, "silent": 0, "streams": ["orders"], "lag": 6,
    }  # fmt: skip
    shown = lockstep("group", "show", "billing", "--json").object
    assert set(shown) == {"name", "members", "streams"}
    (progress,) = shown["streams"]
    assert 0 < progress.pop("lag_s") < 60, "the oldest record that waits is some milliseconds old"
    assert progress == {
        "stream": "orders", "shard": None, "owner": None, "epoch": 1, "confirmed": 3, "next": 4, "end": 10, "lag": 6,
    }  # fmt: skip
    text = lockstep("group", "show", "billing").out
    assert "STREAM  OWNER  EPOCH  CONFIRMED  NEXT  END  LAG  BEHIND" in text


def test_no_groups_is_no_error(lockstep) -> None:
    lockstep("stream", "create", "orders")
    listed = lockstep("group", "ls")
    assert (listed.out, listed.err) == ("", "There are no groups. One begins with its first member.\n")
    assert lockstep("group", "ls", "--json").raw == b""


@pytest.mark.parametrize(
    ("to", "after"), [("earliest", 0), ("latest", 10), ("7", 7), ("1h", 0), ("2099-01-01", 10), ("@1", 0)]
)
def test_reset_shows_before_and_after_and_then_moves(lockstep, to, after) -> None:
    given_a_group(lockstep)
    changes = [
        {"stream": "orders", "shard": None, "before": 4, "after": after, "lag_before": 6, "lag_after": 10 - after}
    ]
    planned = lockstep("group", "reset", "billing", "orders", "--to", to, "--dry-run", "--json").object
    assert planned == {"group": "billing", "applied": False, "changes": changes}
    done = lockstep("group", "reset", "billing", "orders", "--to", to, "--yes", "--json").object
    assert done == {"group": "billing", "applied": True, "changes": changes}
    assert lockstep("group", "show", "billing", "--json").object["streams"][0]["next"] == after
    left = [f"order {n}" for n in range(after + 1, 11)]
    assert lockstep("stream", "tail", "orders", "--group", "billing", "--exit").lines == left


def test_reset_without_yes_shows_the_table_and_changes_nothing(lockstep) -> None:
    given_a_group(lockstep)
    refused = lockstep("group", "reset", "billing", "orders", "--to", "earliest", code=2)
    assert refused.lines == [
        "STREAM  NEXT BEFORE  NEXT AFTER  LAG BEFORE  LAG AFTER",
        "orders            4           0           6         10",
    ]
    assert "add --yes" in refused.err
    assert lockstep("group", "show", "billing", "--json").object["streams"][0]["next"] == 4
    assert "BAD_ARGUMENT" in lockstep("group", "reset", "billing", "orders", "--to", "11", "--yes", code=2).err
    assert "Did you mean 'billing'?" in lockstep("group", "reset", "biling", "orders", "--to", "1", "--yes", code=3).err
    assert "Did you mean 'orders'?" in lockstep("group", "reset", "billing", "order", "--to", "1", "--yes", code=3).err


def test_a_group_at_work_is_left_alone_unless_forced(lockstep) -> None:
    # Given a member at work
    lockstep("stream", "publish", "orders", "first")
    member = lockstep.start("stream", "tail", "orders", "--group", "billing")
    assert read_line(member) == b"first\n"
    # Then nobody moves or deletes its group
    assert "GROUP_BUSY" in lockstep("group", "reset", "billing", "orders", "--to", "earliest", "--yes", code=4).err
    assert "GROUP_BUSY" in lockstep("group", "delete", "billing", "--yes", code=4).err
    assert len(lockstep("group", "show", "billing", "--json").object["members"]) == 1
    # Unless it is forced: the member reads it once more
    lockstep("group", "reset", "billing", "orders", "--to", "earliest", "--yes", "--force")
    assert read_line(member) == b"first\n"


def test_delete_forgets_a_group(lockstep) -> None:
    given_a_group(lockstep)
    assert "positions on orders" in lockstep("group", "delete", "billing", code=2).err
    assert lockstep("group", "delete", "billing", "--dry-run").out == "Would delete group billing.\n"
    assert lockstep("group", "delete", "billing", "--yes", "--json").object == {
        "group": "billing", "streams": ["orders"], "deleted": True,
    }  # fmt: skip
    assert "GROUP_NOT_FOUND" in lockstep("group", "delete", "billing", "--yes", code=3).err


def given_dead_letters(lockstep, count: int = 3) -> None:
    lockstep("stream", "publish", "orders", "fine")
    for number in range(count):
        facts = {
            "stream": "orders",
            "offset": str(number),
            "group": "billing",
            "attempts": "4",
            "reason": "Bad: one\ntwo",
        }
        headers = [part for name, value in facts.items() for part in ("-H", f"dlq-{name}={value}")]
        lockstep("stream", "publish", "orders.dlq", f"bad {number}", "--key", "k", *headers, "-H", "own=1")


def test_dead_letters_are_listed_with_their_reasons(lockstep) -> None:
    given_dead_letters(lockstep)
    assert lockstep("dlq", "ls").lines == ["NAME        LETTERS  WAITING", "orders.dlq        3        3"]
    assert lockstep("dlq", "ls", "--json").object == {"name": "orders.dlq", "letters": 3, "waiting": 3}
    first, *_ = lockstep("dlq", "ls", "orders", "--json").objects
    assert first.pop("appended").endswith("Z")
    assert first == {
        "dlq": "orders.dlq", "shard": None, "offset": 0, "stream": "orders",
        "stream_offset": 0, "group": "billing", "attempts": 4,
        "reason": "Bad: one\ntwo", "redriven": False, "key": "k", "value": "bad 0",
    }  # fmt: skip
    assert (
        lockstep("dlq", "ls", "orders.dlq").lines[1]
        == r"     0  orders:0   billing         4  no         Bad: one\ntwo"
    )


def test_redrive_sends_each_back_once(lockstep) -> None:
    given_dead_letters(lockstep)
    assert "publish 3 dead letters of orders.dlq again" in lockstep("dlq", "redrive", "orders", code=2).err
    assert lockstep("dlq", "redrive", "orders", "--dry-run").out == "Would send back 3 dead letters of orders.dlq.\n"
    assert lockstep("dlq", "redrive", "orders", "--limit", "2", "--yes", "--json").object == {
        "stream": "orders.dlq", "redriven": 2, "applied": True,
    }  # fmt: skip
    assert [letter["redriven"] for letter in lockstep("dlq", "ls", "orders", "--json").objects] == [True, True, False]
    assert lockstep("dlq", "redrive", "orders.dlq", "--yes").out == "Sent back 1 dead letter of orders.dlq.\n"
    assert lockstep("dlq", "redrive", "orders", "--yes").out == "Sent back 0 dead letters of orders.dlq.\n"
    sent = lockstep("stream", "tail", "orders", "--exit", "--format", r"%v %k %h\n").lines
    assert sent == ["fine  ", "bad 0 k own=1", "bad 1 k own=1", "bad 2 k own=1"]


def test_a_stream_without_dead_letters_is_no_error_and_a_missing_one_is(lockstep) -> None:
    lockstep("stream", "publish", "orders", "fine")
    listed = lockstep("dlq", "ls", "orders")
    assert (listed.out, listed.err) == ("", "Stream orders has no dead letters.\n")
    assert lockstep("dlq", "redrive", "orders", "--yes", "--json").object["redriven"] == 0
    assert "STREAM_NOT_FOUND" in lockstep("dlq", "ls", "payments", code=3).err
    assert "no dead-letter streams" in lockstep("dlq", "ls").err
