"""Pillars of the console without a server: a caller that asks the app for pages and for data, and carries out acts."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

from lockstep.console.app import ConsoleApp
from lockstep.console.audit import AuditLog
from lockstep.console.credentials import CredentialStore
from lockstep.console.home import HomeView
from lockstep.console.port import Site
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import ThreadRuntime
from lockstep.server.access import Role
from lockstep.streams.client import Lockstep

for _folder in ("schedule", "monitor"):  # their worlds are used here, too
    sys.path.append(str(Path(__file__).parents[1] / _folder))

from fleet_world import FleetWorld  # noqa: E402
from schedule_worlds import World  # noqa: E402

__all__ = ["Caller", "FleetWorld", "World", "part", "site_of"]


class Caller:
    """Asks the app as uvicorn would. `tokens` has one of each role."""

    def __init__(self, site, *pillars):
        # Credentials and the audit log have a bus of their own, in real time.
        own = ThreadRuntime()
        self._client = Lockstep(MemoryBroker().bus(own), own)
        self._credentials = CredentialStore(self._client, own)
        self._audit = AuditLog(self._client, own, "test")
        self.app = ConsoleApp(site, [HomeView(pillars).pillar(), *pillars], self._credentials, self._audit)
        self.tokens = {role: self._credentials.issue(role.label, role)[1] for role in Role}

    def ask(self, method, target, body=None, *, role=Role.VIEWER, accept="text/html"):
        """The status and the text of an answer."""
        parts = urlsplit(target)
        headers = {b"authorization": f"Bearer {self.tokens[role]}".encode(), b"accept": accept.encode()}
        scope = {
            "type": "http", "method": method, "path": parts.path, "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(), "headers": list(headers.items()), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}

        async def send(message):
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
        return sent[0]["status"], text

    def page(self, target, **more):
        """The HTML of a page that must be there."""
        status, text = self.ask("GET", target, **more)
        assert status == 200, (status, text)
        return text

    def data(self, target, *, status=200, role=Role.VIEWER):
        """The data of a view, or the error that is told."""
        found, text = self.ask("GET", f"/api/v1{target}", accept="application/json", role=role)
        assert found == status, (found, text)
        return json.loads(text)

    def act(self, target, *, status=200, role=Role.OPERATOR, **fields):
        """Carry out an act, or with dry_run see what it would do."""
        found, text = self.ask("POST", f"/api/v1{target}", fields, accept="application/json", role=role)
        assert found == status, (found, text)
        return json.loads(text)

    def close(self):
        self.app.close()
        self._audit.close()
        self._credentials.close()
        self._client.close()


def site_of(client):
    return Site(client, client.runtime, "test")


def part(text):
    """A name as a part of a path."""
    return quote(text, safe="")
