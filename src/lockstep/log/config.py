"""The configuration of a stream. It is stored with the stream, and everybody who opens the stream gets the same."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from lockstep.errors import BadConfig, BadName, ConfigMismatch, from_os_error
from lockstep.log.batch import codec_by_name

RETAIN_AGE_DEFAULT_S = 7 * 86_400.0
"""How long a stream keeps its records if nobody bounds it: seven days, as Kafka does."""
FIXED = ("shards", "partitioner", "history")
"""Settings that hold for the life of a stream: records are stored by them."""
_WISHES = ("sync_replicas", "async_replicas")
"""Settings that change nothing in the stream, so that two programs may differ in them."""


class _NotGiven:
    """The default of a bound: what it becomes depends on the other bounds."""

    def __repr__(self) -> str:
        return "not given"


_NOT_GIVEN: Any = _NotGiven()
_BOUNDS = ("capacity", "retain_bytes", "retain_age_s")
GROUP_LOG_PREFIX = "_group."
"""How the logs of groups are called; a full store keeps room for them."""
NAME_CHARACTERS_MAX = 128
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
_KINDS = {"int": int, "float": (int, float), "bool": bool, "str": str}


def check_name(what: str, name: str) -> str:
    """The name itself, if it is one that any bus and any file system can carry."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadName(what=what, name=name)
    return name


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamConfig:
    """How a stream keeps its records. Bounds that are not given set no limit; if none is given, it keeps seven days.

    StreamConfig()                                    # everything of the last seven days
    StreamConfig(retain_age_s=86_400)                 # everything of the last day
    StreamConfig(capacity=10_000)                     # a ring of the last 10,000 records
    StreamConfig(capacity=None)                       # everything, for ever
    StreamConfig(capacity=1_000, protect=True)        # a ring, but nothing goes that a group has not confirmed
    """

    capacity: int | None = _NOT_GIVEN
    """Records kept; None sets no limit."""
    retain_bytes: int | None = _NOT_GIVEN
    """Stored bytes kept, counted in whole batches; None sets no limit."""
    retain_age_s: float | None = _NOT_GIVEN
    """Seconds a record is kept after its append, checked at each append; None sets no limit.

    Seven days if neither this nor another bound is given.
    """
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
    partitioner: str = "crc32"
    """How a key chooses its shard: crc32, as librdkafka does it, or murmur2, as Kafka's Java client does it."""
    history: str | None = None
    """URL of a store for records beyond the capacity, for example lmdb:./archive; None drops them.

    A relative folder is resolved when the configuration is made, and stored as a whole path.
    """
    sync_replicas: int = 0
    """Copies wanted before an acknowledgement; what the bus really has is in its promises."""
    async_replicas: int = 0
    """Copies wanted in the background."""

    def __post_init__(self) -> None:
        self._settle_bounds()
        for item in fields(self):
            _check_kind(item.name, str(item.type), getattr(self, item.name))
        codec_by_name(self.compression)
        if self.partitioner not in PARTITIONERS:
            reason = f"choose {' or '.join(PARTITIONERS)}"
            raise BadConfig(field="partitioner", value=self.partitioner, reason=reason)
        for name, least in (("capacity", 1), ("retain_bytes", 1), ("protect_bytes", 1), ("max_record_bytes", 1)):
            _at_least(name, getattr(self, name), least)
        for name, least in (("shards", 1), ("sync_replicas", 0), ("async_replicas", 0)):
            _at_least(name, getattr(self, name), least)
        if self.retain_age_s is not None and not 0 < self.retain_age_s < math.inf:
            raise BadConfig(field="retain_age_s", value=self.retain_age_s, reason="it must be above 0, and finite")
        if self.history is not None:
            object.__setattr__(self, "history", _absolute(self.history))
        if self.shards > 1024:
            raise BadConfig(field="shards", value=self.shards, reason="it must be at most 1024")

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> StreamConfig:
        """A configuration from plain data; unknown names are refused."""
        check_names(settings, cls)
        return cls(**settings)

    @classmethod
    def from_file(cls, path: str | Path) -> StreamConfig:
        """A configuration from a TOML, YAML or JSON file."""
        path = Path(path)
        if path.suffix not in (".toml", ".json", ".yaml", ".yml"):
            raise BadConfig(field="file", value=str(path), reason="it must end in .toml, .yaml, .yml or .json")
        try:
            loaded = _load(path)
        except OSError as error:
            raise from_os_error(error, str(path)) from error
        except ValueError as error:
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

    def differences(self, given: StreamConfig) -> list[str]:
        """The settings in which another configuration differs; how many copies are wanted does not count."""
        names = [item.name for item in fields(self) if item.name not in _WISHES]
        return [name for name in names if getattr(self, name) != getattr(given, name)]

    def check_same(self, name: str, given: StreamConfig) -> None:
        """Raise ConfigMismatch, naming the first setting that differs."""
        for field in self.differences(given):
            raise self._mismatch(name, field, given)

    def check_alterable(self, name: str, given: StreamConfig) -> None:
        """Raise ConfigMismatch if another configuration differs in what can't be altered."""
        for field in FIXED:
            if field in self.differences(given):
                raise self._mismatch(name, field, given)

    def altered(self, name: str, changes: Mapping[str, Any]) -> StreamConfig:
        """The configuration with some settings changed; BadConfig for one that is unknown or can't be altered."""
        check_names(changes, StreamConfig)
        for field in FIXED:
            if field in changes and changes[field] != getattr(self, field):
                reason = f"stream {name!r} was created with {getattr(self, field)!r}, and this can't be altered"
                raise BadConfig(field=field, value=changes[field], reason=f"{reason}; create another stream")
        return replace(self, **changes)

    def _mismatch(self, name: str, field: str, given: StreamConfig) -> ConfigMismatch:
        stored, other = getattr(self, field), getattr(given, field)
        otherwise = f", or change it with 'lockstep stream alter {name}' or bus.alter()"
        if field in FIXED:
            otherwise = "; this setting can't be altered, so create another stream for another value"
        return ConfigMismatch(what="Stream", name=name, field=field, stored=stored, given=other, otherwise=otherwise)

    def _settle_bounds(self) -> None:
        missing = [name for name in _BOUNDS if getattr(self, name) is _NOT_GIVEN]
        for name in missing:
            object.__setattr__(self, name, None)
        if len(missing) == len(_BOUNDS):
            object.__setattr__(self, "retain_age_s", RETAIN_AGE_DEFAULT_S)


