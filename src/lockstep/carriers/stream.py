"""Items as records of another stream, on the same bus or another one."""

from __future__ import annotations

from lockstep.errors import BadArgument
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.port import Transaction
from lockstep.streams.client import Lockstep
from lockstep.streams.outbox import ID_HEADER, Item
from lockstep.streams.seen import first_time
from lockstep.streams.shards import check_size, shard_of

_STORED_S = 30.0
_REMEMBERED = 100_000


class ToStream:
    """A handler that publishes items to a stream, with their key, headers and id.

    On a bus that can change several things in one step (promises.atomic), an id that was published before is not
    published again, also after a doubt: of each name the last hundred thousand ids are remembered. On others a repeat
    stands on the stream a second time, with the same `delivery-id`.
    """

    def __init__(self, bus: Lockstep, stream: str, *, name: str = "") -> None:
        if not isinstance(stream, str) or not stream:
            raise BadArgument(name="stream", value=stream, reason="name the stream that items are published to")
        self._bus, self._stream = bus, stream
        self._space = f"delivery\0{name}\0{stream}"
        bus.create(stream)
        self._publisher = None if bus.promises.atomic else bus.publisher(stream, create=False)

    def __call__(self, item: Item) -> None:
        """Publish one item."""
        headers = ((ID_HEADER, item.id.encode()), *item.headers)
        if self._publisher is not None:
            self._publisher.publish(item.body, key=item.key, headers=headers).result(_STORED_S)
            return
        logs = self._bus.logs(self._stream)
        log = logs[shard_of((item.key or item.id.encode()), len(logs), logs[0].config.partitioner)]
        check_size(item.body, item.key, headers, log.config.max_record_bytes, self._stream)
        batch = pack(
            [item.body], producer=NO_PRODUCER, sequence=0, created_ns=self._bus.runtime.wall_ns(),
            keys=[item.key] if item.key is not None else None, headers=[headers],
        )  # fmt: skip

        def once(changes: Transaction) -> None:
            if first_time(changes, self._space, item.id, _REMEMBERED):
                changes.append(log.name, [batch])

        self._bus.bus.atomic(once)
