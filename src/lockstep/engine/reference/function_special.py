"""Functions that are more than a call with values, and what a function sees while it is evaluated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from lockstep.engine.events.schema import Value
from lockstep.engine.reference.function_documents import (
    Element,
    Unreadable,
    json_at,
    json_steps,
    json_value,
    read_json,
    read_xml,
    xml_at,
    xml_steps,
)
from lockstep.engine.reference.function_values import (
    DEFAULT_FORMAT,
    KNOWN_DIRECTIVES,
    BadRegex,
    Match,
    Regex,
    clean,
    expand_format,
    text,
    time_of,
    time_text,
    truth,
    whole,
)

MAX_TEXT = 1_000_000
"""No function makes or searches a longer text."""


@dataclass(slots=True)
class Context:
    """One event: its fields and the results so far by name, its properties, and where it comes from."""

    values: dict[str, Value] = field(default_factory=dict)
    properties: dict[str, Value] = field(default_factory=dict)
    input: str = ""
    window: str = ""
    """The path of the window that makes events."""
    opcode: str = "I"
    flags: str = "N"
    clock_us: int = 0
    block: int = 0
    counter: int = 0
    """How many events the window has made, this one included."""
    number: int = 0
    """How many events it has made of the input event, this one included."""
    draws: int = 0
    """How many numbers and names were drawn for this event."""
    complaints: list[str] = field(default_factory=list)
    """What could not be read, or was beyond a limit; the result was null."""
    _read: dict[tuple[str, str], Any] = field(default_factory=dict)

    def draw(self) -> bytes:
        """Sixteen bytes that look random, and are the same wherever the event is made."""
        self.draws += 1
        place = f"{self.window}\n{self.block}\n{self.counter}\n{self.draws}"
        return blake2b(place.encode(), digest_size=16).digest()

    def json(self, text: str) -> Any:
        """A JSON document; None if it can't be read."""
        return self._document("json", text, read_json)

    def xml(self, text: str) -> Element | None:
        """An XML document; None if it can't be read."""
        found = self._document("xml", text, read_xml)
        return found if isinstance(found, Element) else None

    def _document(self, kind: str, text: str, read: Callable[[str], Any]) -> Any:
        # Several functions ask the same field, so a document is read once for each event.
        if (kind, text) not in self._read:
            try:
                self._read[kind, text] = read(text)
            except Unreadable as error:
                self.complain(str(error))
                self._read[kind, text] = None
        return self._read[kind, text]

    def complain(self, detail: str) -> None:
        """Say why a result is null though the model is right."""
        self.complaints.append(detail)

    def allows(self, length: int) -> bool:
        """Whether a text may be that long; it complains if not."""
        if length > MAX_TEXT:
            self.complain(f"a text is longer than {MAX_TEXT} characters")
        return length <= MAX_TEXT


MAX_PATTERN = 1_000
MAX_SEARCHED = 65_536
"""A regular expression sees no longer text: with many matches its time may grow faster than the text."""

_GROUP = re.compile(r"[$\\]([0-9])")

Evaluate = Callable[[Context], Value]