def check_names(given: Mapping[str, Any], kind: Any) -> None:
    """BadConfig for a setting that a dataclass of settings does not have, with the name that was probably meant."""
    known = [item.name for item in fields(kind)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}? The " if near else "the "
            reason = f"there is no such setting; {hint}known settings are {', '.join(sorted(known))}"
            raise BadConfig(field=name, value=given[name], reason=reason)


def _absolute(history: str) -> str:
    """A history with a whole path: all processes must mean the same folder, wherever they run."""
    scheme, _, target = history.partition(":")
    folder, mark, options = target.partition("?")
    if scheme != "lmdb" or not folder:
        return history
    return f"{scheme}:{Path(folder).expanduser().absolute()}{mark}{options}"


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


_SEED = 0x9747B28C
_M, _R = 0x5BD1E995, 24
_U32, _POSITIVE = 0xFFFFFFFF, 0x7FFFFFFF


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition that the Java client chooses for a key: murmur2."""
    return (murmur2(key) & _POSITIVE) % partitions


def crc32_partition(key: bytes, partitions: int) -> int:
    """The partition that librdkafka's `consistent` partitioner chooses for a key: CRC-32."""
    return zlib.crc32(key) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with the seed that Kafka gives it."""
    value = (_SEED ^ len(data)) & _U32
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _M & _U32
        part = (part ^ part >> _R) * _M & _U32
        value = (value * _M & _U32) ^ part
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _U32
    value = (value ^ value >> 13) * _M & _U32
    return value ^ value >> 15


PARTITIONERS: Mapping[str, Callable[[bytes, int], int]] = {"crc32": crc32_partition, "murmur2": murmur2_partition}
"""How a key chooses its shard, by the name that `StreamConfig.partitioner` gives.

`crc32` is what librdkafka does, and the default; `murmur2` is for topics that Java programs write.
"""
