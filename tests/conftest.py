"""Plugins: servers that start once, who runs which test, time limits, and how many examples a property runs."""

from __future__ import annotations

pytest_plugins = ["example_counts", "servers.server_fixtures", "time_limits", "worker_groups"]
