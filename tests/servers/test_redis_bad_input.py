"""What can be wrong with a Redis, or with how it is addressed: one clear error in time, and nothing lost."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lockstep.errors import (
    AppendTooLarge,
    AppendUncertain,
    BadName,
    ConfigMismatch,
    LockstepError,
    ServerRefused,
    ServerUnfit,
    ServerUnreachable,
    StoreFull,
    Trimmed,
    UnsupportedByBackend,
)
from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values
from servers.server_fixtures import free_ports

KEEP = StreamConfig(capacity=None)
RIGHTS = "~{shop}:* &{shop}:* -@all +@read +@write +@scripting +@pubsub +@connection +time +wait +info +config|get"
"""What docs/howto/bus-redis.md says that a user needs."""


@pytest.fixture
def opened():
    """Opens buses, and closes them in the end."""
    buses = []

    def open_one(url, **options):
        options.setdefault("prefix", uuid.uuid4().hex)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        buses.append(open_bus(f"{url}?{query}", ThreadRuntime()))
        return buses[-1]

    yield open_one
    for bus in buses:
        bus.close()


@pytest.fixture
def server(start_server):
    """A Redis of its own, whose settings a test may change."""
    return start_server("redis")


@pytest.fixture
def tell(server, opened):
    """Tells the server something, past the bus."""
    bus = opened(server.url)
    return lambda *words: bus.client.ask(words)[0]


def took_s(call):
    runtime = ThreadRuntime()
    began = runtime.monotonic()
    call()
    return runtime.monotonic() - began


def test_nobody_at_the_address(opened):
    [port] = free_ports(1)

    def call():
        with pytest.raises(ServerUnreachable, match=rf"127\.0\.0\.1:{port} does not answer"):
            opened(f"redis://127.0.0.1:{port}")

    assert took_s(call) < 5


def test_a_name_that_no_machine_has(opened):
    with pytest.raises(ServerUnreachable, match=r"no-such-host\.invalid"):
        opened("redis://no-such-host.invalid:6379", timeout_s=5)


def test_somebody_who_never_answers(opened, proxy, redis_server):
    proxy.target = redis_server.port
    proxy.stall()

    def call():
        with pytest.raises(ServerUnreachable, match=proxy.address):
            opened(f"redis://{proxy.address}", timeout_s=0.5)

    assert took_s(call) < 10


@pytest.mark.parametrize("login", ["", ":wrong-word@", "nobody:wrong-word@"])
def test_a_wrong_password_is_refused_and_not_told(server, tell, opened, login):
    tell("CONFIG", "SET", "requirepass", "right-word")
    with pytest.raises(ServerRefused, match=r"127\.0\.0\.1") as caught:
        opened(f"redis://{login}127.0.0.1:{server.port}")
    assert "-word" not in str(caught.value)


def test_a_password_by_url_file_or_environment(server, tell, opened, tmp_path, monkeypatch):
    tell("CONFIG", "SET", "requirepass", "right-word")
    bus = opened(f"redis://:right-word@127.0.0.1:{server.port}")
    assert bus.names() == []
    assert "right-word" not in bus.url + repr(bus) + repr(vars(bus.client)) + repr(vars(bus.client.connector))
    (tmp_path / "secret").write_text("right-word\n")
    assert opened(server.url, password_file=tmp_path / "secret").names() == []
    monkeypatch.setenv("LOCKSTEP_REDIS_PASSWORD", "right-word")
    assert opened(server.url).names() == []


def test_the_rights_in_the_docs_are_enough(server, tell, opened):
    assert RIGHTS in (Path(__file__).parents[2] / "docs" / "howto" / "bus-redis.md").read_text()
    tell("ACL", "SETUSER", "app", "on", ">word", *RIGHTS.split())
    bus = opened(f"redis://app:word@127.0.0.1:{server.port}", prefix="shop")
    log = bus.create("orders", KEEP)
    waiter = bus.waiter()
    waiter.watch(log)
    log.append([Producer().batch(b"a")])
    bus.atomic(lambda changes: changes.append("orders", [Producer("other").batch(b"b")]))
    bus.atomic(lambda changes: changes.put(b"cell", b"1"))
    waiter.wait(1)
    waiter.close()
    log.trim(1)
    assert values(log) == [b"b"]
    bus.delete("orders")
    assert bus.promises.durability == "fsync"


def test_a_user_who_may_only_read(server, tell, opened):
    opened(server.url, prefix="shop").create("orders", KEEP).append([Producer().batch(b"a")])
    tell("ACL", "SETUSER", "reader", "on", ">word", "~*", "&*", "-@all", "+@read", "+@connection", "+info")
    bus = opened(f"redis://reader:word@127.0.0.1:{server.port}", prefix="shop")
    log = bus.open("orders")
    assert values(log) == [b"a"]
    with pytest.raises(ServerRefused, match="evalsha"):
        log.append([Producer("other").batch(b"b")])
    assert values(log) == [b"a"]


def test_a_user_who_may_not_wait_for_replicas_is_told_that_the_record_is_stored(server, tell, opened):
    tell("ACL", "SETUSER", "app", "on", ">word", *RIGHTS.split(), "-wait")
    log = opened(f"redis://app:word@127.0.0.1:{server.port}", prefix="shop", wait_replicas=1).create("orders", KEEP)
    with pytest.raises(AppendUncertain, match=r"has stored it, but can't wait: .*wait"):
        log.append([Producer().batch(b"a")])
    assert values(log) == [b"a"]


def test_a_user_of_another_prefix(server, tell, opened):
    tell("ACL", "SETUSER", "app", "on", ">word", *RIGHTS.split())
    bus = opened(f"redis://app:word@127.0.0.1:{server.port}", prefix="bank")
    with pytest.raises(ServerRefused):
        bus.create("orders", KEEP)


def test_a_server_that_does_not_tell_its_settings_is_not_trusted(server, tell, opened, caplog):
    tell("ACL", "SETUSER", "app", "on", ">word", "~*", "&*", "+@all", "-config")
    bus = opened(f"redis://app:word@127.0.0.1:{server.port}")
    assert bus.promises.durability == "memory"
    assert "does not tell its settings" in caplog.text
    with pytest.raises(ServerUnfit, match="CONFIG GET"):
        opened(f"redis://app:word@127.0.0.1:{server.port}", strict="true")


def test_no_such_database(opened, redis_server):
    with pytest.raises(ServerRefused, match="it has no database 4711"):
        opened(f"{redis_server.url}/4711")


def test_an_append_that_is_too_large_names_the_setting(server, tell, opened):
    tell("CONFIG", "SET", "proto-max-bulk-len", 1 << 20)
    log = opened(server.url).create("orders", KEEP)
    log.append([Producer().batch(b"a")])
    with pytest.raises(AppendTooLarge, match="raise proto-max-bulk-len"):
        log.append([Producer("large").batch(b"x" * (1 << 20))])
    log.append([Producer("other").batch(b"y" * 1_000_000)])
    assert values(log) == [b"a", b"y" * 1_000_000]


def test_a_server_without_memory_says_so_and_loses_nothing(server, tell, opened):
    bus = opened(server.url)
    log, producer = bus.create("orders", KEEP), Producer()
    log.append([producer.batch(b"a"), producer.batch(b"b")])
    tell("CONFIG", "SET", "maxmemory", 1)
    refused = producer.batch(b"c")
    for call in (
        lambda: log.append([refused]),
        lambda: bus.atomic(lambda changes: changes.append("orders", [refused])),
        lambda: bus.create("other", KEEP),
    ):
        with pytest.raises(StoreFull, match=f"127.0.0.1:{server.port}: .*maxmemory"):
            call()
    # But what makes room is let through, and reading goes on
    log.trim(1)
    assert values(log) == [b"b"]
    tell("CONFIG", "SET", "maxmemory", 0)
    assert log.append([refused]) == [2]
    assert values(log) == [b"b", b"c"]


def test_a_server_that_can_not_write_to_its_disk_says_so_and_loses_nothing(server, tell, opened):
    log, producer = opened(server.url).create("orders", KEEP), Producer()
    log.append([producer.batch(b"a")])
    tell("CONFIG", "SET", "save", "3600 1")
    (server.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    tell("BGSAVE")
    runtime = ThreadRuntime()
    end, pause = runtime.monotonic() + 20, runtime.waiter()
    while b"rdb_last_bgsave_status:err" not in tell("INFO", "persistence"):
        assert runtime.monotonic() < end
        pause.wait(0.01)
    refused = producer.batch(b"b")
    with pytest.raises(StoreFull, match=r"can't write to its disk .*dir"):
        log.append([refused])
    assert values(log) == [b"a"]
    tell("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert log.append([refused]) == [1]


def test_a_server_that_wants_more_replicas_than_it_has(server, tell, opened):
    log = opened(server.url).create("orders", KEEP)
    tell("CONFIG", "SET", "min-replicas-to-write", 1)
    with pytest.raises(ServerUnfit, match="min-replicas-to-write"):
        log.append([Producer().batch(b"a")])
    tell("CONFIG", "SET", "min-replicas-to-write", 0)
    assert values(log) == []


@pytest.mark.parametrize(
    ("settings", "problem", "durability"),
    [
        ({"appendonly": "no"}, "append-only file is off", "memory"),
        ({"appendfsync": "everysec"}, "acknowledges before the disk has it", "relaxed"),
        ({"appendfsync": "no"}, "acknowledges before the disk has it", "relaxed"),
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru", "fsync"),
    ],
)
def test_settings_that_break_a_promise_are_told_and_refused_if_strict(
    server, tell, opened, caplog, settings, problem, durability
):
    for name, value in settings.items():
        tell("CONFIG", "SET", name, value)
    bus = opened(server.url)
    assert bus.promises.durability == durability
    assert problem in caplog.text
    assert any(problem in finding.problem for finding in bus.check())
    with pytest.raises(ServerUnfit, match=problem):
        opened(server.url, strict="true")


def test_a_lone_server_is_told_by_the_check_only(server, opened, caplog):
    bus = opened(server.url)
    assert not caplog.records
    [finding] = bus.check()
    assert "no replica" in finding.problem
    with pytest.raises(ServerUnfit, match="no replica"):
        opened(server.url, strict="true")


def test_keys_of_somebody_else_under_the_same_names(server, tell, opened):
    tell("SET", "{shop}:streams", "something")
    with pytest.raises(ServerUnfit, match="WRONGTYPE"):
        opened(server.url, prefix="shop").create("orders", KEEP)


def test_a_stream_with_a_history_is_refused(redis_server, opened):
    with pytest.raises(UnsupportedByBackend, match="history"):
        opened(redis_server.url).create("orders", StreamConfig(history="lmdb:./archive"))


def test_names_and_configurations_that_can_not_be(redis_server, opened):
    bus = opened(redis_server.url)
    with pytest.raises(BadName):
        bus.create("", KEEP)
    with pytest.raises(BadName):
        bus.create("x" * 256, KEEP)
    bus.create("orders", KEEP)
    with pytest.raises(ConfigMismatch, match="retain_age_s"):
        bus.create("orders", StreamConfig())


def test_a_trimmed_stream_says_where_it_begins(redis_server, opened):
    log = opened(redis_server.url).create("orders", StreamConfig(capacity=2))
    log.append([Producer().batch(b"a", b"b", b"c", b"d", b"e")])
    with pytest.raises(Trimmed, match="the first readable one is 3"):
        log.read(0)


def test_every_error_of_a_server_that_is_gone_is_one_of_ours(server, opened):
    bus = opened(server.url, timeout_s=0.3, patience_s=0.3)
    log = bus.create("orders", KEEP)
    server.kill()
    for call in (
        lambda: log.append([Producer().batch(b"a")]),
        lambda: log.read(0),
        log.bounds,
        lambda: log.trim(0),
        lambda: log.hold("group", 0),
        bus.names,
        bus.check,
        lambda: bus.create("other", KEEP),
        lambda: bus.open("orders"),
        lambda: bus.delete("orders"),
        lambda: bus.atomic(lambda changes: changes.get(b"cell")),
    ):
        with pytest.raises(LockstepError, match=str(server.port)):
            call()
