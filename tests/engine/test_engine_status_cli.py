"""`lockstep status`: what it prints, and its exit code."""

from __future__ import annotations

import argparse
import json
import re

import pytest
from cluster_worlds import NOW, SECOND, World

from lockstep.cli import output as cli_output
from lockstep.cli import status as cli_status
from lockstep.cli.main import main
from lockstep.cli.output import Output
from lockstep.cli.status import headline, watch
from lockstep.engine.runtime.control.status import project_status
from lockstep.runtime import ThreadRuntime
from lockstep.testing import VirtualRuntime


class Clock(ThreadRuntime):
    """A machine where it is always the same time."""

    wall_ns = staticmethod(lambda: NOW)


@pytest.fixture
def world(monkeypatch) -> World:
    monkeypatch.setattr(ThreadRuntime, "wall_ns", staticmethod(lambda: NOW))
    monkeypatch.setattr(cli_status, "LISTEN_S", 0.0)
    return World()


def printed(capsys, world, *arguments: str) -> tuple[int, str]:
    code = main(["status", "--bus", world.bus.url, *arguments])
    return code, capsys.readouterr().out


def test_a_table_of_engines(world, capsys):
    world.report(
        "a", role="active", takeovers=1, http="http://127.0.0.1:8181", snapshot_block=5, snapshot_ns=NOW - SECOND
    )
    world.report("b", buffer_blocks=10, buffer_bytes=300)
    world.beat(7)
    code, text = printed(capsys, world)
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == (
        "local.p: a is active in epoch 1; block 7 of 7 is published, 7 events, snapshot 1.0 s ago at block 5, "
        "1 takeover, counts equal"
    )
    assert lines[1].split() == [
        "ENGINE", "ROLE", "EPOCH", "BLOCK", "BEHIND", "LAG", "BUFFER", "SNAPSHOT", "HEARD", "TAKEOVERS", "REST",
    ]  # fmt: skip
    assert re.split(r"  +", lines[3]) == [
        "b", "standby", "1", "7", "0", "0.0 s", "10 / 300 B (30 %)", "-", "0.5 s ago", "0", "-",
    ]  # fmt: skip
    assert lines[4].startswith("  occupied: bus ")
    assert len(lines) == 5


def test_engine_status_prints_the_same_and_ends_with_the_same_code(world, capsys):
    world.report("a", role="active")
    world.report("b", ago_s=60)
    world.beat(7)
    found = [main([*command, "--bus", world.bus.url]) for command in (["status"], ["engine", "status"])]
    assert found == [1, 1]
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]


def test_one_project_with_its_windows(world, capsys):
    world.report("a", role="active")
    world.beat(7)
    code, text = printed(capsys, world, "--project", "p")
    assert code == 0
    assert re.search(r"^q/sums +2 +7 +12 +0$", text, re.MULTILINE)


def test_what_a_project_occupies_and_what_trims_it(world, capsys):
    world.report("a", role="active", trims=1, state_files=630, state_bytes=3 << 20, snapshots_bytes=2048)
    world.beat(7)
    code, text = printed(capsys, world)
    assert code == 0
    assert re.search(r"^  occupied: bus [\d.]+ (B|KiB) in 8 streams, a 3.0 MiB in 630 files, snapshots 2.0 KiB\. "
                     r"1 stream not trimmed: --project p shows which$", text, re.MULTILINE)  # fmt: skip
    table = printed(capsys, world, "--project", "p")[1]
    rows = {cells[0]: cells[1:] for line in table.splitlines() if len(cells := re.split(r"  +", line)) == 4}
    assert rows["OCCUPIED BY"] == ["HOLDS", "SIZE", "TRIMMED BY"]
    assert rows["local.p.C"][0] == "1 record"
    assert rows["local.p.C"][2] == "engines"
    assert rows["local.p.T"][2] == "retention: 2,000 records"
    assert rows["local.p.q.in.I"][2] == rows["local.p.S"][2] == "engines, after each snapshot (--trim)"
    assert rows["local.p.q.sums.O"][2] == "nobody: use 'stream alter --retain-age', or 'stream trim'"
    assert rows["state folder of a"][:2] == ["630 files", "3.0 MiB"]
    assert rows["snapshots"][1] == "2.0 KiB"


def test_what_nobody_trims_says_how_to(world, capsys):
    world.report("a", role="active")
    world.beat(7)
    tree = json.loads(printed(capsys, world, "--json")[1])
    streams = {row["stream"]: row for row in tree["streams"]}
    assert not streams["local.p.S"]["is_trimmed"]
    assert "engine run --trim" in streams["local.p.q.in.I"]["trimmed_by"]
    stored = world.bus.open("local.p.C").read(0)
    assert streams["local.p.C"]["bytes"] == sum(len(entry.data) for entry in stored)
    assert (tree["engines"][0]["state_bytes"], tree["engines"][0]["trims"]) == (0, False)


def test_what_is_off_is_said_and_the_exit_code_is_1(world, capsys):
    world.report("a", role="active", ago_s=200)
    world.report("b", state="draining")
    code, text = printed(capsys, world)
    assert code == 1
    assert "! No engine is active.\n! Engine a was last heard of 200 s ago.\n" in text
    assert "standby (draining)" in text
    assert "3 min ago" in text
    assert "no engine is active in epoch 1" in text


