"""Validation of handlers, mutators, filters and extensions, with Sensu's sentences."""

from __future__ import annotations

from lockstep.monitor.settings.aggregates import notify
from lockstep.monitor.settings.checks import look_at_time_windows
from lockstep.monitor.settings.rules import (
    SEVERITIES,
    Definition,
    are_texts,
    if_list,
    if_set,
    is_bool,
    is_list,
    is_number,
    is_object,
    is_text,
    is_whole,
)

_PIPES = ("direct", "fanout", "topic")
_PIPE = (("command", is_text, "handler command must be a string"),)
_SOCKET = (
    ("host", is_text, "handler host must be a string"),
    ("port", is_whole, "handler port must be an integer"),
)
_TRANSPORT = (
    ("type", is_text, "handler transport pipe type must be a string"),
    ("type", lambda value: value in _PIPES, "handler transport pipe type is invalid"),
    ("name", is_text, "handler transport pipe name must be a string"),
    ("options", if_set(is_object), "handler transport pipe options must be a hash"),
)
_OWN = {
    "http": (("url", is_text, "handler url must be a string"),),
    "stream": (("stream", is_text, "handler stream must be a string"),),
    "mail": (("to", lambda value: is_text(value) or are_texts(value), "handler to must be a string or an array"),),
    "python": (("function", is_text, "handler function must be a string"),),
}
"""Types that Sensu does not have."""
_COMMON = (
    ("filters", if_set(is_list), "handler filters must be an array"),
    ("filters", if_list(are_texts), "handler filters items must be strings"),
    ("filter", if_set(is_text), "handler filter must be a string"),
    ("severities", if_set(is_list), "handler severities must be an array"),
    (
        "severities",
        if_list(lambda value: all(item in SEVERITIES for item in value)),
        "handler severities are invalid",
    ),
    ("timeout", if_set(is_number), "handler timeout must be numeric"),
    ("mutator", if_set(is_text), "handler mutator must be a string"),
    ("handle_flapping", if_set(is_bool), "handler handle_flapping must be boolean"),
    ("handle_silenced", if_set(is_bool), "handler handle_silenced must be boolean"),
    notify("handler"),
)
_MUTATOR = (
    ("command", is_text, "mutator command must be a string"),
    ("timeout", if_set(is_number), "mutator timeout must be numeric"),
)
_FILTER = (
    ("negate", if_set(is_bool), "filter negate must be boolean"),
    ("attributes", is_object, "filter attributes must be a hash"),
)
_EXTENSION = (
    ("gem", if_set(is_text), "extension gem must be a string"),
    ("version", if_set(is_text), "extension version must be a string"),
)


def look_at_handler(handler: Definition) -> None:
    """Note what is wrong with a handler."""
    handler.look((("type", is_text, "handler type must be a string"),))
    _type(handler)
    handler.look(_COMMON)


def look_at_mutator(mutator: Definition) -> None:
    """Note what is wrong with a mutator."""
    mutator.look(_MUTATOR)


def look_at_filter(found: Definition) -> None:
    """Note what is wrong with a filter."""
    found.look(_FILTER)
    look_at_time_windows(found, "filter", "when")


def look_at_extension(extension: Definition) -> None:
    """Note what is wrong with an extension."""
    extension.look(_EXTENSION)


def _type(handler: Definition) -> None:
    kind = handler.get("type")
    if kind == "pipe":
        handler.look(_PIPE)
    elif kind in ("tcp", "udp"):
        _inner(handler, "socket", _SOCKET, "handler socket must be a hash")
    elif kind == "transport":
        _inner(handler, "pipe", _TRANSPORT, "handler transport pipe must be a hash")
    elif kind == "set":
        _set(handler)
    elif is_text(kind) and kind in _OWN:
        handler.look(_OWN[kind])
    else:
        handler.wrong("type", "unknown handler type")


def _inner(handler: Definition, member: str, rules: tuple, sentence: str) -> None:  # type: ignore[type-arg]
    found = handler.inner(member)
    if found is None:
        handler.wrong(member, sentence)
    else:
        found.look(rules)


def _set(handler: Definition) -> None:
    if not is_list(handler.get("handlers")):
        handler.wrong("handlers", "handler set handlers must be an array")
    elif not are_texts(handler.get("handlers")):
        handler.wrong("handlers", "handler set handlers must each be a string")
