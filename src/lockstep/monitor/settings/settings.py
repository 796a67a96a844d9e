"""Settings in force: files and environment merged, checked, with digest, difference and the part that is shared."""

from __future__ import annotations

import fcntl
import hashlib
import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.monitor.core.documents import REDACTED, REDACTED_KEYS, canonical, deep_merge, redact, without_doubles
from lockstep.monitor.settings.errors import SettingsInvalid
from lockstep.monitor.settings.files import Unreadable, files_in, read_settings
from lockstep.monitor.settings.rules import Fault, is_list, is_object, is_text
from lockstep.monitor.settings.validation import CATEGORIES, faults_of

UNKNOWN = "unknown"
SPAWN_LIMIT = 12
WARNING_S, CRITICAL_S = 120, 180
_SHOWN = 120
_SIOCGIFADDR = 0x8915
_MAX_FAULTS = 10_000
_MISSING = object()
_SHARED_OF_HANDLER = (
    "type", "filter", "filters", "severities", "mutator", "handle_silenced", "handle_flapping", "handlers", "notify",
)  # fmt: skip
_SHARED = ("checks", "filters", "handlers", "aggregates")


@dataclass(frozen=True, slots=True)
class Host:
    """What a machine says of itself, for clients that are not told."""

    name: str
    address: str

    @classmethod
    def here(cls) -> Host:
        """This machine: its host name, and its first IPv4 address that is not loopback."""
        try:
            name = socket.gethostname() or UNKNOWN
        except OSError:
            name = UNKNOWN
        return cls(name, _address())


def _address() -> str:
    """The address this machine would speak from; connecting a UDP socket sends nothing. Else that of an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            found = str(probe.getsockname()[0])
        except OSError:
            found = UNKNOWN
        own = [found, *(_address_of(probe, name) for _, name in socket.if_nameindex())]
    return next((each for each in own if each != UNKNOWN and not each.startswith("127.")), UNKNOWN)


def _address_of(probe: socket.socket, interface: str) -> str:
    """The IPv4 address of an interface, as Linux tells it."""
    try:
        told = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    except OSError:
        return UNKNOWN
    return socket.inet_ntoa(told[20:24])


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs between two settings; None is absent."""

    path: tuple[str, ...]
    before: Any
    after: Any

    @property
    def name(self) -> str:
        """The path as text."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Settings:
    """A valid document of settings."""

    document: Mapping[str, Any]
    files: tuple[str, ...] = ()
    is_client: bool = field(default=True)

    def __getitem__(self, name: str) -> Any:
        return self.document[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A top-level member."""
        return self.document.get(name, default)

    @property
    def client(self) -> Mapping[str, Any]:
        """The definition of the client."""
        return self.document.get("client") or {}

    @property
    def spawn_limit(self) -> int:
        """How many commands run at once."""
        return int(self.document["sensu"]["spawn"]["limit"])

    @property
    def digest(self) -> str:
        """SHA-256 of the document: equal for servers with equal settings, whatever client stands beside them."""
        kept = {name: value for name, value in self.document.items() if name != "client" or self.is_client}
        return hashlib.sha256(canonical(kept)).hexdigest()

    @property
    def redacted(self) -> dict[str, Any]:
        """The document without secrets, also without those in URLs."""
        return dict(_without_logins(redact(self.document, redacted_keys(self.client))))

    def order(self, by: str) -> dict[str, Any]:
        """The members of a `settings` order: what decides; commands of handlers, mutators and secrets stay here."""
        shared = {name: self.document[name] for name in _SHARED if name in self.document}
        handlers = shared.get("handlers", {})
        shared["handlers"] = {name: _shared_handler(handler) for name, handler in handlers.items()}
        sensu = self.document.get("sensu", {})
        shared["sensu"] = {name: sensu[name] for name in ("keepalives", "notify", "timezone") if name in sensu}
        shared = redact(shared, redacted_keys(self.client))
        return {"settings": shared, "digest": hashlib.sha256(canonical(shared)).hexdigest(), "by": by}


def redacted_keys(client: Mapping[str, Any]) -> frozenset[str]:
    """Names of members that hold secrets: the client's own list, or the usual ones."""
    own = client.get("redact")
    return frozenset(own) if isinstance(own, list) else REDACTED_KEYS


def _shared_handler(handler: Mapping[str, Any]) -> dict[str, Any]:
    return {name: handler[name] for name in _SHARED_OF_HANDLER if name in handler}


def _without_logins(value: Any) -> Any:
    if is_object(value):
        return {name: _without_logins(item) for name, item in value.items()}
    if is_list(value):
        return [_without_logins(item) for item in value]
    return without_login(value) if is_text(value) and "://" in value else value


def without_login(url: str) -> str:
    """A URL, or several with commas between, without what stands before the @ of each but the user."""
    return ",".join(map(_one_without_login, url.split(",")))


