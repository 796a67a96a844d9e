"""Lockstep: ordered event streams for Python; nothing lost, duplicated or out of order, whatever is killed.

import lockstep

with lockstep.connect("lmdb:./events") as bus:
    with bus.publisher("orders") as publisher:
        publisher.publish(b"first").result()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from lockstep import errors
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bounds, Promises
from lockstep.platform import AsyncLockstep, Lockstep, connect, connect_async
from lockstep.streams.admin import Groups, GroupView, StreamProgress
from lockstep.streams.async_carrier import AsyncCarrier
from lockstep.streams.async_client import AsyncGroups, AsyncPublisher, AsyncSubscriber
from lockstep.streams.carrier import Carrier, CarrierOptions
from lockstep.streams.deadletters import DeadLetter, dead_letters, redrive
from lockstep.streams.deliveries import Deliveries, DeliveryView, DoubtView
from lockstep.streams.handlers import Delivery, OnFailure
from lockstep.streams.options import GroupOptions, PublisherOptions, SubscriberOptions
from lockstep.streams.outbox import Item, item_headers
from lockstep.streams.pool import Pool
from lockstep.streams.publisher import Publisher
from lockstep.streams.receipt import ManyReceipt, Receipt
from lockstep.streams.receiver import Receiver
from lockstep.streams.record import Gap, Record, RecordBatch
from lockstep.streams.serializers import BYTES, JSON, TEXT, Serializer, dataclass_json
from lockstep.streams.shards import shard_of
from lockstep.streams.subscriber import Subscriber
from lockstep.streams.transaction import GroupTransaction, Transaction

if TYPE_CHECKING:
    from lockstep.schedule.async_scheduler import AsyncScheduler
    from lockstep.schedule.fired import Fired
    from lockstep.schedule.scheduler import Cancelled, Scheduled, Scheduler, TooLate, Unknown

__version__ = "0.1.0"

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "AsyncCarrier",
    "AsyncGroups",
    "AsyncLockstep",
    "AsyncPublisher",
    "AsyncScheduler",
    "AsyncSubscriber",
    "Bounds",
    "Cancelled",
    "Carrier",
    "CarrierOptions",
    "DeadLetter",
    "Deliveries",
    "Delivery",
    "DeliveryView",
    "DoubtView",
    "Fired",
    "Gap",
    "GroupOptions",
    "GroupTransaction",
    "GroupView",
    "Groups",
    "Item",
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
    "Scheduled",
    "Scheduler",
    "Serializer",
    "StreamConfig",
    "StreamProgress",
    "Subscriber",
    "SubscriberOptions",
    "TooLate",
    "Transaction",
    "Unknown",
    "__version__",
    "connect",
    "connect_async",
    "dataclass_json",
    "dead_letters",
    "errors",
    "item_headers",
    "redrive",
    "shard_of",
]

_SCHEDULE = {
    "AsyncScheduler": "async_scheduler",
    "Fired": "fired",
    "Cancelled": "scheduler",
    "Scheduled": "scheduler",
    "Scheduler": "scheduler",
    "TooLate": "scheduler",
    "Unknown": "scheduler",
}
"""Names of the scheduler, and their modules: imported when they are asked for, as most programs use streams only."""


_PARTS = ("engines", "events", "models", "windows")
"""Modules with the public names of the engine, which need its packages: imported when they are asked for."""


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(f"lockstep.{name}")
    if name not in _SCHEDULE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(import_module(f"lockstep.schedule.{_SCHEDULE[name]}"), name)
    globals()[name] = found
    return found
