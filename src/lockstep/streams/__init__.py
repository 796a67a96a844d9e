"""Streams: publishers, subscribers, groups, receivers, transactions."""

from __future__ import annotations
