"""A console over a bus in memory, asked without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from lockstep.console.administration import AdministrationViews
from lockstep.console.app import ConsoleApp
from lockstep.console.audit import AuditLog
from lockstep.console.border import SafeHeaders
from lockstep.console.credentials import CredentialStore
from lockstep.console.home import HomeView
from lockstep.console.mounts import Mount
from lockstep.console.port import Pillar, Site
from lockstep.console.sampler import Sampler
from lockstep.console.settings import ServerFacts
from lockstep.console.streams import StreamViews
from lockstep.server.access import Role
from lockstep.streams.client import Lockstep


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def tree(self) -> Any:
        return json.loads(self.body)


@dataclass
class ConsoleWorld:
    """A console; `secrets` are those of the tokens that were made here."""

    client: Lockstep
    pillars: Sequence[Pillar] = ()
    anonymous: bool = True
    mounts: Sequence[Mount] = ()
    names_s: float = 0.0
    sampled_every_s: float = 5.0
    secrets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        site = Site(self.client, self.client.runtime, "lockstep", self.names_s)
        self.sampler = Sampler(site, self.sampled_every_s)
        self.credentials = CredentialStore(self.client, self.client.runtime)
        self.audit = AuditLog(self.client, self.client.runtime, "here")
        found = [StreamViews(site, self.sampler).pillar(), *self.pillars,
                 AdministrationViews(site, self.credentials, self.audit, ServerFacts()).pillar()]  # fmt: skip
        self.app = ConsoleApp(
            site,
            [HomeView(found).pillar(), *found],
            self.credentials,
            self.audit,
            anonymous=self.anonymous,
            mounts=self.mounts,
        )

    def close(self) -> None:
        self.app.close()
        self.audit.close()
        self.credentials.close()

    def token(self, role: Role, *scope: str) -> str:
        made, secret = self.credentials.issue(f"{role.label}-{len(self.secrets)}", role, scope)
        self.secrets[made.id] = secret
        return secret

    def get(self, target: str, token: str | None = None, **headers: str) -> Answer:
        return self.ask("GET", target, token=token, headers=headers)

    def post(self, target: str, tree: Any = None, token: str | None = None) -> Answer:
        return self.ask("POST", target, token=token, body=b"" if tree is None else json.dumps(tree).encode())

    def form(self, target: str, fields: dict[str, str], cookie: str = "") -> Answer:
        headers = {"content-type": "application/x-www-form-urlencoded", "cookie": cookie, "accept": "text/html"}
        return self.ask("POST", target, headers=headers, body=urlencode(fields).encode())

    def sign_in(self, token: str) -> str:
        """The cookie of a session."""
        answer = self.form("/sign-in", {"token": token})
        assert answer.status == 303, answer.text
        return answer.headers["set-cookie"].partition(";")[0]

    def ask(
        self, method: str, target: str, *, token: str | None = None, headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:  # fmt: skip
        parts = urlsplit(target)
        given = {"host": "127.0.0.1", **(headers or {})}
        if token is not None:
            given["authorization"] = f"Bearer {token}"
        scope = {
            "type": "http", "method": method, "path": parts.path, "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(), "client": ("127.0.0.1", 1),
            "headers": [(name.replace("_", "-").encode(), text.encode()) for name, text in given.items()],
        }  # fmt: skip
        sent: list[dict[str, Any]] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return waiting.pop() if waiting else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(SafeHeaders(self.app, is_tls=False)(scope, receive, send))
        told = {name.decode().lower(): text.decode() for name, text in sent[0]["headers"]}
        return Answer(sent[0]["status"], told, b"".join(message.get("body", b"") for message in sent[1:]))
