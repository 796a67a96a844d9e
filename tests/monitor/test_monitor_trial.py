"""Other settings over stored input: which notifications would differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from fleet_world import START_S, FleetWorld, served
from monitor_worlds import keepalive, result

from lockstep.cli.main import main
from lockstep.monitor.trial import Differences, History, Input, Told, compare, replay
from lockstep.streams.client import connect

NOW = {"handlers": {"default": {"type": "pipe"}}}
NEW = {"handlers": {"default": {"type": "pipe", "severities": ["critical"]}}}
COMMANDS = {"handlers": {"default": {"type": "pipe", "command": "cat"}}}


def inputs(*steps):
    """Records from (seconds after the start, key, value) on."""
    return [
        Input(number, key.encode(), value, (START_S + second) * 10**9)
        for number, (second, key, value) in enumerate(steps)
    ]


def failing(*statuses):
    return [(number, "r:web-1", result(status=status)) for number, status in enumerate(statuses)]


def test_what_is_told_has_the_time_of_its_record():
    told = list(replay(inputs(*failing(0, 2, 1, 0)), NOW))
    assert told == [
        Told(START_S + 1, "web-1", "disk", "default", 2, "create"),
        Told(START_S + 2, "web-1", "disk", "default", 1, "create"),
        Told(START_S + 3, "web-1", "disk", "default", 0, "resolve"),
    ]


def test_time_between_records_makes_clients_silent():
    steps = [(0, "k:web-1", keepalive()), (300, "k:web-2", keepalive("web-2"))]
    told = [each for each in replay(inputs(*steps), NOW) if each.check == "keepalive"]
    assert {each.status for each in told} == {1, 2}
    assert 120 <= told[0].time - START_S <= 151


def test_orders_of_the_history_count_but_for_settings():
    silence = json.dumps({"order": "silence", "id": "1", "entry": {"check": "disk"}}).encode()
    settings = json.dumps({"order": "settings", "id": "2", "settings": {"handlers": {}}}).encode()
    steps = [
        (0, "o:", settings),
        (0, "o:", b"{"),
        (0, "o:", b"[]"),
        (1, "r:web-1", result(status=2)),
        (2, "o:", silence),
    ]
    told = list(replay(inputs(*steps, (3, "r:web-1", result(status=2))), NOW))
    assert [each.time - START_S for each in told] == [1]


def test_differences_count_each_notification():
    one, two = (Told(1, "c", "k", "h", status, "create") for status in (1, 2))
    found = Differences.between([one, one, two], [one, two, two])
    assert (found.only_now, found.only_new, found.same) == ([one], [two], 2)


def test_of_no_records_nothing_differs():
    assert Differences.between(replay([], NOW), replay([], NEW)) == Differences([], [], 0)


@pytest.fixture
def url(tmp_path):
    made = f"lmdb:{tmp_path / 'bus'}"
    with connect(made, create=True) as bus, bus.publisher("monitor.input") as publisher:
        for _, key, value in failing(0, 1, 2, 0):
            publisher.publish(value, key=key.encode()).result(10)
    return made


def settings(folder, name, tree):
    path = folder / name
    path.write_text(json.dumps(tree))
    return str(path)


def test_history_is_a_fixed_part_of_the_input(url):
    with connect(url) as bus:
        history = History.since(bus, url, "monitor.input", 3600)
        with bus.publisher("monitor.input") as publisher:
            publisher.publish(result(status=2), key=b"r:web-2").result(10)
        assert len(list(history.read(bus))) == 4
        assert len(list(History(url, "monitor.input", 2, 9).read(bus))) == 3
        assert compare(history, bus, NOW, NEW).only_now[0].status == 1


@pytest.mark.parametrize(("name", "code", "counts"), [("new", 1, (1, 0, 2)), ("now", 0, (0, 0, 3))])
def test_the_command_says_what_differs(url, tmp_path, capfdbinary, name, code, counts):
    now = settings(tmp_path, "now.json", COMMANDS)
    settings(
        tmp_path, "new.json", {"handlers": {"default": {**COMMANDS["handlers"]["default"], "severities": ["critical"]}}}
    )
    command = ["monitor", "try", str(tmp_path / f"{name}.json"), "--config", now, "--runner", "local", "--bus", url]
    assert main([*command, "--json"]) == code
    found = json.loads(capfdbinary.readouterr().out)
    assert (len(found["only_now"]), len(found["only_new"]), found["same"]) == counts
    assert main(command) == code
    said = capfdbinary.readouterr().out
    assert (b"web-1" in said) == bool(code)


def test_the_settings_in_force_are_those_that_a_server_says(url, tmp_path, capfdbinary):
    new = settings(tmp_path, "new.json", {"handlers": {"other": {"type": "pipe", "command": "cat"}}})
    command = ["monitor", "try", new, "--runner", "local", "--bus", url, "--json"]
    with served(FleetWorld(tmp_path / "view", **NOW)) as ask:
        assert main([*command, "--url", ask.url]) == 1
    found = json.loads(capfdbinary.readouterr().out)
    assert {told["handler"] for told in found["only_now"]} == {"default"}
    assert found["only_new"] == []
    assert main([*command, "--url", "http://127.0.0.1:1"]) not in (0, 1)


@pytest.mark.soak
def test_spark_says_the_same(url, tmp_path):
    now = settings(tmp_path, "now.json", COMMANDS)
    new = settings(
        tmp_path, "new.json", {"handlers": {"default": {**COMMANDS["handlers"]["default"], "severities": ["ok"]}}}
    )
    answers = []
    for runner in ("local", "spark"):
        command = [sys.executable, "-m", "lockstep.cli.main", "monitor", "try", new, "--config", now, "--json"]
        command += ["--runner", runner, "--bus", url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ, timeout=300)
        assert done.returncode == 1, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]
    assert answers[0]["only_now"]
