"""lockstep stream create, ls, show, trim, delete, as a user runs them."""

from __future__ import annotations

import pytest
from cli_command import InProcess

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def lockstep(tmp_path):
    command = InProcess(tmp_path)
    yield command
    command.close()


def fill(lockstep, name: str = "orders", count: int = 10) -> None:
    lockstep("stream", "create", name, "--sync-replicas", "0")
    lockstep("stream", "publish", name, "order {n}", "--count", str(count), "--quiet")


def test_create_says_what_is_kept_and_how_many_copies(lockstep) -> None:
    made = lockstep("stream", "create", "orders")
    assert made.out == "Created stream orders on lmdb:.lockstep: keeps all records, for 7d.\n"
    assert "warning" not in made.err
    wanting = lockstep("stream", "create", "copied", "--sync-replicas", "1")
    assert "wants 1 more copy" in wanting.err
    assert "--sync-replicas 0" in wanting.err
    # And again nothing happens, unless it has to be new
    assert "exists already" in lockstep("stream", "create", "orders").out
    assert "STREAM_EXISTS" in lockstep("stream", "create", "orders", "--new", code=4).err
    assert "has capacity = None, not 5" in lockstep("stream", "create", "orders", "--capacity", "5", code=4).err


def test_a_bus_with_a_replica_needs_no_warning(lockstep) -> None:
    made = lockstep("stream", "create", "orders", "--bus", "lmdb:first?replica=second")
    assert "Warning" not in made.err
    assert "writes 1 more copy" in made.err


