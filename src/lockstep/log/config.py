"""What a stream is made with. Stored with the stream; everybody who opens it gets the same."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lockstep.errors import BadConfig, BadName, ConfigMismatch
from lockstep.log import codecs

CAPACITY_DEFAULT = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KINDS = {"int": int, "float": (int, float), "bool": bool, "str": str}


def check_name(what: str, name: str) -> str:
    """The name itself, if it is one that any bus and any file system can carry."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadName(what=what, name=name)
    return name


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamConfig:
    """How a stream keeps its records.

    StreamConfig()                                    # a ring of the last 10,000 records
    StreamConfig(capacity=None, retain_age_s=86_400)  # everything of the last day
    StreamConfig(capacity=1_000, protect=True)        # but nothing that a group has not confirmed
    """

    capacity: int | None = CAPACITY_DEFAULT
    """Records kept; None keeps them all."""
    retain_bytes: int | None = None
    """Stored bytes kept, counted in whole batches; None sets no limit."""
    retain_age_s: float | None = None
    """Seconds a record is kept after its append; looked at whenever something is appended."""
    protect: bool = False
    """Retention keeps what a group has not confirmed, up to protect_bytes; then publishing fails, nothing is lost."""
    protect_bytes: int = 1 << 30
    """Ceiling of a protected stream, in stored bytes."""
    max_record_bytes: int = 8 << 20
    """Largest record (value, key and headers together); larger ones are refused before they are queued."""
    compression: str = "none"
    """none, lz4, zstd, gzip or snappy, for each batch; readers need not know."""
    shards: int = 1
    """Above 1: that many logs, chosen by key; order holds within each."""
    history: str | None = None
    """URL of a store for records beyond the capacity, for example lmdb:./archive; None drops them."""
    sync_replicas: int = 1
    """Copies wanted before an acknowledgement; what the bus really has is in its promises."""
    async_replicas: int = 0
    """Copies wanted in the background."""

    def __post_init__(self) -> None:
        for item in fields(self):
            _check_kind(item.name, str(item.type), getattr(self, item.name))
        codecs.by_name(self.compression)
        for name, least in (("capacity", 1), ("retain_bytes", 1), ("protect_bytes", 1), ("max_record_bytes", 1)):
            _at_least(name, getattr(self, name), least)
        for name, least in (("shards", 1), ("sync_replicas", 0), ("async_replicas", 0)):
            _at_least(name, getattr(self, name), least)
        if self.retain_age_s is not None and not 0 < self.retain_age_s < math.inf:
            raise BadConfig(field="retain_age_s", value=self.retain_age_s, reason="it must be above 0, and finite")
        if self.shards > 1024:
            raise BadConfig(field="shards", value=self.shards, reason="it must be at most 1024")

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> StreamConfig:
        """A configuration from plain data; unknown names are refused."""
        known = {item.name for item in fields(cls)}
        for name in settings:
            if name not in known:
                raise BadConfig(
                    field=name, value=settings[name], reason=f"known settings are {', '.join(sorted(known))}"
                )
        return cls(**settings)

    @classmethod
    def from_file(cls, path: str | Path) -> StreamConfig:
        """A configuration from a TOML, YAML or JSON file."""
        path = Path(path)
        if path.suffix not in (".toml", ".json", ".yaml", ".yml"):
            raise BadConfig(field="file", value=str(path), reason="it must end in .toml, .yaml, .yml or .json")
        try:
            loaded = _load(path)
        except (OSError, ValueError) as error:
            raise BadConfig(field="file", value=str(path), reason=str(error).splitlines()[0]) from error
        if not isinstance(loaded, Mapping):
            raise BadConfig(field="file", value=str(path), reason="it must hold settings by name")
        return cls.from_dict(loaded)

    @classmethod
    def from_env(cls, environ: Mapping[str, str], prefix: str = "LOCKSTEP_STREAM_") -> StreamConfig:
        """A configuration from variables such as LOCKSTEP_STREAM_CAPACITY=500; values are read as JSON or text."""
        found = {name[len(prefix) :].lower(): text for name, text in environ.items() if name.startswith(prefix)}
        return cls.from_dict({name: _parse(text) for name, text in found.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain data that from_dict takes back."""
        return asdict(self)

    def check_same(self, name: str, given: StreamConfig) -> None:
        """Raise ConfigMismatch, naming the first setting that differs."""
        for item in fields(self):
            stored, other = getattr(self, item.name), getattr(given, item.name)
            if stored != other:
                raise ConfigMismatch(what="Stream", name=name, field=item.name, stored=stored, given=other)


def _check_kind(name: str, declared: str, value: object) -> None:
    kind, _, optional = declared.partition(" | ")
    if value is None and optional:
        return
    wrong_bool = isinstance(value, bool) and kind != "bool"
    if wrong_bool or not isinstance(value, _KINDS[kind]):  # type: ignore[arg-type]
        raise BadConfig(field=name, value=value, reason=f"it must be {declared.replace(' | ', ' or ')}")


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise BadConfig(field=name, value=value, reason=f"it must be at least {least}")


def _load(path: Path) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text())
    if path.suffix == ".json":
        return json.loads(path.read_text())
    import yaml  # only those who write YAML wait for it

    try:
        return yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
