"""What the operating system refuses is told as a mistake of its own kind, never as a defect."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import connect
from lockstep.cli.stream_copy import check_other
from lockstep.errors import UsageError, from_os_error
from lockstep.esp.command import run_command

MODEL = """
name: small
queries: [{name: q, windows: [{kind: source, name: S, schema: "id*:int32"}]}]
"""


@pytest.mark.parametrize(
    ("number", "code", "exit_code"),
    [
        (errno.ENOENT, "PATH_MISSING", 3),
        (errno.ENOTDIR, "PATH_MISSING", 3),
        (errno.EACCES, "FORBIDDEN", 5),
        (errno.EROFS, "FORBIDDEN", 5),
        (errno.ENOSPC, "SYSTEM_FAILED", 6),
        (errno.EMFILE, "SYSTEM_FAILED", 6),
    ],
)
def test_every_error_of_the_system_has_a_code_of_its_own(cli, monkeypatch, number, code, exit_code) -> None:
    error = OSError(number, os.strerror(number), "/some/where")
    found = from_os_error(error)
    assert (found.code, found.exit_code) == (code, exit_code)
    assert "/some/where" in str(found)

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("lockstep.cli.stream_admin.ls", fails)
    assert f"[{code}]" in cli("stream", "ls", code=exit_code).err
    assert run_command("dfesp_xml_client", fails, []) == exit_code


@pytest.mark.parametrize(
    "words",
    [
        ("model", "graph", "m.yaml", "-o", "no/x.svg"),
        ("model", "check", "no/m.yaml"),
        ("data", "trades", "--events", "1", "-o", "no/x.csv"),
        ("stream", "create", "s", "--config", "no/s.yaml"),
        ("engine", "publish", "m.yaml", "no/x.csv"),
    ],
    ids=" ".join,
)
def test_a_path_that_is_not_there_is_not_found(cli, words) -> None:
    Path("m.yaml").write_text(MODEL)
    failed = cli(*words, code=3)
    assert "disk space" not in failed.err
    path = next(word for word in words if word.startswith("no/"))
    assert f"'{path}' can't be" in failed.err


@pytest.mark.parametrize("command", ["lockstep.cli.main", "lockstep.esp.xml_client"])
def test_a_closed_standard_output_is_said_in_words(tmp_path, command) -> None:
    words = "stream ls" if command == "lockstep.cli.main" else "-url http://127.0.0.1:1/"
    shell = f"exec '{sys.executable}' -m {command} {words} >&-"
    failed = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=60)
    assert (failed.returncode, "[USAGE] Standard output is closed" in failed.stderr) == (2, True)


def test_a_closed_standard_error_is_no_failure(tmp_path) -> None:
    shell = f"exec '{sys.executable}' -m lockstep.cli.main explain USAGE 2>&-"
    done = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, "exit code" in done.stdout) == (0, True)


def test_a_stream_is_not_copied_to_itself_by_another_name_of_its_bus() -> None:
    with connect("memory:copied") as source, connect("memory:copied") as target:
        source.create("orders")
        with pytest.raises(UsageError, match="same stream"):
            check_other(source.logs("orders"), target, "orders")
        check_other(source.logs("orders"), target, "new")
        with connect("memory:") as elsewhere:
            elsewhere.create("orders")
            check_other(source.logs("orders"), elsewhere, "orders")