def test_create_takes_all_settings_and_shows_them_as_json(lockstep) -> None:
    made = lockstep(
        "stream", "create", "orders", "--capacity", "none", "--retain-bytes", "10MB", "--retain-age", "7d", "--protect",
        "--compression", "zstd", "--shards", "2", "--max-record-bytes", "1KiB", "--history", "null:", "--json",
    )  # fmt: skip
    assert made.err == ""
    assert made.object == {
        "name": "orders",
        "created": True,
        "config": {
            "capacity": None,
            "retain_bytes": 10_000_000,
            "retain_age_s": 604_800.0,
            "protect": True,
            "protect_bytes": 1 << 30,
            "max_record_bytes": 1024,
            "compression": "zstd",
            "shards": 2,
            "partitioner": "crc32",
            "history": "null:",
            "sync_replicas": 0,
            "async_replicas": 0,
        },
        "copies": {"sync": 0, "async": 0, "sync_wanted": 0},
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.toml", "capacity = 7\nprotect = true\n"),
        ("c.yaml", "capacity: 7\nprotect: true\n"),
        ("c.json", '{"capacity": 7, "protect": true}'),
    ],
)
def test_settings_come_from_a_file_and_options_go_first(lockstep, name, text) -> None:
    (lockstep.folder / name).write_text(text)
    made = lockstep("stream", "create", "orders", "--config", name, "--shards", "2", "--json").object
    assert (made["config"]["capacity"], made["config"]["protect"], made["config"]["shards"]) == (7, True, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("bad name",),
        ("_hidden",),
        ("orders", "--compression", "rar"),
        ("orders", "--retain-age", "0"),
        ("orders", "--history", "nowhere"),
        ("orders", "--shards", "100000"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_made(lockstep, arguments) -> None:
    lockstep("stream", "create", *arguments, code=2)
    assert list(lockstep.folder.iterdir()) == []


def test_a_file_of_settings_that_is_missing_is_told_before_anything_is_made(lockstep) -> None:
    assert "missing.toml" in lockstep("stream", "create", "orders", "--config", "missing.toml", code=3).err
    assert list(lockstep.folder.iterdir()) == []


def test_ls_shows_streams_as_a_table_and_as_json_lines(lockstep) -> None:
    fill(lockstep)
    lockstep("stream", "create", "empty")
    lockstep("stream", "tail", "orders", "--group", "billing", "--max", "4")
    listed = lockstep("stream", "ls")
    assert listed.err == ""
    assert listed.lines == [
        "NAME    RECORDS  FIRST  NEXT",
        "empty         0      0     0",
        "orders       10      0    10",
    ]
    assert [row["groups"] for row in lockstep("stream", "ls", "--json").objects] == [None, None]
    assert lockstep("stream", "ls", "--groups").lines == [
        "NAME    RECORDS  FIRST  NEXT  GROUPS",
        "empty         0      0     0  -",
        "orders       10      0    10  billing",
    ]
    assert lockstep("stream", "ls", "--groups", "--json").objects == [
        {"name": "empty", "records": 0, "first": 0, "next": 0, "shards": 1, "groups": []},
        {"name": "orders", "records": 10, "first": 0, "next": 10, "shards": 1, "groups": ["billing"]},
    ]


def test_show_has_settings_bounds_promises_and_groups_with_lag(lockstep) -> None:
    fill(lockstep)
    lockstep("stream", "tail", "orders", "--group", "billing", "--max", "4")
    shown = lockstep("stream", "show", "orders", "--json").object
    assert set(shown) == {"name", "config", "bounds", "promises", "groups"}
    assert shown["bounds"] == [{"shard": None, "first": 0, "next": 10, "records": 10}]
    assert shown["promises"]["durability"] == "fsync"
    (group,) = shown["groups"]
    assert set(group) == {"group", "stream", "shard", "owner", "epoch", "confirmed", "next", "end", "lag", "lag_s"}
    assert (group["group"], group["confirmed"], group["next"], group["lag"]) == ("billing", 3, 4, 6)
    text = lockstep("stream", "show", "orders").out
    assert "offsets  0 to 9; the next record gets 10" in text
    assert "retain_age_s" in text
    assert "durability      fsync" in text
    assert "billing" in text


def test_shards_are_shown_one_by_one(lockstep) -> None:
    lockstep("stream", "create", "events", "--shards", "3")
    sent = lockstep("stream", "publish", "events", "{n}", "--count", "9", "--json").objects
    assert sorted((item["shard"], item["offset"]) for item in sent) == [(s, o) for s in range(3) for o in range(3)]
    assert lockstep("stream", "ls", "--json").object == {
        "name": "events", "records": 9, "first": None, "next": None, "shards": 3, "groups": None,
    }  # fmt: skip
    assert "shard 2  0 to 2; the next record gets 3" in lockstep("stream", "show", "events").out
    assert sorted(lockstep("stream", "tail", "events", "--exit").lines) == sorted(map(str, range(1, 10)))
    assert lockstep("stream", "tail", "events", "--group", "g", "--exit").raw.count(b"\n") == 9
    # And one of them can be named
    assert len(lockstep("stream", "tail", "events/2", "--exit").lines) == 3
    assert lockstep("stream", "show", "events/2", "--json").object["groups"][0]["group"] == "g"
    assert lockstep("stream", "trim", "events/1", "--keep", "2", "--yes").lines == [
        "Removed 1 record of stream events/1.",
        "events/1 begins at offset 1 and ends before 3.",
    ]
    trimmed = lockstep("stream", "trim", "events", "--keep", "1", "--yes", "--json").object
    assert trimmed["removed"] == 5
    assert [part["first"] for part in trimmed["shards"]] == [2, 2, 2]


def test_trim_forgets_and_says_who_has_not_read_it(lockstep) -> None:
    fill(lockstep)
    lockstep("stream", "tail", "orders", "--group", "billing", "--max", "4")
    # Without --yes, and with --dry-run, nothing changes
    assert "add --yes" in lockstep("stream", "trim", "orders", "--before", "6", code=2).err
    assert (
        lockstep("stream", "trim", "orders", "--before", "6", "--dry-run").lines[0].startswith("Would remove 6 records")
    )
    assert lockstep("stream", "ls", "--json").object["first"] == 0
    done = lockstep("stream", "trim", "orders", "--before", "6", "--yes")
    assert done.lines == ["Removed 6 records of stream orders.", "orders begins at offset 6 and ends before 10."]
    assert "group billing has not confirmed offsets 4 to 5" in done.err
    assert lockstep("stream", "trim", "orders", "--keep", "1", "--yes", "--json").object == {
        "stream": "orders", "removed": 3, "applied": True,
        "shards": [{"shard": None, "first": 9, "next": 10, "removed": 3}],
    }  # fmt: skip
    assert lockstep("stream", "trim", "orders", "--keep", "5", "--yes", "--json").object["removed"] == 0
    assert "BAD_OFFSET" in lockstep("stream", "trim", "orders", "--before", "11", "--yes", code=2).err


def test_delete_asks_and_removes(lockstep) -> None:
    fill(lockstep)
    assert "This would delete stream orders with 10 records" in lockstep("stream", "delete", "orders", code=2).err
    assert lockstep("stream", "delete", "orders", "--dry-run").out == "Would delete stream orders with 10 records.\n"
    assert lockstep("stream", "ls", "--json").object["records"] == 10
    assert lockstep("stream", "delete", "orders", "--yes", "--json").object == {
        "stream": "orders", "records": 10, "deleted": True,
    }  # fmt: skip
    assert lockstep("stream", "ls").out == ""
    assert lockstep("stream", "delete", "orders", "--yes", code=3).err.startswith("lockstep: [STREAM_NOT_FOUND]")


@pytest.mark.parametrize("place", ["option", "environment", "default"])
def test_the_bus_may_be_named_in_three_ways(lockstep, place) -> None:
    option = ("--bus", "lmdb:named") if place == "option" else ()
    environ = {"LOCKSTEP_BUS": "lmdb:named"} if place == "environment" else {}
    lockstep("stream", "create", "orders", *option, **environ)
    assert [item.name for item in lockstep.folder.iterdir()] == [".lockstep" if place == "default" else "named"]
