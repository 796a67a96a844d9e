"""What every command has in common: errors, exit codes, help, questions at a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from cli_command import PROGRAM, TIMEOUT_S, InProcess

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def lockstep(tmp_path):
    command = InProcess(tmp_path)
    yield command
    command.close()


READING = [
    ("stream", "ls"),
    ("stream", "show", "orders"),
    ("stream", "tail", "orders"),
    ("stream", "copy", "orders", "copied"),
    ("stream", "trim", "orders", "--keep", "1", "--yes"),
    ("stream", "delete", "orders", "--yes"),
    ("stream", "verify"),
    ("group", "ls"),
    ("group", "show", "g"),
    ("group", "reset", "g", "orders", "--to", "latest", "--yes"),
    ("group", "delete", "g", "--yes"),
    ("dlq", "ls"),
    ("dlq", "redrive", "orders", "--yes"),
]


@pytest.mark.parametrize("arguments", READING, ids="-".join)
def test_reading_commands_make_no_store(lockstep, arguments) -> None:
    failed = lockstep(*arguments, "--json", code=3)
    assert failed.raw == b""
    assert failed.error["code"] == "STORE_NOT_FOUND"
    assert list(lockstep.folder.iterdir()) == []


def test_version_and_help(lockstep) -> None:
    assert lockstep("--version").out.startswith("lockstep 0.")
    shown = lockstep("--help")
    assert shown.err == ""
    for text in ("stream create", "group ls", "dlq ls", "bench streams", "exit codes:", "LOCKSTEP_BUS"):
        assert text in shown.out


def test_no_command_is_answered_with_help_on_stderr(lockstep) -> None:
    failed = lockstep(code=2)
    assert failed.out == ""
    assert "all commands:" in failed.err
    assert failed.err.endswith("[USAGE] A command is missing. See 'lockstep --help'.\n")


def test_a_wrong_url_is_wrong_usage(lockstep) -> None:
    assert lockstep("stream", "ls", "--bus", "nowhere", "--json", code=2).error["code"] == "BAD_URL"
    assert lockstep("stream", "ls", "--bus", "kafak:x", "--json", code=2).error["code"] == "BACKEND_UNKNOWN"
    assert lockstep("stream", "ls", "--jsno", code=2).err.startswith("lockstep: [USAGE] Unknown argument '--jsno'.")


def test_a_folder_that_is_no_store_is_left_alone(lockstep) -> None:
    (lockstep.folder / "photos").mkdir()
    (lockstep.folder / "photos" / "cat.png").write_bytes(b"meow")
    assert "[NOT_A_STORE]" in lockstep("stream", "create", "orders", "--bus", "lmdb:photos", code=1).err
    assert [item.name for item in (lockstep.folder / "photos").iterdir()] == ["cat.png"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_a_folder_of_somebody_else_is_forbidden(lockstep) -> None:
    (lockstep.folder / "locked").mkdir(mode=0o000)
    assert "[FORBIDDEN]" in lockstep("stream", "ls", "--bus", "lmdb:locked", code=5).err


def test_verbose_shows_where_an_error_came_from(lockstep) -> None:
    done = subprocess.run(
        [PROGRAM, "stream", "ls", "--verbose"], cwd=lockstep.folder, env=lockstep.environ, capture_output=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert b"Traceback" in done.stderr
    assert b"lockstep: [STORE_NOT_FOUND]" in done.stderr


def at_a_terminal(lockstep, typed: bytes, *arguments: str) -> tuple[int, str]:
    """Run with a terminal for stdin and stderr; returns the code and what the terminal showed."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *arguments], cwd=lockstep.folder, env=lockstep.environ, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    shown = b""
    os.write(master, typed)
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # how a terminal says that nobody is left at its other side
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    return process.wait(TIMEOUT_S), shown.decode()


def test_a_terminal_is_asked_for_the_name(lockstep) -> None:
    lockstep("stream", "publish", "orders", "first")
    code, shown = at_a_terminal(lockstep, b"yes\n", "stream", "delete", "orders")
    assert code == 2
    assert "This will delete stream orders with 1 record, for good. Type the name orders to go on:" in shown
    assert "Nothing was changed" in shown
    assert lockstep("stream", "ls", "--json").object["records"] == 1
    code, shown = at_a_terminal(lockstep, b"orders\n", "stream", "delete", "orders")
    assert code == 0
    assert lockstep("stream", "ls", "--json").raw == b""


def test_colour_is_for_terminals_without_no_color(lockstep) -> None:
    lockstep("stream", "create", "orders")
    lockstep.environ.update(TERM="xterm")
    assert "\x1b[1mNAME" in at_a_terminal(lockstep, b"", "stream", "ls")[1]
    lockstep.environ["NO_COLOR"] = "1"
    assert "\x1b" not in at_a_terminal(lockstep, b"", "stream", "ls")[1]
    assert b"\x1b" not in lockstep("stream", "ls").raw


def test_bench_measures_and_prints_json(lockstep) -> None:
    small = ("--publishers", "1", "--subscribers", "1", "--seconds", "0.2", "--durability", "relaxed")
    figures = lockstep("bench", "streams", *small, "--json").object
    assert figures["delivered"] > 0
    assert figures["lost"] == 0
    assert "[BAD_CONFIG]" in lockstep("bench", "streams", "--codec", "rar", code=2).err
    assert "[USAGE]" in lockstep("bench", "streams", "--size", "1", code=2).err


def test_starting_does_not_wait_for_what_it_does_not_need() -> None:
    unneeded = {"lmdb", "yaml", "prometheus_client", "pyspark"}
    code = f"import sys, lockstep.cli.main; print(sorted({unneeded} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout == b"[]\n"
