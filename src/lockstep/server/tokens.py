"""Tokens: who may ask, and who may listen without one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import stat
from pathlib import Path

from lockstep.server.errors import TokenFileUnusable, TokenNeeded

_LEAST, _MOST = 16, 1024


def read_token(path: str | Path) -> str:
    """The token in a file: its only line, without blanks around it."""
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise TokenFileUnusable(path=str(path), reason="it is not a file that only its owner may use")
        with Path(path).open("rb") as file:
            data = file.read(_MOST + 2)
    except OSError as error:
        raise TokenFileUnusable(path=str(path), reason=error.strerror or "it can't be read") from None
    token = data.decode(errors="replace").strip()
    if not _LEAST <= len(token) <= _MOST or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenFileUnusable(path=str(path), reason="its content is no token")
    return token


def check_host(host: str, token: str | None) -> None:
    """Refuse to listen where others can reach it without a token."""
    if token is None and not is_loopback(host):
        raise TokenNeeded(host=host)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nothing else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class TokenCheck:
    """Compares what a request carries with the token, in a time that tells nothing about it."""

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)

    def allows(self, authorization: str | None) -> bool:
        """Whether the header of a request carries it."""
        scheme, _, given = (authorization or "").partition(" ")
        return hmac.compare_digest(_digest(given.strip()), self._digest) and scheme.lower() == "bearer"


class BasicCheck:
    """Compares what a request carries with a user and a password, in a time that tells nothing about them."""

    def __init__(self, user: str, password: str) -> None:
        self._digest = _digest(f"{user}:{password}")

    def allows(self, authorization: str | None) -> bool:
        """Whether the header of a request carries them."""
        scheme, _, given = (authorization or "").partition(" ")
        try:
            text = base64.b64decode(given.strip(), validate=True).decode()
        except ValueError:
            text = ""
        return hmac.compare_digest(_digest(text), self._digest) and scheme.lower() == "basic"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
