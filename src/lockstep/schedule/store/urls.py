"""Store URLs: where the rows of a scheduler are kept.

none, or the URL of the bus        on the bus itself, if it can keep rows: lmdb:, memory:
postgresql://USER@HOST:PORT/DATABASE?schema=lockstep
cassandra://HOST:PORT/KEYSPACE
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

from lockstep.errors import BackendUnknown, ExtraMissing
from lockstep.log.port import Bus
from lockstep.log.urls import reopened_by, split_url
from lockstep.runtime import Runtime
from lockstep.schedule.store.cells import CellStore, OwnersIn
from lockstep.schedule.store.port import Store

ENTRY_POINTS = "lockstep.schedule.stores"
"""The group in which an installed package names stores of its own, by scheme: `mystore = my.module:open`."""

OpenStore = Callable[[str, str, Bus, Runtime], Store]
"""Opens a store: its URL, the scheduler's name, the bus for outgoing records, and the runtime."""


def open_store(url: str | None, name: str, bus: Bus, runtime: Runtime, owners: OwnersIn) -> Store:
    """The store at a URL; `owners` tells who owns what, for a store on the bus."""
    if url is None or url in (bus.url, reopened_by(bus)):
        return CellStore(bus, name, runtime, owners)
    scheme = split_url(url)[0]
    if scheme in STORES:
        return STORES[scheme](url, name, bus, runtime)
    own = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if scheme not in own:
        raise BackendUnknown(scheme=scheme, known=", ".join(sorted({*STORES, *own})) + ", or the URL of the bus")
    store: Store = own[scheme].load()(url, name, bus, runtime)
    return store


def _of(extra: str, package: str, module: str, kind: str) -> OpenStore:
    """Opens a store whose client is imported when it is needed."""

    def open_one(url: str, name: str, bus: Bus, runtime: Runtime) -> Store:
        if find_spec(package) is None:
            raise ExtraMissing(extra=extra, package=package)
        store: Store = getattr(import_module(f"{__package__}.{module}"), kind)(url, name, bus, runtime)
        return store

    return open_one


STORES: Mapping[str, OpenStore] = {
    "postgresql": _of("postgresql", "psycopg", "postgres", "PostgresStore"),
    "cassandra": _of("cassandra", "cassandra", "cassandra", "CassandraStore"),
}
