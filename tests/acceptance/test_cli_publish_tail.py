"""lockstep stream publish and tail, as a user runs them."""

from __future__ import annotations

import signal
import subprocess

import pytest
from cli_command import PROGRAM, TIMEOUT_S, InProcess, read_line

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def lockstep(tmp_path):
    command = InProcess(tmp_path)
    yield command
    command.close()


def test_values_are_published_and_their_offsets_printed(lockstep) -> None:
    sent = lockstep("stream", "publish", "orders", "first", "second", "--key", "k", "-H", "a=1", "-H", "b=x=y")
    assert sent.lines == ["0", "1"]
    assert sent.err == "Created stream orders on lmdb:.lockstep.\n"
    assert lockstep("stream", "publish", "orders", "third", "--json").object == {
        "stream": "orders", "shard": None, "offset": 2,
    }  # fmt: skip
    assert lockstep("stream", "publish", "orders", "fourth", "--quiet").out == ""
    shown = lockstep("stream", "tail", "orders", "--exit", "--json").objects
    assert [item["value"] for item in shown] == ["first", "second", "third", "fourth"]
    assert set(shown[0]) == {"stream", "shard", "offset", "key", "value", "headers", "created", "appended"}
    assert shown[0]["key"] == "k"
    assert shown[0]["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "x=y"}]
    assert shown[2]["key"] is None


def test_lines_of_stdin_and_of_a_file_are_records(lockstep) -> None:
    assert lockstep("stream", "publish", "orders", given="one\n\nthree").lines == ["0", "1", "2"]
    (lockstep.folder / "lines").write_bytes(b"a:1\nb:2:3\n")
    lockstep("stream", "publish", "orders", "--file", "lines", "--key-separator", ":")
    lockstep("stream", "publish", "orders", "--file", "-", "--null", given=b"x\ny\0\xff\0")
    printed = lockstep("stream", "tail", "orders", "--exit", "--format", r"%o|%k|%x\n").lines
    assert printed == ["0||6f6e65", "1||", "2||7468726565", "3|a|31", "4|b|323a33", "5||780a79", "6||ff"]


def test_what_tail_prints_as_json_can_be_published_again(lockstep) -> None:
    lockstep("stream", "publish", "orders", "--null", "--key", "k", "-H", "h=é", given=b"caf\xc3\xa9\0\xff\x00")
    first = lockstep("stream", "tail", "orders", "--exit", "--json")
    lockstep("stream", "publish", "again", "--json-lines", given=first.raw)
    second = lockstep("stream", "tail", "again", "--exit", "--json")
    for one, other in zip(first.objects, second.objects, strict=True):
        assert {**one, "stream": "again", "appended": other["appended"]} == other


def test_a_template_makes_load_at_a_rate(lockstep) -> None:
    lockstep("stream", "publish", "orders", "order {n}", "--count", "5", "--rate", "1000")
    assert lockstep("stream", "tail", "orders", "--exit", "-n", "2").lines == ["order 4", "order 5"]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (("bad name", "v"), ""),
        (("orders", "v", "--file", "x"), ""),
        (("orders", "--count", "3"), ""),
        (("orders", "a", "b", "--count", "3"), ""),
        (("orders", "v", "--key", "a", "--key-separator", ":"), ""),
        (("orders", "v", "--key-separator", ""), ""),
        (("orders", "k:v", "nokey", "--key-separator", ":"), ""),
        (("orders", '{"value": "v"}', "{", "--json-lines"), ""),
        (("orders", "--file", "mixed", "--json-lines"), ""),
    ],
)
def test_bad_records_are_refused_before_anything_is_written(lockstep, arguments, given) -> None:
    (lockstep.folder / "mixed").write_text('{"value": "fine"}\nnonsense\n')
    lockstep("stream", "publish", *arguments, given=given, code=2)
    assert not (lockstep.folder / ".lockstep").exists()


def test_a_record_above_the_limit_keeps_all_out(lockstep) -> None:
    lockstep("stream", "create", "orders", "--max-record-bytes", "5")
    assert "RECORD_TOO_LARGE" in lockstep("stream", "publish", "orders", "short", "too long", code=2).err
    assert lockstep("stream", "ls", "--json").object["records"] == 0


def test_a_bad_line_of_stdin_is_named_and_what_was_before_it_stays(lockstep) -> None:
    sent = lockstep("stream", "publish", "orders", "--json-lines", given='{"value": "fine"}\n{"val": 1}\n', code=2)
    assert "Line 2 is not a record: it has 'val'" in sent.err
    assert sent.lines == ["0"]


def test_a_missing_stream_is_not_made_if_that_is_not_wanted(lockstep) -> None:
    assert "STORE_NOT_FOUND" in lockstep("stream", "publish", "orders", "v", "--no-create", code=3).err
    lockstep("stream", "create", "orders")
    assert "Did you mean 'orders'?" in lockstep("stream", "publish", "ordres", "v", "--no-create", code=3).err


