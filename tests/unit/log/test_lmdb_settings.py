from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from lockstep.errors import BadConfig, ConfigMismatch, FormatTooNew, NotAStore, StoreNotFound
from lockstep.log.lmdb.settings import FILE, MAP_BYTES_DEFAULT, Settings, StoreOptions, load, load_or_make


def make(folder, identity="one", create=True, **wish):
    return load_or_make(folder, StoreOptions(**wish), create=create, identity=identity)


def test_a_new_store_gets_the_safe_defaults(tmp_path):
    made = make(tmp_path / "bus")
    assert made == Settings(identity="one", durability="fsync", map_bytes=MAP_BYTES_DEFAULT)
    assert (tmp_path / "bus").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "bus" / FILE).stat().st_mode & 0o777 == 0o600


def test_everybody_gets_what_is_stored(tmp_path):
    made = make(tmp_path, durability="relaxed", map_bytes=1 << 21)
    assert make(tmp_path, identity="two") == make(tmp_path, create=False) == load(tmp_path) == made


@pytest.mark.parametrize(
    ("wish", "field"), [({"durability": "relaxed"}, "durability"), ({"map_bytes": 1 << 20}, "map_bytes")]
)
def test_another_wish_is_refused_by_name(tmp_path, wish, field):
    make(tmp_path, map_bytes=1 << 21)
    make(tmp_path, map_bytes=1 << 21, durability="fsync")
    with pytest.raises(ConfigMismatch) as caught:
        make(tmp_path, **wish)
    assert caught.value.params["field"] == field


def test_the_map_may_be_enlarged(tmp_path):
    make(tmp_path, map_bytes=1 << 21)
    assert make(tmp_path, map_bytes=1 << 22).map_bytes == 1 << 22
    assert make(tmp_path).map_bytes == 1 << 22


@pytest.mark.parametrize("kind", ["replica", "async_replica"])
def test_a_replica_may_be_added_but_not_changed(tmp_path, kind):
    make(tmp_path)
    added = make(tmp_path, **{kind: "/copy"})
    assert getattr(added, kind) == "/copy"
    assert make(tmp_path) == added
    with pytest.raises(ConfigMismatch):
        make(tmp_path, **{kind: "/elsewhere"})


def test_settings_that_are_refused_are_not_written(tmp_path):
    make(tmp_path)

    def refuse(settings):
        raise BadConfig(field="replica", value=settings.replica, reason="no")

    with pytest.raises(BadConfig):
        load_or_make(tmp_path, StoreOptions(replica="/copy"), create=True, identity="one", check=refuse)
    assert make(tmp_path).replica is None


@pytest.mark.parametrize(
    ("wish", "reason"),
    [({"durability": "never"}, "choose fsync or relaxed"), ({"map_bytes": 5}, "at least 1048576")],
)
def test_bad_wishes(wish, reason):
    with pytest.raises(BadConfig, match=reason):
        StoreOptions(**wish)


def test_a_file_is_not_a_store(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAStore, match="it is not a folder"):
        make(tmp_path / "file")


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(NotAStore, match=r"it holds 'thesis.txt' and no lockstep.json"):
        make(tmp_path)
    assert [item.name for item in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_missing_parent_is_named(tmp_path):
    with pytest.raises(StoreNotFound, match=r"bus can't be created: the folder .*missing does not exist"):
        make(tmp_path / "missing" / "bus")


@pytest.mark.parametrize("left", [f"{FILE}.new", f"{FILE}.lock"])
def test_a_process_killed_while_making_a_store_leaves_no_ruin(tmp_path, left):
    (tmp_path / left).write_text("{")
    assert make(tmp_path).identity == "one"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "{}", '{"format": 1}', '{"format": 1, "colour": 2}', '{"format": "x"}']
)
def test_settings_that_can_not_be_read(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(NotAStore, match=r"its lockstep.json can't be read"):
        make(tmp_path)


def test_a_newer_format_is_refused_and_left_alone(tmp_path):
    stored = asdict(Settings(identity="one", format=2)) | {"new": True}
    (tmp_path / FILE).write_text(json.dumps(stored))
    with pytest.raises(FormatTooNew, match="has format 2, and this version reads up to 1"):
        make(tmp_path)
    assert json.loads((tmp_path / FILE).read_text()) == stored