class BadArgument(Exception):
    """An argument that can't be; becomes a BadExpression once the place is known."""

    def __init__(self, argument: int, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.argument = argument
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as it is written: how it is evaluated, and what is known of it when the model is loaded."""

    evaluate: Evaluate
    literal: Value = None
    pattern: str | None = None
    """The regular expression that it names."""


@dataclass(frozen=True, slots=True)
class Special:
    """A function that is built from its arguments when the model is loaded."""

    name: str
    least: int
    most: int | None
    build: Callable[[Sequence[Argument]], Evaluate]


def _if(arguments: Sequence[Argument]) -> Evaluate:
    """if(condition, value[, otherwise]); without the last it is null."""
    condition, value = arguments[0].evaluate, arguments[1].evaluate
    otherwise: Evaluate = arguments[2].evaluate if len(arguments) > 2 else lambda _: None
    return lambda context: value(context) if truth(condition(context)) else otherwise(context)


def _and(arguments: Sequence[Argument]) -> Evaluate:
    return lambda context: int(all(truth(argument.evaluate(context)) for argument in arguments))


def _or(arguments: Sequence[Argument]) -> Evaluate:
    return lambda context: int(any(truth(argument.evaluate(context)) for argument in arguments))


def _first_set(arguments: Sequence[Argument]) -> Evaluate:
    """The first argument that is not null."""

    def evaluate(context: Context) -> Value:
        found = (argument.evaluate(context) for argument in arguments)
        return next((value for value in found if value is not None), None)

    return evaluate


def _json(arguments: Sequence[Argument]) -> Evaluate:
    """json(document, path): a value; a list or an object as JSON text."""
    document, path = arguments[0].evaluate, _literal(arguments, 1)
    try:
        steps = json_steps(path)
    except Unreadable as error:
        raise BadArgument(1, str(error), "Write it as in 'a.b[0].c'.") from None

    def evaluate(context: Context) -> Value:
        found = document(context)
        return None if found is None else json_value(json_at(context.json(text(found)), steps))

    return evaluate


def _xpath(arguments: Sequence[Argument]) -> Evaluate:
    """xpath(document, path[, separator]): the first that is found, or all of them put together."""
    document, path = arguments[0].evaluate, _literal(arguments, 1)
    separator = _literal(arguments, 2) if len(arguments) > 2 else None
    try:
        steps = xml_steps(path)
    except Unreadable as error:
        raise BadArgument(1, str(error), "Write it as in './order/line/text()'.") from None

    def evaluate(context: Context) -> Value:
        found = document(context)
        root = None if found is None else context.xml(text(found))
        results = [] if root is None else xml_at(root, steps)
        if not results:
            return None
        return results[0] if separator is None else separator.join(results)

    return evaluate


def compile_pattern(pattern: str, argument: int = 0) -> Regex:
    """A regular expression; raises BadArgument."""
    if len(pattern) > MAX_PATTERN:
        reason = f"the regular expression is longer than {MAX_PATTERN} characters"
        raise BadArgument(argument, reason, "Split it.")
    try:
        return Regex.read(pattern)
    except BadRegex as error:
        reason = f"the regular expression can't be read: {error}"
        raise BadArgument(argument, reason, "Use the syntax of RE2 regular expressions.") from None


def searchable(value: Value, context: Context) -> str | None:
    """A text that a regular expression may see."""
    if value is None:
        return None
    plain = text(value)
    if len(plain) <= MAX_SEARCHED:
        return clean(plain)
    context.complain(f"a text of more than {MAX_SEARCHED} characters is not searched")
    return None


def _search(arguments: Sequence[Argument]) -> tuple[Regex, Callable[[Context], str | None]]:
    """The regular expression and the text of a function: whichever of the first two is known now is the expression."""
    place = 0 if _pattern_text(arguments[0]) is not None else 1
    pattern = _pattern_text(arguments[place])
    if pattern is None:
        raise BadArgument(0, "the regular expression must be written out", "Put it into quotes, or name one as #name.")
    searched = arguments[1 - place].evaluate
    return compile_pattern(pattern, place), lambda context: searchable(searched(context), context)


def _pattern_text(argument: Argument) -> str | None:
    return argument.literal if isinstance(argument.literal, str) else argument.pattern


def _rgx(arguments: Sequence[Argument]) -> Evaluate:
    """rgx(expression, text[, group]): the first match, or a group of it."""
    pattern, searched = _search(arguments)
    group = arguments[2].evaluate if len(arguments) > 2 else lambda _: 0

    def evaluate(context: Context) -> Value:
        plain, which = searched(context), whole(group(context))
        found = None if plain is None else pattern.first(plain)
        return found[which] if found and which is not None and 0 <= which <= pattern.groups else None

    return evaluate


def _rgx_all(arguments: Sequence[Argument]) -> Evaluate:
    """rgxV(expression, text[, separator[, group]]): all matches, put together."""
    pattern, searched = _search(arguments)
    separator = _literal(arguments, 2) if len(arguments) > 2 else ","
    group = arguments[3].literal if len(arguments) > 3 else 0
    if not isinstance(group, int) or not 0 <= group <= pattern.groups:
        raise BadArgument(3, "the expression has no such group", f"It has 0 to {pattern.groups}.")

    def evaluate(context: Context) -> Value:
        plain = searched(context)
        found = [] if plain is None else [match[group] for match in pattern.all(plain)]
        return separator.join(found) if found else None

    return evaluate


def _rgx_match(arguments: Sequence[Argument]) -> Evaluate:
    pattern, searched = _search(arguments)

    def evaluate(context: Context) -> Value:
        plain = searched(context)
        return None if plain is None else int(pattern.is_in(plain))

    return evaluate


def _rgx_replace(count: int | None) -> Callable[[Sequence[Argument]], Evaluate]:
    """Matches replaced by a text, in which $1 is group 1."""

    def build(arguments: Sequence[Argument]) -> Evaluate:
        pattern, searched = _search(arguments)
        replacement = arguments[2].evaluate

        def evaluate(context: Context) -> Value:
            plain, new = searched(context), text(replacement(context))
            if plain is None or not context.allows(len(plain) * max(1, len(new))):
                return None
            return pattern.replaced(plain, lambda found: _expanded(new, found), count)

        return evaluate

    return build


def _expanded(template: str, found: Match) -> str:
    return _GROUP.sub(lambda mark: found[int(mark[1])] if int(mark[1]) < len(found) else mark[0], template)


def _time_text(arguments: Sequence[Argument]) -> Evaluate:
    """timeString(seconds[, format])."""
    seconds, form = arguments[0].evaluate, _format(arguments)
    return lambda context: time_text(seconds(context), form)


def _time_parse(arguments: Sequence[Argument]) -> Evaluate:
    """timeParse(text[, format])."""
    written, form = arguments[0].evaluate, _format(arguments)

    def evaluate(context: Context) -> Value:
        found = written(context)
        return None if found is None else time_of(found, form)

    return evaluate


def _format(arguments: Sequence[Argument]) -> str:
    form = expand_format(_literal(arguments, 1) if len(arguments) > 1 else DEFAULT_FORMAT)
    if form is None:
        raise BadArgument(1, "the format is not known", f"Use each of {KNOWN_DIRECTIVES} at most once.")
    return form


def _literal(arguments: Sequence[Argument], place: int) -> str:
    found = arguments[place].literal
    if not isinstance(found, str):
        raise BadArgument(place, "a text is needed here that is written out", "Put it into quotes.")
    return found


def _table() -> Mapping[str, Special]:
    specials = (
        Special("if", 2, 3, _if),
        Special("and", 1, None, _and),
        Special("or", 1, None, _or),
        Special("firstSet", 1, None, _first_set),
        Special("json", 2, 2, _json),
        Special("xpath", 2, 3, _xpath),
        Special("rgx", 2, 3, _rgx),
        Special("rgxV", 2, 4, _rgx_all),
        Special("rgxMatch", 2, 2, _rgx_match),
        Special("rgxReplace", 3, 3, _rgx_replace(1)),
        Special("rgxReplaceAll", 3, 3, _rgx_replace(None)),
        Special("timeString", 1, 2, _time_text),
        Special("timeGmtString", 1, 2, _time_text),
        Special("timeParse", 1, 2, _time_parse),
    )
    return {special.name.lower(): special for special in specials}


SPECIALS: Mapping[str, Special] = _table()
