"""Checks of functional, notification, procedural and custom windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model.checks import check_positive
from lockstep.engine.model.checks_windows import check_plug, report_expression
from lockstep.engine.model.faults import Findings, did_you_mean, duplicates
from lockstep.engine.model.graph import Placed, Survey
from lockstep.engine.model.values import duration_text
from lockstep.engine.model.windows import (
    Channel,
    ContextProperty,
    CustomWindow,
    EventLoop,
    FunctionalWindow,
    NotificationWindow,
    ProceduralWindow,
)

_LOOPS = ("regex", "xml", "json")
_PROPERTIES = ("xml", "json", "map", "list", "set", "string")
_CHANNELS = ("email", "sms", "mms")
_MESSAGES = ("sender", "to", "subject", "shown_sender", "shown_to", "body", "html", "image")
_PORTS = range(1, 65536)
_COPIED = frozenset(kind for kind in FieldType if kind.is_numeric or kind is FieldType.STRING)
"""Types that become each other where a field is copied into one of another type."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What functions can name: $fields, #properties and regular expressions; it grows from function to function."""

    fields: tuple[str, ...]
    properties: tuple[str, ...] = ()
    expressions: tuple[tuple[str, str], ...] = ()

    def with_fields(self, *names: str) -> _Known:
        """These names too."""
        return replace(self, fields=self.fields + names)


def _fields(placed: Placed) -> tuple[str, ...] | None:
    """The fields of all inputs; None if they are not all known."""
    if not placed.inputs or None in placed.inputs:
        return None
    return tuple(dict.fromkeys(name for schema in placed.inputs if schema is not None for name in schema.names))


def check_functional(placed: Placed, findings: Findings) -> None:
    """Functions must be sound, and fill the key."""
    window, fields = placed.window, _fields(placed)
    assert isinstance(window, FunctionalWindow)
    for name, pattern in window.expressions:
        _check_regex(pattern, f"{placed.path} expression {name}", findings)
    if fields is None:
        return
    known = _Known((*fields, *window.schema.names), expressions=window.expressions)  # what is not made yet is null
    known = _check_properties(window.properties, known, placed.path, findings)
    known = _check_texts(window.functions, known, placed.path, findings)
    from lockstep.engine.reference.functional import ITEM, quoted_opcode

    for what, text in (("generate", window.generate), ("opcode", quoted_opcode(window.opcode))):
        if text is not None:
            _check_text(text, known, f"{placed.path} {what}", findings)
    for loop in window.loops:
        inner = replace(known, properties=(*known.properties, ITEM))
        _check_loop(loop, known, inner, f"{placed.path} loop {loop.name}", findings)
    for schema in placed.inputs:
        if schema is not None:
            _check_filled(window, placed, schema, findings)


def _check_loop(loop: EventLoop, known: _Known, inner: _Known, place: str, findings: Findings) -> None:
    if loop.kind not in _LOOPS:
        findings.add(place, f"{loop.kind!r} is no kind of loop.", did_you_mean(loop.kind, _LOOPS, "kind of loop"))
    else:
        _check_item(loop, place, findings)
    _check_text(loop.use, known, f"{place} use", findings)
    inside = _check_properties(loop.properties, inner.with_fields(loop.data), place, findings)
    _check_texts(loop.functions, inside, place, findings)


def _check_item(loop: EventLoop, place: str, findings: Findings) -> None:
    from lockstep.engine.reference.function_documents import Unreadable, json_steps, xml_steps

    if loop.kind == "regex":
        groups = _check_regex(loop.item, place, findings)
        if groups is not None and not 0 <= loop.group <= groups:
            problem = f"The regular expression {loop.item!r} has no group {loop.group}."
            findings.add(place, problem, f"It has 0 (the whole match) to {groups}.")
        return
    try:
        (json_steps if loop.kind == "json" else xml_steps)(loop.item)
    except Unreadable as error:
        findings.add(place, f"The path {loop.item!r} can't be read: {error}.", "Fix it.")


def _check_regex(text: str, place: str, findings: Findings) -> int | None:
    """How many groups a regular expression has; None if it is not one."""
    from lockstep.engine.reference.function_special import BadArgument, compile_pattern

    try:
        return compile_pattern(text).groups
    except BadArgument as error:
        findings.add(place, f"In {text!r}, {error.reason}.", error.remedy)
        return None


def _check_properties(properties: Sequence[ContextProperty], known: _Known, place: str, findings: Findings) -> _Known:
    for item in properties:
        here = f"{place} property {item.name}"
        if item.kind not in _PROPERTIES:
            remedy = did_you_mean(item.kind, _PROPERTIES, "kind of property")
            findings.add(here, f"{item.kind!r} is no kind of property.", remedy)
        _check_text(item.text, known, here, findings)
        known = replace(known, properties=(*known.properties, item.name))
    return known


