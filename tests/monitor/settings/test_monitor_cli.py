"""`lockstep monitor` as a user runs it: validate, swarm, transport."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.acceptance
GOOD = {
    "checks": {"c": {"command": "x", "interval": 60, "subscribers": ["all"]}},
    "rabbitmq": {"password": "geheim", "host": "h"},
}


@pytest.fixture
def lockstep(tmp_path):
    def run(*words, code=0, **environ):
        command = (sys.executable, "-m", "lockstep.cli.main", "monitor", *words)
        environ = {**os.environ, **environ}
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "good.json").write_text(json.dumps(GOOD))
    return run


def test_valid_settings(lockstep):
    told = lockstep("validate", "--config", "conf.d").stdout
    assert "1 check" in told
    found = json.loads(lockstep("validate", "--config", "conf.d", "--json").stdout)
    assert (found["valid"], found["checks"], found["files"]) == (True, 1, ["conf.d/good.json"])
    assert found["digest"] in told
    shown = lockstep("validate", "--config", "conf.d", "--print").stdout
    assert json.loads(shown)["rabbitmq"] == {"password": "REDACTED", "host": "h"}


def test_expressions_that_can_not_be_read_are_told(lockstep, tmp_path):
    """Sensu would run them as Ruby: here they never match, which must not be a surprise."""
    attributes = {"check": {"occurrences": "eval: value == 1", "x": "eval: `rm -rf /`"}}
    proxy = {"client_attributes": {"kind": "eval: value.frob"}}
    ping = {"command": "x", "interval": 9, "subscribers": ["a"], "proxy_requests": proxy}
    document = {"filters": {"f": {"attributes": attributes}}, "checks": {"ping": ping}}
    (tmp_path / "conf.d" / "more.json").write_text(json.dumps(document))
    done = lockstep("validate", "--config", "conf.d")
    assert "valid" in done.stdout
    assert done.stderr.count("the expression can't be read, so it never matches") == 2
    found = json.loads(lockstep("validate", "--config", "conf.d", "--json").stdout)["warnings"]
    assert [each["name"] for each in found] == [
        "filters.f.attributes.check.x", "checks.ping.proxy_requests.client_attributes.kind",
    ]  # fmt: skip
    assert "there is no method 'frob'" in found[1]["sentence"]


def test_faults_end_with_2_all_at_once(lockstep, tmp_path):
    (tmp_path / "conf.d" / "z.yaml").write_text("checks:\n  c: {interval: soon, handlers: x}\n")
    err = lockstep("validate", "--config", "conf.d", code=2).stderr
    assert 'conf.d/z.yaml: checks.c.interval = "soon": check interval must be an integer greater than 0' in err
    assert 'conf.d/z.yaml: checks.c.handlers = "x": check handlers must be an array' in err
    found = json.loads(lockstep("validate", "--config", "conf.d", "--json", code=2).stdout)
    assert [(fault["file"], fault["name"]) for fault in found["faults"]] == [
        ("conf.d/z.yaml", "checks.c.interval"), ("conf.d/z.yaml", "checks.c.handlers"),
    ]  # fmt: skip
    assert lockstep("agent", "--config", "conf.d", "--bus", "lmdb:m", code=2).stderr == err
    assert not (tmp_path / "m").exists()


def test_wrong_usage(lockstep, tmp_path):
    lockstep("validate", code=2)
    lockstep("validate", "--config", "nowhere", code=2)
    lockstep("agent", "--bus", "nonsense", code=2)
    ports = tmp_path / "ports.json"
    ports.write_text('{"client": {"socket": {"enabled": false}, "http_socket": {"enabled": false}}}')
    lockstep("agent", "--config", str(ports), "--bus", "nonsense:x", "--spool", "none", code=2)
    lockstep("agent", "--transport", "http://h", code=2)
    lockstep("agent", "--bus", "lmdb:m", code=2, SENSU_CLIENT_NAME="two words")
    lockstep("swarm", "--failing", "200", code=2)
    lockstep("swarm", "--bus", "memory:", "--for", "1s", code=2)
    lockstep("transport", "show", "--transport", "redis://h", code=2)


def test_a_swarm(lockstep):
    words = ("--clients", "10", "--checks", "3", "--interval", "500ms", "--failing", "10%", "--for", "1s")
    found = json.loads(lockstep("swarm", *words, "--bus", "lmdb:m", "--json").stdout)
    assert (found["clients"], found["results"], found["keepalives"]) == (10, 60, 10)


def test_what_a_broker_holds(lockstep, rabbitmq_server):
    environ = {"HOME": str(rabbitmq_server.folder), "ERL_EPMD_PORT": str(rabbitmq_server.ports[3])}
    node = ("--node", "rabbit@localhost")
    found = json.loads(lockstep("transport", "show", *node, "--json", **environ).stdout)
    assert set(found) == {"channels", "exchanges", "queues", "bindings"}
    assert "EXCHANGE" in lockstep("transport", "show", *node, **environ).stdout
    told = lockstep("transport", "setup", *node, **environ)
    assert "set_permissions" in told.stdout
    assert "ha-sensu" in told.stderr
    lockstep("transport", "show", "--node", "nobody@localhost", code=6, **environ)
