"""Fixtures for your own tests; pytest finds them by itself once lockstep is installed.

| fixture         | what it is                                                                  |
| --------------- | --------------------------------------------------------------------------- |
| lockstep_clock  | a VirtualRuntime: time passes when the test says so, background work with it |
| lockstep_grid   | what buses in memory share                                                  |
| lockstep_bus    | a bus in memory over that grid and that clock                               |
| lockstep_folder | the URL of a new embedded bus on disk, in a folder of the test's own         |

Lockstep itself is imported when a test asks for one of them: the plugin costs other projects nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite(
    "lockstep.testing.contract_case",
    *(f"lockstep.testing.contract_{part}" for part in ("append", "atomic", "bus", "history", "read", "retention")),
    *(f"lockstep.testing.contract_schedule_{part}" for part in ("queries", "store")),
)

if TYPE_CHECKING:
    from lockstep.log.memory import MemoryBroker
    from lockstep.log.port import Bus
    from lockstep.testing.virtual import VirtualRuntime


@pytest.fixture
def lockstep_clock() -> VirtualRuntime:
    """Virtual time, chance and background work."""
    from lockstep.testing.virtual import VirtualRuntime

    return VirtualRuntime()


@pytest.fixture
def lockstep_grid() -> MemoryBroker:
    """What several buses in memory share; make another bus over it to play another process."""
    from lockstep.log.memory import MemoryBroker

    return MemoryBroker()


@pytest.fixture
def lockstep_bus(lockstep_grid: MemoryBroker, lockstep_clock: VirtualRuntime) -> Iterator[Bus]:
    """A bus in memory in virtual time."""
    bus = lockstep_grid.bus(lockstep_clock)
    yield bus
    bus.close()


@pytest.fixture
def lockstep_folder(tmp_path: Path) -> str:
    """The URL of an embedded bus on disk; the first who opens it makes it."""
    return f"lmdb:{tmp_path / 'bus'}?map_bytes={1 << 28}"
