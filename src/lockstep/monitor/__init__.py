"""A fleet of machines watched as Sensu Classic does it: agents, checks, results, events, silences, handlers."""

from __future__ import annotations

SENSU_VERSION = "0.26.5"
"""The version of Sensu whose messages are spoken; it stands in keepalives and in names of queues."""
