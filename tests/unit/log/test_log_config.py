from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from lockstep.errors import BadConfig, BadName, ConfigMismatch, PathMissing
from lockstep.log.config import FIXED, StreamConfig, check_name

BAD = [
    ("capacity", 0),
    ("capacity", -1),
    ("capacity", 1.5),
    ("capacity", "10"),
    ("capacity", True),
    ("retain_bytes", 0),
    ("retain_bytes", "1k"),
    ("retain_age_s", 0),
    ("retain_age_s", -0.5),
    ("retain_age_s", float("nan")),
    ("retain_age_s", float("inf")),
    ("retain_age_s", "1h"),
    ("retain_age_s", True),
    ("protect", 1),
    ("protect", None),
    ("protect", "yes"),
    ("protect_bytes", 0),
    ("protect_bytes", None),
    ("max_record_bytes", 0),
    ("max_record_bytes", None),
    ("compression", "brotli"),
    ("compression", None),
    ("compression", 3),
    ("shards", 0),
    ("shards", 1025),
    ("shards", None),
    ("history", 5),
    ("partitioner", "random"),
    ("partitioner", None),
    ("sync_replicas", -1),
    ("async_replicas", -1),
    ("async_replicas", 0.5),
]
OTHER = {
    "capacity": 5,
    "retain_bytes": 1000,
    "retain_age_s": 1.5,
    "protect": True,
    "protect_bytes": 10,
    "max_record_bytes": 10,
    "compression": "lz4",
    "shards": 4,
    "partitioner": "murmur2",
    "history": "lmdb:/srv/archive",
    "sync_replicas": 1,
    "async_replicas": 2,
}


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_named(name, value):
    with pytest.raises(BadConfig) as caught:
        StreamConfig(**{name: value})
    assert caught.value.params["field"] in (name, "compression")
    assert f"= {value!r} is not valid" in str(caught.value)


def test_the_defaults_are_those_of_the_documents():
    config = StreamConfig()
    assert (config.capacity, config.retain_bytes, config.retain_age_s, config.history) == (None, None, 604_800, None)
    assert (config.sync_replicas, config.async_replicas, config.shards, config.protect) == (0, 0, 1, False)


def test_a_history_in_a_relative_folder_is_stored_with_its_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert StreamConfig(history="lmdb:./archive").history == f"lmdb:{tmp_path}/archive"
    assert StreamConfig(history="null:").history == "null:"
    assert StreamConfig(history="vault:./x").history == "vault:./x"


def test_every_setting_has_another_value_in_these_tests():
    assert set(OTHER) == {item.name for item in fields(StreamConfig)}


@pytest.mark.parametrize("name", OTHER)
def test_whole_numbers_do_for_seconds_and_limits_may_be_none(name):
    assert getattr(StreamConfig(**{name: OTHER[name]}), name) == OTHER[name]
    unlimited = StreamConfig(capacity=None, retain_bytes=None, retain_age_s=3, history=None)
    assert (unlimited.capacity, unlimited.retain_age_s) == (None, 3)


def test_plain_data_there_and_back():
    config = StreamConfig(**OTHER)
    assert StreamConfig.from_dict(config.to_dict()) == config
    assert StreamConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("name", ["capasity", "", 5])
def test_unknown_settings_are_refused_with_the_known_ones(name):
    with pytest.raises(BadConfig, match="known settings are async_replicas, capacity"):
        StreamConfig.from_dict({name: 1})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.toml", 'capacity = 5\ncompression = "lz4"\nretain_age_s = 2'),
        ("a.yaml", "capacity: 5\ncompression: lz4\nretain_age_s: 2.0"),
        ("a.yml", "{capacity: 5, compression: lz4, retain_age_s: 2}"),
        ("a.json", '{"capacity": 5, "compression": "lz4", "retain_age_s": 2}'),
    ],
)
def test_files(tmp_path, file, text):
    (tmp_path / file).write_text(text)
    expected = StreamConfig(capacity=5, compression="lz4", retain_age_s=2)
    assert StreamConfig.from_file(tmp_path / file) == expected
    assert StreamConfig.from_file(str(tmp_path / file)) == expected


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("a.ini", "", "it must end in"),
        ("a.toml", "capacity =", "Invalid value"),
        ("a.json", "{", "Expecting property name"),
        ("a.yaml", "a: [", "while parsing"),
        ("a.json", "[1]", "it must hold settings by name"),
        ("a.yaml", "", "it must hold settings by name"),
        ("a.yaml", "capacity: many", "it must be int or None"),
        ("a.toml", "capacity = 0", "at least 1"),
        ("a.json", b"\xff\xfe", "decode"),
    ],
)
def test_bad_files(tmp_path, file, text, reason):
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadConfig, match=reason):
        StreamConfig.from_file(tmp_path / file)


