"""Items of an outbox: what is to be done once, outside, as a record with an id, a kind, a key and a body.

Any stream can be an outbox. The id and the kind travel as headers. A record without an id has one that follows from
where it stands, so that a copy of it is another item: give an id that follows from the cause.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass

from lockstep.errors import BadArgument, DeliveryRefused
from lockstep.log.batch import Headers
from lockstep.streams.record import Record
from lockstep.streams.shards import HeaderPairs, checked_headers

ID_HEADER, KIND_HEADER = "delivery-id", "delivery-kind"
BODY_HEADER = "delivery-body"
"""Of a record whose value is a JSON object: the field that holds the body of the item, in base64."""
ID_BYTES_MAX = 512


@dataclass(frozen=True, slots=True)
class Item:
    """What a handler gets: one item of an outbox, and the attempt that is made."""

    id: str
    """The same for each attempt: hand it to the receiver, which can drop what it knows."""
    kind: str
    key: bytes | None
    """Its lane: items of one key are carried out one after the other, in order."""
    body: bytes
    headers: Headers
    stream: str
    offset: int
    attempt: int
    """1 for the first."""
    in_doubt: bool
    """True if an earlier attempt was begun and its outcome is unknown."""
    epoch: int
    """Fencing token: grows whenever the shard goes to another carrier."""

    def header(self, name: str) -> bytes | None:
        """The last header of that name, or None."""
        return next((value for found, value in reversed(self.headers) if found == name), None)


@dataclass(frozen=True, slots=True)
class Label:
    """What a record says of itself as an item; `fault` if it can't be one."""

    id: str
    kind: str
    fault: str = ""


def item_headers(*, id: str, kind: str = "", headers: HeaderPairs = ()) -> Headers:  # noqa: A002 - what it is called
    """The headers with which a record is published that is to be carried out.

    publisher.publish(body, key=b"ann", headers=item_headers(id="invoice-7", kind="mail"))
    """
    for name, value in (("id", id), ("kind", kind)):
        if not isinstance(value, str) or len(value.encode("utf-8", "surrogatepass")) > ID_BYTES_MAX:
            raise BadArgument(name=name, value=value, reason=f"it must be text of at most {ID_BYTES_MAX} bytes")
        if not value.isprintable():
            raise BadArgument(name=name, value=value, reason="it must be printable: it becomes a header elsewhere")
    if not id:
        raise BadArgument(name="id", value=id, reason="it must not be empty")
    own = [(ID_HEADER, id.encode())] + ([(KIND_HEADER, kind.encode())] if kind else [])
    return (*own, *checked_headers(headers, "the outbox"))


def label_of(record: Record, seat: str) -> Label:
    """Read the id and the kind of a record; without an id it is named by its place."""
    place = f"{seat}:{record.offset}"
    id_bytes, kind_bytes = record.header(ID_HEADER), record.header(KIND_HEADER)
    try:
        kind = "" if kind_bytes is None else _text(KIND_HEADER, kind_bytes)
    except DeliveryRefused as error:
        return Label(place, "", str(error.params["reason"]))
    try:
        return Label(place if id_bytes is None else _text(ID_HEADER, id_bytes), kind)
    except DeliveryRefused as error:
        return Label(place, kind, str(error.params["reason"]))


def made_item(record: Record, label: Label, *, attempt: int, in_doubt: bool, epoch: int) -> Item:
    """The item of a record, as its handler gets it; DeliveryRefused if its body can't be found."""
    others = tuple(pair for pair in record.headers if pair[0] not in (ID_HEADER, KIND_HEADER, BODY_HEADER))
    body = _body(record)
    return Item(label.id, label.kind, record.key, body, others, record.stream, record.offset, attempt, in_doubt, epoch)


def _body(record: Record) -> bytes:
    field = record.header(BODY_HEADER)
    if field is None:
        return record.value
    try:
        return b64decode(json.loads(record.value)[field.decode()], validate=True)
    except (ValueError, KeyError, TypeError):
        raise DeliveryRefused(reason=f"its body is not in base64 where its header {BODY_HEADER} says") from None


def _text(name: str, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise DeliveryRefused(reason=f"its header {name} is not UTF-8") from None
    if not text or len(value) > ID_BYTES_MAX or not text.isprintable():
        raise DeliveryRefused(reason=f"its header {name} is not 1 to {ID_BYTES_MAX} bytes of printable text")
    return text
