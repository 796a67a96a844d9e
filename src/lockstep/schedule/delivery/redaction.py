"""Secrets of tenants, kept out of error texts: a receiver may send back what it got."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lockstep.schedule.tenants import MASKED, is_secret, mask

_KEYS = ("headers", "ssl.key.pem", "ssl.keystore.key")
"""Properties whose texts are secret whatever their names say."""
_TEXT_MIN, _PART_MIN = 4, 8
_TOKEN = re.compile(r"\S{16,}")
"""What may be a key, in a place whose name does not say so."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def secret_texts(props: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts of props that must not be shown, the longest first."""
    found = set()
    for name, value in props.items():
        shown = None if name in _KEYS else mask(value, name)
        for text in _hidden(value, shown):
            parts = {part for part in re.split(r"[\s,;=:]+", text) if len(part) >= _PART_MIN}
            found |= parts | ({text} if len(text) >= _TEXT_MIN else set())
    return tuple(sorted(found, key=len, reverse=True))


def _hidden(value: Any, shown: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _hidden(item, shown.get(key) if isinstance(shown, dict) else None)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _hidden(item, shown[index] if isinstance(shown, list) else None)
    elif shown is not None and shown not in (value, MASKED):  # a URL, of which a part is shown
        yield from _hidden_in_url(str(value))
    elif shown != value or (shown == MASKED):
        yield str(value)


def _hidden_in_url(url: str) -> Iterator[str]:
    try:
        found = urlsplit(url)
        yield from filter(None, (found.username, found.password))
        for name, text in parse_qsl(found.query):  # words of an error may stand there too
            if is_secret(name) or _TOKEN.fullmatch(text):
                yield text
    except ValueError:  # not a URL after all
        yield url


def printable(text: str) -> str:
    """Return a text of others without control characters, which would act on the terminal that shows it."""
    return _CONTROL.sub("", text)


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text without secrets."""
    for secret in secrets:
        text = text.replace(secret, MASKED)
    return text
