"""Opening a bus on Hazelcast, without a server: its URL, the first look at a member, what the client is set to."""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

import pytest

from lockstep.errors import BadUrl, ServerRefused, ServerUnfit, ServerUnreachable
from lockstep.log.hazelcast.client import listen_to_lost_connections, patch_waking, settings
from lockstep.log.hazelcast.driver import OPTIONS, PORT, check_prefix, map_name, open_bus, ring_name
from lockstep.log.hazelcast.handshake import check_version, find_member
from lockstep.log.network.address import parse_address
from lockstep.runtime import ThreadRuntime

RUNTIME = ThreadRuntime()
FINAL, NULL = 1 << 13, 1 << 10


def frame(content=b"", flags=0):
    return struct.pack("<iH", len(content) + 6, flags) + content


def answer(status, version):
    """What a member says to somebody who wants in."""
    first = struct.pack("<iqB", 257, 1, 0) + bytes([status]) + bytes(17) + b"\x01" + struct.pack("<i", 271) + bytes(18)
    return frame(first, 3 << 14) + frame(flags=NULL) + frame(version.encode(), FINAL)


@contextmanager
def member(*answers):
    """Something that listens, and answers each who connects; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for what in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(what)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def hello(*ports, cluster="dev", **options):
    target = "//app:topsecret@" + ",".join(f"127.0.0.1:{port}" for port in ports)
    address = parse_address("hazelcast", target, options, environ={}, default_port=PORT, known=OPTIONS)
    return find_member(address, cluster, RUNTIME.new_id(), RUNTIME.monotonic)


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_member_that_lets_us_in_tells_its_version():
    with member(answer(0, "5.5.0")) as port:
        assert hello(port).version == "5.5.0"


def test_a_wrong_password_or_cluster_is_refused_without_showing_the_password():
    with member(answer(1, "5.5.0")) as port, pytest.raises(ServerRefused, match="not called 'dev'") as caught:
        hello(port)
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "error"), [(2, ServerUnfit), (3, ServerRefused), (77, ServerRefused)], ids=["format", "kind", "unknown"]
)
def test_other_refusals_are_told_apart(status, error):
    with member(answer(status, "5.5.0")) as port, pytest.raises(error):
        hello(port)


@pytest.mark.parametrize("version", ["3.12.13", "3.9-SNAPSHOT", "", "nonsense"])
def test_a_server_before_4_is_unfit(version):
    with member(answer(0, version)) as port, pytest.raises(ServerUnfit, match=r"Hazelcast 4\.0 or later"):
        hello(port)


@pytest.mark.parametrize("version", ["4.0", "4.2.8", "5.5.0", "5.6.0-SNAPSHOT", "10.0.1"])
def test_a_server_from_4_on_is_fit(version):
    check_version(version, "server")


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(b"\x00" * 20, FINAL), frame(b"", FINAL)])
def test_something_else_that_listens_is_unfit(said):
    with member(said) as port, pytest.raises(ServerUnfit, match="does not answer as Hazelcast"):
        hello(port)


def test_a_connection_that_is_closed_at_once_is_no_server():
    with member(b"") as port, pytest.raises(ServerUnreachable, match=r"closed the connection|reset"):
        hello(port)


def test_a_refusal_tells_more_than_an_address_where_nobody_is():
    with member(answer(1, "5.5.0")) as port, pytest.raises(ServerRefused):
        hello(closed_port(), port)


def test_one_good_member_is_enough():
    with member(answer(0, "5.5.0")) as port:
        assert hello(closed_port(), port).host == ("127.0.0.1", port)


def test_tls_to_a_plain_server_is_refused_with_the_reason():
    with member(b"this is not TLS") as port, pytest.raises(ServerRefused, match="no TLS connection"):
        hello(port, tls="true")


def test_the_client_is_set_to_end_every_call_and_never_to_send_twice():
    options = {"timeout_s": "4", "user": "app"}
    address = parse_address("hazelcast", "//h1:1,h2", options, environ={}, default_port=PORT, known=OPTIONS)
    config = settings(address, "orders")
    assert config.cluster_name == "orders"
    assert config.cluster_members == ["h1:1", "h2:5701"]
    assert config.creds_username == "app"
    assert config.redo_operation is False
    assert config.fail_on_indeterminate_operation_state is True
    assert (config.invocation_timeout, config.heartbeat_timeout, config.heartbeat_interval) == (4, 4, 1)


def test_the_client_goes_first_to_the_member_that_answered():
    address = parse_address("hazelcast", "//h1:1,h2,h3", {}, environ={}, default_port=PORT, known=OPTIONS)
    config = settings(address, "dev", ("h2", 5701))
    assert config.cluster_members == ["h2:5701", "h1:1", "h3:5701"]
    assert config.shuffle_member_list is False


def test_tls_files_reach_the_client(tmp_path):
    files = {name: str(tmp_path / name) for name in ("ca", "cert", "key")}
    for name in files:
        (tmp_path / name).touch()
    address = parse_address("hazelcast", "//h1", files, environ={}, default_port=PORT, known=OPTIONS)
    config = settings(address, "dev")
    assert config.ssl_enabled
    assert config.ssl_check_hostname
    assert (config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile) == tuple(files.values())


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        ("//h", {"backups": "7"}, "0 to 6"),
        ("//h", {"backups": "one"}, "whole number"),
        ("//h", {"prefix": "a@b"}, "neither @"),
        ("//h", {"prefix": "a*"}, "neither @"),
        ("//h", {"ring": "x"}, "no option 'ring'"),
        ("h:1", {}, "write hazelcast://HOST:PORT"),
    ],
)
def test_a_url_that_can_not_be_is_refused_before_anything_is_sent(target, options, reason):
    with pytest.raises(BadUrl, match=reason):
        open_bus(target, options, RUNTIME, {})


@pytest.mark.parametrize("name", ["orders", "_group.workers", "orders/3", "trades.S", "x.R.0af3"])
@pytest.mark.parametrize("prefix", ["", "app."])
def test_the_name_of_a_ring_holds_stream_and_identity(name, prefix):
    ring = ring_name(prefix, name, "0af3")
    assert ring == f"{prefix}{name}@0af3"


def test_the_catalogue_is_a_map_with_the_prefix():
    assert map_name("app.") == "app._lockstep.streams"
    assert check_prefix("app.", "url") == "app."


@pytest.fixture
def client():
    """The parts of the installed client that are used: its own classes, put together without a connection."""
    made = object.__new__(import_module("hazelcast.client").HazelcastClient)
    made._reactor = import_module("hazelcast.reactor").AsyncoreReactor()
    made._connection_manager = object.__new__(import_module("hazelcast.connection").ConnectionManager)
    made._connection_manager._connection_listeners = []
    yield made
    made._reactor._loop.waker.close()


def test_the_thread_of_the_client_is_woken_even_if_it_is_thought_to_be_awake(client):
    waker = client._reactor._loop.waker
    waker.awake = True  # as it stays when a call comes while the thread goes through its wake-ups
    waker.wake()
    assert not select.select([waker.socket], [], [], 0)[0], "the client repaired it: remove mend_waking"
    patch_waking(client)
    waker.wake()
    assert select.select([waker.socket], [], [], 0)[0]


def test_lost_connections_of_the_client_are_reported(client):
    listen_to_lost_connections(client, print)
    assert client._connection_manager._connection_listeners == [(None, print)]


def test_a_client_that_is_built_in_another_way_is_left_alone():
    other = SimpleNamespace(_reactor=SimpleNamespace(_loop="another one"), _connection_manager="another one")
    before = vars(other).copy()
    patch_waking(other)
    listen_to_lost_connections(other, print)
    assert vars(other) == before
