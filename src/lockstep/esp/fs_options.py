"""What dfesp_fs_adapter is asked for: its flags, and the same by name behind -C. Pure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.connectors.switches import switch, words_of
from lockstep.errors import UsageError

TYPES = ("csv", "json", "binary")
_PART = re.compile(r"""\s*(\w+)\s*=\s*("[^"]*"|'[^']*'|.*?)\s*(?:,(?=\s*\w+\s*=)|$)""", re.DOTALL)

_FLAGS = {
    "pub": {
        "transactional": "--transactional",
        "growinginputfile": "--growing",
        "addcsvopcode": "--add-opcode",
        "addcsvflags": "--add-flags",
        "publishwithupsert": "--upsert",
        "noautogenfield": "--no-key",
        "ignorecsvparseerrors": "--ignore-parse-errors",
    },
    "sub": {"collapse": "--collapse", "rmretdel": "--rmretdel"},
}
_VALUES = {
    "pub": {
        "rate": "--rate",
        "repeatcount": "--repeat",
        "maxevents": "--max-events",
        "header": "--header",
        "csvfielddelimiter": "--delimiter",
    },
    "sub": {},
}
_IGNORED_ALWAYS = ("loglevel", "prebuffer", "unbufferedoutputstreams", "logconfigfile", "configfilesection",
                   "buffersize", "maxfilesize", "periodicity")  # fmt: skip
_IGNORED = {"pub": _IGNORED_ALWAYS, "sub": (*_IGNORED_ALWAYS, "rate")}
_PLAIN = ("type", "url", "fsname", "fstype", "transport", "transportconfigfile", "dateformat", "blocksize", "snapshot",
          "header")  # fmt: skip
_BY_FLAG = {
    "type": "k",
    "url": "url",
    "fsname": "file",
    "fstype": "type",
    "transport": "transport",
    "blocksize": "block",
    "dateformat": "date_format",
}
_HEADERS = {"true": "names", "full": "full", "false": "none"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be done."""

    kind: str
    url: str
    file: str
    type: str = "csv"
    transport: str = "native"
    config_file: str = ""
    block: int = 1
    date_format: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """Further options of the adapter's own command."""
    ignored: tuple[str, ...] = ()


def wish_of(options: argparse.Namespace) -> Wish:
    """The flags and -C together; UsageError for what is missing, unknown, or given twice."""
    named = _settings(options.settings)
    for name, flag in _BY_FLAG.items():
        value = getattr(options, flag)
        if value is not None:
            if name in named:
                raise UsageError(reason=f"{name} is given twice: by its flag and by -C.")
            named[name] = value
    for name, flag in (("type", "-k"), ("url", "-h"), ("fsname", "-f")):
        if not named.get(name):
            raise UsageError(reason=f"{flag} is missing (or -C {name}=...). See 'dfesp_fs_adapter --help'.")
    kind = named["type"].lower()
    if kind not in _FLAGS:
        raise UsageError(reason=f"type={named['type']} is unknown: pub or sub.")
    return Wish(
        kind,
        named["url"],
        named["fsname"],
        _type(named.get("fstype", "csv")),
        named.get("transport", "native").lower(),
        named.get("transportconfigfile", ""),
        _number("blocksize", named.get("blocksize", "1")),
        named.get("dateformat", ""),
        {"snapshot": named["snapshot"]} if "snapshot" in named else {},
        tuple(_words(kind, named)),
        tuple(name for name in named if name in _IGNORED[kind]),
    )


def _settings(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        at = 0
        while at < len(text):
            part = _PART.match(text, at)
            if part is None:
                raise UsageError(reason=f"-C {text[at:]!r} is not KEY=VALUE,...")
            name, value = part[1].lower(), part[2]
            if name in found:
                raise UsageError(reason=f"-C gives {name} twice.")
            found[name] = value[1:-1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else value
            at = part.end()
    return found


def _words(kind: str, named: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for name, value in named.items():
        if name in _FLAGS[kind]:
            words += [_FLAGS[kind][name]] if _is_on(name, value) else []
        elif name in _VALUES[kind]:
            words += [_VALUES[kind][name], _value(name, value)]
        elif name == "header":
            words += ["--header", _HEADERS.get(value.lower(), value)]
        elif name not in (*_PLAIN, *_IGNORED[kind]):
            known = ", ".join(sorted({*_PLAIN, *_FLAGS[kind], *_VALUES[kind], *_IGNORED[kind]}))
            raise UsageError(reason=f"-C {name} is unknown for {kind}; there are {known}.")
    return words


def _value(name: str, text: str) -> str:
    if name == "repeatcount":  # it says how often the file is read again, and --repeat how often it is read
        return str(_number(name, text, least=0) + 1)
    return {"true": "1", "false": "0"}.get(text.lower(), text)


def _is_on(name: str, value: str) -> bool:
    found = switch(name, value)
    if found is None:
        raise UsageError(reason=f"{name}={value} is unknown: write {words_of(name)}.")
    return found


def _type(text: str) -> str:
    if text.lower() not in TYPES:
        raise UsageError(reason=f"The type {text!r} is not supported: use {', '.join(TYPES)}.")
    return text.lower()


def _number(name: str, text: str, *, least: int = 1) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UsageError(reason=f"{name} {text!r} must be a whole number from {least} on.")
    return int(text)
