"""Names, passwords, rights and TLS, with a broker that asks for them."""

from __future__ import annotations

import logging
import time

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from lockstep.errors import ServerRefused, ServerUnreachable
from lockstep.testing.contract import values
from servers.kafka_worlds import KEEP_ALL, SECRET, SOON_S, admin, fresh, locked, one, opened
from servers.server_fixtures import started


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def server(keys, tmp_path_factory):
    running = started(locked(keys), tmp_path_factory.mktemp("kafka-locked"))
    yield running
    running.destroy()


@pytest.fixture
def login(server):
    """Where names and passwords are asked for."""
    return f"127.0.0.1:{server.ports[3]}"


def test_a_name_and_its_password_let_in(login):
    with opened(f"kafka://alice:{SECRET}@{login}", prefix=fresh()) as bus:
        log = bus.create("orders", KEEP_ALL)
        log.append([one(b"a")])
        assert values(log) == [b"a"]


def test_a_password_in_a_file_lets_in(login, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    with opened(f"kafka://alice@{login}", prefix=fresh(), password_file=secret) as bus:
        assert bus.names() == []


def test_a_scram_login_lets_in(server, login):
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = UserScramCredentialUpsertion("carol", kind, SECRET.encode())
    client = admin(server.url)
    client.alter_user_scram_credentials([wanted])["carol"].result(SOON_S)
    with opened(f"kafka://carol:{SECRET}@{login}", prefix=fresh(), mechanism="SCRAM-SHA-256") as bus:
        assert bus.names() == []


@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_wrong_password_is_refused_soon_and_not_shown(login, name, caplog, capfd):
    begun = time.monotonic()
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(ServerRefused, match=login) as caught,
        opened(f"kafka://{name}:wrong-but-secret@{login}", prefix=fresh()),
    ):
        pass
    assert time.monotonic() - begun < 15
    shown = f"{caught.value}{caught.value!r}{caplog.text}{''.join(capfd.readouterr())}"
    assert "wrong-but-secret" not in shown
    assert "uthentication" in str(caught.value)


def test_somebody_without_rights_is_refused(login):
    with (
        pytest.raises(ServerRefused, match=f"{login}.*uthorization"),
        opened(f"kafka://bob:{SECRET}@{login}", prefix=fresh()),
    ):
        pass


def test_no_name_where_one_is_asked_for_does_not_get_in(login):
    with pytest.raises((ServerUnreachable, ServerRefused), match=login), opened(f"kafka://{login}", timeout_s=4):
        pass


def test_tls_with_a_trusted_certificate_lets_in(server, keys):
    door = f"127.0.0.1:{server.ports[4]}"
    with opened(f"kafka://{door}", prefix=fresh(), ca=keys / "ca.pem") as bus:
        log = bus.create("orders", KEEP_ALL)
        log.append([one(b"a")])
        assert values(log) == [b"a"]


def test_tls_with_a_certificate_that_nobody_trusts_stays_out(server):
    door = f"127.0.0.1:{server.ports[4]}"
    with (
        pytest.raises(ServerUnreachable, match=f"{door}.*certificate"),
        opened(f"kafka://{door}", prefix=fresh(), tls="true", timeout_s=5),
    ):
        pass


def test_what_a_bus_shows_of_itself_holds_no_secret(login):
    with opened(f"kafka://alice:{SECRET}@{login}", prefix=fresh()) as bus:
        shown = f"{bus.url}{bus!r}{bus.driver!r}{vars(bus.driver)!r}{bus.driver._clients!r}"
        assert SECRET not in shown
        assert bus.url == f"kafka://alice@{login}"
