"""Secrets on the way to a server, and code in what comes from it."""

from __future__ import annotations

import logging

import pytest

from lockstep.errors import DataError, ServerUnfit
from lockstep.log.hazelcast.client import refuse_pickle  # before the client, whose warnings it silences
from lockstep.log.hazelcast.errors import translated
from lockstep.log.network.address import parse_address
from lockstep.log.network.driver import login_findings, report_findings

from hazelcast.config import Config  # isort: skip
from hazelcast.serialization.service import SerializationServiceV1  # isort: skip

TLS = {"tls": "true"}


def address(host="broker:1", **options):
    return parse_address("kafka", f"//{host}", options, environ={}, default_port=1)


@pytest.mark.parametrize("host", ["app:word@broker", "app:word@127.0.0.1,10.0.0.7:1"])
def test_a_password_without_tls_is_a_warning_and_an_error_if_strict(host, caplog):
    with caplog.at_level(logging.WARNING):
        report_findings(login_findings(address(host)))
    assert "without encryption" in caplog.text
    assert "word" not in caplog.text.replace("password", "")
    with pytest.raises(ServerUnfit, match="tls=true"):
        report_findings(login_findings(address(host, strict="true")), strict=True)


@pytest.mark.parametrize(
    "given",
    [address("app:word@127.0.0.1:1"), address("app:word@localhost"), address("app@broker"), address("a:w@b", **TLS)],
    ids=["loopback", "localhost", "no password", "tls"],
)
def test_a_password_that_nobody_can_read_is_no_warning(given):
    assert login_findings(given) == []


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_password_file_that_others_can_read_is_a_warning(tmp_path, mode, warns):
    file = tmp_path / "secret"
    file.write_text("word\n")
    file.chmod(mode)
    found = login_findings(address("app@127.0.0.1", password_file=str(file)))
    assert [f"{mode:03o}" in finding.problem for finding in found] == [True] * warns


def test_a_password_file_that_is_not_used_is_not_looked_at(tmp_path):
    file = tmp_path / "secret"
    file.write_text("word\n")
    file.chmod(0o644)
    assert login_findings(address("app:other@127.0.0.1", password_file=str(file))) == []


class Trap:
    """Runs code when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return _spring, ()


def _spring():
    Trap.sprung = True


def pickled():
    """A pickled object as the client would have written it."""
    service = SerializationServiceV1(Config())
    return service.to_data(Trap())


def test_the_client_of_hazelcast_would_unpickle():
    Trap.sprung = False
    SerializationServiceV1(Config()).to_object(pickled())
    assert Trap.sprung


def test_the_client_of_hazelcast_loads_no_pickled_object():
    Trap.sprung = False
    service = SerializationServiceV1(Config())
    refuse_pickle(service, "here")
    with pytest.raises(Exception, match="pickled object") as caught:
        service.to_object(pickled())
    assert not Trap.sprung
    assert isinstance(translated(caught.value, "here", "orders"), DataError)
    with pytest.raises(Exception, match="would be pickled"):
        service.to_data(Trap())
    assert service.to_object(service.to_data(bytearray(b"a"))) == bytearray(b"a")


def test_a_client_that_can_not_be_kept_from_unpickling_is_refused():
    with pytest.raises(ServerUnfit, match="hazelcast-python-client"):
        refuse_pickle(object(), "here")
