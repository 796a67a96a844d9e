"""lockstep stream copy and verify, as a user runs them."""

from __future__ import annotations

import pytest
from cli_command import InProcess, read_line, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def lockstep(tmp_path):
    command = InProcess(tmp_path)
    yield command
    command.close()


ELSEWHERE = ("--to-bus", "lmdb:backup")
TARGETS = pytest.mark.parametrize("to", [(), ELSEWHERE], ids=["same-bus", "other-bus"])


def bus_of(to: tuple[str, ...]) -> tuple[str, ...]:
    return ("--bus", to[1]) if to else ()


@TARGETS
def test_a_copy_is_the_same_and_a_second_run_copies_nothing_twice(lockstep, to) -> None:
    lockstep("stream", "publish", "orders", "--null", "--key", "k", "-H", "h=1", given=b"text\0\xff", code=0)
    assert lockstep("stream", "copy", "orders", "copied", *to, "--dry-run", "--json").object["copied"] == 2
    done = lockstep("stream", "copy", "orders", "copied", *to, "--json").object
    assert set(done) == {"source", "target", "copied", "group", "applied"}
    assert (done["source"], done["target"], done["copied"], done["applied"]) == ("orders", "copied", 2, True)
    # Values, keys, headers and create times are the same
    source = lockstep("stream", "tail", "orders", "--exit", "--json").objects
    target = lockstep("stream", "tail", "copied", "--exit", "--json", *bus_of(to)).objects
    assert [{**item, "stream": "copied", "appended": ""} for item in source] == [
        {**item, "appended": ""} for item in target
    ]
    # And only what is new is copied the next time
    assert lockstep("stream", "copy", "orders", "copied", *to).lines[0].startswith("Copied 0 records")
    lockstep("stream", "publish", "orders", "new")
    assert lockstep("stream", "copy", "orders", "copied", *to).lines[0].startswith("Copied 1 record from")
    assert lockstep("stream", "tail", "copied", "--exit", "-n", "1", *bus_of(to)).lines == ["new"]


@TARGETS
def test_a_copy_that_is_killed_goes_on_without_loss_or_doubles(lockstep, to) -> None:
    # Given a stream that somebody publishes to
    lockstep("stream", "create", "orders", "--capacity", "none")
    lockstep("stream", "create", "copied", "--capacity", "none", *bus_of(to))

    def copied() -> list[str]:
        return lockstep("stream", "tail", "copied", "--from-start", "--exit", *bus_of(to)).lines

    # When a copy of it is killed while it is at work, more than once, and each time there is more to copy
    for _ in range(2):
        before = len(copied())
        publish = lockstep.start("stream", "publish", "orders", "{n}", "--count", "6000", "--rate", "4000", "--quiet")
        copy = lockstep.start("stream", "copy", "orders", "copied", "--follow", *to)
        until(lambda before=before: len(copied()) > before)
        copy.kill()
        copy.wait()
        publish.communicate()
    lockstep("stream", "copy", "orders", "copied", *to)
    # Then everything is there, once, in order
    assert copied() == [str(n) for n in range(1, 6001)] * 2


def test_a_copy_follows_until_it_is_interrupted(lockstep) -> None:
    lockstep("stream", "publish", "orders", "first")
    lockstep.start("stream", "copy", "orders", "copied", "--follow")
    until(lambda: any(row["name"] == "copied" and row["records"] for row in lockstep("stream", "ls", "--json").objects))
    tail = lockstep.start("stream", "tail", "copied")
    assert read_line(tail) == b"first\n"
    lockstep("stream", "publish", "orders", "second")
    assert read_line(tail) == b"second\n"


@pytest.mark.parametrize(("start", "copied"), [("earliest", 5), ("latest", 0), ("3", 2), ("1h", 5)])
def test_the_first_run_begins_where_it_is_told_to(lockstep, start, copied) -> None:
    lockstep("stream", "publish", "orders", "{n}", "--count", "5", "--quiet")
    assert lockstep("stream", "copy", "orders", "copied", "--from", start, "--json").object["copied"] == copied
    if copied == 2:
        assert lockstep("stream", "tail", "copied", "--exit").lines == ["4", "5"]


