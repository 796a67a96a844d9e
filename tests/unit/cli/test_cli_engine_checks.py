"""What is wrong with the options of an engine is said before Spark starts."""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

import pytest

from lockstep.cli.engine_services import prepared_rest
from lockstep.engine.errors import SparkUnavailable
from lockstep.engine.runtime.setup import EngineFolder
from lockstep.runtime import ThreadRuntime

MODEL = """
name: small
queries:
  - name: q
    windows:
      - {kind: source, name: S, schema: "id*:int32"}
      - {kind: copy, name: C}
    edges: [S -> C]
"""


@pytest.fixture(autouse=True)
def _no_spark(cli, monkeypatch) -> None:
    Path("m.yaml").write_text(MODEL)
    Path("file").write_text("")
    Path("weak").write_text("a-token-nobody-guesses-0123456789")
    Path("weak").chmod(0o644)
    monkeypatch.setattr("lockstep.engine.spark.session.check_java", lambda: "java")
    monkeypatch.setattr("lockstep.engine.runtime.engine.Engine.start", lambda _: pytest.fail("Spark was started"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--http", "TAKEN"), 6, "PORT_UNUSABLE"),
        (("--http", "99999"), 2, "'99999' must be a port from 0 to 65535"),
        (("--metrics-port", "0"), 2, "'0' must be a port from 1 to 65535"),
        (("--persist-every", "5m"), 2, "--persist-every needs --persist-to FOLDER"),
        (("--trim", "--persist-to", "kept"), 2, "--trim needs --persist-every TIME"),
        (("--metrics-port", "TAKEN"), 6, "Metrics can't listen"),
        (("--http", "8181", "--metrics-port", "8181"), 2, "--http and --metrics-port are both 8181"),
        (("--http", "0", "--http-host", "0.0.0.0"), 2, "TOKEN_NEEDED"),
        (("--http", "0", "--token-file", "missing"), 2, "TOKEN_FILE_UNUSABLE"),
        (("--http", "0", "--token-file", "weak"), 2, "TOKEN_FILE_UNUSABLE"),
        (("--http", "0", "--files", "missing"), 2, "is no folder"),
        (("--state", "file/state"), 2, "is no folder"),
        (("--persist-to", "file"), 2, "is no folder"),
        (("--name", "bad name"), 2, "BAD_NAME"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_option_that_can_not_be_is_refused_before_spark_starts(cli, words, code, said) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = cli("engine", "run", "m.yaml", *(port if word == "TAKEN" else word for word in words), code=code)
    assert said in refused.err


@pytest.mark.parametrize("option", ["--http", "--metrics-port"])
def test_nobody_else_can_have_a_port_while_spark_starts(cli, monkeypatch, option) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def start(_engine: object) -> None:
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port)).close()
        raise SparkUnavailable(reason="enough was seen")

    monkeypatch.setattr("lockstep.engine.runtime.engine.Engine.start", start)
    assert "enough was seen" in cli("engine", "run", "m.yaml", option, str(port), code=6).err


def options(**given: object) -> argparse.Namespace:
    empty = {"http": 0, "http_host": "127.0.0.1", "token_file": None, "files": None, "persist_to": None}
    return argparse.Namespace(**{**empty, **given})


def test_clients_name_files_below_the_state_folder_unless_another_is_said(tmp_path) -> None:
    with prepared_rest(options(), tmp_path / "state") as rest:
        assert (rest.root, rest.persist_root) == (tmp_path / "state", tmp_path / "state")
        assert rest.change_token is not None
    (tmp_path / "models").mkdir()
    with prepared_rest(options(files=tmp_path / "models", persist_to=tmp_path / "p"), tmp_path / "state") as rest:
        assert (rest.root, rest.persist_root) == (tmp_path / "models", tmp_path / "p")
    with prepared_rest(options(http=None), tmp_path) as rest:
        assert rest is None


def test_the_state_folder_is_its_owners_alone(tmp_path) -> None:
    before = os.umask(0o022)
    try:
        EngineFolder.open(tmp_path / "a" / "state", ThreadRuntime()).close()
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "state").stat().st_mode & 0o777 == 0o700
