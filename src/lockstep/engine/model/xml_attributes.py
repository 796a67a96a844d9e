"""The attributes of ESP's elements, and which fields of the model they are: read and written from the same tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.engine.events.schema import FieldType
from lockstep.engine.model import windows as w
from lockstep.engine.model.values import duration_text, parse_duration
from lockstep.engine.model.xml_elements import joined


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is written in an attribute; `read` raises ValueError if it is not."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute and the field it is."""

    name: str
    field: str
    form: Form


def _read_flag(text: str) -> bool:
    found = {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower())
    if found is None:
        msg = f"{text!r} is neither true nor false"
        raise ValueError(msg)
    return found


def _read_number(text: str) -> int:
    if not re.fullmatch(r"\s*-?[0-9]{1,30}\s*", text, re.ASCII):
        msg = f"{text!r} is not a whole number"
        raise ValueError(msg)
    return int(text)


def _read_type(text: str) -> FieldType:
    name = text.strip().lower()
    try:
        return FieldType("string" if name == "rstring" else name)  # ESP's strings that are shared, not copied
    except ValueError:
        msg = f"{text!r} is not a type: {', '.join(kind.value for kind in FieldType)}"
        raise ValueError(msg) from None


def _read_timeout(text: str) -> int | None:
    return None if text.strip().lower() == "never" else parse_duration(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\s,]+", text))


TEXT = Form(str, str)
FLAG = Form(_read_flag, lambda flag: "true" if flag else "false")
NUMBER = Form(_read_number, str)
DURATION = Form(parse_duration, duration_text)
TIMEOUT = Form(_read_timeout, duration_text)
TYPE = Form(_read_type, lambda kind: str(kind.value))
WORDS = Form(_words, lambda names: joined(names, " "))
COMMAS = Form(_words, lambda names: joined(names, ","))

Table = tuple[Attribute, ...]


def table(*rows: tuple[str, str, Form]) -> Table:
    """A table of attributes."""
    return tuple(Attribute(*row) for row in rows)


WINDOW = table(
    ("name", "name", TEXT),
    ("pubsub", "pubsub", FLAG),
    ("index", "index", TEXT),
    ("pubsub-index", "pubsub_index", TEXT),
    ("output-insert-only", "output_insert_only", FLAG),
    ("collapse-updates", "collapse_updates", FLAG),
    ("pulse-interval", "pulse_us", DURATION),
)
KINDS: Mapping[type[w.Window], Table] = {
    w.SourceWindow: table(
        ("insert-only", "insert_only", FLAG),
        ("autogen-key", "autogen_key", FLAG),
        ("form", "form", TEXT),
        ("stream", "stream", TEXT),
        ("decode", "decode", TEXT),
        ("date-format", "date_format", TEXT),
        ("upsert", "upsert", FLAG),
    ),
    w.UnionWindow: table(("strict", "strict", FLAG)),
    w.FunctionalWindow: table(("produces-only-inserts", "produces_only_inserts", FLAG)),
    w.CounterWindow: table(("count-interval", "count_us", DURATION), ("clear-interval", "clear_us", DURATION)),
    w.TransposeWindow: table(
        ("mode", "mode", TEXT),
        ("tag-name", "tag_name", TEXT),
        ("tag-values", "tag_values", COMMAS),
        ("tags-included", "tags_included", COMMAS),
        ("group-by", "group_by", COMMAS),
        ("clear-timeout", "clear_us", TIMEOUT),
    ),
    w.CustomWindow: table(
        ("module", "module", TEXT),
        ("class", "class_", TEXT),
        ("version", "version", TEXT),
        ("tick", "tick_us", DURATION),
    ),
    w.RemoveStateWindow: table(("remove", "remove", WORDS), ("add-log-fields", "add_log_fields", FLAG)),
}
PROJECT = table(
    ("name", "name", TEXT),
    ("pubsub", "pubsub", TEXT),
    ("threads", "threads", NUMBER),
    ("index", "index", TEXT),
    ("heartbeat-interval", "heartbeat_us", DURATION),
    ("restore", "restore", TEXT),
    ("disk-store-path", "disk_store_path", TEXT),
    ("retention-tracking", "retention_tracking", FLAG),
    ("use-tagged-token", "use_tagged_token", FLAG),
    ("compress-open-patterns", "compress_open_patterns", FLAG),
)
QUERY = table(
    ("name", "name", TEXT),
    ("trace", "trace", WORDS),
    ("index", "index", TEXT),
    ("timing-threshold", "timing_threshold", NUMBER),
    ("include-singletons", "include_singletons", FLAG),
)
EDGE = table(("source", "source", WORDS), ("target", "target", WORDS), ("role", "role", TEXT), ("slot", "slot", NUMBER))
GROUP_EDGE = EDGE[:2]
ENTRY = table(("connector", "connector", TEXT), ("state", "state", TEXT))
CONNECTOR = table(
    ("class", "kind", TEXT), ("name", "name", TEXT), ("type", "direction", TEXT), ("active", "active", FLAG)
)
JOIN = table(
    ("type", "type", TEXT),
    ("no-regenerates", "no_regenerates", FLAG),
    ("left-index", "left_index", TEXT),
    ("right-index", "right_index", TEXT),
)
JOIN_FIELD = table(("name", "name", TEXT), ("source", "source", TEXT), ("type", "type", TYPE))
PLUG = table(
    ("plugin", "module", TEXT),
    ("function", "function", TEXT),
    ("fields", "fields", WORDS),
    ("additive", "additive", FLAG),
    ("additive-insert-only", "additive_insert_only", FLAG),
)
PATTERN = table(("name", "name", TEXT), ("index", "index", COMMAS), ("active", "is_active", FLAG))
PATTERN_EVENT = table(("name", "name", TEXT), ("source", "source", TEXT))
PATTERN_OUTPUT = table(("name", "field", TEXT), ("node", "node", TEXT))
FUNCTION = table(("name", "name", TEXT), ("type", "type", TYPE))
INITIALIZER = table(("type", "type", TYPE))
SMTP = table(
    ("host", "host", TEXT),
    ("port", "port", NUMBER),
    ("user", "user", TEXT),
    ("password-variable", "password_variable", TEXT),
)
CHANNEL = table(
    ("name", "name", TEXT),
    ("throttle-interval", "throttle_us", DURATION),
    ("unresolved-text", "unresolved", TEXT),
    ("test", "test", FLAG),
)
LOOP = table(("name", "name", TEXT), ("data", "data", TEXT))
PROCEDURAL = table(("name", "module", TEXT), ("function", "handler", TEXT))

LOOP_WORDS = {"regex": ("use-text", "regex"), "xml": ("use-xml", "xpath"), "json": ("use-json", "json")}
"""The elements of an event loop: the text to look into, and what to find there."""
PROPERTY_DIVIDERS = {
    "map": ("outer", "inner"),
    "list": ("delimiter", "inner"),
    "set": ("delimiter", "inner"),
    "xml": ("outer", "inner"),
    "json": ("outer", "inner"),
    "string": ("outer", "inner"),
}
"""The kinds of a context's properties, with the attributes that divide their items, the outer one first."""
CHANNELS = ("email", "sms", "mms")
CHANNEL_INFO = (("sender", "sender"), ("subject", "subject"), ("from", "shown_sender"), ("gateway", "gateway"))
CHANNEL_CONTENTS = (("text-content", "body"), ("html-content", "html"), ("image-content", "image"))
