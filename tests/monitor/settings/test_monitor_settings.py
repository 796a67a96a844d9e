"""Settings of the monitor: files, environment, defaults, digest, difference, and what of them is shared."""

from __future__ import annotations

import json
import os
import socket
from itertools import pairwise

import pytest

from lockstep.monitor.settings.errors import SettingsInvalid
from lockstep.monitor.settings.settings import Host, difference, load, without_login
from lockstep.monitor.settings.settings import _address_of as address_of

HOST = Host("web-1", "10.0.0.1")
LAUGHS = "a: &a [1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in pairwise("abcdefgh")
)


@pytest.fixture
def folder(tmp_path):
    def write(**files):
        for name, content in files.items():
            path = tmp_path / name.replace("__", "/").replace("_yaml", ".yaml").replace("_json", ".json")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path

    return write


def test_defaults():
    settings = load([], {}, host=HOST)
    assert settings["transport"] == {"name": "rabbitmq", "reconnect_on_error": True}
    assert settings.spawn_limit == 12
    assert settings.client == {"name": "web-1", "address": "10.0.0.1", "subscriptions": ["client:web-1"]}


def test_files_of_all_folders_are_merged_deeply(folder):
    path = folder(
        a_json={"checks": {"c": {"command": "x", "interval": 60, "subscribers": ["a", "b"], "deep": {"x": 1, "y": 1}}}},
        sub__b_json={"checks": {"c": {"subscribers": ["b", "c"], "interval": 30, "deep": {"y": 2}}}},
        sub__notes_txt="not settings",
    )
    check = load([path], {}, host=HOST, is_client=False)["checks"]["c"]
    assert check == {"command": "x", "interval": 30, "subscribers": ["a", "b", "c"], "deep": {"x": 1, "y": 2}}


def test_yaml_beside_json(folder):
    path = folder(
        a_yaml="checks:\n  c:\n    command: x\n    interval: 60\n    subscribers: [all]\n    since: 2026-01-02\n"
    )
    assert load([path], {}, host=HOST, is_client=False)["checks"]["c"]["since"] == "2026-01-02"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a: [1", "config file must be valid yaml"),
        ("- 1\n- 2\n", "it must be an object"),
        ("a: &a [*a]", "nested too deeply"),
        (LAUGHS, "too large"),
        ("a: !!python/object/apply:os.system ['true']", "config file must be valid yaml"),
        ("a: .inf", "has no form in JSON"),
    ],
)  # fmt: skip
def test_yaml_that_can_not_be(folder, content, reason):
    with pytest.raises(SettingsInvalid) as error:
        load([folder(x_yaml=content)], {}, host=HOST, is_client=False)
    assert reason in str(error.value)
    assert "x.yaml" in str(error.value)


@pytest.mark.parametrize(
    "content", ["[1]", "{", '{"a": NaN}', '{"a": 1e999}', "[" * 200 + "]" * 200, '"text"', "{} {}"]
)
def test_json_that_can_not_be(folder, content):
    with pytest.raises(SettingsInvalid, match="config file must be valid json"):
        load([folder(x_json=content)], {}, host=HOST, is_client=False)


def test_a_byte_order_mark_and_empty_files_are_fine(folder, tmp_path):
    folder(empty_json="", blank_json=" \n", empty_yaml="")
    (tmp_path / "bom.json").write_bytes(b'\xef\xbb\xbf{"custom": {"a": 1}}')
    assert load([tmp_path], {}, host=HOST, is_client=False)["custom"] == {"a": 1}


def test_links_that_lead_round_are_followed_once(folder, tmp_path):
    path = folder(a_json={"list": {"of": [1]}})
    (tmp_path / "round").symlink_to(tmp_path)
    assert load([path], {}, host=HOST, is_client=False).files == (str(tmp_path / "a.json"),)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(SettingsInvalid, match="config file does not exist or is not readable"):
        load([tmp_path / "no"], {}, host=HOST, is_client=False)


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SettingsInvalid, match="insufficient permissions for loading"):
        load([tmp_path], {}, host=HOST, is_client=False)


def test_the_environment():
    environ = {
        "SENSU_TRANSPORT_NAME": "redis",
        "RABBITMQ_URL": "amqp://a:b@h/v",
        "REDIS_URL": "redis://h",
        "REDIS_SENTINEL_URLS": "redis://a:26379,redis://b:26379",
        "SENSU_CLIENT_NAME": "db-1",
        "SENSU_CLIENT_ADDRESS": "10.0.0.9",
        "SENSU_CLIENT_SUBSCRIPTIONS": "all,db",
        "SENSU_API_PORT": "14567",
    }
    settings = load([], environ, host=HOST)
    assert settings["transport"]["name"] == "redis"
    assert settings["rabbitmq"] == "amqp://a:b@h/v"
    assert settings["redis"] == {"sentinels": "redis://a:26379,redis://b:26379"}
    assert settings.client == {"name": "db-1", "address": "10.0.0.9", "subscriptions": ["all", "db", "client:db-1"]}
    assert settings["api"] == {"port": 14567}


