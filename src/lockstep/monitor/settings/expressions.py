"""Expressions of settings that can't be read: nothing runs Ruby, and what is not of the closed part never matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.monitor.core.conditions import EVAL
from lockstep.monitor.core.expressions import expression
from lockstep.monitor.settings.rules import Fault, is_object, is_text


def unreadable(document: Mapping[str, Any]) -> list[Fault]:
    """Each expression of filters and of checks' `client_attributes` that can't be read, with the reason."""
    found: list[Fault] = []
    for path, text in _expressions(document):
        try:
            expression(text.removeprefix(EVAL).strip())
        except (ValueError, RecursionError) as error:
            found.append(Fault(f"the expression can't be read, so it never matches: {error}", path, text))
    return found


def _expressions(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, definition in document.get("filters", {}).items():
        yield from _texts(("filters", name, "attributes"), definition.get("attributes"))
    for name, check in document.get("checks", {}).items():
        proxy = check.get("proxy_requests")
        attributes = proxy.get("client_attributes") if is_object(proxy) else None
        yield from _texts(("checks", name, "proxy_requests", "client_attributes"), attributes)


def _texts(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    if is_object(value):
        for name, item in value.items():
            yield from _texts((*path, name), item)
    elif is_text(value) and value.startswith(EVAL):
        yield path, value
