"""What is looked at before a start: settings of a server that would break a promise."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import ServerUnfit
from lockstep.log.network.address import Address
from lockstep.runtime import logger

_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as the promises need it."""

    server: str
    problem: str
    setting: str
    """What to change."""
    fatal: bool = False
    """Nothing works with it; others are warnings unless somebody is strict."""


def of_login(address: Address) -> list[Finding]:
    """Whether the password can be read by others: on the way to the server, or in its file."""
    found = []
    if address.password is not None and address.tls is None and not address.is_loopback:
        problem = "the password and everything else goes to it without encryption"
        found.append(Finding(address.servers, problem, "tls=true in the URL, and TLS on the server"))
    if address.password_file is not None:
        path = Path(address.password_file).expanduser()
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _FOR_OTHERS:
            problem = f"its password file {path} can be read by other users (mode {mode:03o})"
            found.append(Finding(address.servers, problem, f"the mode of the file: chmod 600 {path}"))
    return found


def refuse(findings: Sequence[Finding]) -> None:
    """Raise for the first of them."""
    for finding in findings:
        raise ServerUnfit(server=finding.server, reason=finding.problem, setting=finding.setting)


def judge(findings: Sequence[Finding], *, strict: bool = False) -> None:
    """Raise for what can't be, and also for the rest if strict; else log it."""
    refuse([finding for finding in findings if finding.fatal or strict])
    for finding in findings:
        logger.warning(
            "The server may break a promise: %s", finding.problem,
            extra={"action": "preflight", "server": finding.server, "setting": finding.setting},
        )  # fmt: skip
