"""Validation of checks, with Sensu's sentences."""

from __future__ import annotations

from typing import Any

from lockstep.cron import parse
from lockstep.errors import CronInvalid
from lockstep.monitor.core.conditions import DAYS, is_window
from lockstep.monitor.settings.rules import (
    AGGREGATE,
    SEVERITIES,
    SOURCE,
    Definition,
    are_texts,
    handler_names,
    if_set,
    is_bool,
    is_list,
    is_name,
    is_number,
    is_object,
    is_positive,
    is_set,
    is_text,
    is_whole,
)

HOOK_KEYS = frozenset((*SEVERITIES, "non-zero", *map(str, range(256))))
_COVERAGE_LIMIT = 100
_NAME = (("name", is_name, "check name cannot contain spaces or special characters"),)
_EXECUTION = (
    ("command", if_set(is_text), "check command must be a string"),
    ("extension", if_set(is_text), "check extension must be a string"),
    ("timeout", if_set(is_number), "check timeout must be numeric"),
    ("stdin", if_set(is_bool), "check stdin must be boolean"),
)
_TTL = (
    ("ttl", is_whole, "check ttl must be an integer"),
    ("ttl", lambda value: not is_whole(value) or value > 0, "check ttl must be greater than 0"),
    ("ttl_status", if_set(is_whole), "check ttl_status must be an integer"),
)
_FLAPPING = (
    ("low_flap_threshold", is_whole, "check low flap threshold must be an integer"),
    ("high_flap_threshold", is_whole, "check high flap threshold must be an integer"),
)
_HOOK = (
    ("command", is_text, "check hook command must be a string"),
    ("timeout", if_set(is_number), "check hook timeout must be numeric"),
    ("stdin", if_set(is_bool), "check hook stdin must be boolean"),
)
_TRUNCATION = (
    ("truncate_output", if_set(is_bool), "check truncate_output must be boolean"),
    (
        "truncate_output_length",
        lambda value: not is_set(value) or is_positive(value),
        "check truncate_output_length must be an integer greater than 0",
    ),
)
_PROXY = (
    ("client_attributes", is_object, "check proxy_requests client_attributes must be a hash"),
    ("splay", if_set(is_bool), "check proxy_requests splay must be boolean"),
    (
        "splay_coverage",
        lambda value: not is_set(value) or (is_positive(value) and value < _COVERAGE_LIMIT),
        "check proxy_requests splay_coverage must be an integer greater than 0 and less than 100",
    ),
)


def look_at_check(check: Definition) -> None:
    """Note what is wrong with a check of the settings."""
    check.look(_NAME)
    _execution(check)
    _source(check)
    _scheduling(check)
    _proxy_requests(check)
    check.look(handler_names("check"))
    if check.has("ttl"):
        check.look(_TTL)
    look_at_attributes(check)
    _hooks(check)
    check.look(_TRUNCATION)
    look_at_time_windows(check, "check", "subdue")


def look_at_attributes(check: Definition) -> None:
    """Note what is wrong with attributes that a keepalive may have too: aggregates and flap thresholds."""
    aggregates, aggregate = check.get("aggregates"), check.get("aggregate")
    if is_set(aggregates) and not is_list(aggregates):
        check.wrong("aggregates", "check aggregates must be an array")
    elif is_set(aggregates) and not all(is_text(item) and AGGREGATE.fullmatch(item) for item in aggregates):
        check.wrong("aggregates", "check aggregates items must be strings without spaces or special characters")
    if is_text(aggregate) and not AGGREGATE.fullmatch(aggregate):
        check.wrong("aggregate", "check aggregate cannot contain spaces or special characters")
    elif is_set(aggregate) and not is_text(aggregate) and not is_bool(aggregate):
        check.wrong("aggregate", "check aggregate must be a string (name) or boolean")
    if check.get("low_flap_threshold") is not None or check.get("high_flap_threshold") is not None:
        check.look(_FLAPPING)


def look_at_source(check: Definition) -> None:
    """Note a source that can't be a client's name."""
    _source(check)