def test_files_win_over_the_environment(folder):
    path = folder(client_json={"client": {"name": "file", "subscriptions": ["x", "client:file"]}})
    settings = load([path], {"SENSU_CLIENT_NAME": "env", "SENSU_CLIENT_SUBSCRIPTIONS": "e"}, host=HOST)
    assert settings.client["name"] == "file"
    assert settings.client["subscriptions"] == ["e", "x", "client:file"]


def test_a_port_in_the_environment_that_is_none():
    with pytest.raises(SettingsInvalid, match=r'the environment: api\.port = "http": api port must be an integer'):
        load([], {"SENSU_API_PORT": "http"}, host=HOST, is_client=False)


def test_servers_with_other_clients_have_one_digest(folder, tmp_path):
    path = folder(a_json={"checks": {"c": {"command": "x", "interval": 1, "subscribers": ["a"]}}})
    first = load([path], {"SENSU_CLIENT_NAME": "a"}, host=HOST, is_client=False)
    second = load([path], {"SENSU_CLIENT_NAME": "b"}, host=HOST, is_client=False)
    assert first.digest == second.digest
    assert load([path], {}, host=HOST).digest != first.digest
    assert len(first.digest) == 64


def test_the_digest_does_not_depend_on_the_order_of_members(folder, tmp_path):
    one = load([folder(a_json='{"x": {"a": 1, "b": 2}}')], {}, host=HOST, is_client=False)
    other = load([folder(a_json='{"x": {"b": 2, "a": 1}}')], {}, host=HOST, is_client=False)
    assert one.digest == other.digest


def test_the_difference_between_settings():
    before = {"checks": {"a": {"interval": 1}, "gone": {"x": 1}}, "n": 1}
    after = {"checks": {"a": {"interval": 2}, "new": {"y": 1}}, "n": True}
    changes = difference(before, after)
    assert [(change.name, change.before, change.after) for change in changes] == [
        ("checks.a.interval", 1, 2), ("checks.gone", {"x": 1}, None), ("checks.new", None, {"y": 1}), ("n", 1, True),
    ]  # fmt: skip
    assert difference(before, before) == []


def test_what_is_shared_holds_no_commands_of_handlers_and_no_secrets(folder):
    path = folder(
        a_json={
            "checks": {"c": {"command": "check", "interval": 1, "subscribers": ["a"], "password": "geheim"}},
            "handlers": {
                "mail": {"type": "pipe", "command": "mail -p geheim", "severities": ["ok"], "filter": "f",
                         "mutator": "m", "handle_flapping": True, "timeout": 3},
                "all": {"type": "set", "handlers": ["mail"]},
                "hook": {"type": "http", "url": "https://u:geheim@h/x"},
                "sock": {"type": "tcp", "socket": {"host": "geheim", "port": 1}},
            },
            "mutators": {"m": {"command": "mutate geheim"}},
            "filters": {"f": {"attributes": {"check": {"name": "c"}}}},
            "api": {"user": "a", "password": "geheim"},
            "rabbitmq": {"password": "geheim"},
        }
    )  # fmt: skip
    order = load([path], {}, host=HOST, is_client=False).order("ann")
    assert "geheim" not in json.dumps(order)
    assert order["by"] == "ann"
    assert order["settings"]["checks"]["c"]["command"] == "check"
    assert order["settings"]["handlers"] == {
        "mail": {"type": "pipe", "filter": "f", "severities": ["ok"], "mutator": "m", "handle_flapping": True},
        "all": {"type": "set", "handlers": ["mail"]},
        "hook": {"type": "http"},
        "sock": {"type": "tcp"},
    }
    assert order["settings"]["sensu"]["keepalives"]["thresholds"] == {"warning": 120, "critical": 180}


def test_secrets_are_not_shown(folder):
    path = folder(a_json={"rabbitmq": "amqp://u:geheim@h/v", "redis": {"password": "geheim", "host": "h"},
                          "list": [{"secret": "geheim"}, "redis://:geheim@h"]})  # fmt: skip
    shown = load([path], {}, host=HOST, is_client=False).redacted
    assert "geheim" not in json.dumps(shown)
    assert shown["rabbitmq"] == "amqp://u:REDACTED@h/v"
    assert shown["redis"]["host"] == "h"


@pytest.mark.parametrize(
    ("url", "shown"),
    [("redis://h:1/0", "redis://h:1/0"), ("amqp://u:p@a,amqp://u:p@b", "amqp://u:REDACTED@a,amqp://u:REDACTED@b")],
)
def test_urls_without_their_passwords(url, shown):
    assert without_login(url) == shown


def test_the_address_of_an_interface():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        assert address_of(probe, "lo") == "127.0.0.1"
        assert address_of(probe, "none-of-that-name") == "unknown"
