"""Who may do what: roles, credentials and tokens; and who may listen without one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from lockstep.server.errors import TokenFileUnusable, TokenNeeded

EVERYWHERE = "*"


class Role(IntEnum):
    """What a caller may do; each role may do what those before it may."""

    VIEWER = 1
    """Look at everything that is not a secret."""
    OPERATOR = 2
    """Change what runs: publish, reset, pause, silence, hand over."""
    ADMIN = 3
    """Delete, and give and take credentials."""

    @classmethod
    def named(cls, name: str) -> Role:
        """The role of that name; KeyError for another one."""
        return cls[name.upper()]

    @property
    def label(self) -> str:
        """As it is written everywhere."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller whose credential was checked."""

    name: str
    role: Role
    scope: tuple[str, ...] = (EVERYWHERE,)
    credential: str = ""
    """The id of the credential; empty for callers without one."""
    session: str = ""
    """The secret of the session, for pages; empty for callers with a token."""

    def may(self, role: Role, area: str) -> bool:
        """Whether the caller may do something that needs this role in this area, as `streams`."""
        return self.role >= role and (EVERYWHERE in self.scope or area in self.scope)


ANONYMOUS = Principal("anonymous", Role.VIEWER)
"""A caller on this machine without a credential."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Credential:
    """A token, or the session that a page began with one. Its secret is known to its bearer alone."""

    id: str
    name: str
    role: Role
    digest: str
    created_ms: int
    expires_ms: int | None = None
    scope: tuple[str, ...] = (EVERYWHERE,)
    token: str = ""
    """For a session: the id of the token that started it; revoking the token ends the session."""

    def is_valid(self, now_ms: int) -> bool:
        """Whether it has not expired."""
        return self.expires_ms is None or now_ms < self.expires_ms

    def principal(self, session: str = "") -> Principal:
        """Its bearer."""
        return Principal(self.name, self.role, self.scope, self.token or self.id, session)

    def dump(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id, "name": self.name, "role": self.role.label, "digest": self.digest, "scope": list(self.scope),
            "created_ms": self.created_ms, "expires_ms": self.expires_ms, "token": self.token,
        }  # fmt: skip

    @classmethod
    def load(cls, tree: Mapping[str, Any]) -> Credential:
        """From plain data; KeyError, TypeError or ValueError for what is none."""
        return cls(
            id=str(tree["id"]), name=str(tree["name"]), role=Role.named(tree["role"]), digest=str(tree["digest"]),
            created_ms=int(tree["created_ms"]), scope=tuple(map(str, tree["scope"])), token=str(tree["token"]),
            expires_ms=None if tree["expires_ms"] is None else int(tree["expires_ms"]),
        )  # fmt: skip


def digest(secret: str) -> str:
    """What is stored of a secret. Secrets are long and random, so that one round is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(slots=True)
class Credentials:
    """All credentials, as their records put and revoked them."""

    by_id: dict[str, Credential] = field(default_factory=dict)
    _by_digest: dict[str, str] = field(default_factory=dict)

    def put(self, credential: Credential) -> None:
        """Take a new credential, or the new secret of one."""
        self.revoke(credential.id)
        self.by_id[credential.id] = credential
        self._by_digest[credential.digest] = credential.id

    def revoke(self, id_: str) -> None:
        """Forget a credential; one that is not known is left alone."""
        known = self.by_id.pop(id_, None)
        if known is not None:
            self._by_digest.pop(known.digest, None)

    def find(self, secret: str, now_ms: int) -> Credential | None:
        """The credential with this secret, if it is valid. Looking up a digest tells nothing about the others."""
        found = self.by_id.get(self._by_digest.get(digest(secret), ""))
        return found if found is not None and found.is_valid(now_ms) else None

    def drop_expired(self, now_ms: int) -> None:
        """Forget what has expired."""
        for id_ in [known.id for known in self.by_id.values() if not known.is_valid(now_ms)]:
            self.revoke(id_)

    def extended(self, id_: str, new_digest: str) -> Credential:
        """A credential with another secret."""
        return replace(self.by_id[id_], digest=new_digest)


def areas_of(scope: Iterable[str]) -> tuple[str, ...]:
    """A scope in a fixed order, each area once; everywhere if it says so."""
    found = tuple(sorted(set(scope)))
    return (EVERYWHERE,) if EVERYWHERE in found or not found else found


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