def look_at_result(check: Definition) -> None:
    """Note what is wrong with a result that came through a socket: Sensu's rules for those."""
    check.look(
        (
            ("output", is_text, "check output must be a string"),
            ("status", is_whole, "check status must be an integer"),
            ("executed", is_whole, "check executed timestamp must be an integer"),
            ("name", is_text, "check name must be a string"),
            *_NAME,
            *handler_names("check"),
        )
    )
    look_at_attributes(check)
    check.look(_TRUNCATION)
    _source(check)
    if check.has("ttl"):
        check.look(_TTL)


def look_at_time_windows(definition: Definition, scope: str, member: str) -> None:
    """Note what is wrong with the time windows of a member, if there are any."""
    if not definition.has(member):
        return
    value = definition.get(member)
    days = value.get("days") if is_object(value) else None
    at = f"{member}.days"
    if not is_object(value):
        definition.wrong(member, f"{scope} {member} must be a hash")
    elif not is_object(days):
        definition.wrong(at, f"{scope} {member} days must be a hash")
    elif not days:
        definition.wrong(at, f"{scope} {member} days must include at least one day of the week or 'all'")
    elif not set(days) <= {"all", *DAYS}:
        definition.wrong(at, f"{scope} {member} days must be valid days of the week or 'all'")
    else:
        for day, windows in days.items():
            _day(definition, f"{at}.{day}", f"{scope} {member}", windows)


def _day(definition: Definition, at: str, what: str, windows: Any) -> None:
    day = at.rpartition(".")[2]
    if not is_list(windows):
        definition.wrong(at, f"{what} days {day} must be in an array")
    elif not windows:
        definition.wrong(at, f"{what} days {day} must include at least one time window")
    else:
        for window in windows:
            if not is_object(window):
                definition.wrong(at, f"{what} day time window must be a hash")
            elif not is_window(window):
                definition.wrong(at, f"{what} day time window begin and end times must be valid")


def _execution(check: Definition) -> None:
    check.look(_EXECUTION)
    if (check.get("command") is None) == (check.get("extension") is None):
        check.wrong("", "either check command or extension must be set")


def _source(check: Definition) -> None:
    source = check.get("source")
    if is_set(source) and not is_text(source):
        check.wrong("source", "check source must be a string")
    elif is_set(source) and not SOURCE.fullmatch(source):
        check.wrong("source", "check source cannot contain spaces, special characters, or invalid tokens")


def _scheduling(check: Definition) -> None:
    check.look((("publish", if_set(is_bool), "check publish must be boolean"),))
    if check.get("publish") is not False:
        if check.has("cron"):
            _cron(check)
        elif not is_positive(check.get("interval")):
            check.wrong("interval", "check interval must be an integer greater than 0")
    check.look((("standalone", if_set(is_bool), "check standalone must be boolean"),))
    if not check.has("standalone"):
        if not is_list(check.get("subscribers")):
            check.wrong("subscribers", "check subscribers must be an array")
        elif not are_texts(check.get("subscribers")):
            check.wrong("subscribers", "check subscribers must each be a string")


def _cron(check: Definition) -> None:
    if not is_text(check.get("cron")):
        check.wrong("cron", "check cron must be a string")
        return
    try:
        parse(check.get("cron"), "UNIX")
    except CronInvalid:
        check.wrong("cron", "check cron string must use the cron syntax")


def _proxy_requests(check: Definition) -> None:
    if not check.has("proxy_requests"):
        return
    requests = check.inner("proxy_requests")
    if requests is None:
        check.wrong("proxy_requests", "check proxy_requests must be a hash")
    else:
        requests.look(_PROXY)


def _hooks(check: Definition) -> None:
    if not check.has("hooks"):
        return
    hooks = check.inner("hooks")
    if hooks is None:
        check.wrong("hooks", "check hooks must be a hash")
        return
    for key in check.get("hooks"):
        if key not in HOOK_KEYS:
            hooks.wrong(key, "check hook key must be a severity, status, or 'non-zero'")
        hook = hooks.inner(key)
        if hook is None:
            hooks.wrong(key, "check hook must be a hash")
        else:
            hook.look(_HOOK)
