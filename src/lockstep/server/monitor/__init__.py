"""The HTTP API of a monitor: Sensu's routes, and our own. `MonitorServer` serves it."""

from __future__ import annotations

from lockstep.server.monitor.server import MonitorServer, check_login

__all__ = ["MonitorServer", "check_login"]
