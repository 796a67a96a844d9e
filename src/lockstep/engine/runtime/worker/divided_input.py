"""Input that several shards of one machine read: one of them reads a piece and divides it, the others take their share.

A piece is a run of entries that every shard finds alike, wherever it begins to read: it ends before the entry with
which there are more events than a multiple of PIECE_EVENTS, or after an entry that is as large alone.

The file of a piece is the size of its head (8 bytes), the head, the head's CRC-32C (4 bytes), and sections: for each
source the columns that every shard looks at, for all rows, and for each shard the rows of its own. Each section has a
checksum, so that a shard reads and checks no more than it needs. A file is a copy: a piece that is not there in time,
or is damaged, is read from the logs, and the answer is the same.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import Any, Protocol
from weakref import finalize

import msgpack
import numpy as np
import pyarrow as pa
from google_crc32c import value as crc32c

from lockstep.core.sequence import SequenceState
from lockstep.engine.columns.flow import are_single
from lockstep.engine.columns.runner import Span
from lockstep.engine.columns.sharding import InputShare
from lockstep.engine.events.columns import EventBatch, OwnRows
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.output.spool import write_all
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition
from lockstep.engine.runtime.sequence.reader import BrokenFrame, Range, RangeReader, join_ranges
from lockstep.errors import DataError
from lockstep.runtime import Runtime, logger

_SIZE, _SUM = 8, 4
_BLOCK, _CODE, _ROW = "block number", "opcode and flags", "row number"
"""Columns beside those of a schema; the name of a field has no blanks."""
_PLAIN = int(Opcode.INSERT) | int(Flag.NORMAL) << 4


def encode_part(taken: Range, shares: Mapping[str, InputShare]) -> list[Any]:
    """A range that was read with all columns, divided among the shards: the chunks of a file."""
    sections: list[pa.Buffer] = []
    sources: dict[str, list[int]] = {}
    for path, share in shares.items():
        batch = taken.span.inputs.get(path)
        if batch is not None:
            sources[path] = [len(batch), int(batch.block[0]) if len(batch) else 0, len(sections)]
            sections.append(_all_rows(share.looked_at_of(batch)))
            sections += [_own_rows(own, batch.schema) for own in share.of_all(batch)]
    head = msgpack.packb({**_told(taken), "sources": sources, "sections": _placed(sections)})
    return [len(head).to_bytes(_SIZE, "little"), head, crc32c(head).to_bytes(_SUM, "little"), *sections]


def _told(taken: Range) -> dict[str, Any]:
    """What a range says beside its events."""
    span = taken.span
    return {
        "end": taken.end.tree(),
        "blocks": [span.first, span.last],
        "ticks": span.ticks,
        "transactional": span.transactional.tolist(),
        "lagging": sorted(span.lagging),
        "broken": [asdict(broken) for broken in taken.broken],
        "lineage": taken.lineage,
    }


def _placed(sections: list[pa.Buffer]) -> list[tuple[int, int, int]]:
    """For each section where it begins after the head, its size and its checksum."""
    found, start = [], 0
    for section in sections:
        found.append((start, len(section), crc32c(np.frombuffer(section, np.uint8))))
        start += len(section)
    return found


def _all_rows(batch: EventBatch) -> pa.Buffer:
    columns, codes = _named(batch.schema, batch.columns), batch.opcode | (batch.flags << np.uint8(4))
    if not are_single(batch.block):
        columns[_BLOCK] = pa.array(batch.block)
    if bool((codes != _PLAIN).any()):
        columns[_CODE] = pa.array(codes)
    return _written(columns)


def _own_rows(own: OwnRows, schema: Schema) -> pa.Buffer:
    return _written({_ROW: pa.array(own.rows.astype(np.int32)), **_named(schema, own.columns)})


def _named(schema: Schema, columns: tuple[pa.Array | None, ...]) -> dict[str, pa.Array]:
    pairs = zip(schema.names, columns, strict=True)
    return {name: column for name, column in pairs if column is not None}


def _written(columns: dict[str, pa.Array]) -> pa.Buffer:
    batch, sink = pa.record_batch(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def read_part(path: Path, shares: Mapping[str, InputShare], schemas: Mapping[str, Schema]) -> Range:
    """What a file holds for one shard; DataError if that is not what was written.

    It is read, not mapped: truncating a file ends a process that has it mapped.
    """
    try:
        with path.open("rb", buffering=0) as file:
            size = int.from_bytes(_bytes(file, 0, _SIZE), "little")
            head = msgpack.unpackb(_checked(file, _SIZE, size, None), strict_map_key=False)
            return _range(_Sections(file, _SIZE + size + _SUM, head["sections"]), head, shares, schemas)
    except (KeyError, IndexError, TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(reason=str(error)) from error


class _Sections:
    def __init__(self, file: FileIO, start: int, places: list[list[int]]) -> None:
        self._file, self._start, self._places = file, start, places

    def columns(self, number: int) -> dict[str, pa.Array]:
        start, size, checksum = self._places[number]
        data = _checked(self._file, self._start + start, size, checksum)
        batch = pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
        return dict(zip(batch.schema.names, batch.columns, strict=True))


def _checked(file: FileIO, start: int, size: int, checksum: int | None) -> bytes:
    """Some bytes whose checksum is known, or follows them."""
    told = _SUM if checksum is None else 0
    data = _bytes(file, start, size + told)
    if checksum is None:
        data, checksum = data[:size], int.from_bytes(data[size:], "little")
    if crc32c(data) != checksum:
        raise DataError(reason=f"the checksum of bytes {start} to {start + size} is wrong")
    return data


def _bytes(file: FileIO, start: int, size: int) -> bytes:
    """Read `size` bytes at an offset; raises DataError before reading if the file is shorter."""
    whole = os.fstat(file.fileno()).st_size
    if start + size > whole:
        raise DataError(reason=f"it has {whole} bytes, and should have {start + size} or more")
    data = os.pread(file.fileno(), size, start)
    if len(data) != size:
        raise DataError(reason=f"it ends before byte {start + size}")
    return data


def _range(
    sections: _Sections, head: Mapping[str, Any], shares: Mapping[str, InputShare], schemas: Mapping[str, Schema]
) -> Range:
    inputs = {path: _batch(sections, place, shares[path], schemas[path]) for path, place in head["sources"].items()}
    first, last = head["blocks"]
    ticks = tuple((block, time) for block, time in head["ticks"])
    transactional = np.array(head["transactional"], np.int64)
    span = Span(first, last, inputs, ticks, transactional, frozenset(head["lagging"]))
    broken = tuple(BrokenFrame(**fields) for fields in head["broken"])
    lineage = tuple((block, digest) for block, digest in head["lineage"])
    return Range(span, SequencePosition.of(head["end"]), broken, lineage=lineage)


def _batch(sections: _Sections, place: list[int], share: InputShare, schema: Schema) -> EventBatch:
    events, first, number = place
    common, mine = sections.columns(number), sections.columns(number + 1 + share.share.shard)
    if _BLOCK in common:
        block = common[_BLOCK].to_numpy()
    else:
        block = np.arange(first, first + events, dtype=np.int64)
    opcode, flags = np.full(events, int(Opcode.INSERT), np.uint8), np.full(events, int(Flag.NORMAL), np.uint8)
    if _CODE in common:
        codes = common[_CODE].to_numpy()
        opcode, flags = codes & np.uint8(15), codes >> np.uint8(4)
    rows = mine[_ROW].to_numpy().astype(np.int64)
    own = OwnRows(share.share.key, rows, tuple([mine.get(name) for name in schema.names]))
    return EventBatch(schema, block, opcode, flags, tuple([common.get(name) for name in schema.names]), own)


FOLDER_BYTES = 128 << 20
"""What a folder of parts may hold; the oldest are removed first."""
_WAIT_S, _LOOKS = 0.005, 200
"""How long, and how often, a shard waits for a piece that another one reads, before it reads the logs itself."""
_TURN_LOOKS = 8
"""How many of these looks it waits for the shard whose turn it is, before it reads a piece in its place."""
_SLOTS = 16
"""Pieces that may be in work at once."""
_SUFFIX, _VERSION = ".part", 1


@dataclass(slots=True)
class PartCounts:
    """How many events were read from each place."""

    made: int = 0
    """Read from the logs, and stored for the others."""
    found: int = 0
    """Read from what another shard had stored."""
    alone: int = 0
    """Read from the logs for itself."""


class PartFolder:
    """The folder of one machine, as one shard of several sees it."""

    def __init__(self, folder: Path, shard: int, shards: int, runtime: Runtime) -> None:
        self._folder, self._shard, self._shards, self._runtime = folder, shard, shards, runtime
        self.counts = PartCounts()
        self._others: list[int] = []
        self._is_here = False
        """Whether a file is locked as long as this shard is at work."""
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        self._come()

    def others_here(self) -> bool:
        """Whether another shard is at work on this machine; if none is, nothing is divided."""
        if not self._is_here:
            self._come()
        others = (shard for shard in range(self._shards) if shard != self._shard)
        self._others = [shard for shard in others if self._is_here and _is_held(self._presence(shard))]
        return bool(self._others)

    def _come(self) -> None:
        try:
            descriptor = _locked(self._presence(self._shard))
        except OSError:
            return
        if descriptor is not None:
            self._is_here = True
            finalize(self, os.close, descriptor)

    def take(
        self,
        name: str,
        place: int,
        shares: Mapping[str, InputShare],
        schemas: Mapping[str, Schema],
        read: Callable[[], Range],
    ) -> Range:
        """A piece for this shard; if no shard has stored it, or is about to, `read` it and store it for the others.

        Shards take turns by its `place`, so that none reads more than the others if all are at the same place.
        """
        path, patience = self._folder / f"{name}{_SUFFIX}", self._patience(place)
        waiter = self._runtime.waiter()
        for look in range(_LOOKS):
            found = self._load(path, shares, schemas)
            if found is not None:
                self.counts.found += _events(found)
                return found
            try:
                claim = self._claim(name) if look >= patience else None
            except OSError:
                break
            if claim is not None:
                try:
                    return self._load(path, shares, schemas) or self._make(path, shares, schemas, read)
                finally:
                    os.close(claim)
            waiter.wait(_WAIT_S)
        return self.alone(shares, read)

    def _patience(self, place: int) -> int:
        """How many looks it waits for the shard whose turn it is to read a piece."""
        here = sorted([self._shard, *self._others])
        return 0 if here[place % len(here)] == self._shard else _TURN_LOOKS

    def alone(self, shares: Mapping[str, InputShare], read: Callable[[], Range]) -> Range:
        """A piece that is read for this shard alone."""
        taken = read()
        self.counts.alone += _events(taken)
        return divided(taken, shares)

    def _load(self, path: Path, shares: Mapping[str, InputShare], schemas: Mapping[str, Schema]) -> Range | None:
        try:
            return read_part(path, shares, schemas)
        except FileNotFoundError:
            return None
        except (OSError, DataError) as error:
            logger.warning("A part of the input is read from the logs", extra={"action": "part", "reason": str(error)})
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    def _make(
        self, path: Path, shares: Mapping[str, InputShare], schemas: Mapping[str, Schema], read: Callable[[], Range]
    ) -> Range:
        """Read a piece from the logs and store it; the result is read from the file, so that memory is freed."""
        taken = read()
        self.counts.made += _events(taken)
        temporary = path.with_suffix(f".{self._shard}.tmp")
        try:
            chunks = encode_part(taken, shares)
            self._make_room(sum(map(len, chunks)))
            with temporary.open("wb", buffering=0) as file:
                write_all(file, chunks)
            temporary.replace(path)
        except OSError as error:  # such as a full disk: every shard reads the logs itself
            logger.debug("A part was not written", extra={"action": "part", "reason": str(error)})
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            return divided(taken, shares)
        return self._load(path, shares, schemas) or divided(taken, shares)

    def _make_room(self, size: int) -> None:
        """Remove the oldest until another of this size fits."""
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):
                told = path.stat()
                found.append((told.st_mtime_ns, told.st_size, path))
        room = FOLDER_BYTES - size - sum(each for _, each, _ in found)
        for _, each, path in sorted(found):
            if room >= 0:
                break
            path.unlink(missing_ok=True)
            room += each

    def _claim(self, name: str) -> int | None:
        """A descriptor that is held while this shard reads a piece; None if another shard reads it.

        Who is killed lets go of it.
        """
        slot = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "little") % _SLOTS
        return _locked(self._folder / f"{slot}.claim")

    def _presence(self, shard: int) -> Path:
        return self._folder / f"{shard}.here"


def divided(taken: Range, shares: Mapping[str, InputShare]) -> Range:
    """A range with no more than one shard needs."""
    inputs = {path: shares[path].of(batch) for path, batch in taken.span.inputs.items() if path in shares}
    return replace(taken, span=replace(taken.span, inputs=inputs))


def part_name(
    start: SequencePosition, last: int, digest: str, shares: Mapping[str, InputShare], fingerprint: str
) -> str:
    """The name of a piece: a digest of everything that determines its content."""
    plan = {
        path: (share.share.fields, share.share.shards, sorted(share.looked_at), sorted(share.needed))
        for path, share in sorted(shares.items())
    }
    told = msgpack.packb([_VERSION, fingerprint, plan, start.tree(), last, digest])
    return f"{start.number + 1}-{last}-{blake2b(told, digest_size=12).hexdigest()}"


def _events(taken: Range) -> int:
    return sum(map(len, taken.span.inputs.values()))


def _locked(path: Path) -> int | None:
    """The descriptor of a file that is locked as long as it is open; None if another process holds the lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


