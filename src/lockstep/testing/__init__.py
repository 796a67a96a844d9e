"""What Lockstep tests itself with, for your tests too: virtual time, a scheduler in it, a bus that misbehaves on order.

`check_window` runs a window of your own with cuts, restarts and kills.

`lockstep.testing.contract` holds the suites for backends of your own, `lockstep.testing.plugin` the fixtures; they need
pytest, and nothing else here does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.testing.faults import FaultPlan, FaultyBus, FaultyLog
    from lockstep.testing.schedule import VirtualClock, VirtualScheduler
    from lockstep.testing.virtual import VirtualRuntime, VirtualTask, VirtualWaiter
    from lockstep.testing.window_check import WindowReport, check_window
    from lockstep.testing.window_process import WindowDiffers

__all__ = [
    "FaultPlan",
    "FaultyBus",
    "FaultyLog",
    "VirtualClock",
    "VirtualRuntime",
    "VirtualScheduler",
    "VirtualTask",
    "VirtualWaiter",
    "WindowDiffers",
    "WindowReport",
    "check_window",
]
_MODULES = {
    "Fault": "faults",
    "VirtualClock": "schedule",
    "VirtualScheduler": "schedule",
    "WindowReport": "window_check",
    "WindowDiffers": "window_process",
    "check_window": "window_check",
}
"""Names, or how they begin, and where they are; the others are in `virtual`."""


def __getattr__(name: str) -> object:
    """Import a name when it is asked for: pytest loads the plugin of this package into every project's tests."""
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module = next((module for start, module in _MODULES.items() if name.startswith(start)), "virtual")
    return getattr(import_module(f"{__name__}.{module}"), name)
