"""What is looked at before a start: settings of a server that would break a promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.errors import ServerUnfit
from lockstep.runtime import logger


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as the promises need it."""

    server: str
    problem: str
    setting: str
    """What to change."""
    fatal: bool = False
    """Nothing works with it; others are warnings unless somebody is strict."""


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
