"""Real servers are there for every test that asks for one."""

from __future__ import annotations

pytest_plugins = ["servers.server_fixtures"]
