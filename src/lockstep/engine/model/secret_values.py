"""Which values are secrets, by their names and by what they look like: models and settings are shown without them."""

from __future__ import annotations

import re

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
