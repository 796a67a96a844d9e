"""Attributes of filters and of `client_attributes`: whether an event or a client is as they say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lockstep.monitor.core.documents import encode_text
from lockstep.monitor.core.expressions import Scope, holds
from lockstep.monitor.core.methods import ExpressionInvalid, ruby_text

EVAL = "eval:"


def difference(
    wanted: Mapping[str, Any], found: Any, event: Mapping[str, Any], moment: datetime, path: str = ""
) -> str | None:
    """The first attribute that is not as wanted, in words; None if all are.

    A wanted value fits if it is the same, the same as text, an object whose members fit, or an expression that holds.
    """
    held = found if isinstance(found, Mapping) else {}
    for name, value in wanted.items():
        told = _differs(value, held.get(name), event, moment, f"{path}{name}")
        if told is not None:
            return told
    return None


def _differs(wanted: Any, found: Any, event: Mapping[str, Any], moment: datetime, path: str) -> str | None:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return difference(wanted, found, event, moment, f"{path}.")
    if _is_same(wanted, found) or _as_ruby(wanted) == _as_ruby(found):
        return None
    if not (isinstance(wanted, str) and wanted.startswith(EVAL)):
        return f"{path} is {_shown(found)}, not {_shown(wanted)}"
    text = wanted.removeprefix(EVAL).strip()
    try:
        is_so = holds(text, Scope(found, event, moment))
    except ExpressionInvalid as error:
        return f"{path}: {text!r} has no value: {error}"
    return None if is_so else f"{path} is {_shown(found)}, and {text!r} is false"


def _is_same(wanted: Any, found: Any) -> bool:
    return bool(wanted == found and isinstance(wanted, bool) is isinstance(found, bool))


def _as_ruby(value: Any) -> str:
    return encode_text(value) if isinstance(value, list | dict) else ruby_text(value)


def _shown(value: Any) -> str:
    text = encode_text(value)
    return text if len(text) <= 80 else text[:77] + "..."
