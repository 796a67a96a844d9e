"""What `lockstep demo` starts, and what it refuses."""

from __future__ import annotations

import shlex

import pytest

from lockstep.cli.commands import NOUNS
from lockstep.cli.demo import MARK, MODEL, _prepare, parts
from lockstep.cli.parser import build, parse
from lockstep.engine.model.loading import parse_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.errors import UsageError


def test_each_part_is_a_command_that_there_is(tmp_path):
    names = []
    for part in parts(tmp_path, 18080):
        assert parse(build(NOUNS, "1"), shlex.split(shlex.join(part.words))).run
        names.append(part.name)
    assert names == ["pages", "engine e1", "engine e2", "scheduler", "fleet", "trades"]


def test_its_model_is_sound():
    graph = compile_project(parse_yaml(MODEL, "the demo's model"))
    assert [node.path for node in graph.nodes][:1] == ["prices/trades"]


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(UsageError):
        _prepare(tmp_path, keep=False)
    assert (tmp_path / "letter.txt").exists()


def test_a_folder_of_a_demo_is_made_anew_unless_it_is_kept(tmp_path):
    folder = tmp_path / "demo"
    _prepare(folder, keep=False)
    (folder / "old").touch()
    _prepare(folder, keep=True)
    assert (folder / "old").exists()
    _prepare(folder, keep=False)
    assert not (folder / "old").exists()
    assert (folder / MARK).exists()
