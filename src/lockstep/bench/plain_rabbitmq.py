"""rstream alone: a stream, a message for each record, sent in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rstream import ConfirmationStatus, Consumer, ConsumerOffsetSpecification, OffsetType, Producer

from lockstep.bench.compare_means import address_of

_CREDIT = 10
_WAIT_S = 30.0
SETTINGS = f"send_batch with confirms, no AMQP encoding; initial_credit={_CREDIT}"


def _where(url: str) -> dict[str, Any]:
    address = address_of(url)
    host, port = address.hosts[0]
    secret = address.password.reveal() if address.password else "guest"
    return {"host": host, "port": port, "username": address.user or "guest", "password": secret}


def make(url: str, stream: str) -> None:
    """Create the stream."""
    asyncio.run(_make(url, stream))


async def _make(url: str, stream: str) -> None:
    async with Producer(**_where(url)) as producer:
        await producer.create_stream(stream)


def remove(url: str, stream: str) -> None:
    """Delete the stream."""
    asyncio.run(_remove(url, stream))


async def _remove(url: str, stream: str) -> None:
    async with Producer(**_where(url)) as producer:
        await producer.delete_stream(stream)


class _Sender:
    def __init__(self, runner: asyncio.Runner, producer: Producer, stream: str) -> None:
        self._runner, self._producer, self._stream = runner, producer, stream
        self._open = 0
        self._refused = 0
        self._all = asyncio.Event()

    def start(self, values: list[bytes]) -> None:
        self._open += len(values)
        self._all.clear()
        self._runner.run(self._producer.send_batch(self._stream, values, on_publish_confirm=self._confirmed))

    def wait(self) -> None:
        if self._open:
            self._runner.run(asyncio.wait_for(self._all.wait(), _WAIT_S))
        if self._refused:
            message = f"{self._refused} records were not stored"
            raise RuntimeError(message)

    def _confirmed(self, status: ConfirmationStatus) -> None:
        self._open -= 1
        self._refused += not status.is_confirmed
        if not self._open:
            self._all.set()


class _Reader:
    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._values: list[bytes] = []
        self._came = asyncio.Event()

    def add(self, value: Any, _context: object) -> None:
        self._values.append(value)
        self._came.set()

    def read(self, timeout: float) -> list[bytes]:
        self._runner.run(self._look(timeout))
        values, self._values = self._values, []
        self._came.clear()
        return values

    async def _look(self, timeout: float) -> None:
        try:
            await asyncio.wait_for(self._came.wait(), timeout)
        except TimeoutError:
            return  # nothing came


@contextmanager
def sender(url: str, stream: str) -> Iterator[_Sender]:
    """Yield a connected producer, and close it afterwards."""
    with asyncio.Runner() as runner:
        producer = Producer(**_where(url))
        runner.run(producer.start())
        try:
            yield _Sender(runner, producer, stream)
        finally:
            runner.run(producer.close())


@contextmanager
def reader(url: str, stream: str) -> Iterator[_Reader]:
    """Yield a connected consumer at the start of the stream, and close it afterwards."""
    with asyncio.Runner() as runner:
        consumer, found = Consumer(**_where(url)), _Reader(runner)
        runner.run(_subscribe(consumer, stream, found))
        try:
            yield found
        finally:
            runner.run(consumer.close())


async def _subscribe(consumer: Consumer, stream: str, found: _Reader) -> None:
    await consumer.start()
    first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
    await consumer.subscribe(stream, found.add, decoder=bytes, offset_specification=first, initial_credit=_CREDIT)
