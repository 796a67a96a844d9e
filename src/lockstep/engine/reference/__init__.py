"""The windows' meaning, one event at a time in plain Python: what every faster path is tested against."""

from __future__ import annotations
