"""The style sheet and the script of the pages, held in memory."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from lockstep.server.bodies import Reply
from lockstep.server.errors import RouteNotFound

_KINDS = {"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8",
          "icon.svg": "image/svg+xml"}  # fmt: skip


def dashboard_text() -> str:
    """A dashboard over the metrics of the server, as Grafana imports it."""
    return (files("lockstep.console") / "static" / "grafana.json").read_text()


class StaticFiles:
    """Answers /static/NAME; a browser asks again whether it has changed."""

    def __init__(self) -> None:
        folder = files("lockstep.console") / "static"
        self._files = {name: (folder / name).read_bytes() for name in _KINDS}

    def dashboard(self) -> Reply:
        """The dashboard over /metrics, to import into Grafana."""
        return Reply(dashboard_text().encode())

    def reply(self, path: str, known: bytes) -> Reply:
        """A file, or 304 for one that the browser has; RouteNotFound."""
        name = path.removeprefix("/static/")
        if name not in self._files:
            raise RouteNotFound(path=path)
        tag = f'"{hashlib.blake2b(self._files[name], digest_size=8).hexdigest()}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        if known.decode("latin-1") == tag:
            return Reply(b"", 304, _KINDS[name], headers)
        return Reply(self._files[name], 200, _KINDS[name], headers)
