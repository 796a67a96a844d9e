"""The entry of a stream in the catalogue."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from lockstep.errors import BadName
from lockstep.log.config import StreamConfig

_NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class Stored:
    """What the catalogue says about a log."""

    identity: str
    config: StreamConfig


def check_name(name: str) -> None:
    """Raise BadName for what no log may be called. What streams may be called is decided above, and is stricter."""
    if not 0 < len(name.encode()) <= _NAME_BYTES_MAX:
        raise BadName(what="Log", name=name)


def encode(stored: Stored, created_ns: int) -> bytes:
    """An entry as the server keeps it."""
    settings = {"identity": stored.identity, "created_ns": created_ns, "config": stored.config.to_dict()}
    return json.dumps(settings).encode()


def altered(entry: bytes, config: StreamConfig) -> bytes:
    """An entry with another configuration."""
    return json.dumps({**json.loads(entry), "config": config.to_dict()}).encode()


@lru_cache(maxsize=1024)
def decode(entry: bytes) -> Stored:
    """An entry from the server; transactions ask for the same ones again and again."""
    found = json.loads(entry)
    return Stored(found["identity"], StreamConfig.from_dict(found["config"]))
