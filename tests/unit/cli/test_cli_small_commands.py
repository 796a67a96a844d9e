"""Commands that explain, complete, list and stop; and one grammar for times, windows and the bus."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lockstep import StreamConfig, connect
from lockstep.cli.commands import NOUNS
from lockstep.cli.help_commands import completions, error_codes
from lockstep.cli.parser import build, parse
from lockstep.console.bundle import environment
from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model import xml_elements
from lockstep.errors import UsageError
from lockstep.log.network.driver import Finding
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.shards import shard_of

FAULTY = """
name: faulty
queries:
  - name: q
    windows:
      - {kind: source, name: S, schema: "id*:int32, g:int32, x:double"}
      - {kind: aggregate, name: A, schema: "g*:int32, s:double", fields: {s: SUM(x)}}
    edges: [S -> A]
"""


def parsed(line: str):
    return parse(build(NOUNS, "1"), shlex.split(line))


@pytest.mark.parametrize(
    ("line", "name", "seconds"),
    [
        ("engine run m.yaml --lease 500ms", "lease", 0.5),
        ("engine run m.yaml --lease 2", "lease", 2.0),
        ("engine run m.yaml --persist-every 5m", "persist_every", 300.0),
        ("engine quiesce --timeout 1h30m", "timeout", 5400.0),
        ("status --every 2s", "every", 2.0),
        ("group mirror g --every 10s", "every", 10.0),
        ("adapter publish f --model m --lease 0.5", "lease", 0.5),
        ("drill --lease 750ms", "lease", 0.75),
        ("bench streams --seconds 2s", "seconds", 2.0),
        ("stream create s --retain-age 7d", "retain_age", 604_800.0),
    ],
)
def test_times_are_written_the_same_way_everywhere(line, name, seconds) -> None:
    assert getattr(parsed(line), name) == seconds


@pytest.mark.parametrize("text", ["0", "0s", "-1", "soon", "nan", "inf"])
def test_what_is_no_time_is_refused(text) -> None:
    with pytest.raises(UsageError):
        parsed(f"engine run m.yaml --lease={text}")


def test_publish_takes_windows_and_leaves_the_model() -> None:
    found = parsed("engine run --publish A,B --publish C m.yaml")
    assert (found.model, found.publish) == ("m.yaml", ["A", "B", "C"])


def test_the_bus_may_stand_between_noun_and_verb() -> None:
    assert parsed("stream --bus memory:a ls").bus == "memory:a"


def test_streams_are_listed_without_reading_the_logs_of_groups(cli, monkeypatch) -> None:
    # Given a stream that a group reads
    cli("stream", "publish", "orders", "a")
    cli("stream", "tail", "orders", "--group", "billing", "--max", "1")
    loaded, load = [], GroupLog.load
    monkeypatch.setattr(GroupLog, "load", lambda log: loaded.append(log.group) or load(log))
    # Then its log is read only if groups are asked for
    assert cli("stream", "ls", "--json").object["groups"] is None
    assert loaded == []
    assert cli("stream", "ls", "--groups", "--json").object["groups"] == ["billing"]
    assert loaded == ["billing"]


@pytest.mark.parametrize("arguments", ["create orders", "publish orders a", "copy orders other --to-bus memory:here"])
def test_what_would_be_gone_when_the_command_ends_is_refused(cli, arguments) -> None:
    if "copy" in arguments:
        cli("stream", "publish", "orders", "a")
    bus = () if "copy" in arguments else ("--bus", "memory:here")
    done = cli("stream", *arguments.split(), *bus, code=2)
    assert done.out == ""
    assert "The bus memory:here is in the memory of this command, and would be gone when it ends." in done.err
    assert "Use lmdb:FOLDER or the URL of a server." in done.err


def test_a_code_is_explained_and_a_wrong_one_answered_with_the_right_one(cli) -> None:
    shown = cli("explain", "stream_not_found").out
    assert "No stream of that name on this bus." in shown
    assert cli("explain", "[PORT_UNUSABLE]", "--json").object["exit_code"] == 6
    assert "Did you mean 'STREAM_NOT_FOUND'?" in cli("explain", "STREAM_NOT_FOUNT", code=3).err
    assert {"INTERNAL", "NO_LINE_TAKEN", "ENGINE_ENDED", "TOKEN_WRONG"} <= set(error_codes())


def test_completion_knows_nouns_verbs_and_options() -> None:
    words = completions(NOUNS)
    assert "stream" in words[""]
    assert "publish" in words["stream"]
    assert {"--retain-age", "--json", "--bus"} <= set(words["stream create"])
    assert {"bash", "zsh", "fish"} <= set(words["completion"])


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("lockstep str", "stream"),
        ("lockstep stream cr", "create"),
        ("lockstep dlq drop --al", "--all"),
        ("lockstep --bus lmdb : x str", "stream"),  # as bash splits --bus lmdb:x
        ("lockstep --json --bus = redis : //h : 1 stream cr", "create"),
        ("lockstep stream --bus memory cr", "create"),
    ],
)
def test_bash_completes(cli, line, wanted) -> None:
    assert wanted in completed(cli, line)


def completed(cli, line: str) -> list[str]:
    script = cli("completion", "bash").out
    words = line.split()
    ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _lockstep; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("line", ["lockstep --bus s", "lockstep --bus lmdb : s"])
def test_the_value_of_an_option_is_no_command(cli, line) -> None:
    assert completed(cli, line) == []


def test_zsh_and_fish_have_scripts(cli) -> None:
    assert "bashcompinit" in cli("completion", "zsh").out
    assert "complete -c lockstep -l bus -r" in cli("completion", "fish").out
    assert "-n '__fish_seen_subcommand_from stream' -a 'create" in cli("completion", "fish").out


@pytest.fixture
def letters(cli) -> None:
    with connect("lmdb:.lockstep") as client, client.publisher("orders.dlq") as publisher:
        client.create("orders")
        for number in range(3):
            headers = [("dlq-stream", b"orders"), ("dlq-offset", b"%d" % number), ("dlq-reason", b"no stock")]
            publisher.publish(b"order %d" % number, headers=headers)


@pytest.fixture
def sharded_letters(cli) -> None:
    """Two letters in shard 0 of orders.dlq and three in shard 1, which has the only one with offset 2."""
    keys = {shard_of(key, 2): key for key in (b"a", b"b", b"c", b"d")}
    with connect("lmdb:.lockstep") as client:
        client.create("orders")
        client.create("orders.dlq", StreamConfig(shards=2))
        with client.publisher("orders.dlq") as publisher:
            for shard, number in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2)):
                headers = [("dlq-stream", b"orders"), ("dlq-offset", b"%d" % number), ("dlq-reason", b"no stock")]
                publisher.publish(b"%d of %d" % (number, shard), headers=headers, key=keys[shard])


@pytest.mark.usefixtures("sharded_letters")
def test_of_a_sharded_stream_each_letter_is_named_by_its_shard(cli) -> None:
    listed = cli("dlq", "ls", "orders").out.splitlines()
    assert listed[0].split()[:2] == ["SHARD", "OFFSET"]
    assert sorted(tuple(line.split()[:2]) for line in listed[1:]) == [
        ("0", "0"), ("0", "1"), ("1", "0"), ("1", "1"), ("1", "2"),
    ]  # fmt: skip
    only = [json.loads(line) for line in cli("dlq", "ls", "orders", "--shard", "0", "--json").out.splitlines()]
    assert [(row["shard"], row["offset"]) for row in only] == [(0, 0), (0, 1)]
    assert "is in the shards 0, 1: add --shard N" in cli("dlq", "show", "orders", "1", code=2).err
    for shard in ("0", "1"):
        assert cli("dlq", "show", "orders", "1", "--shard", shard, "--json").object["value"] == f"1 of {shard}"
    assert cli("dlq", "show", "orders", "2", "--json").object["shard"] == 1
    assert "There are 2, from 0 on." in cli("dlq", "show", "orders", "1", "--shard", "2", code=3).err


@pytest.mark.usefixtures("sharded_letters")
def test_of_a_sharded_stream_letters_are_dropped_by_shard(cli) -> None:
    assert "add --shard N to --before" in cli("dlq", "drop", "orders", "--before", "2", "--yes", code=2).err
    assert cli("dlq", "drop", "orders", "--before", "2", "--shard", "1", "--yes", "--json").object["dropped"] == 2
    assert cli("dlq", "drop", "orders", "--all", "--shard", "1", "--yes", "--json").object["dropped"] == 1
    assert cli("dlq", "drop", "orders", "--all", "--yes", "--json").object["dropped"] == 2


@pytest.mark.usefixtures("letters")
def test_a_dead_letter_is_shown_whole_and_dropped(cli) -> None:
    shown = cli("dlq", "show", "orders", "1", "--json").object
    assert (shown["value"], shown["headers"]["dlq-reason"]) == ("order 1", "no stock")
    assert "order 1" in cli("dlq", "show", "orders", "1").out
    cli("dlq", "show", "orders", "9", code=3)
    assert "add --yes" in cli("dlq", "drop", "orders", "--all", code=2).err
    assert "Would remove 2 dead letters" in cli("dlq", "drop", "orders", "--before", "2", "--dry-run").out
    assert cli("dlq", "drop", "orders", "--before", "2", "--yes", "--json").object["dropped"] == 2
    assert cli("dlq", "drop", "orders", "--all", "--yes", "--json").object["dropped"] == 1


def test_engines_of_this_machine_are_listed_and_stopped(cli) -> None:
    folder = Path(".lockstep-engine") / "local.trades"
    folder.mkdir(parents=True)
    (folder / "lock").write_text("")
    assert cli("engine", "ls", "--json").object["running"] is False
    assert "No engine runs in" in cli("engine", "stop", "trades", code=4).err
    assert "There are: local.trades" in cli("engine", "stop", "other", code=3).err
    program = (
        "import fcntl, os, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
        "file.write(str(os.getpid())); file.flush(); print('ready', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", program, str(folder / "lock"), "lockstep engine run"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert cli("engine", "ls", "--json").object["pid"] == process.pid
        assert f"Stopped local.trades (pid {process.pid})." in cli("engine", "stop", "trades").out
        assert process.wait(20) == -15


@pytest.mark.parametrize(
    "held", [b"\xff\xfe", "\u00b2".encode(), b"9" * 5000, b""], ids=["bytes", "power", "long", "empty"]
)
def test_a_damaged_lock_is_listed_without_a_process(cli, held) -> None:
    folder = Path(".lockstep-engine/local.trades")
    folder.mkdir(parents=True)
    (folder / "lock").write_bytes(held)
    with (folder / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        row = cli("engine", "ls", "--json").object
        assert (row["running"], row["pid"]) == (True, None)
        assert "is not a process" in cli("engine", "stop", "trades", code=4).err


def test_a_lock_that_is_no_file_is_no_engine(cli) -> None:
    for name in ("pipe", "folder"):
        Path(".lockstep-engine", name).mkdir(parents=True)
    os.mkfifo(".lockstep-engine/pipe/lock")
    Path(".lockstep-engine/folder/lock").mkdir()
    assert "There is no engine" in cli("engine", "ls").err


def test_a_lock_of_another_program_is_not_told_to_end(cli) -> None:
    folder = Path("state")
    folder.mkdir()
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("1")
        file.flush()
        assert "is not a process" in cli("engine", "stop", "state", code=4).err


def test_a_bundle_holds_facts_and_neither_records_nor_secrets(cli, monkeypatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RABBITMQ_PASSWORD", "hush")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dx.pass=hush -Dcode=hush")
    Path("b.tar.gz").touch(mode=0o644)
    cli("stream", "create", "orders")
    cli("stream", "publish", "orders", "a private record")
    cli("debug", "bundle", "-o", "b.tar.gz")
    assert Path("b.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open("b.tar.gz") as archive:
        found = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}
    text = "".join(found.values())
    assert "hush" not in text
    assert "private record" not in text
    assert json.loads(found["lockstep-debug/streams.json"])[0]["name"] == "orders"
    assert set(found) == {f"lockstep-debug/{name}.json"
                          for name in ("versions", "environment", "bus", "streams", "groups", "models")}  # fmt: skip


def test_urls_in_the_environment_lose_their_passwords() -> None:
    found = environment({"LOCKSTEP_BUS": "rabbitmq://me:hush@host:5552", "OTHER": "x"})
    assert found == {"LOCKSTEP_BUS": "rabbitmq://me@host:5552"}


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS", "LOCKSTEP_SMTP_PASS", "LOCKSTEP_WHATEVER"])
def test_values_of_the_environment_are_shown_of_known_variables_only(name) -> None:
    assert environment({name: "hush", "JAVA_HOME": "/usr/lib/jvm"}) == {"JAVA_HOME": "/usr/lib/jvm", name: "********"}


def test_a_history_that_can_not_be_is_refused_without_its_password(cli) -> None:
    refused = cli("stream", "create", "orders", "--history", "redis://me:hush@host/0", code=2).err
    assert "redis://me@host/0" in refused
    assert "hush" not in refused


def test_findings_are_exit_code_one_and_sql_is_answered_with_the_name_here(cli) -> None:
    Path("m.yaml").write_text(FAULTY)
    shown = cli("model", "check", "m.yaml", code=1).out
    assert "Did you mean ESP_aSum?" in shown


@pytest.mark.parametrize(("fatal", "code", "kind"), [(False, 0, "warning"), (True, 1, "error")])
def test_a_warning_of_bus_check_is_no_failure(cli, monkeypatch, fatal, code, kind) -> None:
    with connect("lmdb:.lockstep"):
        pass
    finding = Finding("h:9092", "one broker may fail", "replication", fatal)
    monkeypatch.setattr("lockstep.cli.bus.findings", lambda _bus: [finding])
    assert kind in cli("bus", "check", code=code).out
    assert cli("bus", "check", "--json", code=code).object["fit"] is False


def test_a_group_is_mirrored_on_kafka_alone(cli) -> None:
    with connect("lmdb:.lockstep"):
        pass
    refused = cli("group", "mirror", "g", code=2)
    assert "bus.promises" not in refused.err


def test_the_elements_of_an_xml_model_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(xml_elements, "ELEMENTS_MAX", 3)
    with pytest.raises(ModelUnreadable, match="more than 3 elements"):
        xml_elements.parse_element(f"<a>{'<b/>' * 3}</a>", "m.xml")
