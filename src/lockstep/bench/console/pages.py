"""Every page of a large world: how long until its first byte."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

Say = Callable[[str], None]
PAGES = (
    "/", "/streams", "/streams?page=150", "/streams?q=77", "/streams?sort=rate", "/streams/stream-05000",
    "/streams/stream-05000/records", "/groups", "/groups?page=150", "/groups?q=77", "/groups?sort=lag",
    "/groups/group-05000", "/letters", "/letters/stream-00099.dlq", "/schedules",
    "/schedules?from=begin&status=unfired",
    "/schedules?from=begin&status=failed", "/schedules?tenant=tenant-050", "/schedules/tenant-050/event-000050",
    "/crons", "/crons?q=77", "/crons/tenant-050/cron-00050", "/tenants", "/tenants/tenant-050", "/nodes", "/fleet",
    "/fleet?severity=critical", "/fleet/hosts", "/fleet/hosts?page=150", "/fleet/hosts?q=77",
    "/fleet/hosts/host-05000", "/fleet/checks", "/fleet/checks/check-000", "/fleet/silences",
    "/fleet/why/host-05000/check-000", "/projects",
)  # fmt: skip
FIRST = ("/", "/crons", "/fleet")
"""Pages that read something once, when they are looked at first."""
_ANSWER_S = 60.0


def page_times(url: str, rounds: int) -> dict[str, Any]:
    """Seconds until the first byte of each page: the first time after the server has started, and the worst later."""
    cold = {path: first_byte(url, path) for path in PAGES}
    later = {path: max(first_byte(url, path) for _ in range(rounds)) for path in PAGES}
    return {"cold_s": cold, "later_s": later}


def first_byte(url: str, path: str) -> float:
    """Seconds from the connection to the first byte of an answer that must be 200."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    began = time.perf_counter()
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        took = time.perf_counter() - began
        answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        message = f"{path} answered {answer.status}"
        raise RuntimeError(message)
    return round(took, 4)
