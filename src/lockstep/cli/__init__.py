"""The `lockstep` command."""

from __future__ import annotations
