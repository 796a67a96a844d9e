"""Plugins: servers that start once, who runs which test, time limits, and how many examples a property runs."""

from __future__ import annotations

import signal

pytest_plugins = ["example_counts", "servers.server_fixtures", "time_limits", "worker_groups"]


def pytest_configure() -> None:
    """Ctrl-C counts, here and in the processes that tests start: a run in the background inherits that it does not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
