"""Records that a store publishes after its commit: stored with the rows as batches, then relayed to the bus.

A batch is relayed again if its acknowledgement was lost or its owner died. Each keeps its producer and its sequence, so
that the bus or its readers drop copies. The producer stands for a shard, its seat and a log. The sequence begins
with the epoch of the seat: it grows from owner to owner, even over a store that was emptied or restored.

A stream may refuse records: by rights, by a limit that was lowered, or because it is full. They stay in the outbox and
are tried again; the records of other streams pass them, and newer ones for the same stream wait. What was taken is
forgotten at once, so that only what was refused is sent again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b

from google_crc32c import value as crc32c

from lockstep.errors import AppendTooLarge, LockstepError, OutboxBlocked, StoreFull, StreamNotFound, Unavailable
from lockstep.log.batch import HEADER, NO_PRODUCER, Batch, BatchView, codec_by_name, pack
from lockstep.log.port import Bus, Limits, Log, split_appends
from lockstep.runtime import Runtime, Task, logger
from lockstep.schedule.rows import Fence, Outgoing
from lockstep.streams.shards import logs_of, shard_of, stream_name

EPOCH_BITS = 36
"""A sequence is the epoch, then so many bits that count records: an epoch is over before they are used up. Redis
compares sequences as doubles, so that epochs up to 131,072 are exact there."""
RETRY_S = 1.0
_BATCH_BYTES, _BATCH_RECORDS = 4 << 20, 10_000
Refusals = dict[str, LockstepError]
"""By log: why it does not take records. A bus that is away refuses nothing; it is waited for."""
ByLog = dict[str, tuple[Log, list[Outgoing]]]
_MESSAGE_OVERHEAD, _RECORD_OVERHEAD, _HEADER_OVERHEAD = 4096, 16, 6
_COMPRESSION_OVERHEAD = 128
"""What can't be compressed grows by less than one part in so many."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A batch for a log, as it is stored in an outbox."""

    log: str
    batch: Batch

    def numbered(self, scheduler: str, shard: int, fence: Fence, sent: int) -> Letter:
        """The same with its producer and sequence; `sent` records were put into the outbox in this epoch before it."""
        origin = f"{scheduler}\0{shard}\0{fence.seat}\0{self.log}"
        producer = blake2b(origin.encode(), digest_size=len(NO_PRODUCER)).digest()
        return Letter(self.log, replace(self.batch, producer=producer, sequence=(fence.epoch << EPOCH_BITS) + sent))

    def sealed(self) -> bytes:
        """The batch as bytes."""
        return self.batch.seal(0)


def unsealed(log: str, data: bytes) -> Letter:
    """A letter from storage."""
    (_, _, codec, _, count, raw_size, flags, _, value_size, producer, sequence, _, created) = HEADER.unpack_from(data)
    body = data[HEADER.size :]
    return Letter(
        log, Batch(count, producer, sequence, codec, flags, raw_size, value_size, created, body, crc32c(body))
    )


@dataclass(frozen=True, slots=True)
class Published:
    """What became of letters that were appended to the bus."""

    taken: frozenset[int]
    """The places of those that need not be kept: the bus has them, or their stream is gone."""
    refused: Refusals
    """Logs that refuse one of their letters; it and those after it have to be kept."""
    failure: Unavailable | None = None
    """The bus did not take some of them, or it is not known whether it did."""


