"""Validation of what Sensu does not have: aggregates that alert, how often handlers are told, and time zones."""

from __future__ import annotations

from typing import Any

from lockstep.cron import Zone
from lockstep.errors import ZoneUnknown
from lockstep.monitor.core.rules import SHARE
from lockstep.monitor.settings.rules import (
    AGGREGATE,
    SEVERITIES,
    Definition,
    Rule,
    handler_names,
    if_list,
    if_set,
    is_list,
    is_positive,
    is_text,
)

NOTIFY = ("each", "change")


def is_share(value: Any) -> bool:
    """Whether it says when an aggregate alerts."""
    return is_text(value) and SHARE.fullmatch(value) is not None


def is_zone(value: Any) -> bool:
    """Whether it is the name of a time zone."""
    try:
        return is_text(value) and Zone(value) is not None
    except ZoneUnknown:
        return False


_AGGREGATE = (
    ("warning", if_set(is_share), "aggregate warning must be a comparison such as '>= 1' or '>= 50%'"),
    ("critical", if_set(is_share), "aggregate critical must be a comparison such as '>= 1' or '>= 50%'"),
    ("severities", if_set(is_list), "aggregate severities must be an array"),
    (
        "severities",
        if_list(lambda value: all(item in SEVERITIES for item in value)),
        "aggregate severities are invalid",
    ),
    ("interval", if_set(is_positive), "aggregate interval must be an integer greater than 0"),
    ("max_age", if_set(is_positive), "aggregate max_age must be an integer greater than 0"),
    *handler_names("aggregate"),
)


def look_at_aggregates(settings: Definition) -> None:
    """Note what is wrong with aggregates that alert."""
    aggregates = settings.inner("aggregates")
    if aggregates is None:
        if settings.get("aggregates") is not None:
            settings.wrong("aggregates", "aggregates must be a hash")
        return
    for name in settings.get("aggregates"):
        aggregate = aggregates.inner(name)
        if aggregate is None:
            aggregates.wrong(name, "aggregate must be a hash")
            continue
        if not AGGREGATE.fullmatch(name):
            aggregates.wrong(name, "aggregate name cannot contain spaces or special characters")
        aggregate.look(_AGGREGATE)


def notify(scope: str) -> Rule:
    """The rule of how often handlers are told."""
    return ("notify", if_set(lambda value: value in NOTIFY), f"{scope} notify must be each or change")


def look_at_own(sensu: Definition) -> None:
    """Note what is wrong with the members of `sensu` that Sensu does not have."""
    sensu.look((notify("sensu"), ("timezone", if_set(is_zone), "sensu timezone must be the name of a time zone")))
