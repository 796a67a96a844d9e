"""Stores of a scheduler on real servers: the suite of all stores."""

from __future__ import annotations

import uuid

import pytest

from lockstep.runtime import ThreadRuntime
from lockstep.schedule.store import cassandra, postgres
from lockstep.schedule.store.cassandra import CassandraStore
from lockstep.schedule.store.port import Filter
from lockstep.schedule.store.postgres import PostgresStore
from lockstep.testing.contract_schedule_store import ScheduleStoreContract

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def scheduler():
    """A name that no other test uses: all of them share the tables of one server."""
    return f"scheduler-{uuid.uuid4().hex}"


class TestPostgresql(ScheduleStoreContract):
    @pytest.fixture
    def few_looked_at(self, monkeypatch):
        monkeypatch.setattr(postgres, "SCANNED_MAX", 10)

    @pytest.fixture
    def store(self, postgresql_server, scheduler, bus):
        store = PostgresStore(postgresql_server.url, scheduler, bus, ThreadRuntime())
        yield store
        store.close()

    @pytest.fixture
    def same_store(self, postgresql_server, scheduler, bus, store):
        other = PostgresStore(postgresql_server.url, scheduler, bus, ThreadRuntime())
        yield other
        other.close()

    @pytest.mark.parametrize("scanned", [2, 7, 30])
    def test_a_filter_that_fits_few_events_ends_pages_early(self, store, stored, scanned, monkeypatch):
        monkeypatch.setattr(postgres, "SCANNED_MAX", scanned)
        chosen = Filter(tenant="shop", start=200)
        assert store.events([0, 1], chosen, 100).next is not None
        assert self.pages(store, chosen, 3) == [one for one in stored if one.tenant == "shop" and one.at >= 200]


class TestCassandra(ScheduleStoreContract):
    @pytest.fixture
    def few_looked_at(self, monkeypatch):
        monkeypatch.setattr(cassandra, "SCANNED_MAX", 10)
        monkeypatch.setattr(cassandra, "_KEYS_AT_ONCE", 10)

    @pytest.fixture
    def store(self, cassandra_server, scheduler, bus):
        store = CassandraStore(cassandra_server.url, scheduler, bus, ThreadRuntime())
        yield store
        store.close()

    @pytest.fixture
    def same_store(self, cassandra_server, scheduler, bus, store):
        other = CassandraStore(cassandra_server.url, scheduler, bus, ThreadRuntime())
        yield other
        other.close()
