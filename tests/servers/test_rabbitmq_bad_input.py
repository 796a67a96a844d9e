"""Wrong addresses, passwords, rights and sizes, and a full disk: one clear error each, in time, and nothing lost."""

from __future__ import annotations

import logging
import socket
import subprocess
import time

import pytest

from lockstep.errors import (
    AppendTooLarge,
    AppendUncertain,
    BadUrl,
    LockstepError,
    ServerRefused,
    ServerUnfit,
    ServerUnreachable,
    StoreFull,
    Trimmed,
)
from lockstep.log.batch import HEADER
from lockstep.log.config import StreamConfig
from lockstep.testing.contract import Producer
from lockstep.testing.contract_case import KEEP_ALL, values
from servers.rabbitmq_worlds import control, opened, own_url, rabbitmq_with
from servers.server_fixtures import free_ports

SECRET = "s3cret-word"


def refused(url, error, match, within_s=5.0):
    """Opening fails so, in time, and without telling the password."""
    began = time.monotonic()
    with pytest.raises(error, match=match) as caught:
        opened(url)
    assert time.monotonic() - began < within_s
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


@pytest.fixture
def bus(rabbitmq_server):
    bus = opened(own_url(rabbitmq_server))
    yield bus
    bus.close()


@pytest.fixture
def clerk(rabbitmq_server):
    """A user who may do nothing yet; `rights` gives configure, write and read."""
    control(rabbitmq_server, "add_user", "clerk", SECRET)
    yield lambda *patterns: control(rabbitmq_server, "set_permissions", "clerk", *patterns)
    control(rabbitmq_server, "delete_user", "clerk")


def test_nobody_listens():
    (port,) = free_ports(1)
    refused(own_url(None, port=port), ServerUnreachable, f"127.0.0.1:{port} .*rabbitmq_stream")


def test_somebody_listens_and_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        refused(own_url(None, port=port, timeout_s=1), ServerUnreachable, "did not greet in time", within_s=4)


def test_a_host_that_is_none():
    refused("rabbitmq://no-such-host.invalid", ServerUnreachable, "no-such-host", within_s=20)


def test_the_port_of_another_protocol(rabbitmq_server):
    refused(own_url(None, port=rabbitmq_server.ports[1], timeout_s=2), ServerUnfit, "stream protocol.*5552")


def test_a_wrong_password(rabbitmq_server):
    refused(own_url(rabbitmq_server, login=f"guest:{SECRET}"), ServerRefused, "guest.*password")


def test_no_password_is_logged_however_much_is(rabbitmq_server, bus, clerk, caplog):
    prefix = bus.driver._address.prefix
    clerk(".*", ".*", ".*")
    with caplog.at_level(logging.DEBUG):
        other = opened(own_url(rabbitmq_server, login=f"clerk:{SECRET}", prefix=prefix))
        other.create("orders", KEEP_ALL).append([Producer().batch(b"a")])
        other.close()
        refused(own_url(rabbitmq_server, login=f"guest:{SECRET}"), ServerRefused, "guest.*password")
    assert caplog.records, "nothing was logged: the test shows nothing"
    assert SECRET not in caplog.text + repr([record.__dict__ for record in caplog.records])


def test_an_unknown_virtual_host(rabbitmq_server):
    url = f"rabbitmq://guest:guest@127.0.0.1:{rabbitmq_server.port}/nowhere"
    refused(url, ServerRefused, "virtual host 'nowhere'")


@pytest.mark.parametrize("option", ["max_bytes=many", "segment_bytes=-1", "prefix=gr%C3%B6%C3%9Fe", "queue=x"])
def test_options_that_make_no_sense(rabbitmq_server, option):
    with pytest.raises(BadUrl):
        opened(f"rabbitmq://127.0.0.1:{rabbitmq_server.port}?{option}")


def test_rights_that_are_missing(rabbitmq_server, bus, clerk):
    prefix = bus.driver._address.prefix
    url = own_url(rabbitmq_server, login=f"clerk:{SECRET}", prefix=prefix)
    refused(url, ServerRefused, "clerk")  # nothing of this virtual host
    log = bus.create("orders", KEEP_ALL)
    log.append([Producer().batch(b"a")])
    # Given a user who may read
    clerk("", "", rf"^{prefix[:-1]}\.")
    reader = opened(url)
    found = reader.create("orders", KEEP_ALL)
    assert values(found) == [b"a"]
    # Then the rest is refused, with the right that is missing
    with pytest.raises(ServerRefused, match=r"clerk.*write.*orders"):
        found.append([Producer().batch(b"b")])
    with pytest.raises(ServerRefused, match=r"clerk.*create"):
        reader.create("other", KEEP_ALL)
    with pytest.raises(ServerRefused, match=r"clerk.*write"):
        reader.delete("orders")
    reader.close()
    # Given one who may not read either
    clerk("", ".*", "")
    writer = opened(url)
    with pytest.raises(ServerRefused, match=r"clerk.*read"):
        writer.names()
    writer.close()
    assert values(log) == [b"a"]


