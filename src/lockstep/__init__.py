"""Lockstep: ordered event streams for Python; nothing lost, duplicated or out of order, whatever is killed.

import lockstep

with lockstep.connect("lmdb:./events") as bus:
    with bus.publisher("orders") as publisher:
        publisher.publish(b"first").result()
"""

from __future__ import annotations

from lockstep import errors
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bounds, Promises
from lockstep.streams.admin import Groups, GroupView, StreamProgress
from lockstep.streams.async_client import AsyncGroups, AsyncLockstep, AsyncPublisher, AsyncSubscriber, connect_async
from lockstep.streams.client import Lockstep, connect
from lockstep.streams.deadletters import DeadLetter, dead_letters, redrive
from lockstep.streams.handling import Delivery, OnFailure
from lockstep.streams.options import GroupOptions, PublisherOptions, SubscriberOptions
from lockstep.streams.pool import Pool
from lockstep.streams.publisher import Publisher
from lockstep.streams.receipt import ManyReceipt, Receipt
from lockstep.streams.receiver import Receiver
from lockstep.streams.record import Gap, Record, RecordBatch
from lockstep.streams.serializers import BYTES, JSON, TEXT, Serializer, dataclass_json
from lockstep.streams.shards import shard_of
from lockstep.streams.subscriber import Subscriber
from lockstep.streams.transaction import GroupTransaction, Transaction

__version__ = "0.1.0"

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "AsyncGroups",
    "AsyncLockstep",
    "AsyncPublisher",
    "AsyncSubscriber",
    "Bounds",
    "DeadLetter",
    "Delivery",
    "Gap",
    "GroupOptions",
    "GroupTransaction",
    "GroupView",
    "Groups",
    "Lockstep",
    "ManyReceipt",
    "OnFailure",
    "Pool",
    "Promises",
    "Publisher",
    "PublisherOptions",
    "Receipt",
    "Receiver",
    "Record",
    "RecordBatch",
    "Serializer",
    "StreamConfig",
    "StreamProgress",
    "Subscriber",
    "SubscriberOptions",
    "Transaction",
    "__version__",
    "connect",
    "connect_async",
    "dataclass_json",
    "dead_letters",
    "errors",
    "redrive",
    "shard_of",
]