class Outbox:
    """Packs the records of a store into batches that fit their logs, and appends such batches to the bus."""

    def __init__(self, scheduler: str, bus: Bus, runtime: Runtime) -> None:
        self._scheduler, self._bus, self._runtime = scheduler, bus, runtime
        self._streams: dict[str, list[Log]] = {}
        self._logs: dict[str, Log] = {}

    def pack(self, records: Sequence[Outgoing], refusals: Mapping[str, LockstepError]) -> list[Letter]:
        """Batches with all records, in order for each log.

        OutboxBlocked if a stream does not take records, or if earlier ones of it wait in the outbox.
        """
        by_log: ByLog = {}
        blocked = {stream_name(log): error for log, error in refusals.items()}
        for record in records:
            log = self._opened_for(record)
            if record.stream in blocked:  # whichever of its shards refuses: it may have others by now
                raise self._blocked(record.stream, blocked[record.stream], sorted(blocked))
            by_log.setdefault(log.name, (log, []))[1].append(record)
        try:
            return [
                Letter(log.name, self._pack(log, part)) for log, mine in by_log.values() for part in _parts(log, mine)
            ]
        except AppendTooLarge as error:
            stream = stream_name(str(error.params["stream"]))
            raise self._blocked(stream, error, [stream]) from error

    def publish(self, letters: Sequence[Letter], *, stored: bool = False) -> Published:
        """Append letters in order, those of each log in as few appends as it takes; copies of earlier ones do no harm.

        `stored` letters were packed earlier, perhaps for a stream that was deleted and made anew since. What is for a
        stream that was deleted is dropped with a warning: it would have been deleted with the stream.
        """
        by_log: dict[str, list[int]] = {}
        for place, letter in enumerate(letters):
            by_log.setdefault(letter.log, []).append(place)
        taken, refused, failure = set[int](), Refusals(), None
        for name, places in by_log.items():
            done, error = self._publish_to(name, [letters[place].batch for place in places], stored=stored)
            taken |= set(places[:done])
            if isinstance(error, Unavailable) and not isinstance(error, StoreFull):
                failure = error  # the others would wait as long for nothing
                break
            if error is not None:
                refused[name] = error
        return Published(frozenset(taken), refused, failure)

    def _publish_to(self, name: str, batches: Sequence[Batch], *, stored: bool) -> tuple[int, LockstepError | None]:
        """Append the batches of a log; return how many of them need not be kept, and what went wrong with the next."""
        done = 0
        try:
            for part in split_appends(batches, self._limits(name)):
                self._append(name, part, stored=stored)
                done += len(part)
        except StreamNotFound:
            count = sum(batch.count for batch in batches[done:])
            logger.warning(
                "records for a deleted stream dropped", extra={"action": "drop", "stream": name, "count": count}
            )
            return len(batches), None
        except LockstepError as error:
            return done, error
        return done, None

    def forget_stream(self, name: str) -> None:
        """Look a stream up again: it was deleted, perhaps made anew."""
        self._streams.pop(name, None)
        self._logs = {log: handle for log, handle in list(self._logs.items()) if stream_name(log) != name}

    def _limits(self, name: str) -> Limits:
        try:
            return self._open(name).limits
        except StreamNotFound:  # of the stream that has its name now
            return logs_of(self._bus, stream_name(name))[0].limits

    def _append(self, name: str, batches: Sequence[Batch], *, stored: bool) -> None:
        try:
            if stored:
                self._append_placed(stream_name(name), name, batches)
            else:
                self._open(name).append(batches)
        except StreamNotFound:  # perhaps it was made anew, with as many shards or others
            self.forget_stream(stream_name(name))
            self._append_placed(stream_name(name), name, batches)

    def _append_placed(self, stream: str, packed_for: str, batches: Sequence[Batch]) -> None:
        for log, own in self._placed(stream, packed_for, batches):
            for part in split_appends(own, log.limits):
                log.append(part)

    def _open(self, name: str) -> Log:
        if name not in self._logs:
            log = self._bus.open(name)
            if log.config.shards > 1 and name == stream_name(name):
                raise StreamNotFound(name=name, bus=self._bus.url)  # it has shards by now, and its readers read those
            self._logs[name] = log
        return self._logs[name]

    def _placed(self, stream: str, packed_for: str, batches: Sequence[Batch]) -> list[tuple[Log, list[Batch]]]:
        """Batches by the logs that their stream has now; numbered as before."""
        found: dict[str, tuple[Log, list[Batch]]] = {}
        for batch in batches:
            view = BatchView(0, batch.seal(0), stream)
            by_log: ByLog = {}
            for value, key, headers in zip(view.values(), view.keys(), view.headers(), strict=True):
                record = Outgoing(stream, value, key, headers)
                log = self._log_for(record)
                by_log.setdefault(log.name, (log, []))[1].append(record)
            for log, records in by_log.values():
                own = batch
                if by_log.keys() != {packed_for}:
                    own = replace(self._pack(log, records), producer=batch.producer, sequence=batch.sequence)
                found.setdefault(log.name, (log, []))[1].append(own)
        return list(found.values())

    def _opened_for(self, record: Outgoing) -> Log:
        """The log of a record; OutboxBlocked if the stream can't be opened although the bus is there."""
        try:
            return self._log_for(record)
        except (Unavailable, StreamNotFound):
            raise
        except LockstepError as error:
            raise self._blocked(record.stream, error, [record.stream]) from error

    def _blocked(self, stream: str, error: LockstepError, streams: Sequence[str]) -> OutboxBlocked:
        return OutboxBlocked(name=self._scheduler, stream=stream, reason=str(error), streams=list(streams))

    def _log_for(self, record: Outgoing) -> Log:
        logs = self._streams.get(record.stream)
        if logs is None:
            logs = self._streams[record.stream] = logs_of(self._bus, record.stream)
            self._logs.update({log.name: log for log in logs})
        if record.key is None or len(logs) == 1:
            return logs[0]
        return logs[shard_of(record.key, len(logs), logs[0].config.partitioner)]

    def _pack(self, log: Log, records: Sequence[Outgoing]) -> Batch:
        batch = pack(
            [record.value for record in records],
            producer=NO_PRODUCER,
            sequence=0,
            codec=codec_by_name(log.config.compression),
            created_ns=self._runtime.wall_ns(),
            keys=[record.key for record in records] if any(record.key is not None for record in records) else None,
            headers=[record.headers for record in records] if any(record.headers for record in records) else None,
        )
        limit = log.limits.append_bytes
        if limit is not None and batch.size + _MESSAGE_OVERHEAD > limit and len(records) == 1:
            raise AppendTooLarge(
                size=f"{batch.size} bytes", stream=log.name, bus=self._bus.url, limit=f"{limit} bytes",
                setting=log.limits.append_setting,
            )  # fmt: skip
        return batch


