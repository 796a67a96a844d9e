"""A large world on an embedded bus: streams, groups, schedules, crons and a fleet, made in bulk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from lockstep.bench.monitor.loads import NAME as MONITOR
from lockstep.bench.monitor.loads import SETTINGS
from lockstep.bench.monitor.servers import Site, leader, servers
from lockstep.core.agenda import Option, Remove, Upsert
from lockstep.core.group import Beat, Claim, Confirm, Leave, Record
from lockstep.core.ticks import Policy
from lockstep.log.batch import Batch, pack
from lockstep.log.port import Transaction
from lockstep.monitor.transport.streams import MonitorStreams
from lockstep.schedule.assembly import open_scheduler
from lockstep.schedule.requests import PutCron, Request
from lockstep.schedule.rows import CronRow
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.streams import SHARDS, SchedulerStreams
from lockstep.schedule.validation import event_id
from lockstep.streams.client import Lockstep
from lockstep.streams.deadletters import SUFFIX
from lockstep.streams.grouplog import CONFIG, PREFIX, encode
from lockstep.streams.member import seat_name

Say = Callable[[str], None]
T = TypeVar("T")
RECORDS = 10
"""Records of each stream."""
OPEN_SHARE, LETTERS_SHARE, BUSY_SHARE = 20, 100, 10
"""One of so many hosts has an open event, one of so many streams holds dead letters, one of so many groups works."""
_AT_ONCE = 1_000
_APPLIED_S, _SEEN_S, _LOOK_S = 600.0, 300.0, 0.5
_HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldSize:
    """How much of everything there is."""

    streams: int = 10_000
    groups: int = 10_000
    hosts: int = 10_000
    events: int = 100_000
    crons: int = 10_000
    tenants: int = 100

    @property
    def text(self) -> str:
        """For people."""
        return (f"{self.streams:,} streams, {self.groups:,} groups, {self.hosts:,} hosts, {self.events:,} scheduled"
                f" events, {self.crons:,} crons, {self.tenants:,} tenants")  # fmt: skip


def make_world(client: Lockstep, url: str, folder: Path, size: WorldSize, say: Say) -> dict[str, float]:
    """Fill a new bus; the seconds that each part took. A scheduler and a monitor run while it does, and end."""
    took: dict[str, float] = {}
    parts: tuple[tuple[str, Callable[[], None]], ...] = (
        ("streams", lambda: make_streams(client, size.streams)),
        ("groups", lambda: make_groups(client, size.groups, size.streams)),
        ("schedules", lambda: make_schedules(client, size)),
        ("fleet", lambda: make_fleet(client, url, folder, size.hosts, say)),
    )
    for name, make in parts:
        say(f"making {name}")
        began = time.monotonic()
        make()
        took[name] = round(time.monotonic() - began, 1)
    return took


def stream_names(count: int) -> list[str]:
    """The names of the streams, of which some hold dead letters."""
    return [
        f"stream-{number:05d}{SUFFIX if number % LETTERS_SHARE == LETTERS_SHARE - 1 else ''}" for number in range(count)
    ]


def make_streams(client: Lockstep, count: int) -> None:
    """Streams with some records each."""
    names = stream_names(count)
    client.create_many(names)
    values = [json.dumps({"number": number, "text": "something happened"}).encode() for number in range(RECORDS)]
    headers = [(("dlq-stream", b"stream-00000"), ("dlq-offset", b"1"), ("dlq-reason", b"no stock"))] * RECORDS
    for some in _parts(names, _AT_ONCE):
        batches = {
            name: pack(values, producer=client.runtime.new_id(), sequence=0, created_ns=client.runtime.wall_ns(),
                       headers=headers if name.endswith(SUFFIX) else None)
            for name in some
        }  # fmt: skip

        def write(changes: Transaction, batches: dict[str, Batch] = batches) -> None:
            for name, batch in batches.items():
                changes.append(name, [batch])

        client.bus.atomic(write)


def make_groups(client: Lockstep, count: int, streams: int) -> None:
    """Groups with a position on one stream each; most have no member, as those that ran last week."""
    names = stream_names(streams)
    made = [f"group-{number:05d}" for number in range(count)]
    for some in _parts(made, _AT_ONCE):
        client.bus.create_many([PREFIX + name for name in some], CONFIG)  # type: ignore[attr-defined]
    for chunk in _parts(enumerate(made), _AT_ONCE):
        batches = {PREFIX + name: _group_log(client, number, names[number % streams]) for number, name in chunk}

        def write(changes: Transaction, batches: dict[str, Batch] = batches) -> None:
            for name, batch in batches.items():
                changes.append(name, [batch])

        client.bus.atomic(write)


def _group_log(client: Lockstep, number: int, stream: str) -> Batch:
    seat, member = seat_name(client.bus.open(stream)), f"member-{number}"
    is_busy = number % BUSY_SHARE == 0
    records: list[Record] = [
        Beat(member, 1, (seat,), {}, lease=3600.0 if is_busy else 1.0),
        Claim(member, seat, 1, 0),
        Confirm(member, seat, 1, number % RECORDS),
    ]
    if not is_busy:
        records.append(Leave(member, 2))
    return pack(
        [encode(record) for record in records], producer=client.runtime.new_id(), sequence=0,
        created_ns=client.runtime.wall_ns(),
    )  # fmt: skip


def make_schedules(client: Lockstep, size: WorldSize) -> None:
    """Events of the next weeks and crons, taken by a node that ends with this."""
    SchedulerStreams("default").create(client)
    with open_scheduler(client, "default", node=True) as scheduler:
        tenants = [f"tenant-{number:03d}" for number in range(size.tenants)]
        for tenant in tenants:
            scheduler.register(tenant, "MESSAGING", {"topic": "fired"})
        for requests in _parts(scheduled(scheduler, tenants, size), 5 * _AT_ONCE):
            scheduler.client.send(list(requests))
        _wait_applied(scheduler, tenants[0])


def scheduled(scheduler: Scheduler, tenants: Sequence[str], size: WorldSize) -> Iterator[Request]:
    """Requests for the events, 20 seconds apart from an hour from now on, and for the crons."""
    now = scheduler.bus.runtime.wall_ns() // 10**6
    for number in range(size.events):
        made = event_id(scheduler.bus.runtime.new_id, Option.FULL_EVENT)
        at = now + _HOUR_MS + number * 20_000
        yield Upsert(tenants[number % len(tenants)], f"event-{number:06d}", at, made, b'{"order":4711}')
    for number in range(size.crons):
        row = CronRow(
            tenant=tenants[number % len(tenants)], id=f"cron-{number:05d}", type="UNIX",
            expression=f"{number % 60} {number % 24} 1 1 *", policy=Policy(),
        )  # fmt: skip
        yield PutCron(row)


def _wait_applied(scheduler: Scheduler, tenant: str) -> None:
    """Each shard has answered a request that comes after all others."""
    asked: dict[int, Remove] = {}
    number = 0
    while len(asked) < SHARDS:
        name = f"no-event-{number}"
        asked.setdefault(scheduler.client.shard_of(tenant, name), Remove(tenant, name))
        number += 1
    scheduler.client.ask(list(asked.values()), timeout=_APPLIED_S)


def make_fleet(client: Lockstep, url: str, folder: Path, hosts: int, say: Say) -> None:
    """Hosts, a result of each, and open events of some; a monitor takes them, and ends with this."""
    place = Site(folder, url, "local")
    checks = {f"check-{number:03d}": {"command": "check", "subscribers": ["linux"], "interval": 60}
              for number in range(200)}  # fmt: skip
    place.write_settings({**SETTINGS, "checks": checks})
    with servers(place) as [server]:
        leader([server])
        say("sending results")
        with client.publisher(MonitorStreams(MONITOR).input) as publisher:
            for part in _parts(_messages(hosts), 2 * _AT_ONCE):
                publisher.publish_many([value for _, value in part], keys=[key for key, _ in part]).wait()
        end = time.monotonic() + _SEEN_S
        while int(server.counters().get("results", 0)) < hosts and time.monotonic() < end:
            time.sleep(_LOOK_S)


def _messages(hosts: int) -> Iterator[tuple[bytes, bytes]]:
    now = int(time.time())
    names = [f"host-{number:05d}" for number in range(hosts)]
    for name in names:
        told = {"name": name, "address": "10.0.0.1", "subscriptions": ["linux"], "keepalives": False}
        yield f"k:{name}".encode(), json.dumps(told).encode()
    for number, name in enumerate(names):
        is_open = number % OPEN_SHARE == 0
        check = {
            "name": f"check-{number % 200:03d}", "status": 2 if is_open else 0,
            "output": "97 % full" if is_open else "ok", "issued": now, "executed": now, "command": "check",
            "interval": 60,
        }  # fmt: skip
        yield f"r:{name}".encode(), json.dumps({"client": name, "check": check}).encode()


def _parts(items: Iterable[T], count: int) -> Iterator[list[T]]:
    waiting = iter(items)
    while part := list(islice(waiting, count)):
        yield part
