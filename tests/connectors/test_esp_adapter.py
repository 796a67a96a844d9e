"""dfesp_fs_adapter on the bus of a server without failover connectors."""

from __future__ import annotations

import pytest
from connector_worlds import World, csv, model

from lockstep.esp import fs_adapter


@pytest.fixture
def world(tmp_path, monkeypatch):
    url = f"lmdb:{tmp_path / 'bus'}"
    monkeypatch.setenv("LOCKSTEP_BUS", url)
    monkeypatch.chdir(tmp_path)
    made = World(url, model(), "127.0.0.1_5555")
    made.state()
    yield made
    made.close()


def test_a_file_is_published_to_the_window_of_the_url(world, tmp_path, capfd):
    (tmp_path / "in.csv").write_text(csv(1, 2, 3))
    url = "dfESP://localhost:5555/desk/q/Trades"
    assert fs_adapter.main(["-k", "pub", "-h", url, "-f", "in.csv", "-t", "csv", "-b", "2"]) == 0
    assert world.taken() == [1, 2, 3]
    assert "Published 3 events in 2 blocks to q/Trades." in capfd.readouterr().out


def test_lines_without_a_key_are_taken_if_that_is_said(world, tmp_path):
    (tmp_path / "in.csv").write_text("I,N,a,0.5\nI,N,b,1.0\n")
    words = ["-k", "pub", "-h", "dfESP://localhost:5555/desk/q/Trades", "-f", "in.csv"]
    assert fs_adapter.main([*words, "-C", "noautogenfield=true"]) == 0
    assert world.taken() == [None, None]


def test_a_window_that_does_not_exist_is_told_at_once(world, tmp_path, capsys):
    (tmp_path / "in.csv").write_text(csv(1))
    url = "dfESP://localhost:5555/desk/q/Tradez"
    assert fs_adapter.main(["-k", "pub", "-h", url, "-f", "in.csv"]) == 3
    assert "WINDOW_NOT_FOUND" in capsys.readouterr().err


def test_a_project_that_never_comes_is_told_after_a_while(world, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fs_adapter, "WAIT_S", 0.1)
    assert fs_adapter.main(["-k", "sub", "-h", "dfESP://localhost:5555/other/q/Copy", "-f", "o"]) == 3
    said = capsys.readouterr().err
    assert "Waiting for an engine with project other in cluster 127.0.0.1_5555" in said
    assert "'other' does not exist" in said


def test_a_transport_without_its_file(world, capsys):
    assert fs_adapter.main(["-k", "sub", "-h", "dfESP://h:1/desk/q/Copy", "-f", "o", "-l", "rabbitmq"]) == 3
    assert "rabbitmq.cfg" in capsys.readouterr().err
