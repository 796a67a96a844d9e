"""How CSV lines of events look: what is in them, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lockstep.engine.events.text import time_formats
from lockstep.errors import BadArgument

_NO_DELIMITERS = frozenset('"\r\n.+- ')


def check_delimiter(delimiter: str) -> None:
    """Refuse what could be part of a number, or is not one character."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in _NO_DELIMITERS:
        raise BadArgument(name="delimiter", value=delimiter, reason="use one character such as , ; | or a tab")


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvOptions:
    """How lines are read. A line is `opcode,flag,fields...`, unless the options say that it has less."""

    header: int = 0
    """Lines to skip at the beginning."""
    add_opcode: bool = False
    """Lines have no opcode: all are inserts."""
    add_flags: bool = False
    """Lines have no flag: all are normal."""
    upsert: bool = False
    """Inserts are taken as upserts."""
    no_autogen_field: bool = False
    """Lines have no key field, because the window makes the key itself."""
    delimiter: str = ","
    date_format: str | None = None
    """As strptime has it, in UTC; None: whole seconds or microseconds since 1970."""
    ignore_errors: bool = False
    """Broken lines are dropped without a word; else they are bad records."""
    max_events: int | None = None
    block_size: int = 1
    transactional: bool = False
    """All blocks are transactional; it is for who makes blocks of the events."""

    def __post_init__(self) -> None:
        check_delimiter(self.delimiter)
        if self.date_format is not None:
            time_formats(self.date_format)
        if self.block_size < 1:
            raise BadArgument(name="block_size", value=self.block_size, reason="a block has one event or more")

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> CsvOptions:
        """The options a connector's properties set; others are of no interest here."""
        found: dict[str, object] = {}
        for name, text in properties.items():
            if name in _SWITCHES:
                found[_SWITCHES[name]] = text.strip().lower() in ("true", "1", "yes")
            elif name in _NUMBERS and text.strip():
                found[_NUMBERS[name]] = _number(name, text)
            elif name in _TEXTS and text:
                found[_TEXTS[name]] = text
        return cls(**found)  # type: ignore[arg-type]


_SWITCHES = {
    "addcsvopcode": "add_opcode",
    "addcsvflags": "add_flags",
    "publishwithupsert": "upsert",
    "noautogenfield": "no_autogen_field",
    "ignorecsvparseerrors": "ignore_errors",
    "transactional": "transactional",
}
_NUMBERS = {"header": "header", "maxevents": "max_events", "blocksize": "block_size"}
_TEXTS = {"csvfielddelimiter": "delimiter", "dateformat": "date_format"}


def _number(name: str, text: str) -> int:
    words = {"true": 1, "false": 0}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    if not text.strip().isdecimal():
        raise BadArgument(name=name, value=text, reason="it must be a whole number")
    return int(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvOutput:
    """How lines are written.

    `collapse` writes an update as one line with opcode U instead of UB and D, so that the file can be published again.
    `no_retention_deletes` leaves out deletes caused by retention. A header has the names, `full` also types and keys.
    """

    collapse: bool = False
    no_retention_deletes: bool = False
    header: Literal["none", "names", "full"] = "none"
    delimiter: str = ","
    date_format: str | None = None

    def __post_init__(self) -> None:
        check_delimiter(self.delimiter)
