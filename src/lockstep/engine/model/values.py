"""Values as models write them: durations, and which values are secrets."""

from __future__ import annotations

import re

UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
"""The units by name, the smallest first."""
MAX_US = 2**61
"""Times further than this from 1970, some 73,000 years, do not count, and no duration is longer: sums of two fit."""
DURATION_REMEDY = "Write a number and a unit, as in 5 minutes; a number alone is seconds."

_SHAPE = re.compile(r"(-?[0-9]{1,30})\s*([A-Za-z]*?)(?:s|\(s\))?", re.ASCII)


def parse_duration(text: str | int) -> int:
    """Microseconds of a duration; raises ValueError if it is none."""
    found = _SHAPE.fullmatch(str(text).strip())
    unit = found and UNITS_US.get(found[2].lower() or "second")
    if found is None or unit is None or (not found[2] and not found[0][-1].isdigit()):
        msg = f"{text!r} is not a duration"
        raise ValueError(msg)
    return int(found[1]) * unit


def duration_text(microseconds: int) -> str:
    """The duration in the largest unit that holds it as a whole number; parse_duration gives it back."""
    units = [unit for unit, size in UNITS_US.items() if microseconds % size == 0]
    unit = units[-1] if microseconds else "second"
    count = microseconds // UNITS_US[unit]
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


HIDDEN = "********"
_CONTAINED = ("passw", "passphrase", "passcode", "pwd", "secret", "token", "key", "config", "credential", "jaas",
              "connectstring", "connectionstring", "requestproperties", "requestheaders")  # fmt: skip
_ENDINGS = ("pass", "pw", "auth")
_NO_SECRETS = ("compass", "bypass")
_COMMAND, _ADAPTER = "command", "dfesp_"
_LOGIN = re.compile(r"(\b[A-Za-z][\w+.\-]*://)(\S*)@")
_PAIR = re.compile(r"([A-Za-z_][\w.\-]*)(\s*=\s*)(\{[^}]*\}|\"[^\"]*\"|'[^']*'|[^\s;&]+)")


def is_secret(name: str) -> bool:
    """Whether a property of this name may hold a secret: rmqpassword, smtppass, kafkaglobalconfig, sslkey and so on."""
    plain = re.sub(r"[\W_]", "", name.lower())
    if any(word in plain for word in _CONTAINED):
        return True
    return plain.endswith(_ENDINGS) and not plain.endswith(_NO_SECRETS)


def shown(name: str, value: str) -> str:
    """A value as it may be shown: hidden if its name says so, else without the passwords that are parts of it."""
    if name.lower() == _COMMAND and value.startswith(_ADAPTER):
        return f"{value.partition(' ')[0]} {HIDDEN}"  # its options are not told apart here
    return HIDDEN if value and is_secret(name) else without_parts(value)


def without_parts(text: str) -> str:
    """A text without the passwords of URLs, and without the values of pairs NAME=VALUE with the name of a secret.

    Where it is not clear how far a password goes, more is hidden rather than less.
    """
    text = _LOGIN.sub(lambda found: f"{found[1]}{found[2].partition(':')[0]}@", text)
    return _PAIR.sub(lambda found: f"{found[1]}{found[2]}{HIDDEN}" if is_secret(found[1]) else found[0], text)
