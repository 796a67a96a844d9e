"""Rows as columns: what Spark calls them, how stored batches become Arrow without a row in between, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lockstep.errors import BadConfig, BadRecord
from lockstep.log.batch import Headers
from lockstep.streams.record import Segment

HEADERS = ArrayType(StructType([StructField("name", StringType()), StructField("value", BinaryType())]))
"""Pairs, not a map: a record may have several headers of one name, and their order counts."""
TYPES: dict[str, DataType] = {
    "offset": LongType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": HEADERS,
    "time": TimestampType(),
    "stream": StringType(),
    "appended": TimestampType(),
}
WRITABLE = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": (HEADERS.simpleString(), "map<string,binary>"),
    "time": ("timestamp", "timestamp_ntz"),
}
"""The columns that can be written, and their types; text is stored as UTF-8, a time without a zone is in UTC."""
DEFAULT = ("offset", "key", "value", "headers", "time")


def schema_of(columns: Sequence[str]) -> StructType:
    """The schema of these columns."""
    return StructType([StructField(name, TYPES[name]) for name in columns])


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark wants it to the letter; a schema of the user's own must have our names and types."""
    for field in schema.fields:
        wanted = TYPES.get(field.name)
        if wanted is None or field.dataType.simpleString() != wanted.simpleString():
            have = ", ".join(f"{name} {kind.simpleString()}" for name, kind in TYPES.items())
            reason = f"a stream has no such column; it has {have}"
            raise BadConfig(field="schema", value=f"{field.name} {field.dataType.simpleString()}", reason=reason)
    return to_arrow_schema(schema, timezone="UTC")


def writable(schema: StructType) -> dict[str, str]:
    """The columns of a frame by what they are to a stream; BadConfig for rows that a stream can't take.

    Names have no case, as in Spark.
    """
    have = "; ".join(f"{name}: {' or '.join(kinds)}" for name, kinds in WRITABLE.items())
    for field in schema.fields:
        if field.dataType.simpleString() not in WRITABLE.get(field.name.lower(), ()):
            reason = f"such a column can't be written; select from {have}"
            raise BadConfig(field="schema", value=f"{field.name} {field.dataType.simpleString()}", reason=reason)
    found = {field.name.lower(): field.name for field in schema.fields}
    if len(found) < len(schema.fields):
        raise BadConfig(field="schema", value=schema.simpleString(), reason="two columns differ by case only")
    if "value" not in found:
        raise BadConfig(field="schema", value=schema.simpleString(), reason=f"it has no value; select from {have}")
    return found


@dataclass(frozen=True, slots=True)
class RecordForm:
    """Rows with the columns of a stream, whose names are spelled in lower case."""

    columns: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch, stream: str, now_ns: int) -> list[Rows]:
        """One record for each row."""
        return [from_arrow(batch.rename_columns(self.columns), stream, now_ns)]


def record_form(schema: StructType) -> RecordForm:
    """How rows of a frame become records; BadConfig for rows that a stream can't take."""
    writable(schema)
    return RecordForm(tuple(name.lower() for name in schema.fieldNames()))


def to_arrow(segments: Sequence[Segment], log: str, schema: pa.Schema) -> pa.RecordBatch:
    """Parts of stored batches as one Arrow batch; only the columns asked for are taken apart."""
    arrays = [_array(field.name, segments, log, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(name: str, segments: Sequence[Segment], log: str, kind: pa.DataType) -> pa.Array:
    if name == "offset":
        spans = [np.arange(part.view.base + part.start, part.view.base + part.stop) for part in segments]
        return pa.array(np.concatenate(spans), kind)
    if name == "key":
        return pa.array(_cut(segments, [part.view.keys() for part in segments]), kind)
    if name == "value":
        return pa.array(_cut(segments, [part.view.values() for part in segments]), kind)
    if name == "headers":
        return _header_lists(list(_cut(segments, [part.view.headers() for part in segments])), kind)
    if name == "time":
        return _times(_cut(segments, [part.view.created() for part in segments]), kind)
    if name == "appended":
        return _times(chain.from_iterable([part.view.append_ns] * part.count for part in segments), kind)
    return pa.array([log] * sum(part.count for part in segments), kind)


def _cut(segments: Sequence[Segment], columns: Sequence[Sequence[Any]]) -> Iterable[Any]:
    return chain.from_iterable(column[part.start : part.stop] for part, column in zip(segments, columns, strict=True))


def _header_lists(headers: list[Headers], kind: pa.DataType) -> pa.Array:
    if any(headers):
        return pa.array(map(_pairs, headers), kind)
    starts = pa.array(np.zeros(len(headers) + 1, np.int32))  # most streams have none: no list for each row
    return pa.ListArray.from_arrays(starts, pa.array([], kind.value_type), type=kind)


def _pairs(headers: Headers) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in headers]


def _times(times_ns: Iterable[int], kind: pa.DataType) -> pa.Array:
    """Spark's timestamps have microseconds; what is finer is dropped."""
    return pa.array(np.fromiter(times_ns, np.int64) // 1_000).cast(kind)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows on their way to a stream, column by column."""

    values: list[bytes]
    keys: list[bytes | None]
    headers: list[Headers]
    times_ns: list[int]

    def take(self, indexes: Sequence[int]) -> Rows:
        """Some of them."""
        columns = (self.values, self.keys, self.headers, self.times_ns)
        return Rows(*([column[index] for index in indexes] for column in columns))  # type: ignore[arg-type]


def from_arrow(batch: pa.RecordBatch, stream: str, now_ns: int) -> Rows:
    """The rows of an Arrow batch; BadRecord if one has no value. A row without a time has the present one."""
    values = _bytes(batch, "value")
    if None in values:
        raise BadRecord(stream=stream, reason="a row has no value (it is null)")
    return Rows(
        [value for value in values if value is not None],
        _bytes(batch, "key"),
        [_headers(item, stream) for item in _items(batch, "headers")],
        _times_ns(batch, now_ns),
    )


def _items(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    return batch.column(name).to_pylist()  # type: ignore[no-any-return]


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    return [item.encode() if isinstance(item, str) else item for item in _items(batch, name)]


def _headers(item: list[Any] | None, stream: str) -> Headers:
    pairs = [(pair["name"], pair["value"]) if isinstance(pair, dict) else pair for pair in item or ()]
    if any(name is None or value is None for name, value in pairs):
        reason = "a header has no name or no value (it is null); leave it out, or give it an empty value, X''"
        raise BadRecord(stream=stream, reason=reason)
    return tuple(pairs)


def _times_ns(batch: pa.RecordBatch, now_ns: int) -> list[int]:
    if "time" not in batch.schema.names:
        return [now_ns] * batch.num_rows
    micros = batch.column("time").cast(pa.int64()).to_pylist()
    return [now_ns if micro is None else micro * 1_000 for micro in micros]
