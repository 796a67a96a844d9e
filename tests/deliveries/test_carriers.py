"""The handlers that come with carriers, each against the real thing: HTTP, commands, streams."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import lockstep
from lockstep.carriers.command import Command
from lockstep.carriers.http import HttpPost
from lockstep.carriers.stream import ToStream
from lockstep.errors import BadArgument, DeliveryRefused, ServerUnreachable, SystemFailed
from lockstep.net.addresses import AddressRules
from lockstep.net.signatures import signature_headers, signing_key
from lockstep.streams.outbox import Item

LOOPBACK = AddressRules(allow_loopback=True)
NO_URLS = (
    "", "ftp://example.org/", "http://", "http://a b/", "http://example.org:x/", "http://me:pa55@example.org/",
    "http://example.org/\r\nX: y", "file:///etc/passwd",
)  # fmt: skip


def item(body=b"hello", **given):
    known = {"id": "i-1", "kind": "page", "key": b"k", "headers": (), "stream": "outbox", "offset": 7, "attempt": 2,
             "in_doubt": True, "epoch": 3}  # fmt: skip
    return Item(body=body, **{**known, **given})


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, status=204, text=b""):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.text, self.requests = status, text, []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/a?b=c"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", str(len(self.server.text)))
        self.end_headers()
        self.wfile.write(self.server.text)

    def log_message(self, *_):
        pass


@contextmanager
def drip():
    """A server whose answer never ends: a byte now and then."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                while not ended.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(20)


def post(url, **options):
    return HttpPost(url, **{"addresses": LOOPBACK, **options})


def test_an_item_is_posted_with_its_id_as_idempotency_key():
    with Receiver() as receiver:
        post(receiver.url, headers={"Authorization": "Bearer x"})(item())
        post(receiver.url)(item(id="ü", in_doubt=False, headers=(("content-type", b"text/plain"),)))
    (path, headers, body), (_, other, _) = receiver.requests
    assert (path, body) == ("/a?b=c", b"hello")
    assert (headers["Idempotency-Key"], headers["Lockstep-Attempt"], headers["Lockstep-In-Doubt"]) == (
        "i-1",
        "2",
        "true",
    )
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer x", "application/octet-stream")
    assert (other["Idempotency-Key"], other["Content-Type"]) == ("c3bc", "text/plain")
    assert "Lockstep-In-Doubt" not in other


def test_requests_are_signed_with_a_secret():
    with Receiver() as receiver:
        post(receiver.url, secret="whsec_c2VjcmV0", wall_s=lambda: 1_700_000_000.5)(item())
    [(_, headers, body)] = receiver.requests
    expected = signature_headers(signing_key("whsec_c2VjcmV0"), "i-1", 1_700_000_000, body)
    assert {name.lower(): text for name, text in headers.items()}.items() >= expected.items()


@pytest.mark.parametrize("status", [301, 408, 425, 429, 500, 503])
def test_what_may_pass_is_tried_again(status):
    with Receiver(status) as receiver, pytest.raises(ServerUnreachable, match=str(status)):
        post(receiver.url)(item())
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_what_can_not_pass_refuses_the_item(status):
    with Receiver(status, b"no \x1b[31m such\nuser") as receiver, pytest.raises(DeliveryRefused) as refused:
        post(receiver.url)(item())
    assert refused.value.params["reason"] == f"HTTP {status}: no  [31m such user"


def test_nobody_there_an_early_end_and_silence_are_tried_again():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ServerUnreachable, match=f"127.0.0.1:{port}"):
            post(f"http://127.0.0.1:{port}/", timeout_s=0.2)(item())
    with drip() as place, pytest.raises(ServerUnreachable):
        post(f"{place}/", timeout_s=0.3)(item())
    with pytest.raises(ServerUnreachable, match="refused"):
        post(f"http://127.0.0.1:{port}/")(item())


def test_addresses_that_must_not_be_called_are_not():
    with Receiver() as receiver:
        with pytest.raises(BadArgument, match="loopback"):
            HttpPost(receiver.url)
        by_name = HttpPost(f"http://localhost:{receiver.server_port}/")
        with pytest.raises(DeliveryRefused, match="loopback"):
            by_name(item())
        with pytest.raises(BadArgument, match="link-local"):
            post("http://169.254.169.254/latest")
    assert receiver.requests == []


