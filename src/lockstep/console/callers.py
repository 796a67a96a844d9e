"""Callers: their tokens and sessions, what they may do, and how often."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from lockstep.console.audit import AuditLog
from lockstep.console.credentials import SESSION_S, CredentialStore
from lockstep.console.errors import FormForged, RoleNeeded, SignInNeeded
from lockstep.console.limits import CHANGES, READS, SIGN_INS, UNKNOWN_CHANGES, UNKNOWN_READS, RateLimits
from lockstep.console.request import COOKIE, Request, query_of
from lockstep.server.access import ANONYMOUS, Principal, Role

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"


class Callers:
    """Knows who sends a request, and refuses those that may not. Safe to share between threads."""

    def __init__(
        self,
        credentials: CredentialStore,
        audit: AuditLog,
        monotonic: Callable[[], float],
        *,
        anonymous: bool = True,
        secure_cookie: bool = False,
    ) -> None:
        self._credentials, self._audit = credentials, audit
        self._anonymous, self._secure = anonymous, secure_cookie
        self._limits = RateLimits(monotonic)

    def principal(self, request: Request) -> Principal:
        """The caller; SignInNeeded for a credential that is not valid, and for none where one is needed."""
        token = request.bearer()
        if token is not None:
            found = self._credentials.bearer(token)
            if found is None:
                raise SignInNeeded()
            return found
        session = request.cookie()
        found = self._credentials.session(session) if session else None
        if found is not None:
            return found
        if not self._anonymous:
            raise SignInNeeded()
        return ANONYMOUS

    def admit(self, request: Request, role: Role, area: str, *, changes: bool = False) -> Principal:
        """The caller, if it may do this and not too often."""
        try:
            principal = self.principal(request)
        except SignInNeeded:
            self._refuse_unknown(request, changes=changes)
            raise
        self._limits.take(principal.credential or request.address, CHANGES if changes else READS)
        if not principal.may(role, area):
            if principal.credential == "":
                self._refuse_unknown(request, changes=changes)
                raise SignInNeeded()
            if changes:
                self._audit.event(principal, request.address, request.method, request.path, "refused")
            raise RoleNeeded(role=role.label, area=area, name=principal.name, own=principal.role.label,
                             scope=", ".join(principal.scope))  # fmt: skip
        return principal

    def _refuse_unknown(self, request: Request, *, changes: bool) -> None:
        """Log a request without a valid credential; raises TooFast for too many, so that the log stays small."""
        self._limits.take(f"unknown {request.address}", UNKNOWN_CHANGES if changes else UNKNOWN_READS)
        if changes:
            self._audit.event(ANONYMOUS, request.address, request.method, request.path, "refused")

    def sign_in(self, request: Request) -> str | None:
        """Begin a session with the token of a form; its cookie, or None for a token that is not valid."""
        self._limits.take(f"sign-in {request.address}", SIGN_INS)
        found = self._credentials.sign_in(query_of(request.body).get("token", "").strip())
        if found is None:
            self._audit.event(ANONYMOUS, request.address, "Sign in", SIGN_IN, "refused")
            return None
        principal, session = found
        self._audit.event(principal, request.address, "Sign in", SIGN_IN, "done")
        return self._cookie(session, SESSION_S)

    def sign_out(self, request: Request) -> str:
        """End the session of the caller; the cookie that takes the place of its own."""
        principal = self.principal(request)
        if principal.session:
            check_form(query_of(request.body).get("_form", ""), principal)
            self._credentials.sign_out(principal.session)
            self._audit.event(principal, request.address, "Sign out", SIGN_OUT, "done")
        return self._cookie("", 0)

    def _cookie(self, value: str, age_s: int) -> str:
        secure = "; Secure" if self._secure else ""
        return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}"


def form_token(principal: Principal) -> str:
    """What forms of a session carry: it follows from the session's secret, so that nothing has to be stored."""
    return hmac.new(principal.session.encode(), b"form", hashlib.sha256).hexdigest()


def check_form(given: str, principal: Principal) -> None:
    """FormForged for a form that is none of a page of this session."""
    if not principal.session or not hmac.compare_digest(given.encode(), form_token(principal).encode()):
        raise FormForged()
