"""Sends the notices of notification windows by SMTP, at the edge of the engine.

What is sent is a pure function of the notice. Which notices were sent is kept by the caller: it asks for one after the
other, and goes on behind the last one whose outcome is not `later`. A message may go out twice if the engine dies
between the server's answer and the caller's note; its Message-ID is the same then.
"""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import MessageError
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import sha256
from ipaddress import ip_address

from lockstep.engine.windows.operator import Notice

SENT, REFUSED, LATER = "sent", "refused", "later"

_PLAIN = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}"
_ADDRESS = re.compile(rf"({_PLAIN})|[^<>@]*<({_PLAIN})>", re.ASCII)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a notice: sent, refused (it never will be) or later (the server could not be used now)."""

    state: str
    attempts: int
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MailPolicy:
    """How hard to try: so many attempts, with a pause that doubles, each with a timeout."""

    attempts: int = 3
    timeout_s: float = 10.0
    pause_s: float = 1.0
    pause_max_s: float = 30.0


class Unsendable(ValueError):
    """A notice that can't become a message."""


class _NoTls(Exception):
    """A password would cross the network in the clear."""


class MailSender:
    """Hands notices to their SMTP servers.

    `environment` holds the passwords by the names that the model gives; `sleep` waits between attempts.
    """

    def __init__(
        self, environment: Mapping[str, str], sleep: Callable[[float], None], policy: MailPolicy | None = None
    ) -> None:
        self._environment = environment
        self._sleep = sleep
        self._policy = policy or MailPolicy()

    def send(self, notice: Notice) -> Outcome:
        """Send one notice; errors of the server or the network are outcomes, not exceptions."""
        try:
            message = compose(notice)
            password = self._password(notice)
        except Unsendable as error:
            return Outcome(REFUSED, 0, str(error))
        pause, reason = self._policy.pause_s, ""
        for attempt in range(1, self._policy.attempts + 1):
            outcome = self._try(notice, message, password, attempt)
            if outcome.state != LATER:
                return outcome
            reason = outcome.reason
            if attempt < self._policy.attempts:
                self._sleep(min(pause, self._policy.pause_max_s))
                pause *= 2
        return Outcome(LATER, self._policy.attempts, reason)

    def _try(self, notice: Notice, message: EmailMessage, password: str | None, attempt: int) -> Outcome:
        try:
            self._hand_over(dict(notice.content), message, password)
        except _NoTls:
            return Outcome(REFUSED, attempt, "the server offers no TLS, and the password is not sent without it")
        except (OSError, smtplib.SMTPException) as error:
            return Outcome(REFUSED if _is_final(error) else LATER, attempt, _told(error))
        return Outcome(SENT, attempt)

    def _hand_over(self, content: dict[str, str], message: EmailMessage, password: str | None) -> None:
        host, port = content["host"], int(content["port"])
        with smtplib.SMTP(host, port, timeout=self._policy.timeout_s) as server:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            elif password is not None and not _is_loopback(host):
                raise _NoTls
            if password is not None:
                server.login(content["user"], password)
            server.send_message(message, address(content["sender"]), [address(content["recipient"])])

    def _password(self, notice: Notice) -> str | None:
        content = dict(notice.content)
        if not content.get("user"):
            return None
        variable = content.get("password_variable") or ""
        if variable not in self._environment:
            msg = f"the environment variable {variable!r} with the password is not set"
            raise Unsendable(msg)
        return self._environment[variable]


def compose(notice: Notice) -> EmailMessage:
    """The message of a notice, always the same; raises Unsendable if an address or a header could not be told apart."""
    content = dict(notice.content)
    message = EmailMessage(policy=SMTP)
    try:
        message["Message-ID"] = f"<{_digest(notice)}@lockstep>"
        message["From"] = _shown(content.get("shown_sender", ""), address(content["sender"]))
        message["To"] = _shown(content.get("shown_to", ""), address(content["recipient"]))
        if content.get("subject") and notice.kind != "sms":
            message["Subject"] = _line(content["subject"])
        if int(content["time_us"]) > 0:
            message["Date"] = format_datetime(datetime.fromtimestamp(int(content["time_us"]) // 1_000_000, UTC))
        _fill(message, content)
    except (KeyError, ValueError, OverflowError, OSError, MessageError) as error:
        raise error if isinstance(error, Unsendable) else Unsendable(f"the notice is not whole: {error}") from None
    return message


def address(text: str) -> str:
    """A single address; raises Unsendable for anything else, line breaks above all."""
    plain = _line(text)
    found = _ADDRESS.fullmatch(plain)
    if found is None:
        msg = f"{plain!r} is not one mail address"
        raise Unsendable(msg)
    return found[1] or found[2]


def _fill(message: EmailMessage, content: dict[str, str]) -> None:
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
        msg = "a header holds a line break"
        raise Unsendable(msg)
    return text.strip()


def _digest(notice: Notice) -> str:
    return sha256(repr((notice.block, notice.window, notice.kind, notice.content)).encode()).hexdigest()[:40]


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
