"""What a page reads does not grow with how many streams, groups, schedules or hosts there are."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld
from test_console_fleet import Console

import lockstep
from lockstep.bench.console.world import WorldSize, make_groups, make_streams, scheduled, stream_names
from lockstep.console import crons, sampler
from lockstep.console.fleets import OpenEvent, OpenEventFold
from lockstep.console.port import Site
from lockstep.console.schedules import ScheduleViews
from lockstep.log.embedded.bus import EmbeddedBus, EmbeddedLog
from lockstep.monitor.view import FleetView
from lockstep.schedule.store import cells

FEW, MANY = 300, 900
LONG_S = 86_400.0


@pytest.fixture
def counted(monkeypatch):
    """How often each kind of thing was read."""
    found: Counter[str] = Counter()

    def count(where, name, size=lambda _result: 1):
        before = getattr(where, name)

        def counting(*arguments, **named):
            result = before(*arguments, **named)
            found[name] += size(result)
            return result

        monkeypatch.setattr(where, name, counting)

    def counting_rows(view, kind, client):
        for row in rows_of(view, kind, client):
            found["rows of views"] += 1
            yield row

    count(EmbeddedBus, "names", len)
    for method in ("open", "read", "bounds"):
        count(EmbeddedBus if method == "open" else EmbeddedLog, method)
    count(cells, "unpack_event")
    count(cells, "unpack_cron")
    count(FleetView, "row")
    count(FleetView, "clients", len)
    rows_of = FleetView._bodies
    monkeypatch.setattr(FleetView, "_bodies", counting_rows)
    return found


class Streams:
    """A console beside so many streams and groups."""

    def __init__(self, count, closing):
        client = closing.enter_context(lockstep.connect("memory:"))
        make_streams(client, count)
        make_groups(client, count, count)
        self.console = ConsoleWorld(client, names_s=LONG_S, sampled_every_s=LONG_S)
        closing.callback(self.console.close)
        closing.callback(self.console.sampler.close)
        self.console.sampler.start()
        self.console.sampler.look()

    def page(self, path):
        answer = self.console.get(path, accept="text/html")
        assert answer.status == 200, answer.text
        return answer.text


class Schedules:
    """A console beside a scheduler with so many events and crons."""

    def __init__(self, count, closing):
        client = closing.enter_context(lockstep.connect("memory:"))
        with client.scheduler("default") as scheduler:
            scheduler.register("t", "MESSAGING", {"topic": "fired"})
            scheduler.client.ask(list(scheduled(scheduler, ["t"], WorldSize(events=count, crons=count))), timeout=60.0)
        views = ScheduleViews(Site(client, client.runtime, "lockstep", LONG_S))
        closing.callback(views.close)
        self.console = ConsoleWorld(client, pillars=[views.pillar()], names_s=LONG_S, sampled_every_s=LONG_S)
        closing.callback(self.console.close)

    page = Streams.page


class Hosts:
    """A console beside a fleet of so many hosts, each with an open event."""

    def __init__(self, count, closing):
        self.console = Console(Path(closing.enter_context(TemporaryDirectory())))
        closing.callback(self.console.close)
        world = self.console.world
        for number in range(count):
            name = f"host-{number:04}"
            world.keepalive(name)
            check = {"name": "disk", "status": 2, "output": "full", "issued": world.now, "executed": world.now}
            world.take(b"r:" + name.encode(), {"client": name, "check": check})
        self.console.tick()

    def page(self, path):
        return self.console.caller.page(path)


def reads(world, counted, path, meanwhile=lambda: None):
    """What a page reads when it is looked at again."""
    world.page(path)
    meanwhile()
    before = dict(counted)
    page = world.page(path)
    read = {name: number - before.get(name, 0) for name, number in counted.items()}
    return {name: number for name, number in read.items() if number} | {"rows rendered": page.count("<tr>")}


def both(make, counted, paths, meanwhile=lambda _world: None):
    """The same pages beside few and many."""
    found = []
    for size in (FEW, MANY):
        with ExitStack() as closing:
            world = make(size, closing)
            found.append({path: reads(world, counted, path, lambda: meanwhile(world)) for path in paths})  # noqa: B023
    return found


def grown(few, many):
    """What is read more often of many; a little more may be chance, as other groups are the worst ones."""
    return {
        path: {name: (few[path].get(name, 0), number) for name, number in read.items()
               if number > 1.3 * few[path].get(name, 0) + 5}
        for path, read in many.items()
    }  # fmt: skip


STREAM, LETTERS = stream_names(FEW)[150], stream_names(FEW)[99]


def test_pages_of_streams_and_groups(counted, monkeypatch):
    monkeypatch.setattr(sampler, "ROUND_S", LONG_S)  # so that the first round sees all of them
    paths = ["/", "/streams", "/streams?page=4", "/streams?q=1", "/streams?sort=rate", f"/streams/{STREAM}",
             f"/streams/{STREAM}/records", "/groups", "/groups?page=4", "/groups?q=1", "/groups?sort=lag",
             "/groups/group-00150", f"/letters/{LETTERS}"]  # fmt: skip
    few, many = both(Streams, counted, paths)
    assert not any(grown(few, many).values())
    assert few["/"].keys() == {"rows rendered"}, "the first page reads nothing for these"
    assert few["/streams"]["bounds"] <= 100


def test_pages_of_schedules_and_crons(counted, monkeypatch):
    monkeypatch.setattr(crons, "NAMES_S", LONG_S)
    paths = ["/schedules", "/schedules?tenant=t", "/schedules/t/event-000150", "/crons", "/crons?q=c", "/crons?page=4",
             "/crons/t/cron-00150", "/tenants", "/tenants/t"]  # fmt: skip
    few, many = both(Schedules, counted, paths)
    assert not any(grown(few, many).values())
    assert 50 <= few["/schedules"]["unpack_event"] <= 200


def test_pages_of_a_fleet(counted):
    def something_changes(world):
        world.console.world.check("host-0007", "disk", 1)
        world.console.tick()

    paths = ["/", "/fleet", "/fleet?page=3", "/fleet?q=host", "/fleet/hosts", "/fleet/hosts?page=3",
             "/fleet/hosts?q=1", "/fleet/hosts/host-0150", "/fleet/checks", "/fleet/silences"]  # fmt: skip
    few, many = both(Hosts, counted, paths, something_changes)
    assert not any(grown(few, many).values())
    assert "clients" not in few["/fleet/hosts"]


def test_the_fold_of_a_fleet_is_what_its_rows_say(tmp_path):
    console = Console(tmp_path)
    fold = OpenEventFold(console.world.view)
    fold.ordered()
    for number in range(8):
        console.world.keepalive(f"h{number}")
        console.world.check(f"h{number}", "disk", number % 3)
        console.world.check(f"h{number}", "load", 2 - number % 3)
    console.world.check("h2", "disk", 0)
    console.tick()
    found = fold.ordered()
    expected = sorted(
        (one.client, one.check, one.status) for one in map(OpenEvent.of, console.world.view.rows("event"))
    )
    assert sorted((one.client, one.check, one.status) for one in found.events) == expected
    assert sorted(found.hosts) == sorted(console.world.view.clients("client"))
    console.world.view.reset()
    assert fold.ordered().events == []
    console.close()


def test_a_fold_with_more_events_than_it_holds_says_how_many_and_takes_them_when_there_is_room(tmp_path):
    console = Console(tmp_path)
    for number in range(5):
        console.world.keepalive(f"h{number}")
        console.world.check(f"h{number}", "disk", 2)
    fold = OpenEventFold(console.world.view, events_max=3)
    found = fold.ordered()
    assert (len(found.events), found.left_out) == (3, 2)
    for number in range(3):
        console.world.check(f"h{number}", "disk", 0)
    found = fold.ordered()
    assert sorted(one.client for one in found.events) == ["h3", "h4"]
    assert found.left_out == 0
    console.close()
