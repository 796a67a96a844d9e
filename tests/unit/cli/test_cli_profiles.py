"""Profiles: where they are, what goes before what, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

PROFILES = """
[profiles.here]
bus = "lmdb:{folder}/here"
cluster = "blue"

[profiles.there]
bus = "lmdb:{folder}/there"
"""


@pytest.fixture
def config(cli, tmp_path, monkeypatch) -> Path:
    """The file, with two profiles; the current folder is another one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    path = tmp_path / "home" / ".config" / "lockstep" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(PROFILES.format(folder=tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return path


def streams(cli, *words: str) -> str:
    return cli("stream", "ls", *words, "--quiet").out


def test_an_option_goes_before_the_environment_and_that_before_a_profile(cli, config, tmp_path, monkeypatch) -> None:
    for name in ("here", "there", "other", "more"):
        cli("stream", "create", f"of-{name}", "--bus", f"lmdb:{tmp_path}/{name}")
    assert "of-here" in streams(cli, "--profile", "here")
    assert "of-there" in cli("--profile", "there", "stream", "ls").out
    monkeypatch.setenv("LOCKSTEP_PROFILE", "there")
    assert "of-there" in streams(cli)
    assert "of-here" in streams(cli, "--profile", "here")
    monkeypatch.setenv("LOCKSTEP_BUS", f"lmdb:{tmp_path}/other")
    assert "of-other" in streams(cli)
    assert "of-more" in streams(cli, "--bus", f"lmdb:{tmp_path}/more")
    assert "of-more" in cli("--bus", f"lmdb:{tmp_path}/more", "stream", "ls", "--profile", "here").out
    warned = cli("stream", "ls", "--profile", "here")
    assert "of-other" in warned.out
    assert "Warning: LOCKSTEP_BUS is set, and goes before the bus of profile 'here'." in warned.err
    assert cli("stream", "ls").err == ""


def test_a_cluster_is_a_default_for_commands_that_have_one(cli, config, tmp_path) -> None:
    cli("stream", "create", "any", "--profile", "here")
    assert "in cluster blue yet" in cli("status", "--profile", "here", code=1).err
    assert "in cluster red yet" in cli("status", "--profile", "here", "--cluster", "red", code=1).err
    assert "in cluster local yet" in cli("status", "--bus", f"lmdb:{tmp_path}/here", code=1).err


def test_an_unknown_profile_is_an_error_that_names_those_that_exist(cli, config) -> None:
    failed = cli("stream", "ls", "--profile", "her", code=3).err
    assert f"[PROFILE_NOT_FOUND] Profile 'her' does not exist. Profiles in {config}: here, there." in failed
    assert "Did you mean 'here'?" in failed
    config.unlink()
    assert f"Profiles in {config}: none." in cli("stream", "ls", "--profile", "here", code=3).err
    assert cli("stream", "ls", "--profile", "x", "--json", code=3).error["code"] == "PROFILE_NOT_FOUND"


def test_nothing_is_read_from_the_current_folder(cli, config, monkeypatch) -> None:
    text = config.read_text()
    config.unlink()
    for place in ("config.toml", "lockstep/config.toml", ".config/lockstep/config.toml"):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", ".")
    cli("stream", "ls", "--profile", "here", code=3)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path.cwd()))
    assert "[STORE_NOT_FOUND]" in cli("stream", "ls", "--profile", "here", code=3).err  # now it is named


WRONG = [
    ('bsu = "x"', 2, "there is no such setting; there are bus, cluster"),
    ("bus = 3", 2, "it must be a text"),
    ('bus = "redis://app:hush@127.0.0.1:1/0"', 2, "it holds a password: write user=NAME&password_file=FILE"),
    ('bus = "lmdb:./bus"', 2, "the path './bus' must be absolute"),
    ('bus = "redis://127.0.0.1:1/0?user=a&password_file=pw"', 2, "the path 'pw' must be absolute"),
    ('bus = "nonsense"', 2, "[BAD_URL]"),
    ("bus = ", 2, "is not valid TOML"),
]


@pytest.mark.parametrize(("text", "code", "words"), WRONG, ids=[text for text, *_ in WRONG])
def test_what_is_wrong_in_a_profile_is_said(cli, config, text, code, words) -> None:
    config.write_text(f"[profiles.p]\n{text}\n")
    failed = cli("stream", "ls", "--profile", "p", code=code).err
    assert words in failed
    assert "hush" not in failed
    assert cli("stream", "ls", code=3).err.startswith("lockstep: [STORE_NOT_FOUND]")  # without a profile nobody looks


def test_a_profile_that_is_no_table_and_a_file_that_is_none(cli, config) -> None:
    config.write_text('[profiles]\np = "x"\n')
    assert "write a table [profiles.p]" in cli("stream", "ls", "--profile", "p", code=2).err
    config.write_text('profiles = "x"\n')
    assert "write tables [profiles.NAME]" in cli("stream", "ls", "--profile", "p", code=2).err
    config.unlink()
    config.mkdir()
    assert str(config) in cli("stream", "ls", "--profile", "p", code=3).err
