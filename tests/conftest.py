"""Real servers start once, tests share them by groups of workers, and every property has its count of examples."""

from __future__ import annotations

pytest_plugins = ["example_counts", "servers.server_fixtures", "worker_groups"]
