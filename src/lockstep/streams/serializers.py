"""Turning objects into bytes and back. A serializer is a pair of functions, so any library will do.

Serializer(Order.model_dump_json, Order.model_validate_json)     # pydantic
Serializer(Order.SerializeToString, Order.FromString)            # protobuf
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Serializer:
    """`encode` makes bytes, `decode` takes them apart again."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _as_is(data: bytes) -> bytes:
    return data


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


BYTES = Serializer(_as_is, _as_is)
TEXT = Serializer(str.encode, bytes.decode)
JSON = Serializer(_json_bytes, json.loads)


def dataclass_json(kind: type[Any]) -> Serializer:
    """A serializer for a flat dataclass, as a JSON object."""
    return Serializer(lambda value: _json_bytes(dataclasses.asdict(value)), lambda data: kind(**json.loads(data)))
