"""All that is wrong with a document of settings, at once, in Sensu's sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lockstep.monitor.settings.aggregates import look_at_aggregates
from lockstep.monitor.settings.checks import look_at_check
from lockstep.monitor.settings.handlers import look_at_extension, look_at_filter, look_at_handler, look_at_mutator
from lockstep.monitor.settings.rules import Definition, Fault, is_object
from lockstep.monitor.settings.services import look_at_api, look_at_client, look_at_processes

CATEGORIES: Mapping[str, Callable[[Definition], None]] = {
    "checks": look_at_check,
    "filters": look_at_filter,
    "mutators": look_at_mutator,
    "handlers": look_at_handler,
    "extensions": look_at_extension,
}


def faults_of(document: Mapping[str, Any], *, with_client: bool) -> list[Fault]:
    """Return the errors in the settings; those of `client` only for a client process, or if asked for."""
    faults: list[Fault] = []
    settings = Definition((), document, faults)
    look_at_processes(settings)
    for category, look in CATEGORIES.items():
        _look_at_category(settings, category, look)
    look_at_aggregates(settings)
    if with_client:
        look_at_client(settings)
    look_at_api(settings)
    return faults


def _look_at_category(settings: Definition, category: str, look: Callable[[Definition], None]) -> None:
    definitions = settings.inner(category)
    if definitions is None:
        settings.wrong(category, f"{category} must be a hash")
        return
    for name in settings.get(category):
        definition = definitions.inner(name)
        if definition is None:
            definitions.wrong(name, f"{category.removesuffix('s')} must be a hash")
            continue
        named = Definition(definition.path, {**definitions.get(name), "name": name}, definitions.faults)
        look(named)


def look_at(look: Callable[[Definition], None], members: Mapping[str, Any]) -> list[Fault]:
    """What one look finds wrong with one object."""
    faults: list[Fault] = []
    if is_object(members):
        look(Definition((), members, faults))
    return faults
