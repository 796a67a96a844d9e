"""Lockstep: ordered event streams for Python."""

from __future__ import annotations
