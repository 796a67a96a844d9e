"""Says in English what an expression means, in the words of cron-utils 7.0.2, odd ones included.

Programs that used cron-utils show this text and compare it. It tells what is written, field by field: a list names the
numbers of its items and drops L, W and #; a step names its period even where that reads as a month (*/2 is February).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from lockstep.cron.dialect import Definition
from lockstep.cron.syntax import Always, Between, Every, Node, On, Several

Name = Callable[[int], str]
_SECOND_ZERO = On(0)
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def describe(nodes: Sequence[Node], definition: Definition) -> str:
    """Return the sentence for the nodes of an expression."""
    by_name = {field.name: node for field, node in zip(definition.fields, nodes, strict=False)}
    found = (
        _time_of_day(by_name),
        _dates(by_name["day of month"]),
        _counted(_text(by_name["month"], lambda number: _MONTHS[number - 1]), "month"),
        _weekdays(by_name["day of week"], definition.monday),
        _counted(_text(by_name.get("year", Always()), str), "year"),
    )
    return re.sub(r"\s+", " ", " ".join(found)).strip()


def _counted(text: str, unit: str) -> str:
    """Put the unit into its places: `%s` is one, `%p` several."""
    return text.replace("%s", unit).replace("%p", f"{unit}s")


# --- fields ------------------------------------------------------------------------------------------------------


def _text(node: Node, name: Name) -> str:
    """Return what a field says, with places for its unit; `name` makes words of numbers."""
    match node:
        case On(value):
            return f"at {name(value)} %s"
        case Between(first, last):
            return f"every %s between {_end(first, name)} and {_end(last, name)} "
        case Every(base, period):
            step = f"every {name(period)} %p " if period > 1 else "every %s "
            return step + _text(base, name).removeprefix("every %s") if isinstance(base, Between) else step
        case Several(items):
            return _list(items, name)
        case _:
            return ""


def _end(value: int | str, name: Name) -> str:
    return name(value) if isinstance(value, int) else value


def _list(items: Sequence[Node], name: Name) -> str:
    """Single values first, and then the others."""
    values = [name(item.value) for item in items if isinstance(item, On)]
    others = [_text(item, name) for item in items if not isinstance(item, On)]
    text = f"at{_joined(values)} %p" if values else ""
    return text + (_joined(others) if others else "")


def _joined(texts: Sequence[str]) -> str:
    """The last one follows "and", even if it is the only one."""
    return f" {', '.join(texts[:-1])} and {texts[-1]}"


def _dates(node: Node) -> str:
    match node:
        case On(value, "W"):
            return f"the nearest weekday to the {value} of the month "
        case On(_, "L"):
            return "last day of month"
        case On(_, "LW"):
            return "last weekday of month"
        case _:
            return _counted(_text(node, str), "day")


def _weekdays(node: Node, monday: int) -> str:
    def name(number: int) -> str:
        weekday = number - monday
        return _WEEK[weekday] if weekday >= 0 else _WEEK[-1]

    match node:
        case On(value, "#", nth):
            return f"{name(value)} {nth} of every month "
        case On(value, "L"):
            return f"last {name(value)} of every month "
        case _:
            return _counted(_text(node, name), "day")


# --- the time of day ---------------------------------------------------------------------------------------------


def _time_of_day(by_name: Mapping[str, Node]) -> str:
    hour, minute = by_name["hour"], by_name["minute"]
    second = by_name.get("second", _SECOND_ZERO)
    said = _known_pattern(hour, minute, second)
    if said is not None:
        return said
    parts = ((second, "second"), (minute, "minute"), (hour, "hour"))
    return " ".join(
        "" if node == On(0) and unit != "hour" else _counted(_text(node, str), unit) for node, unit in parts
    )


def _known_pattern(hour: Node, minute: Node, second: Node) -> str | None:
    match hour, minute, second:
        case Always(), Always(), Always():
            return "every second "
        case Always(), Always(), On(at):
            return f"every minute at second {at:02}" if at else "every minute "
        case Always(), On(of_hour), On(at):
            said = f"every hour at minute {of_hour}" if of_hour or at else "every hour "
            return f"{said} and second {at}" if at else said
        case On(of_day), On(of_hour), Always():
            return f"every second at {of_day:02}:{of_hour:02}"
        case On(of_day), On(of_hour), On(at):
            return f"at {of_day:02}:{of_hour:02}:{at:02}" if at else f"at {of_day:02}:{of_hour:02}"
        case On(of_day), Always(), Always():
            return f"at {of_day:02}:00"
        case On(of_day), Between(first, last), On() | Always():
            unit = "minute" if isinstance(second, On) else "second"
            return f"every {unit} between {of_day:02}:{first:02} and {of_day:02}:{last:02}"
        case Always(), Every(base, period), On(at) if not isinstance(base, Between):
            return f"every {period} minutes " if period > 1 or at else "every minute "
        case Every(_, period), On(of_hour), On(at):
            return _every_hours(period, of_hour, at)
        case _:
            return None


def _every_hours(period: int, minute: int, second: int) -> str:
    if second:
        return f"and second {second}"
    return f"every {period} hours at minute {minute} " if period > 1 or minute else "every hour "
