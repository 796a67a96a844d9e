"""Pure state machines: who owns what, what counts, and what was seen before. No I/O, no clock, no threads."""

from __future__ import annotations