def test_a_right_that_is_taken_and_given_back(rabbitmq_server, bus, clerk):
    prefix, producer = bus.driver._address.prefix, Producer()
    others = [f"other{number}" for number in range(13)]
    for name in ("orders", *others):
        bus.create(name, KEEP_ALL)
    mine = rf"^{prefix[:-1]}\."
    clerk("", mine, mine)
    writer = opened(own_url(rabbitmq_server, login=f"clerk:{SECRET}", prefix=prefix))
    log = writer.open("orders")
    log.append([producer.batch(b"a")])
    # When it is taken (and the server has forgotten what it knew of it: it remembers twelve), the error says so
    clerk("", mine + "other", mine)
    for name in others:
        writer.open(name).append([producer.batch(b"x")])
    for _ in range(3):
        with pytest.raises(ServerRefused, match=r"clerk.*write"):
            log.append([producer.batch(b"lost")])
    # And when it is given back, the same handle goes on
    clerk("", mine, mine)
    log.append([producer.batch(b"b")])
    assert values(log) == [b"a", b"b"]
    writer.close()


def test_settings_that_the_server_does_not_take_are_named_and_leave_nothing(rabbitmq_server):
    bus = opened(own_url(rabbitmq_server, segment_bytes=10**13))
    with pytest.raises(ServerUnfit, match=r"stream-max-segment-size-bytes=10000000000000.*segment_bytes in the URL"):
        bus.create("orders", KEEP_ALL)
    assert bus.names() == []
    bus.close()


def test_a_record_that_is_too_large_for_the_server(bus):
    log = bus.create("orders", KEEP_ALL)
    producer, most = Producer(), b"x" * (log.limits.append_bytes - HEADER.size)
    with pytest.raises(AppendTooLarge, match=r"stream\.frame_max in rabbitmq\.conf"):
        log.append([producer.batch(most + b"x")])
    log.append([producer.batch(most)])
    assert values(log) == [most]


def test_one_node_is_a_warning_and_with_strict_an_error(rabbitmq_server, caplog):
    opened(own_url(rabbitmq_server)).close()
    assert "one node" in caplog.text
    refused(own_url(rabbitmq_server, strict="true"), ServerUnfit, "one node.*nodes of the cluster")


def test_what_the_checks_find(bus):
    bus.create("ring", StreamConfig(capacity=100))
    bus.create("bounded", StreamConfig(retain_bytes=1_000_000))
    found = [finding.problem for finding in bus.check()]
    assert len(found) == 2
    assert "one node" in found[0]
    assert "'ring'" in found[1]


def test_reading_what_the_server_has_dropped(rabbitmq_server):
    bus = opened(own_url(rabbitmq_server, segment_bytes=20_000, max_bytes=40_000))
    log = bus.create("orders", KEEP_ALL)
    producer = Producer()
    for _ in range(100):
        log.append([producer.batch(b"x" * 1000)])
    first = log.bounds().first
    assert first > 0
    with pytest.raises(Trimmed) as caught:
        bus.open("orders").read(0)
    assert caught.value.params["first"] == first
    assert log.read(first)[0].base == first
    bus.close()


def test_a_full_disk(breakable_rabbitmq):
    server = breakable_rabbitmq.server
    url = own_url(server, timeout_s=2)
    bus = opened(url)
    log = bus.create("orders", KEEP_ALL)
    producer = Producer()
    sent = [producer.batch(b"%d" % number) for number in range(20)]
    log.append([sent[0]])
    # When the server finds too little room
    control(server, "set_disk_free_limit", "900000GB")
    # Then no append is taken any more, the error says why, and reading goes on
    stored, faults = 1, []
    while len(faults) < 3:
        try:
            log.append([sent[stored]])
            stored += 1
        except (StoreFull, AppendUncertain) as error:
            faults.append(error)
    assert "disk_free_limit" in str(faults[-1])
    assert [int(value) for value in values(log)] == list(range(stored))
    other = opened(url)
    fresh = other.open("orders")
    began = time.monotonic()
    with pytest.raises(StoreFull, match=r"127\.0\.0\.1.*disk_free_limit in rabbitmq\.conf"):
        fresh.append([Producer("other").batch(b"x")])
    assert time.monotonic() - began < 4
    assert "disk alarm" in " ".join(finding.problem for finding in other.check())
    # And when there is room again, the same handle goes on, and everything is there once
    control(server, "set_disk_free_limit", "50MB")
    end = time.monotonic() + 30
    while stored < len(sent):
        try:
            log.append([sent[stored]])
            stored += 1
        except LockstepError:
            assert time.monotonic() < end
    assert [int(value) for value in values(log)] == list(range(20))
    assert "disk alarm" not in " ".join(finding.problem for finding in other.check())
    other.close()
    bus.close()


@pytest.fixture
def certificates(tmp_path):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    command = [*words.split(), "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return cert, key


def test_an_encrypted_connection(start_server, certificates):
    cert, key = certificates
    (port,) = free_ports(1)
    server = start_server(
        rabbitmq_with(
            f"stream.listeners.ssl.1 = 127.0.0.1:{port}\nstream.advertised_tls_port = {port}\n"
            f"ssl_options.cacertfile = {cert}\nssl_options.certfile = {cert}\nssl_options.keyfile = {key}\n"
            "ssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n"
        )
    )
    bus = opened(own_url(server, port=port, tls="true", ca=cert))
    log = bus.create("orders", KEEP_ALL)
    producer = Producer()
    for _ in range(5):
        log.append([producer.batch(b"x" * 900_000)])
    assert values(log) == [b"x" * 900_000] * 5
    bus.close()
    refused(own_url(server, port=port, tls="true"), ServerUnreachable, "no encrypted connection")
    refused(own_url(server, port=port, timeout_s=2), LockstepError, str(port))
