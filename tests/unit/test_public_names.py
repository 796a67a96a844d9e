"""What completion shows of the public objects is what the page about them says, and nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import lockstep

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES = (REFERENCE / "streams-api.md", REFERENCE / "schedule-api.md")
CELL = re.compile(r"^\| `(\w+)(?:\(([^)]*)\))?` \|", re.MULTILINE)
ELSEWHERE = {
    lockstep.CarrierOptions,
    lockstep.Delivery,
    lockstep.GroupOptions,
    lockstep.OnFailure,
    lockstep.Promises,
    lockstep.PublisherOptions,
    lockstep.StreamConfig,
    lockstep.SubscriberOptions,
}
"""Their fields have tables with defaults in other pages, which tests/unit/test_docs.py compares."""
KINDS = [kind for name in lockstep.__all__ if inspect.isclass(kind := getattr(lockstep, name))]


def written(kind: type) -> dict[str, str | None]:
    """The names in the table of a class, each with its parameters, or None if it is not called."""
    text = "\n".join(page.read_text() for page in PAGES)
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    found = CELL.findall(sections.get(kind.__name__, ""))
    calls = set(re.findall(r"^\| `(\w+)\(", sections.get(kind.__name__, ""), re.MULTILINE))
    assert len(found) == len({name for name, _ in found}), "a name has two rows"
    return {name: parameters if name in calls else None for name, parameters in found}


def shown(kind: type, example: object) -> set[str]:
    """What completion offers."""
    names = {name for name in dir(example) if not name.startswith("_")}
    if kind in ELSEWHERE:
        names -= {item.name for item in dataclasses.fields(kind)}
    if issubclass(kind, tuple):
        names -= {*dir(tuple), *kind._fields}
    return names


@pytest.fixture(scope="module")
def examples():
    """An object of each class that sets attributes of its own."""
    with lockstep.connect("memory:names") as bus, lockstep.Pool("memory:names", size=1) as pool:
        publisher = bus.publisher("orders")
        receipt, many = publisher.publish(b"x"), publisher.publish_many([b"y"])
        many.result(20)
        reader = bus.subscriber("orders", initial="earliest")
        member = bus.subscriber("orders", group="g")
        receiver = bus.receive(bus.subscriber("orders"), print)
        found = [bus, pool, publisher, receipt, many, reader.poll(), member, receiver, bus.groups]
        found += [bus.transaction(), bus.group_transaction(member), *asyncio.run(async_examples())]
        found += [bus.carrier("orders", group="c"), bus.deliveries("orders", group="c")]
        found += [scheduler := bus.scheduler(), scheduler.after("1h", id="x")]
        yield {type(item): item for item in found}


async def async_examples() -> list[object]:
    async with lockstep.connect_async("memory:names") as bus:
        found = [bus, await bus.publisher("orders"), await bus.subscriber("orders"), bus.groups]
        return [*found, bus.scheduler(), bus.carrier("orders", group="a")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_name_has_its_row_and_every_row_a_name(kind, examples):
    assert shown(kind, examples.get(kind, kind)) == set(written(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_calls_are_written_as_calls_with_parameters_that_exist(kind):
    for name, parameters in written(kind).items():
        item = inspect.getattr_static(kind, name, None)
        is_call = inspect.isfunction(item) or isinstance(item, (classmethod, staticmethod))
        assert is_call == (parameters is not None), name
        if is_call:
            known = list(inspect.signature(getattr(kind, name)).parameters)
            given = [each.strip().lstrip("*") for each in parameters.split(",") if each.strip() not in ("", "...")]
            assert set(given) <= set(known), (name, known)


def test_metrics_show_what_is_for_users():
    with lockstep.connect("memory:names") as bus:
        assert {name for name in dir(bus.metrics) if not name.startswith("_")} == {"collect", "render"}


@pytest.mark.parametrize("part", ["engines", "events", "models", "windows"])
def test_the_engine_s_public_names_are_found_from_the_package(part):
    module = getattr(lockstep, part)
    assert module.__name__ == f"lockstep.{part}"
    assert not [name for name in module.__all__ if getattr(module, name, None) is None]
    page = (REFERENCE / "api.md").read_text()
    assert f".. automodule:: lockstep.{part}\n" in page
