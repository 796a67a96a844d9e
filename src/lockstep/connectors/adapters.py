"""Adapters that a model names by their command: the one for REST is a connector here. No command is run. Pure.

dfesp_rest_subscriber -C NAME=VALUE,NAME=VALUE: a value between quotes may have commas, and so may a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lockstep.connectors.errors import ConnectorRefused

ADAPTER, REST = "adapter", "rest"
_KNOWN = {"dfesp_rest_subscriber": REST}
_WORD = re.compile(r'(?:"[^"]*"|[^",])+')
_SNAPSHOT = re.compile(r"[?&]snapshot=(\w+)")


def as_connector(connector: str, kind: str, given: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The kind and the properties of the connector that does what an adapter's command would do."""
    if kind != ADAPTER:
        return kind, given
    known = {name.strip().lower(): text.strip() for name, text in given.items()}
    program, _, rest = known.pop("command", "").partition(" ")
    found = _KNOWN.get(program.rpartition("/")[2])
    if found is None:
        reason = f"its command {program[:60]!r} would be run, and nothing in a model is"
        remedy = f"Use a connector of the class that does the same. Known are: {', '.join(_KNOWN)}."
        raise ConnectorRefused(connector=connector, reason=reason, remedy=remedy)
    options = rest.strip()
    if not options.startswith("-C "):
        reason, remedy = "its command has no -C NAME=VALUE,NAME=VALUE", f"Write {program} -C resturl=...,url=... ."
        raise ConnectorRefused(connector=connector, reason=reason, remedy=remedy)
    values = _pairs(options.removeprefix("-C "))
    if is_wanted := _SNAPSHOT.search(values.get("url", "")):
        values["snapshot"] = is_wanted[1]
    return found, {**known, **values}


def _pairs(text: str) -> dict[str, str]:
    """Return the comma-separated pairs; a part without an equals sign continues the value before it."""
    found: dict[str, str] = {}
    name = ""
    for word in (word.strip() for word in _WORD.findall(text)):
        head, sign, value = word.partition("=")
        if sign and re.fullmatch(r"\w+", head.strip()):
            name = head.strip().lower()
            found[name] = value.strip().strip('"')
        elif name:
            found[name] += "," + word.strip('"')
    return found
