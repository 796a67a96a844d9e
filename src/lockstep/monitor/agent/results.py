"""Results that others hand to the agent: defaults, Sensu's rules, and the clock of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.errors import UsageError
from lockstep.monitor.agent.machine import Json
from lockstep.monitor.settings.checks import look_at_result
from lockstep.monitor.settings.rules import is_set
from lockstep.monitor.settings.validation import look_at


def results_of(document: Any, now: int) -> list[Json]:
    """The results in a document, one or a list of them; UsageError if any of them can't be one."""
    return [_result(item, now) for item in (document if isinstance(document, list) else [document])]


def _result(item: Any, now: int) -> Json:
    if not isinstance(item, Mapping):
        raise UsageError(reason="a check result must be a hash")
    check = dict(item)
    for member, default in (("status", 0), ("executed", now)):
        if not is_set(check.get(member)):
            check[member] = default
    faults = look_at(look_at_result, check)
    if faults:
        raise UsageError(reason=faults[0].sentence)
    return {**check, "issued": now}
