"""Tenants: where their events go, and the register of them that every node and client follows.

The control stream holds a record for each registration, removal and pause. All read it in order, so a registration
holds for every reader that has come to it. When it is long, the Master writes a snapshot of all tenants as they were at
an offset, and has what is before that offset trimmed. A reader that has read everything ignores the snapshot; one
that finds the beginning trimmed loads it, and reads on from its offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from lockstep.errors import BadArgument, DataError, Trimmed
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.port import Entry, Log
from lockstep.runtime import Runtime, logger

NAME_BYTES_MAX = 1024
COMPACT_RECORDS, COMPACT_TIMES = 1000, 4
"""The control stream is shortened when it has so many records, and so many times as many as there are tenants."""
SECRETS = (
    "secret", "pass", "token", "auth", "key", "credential", "private", "cookie", "jaas", "signature", "session",
)  # fmt: skip
"""A property or header whose name contains one of these is not shown."""
MASKED = "***"
_USER = re.compile(r"[^/,\s'\"]*@")
_QUERY = re.compile(r"\?[^\s'\"]*")


class TenantType(StrEnum):
    """How a tenant's events are delivered."""

    MESSAGING = "MESSAGING"
    HTTP = "HTTP"
    CUSTOM_CLASS = "CUSTOM_CLASS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """Whose events are delivered, and how."""

    tenant: str
    type: TenantType
    props: Mapping[str, Any] = field(repr=False)
    """They may hold secrets, and so are not printed."""
    paused: bool = False
    rate: float | None = None
    """Events in a second at most; None sets no limit."""

    @property
    def stream(self) -> str | None:
        """The stream of the bus that gets its events; None if they go elsewhere."""
        if self.type is not TenantType.MESSAGING or "bootstrap.servers" in self.props:
            return None
        return str(self.props["topic"])

    def masked(self) -> dict[str, Any]:
        """As shown to users: secrets are not."""
        return {"tenant": self.tenant, "type": self.type.value, "props": mask(dict(self.props))}


def is_secret(name: str) -> bool:
    """Whether the value of a property, header or parameter of this name is not shown."""
    return any(word in name.lower() for word in SECRETS)


def mask(value: Any, name: str = "") -> Any:
    """Return plain data without secrets: the values of secret names, and what URLs have besides their address."""
    if value is not None and is_secret(name):
        return MASKED
    if isinstance(value, dict):
        return {key: mask(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item, name) for item in value]
    return masked_url(value) if isinstance(value, str) and "://" in value else value


def masked_url(text: str) -> str:
    """Return a URL, addresses of servers, or a sentence about one, without users, passwords and queries."""
    return _QUERY.sub(f"?{MASKED}", _USER.sub(f"{MASKED}@", text))


def _has_mask(tree: Any) -> bool:
    if isinstance(tree, dict | list):
        return any(map(_has_mask, tree.values() if isinstance(tree, dict) else tree))
    return isinstance(tree, str) and (tree == MASKED or ("://" in tree and MASKED in tree))


def checked_tenant(fields: Mapping[str, Any]) -> Tenant:
    """Return a tenant from what a user gave; BadArgument says what is wrong with it, before anything is stored."""
    name, kind, props = fields.get("tenant"), fields.get("type"), fields.get("props")
    if name is None:
        raise BadArgument(name="tenant", value=name, reason="tenant must not be null")
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise BadArgument(name="tenant", value=name, reason=f"it must be text of 1 to {NAME_BYTES_MAX} bytes")
    if not name.isprintable():
        raise BadArgument(name="tenant", value=name, reason="it must not have control characters")
    if not isinstance(kind, str) or kind not in set(TenantType):
        raise BadArgument(name="type", value=kind, reason=f"it must be one of {', '.join(TenantType)}")
    if not isinstance(props, dict) or not props:
        raise BadArgument(name="props", value=mask(props), reason="it must be an object with at least one property")
    if _has_mask(props):
        raise BadArgument(name="props", value=mask(props), reason=f"it has {MASKED} in place of a secret")
    tenant = Tenant(tenant=name, type=TenantType(kind), props=props, rate=_rate(fields.get("rate")))
    _CHECKS[tenant.type](props)
    return tenant


def _rate(given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < 1e9:
        raise BadArgument(name="rate", value=given, reason="it must be a number of events in a second, above 0")
    return float(given)


def _check_messaging(props: Mapping[str, Any]) -> None:
    if not isinstance(props.get("topic"), str) or not props["topic"]:
        raise BadArgument(name="props", value=mask(dict(props)), reason="no topic in props")
    servers = props.get("bootstrap.servers")
    if servers is not None and (not isinstance(servers, str) or not servers):
        raise BadArgument(name="bootstrap.servers", value=servers, reason="it must be text, as host1:9092,host2:9092")


def _check_http(props: Mapping[str, Any]) -> None:
    url, headers = props.get("url"), props.get("headers", {})
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        shown = masked_url(url)[:200] if isinstance(url, str) else url
        raise BadArgument(name="url", value=shown, reason="it must begin with http:// or https://")
    if headers is not None and (
        not isinstance(headers, dict)
        or any(not isinstance(text, str) or "\n" in text or "\r" in text for pair in headers.items() for text in pair)
    ):
        raise BadArgument(name="headers", value=mask(headers), reason="it must be an object of texts without line ends")


def _check_custom(props: Mapping[str, Any]) -> None:
    if not isinstance(props.get("eventProcessorClass"), str) or not props["eventProcessorClass"]:
        raise BadArgument(name="props", value=mask(dict(props)), reason="no eventProcessorClass in props")


_CHECKS = {
    TenantType.MESSAGING: _check_messaging,
    TenantType.HTTP: _check_http,
    TenantType.CUSTOM_CLASS: _check_custom,
}


@dataclass(frozen=True, slots=True)
class Registered:
    """A tenant is registered, or has other settings."""

    tenant: Tenant


@dataclass(frozen=True, slots=True)
class Removed:
    """A tenant is gone; its events wait until it is registered again or they are too old."""

    tenant: str


@dataclass(frozen=True, slots=True)
class Paused:
    """A tenant's events wait, or no longer."""

    tenant: str
    paused: bool


