"""All nodes and clients of a scheduler have one store: whichever has another one says so, and does nothing."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from lockstep.errors import StoreMismatch, UnsupportedByBackend
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.assembly import change_store
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.store.cells import CellStore
from lockstep.schedule.store.port import StoreIdentity
from lockstep.streams.client import Lockstep
from lockstep.testing.schedule import VirtualCourier

DATABASE = StoreIdentity("d2f1", "postgresql://db.example:5432/jobs")
OTHER = StoreIdentity("77aa", "postgresql://other.example:5432/jobs")


class DatabaseStore(CellStore):
    """A store that says it is another one."""

    own = None
    closed = False

    def identity(self):
        return self.own or super().identity()

    def close(self):
        self.closed = True


@pytest.fixture
def bus():
    runtime = ThreadRuntime()
    with Lockstep(MemoryBroker().bus(runtime), runtime) as made:
        yield made


@contextmanager
def scheduler(bus, identity=None, *, node=True, before=lambda: None):
    """A scheduler with a store of its own identity; None is the bus itself."""

    def open_store(owners):
        before()
        store = DatabaseStore(bus.bus, "jobs", bus.runtime, owners)
        store.own = identity
        opened.append(store)
        return store

    opened = []
    try:
        with Scheduler(bus, "jobs", node=node, open_store=open_store, courier=VirtualCourier()) as made:
            yield made
    finally:
        assert all(store.closed for store in opened)


@pytest.mark.parametrize("node", [True, False])
def test_a_store_that_was_forgotten_or_is_another_one_is_an_error_that_names_both(bus, node):
    with scheduler(bus, DATABASE):
        pass
    for given, shown in ((None, "the bus itself"), (OTHER, OTHER.url)):
        with pytest.raises(StoreMismatch, match="--store") as caught, scheduler(bus, given, node=node):
            pass
        assert (caught.value.params["known"], caught.value.params["given"]) == (DATABASE.url, shown)
    renamed = StoreIdentity(DATABASE.id, "postgresql://127.0.0.1:5432/jobs")
    with scheduler(bus, renamed, node=node) as found:
        assert found.crons() == []


def test_a_bus_that_can_not_be_a_store_says_which_was_forgotten(bus):
    def refuse():
        raise UnsupportedByBackend(bus="kafka://broker", feature="keep the rows of a scheduler")

    with pytest.raises(UnsupportedByBackend), scheduler(bus, before=refuse):
        pass
    with scheduler(bus, DATABASE):
        pass
    with pytest.raises(StoreMismatch, match=r"postgresql://db.example:5432/jobs, .* the bus itself"):
        scheduler(bus, before=refuse).__enter__()


def test_of_two_first_nodes_with_different_stores_one_is_refused(bus):
    """The second has read that there is no store yet when the first writes its own down."""
    began = []

    def first_begins():
        made = scheduler(bus, DATABASE)
        began.append((made, made.__enter__()))

    with pytest.raises(StoreMismatch, match=r"db\.example.*other\.example"):
        scheduler(bus, OTHER, before=first_begins).__enter__()
    made, first = began[0]
    assert first.node.error is None
    made.__exit__(None, None, None)


def test_a_scheduler_changes_its_store_and_nodes_on_the_earlier_one_end(bus):
    with scheduler(bus, DATABASE) as earlier:
        change_store(bus, "jobs", None)
        while earlier.node.error is None:
            bus.runtime.waiter().wait(0.01)
        assert isinstance(earlier.node.error, StoreMismatch)
        with scheduler(bus) as later:
            assert later.node.error is None
    with pytest.raises(StoreMismatch), scheduler(bus, DATABASE, node=False):
        pass
