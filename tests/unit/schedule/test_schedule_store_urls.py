"""Which store a URL opens, and what is said about one that opens none."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from lockstep.core.group import GroupState
from lockstep.errors import BackendUnknown, BadUrl, ExtraMissing, UnsupportedByBackend
from lockstep.log.memory import MemoryBroker
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.store import urls
from lockstep.schedule.store.cells import CellStore
from memory_driver import MemoryServer

RUNTIME = ThreadRuntime()


def opened(url, bus):
    return urls.open_store(url, "shop", bus, RUNTIME, lambda _: GroupState())


@pytest.fixture
def bus():
    bus = MemoryBroker().bus(RUNTIME, "memory:shop")
    yield bus
    bus.close()


@pytest.mark.parametrize("url", [None, "memory:shop"])
def test_without_a_url_of_its_own_rows_are_on_the_bus(url, bus):
    assert isinstance(opened(url, bus), CellStore)


def test_a_bus_by_its_whole_url(tmp_path):
    url = f"lmdb:{tmp_path / 'bus'}"
    bus = open_bus(url, RUNTIME)
    assert isinstance(opened(url, bus), CellStore)
    bus.close()


def test_a_bus_that_keeps_no_rows_says_so():
    with pytest.raises(UnsupportedByBackend, match="keep the rows of a scheduler"):
        opened(None, MemoryServer().bus(RUNTIME))


def test_an_unknown_scheme_is_refused_with_those_that_are_known(bus):
    with pytest.raises(BackendUnknown, match=r"'oracle'.*cassandra, postgresql, or the URL of the bus"):
        opened("oracle://host/db", bus)


def test_no_scheme_at_all(bus):
    with pytest.raises(BadUrl, match="it has no scheme"):
        opened("nonsense", bus)


@pytest.mark.parametrize(("scheme", "package"), [("postgresql", "psycopg"), ("cassandra", "cassandra")])
def test_a_client_that_is_not_installed_is_named(scheme, package, bus, monkeypatch):
    monkeypatch.setattr(urls, "find_spec", lambda name: None if name == package else name)
    with pytest.raises(ExtraMissing, match=rf"lockstep-events\[{scheme}\]") as caught:
        opened(f"{scheme}://host/db", bus)
    assert package in str(caught.value)


def own_store(*given):
    return given


def test_stores_of_other_packages_are_found_by_their_entry_point(bus, monkeypatch):
    point = EntryPoint("mine", f"{__name__}:own_store", urls.ENTRY_POINTS)
    monkeypatch.setattr(urls, "entry_points", lambda *, group: [point] if group == urls.ENTRY_POINTS else [])
    assert opened("mine:there", bus) == ("mine:there", "shop", bus, RUNTIME)
    with pytest.raises(BackendUnknown, match="cassandra, mine, postgresql"):
        opened("other:there", bus)
