"""The windows on whole columns: the same answers as `windows`, many blocks at a time."""

from __future__ import annotations
