"""The parts of the bus on Redis that need no server: addresses, keys, stamps, refusals, findings."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError

from lockstep.errors import BadUrl, BatchDamaged, ServerRefused, ServerUnfit, ServerUnreachable, StoreFull
from lockstep.log.batch import BatchView
from lockstep.log.config import StreamConfig
from lockstep.log.redis import scripts
from lockstep.log.redis.bus import OPTIONS, Facts, limits_of, open_bus, promises_of, replica_findings, server_findings
from lockstep.log.redis.errors import is_transient, translate
from lockstep.log.redis.layout import (
    CatalogueEntry,
    Keys,
    base_of,
    decode_entry,
    encode_entry,
    entry_id,
    restamped,
    stamp,
)
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer

GOOD = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        ("", {}, "write redis://HOST:PORT"),
        ("//", {}, "write redis://HOST:PORT"),
        ("//h:x", {}, "is not HOST:PORT"),
        ("//h/db", {}, "its database must be a number"),
        ("//h", {"prefix": "a{b"}, "must not have braces"),
        ("//h", {"wait_replicas": "-1"}, "wait_replicas must be a whole number"),
        ("//h", {"wait_ms": "0"}, "wait_ms must be above 0"),
        ("//h", {"wait_ms": "10000"}, "below timeout_s, 10000 ms"),
        ("//h", {"acks": "all"}, "it has no option 'acks'; there are user, .*wait_replicas, wait_ms"),
        ("//h", {"timeout_s": "0"}, "timeout_s"),
    ],
)
def test_a_url_that_can_not_be_is_refused_before_anybody_is_asked(target, options, reason):
    with pytest.raises(BadUrl, match=reason):
        open_bus(target, options, ThreadRuntime(), {})


def test_a_secret_in_a_bad_url_is_not_told():
    with pytest.raises(BadUrl) as caught:
        open_bus("//:hidden-word@h/db", {}, ThreadRuntime(), {})
    assert "hidden-word" not in str(caught.value)


def test_keys_carry_the_prefix_in_braces():
    assert Keys("shop").catalogue == "{shop}:streams"
    assert Keys("").cells == "{lockstep}:cells"
    assert Keys("shop").log("orders/3").entries == "{shop}:log:orders/3"
    assert len(set(Keys("shop").log("a").stored)) == 5


@pytest.mark.parametrize("offset", [0, 1, 4711, 2**53 - 2])
def test_an_offset_is_an_id_and_back(offset):
    assert base_of(entry_id(offset).encode()) == offset


def test_stamps_are_ordered_as_text():
    times = [0, 1, 999_999_999, 10**18, 1_790_000_000_123_456_789]
    assert sorted(map(stamp, times)) == [stamp(time) for time in times]


def test_a_batch_with_another_append_time_is_whole_and_otherwise_the_same():
    data = Producer().batch(b"a", b"bb", keys=[b"k", None]).seal(5)
    view = BatchView(7, restamped(data, 1_790_000_000_123_456_789), "orders")
    assert (view.append_ns, view.values(), view.keys()) == (1_790_000_000_123_456_789, (b"a", b"bb"), (b"k", None))
    assert restamped(data, 5) == data


@pytest.mark.parametrize("damage", [slice(0, 10), slice(0, 80), slice(None)])
def test_a_damaged_batch_stays_damaged(damage):
    data = bytearray(Producer().batch(b"x" * 100).seal(5)[damage])
    data[-1] ^= 1
    assert restamped(bytes(data), 6) == data
    with pytest.raises(BatchDamaged):
        BatchView(0, restamped(bytes(data), 6), "orders")


@pytest.mark.parametrize(
    ("refusal", "kind", "says"),
    [
        (OutOfMemoryError("command not allowed", status_code="OOM"), StoreFull, "h:1: .*maxmemory"),
        (redis.ResponseError("MISCONF Errors writing to the AOF file"), StoreFull, "h:1: .*disk"),
        (redis.ResponseError("NOREPLICAS Not enough good replicas"), ServerUnfit, "min-replicas-to-write"),
        (redis.AuthenticationError("Authentication required.", status_code="NOAUTH"), ServerRefused, "h:1 refused"),
        (NoPermissionError("no permissions to run", status_code="NOPERM"), ServerRefused, "no permissions"),
        (ReadOnlyError("You can't write", status_code="READONLY"), ServerUnfit, "it is a replica"),
        (redis.BusyLoadingError("is loading", status_code="LOADING"), ServerUnreachable, "is loading"),
        (redis.ConnectionError("max number of clients reached"), ServerUnreachable, "max number of clients"),
        (redis.ResponseError("WRONGTYPE Operation against a key"), ServerUnfit, "prefix"),
    ],
)
def test_a_refusal_is_one_of_our_errors_and_names_server_and_setting(refusal, kind, says):
    with pytest.raises(kind, match=says):
        raise translate(refusal, "h:1", "orders")


def test_a_refusal_from_within_a_script_is_told_without_the_script():
    text = "MISCONF Errors writing to the AOF file: No space left on device script: e30b7f, on @user_script:1."
    assert "script" not in str(translate(redis.ResponseError(text), "h:1", "orders"))
    assert "No space left on device" in str(translate(redis.ResponseError(text), "h:1", "orders"))


def test_what_may_pass_is_told_from_what_stays():
    assert is_transient(redis.BusyLoadingError("is loading", status_code="LOADING"))
    assert is_transient(redis.ResponseError("BUSY Redis is busy running a script"))
    assert not is_transient(redis.ResponseError("OOM command not allowed"))


def test_a_catalogue_entry_goes_there_and_back():
    stored = CatalogueEntry("ab" * 16, StreamConfig(capacity=None, compression="lz4", shards=3))
    assert decode_entry(encode_entry(stored, 5)) == stored


@pytest.mark.parametrize(
    ("facts", "problem", "fatal"),
    [
        (Facts("s", (6, 2), 1, False, GOOD), "Redis 6.2, and streams need 7.0 or later", True),
        (Facts("s", (7, 0), 0, True, GOOD), "it is a replica", True),
        (Facts("s", (7, 0), 1, False, {**GOOD, "appendonly": "no"}), "append-only file is off", False),
        (Facts("s", (7, 0), 1, False, {**GOOD, "appendfsync": "everysec"}), "before the disk has it", False),
        (Facts("s", (7, 0), 1, False, {**GOOD, "no-appendfsync-on-rewrite": "yes"}), "while it rewrites", False),
        (Facts("s", (7, 0), 1, False, {**GOOD, "maxmemory-policy": "allkeys-lfu"}), "allkeys-lfu", False),
        (Facts("s", (7, 0), 1), "does not tell its settings", False),
    ],
)
def test_what_would_break_a_promise_is_found(facts, problem, fatal):
    [finding] = server_findings(facts, 0)
    assert problem in finding.problem
    assert finding.fatal is fatal


def test_a_server_as_it_should_be_has_no_findings():
    facts = Facts("s", (8, 2), 2, False, {**GOOD, "maxmemory-policy": "volatile-lru"})
    assert server_findings(facts, 2) == replica_findings(facts) == []
    assert server_findings(facts, 3)[0].problem == "2 replicas follow it, and every append waits for 3"
    assert promises_of(facts, 1).async_replicas == 1


@pytest.mark.parametrize(
    ("settings", "durability"),
    [
        (GOOD, "fsync"),
        ({**GOOD, "appendfsync": "everysec"}, "relaxed"),
        ({**GOOD, "appendfsync": "no"}, "relaxed"),
        ({**GOOD, "no-appendfsync-on-rewrite": "yes"}, "relaxed"),
        ({**GOOD, "appendonly": "no"}, "memory"),
        (None, "memory"),
    ],
)
def test_durability_is_what_the_settings_say(settings, durability):
    promises = promises_of(Facts("s", (7, 0), 0, False, settings), 0)
    assert promises.durability == durability
    assert promises.may_lose


def test_how_much_an_append_takes_is_the_servers_setting():
    assert limits_of(Facts("s")).append_bytes == (512 << 20) - 1024
    assert limits_of(Facts("s", settings={"proto-max-bulk-len": "2000000"})).append_bytes == 1_998_976
    assert limits_of(Facts("s")).append_setting == "proto-max-bulk-len"


def test_a_script_is_called_by_its_checksum():
    assert scripts.Script("return 1").call(["a", "b"], [3]) == (
        "EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 2, "a", "b", 3,
    )  # fmt: skip


def test_the_docs_name_the_keys_and_the_options():
    page = (Path(__file__).parents[3] / "docs" / "howto" / "bus-redis.md").read_text()
    keys = Keys("shop")
    for key in (
        *keys.log("orders").stored,
        keys.log("orders").channel,
        keys.catalogue,
        keys.cells,
        keys.undo,
        keys.changes,
    ):
        assert f"`{key}`" in page
    for option in OPTIONS:
        assert f"| `{option}` |" in page