def _check_filled(window: FunctionalWindow, placed: Placed, parent: Schema, findings: Findings) -> None:
    """Every key field needs a value: from a function of its name, or from the input field of its name."""
    made = {name for name, _ in window.functions}
    made.update(name for loop in window.loops for name, _ in loop.functions)
    for field in window.schema:
        place = f"{placed.path} field {field.name}"
        if field.name in made:
            continue
        if field.name in parent:
            theirs = parent[field.name].type
            if theirs is not field.type and (theirs not in _COPIED or field.type not in _COPIED):
                problem = f"It is copied from the input, where it is a {theirs.value}, not a {field.type.value}."
                findings.add(place, problem, f"Make it a {theirs.value}, or give it a function.")
        elif field.key:
            remedy = f"Add a function {field.name!r}."
            findings.add(place, "No function and no input field fills this key field.", remedy)


def check_notification(placed: Placed, findings: Findings) -> None:
    """Functions must be sound, channels known and addressed."""
    window = placed.window
    assert isinstance(window, NotificationWindow)
    if not window.smtp.host.strip():
        findings.add(f"{placed.path} smtp", "No host is given.", "Name the mail server.")
    if window.smtp.port not in _PORTS:
        findings.add(f"{placed.path} smtp", f"Port {window.smtp.port} can't be.", "Choose 1 to 65535, usually 25.")
    if not window.channels:
        findings.add(placed.path, "It has no channel to send on.", "Add an email, sms or mms channel.")
    fields, known = _fields(placed), None
    if fields is not None:
        declared = () if window.schema is None else window.schema.names
        known = _check_properties(window.properties, _Known((*fields, *declared)), placed.path, findings)
        known = _check_texts(window.functions, known, placed.path, findings)
    for number, channel in enumerate(window.channels, 1):
        _check_channel(channel, known, f"{placed.path} channel {channel.name or number}", findings)


def _check_channel(channel: Channel, known: _Known | None, place: str, findings: Findings) -> None:
    if channel.kind not in _CHANNELS:
        findings.add(place, f"{channel.kind!r} is no kind of channel.", "Choose email, sms or mms.")
    for what, text in (("sender", channel.sender), ("receiver", channel.to)):
        if not text.strip():
            findings.add(place, f"No {what} is given.", "Give an address.")
    if channel.kind in ("sms", "mms") and not channel.gateway and channel.to.strip().isdecimal():
        findings.add(place, f"Nobody knows where {channel.to!r} is.", "Name the mail host of its gateway.")
    check_positive(channel.throttle_us, place, "throttle-interval", findings)
    if known is None:
        return
    if channel.deliver is not None:
        _check_text(channel.deliver, known, f"{place} deliver", findings)
    for part in _MESSAGES:
        _check_message(getattr(channel, part), known, channel.unresolved, f"{place} {part}", findings)


def _check_message(text: str, known: _Known, unresolved: str | None, place: str, findings: Findings) -> None:
    from lockstep.engine.reference.notification import compile_message

    try:
        compile_message(text, known.fields, unresolved)
    except BadExpression as error:
        report_expression(error, place, findings)


def check_procedural(placed: Placed, findings: Findings) -> None:
    """The handler must look like a Python function."""
    window = placed.window
    assert isinstance(window, ProceduralWindow)
    check_plug(window.module, window.handler, placed.path, "handler", findings)


def check_custom(placed: Placed, seen: Survey, findings: Findings) -> None:
    """The class must look like a Python class, it needs a version, and it can't tick faster than the model's clock."""
    window = placed.window
    assert isinstance(window, CustomWindow)
    check_plug(window.module, window.class_, placed.path, "class", findings)
    if not window.version.strip():
        findings.add(placed.path, "It names no version of its class.", "Write version: the class's `version`.")
    for name in duplicates(name for name, _ in window.properties):
        findings.add(placed.path, f"Two of its properties are called {name!r}.", "Give each a name of its own.")
    heartbeat = seen.project.heartbeat_us
    if window.tick_us is not None and window.tick_us < heartbeat:
        problem = f"Its tick of {duration_text(window.tick_us)} is shorter than the project's heartbeat."
        remedy = f"Make it at least {duration_text(heartbeat)}, or the project's heartbeat shorter."
        findings.add(placed.path, problem, remedy)


def _check_texts(functions: Iterable[tuple[str, str]], known: _Known, place: str, findings: Findings) -> _Known:
    """Each function sees the results of those above it."""
    listed = list(functions)
    for name in duplicates(name for name, _ in listed):
        findings.add(place, f"Two functions are called {name!r}.", "Give each a name of its own.")
    for name, text in listed:
        _check_text(text, known, f"{place} function {name}", findings, prose=True)
        known = known.with_fields(name)
    return known


def _check_text(text: str, known: _Known, place: str, findings: Findings, *, prose: bool = False) -> None:
    from lockstep.engine.reference.function_language import Names, compile_function

    try:
        compile_function(text, Names(known.fields, known.properties, dict(known.expressions)), prose=prose)
    except BadExpression as error:
        report_expression(error, place, findings)
