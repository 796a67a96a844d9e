"""Windows of your own for an engine's model: subclasses of `Window`, in plain Python.

`docs/howto/custom-windows.md` shows how to write one, `lockstep.testing.check_window` how to test it.
"""

from __future__ import annotations

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.reference.custom_window import (
    Change,
    Delete,
    Made,
    Notice,
    PagedWindow,
    Setup,
    State,
    Window,
)

__all__ = ["Change", "Delete", "Event", "Flag", "Made", "Notice", "Opcode", "PagedWindow", "Setup", "State", "Window"]
