"""Addresses, users, secrets and TLS of servers, from a URL, the environment and files.

    kafka://broker1:9092,broker2:9092?user=app&password_file=/run/secrets/kafka&tls=true&ca=/etc/ca.pem
    redis://:secret@127.0.0.1:6379/0

A name or secret that the URL does not give is taken from LOCKSTEP_<SCHEME>_USER, LOCKSTEP_<SCHEME>_PASSWORD or
LOCKSTEP_<SCHEME>_PASSWORD_FILE. Secrets are in no repr, no log and no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote

from lockstep.errors import BadUrl

TIMEOUT_S, PATIENCE_S = 10.0, 30.0
_TLS_FILES = ("ca", "cert", "key")
COMMON = ("user", "password_file", "tls", *_TLS_FILES, "timeout_s", "patience_s", "prefix", "strict")


class Secret:
    """A password that is not shown by repr or str."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The password itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"


@dataclass(frozen=True, slots=True)
class Tls:
    """An encrypted connection and the files it is verified with."""

    ca: str | None = None
    """Certificates to trust; None: those that the system trusts."""
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """The server or servers of one cluster, and how to log in."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    path: str = ""
    user: str | None = None
    password: Secret | None = None
    password_file: str | None = None
    """Where the password was read from, if it was a file."""
    tls: Tls | None = None
    timeout_s: float = TIMEOUT_S
    """How long one try may take."""
    patience_s: float = PATIENCE_S
    """How long calls on an open bus are tried again while the server is unreachable."""
    prefix: str = ""
    """The prefix of all names on the server."""
    strict: bool = False
    """Whether findings of the checks at opening are errors instead of warnings."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of this kind of server."""

    @property
    def servers(self) -> str:
        """Host and port of each, separated by commas."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)

    @property
    def is_loopback(self) -> bool:
        """Whether all hosts are loopback addresses."""
        return all(_is_loopback(host) for host, _ in self.hosts)

    @property
    def safe_url(self) -> str:
        """The URL without secrets."""
        name = f"{self.user}@" if self.user else ""
        return f"{self.scheme}://{name}{self.servers}{'/' + self.path if self.path else ''}"

    def whole(self, name: str, default: int) -> int:
        """An option that is a whole number. Raises BadUrl if it is something else."""
        text = self.options.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()):
            raise BadUrl(url=self.safe_url, reason=f"its option {name} must be a whole number, not {text!r}")
        return int(text)


def parse_address(
    scheme: str,
    target: str,
    options: Mapping[str, str],
    *,
    environ: Mapping[str, str],
    default_port: int,
    known: tuple[str, ...] = (),
) -> Address:
    """Parse the address from the rest of a URL after its scheme, and its options; `known` are those of the vendor."""
    login, _, servers = target.removeprefix("//").rpartition("@")
    servers, _, path = servers.partition("/")
    shown = f"{scheme}://{servers}"
    for name in options:
        if name not in (*COMMON, *known):
            raise BadUrl(url=shown, reason=f"it has no option {name!r}; there are {', '.join((*COMMON, *known))}")
    if not target.startswith("//") or not servers:
        raise BadUrl(url=shown, reason=f"write {scheme}://HOST:PORT")
    user, password, file = _login(scheme, login, options, environ, shown)
    return Address(
        scheme=scheme,
        hosts=tuple(_host(part, default_port, shown) for part in servers.split(",")),
        path=unquote(path),
        user=user,
        password=password,
        password_file=file,
        tls=_tls(options, shown),
        timeout_s=_seconds("timeout_s", options, TIMEOUT_S, shown),
        patience_s=_seconds("patience_s", options, PATIENCE_S, shown),
        prefix=options.get("prefix", ""),
        strict=_flag("strict", options.get("strict"), shown),
        options={name: value for name, value in options.items() if name in known},
    )


def _login(
    scheme: str, login: str, options: Mapping[str, str], environ: Mapping[str, str], shown: str
) -> tuple[str | None, Secret | None, str | None]:
    """User, password, and the file that the password was read from."""
    given, _, text = login.partition(":")
    variable = f"LOCKSTEP_{scheme.upper()}_"
    user = unquote(given) or options.get("user") or environ.get(variable + "USER")
    file = options.get("password_file") or environ.get(variable + "PASSWORD_FILE")
    in_url, in_file = unquote(text), _read(file, shown) if file and not text else None
    secret = in_url or in_file or environ.get(variable + "PASSWORD")
    return user or None, Secret(secret) if secret else None, file if in_file else None


def _read(path: str, shown: str) -> str:
    try:
        return Path(path).expanduser().read_text().strip()
    except OSError as error:
        raise BadUrl(url=shown, reason=f"its password file can't be read: {error.strerror or error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _host(text: str, default_port: int, shown: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(default_port)
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise BadUrl(url=shown, reason=f"{text!r} is not HOST:PORT")
    return host, int(port)


def _tls(options: Mapping[str, str], shown: str) -> Tls | None:
    files = {name: options[name] for name in _TLS_FILES if name in options}
    wanted = _flag("tls", options.get("tls"), shown) or bool(files)
    for name, path in files.items():
        if not Path(path).expanduser().is_file():
            raise BadUrl(url=shown, reason=f"its option {name} names no file: {path}")
    return Tls(**{name: str(Path(path).expanduser()) for name, path in files.items()}) if wanted else None


def _flag(name: str, text: str | None, shown: str) -> bool:
    if text not in (None, "true", "false"):
        raise BadUrl(url=shown, reason=f"its option {name} must be true or false, not {text!r}")
    return text == "true"


def _seconds(name: str, options: Mapping[str, str], default: float, shown: str) -> float:
    text = options.get(name)
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise BadUrl(url=shown, reason=f"its option {name} must be between 0 and 3600, not {text!r}")
    return seconds