def test_a_project_that_was_told_to_stop(world, capsys):
    world.report("a", role="active")
    world.beat(7, running=False)
    code, text = printed(capsys, world)
    assert code == 0
    assert text.startswith("local.p (stopped): a is active in epoch 1;")


def test_as_json(world, capsys):
    world.report("a", role="active")
    world.beat(7)
    code, text = printed(capsys, world, "--json")
    tree = json.loads(text)
    assert code == 0
    assert tree == json.loads(json.dumps(project_status(world.bus, "local", "p", NOW).tree()))
    assert (tree["ok"], tree["active"], tree["engines"][0]["role"]) == (True, "a", "active")


def test_a_cluster_without_projects(world, capsys):
    assert main(["status", "--bus", world.bus.url, "--cluster", "other"]) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert "No engine has run in cluster other yet" in found.err


def test_an_unknown_project(world, capsys):
    assert main(["status", "--bus", world.bus.url, "--project", "pp"]) == 3
    assert "Did you mean 'p'?" in capsys.readouterr().err


def test_two_projects_have_a_line_between_them(world, capsys):
    from run_worlds import sums_graph

    world.streams = type(world.streams)(cluster="local", project="another")
    world.streams.create(world.bus, sums_graph("another"), frozenset())
    code, text = printed(capsys, world)
    assert code == 1
    assert [line.partition(":")[0] for line in text.splitlines() if line.startswith("local.")] == [
        "local.another",
        "local.p",
    ]
    assert "\n\nlocal.p:" in text


def test_watching_draws_again_until_it_is_ended(world, capsys, monkeypatch):
    world.report("a", role="active")
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        world.beat(len(waits))
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli_output.sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    options = argparse.Namespace(cluster="local", project=None, every=1.0)
    with pytest.raises(KeyboardInterrupt):
        watch(world.bus, options, Output(), Clock(), wait)
    text = capsys.readouterr().out
    assert waits == [1.0] * 3
    assert text.count("\x1b[H\x1b[J") == 3
    assert re.findall(r"block (\d)", text) == ["0", "1", "2"]


def test_an_engine_that_reports_while_it_is_looked_at_is_well_although_its_clock_is_slow(world, capsys, monkeypatch):
    # Given an engine whose clock is a minute slow
    world.report("a", role="active", ago_s=60.0)
    world.beat(7)
    assert printed(capsys, world)[0] == 1, "nothing is heard of it"
    # When it reports meanwhile, then it is well
    reporting = type("Reporting", (), {"wait": lambda *_: world.report("a", role="active", ago_s=60.0)})
    monkeypatch.setattr(ThreadRuntime, "waiter", lambda _: reporting())
    code, text = printed(capsys, world)
    assert code == 0
    assert "silent" not in text
    assert "60.0 s ago" not in text


def test_watching_now_and_then_listens_meanwhile(world, capsys):
    # Given engines whose clocks are an hour slow; one is killed after a while
    clock, waits, alive = VirtualRuntime(wall_ns=NOW), [], {"a", "b"}

    def wait(seconds: float) -> None:
        waits.append(seconds)
        for engine in sorted(alive):
            world.report(engine, role="active" if engine == "a" else "standby", ago_s=3600.0)
        clock.advance(seconds)
        if len(waits) == 5:
            alive.discard("b")
        if len(waits) == 13:
            raise KeyboardInterrupt

    # When somebody looks every ten seconds
    options = argparse.Namespace(cluster="local", project=None, every=10.0)
    with pytest.raises(KeyboardInterrupt):
        watch(world.bus, options, Output(), clock, wait)
    # Then who is silent is known, whatever the clocks say
    assert sum(waits[:12]) == 30.0
    looks = capsys.readouterr().out.split("local.p:")[2:]
    assert [re.findall(r"^([ab]) +([a-z]+)", look, re.MULTILINE) for look in looks] == [
        [("a", "active"), ("b", "standby")],
        [("a", "active"), ("b", "silent")],
        [("a", "active"), ("b", "silent")],
    ]


def test_watching_into_a_file_clears_no_screen(world, capsys):
    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    options = argparse.Namespace(cluster="local", project=None, every=1.0)
    with pytest.raises(KeyboardInterrupt):
        watch(world.bus, options, Output(), Clock(), stop)
    assert "\x1b" not in capsys.readouterr().out


def test_the_headline_without_snapshot_and_with_counts_that_differ(world):
    world.report("a", role="active")
    world.report("b", counts={"q/in": [1, 1, 1, {}]})
    text = headline(project_status(world.bus, "local", "p", NOW))
    assert "no snapshot, 0 takeovers, counts differ" in text


def test_who_asks_while_no_engine_is_active_is_told_at_once(world, capsys):
    world.beat(7)
    assert main(["engine", "quiesce", "--bus", world.bus.url, "--timeout", "10ms"]) == 6
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "Warning: No engine of project p is active. Waiting at most 0.01 s for one."
