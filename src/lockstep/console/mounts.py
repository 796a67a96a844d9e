"""Other apps below a path of the console, as BigBen's or Sensu's API."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp


@dataclass(frozen=True, slots=True)
class Mount:
    """An app; its requests are checked and noted by the console."""

    prefix: str
    area: str
    """What scopes of credentials name."""
    app: ASGIApp
    title: str
