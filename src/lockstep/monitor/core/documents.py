"""JSON documents of the monitor: parse and encode, deep merge, redaction, tokens, shortening of outputs.

Agents, servers and the core treat documents by these functions, so that all of them do the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

DEPTH_LIMIT = 100
REDACTED = "REDACTED"
REDACTED_KEYS = frozenset(
    ("password", "passwd", "pass", "api_key", "api_token", "access_key", "secret_key", "private_key", "secret")
)
OUTPUT_LENGTH = 255
MESSAGE_MAX = 96 * 1024
"""Bytes of a keepalive or result: an event holds one of each, and a notice holds an event."""
CUT = "\n(cut, as the result was too long)"
_HALF = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(r":::([^:].*?):::")
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]')


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        reason = f"the number {text[:40]} is too large"
        raise ValueError(reason)
    return value


def _constant(text: str) -> float:
    reason = f"{text} is not JSON"
    raise ValueError(reason)


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_constant)
scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined]  # unknown to typeshed
"""The value that begins at a place of a text, and the place after it; StopIteration or ValueError if there is none."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ASCII_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_SORTED_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), sort_keys=True)


def parse(data: bytes) -> Any:
    """The document in UTF-8 JSON; a ValueError says why it is none. Deeper than 100 levels is refused."""
    if data.count(b"[") + data.count(b"{") > DEPTH_LIMIT and _depth(data) > DEPTH_LIMIT:
        reason = f"it is nested deeper than {DEPTH_LIMIT} levels"
        raise ValueError(reason)
    return _DECODER.decode(data.decode("utf-8"))


def scrubbed(document: Any, data: bytes) -> Any:
    """A document whose texts UTF-8 can write, `data` is what it was read from: halves of surrogate pairs are U+FFFD."""
    if b"\\u" not in data:
        return document
    text = _ENCODER.encode(document)
    return document if _HALF.search(text) is None else _DECODER.decode(_HALF.sub("\ufffd", text))


def parse_object(data: bytes) -> dict[str, Any]:
    """As parse, for a document that has to be an object with members."""
    document = parse(data)
    if not isinstance(document, dict):
        reason = f"it is a {type(document).__name__}, not an object"
        raise ValueError(reason)
    return document


def _depth(data: bytes) -> int:
    depth = deepest = 0
    for found in _BRACKETS.finditer(data):
        mark = found.group()
        if mark in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in b"]}":
            depth -= 1
    return deepest


def encode(document: Any) -> bytes:
    """The document as compact UTF-8 JSON, members in their order: the same document gives the same bytes."""
    try:
        return _ENCODER.encode(document).encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold as \\ud800 and UTF-8 can't
        return _ASCII_ENCODER.encode(document).encode("ascii")


def encode_text(document: Any) -> str:
    """As encode, as a text that UTF-8 can write."""
    text = _ENCODER.encode(document)
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _ASCII_ENCODER.encode(document)
    return text


def canonical(document: Any) -> bytes:
    """As encode with members sorted by name: equal documents give equal bytes."""
    return _SORTED_ENCODER.encode(document).encode("ascii")


def deep_merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both documents as one: objects are merged, lists joined without doubles, of other values the second's wins."""
    merged = dict(first)
    for name, value in second.items():
        held = merged.get(name)
        if isinstance(held, Mapping) and isinstance(value, Mapping):
            merged[name] = deep_merge(held, value)
        elif isinstance(held, list) and isinstance(value, list):
            merged[name] = without_doubles([*held, *value])
        else:
            merged[name] = value
    return merged


def without_doubles(items: list[Any]) -> list[Any]:
    """Each item once, in the order of first sight. True, 1 and 1.0 are three items."""
    found: dict[bytes, Any] = {}
    for item in items:
        found.setdefault(canonical(item), item)
    return list(found.values())


def redact(document: Any, keys: Collection[str] = REDACTED_KEYS) -> Any:
    """A copy in which the value of each member with one of these names, at any depth, is REDACTED."""
    if isinstance(document, Mapping):
        return {name: REDACTED if name in keys else redact(value, keys) for name, value in document.items()}
    if isinstance(document, list):
        return [redact(item, keys) for item in document]
    return document


def substitute(text: str, attributes: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The text with each token :::a.b::: or :::a.b|default::: replaced by the attribute; and those without a value."""
    unmatched: list[str] = []

    def value_of(found: re.Match[str]) -> str:
        token, bar, default = found.group(1).partition("|")
        value = attribute_at(attributes, token.split("."))
        if value is None and not bar:
            unmatched.append(token)
        return default if value is None else as_text(value)

    if ":::" not in text:
        return text, unmatched
    return _TOKEN.sub(value_of, text), list(dict.fromkeys(unmatched))


def substitute_all(document: Any, attributes: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """A copy with the tokens of every text at any depth replaced; and the tokens without a value, each once."""
    if isinstance(document, str):
        return substitute(document, attributes)
    unmatched: list[str] = []

    def treated(value: Any) -> Any:
        value, missing = substitute_all(value, attributes)
        unmatched.extend(missing)
        return value

    if isinstance(document, Mapping):
        document = {name: treated(value) for name, value in document.items()}
    elif isinstance(document, list):
        document = [treated(item) for item in document]
    return document, list(dict.fromkeys(unmatched))


def attribute_at(attributes: Mapping[str, Any], path: list[str]) -> Any:
    """The first value on the path that is no object, as in Sensu; None if the path ends before one."""
    value: Any = attributes
    for name in path:
        value = value.get(name)
        if not isinstance(value, Mapping):
            return value
    return None


def as_text(value: Any) -> str:
    """A value as it stands in a text: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def stored_output(check: Mapping[str, Any]) -> str:
    """The output of a result as it is stored: of metrics the first line, at most 256 characters and a mark."""
    output = check.get("output")
    text = output if isinstance(output, str) else ""
    wish = check.get("truncate_output")
    if not wish and (check.get("type") != "metric" or wish is False):
        return text
    lines = text.rstrip("\n").split("\n")
    length = check.get("truncate_output_length", OUTPUT_LENGTH)
    if not isinstance(length, int) or isinstance(length, bool) or length < 0:
        length = OUTPUT_LENGTH
    if len(lines) > 1 or len(lines[0]) > length:
        return lines[0][: length + 1] + "\n..."
    return lines[0]


def fitted(result: Mapping[str, Any], limit: int = MESSAGE_MAX) -> dict[str, Any] | None:
    """A result of at most `limit` bytes: what its check and its hooks wrote is cut, the longest first, and marked.

    None if that is not enough.
    """
    check = result.get("check")
    if not isinstance(check, Mapping):
        return None
    check, wrote = dict(check), []
    hooks = check.get("hooks")
    if isinstance(hooks, Mapping):
        copies = {name: dict(hook) if isinstance(hook, Mapping) else hook for name, hook in hooks.items()}
        check["hooks"] = copies
        wrote = [hook for hook in copies.values() if isinstance(hook, dict)]
    made = {**result, "check": check}
    wrote = [each for each in (check, *wrote) if isinstance(each.get("output"), str)]
    for each in sorted(wrote, key=lambda one: -len(one["output"])):
        excess = len(encode(made)) - limit
        if excess > 0:
            text = each["output"]
            each["output"] = _cut(text, len(encode(text)) - excess - len(encode(CUT))) + CUT
    return made if len(encode(made)) <= limit else None


def _cut(text: str, room: int) -> str:
    """As much of a text from its beginning as has so many bytes in JSON."""
    while text and (size := len(encode(text))) > room:
        text = text[: min(len(text) - 1, max(0, len(text) * room // size))]
    return text
