"""Errors of the monitor's settings, in the tree of lockstep.errors.

UsageError                                         exit 2
  SettingsInvalid
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.errors import UsageError
from lockstep.monitor.settings.rules import Fault


class SettingsInvalid(UsageError):
    """Settings of the monitor that can't be so: all that is wrong, a line each."""

    code = "SETTINGS_INVALID"
    template = "The settings are not valid, and nothing was changed or started:\n{lines}"
    advice = ""

    def __init__(self, faults: Sequence[Fault] = (), **params: object) -> None:
        self.faults = tuple(faults)
        lines = "\n".join(f"  {line}" for line in map(fault_line, self.faults))
        super().__init__(**{"lines": lines, **params})


def fault_line(fault: Fault) -> str:
    """One fault: file, name, value and sentence."""
    from lockstep.monitor.settings.settings import shown

    where = f"{fault.file}: " if fault.file else ""
    what = f"{fault.name} = {shown(fault)}: " if fault.path else ""
    return f"{where}{what}{fault.sentence}"