def test_a_missing_file(tmp_path):
    with pytest.raises(PathMissing, match="No such file"):
        StreamConfig.from_file(tmp_path / "missing.toml")


def test_environment():
    environ = {
        "LOCKSTEP_STREAM_CAPACITY": "null",
        "LOCKSTEP_STREAM_COMPRESSION": "zstd",
        "LOCKSTEP_STREAM_PROTECT": "true",
        "LOCKSTEP_STREAM_RETAIN_AGE_S": "1.5",
        "PATH": "/bin",
    }
    expected = StreamConfig(capacity=None, compression="zstd", protect=True, retain_age_s=1.5)
    assert StreamConfig.from_env(environ) == expected
    assert StreamConfig.from_env({"MY_SHARDS": "3"}, prefix="MY_") == StreamConfig(shards=3)
    assert StreamConfig.from_env({}) == StreamConfig()
    with pytest.raises(BadConfig, match="capasity"):
        StreamConfig.from_env({"LOCKSTEP_STREAM_CAPASITY": "1"})
    with pytest.raises(BadConfig, match="it must be int or None"):
        StreamConfig.from_env({"LOCKSTEP_STREAM_CAPACITY": "many"})


@pytest.mark.parametrize("name", [name for name in OTHER if not name.endswith("sync_replicas")])
def test_a_mismatch_names_what_differs(name):
    stored = StreamConfig(capacity=None)
    given = replace(stored, **{name: OTHER[name]})
    stored.check_same("orders", stored)
    with pytest.raises(ConfigMismatch) as caught:
        stored.check_same("orders", given)
    was = getattr(stored, name)
    assert str(caught.value) == (
        f"[CONFIG_MISMATCH] Stream 'orders' has {name} = {was!r}, not {OTHER[name]!r}. "
        "Open it without a configuration to use the stored one"
        + (
            "; this setting can't be altered, so create another stream for another value."
            if name in FIXED
            else ", or change it with 'lockstep stream alter orders' or bus.alter()."
        )
    )


@pytest.mark.parametrize("name", ["sync_replicas", "async_replicas"])
def test_how_many_copies_are_wanted_is_no_difference(name):
    StreamConfig().check_same("orders", StreamConfig(**{name: OTHER[name]}))


def test_seven_days_are_kept_only_where_no_bound_is_given():
    week = 7 * 86_400
    kept = {
        StreamConfig(): (None, None, week),
        StreamConfig(shards=4, protect=True): (None, None, week),
        StreamConfig(capacity=None): (None, None, None),
        StreamConfig(capacity=5): (5, None, None),
        StreamConfig(retain_bytes=5): (None, 5, None),
        StreamConfig(retain_age_s=5): (None, None, 5),
        StreamConfig(capacity=5, retain_age_s=7): (5, None, 7),
    }
    for config, bounds in kept.items():
        assert (config.capacity, config.retain_bytes, config.retain_age_s) == bounds


@pytest.mark.parametrize("name", OTHER)
def test_what_can_be_altered_is_altered(name):
    stored = StreamConfig()
    if name in FIXED:
        with pytest.raises(BadConfig, match=f"{name} = .*'orders' was created with .* can't be altered"):
            stored.altered("orders", {name: OTHER[name]})
        return
    assert getattr(stored.altered("orders", {name: OTHER[name]}), name) == OTHER[name]


@pytest.mark.parametrize("name", ["a", "A1", "a.b-c_d", "9", "x" * 128])
def test_good_names(name):
    assert check_name("Stream", name) == name


@pytest.mark.parametrize("name", ["", "x" * 129, ".a", "-a", "_a", "a b", "a/b", "ä", "a\n", "a\0", None, 5, b"a"])
def test_bad_names(name):
    with pytest.raises(BadName, match="Stream name"):
        check_name("Stream", name)
