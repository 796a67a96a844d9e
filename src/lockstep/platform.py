"""The connection to a bus as programs get it: streams, and schedulers on them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from lockstep.log.embedded.bus import OpenHistory
from lockstep.log.port import Bus
from lockstep.log.urls import Backend, open_bus
from lockstep.runtime import Runtime, ThreadRuntime
from lockstep.streams import async_client, client
from lockstep.streams.options import GroupOptions, made

if TYPE_CHECKING:
    from lockstep.schedule.async_scheduler import AsyncScheduler
    from lockstep.schedule.delivery.port import Courier
    from lockstep.schedule.node import NodeOptions
    from lockstep.schedule.scheduler import Scheduler
    from lockstep.streams.async_carrier import AsyncCarrier
    from lockstep.streams.carrier import Carrier, CarrierSettings
    from lockstep.streams.deliveries import Deliveries


def connect(
    url: str,
    *,
    create: bool = True,
    runtime: Runtime | None = None,
    backends: Mapping[str, Backend] | None = None,
    histories: Mapping[str, OpenHistory] | None = None,
) -> Lockstep:
    """Open the bus at a URL: lmdb:FOLDER for all processes of this machine, memory:NAME within this one, or a server.

    Servers are kafka://, rabbitmq://, redis:// and hazelcast:// with host and port; see docs/reference/urls.md.
    `backends` and `histories` add schemes of your own: for buses, and for stores of records beyond a capacity.
    """
    runtime = runtime or ThreadRuntime()
    return Lockstep(open_bus(url, runtime, create=create, backends=backends, histories=histories), runtime)


def connect_async(
    url: str,
    *,
    create: bool = True,
    runtime: Runtime | None = None,
    backends: Mapping[str, Backend] | None = None,
    histories: Mapping[str, OpenHistory] | None = None,
) -> AsyncLockstep:
    """Open the bus at a URL, for asyncio; the arguments are those of `connect`.

    async with lockstep.connect_async("lmdb:./events") as bus: ...
    bus = await lockstep.connect_async("lmdb:./events")
    """
    return AsyncLockstep(
        partial(connect, url, create=create, runtime=runtime, backends=backends, histories=histories), url
    )


class Lockstep(client.Lockstep):
    """A connection to a bus. Safe to share between threads; not to be carried through a fork."""

    def __init__(self, bus: Bus, runtime: Runtime) -> None:
        super().__init__(bus, runtime)
        self._schedulers: list[Scheduler] = []
        self._carriers: list[Carrier] = []

    def scheduler(
        self,
        name: str = "default",
        *,
        node: bool = True,
        store: str | None = None,
        options: NodeOptions | None = None,
        node_name: str | None = None,
        courier: Courier | None = None,
    ) -> Scheduler:
        """Return the scheduler of a name, which is created if it is missing.

        With `node` it takes its share of the work in this process; without, other processes have to. `store` is the
        URL of a database for its rows; by default they are on the bus.
        """
        from lockstep.schedule.assembly import open_scheduler

        self._check_open()
        made = open_scheduler(self, name, node=node, store=store, options=options, node_name=node_name, courier=courier)
        self._schedulers.append(made)
        return made

    def carrier(
        self,
        outbox: str,
        *,
        group: str,
        group_options: GroupOptions | None = None,
        **options: Unpack[CarrierSettings],
    ) -> Carrier:
        """Return a carrier: a member of a group that carries out the items of an outbox. `options`: see CarrierOptions.

        Register handlers with `on`, then call `run`, or `start`.
        """
        from lockstep.streams.carrier import Carrier, CarrierOptions

        self._check_open()
        chosen = made(CarrierOptions, "a carrier", {**options})
        carrier = Carrier(self, outbox, group, chosen, group_options)
        self._carriers = [known for known in self._carriers if not known.is_closed]
        self._carriers.append(carrier)
        return carrier

    def deliveries(self, outbox: str, *, group: str) -> Deliveries:
        """Return what a group made of the items of an outbox, to look at and to decide about."""
        from lockstep.streams.deliveries import Deliveries

        self._check_open()
        return Deliveries(self, outbox, group)

    def close(self) -> None:
        """Close every carrier, scheduler, publisher and subscriber opened here, then the bus."""
        schedulers, self._schedulers = self._schedulers, []
        carriers, self._carriers = self._carriers, []
        if not self._process.is_forked:
            for carrier in carriers:
                carrier.close()
            for scheduler in schedulers:
                scheduler.close()
        super().close()

    def __enter__(self) -> Lockstep:
        return self


class AsyncLockstep(async_client.AsyncLockstep):
    """A connection to a bus, for one event loop."""

    def __init__(self, opening: Callable[[], client.Lockstep], url: str) -> None:
        super().__init__(opening, url)
        self._carriers: list[AsyncCarrier] = []

    def scheduler(
        self,
        name: str = "default",
        *,
        node: bool = True,
        store: str | None = None,
        options: NodeOptions | None = None,
        node_name: str | None = None,
        courier: Courier | None = None,
    ) -> AsyncScheduler:
        """Return the scheduler of a name, which is created if it is missing; arguments as in `Lockstep.scheduler`.

        Open it with `async with bus.scheduler() as scheduler`, or await it.
        """
        from lockstep.schedule.async_scheduler import AsyncScheduler

        def opening(bus: client.Lockstep) -> Scheduler:
            assert isinstance(bus, Lockstep), "connect_async opens such a one"
            return bus.scheduler(name, node=node, store=store, options=options, node_name=node_name, courier=courier)

        return AsyncScheduler(self, opening)

    def carrier(
        self,
        outbox: str,
        *,
        group: str,
        group_options: GroupOptions | None = None,
        **options: Unpack[CarrierSettings],
    ) -> AsyncCarrier:
        """Return a carrier: a member of a group that carries out the items of an outbox. `options`: see CarrierOptions.

        Use it with `async with bus.carrier(...) as carrier`; async handlers run in this event loop.
        """
        from lockstep.streams.async_carrier import AsyncCarrier

        client = self.client
        assert isinstance(client, Lockstep), "connect_async opens such a one"
        carrier = AsyncCarrier(client.carrier(outbox, group=group, group_options=group_options, **options))
        self._carriers = [known for known in self._carriers if not known.is_closed]
        self._carriers.append(carrier)
        return carrier

    async def close(self) -> None:
        """Close every carrier, publisher and subscriber opened here, then the bus."""
        carriers, self._carriers = self._carriers, []
        try:
            for carrier in carriers:
                await carrier.close()
        finally:
            await super().close()

    async def __aenter__(self) -> AsyncLockstep:
        await super().__aenter__()
        return self

    def __await__(self) -> Generator[Any, None, AsyncLockstep]:
        yield from super().__await__()
        return self
