"""A real HTTP receiver on loopback that answers as the path says, and remembers what it got."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

WAIT_S = 30.0


@dataclass(frozen=True)
class Received:
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str:
        return dict(self.headers)[name]


@dataclass
class Receiver:
    """/status/CODE?body=TEXT answers so; /gate holds requests until `open_gate`; the others misbehave."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    inside: int = 0
    most_inside: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)
    connections: int = 0

    def url(self, path: str = "/status/200", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def wait_inside(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.inside >= count, WAIT_S), f"{self.inside} of {count}"

    def open_gate(self) -> None:
        self.gate.set()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            with receiver.changed:
                receiver.connections += 1
                self.number = receiver.connections

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got = Received(self.path, list(self.headers.items()), body, self.number)
            with receiver.changed:
                receiver.received.append(got)
                receiver.inside += 1
                receiver.most_inside = max(receiver.most_inside, receiver.inside)
                receiver.changed.notify_all()
            try:
                self._answer(urlsplit(self.path).path.split("/")[1:])
            except (ConnectionError, TimeoutError):
                self.close_connection = True
            finally:
                with receiver.changed:
                    receiver.inside -= 1

        def _answer(self, words: list[str]) -> None:
            query = parse_qs(urlsplit(self.path).query)
            match words:
                case ["status", code]:
                    self._send(int(code), query.get("body", [""])[0].encode())
                case ["gate"]:
                    receiver.gate.wait(WAIT_S)
                    self._send(200, b"ok")
                case ["slow-body", code]:
                    self._head(int(code), 1000)
                    self.wfile.write(b"begun")
                    receiver.gate.wait(WAIT_S)
                    self.close_connection = True
                case ["huge", code]:
                    self._head(int(code), 64 << 20)
                    for _ in range(1024):
                        self.wfile.write(b"x" * 65536)
                case ["redirect", code]:
                    self._send(int(code), b"", Location="http://169.254.169.254/latest/meta-data")
                case ["hang-up"]:
                    self.close_connection = True
                case ["nonsense"]:
                    self.wfile.write(b"220 this is no HTTP\r\n\r\n")
                    self.close_connection = True
                case ["echo"]:
                    self._send(403, str(self.headers).encode())
                case ["cookie"]:
                    self._send(200, b"", **{"Set-Cookie": "session=1"})

        def _send(self, code: int, body: bytes, **headers: str) -> None:
            self._head(code, len(body), **headers)
            self.wfile.write(body)

        def _head(self, code: int, length: int, **headers: str) -> None:
            self.send_response(code)
            for name, text in {"Content-Length": str(length), **headers}.items():
                self.send_header(name, text)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that goes away is what some tests are about."""


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    receiver = Receiver()
    server = _Server(("127.0.0.1", 0), _handler(receiver))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.open_gate()
        server.shutdown()
        server.server_close()
        thread.join()
