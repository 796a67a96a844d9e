"""Turning objects into bytes and back. A serializer is a pair of functions, so any library will do.

Serializer(Order.model_dump_json, Order.model_validate_json)     # pydantic
Serializer(Order.SerializeToString, Order.FromString)            # protobuf
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Union, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)
    K = TypeVar("K", default=bytes)
else:
    from typing import TypeVar

    V, K = TypeVar("V"), TypeVar("K")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Serializer(Generic[V]):
    """`encode` makes bytes, `decode` takes them apart again."""

    encode: Callable[[V], bytes]
    decode: Callable[[bytes], V]


def _as_is(data: bytes) -> bytes:
    return data


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


BYTES: Serializer[bytes] = Serializer(_as_is, _as_is)
TEXT: Serializer[str] = Serializer(str.encode, bytes.decode)
JSON: Serializer[Any] = Serializer(_json_bytes, json.loads)


def dataclass_json(kind: type[T]) -> Serializer[T]:
    """A serializer for a dataclass as a JSON object. Dataclasses in fields, lists and mappings come back as such."""
    return Serializer(
        lambda value: _json_bytes(dataclasses.asdict(cast(Any, value))),
        lambda data: cast(T, _build(kind, json.loads(data))),
    )


def _build(kind: Any, data: Any) -> Any:
    """What JSON holds as the type that an annotation names; as it is where that does not matter."""
    if dataclasses.is_dataclass(kind) and isinstance(data, dict):
        hints = _hints(cast(Any, kind))
        return cast(Any, kind)(**{name: _build(hints.get(name, Any), value) for name, value in data.items()})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _build_union(arguments, data)
    if origin in (list, set, frozenset) and isinstance(data, list) and arguments:
        return origin(_build(arguments[0], item) for item in data)
    if origin is tuple and isinstance(data, list):
        return _build_tuple(arguments, data)
    if origin is dict and isinstance(data, dict):
        return {name: _build(arguments[1], value) for name, value in data.items()}
    return data


def _build_union(kinds: tuple[Any, ...], data: Any) -> Any:
    """The first dataclass of a union whose fields the data has; else the first part that is no dataclass."""
    fitting = [kind for kind in kinds if dataclasses.is_dataclass(kind) and isinstance(data, dict)]
    for kind in fitting:
        if set(data) == {item.name for item in dataclasses.fields(kind)}:
            return _build(kind, data)
    others = [kind for kind in kinds if not dataclasses.is_dataclass(kind) and kind is not types.NoneType]
    return data if data is None or not others else _build(others[0], data)


def _build_tuple(kinds: tuple[Any, ...], data: list[Any]) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_build(kinds[0], item) for item in data)
    return tuple(_build(kind, item) for kind, item in zip(kinds, data, strict=False))


@lru_cache(maxsize=256)
def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields; none where an annotation names what can't be found."""
    try:
        return get_type_hints(kind)
    except NameError:
        return {}
