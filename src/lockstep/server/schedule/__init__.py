"""The HTTP API of a scheduler: BigBen's routes, and our own under /v2. docs/reference/schedule-http.md has them all."""

from __future__ import annotations

from lockstep.server.schedule.server import LIMITS, ScheduleServer

__all__ = ["LIMITS", "ScheduleServer"]
