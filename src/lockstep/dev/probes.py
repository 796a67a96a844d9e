"""Whether a server answers, asked in its own protocol over a plain socket: no client library is needed."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Callable
from typing import Any

from lockstep.dev.recipe import HOST

_TIMEOUT_S = 2.0
_PIECE = 65_536
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def ask(port: int, question: bytes, is_whole: Callable[[bytes], bool]) -> bytes:
    """What a port answers, until that is whole or nothing more comes; b"" if it does not answer."""
    answer = b""
    try:
        with socket.create_connection((HOST, port), timeout=_TIMEOUT_S) as connection:
            connection.sendall(question)
            while not is_whole(answer) and (piece := connection.recv(_PIECE)):
                answer += piece
    except OSError:
        return answer  # refused, reset or silent: it is not ready, and that is the answer
    return answer


def _of(size: int) -> Callable[[bytes], bool]:
    return lambda answer: len(answer) >= size


def listens(port: int) -> int:
    """Whether anything accepts a connection."""
    try:
        with socket.create_connection((HOST, port), timeout=_TIMEOUT_S):
            return 1
    except OSError:
        return 0


def redis(port: int) -> int:
    """PING; a server that still loads its file answers with an error."""
    return int(ask(port, b"PING\r\n", _of(5)).startswith(b"+PONG"))


def postgresql(port: int) -> int:
    """A start-up message; a server that still recovers answers with an error instead of a request to log in."""
    fields = b"user\0lockstep\0database\0postgres\0\0"
    return int(ask(port, struct.pack(">ii", 8 + len(fields), 3 << 16) + fields, _of(1)).startswith(b"R"))


def cassandra(port: int) -> int:
    """A frame OPTIONS of the native protocol, version 4; answered by a frame SUPPORTED."""
    answer = ask(port, struct.pack(">BBhBi", 4, 0, 0, 5, 0), _of(9))
    return int(len(answer) >= 9 and (answer[0], answer[4]) == (0x84, 6))


def zookeeper(port: int) -> int:
    """The command srvr, which is answered with the mode only by a server that serves."""
    return int(b"Mode:" in ask(port, b"srvr", lambda answer: b"Mode:" in answer))


def kafka(port: int) -> int:
    """A metadata request (version 4, no topics); the brokers that it names."""
    request = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">ib", 0, 0)
    answer = ask(port, struct.pack(">i", len(request)) + request, _of(16))
    if len(answer) < 16:
        return 0
    correlation, _throttle, brokers = struct.unpack_from(">iii", answer, 4)
    return int(brokers) if correlation == 1 else 0


def rabbitmq_stream(port: int) -> int:
    """A frame of peer properties of the stream protocol, without any; answered by a frame with code 1."""
    request = struct.pack(">HHII", 0x11, 1, 1, 0)
    answer = ask(port, struct.pack(">I", len(request)) + request, _of(14))
    if len(answer) < 14:
        return 0
    key, _version, correlation, code = struct.unpack_from(">HHIH", answer, 4)
    return int((key, correlation, code) == (0x8011, 1, 1))


def hazelcast(port: int) -> int:
    """The health pages; the size of the cluster once the member is active and every backup is where it belongs."""
    if _health(port, "node-state") != "ACTIVE" or _health(port, "migration-queue-size") != "0":
        return 0
    size = _health(port, "cluster-size")
    return int(size) if size.isdigit() else 0


def spark_master(port: int) -> int:
    """The page of a Spark master as JSON; whether it is the one in charge."""
    return int(_page(port, "/json/").get("status") == "ALIVE")


def spark_worker(port: int) -> int:
    """The page of a Spark worker as JSON; how many workers its master has, as soon as it is one of them."""
    at = _page(port, "/json/").get("masterwebuiurl", "").rpartition(":")[2].strip("/")
    return int(_page(int(at), "/json/").get("aliveworkers", 0)) if at.isdigit() else 0


def _is_page(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(end) and length is not None and len(body) >= int(length[1])


def _health(port: int, what: str) -> str:
    return _get(port, f"/hazelcast/health/{what}").decode(errors="replace").strip().strip('"')


def _page(port: int, path: str) -> dict[str, Any]:
    try:
        found = json.loads(_get(port, path))
    except ValueError:
        return {}  # nothing, or half of it: it is not ready
    return found if isinstance(found, dict) else {}


def _get(port: int, path: str) -> bytes:
    request = f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"
    return ask(port, request.encode(), _is_page).partition(b"\r\n\r\n")[2]
