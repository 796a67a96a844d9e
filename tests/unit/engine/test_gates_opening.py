"""URLs of gates: what they mean, what is refused, and that no password shows."""

from __future__ import annotations

import sys

import pytest

from lockstep.engine.gates.port import needed
from lockstep.engine.gates.urls import gate_address, open_gate
from lockstep.engine.runtime.control.options import EngineOptions
from lockstep.errors import BadConfig, ExtraMissing
from lockstep.runtime import ThreadRuntime

QUEUE = "rabbitmq-queue://app:hush@h/v?queue=q"


def test_no_url_is_no_gate():
    assert open_gate("", ThreadRuntime(), {}, group="c.p") is None


def test_a_zookeeper_session_lasts_a_second_unless_the_url_says_otherwise():
    address = gate_address("zookeeper://a:2182,b/ESP/two", {})
    assert (address.hosts, address.path, address.timeout_s) == ((("a", 2182), ("b", 2181)), "ESP/two", 1.0)
    assert gate_address("zookeeper://a?timeout_s=3", {}).timeout_s == 3.0


def test_a_queue_has_its_name_its_place_and_its_password():
    address = gate_address(QUEUE, {})
    assert (address.hosts, address.path, address.options["queue"]) == ((("h", 5672),), "v", "q")
    assert address.password is not None
    assert address.password.reveal() == "hush"
    assert address.safe_url == "rabbitmq-queue://app@h:5672/v"


def test_a_password_may_come_from_the_environment():
    environ = {"LOCKSTEP_RABBITMQ_QUEUE_USER": "app", "LOCKSTEP_RABBITMQ_QUEUE_PASSWORD": "hush"}
    address = gate_address("rabbitmq-queue://h?queue=q", environ)
    assert address.password is not None
    assert (address.user, address.password.reveal()) == ("app", "hush")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("kafka://app:hush@h", "write zookeeper://"),
        ("app:hush@h", "write zookeeper://"),
        ("zookeeper:", "write zookeeper://HOST:PORT"),
        ("zookeeper://app:hush@h:x", "is not HOST:PORT"),
        ("zookeeper://app:hush@h?timeout_s=0", "timeout_s must be"),
        ("zookeeper://app:hush@h?timeout_s=1&timeout_s=2", "twice"),
        ("zookeeper://app:hush@h?queue=q", "no option 'queue'"),
        ("rabbitmq-queue://app:hush@h", "names no queue"),
        (QUEUE + "&queue_type=stream", "queue_type must be one of classic, quorum"),
    ],
)
def test_a_url_that_can_not_be_is_refused_without_its_password(url, reason):
    with pytest.raises(BadConfig, match=reason) as refused:
        gate_address(url, {})
    assert "hush" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_the_options_of_an_engine_do_not_show_the_password():
    assert "hush" not in repr(EngineOptions(election=QUEUE))


@pytest.mark.parametrize(("module", "extra"), [("kazoo.client", "zookeeper"), ("pika", "rabbitmq")])
def test_a_missing_client_says_what_to_install(module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ExtraMissing, match=rf"lockstep-events\[{extra}\]"):
        needed(module, extra)