def test_copying_to_shards_keeps_the_order_of_each_key(lockstep) -> None:
    lockstep(
        "stream",
        "publish",
        "orders",
        "--key-separator",
        ":",
        "--quiet",
        given="".join(f"k{n % 5}:{n}\n" for n in range(50)),
    )
    lockstep("stream", "create", "wide", "--shards", "3")
    assert lockstep("stream", "copy", "orders", "wide", "--json").object["copied"] == 50
    found = lockstep("stream", "tail", "wide", "--from-start", "--exit", "--json").objects
    for key in {item["key"] for item in found}:
        values = [int(item["value"]) for item in found if item["key"] == key]
        assert values == sorted(values)
        assert len(values) == 10


def test_a_stream_is_not_copied_onto_itself_however_it_is_spelled(lockstep) -> None:
    lockstep("stream", "publish", "orders", "first")
    assert "same stream" in lockstep("stream", "copy", "orders", "orders", code=2).err
    assert "same stream" in lockstep("stream", "copy", "orders", "orders", "--to-bus", "lmdb:./.lockstep", code=2).err
    lockstep("stream", "copy", "ordres", "copied", code=3)
    assert [row["name"] for row in lockstep("stream", "ls", "--json").objects] == ["orders"]


def test_a_target_made_anew_is_not_filled_silently_from_the_middle(lockstep) -> None:
    lockstep("stream", "publish", "orders", "first")
    lockstep("stream", "copy", "orders", "copied")
    lockstep("stream", "delete", "copied", "--yes")
    assert "'lockstep group delete copy.copied'" in lockstep("stream", "copy", "orders", "copied").err


def test_verify_finds_nothing_wrong_with_a_good_folder(lockstep) -> None:
    lockstep("stream", "publish", "orders", "{n}", "--count", "5", "--quiet")
    checked = lockstep("stream", "verify")
    assert checked.out.startswith("Checked 1 log (streams, shards and groups), 5 records, ")
    assert checked.out.endswith(": no faults.\n")
    report = lockstep("stream", "verify", "orders", "--json").object
    assert set(report) == {"ok", "logs", "batches", "records", "bytes", "faults"}
    assert (report["ok"], report["records"], report["faults"]) == (True, 5, [])
    assert "Did you mean 'orders'?" in lockstep("stream", "verify", "ordres", code=3).err


def test_verify_names_the_damage_and_fails(lockstep) -> None:
    # Given a store in which one byte of a record changed
    lockstep("stream", "publish", "orders", "fine")
    lockstep("stream", "publish", "orders", "NEEDLE-IN-THE-STORE")
    data = lockstep.folder / ".lockstep" / "data.mdb"
    data.write_bytes(data.read_bytes().replace(b"NEEDLE", b"BEETLE"))
    # Then it is found, with its offset
    report = lockstep("stream", "verify", "--json", code=1).object
    assert not report["ok"]
    assert [(fault["stream"], fault["offset"]) for fault in report["faults"]] == [("orders", 1)]
    text = lockstep("stream", "verify", "orders", code=1)
    assert text.lines[0] == "STREAM  OFFSET  FAULT"
    assert text.lines[1].startswith("orders       1  the batch is damaged")
    assert "1 fault." in text.out
    # And a reader is told, with the way on
    assert "[BATCH_DAMAGED]" in lockstep("stream", "tail", "orders", "--exit", code=1).err


def test_only_a_folder_can_be_verified(lockstep) -> None:
    assert "STORE_NOT_FOUND" in lockstep("stream", "verify", code=3).err
    assert "UNSUPPORTED_BY_BACKEND" in lockstep("stream", "verify", "--bus", "memory:a", code=6).err
