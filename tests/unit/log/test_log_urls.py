from __future__ import annotations

import gc

import pytest

from lockstep.errors import BackendUnknown, BadConfig, BadUrl, StoreNotFound, UnsupportedByBackend
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.log.urls import open_bus, password_variable, split_url, without_secret
from lockstep.runtime import ThreadRuntime

RUNTIME = ThreadRuntime()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("memory:", ("memory", "", {})),
        ("memory:a", ("memory", "a", {})),
        ("lmdb:./a b", ("lmdb", "./a b", {})),
        ("lmdb:/x:y?durability=relaxed&map_bytes=5", ("lmdb", "/x:y", {"durability": "relaxed", "map_bytes": "5"})),
        ("lmdb:x?replica=%2Fa%26b", ("lmdb", "x", {"replica": "/a&b"})),
        ("lmdb:x?", ("lmdb", "x", {})),
    ],
)
def test_parts(url, parts):
    assert split_url(url) == parts


@pytest.mark.parametrize(
    ("url", "error", "reason"),
    [
        ("", BadUrl, "it has no scheme"),
        ("orders", BadUrl, "it has no scheme"),
        (None, BadUrl, "it has no scheme"),
        (5, BadUrl, "it has no scheme"),
        ("lmdb:", BadUrl, "it names no folder"),
        ("lmdb:?durability=fsync", BadUrl, "it names no folder"),
        ("lmdb:x?nonsense", BadUrl, "not NAME=VALUE"),
        ("lmdb:x?colour=red", BadUrl, "it has no option 'colour'"),
        ("lmdb:x?replica=", BadUrl, "its option 'replica' is empty"),
        ("lmdb:x?durability=fsync&durability=relaxed", BadUrl, "it gives 'durability' twice"),
        ("lmdb:x?durability=sometimes", BadConfig, "choose fsync or relaxed"),
        ("lmdb:x?map_bytes=many", BadConfig, "it must be a whole number"),
        ("lmdb:x?map_bytes=-5", BadConfig, "it must be a whole number"),
        ("lmdb:x?map_bytes=²", BadConfig, "it must be a whole number"),
        ("lmdb:x?map_bytes=5", BadConfig, "at least 1048576"),
        ("memory:?a=b", BadUrl, "it takes no option 'a'"),
        ("pulsar:host", BackendUnknown, "Known backends: hazelcast, kafka, lmdb, memory"),
        (":x", BackendUnknown, "No backend is called ''"),
    ],
)
def test_bad_urls(tmp_path, monkeypatch, url, error, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=reason):
        open_bus(url, RUNTIME)
    assert list(tmp_path.iterdir()) == [], "nothing was made"


def test_memory_without_a_name_is_its_own():
    one, two = open_bus("memory:", RUNTIME), open_bus("memory:", RUNTIME)
    one.create("orders", StreamConfig())
    assert two.names() == []


def test_memory_with_a_name_is_shared_as_long_as_somebody_has_it():
    one, two = open_bus("memory:shared", RUNTIME), open_bus("memory:shared", RUNTIME)
    one.create("orders", StreamConfig())
    assert two.names() == ["orders"]
    assert one.url == "memory:shared"
    del one, two
    gc.collect()
    assert open_bus("memory:shared", RUNTIME).names() == []


def test_a_missing_store_is_made_only_if_asked(tmp_path):
    with pytest.raises(StoreNotFound, match="There is no store in"):
        open_bus(f"lmdb:{tmp_path / 'bus'}", RUNTIME, create=False)
    assert not (tmp_path / "bus").exists()
    open_bus(f"lmdb:{tmp_path / 'bus'}", RUNTIME).close()
    open_bus(f"lmdb:{tmp_path / 'bus'}", RUNTIME, create=False).close()


def test_backends_of_your_own():
    seen = []

    def mine(target, options, runtime, create):
        seen.append((target, options, create))
        return MemoryBroker().bus(runtime, "mine:x")

    assert open_bus("mine:x?a=b", RUNTIME, create=False, backends={"mine": mine}).url == "mine:x"
    assert seen == [("x", {"a": "b"}, False)]


@pytest.mark.parametrize(
    ("history", "reason"),
    [("redis:x", "write lmdb:FOLDER or null:"), ("lmdb:", "write lmdb:FOLDER or null:"), ("{bus}", "another folder")],
)
def test_bad_histories_are_found_when_the_stream_is_made(tmp_path, history, reason):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}", RUNTIME)
    with pytest.raises(BadConfig, match=reason):
        bus.create("orders", StreamConfig(history=history.format(bus=f"lmdb:{tmp_path / 'bus'}")))
    assert bus.names() == [], "a stream that can't keep its history is not made"
    bus.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:secret@host:1/0", "redis://me@host:1/0"),
        ("redis://:se@c?ret@host:1", "redis://@host:1"),
        ("kafka://host:9092?prefix=x", "kafka://host:9092?prefix=x"),
        ("lmdb:./a@b", "lmdb:./a@b"),
    ],
)
def test_a_password_is_never_shown(url, shown):
    assert without_secret(url) == shown


def test_a_bad_url_with_a_password_does_not_repeat_it():
    with pytest.raises(BadUrl) as caught:
        split_url("redis://me:secret@host:1?prefix=")
    assert "secret" not in str(caught.value)


def test_a_password_goes_to_other_processes_by_their_environment():
    assert password_variable("rabbitmq://me:a%40b@host") == ("LOCKSTEP_RABBITMQ_PASSWORD", "a@b")
    assert password_variable("rabbitmq://me@host") is None
    assert password_variable("lmdb:./a:b@c") is None


def test_a_password_with_a_question_mark_is_not_shown():
    with pytest.raises(BadUrl) as caught:
        split_url("kafka://app:ge?heim@here:9092")
    assert "heim" not in str(caught.value)
    assert "%3F" in str(caught.value)


def test_a_bus_that_is_refused_for_its_histories_is_closed():
    closed = []

    class Server:
        url = "mine:x"

        def close(self):
            closed.append(self.url)

    with pytest.raises(UnsupportedByBackend):
        open_bus(
            "mine:x", ThreadRuntime(), backends={"mine": lambda *_: Server()}, histories={"vault": lambda *_: None}
        )
    assert closed == ["mine:x"]
