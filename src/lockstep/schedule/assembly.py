"""What a scheduler on a bus is put together from: its store by URL, and the couriers that deliver its events.

Programs, the command line and the HTTP server all open schedulers here, so that they have the same store and couriers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.core.group import GroupState
from lockstep.runtime import Runtime
from lockstep.schedule.delivery.port import Courier, CourierOptions
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Register, StoreNamed

if TYPE_CHECKING:
    from lockstep.schedule.node import NodeOptions
    from lockstep.streams.client import Lockstep

DEFAULT_NAME = "default"


def open_scheduler(
    bus: Lockstep,
    name: str = DEFAULT_NAME,
    *,
    node: bool = True,
    store: str | None = None,
    options: NodeOptions | None = None,
    node_name: str | None = None,
    courier: Courier | None = None,
) -> Scheduler:
    """Return the scheduler of a name. With `node` it takes a share of the work in this process; else it only asks.

    `store` is the URL of the rows' store; by default they are kept on the bus itself. All nodes and clients of a
    scheduler must name the same store.
    """
    from lockstep.schedule.store.urls import open_store

    return Scheduler(
        bus, name, node=node, open_store=lambda owners: open_store(store, name, bus.bus, bus.runtime, owners),
        courier=courier or open_courier(bus.runtime, host="127.0.0.1" if options is None else options.host),
        options=options, node_name=node_name,
    )  # fmt: skip


def change_store(bus: Lockstep, name: str, store: str | None) -> None:
    """Have a scheduler use another store from now on; its rows are not copied, and all of its nodes must have ended."""
    from lockstep.schedule.store.urls import open_store

    streams = SchedulerStreams(name)
    streams.create(bus)
    opened = open_store(store, name, bus.bus, bus.runtime, lambda _: GroupState())
    try:
        Register(bus.logs(streams.control)[0]).append(StoreNamed(*opened.identity(), is_change=True), bus.runtime)
    finally:
        opened.close()


def open_courier(runtime: Runtime, *, host: str, **fields: Any) -> Courier:
    """Return the courier for all types of tenants, with fields of CourierOptions.

    A node that only this machine can reach may call this machine.
    """
    from lockstep.schedule.delivery.couriers import Couriers

    is_local = host == "localhost" or host.startswith("127.") or host == "::1"
    return Couriers(CourierOptions(**{"allow_loopback": is_local, **fields}), runtime)
