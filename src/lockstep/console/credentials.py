"""Tokens and sessions on the bus: every server knows them, and a revoked one is refused everywhere within a second."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from typing import Any

from lockstep.console.errors import CredentialNotFound
from lockstep.console.ledger import Ledger
from lockstep.errors import BadArgument
from lockstep.log.config import StreamConfig, check_name
from lockstep.runtime import Runtime
from lockstep.server.access import Credential, Credentials, Principal, Role, areas_of, digest
from lockstep.streams.client import Lockstep

TOKENS, SESSIONS = "console.tokens", "console.sessions"
SESSION_S = 12 * 3600
TOKENS_MAX, SESSIONS_MAX = 1000, 10_000
FRESH_S = 0.5
"""How old what is known of tokens may be."""
_SECRET_BYTES = 32


class CredentialStore:
    """Issues, checks and revokes credentials. Safe to share between threads."""

    def __init__(self, client: Lockstep, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tokens, self._sessions = Credentials(), Credentials()
        self._lock = threading.RLock()
        self._followed = -FRESH_S
        self._token_log = Ledger(
            client, TOKENS, StreamConfig(capacity=None), lambda record: _take(self._tokens, record)
        )
        kept = StreamConfig(retain_age_s=2.0 * SESSION_S)
        self._session_log = Ledger(client, SESSIONS, kept, lambda record: _take(self._sessions, record))

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._runtime.wall_ns() // 10**6

    def has_tokens(self) -> bool:
        """Whether there is any valid token."""
        return bool(self.tokens())

    def tokens(self) -> list[Credential]:
        """All valid tokens, by name."""
        with self._lock:
            self._follow()
            found = [known for known in self._tokens.by_id.values() if known.is_valid(self.now_ms)]
        return sorted(found, key=lambda known: (known.name, known.id))

    def issue(
        self, name: str, role: Role, scope: Sequence[str] = (), lifetime_s: float | None = None
    ) -> tuple[Credential, str]:
        """Create a token; its secret is returned here and never again."""
        check_name("Token", name)
        if len(self.tokens()) >= TOKENS_MAX:
            raise BadArgument(name="name", value=name, reason=f"there are {TOKENS_MAX} tokens, as many as there may be")
        secret = _new_secret()
        made = Credential(
            id=secrets.token_hex(4), name=name, role=role, digest=digest(secret), created_ms=self.now_ms,
            scope=areas_of(scope), expires_ms=None if lifetime_s is None else self.now_ms + round(lifetime_s * 1000),
        )  # fmt: skip
        self._store(self._token_log, {"put": made.dump()})
        return made, secret

    def rotate(self, id_: str) -> tuple[Credential, str]:
        """Give a token a new secret; the old one is refused from then on, and so are sessions that it began."""
        secret = _new_secret()
        with self._lock:
            made = self._tokens.extended(self.found(id_).id, digest(secret))
        self._end_sessions(made.id)
        self._store(self._token_log, {"put": made.dump()})
        return made, secret

    def revoke(self, id_: str) -> Credential:
        """End a token and the sessions that it began."""
        known = self.found(id_)
        self._store(self._token_log, {"revoke": known.id})
        self._end_sessions(known.id)
        return known

    def found(self, id_: str) -> Credential:
        """The token of an id, or the only one of a name; CredentialNotFound."""
        valid = self.tokens()
        matching = [known for known in valid if known.id == id_] or [known for known in valid if known.name == id_]
        if len(matching) != 1:
            raise CredentialNotFound(name=id_)
        return matching[0]

    def bearer(self, secret: str) -> Principal | None:
        """Return the owner of this token."""
        with self._lock:
            known = self._found(self._tokens, secret)
        return None if known is None else known.principal()

    def sign_in(self, secret: str) -> tuple[Principal, str] | None:
        """Begin a session with a token; None if it is not valid."""
        with self._lock:
            known = self._found(self._tokens, secret)
            if known is None:
                return None
            ends = self.now_ms + SESSION_S * 1000
            session = _new_secret()
            made = Credential(
                id=secrets.token_hex(8), name=known.name, role=known.role, digest=digest(session), scope=known.scope,
                created_ms=self.now_ms, expires_ms=min(ends, known.expires_ms or ends), token=known.id,
            )  # fmt: skip
            self._sessions.drop_expired(self.now_ms)
        self._store(self._session_log, {"put": made.dump()})
        return made.principal(session), session

    def sign_out(self, secret: str) -> None:
        """End a session."""
        with self._lock:
            known = self._sessions.find(secret, self.now_ms)
        if known is not None:
            self._store(self._session_log, {"revoke": known.id})

    def session(self, secret: str) -> Principal | None:
        """Return the owner of a session; None if it is unknown or its token is no longer valid."""
        with self._lock:
            known = self._found(self._sessions, secret)
            token = None if known is None else self._tokens.by_id.get(known.token)
            is_valid = token is not None and token.is_valid(self.now_ms)
        return known.principal(secret) if known is not None and is_valid else None

    def expiry(self, principal: Principal) -> tuple[int | None, int | None]:
        """When the token of a caller ends, and when the session does; None for what does not, or is not there."""
        with self._lock:
            token = self._tokens.by_id.get(principal.credential)
            session = self._sessions.find(principal.session, self.now_ms) if principal.session else None
        return None if token is None else token.expires_ms, None if session is None else session.expires_ms

    def close(self) -> None:
        """Close the streams."""
        self._token_log.close()
        self._session_log.close()

    def _end_sessions(self, token: str) -> None:
        with self._lock:
            ending = [known.id for known in self._sessions.by_id.values() if known.token == token]
        for id_ in ending:
            self._store(self._session_log, {"revoke": id_})

    def _store(self, log: Ledger, record: dict[str, Any]) -> None:
        log.append(record)
        with self._lock:
            self._followed = -FRESH_S
            log.follow()

    def _found(self, among: Credentials, secret: str) -> Credential | None:
        """Return the credential with this secret; one that another server has just created is read now."""
        self._follow()
        known = among.find(secret, self.now_ms)
        if known is None:
            self._followed = -FRESH_S
            self._follow()
            known = among.find(secret, self.now_ms)
        return known

    def _follow(self) -> None:
        now = self._runtime.monotonic()
        if now - self._followed >= FRESH_S:
            self._token_log.follow()
            self._session_log.follow()
            self._followed = now


def _take(known: Credentials, record: dict[str, Any]) -> None:
    if "put" in record:
        known.put(Credential.load(record["put"]))
    else:
        known.revoke(str(record["revoke"]))


def _new_secret() -> str:
    return f"lockstep_{secrets.token_urlsafe(_SECRET_BYTES)}"