PIECE_EVENTS = 32_768
"""Pieces are about so large; less is read by each shard, as it is when input comes in.

An entry of a backlog is mostly larger, and so a piece: whatever entries a batch has, it cuts none.
"""


_WORTH_EVENTS = 4096
"""Ranges with fewer events are not stored for other shards."""


class Reader(Protocol):
    """Reads ranges of a project's sequence."""

    def read(self, position: SequencePosition, upto: int, max_events: int | None = None) -> Range:
        """Everything after `position` through entry `upto`, or until it is large enough."""

    def check_reach(self, position: SequencePosition) -> None:
        """Refuse if an input of the project's own begins after a position that is still needed."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries through number `last`, when the sequence had that digest; `is_whole`: every shard finds it so."""

    last: int
    digest: str
    is_whole: bool


class DividedReader:
    """Gives the rows of one shard, and of the others what is looked at in all; without `folder` it reads all itself."""

    def __init__(
        self, reader: RangeReader, shares: Mapping[str, InputShare], fingerprint: str, folder: PartFolder | None
    ) -> None:
        self._reader, self._shares, self._fingerprint, self._folder = reader, shares, fingerprint, folder
        self._schemas = reader.schemas
        self.counts = folder.counts if folder is not None else PartCounts()

    def check_reach(self, position: SequencePosition) -> None:
        """Refuse if an input of the project's own begins after a position that is still needed."""
        self._reader.check_reach(position)

    def read(self, position: SequencePosition, upto: int, max_events: int | None = None) -> Range:
        """Everything after `position` through entry `upto`, or until it is large enough."""
        folder = self._folder
        if folder is None or not folder.others_here():
            return divided(self._reader.read(position, upto, max_events), self._shares)
        taken: list[Range] = []
        end = position
        for piece in pieces(self._reader.entries(position), position, upto, max_events):
            made = self._take(folder, end, piece)
            taken.append(made)
            end = made.end
            if made.control is not None or end.number != piece.last:
                break
        if not taken:
            return divided(self._reader.read(position, upto, max_events), self._shares)
        return join_ranges(position, end, taken)

    def _take(self, folder: PartFolder, start: SequencePosition, piece: Piece) -> Range:
        def read() -> Range:
            return self._reader.read(start, piece.last)

        if not piece.is_whole:
            return folder.alone(self._shares, read)
        name = part_name(start, piece.last, piece.digest, self._shares, self._fingerprint)
        return folder.take(name, start.events // PIECE_EVENTS, self._shares, self._schemas, read)


def pieces(
    entries: Iterator[tuple[SequenceState, Decision]], position: SequencePosition, upto: int, max_events: int | None
) -> Iterator[Piece]:
    """The pieces after a position through entry `upto`, or until there are enough events; none past a control entry.

    A control entry is a piece alone, and only the first.
    """
    room = float("inf") if max_events is None else position.events + max_events
    last: SequenceState | None = None
    start = events = position.events
    begins = is_large = is_enough = False
    for state, decision in entries:
        ends = decision.is_control or is_large or _part_of(decision.events) != _part_of(events)
        if last is None:
            if decision.is_control:
                yield Piece(state.number, state.digest, is_whole=False)
                return
            begins = ends
        elif ends or is_enough:
            yield Piece(last.number, last.digest, is_whole=begins and ends and events - start >= _WORTH_EVENTS)
            if decision.is_control or is_enough:
                return
            begins, start = True, events
        is_large = decision.events - events >= PIECE_EVENTS
        last, events = state, decision.events
        is_enough = state.number == upto or events >= room
    if last is not None:  # the log ends here for now, for those who look at the same time
        yield Piece(last.number, last.digest, is_whole=begins and events - start >= PIECE_EVENTS // 8)


def _part_of(events: int) -> int:
    """In which of the parts of that size the last of so many events is."""
    return (events - 1) // PIECE_EVENTS
