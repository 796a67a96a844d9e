"""Messages that came before: known by their agent's number, or, of agents that do not number, by their digest."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from lockstep.monitor.core.documents import encode
from lockstep.monitor.core.state import ClientState, FleetState

Json = dict[str, Any]
AGENTS_KEPT, DIGESTS_KEPT = 16, 50
"""How many names are remembered that a client's agents number under, two for each start, and how many messages without.

A broker delivers again what a server had in its hands, in order: as many as its prefetch, perhaps of one client.
"""
REDELIVERED = b'{"_redelivered":true,'


def redelivered(message: bytes) -> bytes:
    """A message as it is appended if the broker delivered it again; anything but an object stays as it is."""
    rest = message.lstrip()
    return REDELIVERED + rest[1:] if rest.startswith(b"{") and not rest[1:].lstrip().startswith(b"}") else message


def is_copy(fleet: FleetState, client: ClientState, kind: str, document: Json, value: bytes) -> bool:
    """Whether this message was taken before; if not, it is remembered."""
    agent, number = document.get("_agent"), document.get("_n")
    if isinstance(agent, str) and type(number) is int and 0 < len(agent) <= 128:
        found = number <= client.agents.get(agent, 0)
        if not found:
            note_number(client, agent, number)
    else:
        digest = kind + _digest(document, value)
        found = document.get("_redelivered") is True and digest in client.digests
        if not found:
            note_digest(client, digest)
    fleet.mark(client.name)
    if found:
        fleet.count("copies")
    return found


def note_number(client: ClientState, agent: str, number: int) -> None:
    """The number of the last message of an agent."""
    client.agents[agent] = number
    while len(client.agents) > AGENTS_KEPT:
        del client.agents[next(iter(client.agents))]


def note_digest(client: ClientState, digest: str) -> None:
    """The digest of a message without a number."""
    client.digests.append(digest)
    same = [place for place, each in enumerate(client.digests) if each[0] == digest[0]]
    if len(same) > DIGESTS_KEPT:
        del client.digests[same[0]]


def _digest(document: Json, value: bytes) -> str:
    if value.startswith(REDELIVERED):
        value = b"{" + value[len(REDELIVERED) :]
    elif "_redelivered" in document:
        value = encode({name: item for name, item in document.items() if name != "_redelivered"})
    return digest_of(value)


def digest_of(value: bytes) -> str:
    """The remembered facts of a message."""
    return blake2b(value, digest_size=8).hexdigest()
