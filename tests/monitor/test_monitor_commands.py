"""Commands that ask a server: lists, silences, acknowledgements, reasons, reload; in text and as JSON."""

from __future__ import annotations

import json

import pytest
from fleet_world import FleetWorld, served

from lockstep.cli.main import main
from lockstep.cli.monitor import SERVER_VERBS

SETTINGS = {
    "checks": {"disk": {"command": "check-disk", "subscribers": ["all"], "interval": 60, "handlers": ["log"]}},
    "handlers": {"log": {"type": "pipe"}},
}


@pytest.fixture
def world(tmp_path):
    made = FleetWorld(tmp_path, **SETTINGS)
    for client in ("web-1", "web-2"):
        made.keepalive(client)
    made.check("web-1", "disk", 2, output="full\nmore")
    made.check("web-1", "load", 1)
    made.check("web-2", "disk", 0)
    return made


@pytest.fixture
def run(world, capfdbinary, monkeypatch):
    with served(world) as ask:
        monkeypatch.setenv("LOCKSTEP_MONITOR_URL", ask.url)
        monkeypatch.setenv("USER", "ann")

        def command(*words, code=0):
            found = main(["monitor", *words]) or 0
            out, err = capfdbinary.readouterr()
            command.error = err.decode()
            assert found == code, (found, out, err)
            return out.decode() if "--json" not in words else [json.loads(line) for line in out.splitlines()]

        yield command


def test_events_are_listed_the_worst_first(run):
    lines = run("events").splitlines()
    assert lines[0].split() == ["SEVERITY", "CLIENT", "CHECK", "OCCURRENCES", "SILENCED", "SINCE", "OUTPUT"]
    assert [line.split()[:3] for line in lines[1:]] == [["critical", "web-1", "disk"], ["warning", "web-1", "load"]]
    assert "more" not in lines[1]
    assert run("events", "web-2") == ""
    assert [event["check"]["name"] for event in run("events", "--json")] == ["disk", "load"]


def test_clients_and_checks_are_listed(run):
    assert [line.split()[0] for line in run("clients").splitlines()[1:]] == ["web-1", "web-2"]
    assert run("checks").splitlines()[1].split()[:4] == ["disk", "60", "s", "all"]


@pytest.mark.parametrize(("client", "check", "code", "said"), [
    ("web-1", "disk", 2, "CRITICAL: full"), ("web-1", "load", 1, "WARNING: o"), ("web-2", "disk", 0, "OK: o"),
])  # fmt: skip
def test_a_check_is_printed_and_its_status_is_the_exit_code(run, client, check, code, said):
    assert run("check", client, check, code=code).strip() == said


def test_a_check_that_is_not_there_is_not_found(run):
    run("check", "web-1", "none", code=3)


def test_why_shows_each_gate_with_its_reason(run):
    said = run("why", "web-1", "disk")
    assert said.splitlines()[0].startswith("web-1/disk at ")
    assert "  log was told:" in said
    assert run("why", "web-1", "disk", "--json")[0]["handlers"][0]["handler"] == "log"


def test_a_silence_begins_is_listed_and_ends(run):
    assert run("silence", "--client", "web-1", "--check", "disk", "--expire", "1h", "--reason", "new disk").strip() == (
        "Silenced client:web-1:disk."
    )
    row = run("silence").splitlines()[1]
    assert row.split()[0] == "client:web-1:disk"
    assert "3600 s" in row
    assert "ann" in row
    run("silence", "--end", "client:web-1:disk")
    assert run("silence") == ""
    run("silence", "--end", "client:web-1:disk", code=3)


def test_a_silence_by_patterns_that_recurs_and_is_planned(run):
    run("silence", "--match", "client.zone=eu-*", "--match", "check.team=web", "--when", "all=22:00-06:00",
        "--when", "saturday=00:00-23:59", "--planned", "--begin", "2h", "--expire", "1d", "--by", "bob")  # fmt: skip
    (entry,) = run("silence", "--json")
    assert entry["match"] == {"client.zone": "eu-*", "check.team": "web"}
    assert entry["id"] == "client.zone=eu-* check.team=web"
    assert entry["when"]["days"]["all"] == [{"begin": "22:00", "end": "06:00"}]
    assert entry["planned"] is True
    assert entry["creator"] == "bob"
    run("silence", "--end", entry["id"])
    run("silence", "--check", "disk", "--begin", "2030-01-31T22:00:00Z", "--reason", "new disk")
    assert run("silence", "--json")[0]["begin"] == 1_896_127_200


@pytest.mark.parametrize("words", [
    ("--expire", "2h"), ("--match", "zone"), ("--check", "disk", "--when", "22:00-06:00"),
    ("--check", "disk", "--when", "someday=22:00-06:00"), ("--check", "disk", "--when", "all=25-26"),
    ("--check", "disk", "--begin", "soon"), ("--client", "a", "--subscription", "b"),
])  # fmt: skip
def test_a_silence_that_can_not_be_changes_nothing(run, words):
    run("silence", *words, code=2)
    assert run("silence") == ""


