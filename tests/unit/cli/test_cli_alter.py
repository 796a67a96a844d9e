"""lockstep stream alter, in this process."""

from __future__ import annotations

import json

import pytest

import lockstep
from lockstep.cli.main import main


@pytest.fixture
def stream(tmp_path):
    url = f"lmdb:{tmp_path / 'bus'}?map_bytes={1 << 26}"
    with lockstep.connect(url) as bus:
        bus.create("orders")

    def run(*arguments):
        return main(["stream", "alter", "orders", *arguments, "--bus", url])

    def config():
        with lockstep.connect(url) as bus:
            return bus.config("orders")

    return run, config


def test_settings_are_altered_and_shown(stream, capsys):
    run, config = stream
    assert run("--retain-age", "30d", "--compression", "zstd", "--protect", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (config().retain_age_s, config().compression, config().protect) == (30 * 86_400, "zstd", True)
    assert shown["config"] == config().to_dict()
    assert sorted(shown["changed"]) == ["compression", "protect", "retain_age_s"]
    assert run("--retain-age", "none", "--no-protect", "--yes") == 0
    assert (config().retain_age_s, config().protect) == (None, False)


def test_keeping_less_is_asked_for_first(stream, capsys):
    run, config = stream
    before = config()
    assert run("--capacity", "5") == 2
    assert "records may go" in capsys.readouterr().err
    assert run("--capacity", "5", "--dry-run") == 0
    assert config() == before
    assert run("--capacity", "5", "--yes") == 0
    assert config().capacity == 5


def test_what_can_t_be_altered_is_said(stream, capsys):
    run, _ = stream
    assert run("--shards", "4") == 2
    assert "was created with 1, and this can't be altered; create another stream" in capsys.readouterr().err
    assert run() == 2
    assert "at least one setting" in capsys.readouterr().err