@pytest.mark.parametrize("url", NO_URLS)
def test_what_is_no_url_is_refused_and_not_repeated(url):
    with pytest.raises(BadArgument) as refused:
        post(url)
    assert "pa55" not in str(refused.value)


@pytest.mark.parametrize("headers", [{"Host": "x"}, {"a b": "x"}, {"X": "a\nb"}, {"Idempotency-Key": "x"}, {"X": "ü"}])
def test_headers_that_can_not_be_are_refused(headers):
    with pytest.raises(BadArgument):
        post("http://example.org/", headers=headers)


def command(*words, **options):
    return Command(words, environment=dict(os.environ), **options)


def test_a_command_gets_the_body_and_the_item_in_its_environment(tmp_path):
    found = tmp_path / "found"
    environment = {**os.environ, "LOCKSTEP_DELIVERY_ID": "stale", "OTHER": "kept"}
    Command(["/bin/sh", "-c", f"cat > {found}; env >> {found}"], environment=environment)(item(b"body\n"))
    lines = found.read_text().splitlines()
    assert lines[0] == "body"
    told = {line.partition("=")[0]: line.partition("=")[2] for line in lines[1:]}
    names = ("ID", "KIND", "KEY", "STREAM", "OFFSET", "ATTEMPT", "EPOCH", "IN_DOUBT")
    assert [told[f"LOCKSTEP_DELIVERY_{name}"] for name in names] == ["i-1", "page", "k", "outbox", "7", "2", "3", "1"]
    assert told["OTHER"] == "kept"


def test_no_shell_reads_the_words_of_a_command(tmp_path):
    command("touch", f"{tmp_path}/a;b")(item())
    assert [path.name for path in tmp_path.iterdir()] == ["a;b"]
    command("/bin/sh", "-c", 'test "$1" = "; exit 1"', "sh", "; exit 1")(item())
    with pytest.raises(BadArgument):
        Command("echo x", environment={})
    with pytest.raises(BadArgument):
        Command([], environment={})


def test_the_status_of_a_command_says_what_becomes_of_the_item():
    with pytest.raises(DeliveryRefused, match="65: no such user"):
        command("/bin/sh", "-c", "echo no such user >&2; exit 65")(item())
    with pytest.raises(SystemFailed, match="ended with 3"):
        command("/bin/sh", "-c", "exit 3")(item())
    with pytest.raises(SystemFailed, match="No such file"):
        command("/no/such/program")(item())
    command("true")(item(b"x" * 1_000_000))  # that it does not read its input is no failure


def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path):
    pid = tmp_path / "pid"
    with pytest.raises(SystemFailed, match=r"longer than 0\.3 s"):
        command("/bin/sh", "-c", f"sleep 60 & echo $! > {pid}; wait", timeout_s=0.3)(item())
    child = int(pid.read_text())
    for _ in range(500):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or " Z " in state.read_text():
            return
        time.sleep(0.01)
    pytest.fail("the child still runs")


def test_a_key_that_is_no_text_does_not_stop_a_command():
    command(sys.executable, "-c", "import os; assert 'LOCKSTEP_DELIVERY_KEY' not in os.environ")(item(key=b"a\0b"))
    command("/bin/sh", "-c", 'test -n "$LOCKSTEP_DELIVERY_KEY"')(item(key=b"\xff"))


def test_an_item_is_published_once_where_the_bus_can():
    with lockstep.connect("memory:to-stream") as bus:
        bus.create("wide", lockstep.StreamConfig(shards=3))
        for target in ("narrow", "wide"):
            handler = ToStream(bus, target)
            for one in (item(), item(in_doubt=True), item(id="i-2", key=None, headers=(("a", b"b"),))):
                handler(one)
            with bus.subscriber(target, initial="earliest") as reader:
                records = []
                while batch := reader.poll(0.0):
                    records += batch
            found = sorted((record.header("delivery-id"), record.key, record.header("a")) for record in records)
            assert found == [(b"i-1", b"k", None), (b"i-2", None, b"b")]
    with pytest.raises(BadArgument):
        ToStream(bus, "")
