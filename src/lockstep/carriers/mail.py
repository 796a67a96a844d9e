"""Sends items by SMTP. The message is a pure function of the item, and its Message-ID follows from the item's id.

The body of an item is a JSON object of texts: `recipient`, `sender`, `host` and `port`, and perhaps `subject`, `body`,
`html`, `image`, `shown_sender`, `shown_to`, `time_us`, `user` and `password_variable`. They may stand below `content`,
as in the notices of notification windows. What an item leaves out is taken from the defaults of the carrier.
"""

from __future__ import annotations

import json
import re
import smtplib
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.errors import MessageError
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import sha256
from ipaddress import ip_address

from lockstep.errors import DeliveryRefused, ServerUnreachable
from lockstep.streams.outbox import Item

_PLAIN = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}"
_ADDRESS = re.compile(rf"({_PLAIN})|[^<>@]*<({_PLAIN})>", re.ASCII)
TIMEOUT_S = 10.0

Content = Mapping[str, str]


class MailSender:
    """A handler that hands items to their SMTP servers.

    `environment` holds the passwords by the names that items give. An address, a header or a password that can't be,
    and an answer of 5xx, refuse the item; a server that is busy or away is tried again.
    """

    def __init__(
        self, environment: Mapping[str, str], defaults: Content | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._environment, self._defaults, self._timeout_s = environment, defaults or {}, timeout_s

    def __call__(self, item: Item) -> None:
        """Send one item."""
        content = {**self._defaults, **content_of(item)}
        message = compose(content, item.id, item.kind)
        password = self._password(content)
        try:
            self._hand_over(content, message, password)
        except (OSError, smtplib.SMTPException) as error:
            if _is_final(error):
                raise DeliveryRefused(reason=_told(error)) from None
            server = f"{content['host']}:{content['port']}"
            raise ServerUnreachable(server=server, reason=_told(error)) from None

    def _hand_over(self, content: Content, message: EmailMessage, password: str | None) -> None:
        host, port = content["host"], int(content["port"])
        with smtplib.SMTP(host, port, timeout=self._timeout_s) as server:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            elif password is not None and not _is_loopback(host):
                raise DeliveryRefused(reason="the server offers no TLS, and the password is not sent without it")
            if password is not None:
                server.login(content["user"], password)
            server.send_message(message, address(content["sender"]), [address(content["recipient"])])

    def _password(self, content: Content) -> str | None:
        if not content.get("user"):
            return None
        variable = content.get("password_variable") or ""
        if variable not in self._environment:
            raise DeliveryRefused(reason=f"the environment variable {variable!r} with the password is not set")
        return self._environment[variable]


def content_of(item: Item) -> dict[str, str]:
    """The texts of an item."""
    try:
        told = json.loads(item.body)
        found = told.get("content", told)
        texts = {str(name): str(text) for name, text in found.items() if isinstance(text, str | int)}
    except (ValueError, AttributeError) as error:
        raise DeliveryRefused(reason=f"its body is not a JSON object of texts: {type(error).__name__}") from None
    return texts


def compose(content: Content, item: str, kind: str = "") -> EmailMessage:
    """The message of an item, always the same; raises DeliveryRefused if an address or a header is ambiguous."""
    message = EmailMessage(policy=SMTP)
    try:
        message["Message-ID"] = f"<{sha256(item.encode()).hexdigest()[:40]}@lockstep>"
        message["From"] = _shown(content.get("shown_sender", ""), address(content["sender"]))
        message["To"] = _shown(content.get("shown_to", ""), address(content["recipient"]))
        if content.get("subject") and kind != "sms":
            message["Subject"] = _line(content["subject"])
        if int(content.get("time_us", 0)) > 0:
            message["Date"] = format_datetime(datetime.fromtimestamp(int(content["time_us"]) // 1_000_000, UTC))
        _fill(message, content)
        _ = content["host"], int(content["port"])
    except (KeyError, ValueError, OverflowError, OSError, MessageError) as error:
        raise DeliveryRefused(reason=f"it is not whole: {error}") from None
    return message


def address(text: str) -> str:
    """A single address; DeliveryRefused for anything else, line breaks above all."""
    plain = _line(text)
    found = _ADDRESS.fullmatch(plain)
    if found is None:
        raise DeliveryRefused(reason=f"{plain!r} is not one mail address")
    return found[1] or found[2]


def _fill(message: EmailMessage, content: Content) -> None:
    body = "\n\n".join(part for part in (content.get("body", ""), content.get("image", "")) if part)
    message.set_content(body, cte="base64" if not body.isascii() else None)
    if content.get("html"):
        # The boundary is made from the content, so that the message is the same each time.
        message.add_alternative(content["html"], subtype="html")
        message.set_boundary(f"lockstep-{sha256(repr(sorted(content.items())).encode()).hexdigest()[:32]}")


def _shown(name: str, plain: str) -> str:
    """An address with the name that is shown beside it; the name may not hold what ends it."""
    shown = _line(name).replace("\\", "").replace('"', "")
    return f'"{shown}" <{plain}>' if shown and shown != plain else plain


def _line(text: str) -> str:
    if any(letter in text for letter in "\r\n\0\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"):
        raise DeliveryRefused(reason="a header holds a line break")
    return text.strip()


def _is_final(error: Exception) -> bool:
    """Whether trying again can't help: the server has refused the message, a recipient or the login for good."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(500 <= code < 600 for code, _ in error.recipients.values())
    if isinstance(error, smtplib.SMTPResponseException):
        return 500 <= error.smtp_code < 600
    return isinstance(error, smtplib.SMTPNotSupportedError)


def _told(error: Exception) -> str:
    """What the server said, as far as it can be shown: a code, never the words, which may repeat what was sent."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = sorted({code for code, _ in error.recipients.values()})
        return f"the recipient was refused with {', '.join(map(str, codes))}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the server answered {error.smtp_code}"
    return (
        f"{type(error).__name__}: {error.strerror}"
        if isinstance(error, OSError) and error.strerror
        else type(error).__name__
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