def _one_without_login(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    place, slash, tail = rest.partition("/")
    login, at, host = place.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{scheme}{separator}{user}{':' + REDACTED if colon else ''}{at}{host}{slash}{tail}"


def defaults() -> dict[str, Any]:
    """What holds where nothing is said."""
    return {
        "client": {},
        "sensu": {
            "spawn": {"limit": SPAWN_LIMIT},
            "keepalives": {"thresholds": {"warning": WARNING_S, "critical": CRITICAL_S}},
        },
        "transport": {"name": "rabbitmq", "reconnect_on_error": True},
        **{category: {} for category in CATEGORIES},
    }


def of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """What Sensu's environment variables say."""
    found: dict[str, Any] = {}
    if environ.get("SENSU_TRANSPORT_NAME"):
        found["transport"] = {"name": environ["SENSU_TRANSPORT_NAME"]}
    if environ.get("RABBITMQ_URL"):
        found["rabbitmq"] = environ["RABBITMQ_URL"]
    if environ.get("REDIS_SENTINEL_URLS"):
        found["redis"] = {"sentinels": environ["REDIS_SENTINEL_URLS"]}
    elif environ.get("REDIS_URL"):
        found["redis"] = environ["REDIS_URL"]
    client: dict[str, Any] = {}
    for member in ("name", "address"):
        if environ.get(f"SENSU_CLIENT_{member.upper()}"):
            client[member] = environ[f"SENSU_CLIENT_{member.upper()}"]
    if environ.get("SENSU_CLIENT_SUBSCRIPTIONS"):
        client["subscriptions"] = [name for name in environ["SENSU_CLIENT_SUBSCRIPTIONS"].split(",") if name]
    if client:
        found["client"] = client
    if environ.get("SENSU_API_PORT"):
        text = environ["SENSU_API_PORT"]
        found["api"] = {"port": int(text) if text.isascii() and text.isdigit() else text}
    return found


def load(paths: Sequence[Path], environ: Mapping[str, str], *, host: Host, is_client: bool = True) -> Settings:
    """The settings of the environment, then of files and folders in their order; SettingsInvalid lists all errors.

    A client that is not told its name and address has those of `host`. If this is for no client, `client` is looked
    at only if there is one.
    """
    merging = _Merging(defaults())
    merging.add(of_environment(environ), "the environment")
    for path in paths:
        merging.add_path(path)
    client = merging.document["client"]
    looks = is_client or bool(client)
    if looks and is_object(client):
        merging.document["client"] = with_own_subscription({"name": host.name, "address": host.address, **client})
    faults = [*merging.faults, *faults_of(merging.document, with_client=looks)]
    if faults:
        raise SettingsInvalid([merging.located(fault) for fault in faults[:_MAX_FAULTS]])
    return Settings(merging.document, tuple(merging.files), is_client)


def with_own_subscription(client: Mapping[str, Any]) -> dict[str, Any]:
    """The client with the subscription of its own name, by which it alone is asked."""
    subscriptions = client.get("subscriptions", [])
    if not is_list(subscriptions):
        return dict(client)
    return {**client, "subscriptions": without_doubles([*subscriptions, f"client:{client.get('name')}"])}


class _Merging:
    """The document so far, and which file gave each value."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.files: list[str] = []
        self.faults: list[Fault] = []
        self._sources: dict[tuple[str, ...], str] = {}

    def add_path(self, path: Path) -> None:
        """Merge a file, or all files of a folder."""
        try:
            files = files_in(path) if path.is_dir() else [path]
        except Unreadable as error:
            self.faults.append(error.fault)
            return
        for file in files:
            try:
                self.add(read_settings(file), str(file))
            except Unreadable as error:
                self.faults.append(error.fault)
            else:
                self.files.append(str(file))

    def add(self, found: Mapping[str, Any], source: str) -> None:
        """Merge a document."""
        self.document = deep_merge(self.document, found)
        for path in _paths(found, ()):
            self._sources[path] = source

    def located(self, fault: Fault) -> Fault:
        """The fault with the file that its value is from."""
        if fault.file is not None:
            return fault
        for length in range(len(fault.path), 0, -1):
            if source := self._sources.get(fault.path[:length]):
                return replace(fault, file=source)
        return fault


def _paths(document: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in document.items():
        yield (*path, name)
        if is_object(value):
            yield from _paths(value, (*path, name))


def shown(fault: Fault) -> str:
    """The value of a fault as far as it fits into a line; secrets are not shown."""
    if fault.value is None:
        return "(not set)"
    if any(part in REDACTED_KEYS for part in fault.path):
        return REDACTED
    text = json.dumps(_without_logins(redact(fault.value)), ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def difference(before: Mapping[str, Any], after: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[Change]:
    """What changes from one document to the other, by path; objects are compared by their members."""
    found: list[Change] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, _MISSING), after.get(name, _MISSING)
        if is_object(old) and is_object(new):
            found += difference(old, new, (*path, name))
        elif old is _MISSING or new is _MISSING or canonical(old) != canonical(new):
            found.append(Change((*path, name), _or_none(old), _or_none(new)))
    return found


def _or_none(value: Any) -> Any:
    return None if value is _MISSING else value
