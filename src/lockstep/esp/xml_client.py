"""dfesp_xml_client: one request to the REST of an engine, and its answer."""

from __future__ import annotations

import argparse
import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lockstep.engine.errors import FileMissing
from lockstep.errors import ServerUnreachable, UsageError
from lockstep.esp.command import flags, parsed, run_command

if TYPE_CHECKING:
    from lockstep.cli.parser import Parser

NAME = "dfesp_xml_client"
TIMEOUT_S = 60.0
METHODS = ("get", "put", "post", "delete")
_NO_BODY = ""
_LOCAL = ("localhost", "127.0.0.1", "::1")
_EXIT: Mapping[int, int] = {
    HTTPStatus.UNAUTHORIZED: 5,
    HTTPStatus.FORBIDDEN: 5,
    HTTPStatus.NOT_FOUND: 3,
    HTTPStatus.CONFLICT: 4,
    HTTPStatus.SERVICE_UNAVAILABLE: 6,
    HTTPStatus.GATEWAY_TIMEOUT: 6,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(NAME, _ask, arguments)


def parser() -> Parser:
    """Its flags."""
    url = "http://localhost:8181/eventStreamProcessing/v1"
    made = flags(
        NAME,
        "Ask the REST of an engine; the answer is printed. The exit code tells whether it was done.",
        (
            f'dfesp_xml_client -url "{url}/windows" -get',
            f'dfesp_xml_client -url "{url}/projects/trades/state?value=modified" -put file://model-updated.xml',
        ),
    )
    made.add_argument("-url", required=True, metavar="URL", help="what to ask: http://HOST:PORT/PATH?QUERY")
    how = made.add_mutually_exclusive_group()
    how.add_argument("-get", action="store_true", help="only look; so it is without another")
    how.add_argument("-put", nargs="?", const=_NO_BODY, metavar="BODY", help="PUT, with file://PATH or a text as body")
    how.add_argument("-post", nargs="?", const=_NO_BODY, metavar="BODY", help="POST, in the same way")
    how.add_argument("-delete", action="store_true", help="DELETE")
    own = made.add_argument_group("not in the document")
    own.add_argument("-token", metavar="FILE", help="whose token is borne, as --token-file of the engine has it "
                     "(the one that an engine of this user on this machine made)")  # fmt: skip
    return made


def _ask(given: Sequence[str]) -> int:
    made = request(parsed(parser(), given))
    status, answer = fetch(made)
    out = sys.stdout if status < HTTPStatus.MULTIPLE_CHOICES else sys.stderr
    text = answer if answer.endswith("\n") or not answer else f"{answer}\n"
    out.write(text.encode(out.encoding, "replace").decode(out.encoding))  # a terminal may not know every character
    out.flush()
    return exit_code(status)


def request(options: argparse.Namespace) -> urllib.request.Request:
    """The request that the flags mean."""
    url = "".join(options.url.split())  # as printed, a long one is broken over lines
    if not url.startswith(("http://", "https://")):
        raise UsageError(reason=f"-url {options.url!r} is not http://HOST:PORT/PATH.")
    if not url.isascii():
        raise UsageError(reason=f"-url {options.url!r} has characters that a URL can't have: write \u00e9 as %C3%A9.")
    method = next((name for name in METHODS if getattr(options, name) not in (None, False)), "get")
    body = getattr(options, method) if method in ("put", "post") else _NO_BODY
    headers = {"Content-Type": "application/xml"} if body else {}
    token = options.token or _own_token(url)
    if token:
        headers["Authorization"] = f"Bearer {_token_in(token)}"
    data = _body(body) if method in ("put", "post") else None
    with _understood(url):
        return urllib.request.Request(url, data=data, headers=headers, method=method.upper())  # noqa: S310 - http only


def fetch(made: urllib.request.Request) -> tuple[int, str]:
    """Status and text of the answer. No proxy is asked, and no other server: they would be told the token."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _SameServer())
    try:
        with _understood(made.full_url):
            try:
                with opener.open(made, timeout=TIMEOUT_S) as answer:
                    return answer.status, answer.read().decode(errors="replace")
            except urllib.error.HTTPError as refused:
                with refused:
                    return refused.code, refused.read().decode(errors="replace")
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ServerUnreachable(server=made.host, reason=getattr(reason, "strerror", None) or reason) from error
    except http.client.IncompleteRead as error:
        raise ServerUnreachable(server=made.host, reason="its answer ended in the middle") from error
    except http.client.HTTPException as error:
        raise ServerUnreachable(server=made.host, reason=f"what it sent is not HTTP ({error!r})") from error


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows an answer that names another path of the same server, and nothing else."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request that follows; None to take the answer as it is."""
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _understood(url: str) -> Iterator[None]:
    """Say in words that a URL makes no sense."""
    try:
        yield
    except (http.client.InvalidURL, ValueError) as error:
        raise UsageError(reason=f"-url {url!r} is not http://HOST:PORT/PATH: {error}.") from error


def exit_code(status: int) -> int:
    """0 if it was done; else the code of the error that the status stands for."""
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return 0
    return _EXIT.get(status, 2 if status < HTTPStatus.INTERNAL_SERVER_ERROR else 1)


def _token_in(path: str) -> str:
    token = _read(path).decode(errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(reason=f"The file {path!r} holds no token: it must be one line of printable characters.")
    return token


def _own_token(url: str) -> str | None:
    """The token that an engine of this user on this machine has made for changes."""
    from lockstep.cli.engine_services import token_of_port

    try:
        parts = urlsplit(url)
        if parts.port is None or parts.hostname not in _LOCAL:
            return None
        path = token_of_port(parts.port)
        return str(path) if path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # no home, or no port: no token either
        return None


def _body(text: str) -> bytes:
    return _read(text.removeprefix("file://")) if text.startswith("file://") else text.encode()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileMissing(path=path, reason=error.strerror or str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
