"""An encrypted connection to a real Hazelcast: TLS ends at a small gate before the member."""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import ssl
import subprocess
import threading
import uuid

import pytest

import lockstep.log.hazelcast.driver  # noqa: F401 - the client warns when it is imported, and this keeps that quiet
from lockstep import StreamConfig
from lockstep.errors import ServerRefused
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values

# The client asks Python for TLS in a way that is deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def gate(certificate, hazelcast_server):
    """The port of a gate: TLS outside, plain to the member."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    ending = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context, hazelcast_server.port, ending), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        ending.set()
        thread.join(10)
        assert not thread.is_alive()


def _serve(listener, context, target, ending):
    threads = []
    while not ending.is_set():
        if select.select([listener], [], [], 0.05)[0]:
            client, _ = listener.accept()
            threads.append(threading.Thread(target=_pass_on, args=(client, context, target, ending), daemon=True))
            threads[-1].start()
    for thread in threads:
        thread.join(10)


def _pass_on(client, context, target, ending):
    with (
        contextlib.suppress(OSError),  # the client may go at any time
        client,
        socket.create_connection(("127.0.0.1", target)) as server,
        context.wrap_socket(client, server_side=True) as outside,
    ):
        other = {outside: server, server: outside}
        while not ending.is_set():
            ready = [outside] if outside.pending() else select.select([outside, server], [], [], 0.05)[0]
            for end in ready:
                piece = end.recv(65536)
                if not piece:
                    return
                other[end].sendall(piece)


def test_records_go_through_an_encrypted_connection(gate, certificate):
    url = f"hazelcast://127.0.0.1:{gate}?prefix=t{uuid.uuid4().hex}.&ca={certificate[0]}"
    bus = open_bus(url, ThreadRuntime())
    log = bus.create("orders", StreamConfig(capacity=None))
    log.append([Producer().batch(b"a", b"x" * 1_000_000)])
    assert values(log) == [b"a", b"x" * 1_000_000]
    bus.close()


def test_a_certificate_that_nobody_signed_is_refused(gate):
    with pytest.raises(ServerRefused, match="no TLS connection"):
        open_bus(f"hazelcast://127.0.0.1:{gate}?tls=true", ThreadRuntime())
