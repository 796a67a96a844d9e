"""`lockstep settings`: how a server of `lockstep serve` runs, and who you are to it."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lockstep.cli.output import Output
from lockstep.cli.parser import Verb, alone
from lockstep.cli.values import iso
from lockstep.errors import DataError, Forbidden, Unavailable, UsageError

SERVER_VARIABLE, TOKEN_VARIABLE = "LOCKSTEP_SERVER", "LOCKSTEP_TOKEN"
DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_S, ANSWER_BYTES_MAX = 15.0, 1 << 20


class ServerSilent(Unavailable):
    """No server of 'lockstep serve' answers at an address."""

    code = "SERVER_SILENT"
    template = "The server at {url} does not answer: {reason}."
    advice = "Start one with 'lockstep serve', or name another one with --server."


class ServerDenied(Forbidden):
    """A server of 'lockstep serve' does not answer this caller."""

    code = "SERVER_DENIED"
    template = "The server at {url} refuses: {reason}"
    advice = "Set LOCKSTEP_TOKEN to a token that is valid there: 'lockstep access add' makes one."


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="URL", help=f"which server ({SERVER_VARIABLE}, else {DEFAULT_URL})")


SETTINGS = alone(
    Verb(
        name="settings",
        purpose="Show how a server of 'lockstep serve' runs, and who you are to it by LOCKSTEP_TOKEN.",
        run="lockstep.cli.settings:settings",
        arguments=_arguments,
        examples=("lockstep settings", "lockstep settings --server https://events.example:8443 --json"),
    )
)


def settings(options: argparse.Namespace, output: Output) -> None:
    """Ask the server and print what it says."""
    url = options.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_URL
    tree = asked(url, "/api/v1/settings", os.environ.get(TOKEN_VARIABLE))
    if output.json:
        output.json_line(tree)
        return
    output.facts({"server": url, **tree["server"], "runs since": _time(tree["started_ms"])})
    output.heading("you")
    output.facts(_me(tree["me"]))
    output.heading("limits")
    output.facts(tree["limits"])
    output.table(["of one caller", "a second", "at once"],
                 [[row["of"], f"{row['per_s']:g}", row["at_once"]] for row in tree["rates"]])  # fmt: skip
    for sentence in tree["left_out"]:
        output.warn(sentence)
    output.heading("extras")
    rows = [[row["extra"], row["gives"], row["command"] or "installed"] for row in tree["extras"]]
    output.table(["extra", "gives", ""], rows)


def _me(me: Mapping[str, Any]) -> dict[str, Any]:
    expires = {"token expires": _time(me["token_expires_ms"]) or "never"} if me["token"] else {}
    return {"name": me["name"], "role": me["role"], "scope": ", ".join(me["scope"]), "known by": me["by"], **expires}


def _time(ms: int | None) -> str | None:
    return None if ms is None else f"{iso(ms * 10**6)[:19]}Z"


def asked(url: str, path: str, token: str | None) -> Any:
    """What a server answers to GET of a path; ServerSilent, ServerDenied or DataError for anything but its data."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(reason=f"--server is written http://HOST:PORT or https://HOST:PORT, not {url!r}.")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.netloc, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}{path}", headers=headers)
        answer = connection.getresponse()
        status, data = answer.status, answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise ServerSilent(url=url, reason=getattr(error, "strerror", None) or type(error).__name__) from None
    finally:
        connection.close()
    return _tree(url, status, data)


def _tree(url: str, status: int, data: bytes) -> Any:
    try:
        tree = json.loads(data)
    except ValueError:
        raise DataError(reason=f"{url} answered with HTTP {status} and no JSON: it is no server of lockstep.") from None
    if status == 200:
        return tree
    reason = tree["error"]["message"] if isinstance(tree, dict) and "error" in tree else f"HTTP {status}"
    raise ServerDenied(url=url, reason=reason) if status in (401, 403) else ServerSilent(url=url, reason=reason)