def largest_record(log: Log) -> int:
    """How many bytes a record of a log may have, with its key and headers, so that a batch of it alone fits."""
    limit = log.limits.append_bytes
    if limit is None:
        return log.config.max_record_bytes
    return min(log.config.max_record_bytes, limit - limit // _COMPRESSION_OVERHEAD - 2 * _MESSAGE_OVERHEAD)


def _parts(log: Log, records: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """The records in parts, each of which fits into one append."""
    limits = log.limits
    most_bytes = min(_BATCH_BYTES, (limits.append_bytes or sys.maxsize) - _MESSAGE_OVERHEAD)
    most = min(_BATCH_RECORDS, limits.batch_records or sys.maxsize, limits.append_records or sys.maxsize)
    part: list[Outgoing] = []
    size = 0
    for record in records:
        own = _size(record)
        if part and (size + own > most_bytes or len(part) >= most):
            yield part
            part, size = [], 0
        part.append(record)
        size += own
    yield part


def _size(record: Outgoing) -> int:
    size = len(record.value) + len(record.key or b"") + _RECORD_OVERHEAD
    for name, value in record.headers:
        size += (len(name) if name.isascii() else len(name.encode())) + len(value) + _HEADER_OVERHEAD
    return size


class Relay:
    """Relays stored letters of shards: after a commit, when a shard is claimed, and again after a failure.

    A commit whose records could not be relayed has happened all the same. They are relayed in the background as soon as
    the bus is back; until then further commits of the shard are refused, so that an outbox does not grow without bound.
    Where only a stream refuses its records, only further records for that stream are refused.
    """

    def __init__(self, relay_stored: Callable[[int], Refusals], runtime: Runtime) -> None:
        self._relay_stored, self._runtime = relay_stored, runtime
        self._relaying = threading.RLock()
        self._behind: set[int] = set()
        """Shards with letters that could not be relayed, because the bus or the store was away."""
        self._refused: dict[int, Refusals] = {}
        """By shard: logs that refused letters."""
        self._task: Task | None = None
        self._closed = False

    def refusals(self) -> Refusals:
        """The logs that refuse letters which wait in the outbox."""
        return {log: error for refused in list(self._refused.values()) for log, error in refused.items()}

    def run(self, shard: int) -> None:
        """Relay what is stored for a shard, also to logs that refused it before; Unavailable if the bus is away.

        Until the whole outbox was read, what is known to be refused stays known.
        """
        with self._relaying:
            refused = self._relay_stored(shard)
            self._behind.discard(shard)
            self._refused.pop(shard, None)  # the whole outbox was read
            if refused:
                self._add([shard], refused)

    def catch_up(self, shards: Iterable[int]) -> None:
        """Relay what failed before for these shards; Unavailable if it fails again."""
        for shard in self._behind.intersection(shards):
            self.run(shard)

    def send(self, shards: set[int], publish: Callable[[], Refusals]) -> None:
        """Publish what was just committed for shards; what fails is tried again in the background."""
        with self._relaying:
            try:
                refused = publish()
            except LockstepError as error:
                logger.warning("relay failed", extra={"action": "retry", "shards": sorted(shards), "error": str(error)})
                self._behind |= shards
                self._start()
            else:
                if refused:
                    self._add(shards, refused)

    def close(self) -> None:
        """Relay no more; what is left is relayed by the next owner of each shard."""
        with self._relaying:
            self._closed, task = True, self._task
        if task is not None:
            task.stop()

    def _add(self, shards: Iterable[int], refused: Refusals) -> None:
        """Remember which logs refuse letters of shards, besides those that are known, and try them again later."""
        for log in refused.keys() - self.refusals():
            logger.warning(
                "records refused", extra={"action": "retry", "stream": stream_name(log), "error": str(refused[log])}
            )
        for shard in shards:
            self._refused[shard] = self._refused.get(shard, {}) | refused
        self._start()

    def _start(self) -> None:
        if self._task is None and not self._closed:
            self._task = self._runtime.spawn("lockstep-outbox", self._step, self._runtime.waiter(), self._crashed)

    def _step(self) -> float | None:
        with self._relaying:
            shards = sorted(self._behind | self._refused.keys())
        for shard in shards:
            with suppress(LockstepError):  # it was logged when it failed first
                self.run(shard)
        with self._relaying:
            if self._behind or self._refused:
                return RETRY_S
            self._task = None
            return None

    def _crashed(self, error: BaseException) -> None:
        with self._relaying:
            self._task = None
        logger.error("relay crashed", extra={"action": "stop", "error": repr(error)})