def test_tail_begins_where_it_is_told_to(lockstep) -> None:
    lockstep("stream", "publish", "orders", "{n}", "--count", "30", "--quiet")
    numbers = [str(n) for n in range(1, 31)]

    def tail(*arguments: str) -> list[str]:
        return lockstep("stream", "tail", "orders", "--exit", *arguments).lines

    assert tail() == numbers[-10:]
    assert tail("-n", "3") == numbers[-3:]
    assert tail("-n", "0") == []
    assert tail("-n", "100") == numbers
    assert tail("-o", "28") == numbers[28:]
    assert tail("-o", "30") == []
    assert tail("--from-start", "--max", "2") == numbers[:2]
    assert tail("--since", "1h") == numbers
    assert tail("--since", "2099-01-01") == []
    assert tail("--from-start", "--until", "1h") == []
    assert "the readable ones are 0 to 29" in lockstep("stream", "tail", "orders", "-o", "31", code=2).err


def test_tail_ends_at_a_time_of_a_record(lockstep) -> None:
    lockstep("stream", "publish", "orders", "early")
    lockstep("stream", "publish", "orders", "late")
    late = lockstep("stream", "tail", "orders", "--exit", "-n", "1", "--json").object["appended"]
    assert lockstep("stream", "tail", "orders", "--until", late).lines == ["early"]
    assert lockstep("stream", "tail", "orders", "--since", late, "--exit").lines == ["late"]


def test_tail_from_a_trimmed_offset_says_so(lockstep) -> None:
    lockstep("stream", "publish", "orders", "{n}", "--count", "5", "--quiet")
    lockstep("stream", "trim", "orders", "--keep", "1", "--yes")
    shown = lockstep("stream", "tail", "orders", "-o", "1", "--exit")
    assert shown.lines == ["5"]
    assert "orders begins at offset 4" in shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "%q"),
        ("--format", "%v", "--json"),
        ("--exit", "-f"),
        ("--group", "g", "-n", "5"),
        ("--group", "a b"),
    ],
)
def test_tail_refuses_what_makes_no_sense(lockstep, arguments) -> None:
    lockstep("stream", "create", "orders")
    assert lockstep("stream", "tail", "orders", *arguments, code=2).lines == []
    assert lockstep("group", "ls").lines == []  # and no group was begun


def test_tail_in_a_group_confirms_what_it_printed(lockstep) -> None:
    lockstep("stream", "publish", "orders", "{n}", "--count", "5", "--quiet")
    assert lockstep("stream", "tail", "orders", "--group", "g", "--max", "2").lines == ["1", "2"]
    assert lockstep("stream", "tail", "orders", "--group", "g", "--exit").lines == ["3", "4", "5"]
    assert lockstep("stream", "tail", "orders", "--group", "g", "--exit").lines == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_tail_follows_what_another_process_publishes_until_it_is_interrupted(lockstep, number, code) -> None:
    # Given a tail that has printed what is there
    lockstep("stream", "publish", "orders", "first")
    tail = lockstep.start("stream", "tail", "orders", "-f")
    assert read_line(tail) == b"first\n"
    # When another process publishes
    lockstep("stream", "publish", "orders", "second")
    # Then it is printed without being asked for, and an interrupt ends it quietly
    assert read_line(tail) == b"second\n"
    tail.send_signal(number)
    assert tail.communicate(timeout=TIMEOUT_S) == (b"", b"")
    assert tail.returncode == code


def test_publish_prints_offsets_while_stdin_is_still_open(lockstep) -> None:
    publish = lockstep.start("stream", "publish", "orders")
    publish.stdin.write(b"first\n")
    assert read_line(publish) == b"0\n"
    publish.stdin.write(b"second")
    out, _ = publish.communicate(timeout=TIMEOUT_S)
    assert (out, publish.returncode) == (b"1\n", 0)


def test_a_reader_that_goes_away_ends_tail_quietly(lockstep) -> None:
    lockstep("stream", "publish", "orders", "{n} " + "x" * 1000, "--count", "5000", "--quiet")
    line = f"{PROGRAM} stream tail orders --from-start | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=lockstep.folder,
        env=lockstep.environ,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stdout.splitlines()[0].startswith(b"1 x")
    assert done.stdout.splitlines()[1] == b"0"
    assert done.stderr == b""


def test_a_reader_of_offsets_that_goes_away_keeps_nothing_from_being_published(lockstep) -> None:
    line = f"{PROGRAM} stream publish orders 'order {{n}}' --count 50000 | head -n 1"
    lockstep("stream", "create", "orders")
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=lockstep.folder,
        env=lockstep.environ,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"0\n", b"")
    assert lockstep("stream", "ls", "--json").object["next"] == 50_000


def test_a_full_stream_takes_no_more_and_says_so(lockstep) -> None:
    # Given a protected stream whose group is behind
    (lockstep.folder / "small.json").write_text('{"capacity": 2, "protect": true, "protect_bytes": 4000}')
    lockstep("stream", "create", "orders", "--config", "small.json")
    lockstep("stream", "publish", "orders", "first", "second")
    lockstep("stream", "tail", "orders", "--group", "billing", "--max", "1")
    # When more is published than it may hold
    failed = lockstep("stream", "publish", "orders", "x" * 3000, "y" * 3000, "--json", code=6)
    # Then the command fails as unavailable
    assert failed.error["code"] == "STORE_FULL"
    assert lockstep("stream", "tail", "orders", "--group", "billing", "--max", "1").lines == ["second"]
