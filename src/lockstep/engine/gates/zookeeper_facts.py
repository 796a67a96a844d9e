"""What a ZooKeeper says of its own times: how soon it can notice that an engine is gone."""

from __future__ import annotations

import re
import socket
import struct
from dataclasses import dataclass

from lockstep.log.network.address import Address
from lockstep.log.network.driver import Finding

TICK_MS_MAX = 500
_ANSWER_BYTES = 65_536
_CONNECT = struct.Struct(">iqiqi16s?")
"""Version, last transaction seen, time-out, session, length of the password, password, read-only."""
_CONNECTED = struct.Struct(">iii")
"""Length of the answer, version, time-out granted."""
_GOODBYE = struct.pack(">iii", 8, 1, -11)


@dataclass(frozen=True, slots=True)
class Facts:
    """Milliseconds; None: it does not tell."""

    tick_ms: int | None = None
    session_ms: int | None = None
    """How long a session lasts there that was asked to last as long as the address says."""


def ask_facts(address: Address) -> Facts:
    """Ask the first server that answers; the ports of TLS are not asked."""
    for host, port in address.hosts if address.tls is None else ():
        try:
            return Facts(_tick_ms(host, port, address.timeout_s), _session_ms(host, port, address.timeout_s))
        except OSError:  # the client itself finds out whether any of them answers
            continue
    return Facts()


def judge_facts(address: Address, facts: Facts) -> list[Finding]:
    """What keeps a dead engine from being noticed in the time that was asked for."""
    server, asked_ms = address.safe_url, address.timeout_s * 1000
    if facts.tick_ms is not None and facts.tick_ms > TICK_MS_MAX:
        problem = f"its tickTime is {facts.tick_ms} ms, so a dead engine is noticed later than within a second"
        return [Finding(server, problem, f"tickTime to {TICK_MS_MAX} or less on {server}")]
    if facts.session_ms is not None and facts.session_ms > asked_ms:
        problem = f"a session there lasts {facts.session_ms} ms, not {asked_ms:.0f}: a dead engine is noticed later"
        return [Finding(server, problem, f"tickTime to {TICK_MS_MAX} or less, or minSessionTimeout, on {server}")]
    return []


def _tick_ms(host: str, port: int, timeout_s: float) -> int | None:
    """By the command conf, which many servers do not answer."""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(b"conf")
        answer = b""
        while len(answer) < _ANSWER_BYTES and (piece := connection.recv(4096)):
            answer += piece
    found = re.search(rb"^tickTime=(\d{1,9})$", answer, re.MULTILINE)
    return int(found[1]) if found else None


def _session_ms(host: str, port: int, timeout_s: float) -> int | None:
    """By a session of no use, which is closed at once; every server answers that."""
    body = _CONNECT.pack(0, 0, int(timeout_s * 1000), 0, 16, bytes(16), False)
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = b""
        while len(answer) < _CONNECTED.size and (piece := connection.recv(4096)):
            answer += piece
        connection.sendall(_GOODBYE)
    if len(answer) < _CONNECTED.size:
        return None
    return int(_CONNECTED.unpack_from(answer)[2])