@dataclass(frozen=True, slots=True)
class StoreNamed:
    """The store that has the scheduler's rows. The first such record counts, or the last that changes it."""

    id: str
    url: str
    is_change: bool = False


@dataclass(frozen=True, slots=True)
class ControlSnapshot:
    """Everything that the records before an offset say: the tenants, and the store."""

    upto: int
    tenants: tuple[Tenant, ...]
    store: StoreNamed | None = None


ControlRecord = Registered | Removed | Paused | StoreNamed
_CONTROL_RECORDS: dict[str, tuple[type[Removed | Paused | StoreNamed], dict[str, type]]] = {
    "removed": (Removed, {"tenant": str}),
    "paused": (Paused, {"tenant": str, "paused": bool}),
    "storenamed": (StoreNamed, {"id": str, "url": str, "is_change": bool}),
}
"""By kind: the record, and the types of its fields. A registration is checked as a whole tenant."""
_TYPE_NAMES = {str: "text", bool: "true or false", int: "a whole number"}


def encode_control(record: ControlRecord | ControlSnapshot) -> bytes:
    """A record of the control stream as JSON."""
    return json.dumps({"kind": type(record).__name__.lower(), **asdict(record)}, separators=(",", ":")).encode()


def decode_control(data: bytes) -> ControlRecord | ControlSnapshot:
    """Back from JSON; DataError for what is none."""
    try:
        fields = json.loads(data)
        kind = fields.pop("kind")
        if kind == "registered":
            return Registered(_stored_tenant(fields["tenant"]))
        if kind == "controlsnapshot":
            return _snapshot(fields)
        return _plain_record(kind, fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(reason=f"A record of the control stream is not valid: {error!r}.") from error


def _stored_tenant(fields: Mapping[str, Any]) -> Tenant:
    checked_tenant(fields)
    _check_type("paused", fields.get("paused", False), bool)
    return Tenant(**{**fields, "type": TenantType(fields["type"])})


def _snapshot(fields: Mapping[str, Any]) -> ControlSnapshot:
    _check_type("upto", fields["upto"], int)
    store = fields["store"]
    named = None if store is None else _plain_record("storenamed", store)
    assert named is None or isinstance(named, StoreNamed)
    return ControlSnapshot(fields["upto"], tuple(map(_stored_tenant, fields["tenants"])), named)


def _plain_record(kind: str, fields: Mapping[str, Any]) -> Removed | Paused | StoreNamed:
    record, types = _CONTROL_RECORDS[kind]
    for name, wanted in types.items():
        _check_type(name, fields[name], wanted)
    return record(**fields)


def _check_type(name: str, value: object, kind: type) -> None:
    if type(value) is not kind:
        raise BadArgument(name=name, value=value, reason=f"it must be {_TYPE_NAMES[kind]}")


def fold(tenants: Mapping[str, Tenant], record: ControlRecord) -> dict[str, Tenant]:
    """Return the tenants after a record."""
    after = dict(tenants)
    match record:
        case Registered(tenant):
            known = tenants.get(tenant.tenant)
            after[tenant.tenant] = tenant if known is None else replace(tenant, paused=known.paused)
        case Removed(name):
            after.pop(name, None)
        case Paused(name, paused) if name in tenants:
            after[name] = replace(tenants[name], paused=paused)
    return after


@dataclass(slots=True)
class Register:
    """The tenants and the store, as one process has read them from the control stream."""

    log: Log
    tenants: dict[str, Tenant] = field(default_factory=dict)
    store: StoreNamed | None = None
    next: int = 0
    version: int = 0
    """Grows with every change."""
    is_complete: bool = True
    """Whether everything before `next` was read; else the next snapshot tells what was missed."""
    _compacted_at: int = 0
    """Where the log ended when it could not be shortened."""

    def refresh(self) -> bool:
        """Read what is new; return whether anything was."""
        version = self.version
        while entries := self._read():
            for entry in entries:
                if not self._take_batch(BatchView(entry.base, entry.data, self.log.name)):
                    break
        return self.version != version

    def _read(self) -> list[Entry]:
        try:
            return self.log.read(self.next)
        except Trimmed:
            self.next, self.is_complete = self.log.bounds().first, False
            return self.log.read(self.next)

    def _take_batch(self, view: BatchView) -> bool:
        """Return False if it had a snapshot: what came after the snapshot's offset is to be read again."""
        for offset, value in enumerate(view.values(), view.base):
            if offset < self.next:
                continue
            self.next = offset + 1
            self._take(offset, value)
            if self.next <= offset:
                return False
        self.next = view.end
        return True

    def _take(self, offset: int, value: bytes) -> None:
        try:
            record = decode_control(value)
            if not isinstance(record, ControlSnapshot):
                self.tenants = fold(self.tenants, record)
                if isinstance(record, StoreNamed) and (self.store is None or record.is_change):
                    self.store = record
            elif self.is_complete or record.upto < self.log.bounds().first:
                return  # it says nothing new, or there is a later one
            else:
                self.tenants, self.store = {tenant.tenant: tenant for tenant in record.tenants}, record.store
                self.next, self.is_complete = record.upto, True
        except DataError as error:  # all pass it by, so all agree
            logger.error(
                "Record %d of %s counts for nothing: %s", offset, self.log.name, error,
                extra={"action": "control_record_invalid", "stream": self.log.name, "offset": offset},
            )  # fmt: skip
        self.version += 1

    def append(self, record: ControlRecord, runtime: Runtime) -> None:
        """Write a record, and read up to it."""
        self._write(encode_control(record), runtime)
        self.refresh()

    def _write(self, value: bytes, runtime: Runtime) -> None:
        batch = pack([value], producer=NO_PRODUCER, sequence=0, created_ns=runtime.wall_ns())
        self.log.append([batch])  # a record that lands twice changes nothing the second time

    def compact(self, runtime: Runtime) -> bool:
        """Replace a long log by a snapshot; return whether that was done. Any process may do it, but one is enough."""
        first = self.log.bounds().first
        longest = max(COMPACT_RECORDS, COMPACT_TIMES * len(self.tenants))
        if self.next - max(first, self._compacted_at) < longest or not self.is_complete:
            return False
        upto = self.next
        self._compacted_at = upto
        value = encode_control(ControlSnapshot(upto, tuple(self.tenants.values()), self.store))
        if len(value) > self.log.config.max_record_bytes // 2:
            logger.warning(
                "The control stream %s is not shortened: its %d tenants do not fit into one record", self.log.name,
                len(self.tenants), extra={"action": "control_not_compacted", "stream": self.log.name},
            )  # fmt: skip
            return False
        self._write(value, runtime)
        self.log.trim(upto)
        return True
