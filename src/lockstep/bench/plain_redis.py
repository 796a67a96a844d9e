"""redis-py alone: a stream, an entry for each record, added in pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import Any

import redis

from lockstep.bench.compare_means import address_of

_READ_ENTRIES = 1_000
_FIELD = b"v"
SETTINGS = (
    f"pipeline of XADD, {'hiredis' if find_spec('hiredis') else 'parser in Python'}; XREAD COUNT {_READ_ENTRIES} BLOCK"
)


def _client(url: str) -> redis.Redis:
    address = address_of(url)
    host, port = address.hosts[0]
    secret = address.password.reveal() if address.password else None
    return redis.Redis(
        host=host, port=port, db=int(address.path or 0), username=address.user, password=secret,
        ssl=address.tls is not None,
    )  # fmt: skip


def make(url: str, stream: str) -> None:
    """Check that the server answers; the first XADD creates the stream."""
    del stream
    with closing(_client(url)) as client:
        client.ping()


def remove(url: str, stream: str) -> None:
    """Delete the stream."""
    with closing(_client(url)) as client:
        client.delete(stream)


class _Sender:
    def __init__(self, client: redis.Redis, stream: str) -> None:
        self._client, self._stream = client, stream

    def start(self, values: list[bytes]) -> None:
        with self._client.pipeline(transaction=False) as pipeline:
            for value in values:
                pipeline.xadd(self._stream, {_FIELD: value})
            pipeline.execute()

    def wait(self) -> None:
        """Every command was answered."""


class _Reader:
    def __init__(self, client: redis.Redis, stream: str) -> None:
        self._client, self._stream = client, stream
        self._after: bytes = b"0-0"

    def read(self, timeout: float) -> list[bytes]:
        block_ms = max(int(timeout * 1000), 1)
        found: Any = self._client.xread({self._stream: self._after}, count=_READ_ENTRIES, block=block_ms)
        # Protocol 3 answers with a mapping from the stream to pages of entries, protocol 2 with pairs.
        pages = (
            [page for pages in found.values() for page in pages] if isinstance(found, dict) else [p for _, p in found]
        )
        entries = [entry for page in pages for entry in page]
        if entries:
            self._after = entries[-1][0]
        return [fields[_FIELD] for _, fields in entries]


@contextmanager
def sender(url: str, stream: str) -> Iterator[_Sender]:
    """Yield a connected publisher, and close its client afterwards."""
    with closing(_client(url)) as client:
        client.ping()
        yield _Sender(client, stream)


@contextmanager
def reader(url: str, stream: str) -> Iterator[_Reader]:
    """Yield a connected subscriber at the start of the stream, and close its client afterwards."""
    with closing(_client(url)) as client:
        client.ping()
        yield _Reader(client, stream)
