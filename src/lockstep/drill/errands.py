"""What the drill tells its publisher and its subscriber: a file of plain values each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishErrand:
    """Send the events of a file; start where `progress` says, if it is there."""

    url: str
    model: str
    cluster: str
    file: str
    block: int
    rate: float | None
    piece: int
    client: str
    progress: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscribeErrand:
    """Write what comes out of the window to a file until block `until`, and beside it when what arrived."""

    url: str
    model: str
    cluster: str
    block: int
    events: int
    until: int
    file: str
    arrivals: str


def save(errand: PublishErrand | SubscribeErrand, path: Path) -> None:
    """For another process."""
    path.write_text(json.dumps(asdict(errand), indent=1))


def load(path: str) -> dict[str, Any]:
    """In the other process."""
    fields: dict[str, Any] = json.loads(Path(path).read_text())
    return fields


def orphaned() -> Callable[[], bool]:
    """Tells whether the process that started this one is gone: then nobody needs it."""
    parent = os.getppid()
    return lambda: os.getppid() != parent