@pytest.mark.parametrize(("words", "said"), [
    (("check", "web-1", "none"), "no result of the check none on the client web-1"),
    (("why", "web-1", "none"), "No event of the check none on the client web-1 is known"),
    (("ack", "web-2", "disk"), "no open event of the check disk on the client web-2"),
    (("resolve", "web-2", "disk"), "no open event of the check disk on the client web-2"),
    (("request", "none"), "No check none is published"), (("silence", "--end", "x"), "no silence x"),
])  # fmt: skip
def test_what_is_not_there_is_named(run, words, said):
    run(*words, code=3)
    assert said in run.error


def test_a_wrong_password_is_said_so(world, capfdbinary, tmp_path):
    with served(world, credentials=("ann", "secret")) as ask:
        (tmp_path / "pw").write_text("wrong")
        words = ["monitor", "events", "--url", ask.url, "--user", "ann", "--password-file", str(tmp_path / "pw")]
        assert main(words) == 5
        error = capfdbinary.readouterr()[1].decode()
        assert "does not carry the user and the password of this monitor" in error
        assert "Bearer" not in error
        (tmp_path / "pw").write_text("secret\n")
        assert not main(words)


def test_an_event_is_acknowledged_and_resolved(run, world):
    run("ack", "web-1", "disk", "--reason", "disk is ordered")
    world.check("web-1", "disk", 2)
    assert run("events", "--json")[0]["silenced"] is True
    run("resolve", "web-1", "disk")
    assert [event["check"]["name"] for event in run("events", "--json")] == ["load"]
    run("resolve", "web-1", "disk", code=3)


def test_history_is_newest_first(run, world):
    world.check("web-1", "disk", 0)
    assert [line.split()[3:6] for line in run("history", "web-1", "disk").splitlines()[1:]] == [
        ["disk", "ok", "resolve"], ["disk", "critical", "create"],
    ]  # fmt: skip


def test_a_check_is_requested(run, world):
    run("request", "disk", "--subscriber", "client:web-1")
    assert [notice.key for notice in world.notices if notice.kind == "request"][-1] == "client:web-1"


def test_reload_shows_the_difference_and_puts_settings_in_force(run, world, tmp_path):
    folder = tmp_path / "conf.d"
    folder.mkdir()
    settings = {**SETTINGS, "checks": {"disk": {**SETTINGS["checks"]["disk"], "interval": 30}}}
    settings["handlers"] = {"log": {"type": "pipe", "command": "secret-command"}}
    (folder / "a.json").write_text(json.dumps(settings))
    said = run("reload", "--config", str(folder), "--dry-run")
    assert "checks.disk.interval: 60 -> 30" in said
    assert "secret-command" not in said
    assert run("checks", "--json")[0]["interval"] == 60
    run("reload", "--config", str(folder))
    assert run("checks", "--json")[0]["interval"] == 30


def test_settings_that_are_not_valid_change_nothing(run, tmp_path):
    (tmp_path / "bad.json").write_text('{"checks": {"disk": {"command": 1, "interval": "x"}}}')
    run("reload", "--config", str(tmp_path / "bad.json"), code=2)
    assert run("checks", "--json")[0]["interval"] == 60


def test_a_server_that_is_away_is_an_error_that_says_what_to_do(monkeypatch, capfdbinary):
    assert main(["monitor", "events", "--url", "http://127.0.0.1:1"]) == 6
    assert b"lockstep monitor server" in capfdbinary.readouterr().err


@pytest.mark.parametrize("verb", [verb for verb in SERVER_VERBS if verb.run.startswith("lockstep.cli.monitor_fleet")],
                         ids=lambda verb: verb.name)  # fmt: skip
def test_the_examples_of_the_help_run(run, verb):
    for example in verb.examples:
        words = [word.strip("'") for word in example.split()[2:]]
        if "--reason" in words:
            words = [*words[: words.index("--reason") + 1], "because"]
        run(*words, code=2 if verb.name == "check" else 0)


def test_a_client_is_shown_with_its_checks(run):
    lines = run("show", "web-1").splitlines()
    assert any(line.split()[:2] == ["disk", "critical"] for line in lines)
    [tree] = run("show", "web-1", "--json")
    assert (tree["client"]["name"], len(tree["events"])) == ("web-1", 2)
    run("show", "nobody", code=3)


def test_a_client_is_deleted_after_it_was_said_what_goes(run):
    run("delete", "web-1", code=2)
    assert "Nothing was changed: add --yes" in run.error
    assert run("delete", "web-1", "--dry-run").startswith("Would resolve 2 open events and forget ")
    assert "web-1" in run("clients")
    [done] = run("delete", "web-1", "--yes", "--json")
    assert (done["client"], done["events"], done["deleted"]) == ("web-1", 2, True)
    assert "web-1" not in run("clients")
    run("delete", "web-1", "--yes", code=3)


def test_one_silence_and_one_check_are_shown(run):
    run("silence", "--client", "web-1", "--check", "disk", "--expire", "1h", "--reason", "new disk")
    assert "new disk" in run("silence", "--show", "client:web-1:disk")
    [entry] = run("silence", "--show", "client:web-1:disk", "--json")
    assert entry["reason"] == "new disk"
    run("silence", "--show", "none", code=3)
    assert [check["name"] for check in run("checks", "disk", "--json")] == ["disk"]
    run("checks", "none", code=3)
