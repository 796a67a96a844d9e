"""A seeded simulator: many processes, unreliable logs, broken clocks, and an observer that sees everything.

It drives the real machines of `lockstep.core`. One seed is one run: first faults, during which nothing unsafe may
happen, then healing, after which everything must converge. The same seed gives the same run on every machine.
"""

from __future__ import annotations
