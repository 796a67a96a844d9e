"""The page of recipes: its commands are run on its own files, and print what the page says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from lockstep.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "recipes.md").read_text()
FILES = re.findall(r"^```(?:yaml|text|python)\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CONSOLE = re.findall(r"^```console\n\$ ((?:[^\n]*\\\n)*[^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("command", "printed"), CONSOLE, ids=[shlex.split(command)[3] for command, _ in CONSOLE])
def test_a_recipe_gives_the_table_on_the_page(tmp_path, monkeypatch, capfd, command, printed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "handlers", raising=False)
    for name, text in FILES:
        Path(name).write_text(text)
    program, *arguments = shlex.split(command.replace("\\\n", ""))
    assert program == "lockstep"
    assert main(arguments) == 0
    assert capfd.readouterr().out == printed


def test_every_model_of_the_page_is_run():
    models = {name for name, _ in FILES if name.endswith(".yaml")}
    assert models == {shlex.split(command)[3] for command, _ in CONSOLE}
    assert len(models) == 5


def test_the_words_of_the_trade_are_on_the_page():
    for word in ("tumbling", "sliding", "hopping", "session", "watermark", "late data", "top-N", "`SUM`"):
        assert word in PAGE
