"""Streams in an event loop: two web requests publish, a worker reads and confirms, and nothing blocks the loop.

`connect_async` gives the same publishers, subscribers and groups as `connect`; what may wait is awaited.
"""

from __future__ import annotations

import asyncio
import tempfile

import lockstep

ORDERS = 50


async def take_orders(publisher: lockstep.AsyncPublisher[dict[str, int]], waiter: int) -> None:
    for number in range(ORDERS):
        receipt = await publisher.publish({"waiter": waiter, "order": number})  # waits only for room in the buffer
        if number == ORDERS - 1:
            await receipt  # stored, and so are all before it


async def cook(bus: lockstep.AsyncLockstep, total: int) -> list[dict[str, int]]:
    cooked: list[dict[str, int]] = []
    async with await bus.subscriber("orders", group="kitchen", value=lockstep.JSON) as subscriber:
        async for record in subscriber:
            cooked.append(record.value)
            await subscriber.confirm(record)
            if len(cooked) == total:
                break
    return cooked


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with lockstep.connect_async(f"lmdb:{folder}/bus") as bus:
            cooking = asyncio.create_task(cook(bus, 2 * ORDERS))
            async with await bus.publisher("orders", value=lockstep.JSON) as publisher:
                await asyncio.gather(take_orders(publisher, 1), take_orders(publisher, 2))
            cooked = await asyncio.wait_for(cooking, 30)
            for waiter in (1, 2):
                orders = [order["order"] for order in cooked if order["waiter"] == waiter]
                assert orders == list(range(ORDERS)), "the orders of a waiter are out of order"
            print(f"{len(cooked)} orders were cooked, those of each waiter in the order in which they were taken.")
            view = await bus.groups.describe("kitchen")
            print(f"The group has confirmed up to offset {view.streams[0].confirmed}; {view.streams[0].lag} are left.")
            assert view.streams[0].lag == 0


if __name__ == "__main__":
    asyncio.run(main())
