"""Requests from files and sources, reports and forecasts with Spark; one session for all tests."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstep.core.agenda import Remove
from lockstep.cron import Zone, parse
from lockstep.schedule.assembly import open_scheduler
from lockstep.schedule.bodies import payload_text
from lockstep.schedule.spark import forecast as forecasts
from lockstep.schedule.spark import report as reports
from lockstep.schedule.spark.ingest import Ingestion
from lockstep.schedule.spark.load import Files, load
from lockstep.schedule.spark.session import shared_url, spark_session
from lockstep.schedule.times import parse_time
from lockstep.streams.client import connect
from soak import STEP_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
AT = "2027-01-31T04:00Z"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def spark():
    with spark_session(master="local[2]", own={"spark.sql.files.maxPartitionBytes": "12000"}) as session:
        yield session


@pytest.fixture
def scheduler(tmp_path):
    with connect(f"lmdb:{tmp_path}/bus") as bus, open_scheduler(bus, "jobs") as made:
        made.register("t", "MESSAGING", {"topic": "out"})
        yield made


def line(name, at=AT, **more):
    return {"id": name, "eventTime": at, "tenant": "t", **more}


def write(path, items):
    path.write_text("".join(f"{json.dumps(item)}\n" for item in items))
    return path


def take(spark, scheduler, *paths, dry_run=False, **more):
    bus = scheduler.bus
    return load(
        spark, Files.found([str(path) for path in paths]), bus=bus, streams=scheduler.streams,
        tenants=frozenset(scheduler.tenants()), url=None if dry_run else shared_url(bus.bus, bus.url), **more,
    )  # fmt: skip


def settle(scheduler):
    """Wait until the node has carried out all requests: it answers one that comes after them, in every shard."""
    names = {scheduler.client.shard_of("t", f"none-{number}"): f"none-{number}" for number in range(1000)}
    assert len(names) == len(scheduler.bus.logs(scheduler.streams.requests))
    scheduler.client.ask([Remove("t", name) for name in names.values()])


def stored(scheduler):
    settle(scheduler)
    page = scheduler.events(tenant="t", limit=10_000)
    return {event.id: (event.at, payload_text(event), event.event_id) for event in page.events}


def fold(paths):
    """The last request for each id, in the order of paths and lines: slow and obvious."""
    last = {}
    for path in sorted(paths):
        for text in path.read_text().splitlines():
            item = json.loads(text)
            last[item["id"]] = item
    return {
        name: (parse_time(item["eventTime"]), item.get("payload"))
        for name, item in last.items()
        if item.get("mode") != "REMOVE"
    }


def test_files_of_all_kinds_are_taken_in_and_the_last_request_wins(spark, scheduler, tmp_path, monkeypatch):
    """One load of many files, in pieces that several tasks read; what workers do with a line has tests of its own."""
    monkeypatch.chdir(tmp_path)
    chance = random.Random(1)
    paths = [
        write(tmp_path / f"{chance.choice('abc')} [ü]%41{number}.jsonl", requests_by(chance)) for number in range(3)
    ]
    bad = [json.dumps(line(f"x{number}", payload="y" * 40)) for number in range(300)]
    bad[0], bad[37], bad[200], bad[299] = "{", '{"id":"x"}', "", "[]"
    (tmp_path / "bad.jsonl").write_text("\r\n".join(bad))
    (tmp_path / "d.csv").write_text(f'id,tenant,eventTime,payload\nc1,t,{AT},"one, two"\nc2,t\n')
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(f"eventTime,id,tenant\n{AT},c3,t\n".encode()))
    times = pa.array([datetime(2027, 1, 31, 4, tzinfo=UTC), None] * 2, pa.timestamp("us", "UTC"))
    table = {
        "id": ["p1", "p2", "p3", "p4"],
        "tenant": ["t"] * 4,
        "eventTime": times,
        "payload": [b"ok", None, b"\xff", None],
    }
    pq.write_table(pa.table(table), tmp_path / "f.parquet")
    lines = [*paths, "bad.jsonl"]
    files = [*lines, "d.csv", "e.csv.gz", "f.parquet", write(tmp_path / "g.jsonl", [])]
    of_lines = fold([*paths, write_good(tmp_path, bad)])
    at = parse_time(AT)
    wanted = {**of_lines, "c1": (at, "one, two"), "c3": (at, None), "p1": (at, "ok")}
    faults = [
        ("bad.jsonl", 1, "the line is not JSON"), ("bad.jsonl", 38, "tenant not present"),
        ("bad.jsonl", 300, "an event must be a JSON object"), ("d.csv", 3, "the line has 2 values"),
        ("f.parquet", 2, "event time not present"), ("f.parquet", 3, "the line is not UTF-8"),
        ("f.parquet", 4, "event time not present"),
    ]  # fmt: skip

    loaded = take(spark, scheduler, *files)
    assert [(fault.file, fault.line) for fault in loaded.faults] == [(file, number) for file, number, _ in faults]
    assert all(fault.reason.startswith(reason) for fault, (*_, reason) in zip(loaded.faults, faults, strict=True))
    first = stored(scheduler)
    assert {name: row[:2] for name, row in first.items()} == wanted

    before = ends(scheduler)
    few = take(spark, scheduler, *lines, dry_run=True, listed=2, top=3)
    minutes = Counter(at // 60_000 * 60_000 for at, _ in of_lines.values())
    assert few.hottest == sorted(minutes.items(), key=lambda found: (-found[1], found[0]))[:3]
    assert [(fault.file, fault.line) for fault in few.faults] == [(file, number) for file, number, _ in faults[:2]]
    assert ends(scheduler) == before, "a dry run writes nothing"
    again = take(spark, scheduler, *reversed(lines))
    assert (again.accepted, again.replaced, again.rejected) == (few.accepted, few.replaced, few.rejected)
    assert again.accepted + again.replaced + again.rejected == sum(map(lines_of, lines))
    assert stored(scheduler) == first, "running it twice adds nothing and changes nothing"


def lines_of(path):
    return sum(1 for text in Path(path).read_text().splitlines() if text)


def requests_by(chance):
    return [
        line(f"e{chance.randrange(150)}", f"2027-01-{chance.randrange(1, 29):02}T00:00Z",
             payload="x" * chance.randrange(60), mode=chance.choice(["UPSERT"] * 5 + ["REMOVE"]))
        for _ in range(chance.randrange(1, 200))
    ]  # fmt: skip


def write_good(tmp_path, lines):
    """The requests among lines, in a file that is not loaded."""
    found = [json.loads(text) for text in lines if "tenant" in text]
    return write(tmp_path / "good.txt", found)


def ends(scheduler):
    return [log.bounds().next for log in scheduler.bus.logs(scheduler.streams.requests)]


def ingest(spark, scheduler, checkpoint, kind, **options):
    """Take in all that a source has now; how many requests were taken, replaced, and rejected."""
    url = shared_url(scheduler.bus.bus, scheduler.bus.url)
    work = Ingestion(spark, scheduler, url=url, checkpoint=checkpoint, kind=kind, options=options)
    work.start(available_now=True)
    while work.is_active:
        work._query.awaitTermination(5)
    work.stop()
    return work.accepted, work.replaced, work.rejected


def test_a_source_is_taken_in_and_goes_on_where_it_was(spark, scheduler, tmp_path):
    inbox, checkpoint = tmp_path / "inbox", tmp_path / "taken"
    inbox.mkdir()
    lines = [json.dumps(item) for item in (line("a", payload="1"), line("b"), {**line("x"), "colour": 1})]
    (inbox / "1.json").write_text("\n".join([*lines, '{"id": "half']))
    assert ingest(spark, scheduler, checkpoint, "json", path=str(inbox)) == (2, 0, 2)
    rejected = [scheduler.bus.get("jobs.rejected", offset) for offset in range(2)]
    assert {(record.value, record.headers[0][1].decode()[:16]) for record in rejected} == {
        (lines[2].encode(), "unknown property"), (b'{"id": "half', "the line is not "),
    }  # fmt: skip

    before = ends(scheduler)
    for path in (checkpoint / "commits").iterdir():  # as if it was killed after it wrote, and before Spark noted that
        path.unlink()
    assert ingest(spark, scheduler, checkpoint, "json", path=str(inbox)) == (2, 0, 2)
    assert ends(scheduler) == before
    assert scheduler.bus.bounds("jobs.rejected").count == 2

    write(inbox / "2.json", [line("a", payload="2"), line("c")])
    assert ingest(spark, scheduler, checkpoint, "json", path=str(inbox)) == (2, 0, 0)
    assert {name: row[1] for name, row in stored(scheduler).items()} == {"a": "2", "b": None, "c": None}


def test_streams_and_files_with_a_header_are_sources(spark, scheduler, tmp_path):
    with scheduler.bus.publisher("in") as publisher:
        for number in range(100):
            publisher.publish(json.dumps(line(f"e{number % 7}", payload=str(number))).encode())
    url = scheduler.bus.url
    assert ingest(spark, scheduler, tmp_path / "a", "lockstep", url=url, stream="in") == (7, 93, 0)
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "1.csv").write_text(f'tenant,id,payload,eventTime\nt,c1,"one, ""two""",{AT}\nt,c2,,soon\n')
    assert ingest(spark, scheduler, tmp_path / "b", "csv", path=str(tmp_path / "csv")) == (1, 0, 1)
    found = {name: row[1] for name, row in stored(scheduler).items()}
    assert found == {**{f"e{number % 7}": str(number) for number in range(93, 100)}, "c1": 'one, "two"'}


RUN = 59
"""Ticks of a run of skipped ones."""


def history(scheduler, records):
    with scheduler.bus.publisher(scheduler.streams.history) as publisher:
        for at, what, tenant, late in records:
            record = {"at": at, "what": what, "tenant": tenant, "id": "x", "eventTime": at, "node": "n"}
            publisher.publish(json.dumps(record if late is None else {**record, "lateMs": late}).encode())
            if what == "skipped":  # and a run of others
                run = {**record, "lastTime": at + (RUN - 1) * 60_000, "count": RUN, "reason": "missed"}
                publisher.publish(json.dumps(run).encode())
        publisher.publish(b'{"at":1,"what":"clock jumped"}')


def figures(records, hour, tenant):
    """The row of an hour and tenant: slow and obvious."""
    own = [(what, late) for at, what, name, late in records if at // HOUR_MS * HOUR_MS == hour and name == tenant]
    counts = Counter(what for what, _ in own)
    lates = sorted(late for what, late in own if what == "fired")

    def percentile(part):
        if not lates:
            return None
        place = part * (len(lates) - 1)
        low, high = lates[math.floor(place)], lates[math.ceil(place)]
        return int(low + (high - low) * (place - math.floor(place)))

    return reports.HourRow(
        hour=hour, tenant=tenant, fired=counts["fired"], late_p50_ms=percentile(0.5), late_p95_ms=percentile(0.95),
        late_p99_ms=percentile(0.99), late_max_ms=max(lates, default=None), retries=counts["retry"],
        failed=counts["failed"], missed=counts["missed"], skipped=counts["skipped"] * (1 + RUN),
        removed=counts["removed"],
    )  # fmt: skip


def test_the_report_says_what_a_count_by_hand_says(spark, scheduler, tmp_path):
    chance = random.Random(2)
    begin = parse_time("2030-01-01T00:00Z")
    kinds = ["fired"] * 6 + ["retry", "failed", "missed", "skipped", "removed", "rescheduled"]
    records = []
    for _ in range(400):
        what = chance.choice(kinds)
        late = chance.randrange(5000) if what in ("fired", "failed") else None
        records.append((begin + chance.randrange(3 * HOUR_MS), what, chance.choice("ab"), late))
    records.append((begin + 4 * HOUR_MS, "removed", "c", None))
    history(scheduler, records)
    url, stream = scheduler.bus.url, scheduler.streams.history
    rows = reports.by_hour(spark, url, stream, start=begin, parquet=str(tmp_path / "report"))
    places = sorted({(at // HOUR_MS * HOUR_MS, tenant) for at, _, tenant, _ in records})
    assert rows == [figures(records, hour, tenant) for hour, tenant in places]
    assert pq.read_table(tmp_path / "report").num_rows == len(rows)
    only = reports.by_hour(spark, url, stream, tenant="a", start=begin + 1, stop=begin + HOUR_MS)
    within = [record for record in records if begin < record[0] < begin + HOUR_MS]
    assert only == [figures(within, begin, "a")]
    reports.plot(rows, tmp_path / "late.png")
    assert (tmp_path / "late.png").read_bytes().startswith(b"\x89PNG")
    assert len(rows[1].cells()) == len(reports.HEADINGS)


def test_the_forecast_is_what_crons_and_events_say(spark, scheduler, tmp_path):
    start = parse_time("2027-03-27T12:00:30Z")
    scheduler.schedule_many([(f"2027-03-28T10:00:{n:02}Z", None, f"e{n}") for n in range(5)], tenant="t")
    scheduler.at("2027-04-30T00:00Z", id="later", tenant="t")
    scheduler.register("quiet", "MESSAGING", {"topic": "out"})
    scheduler.at("2027-03-28T10:00Z", id="e", tenant="quiet")
    scheduler.every("* * * * *", id="quiet", tenant="quiet")
    scheduler.pause_tenant("quiet")
    scheduler.every("*/15 * * * *", id="quarters", tenant="t")
    scheduler.every("30 2 * * *", id="night", tenant="t", tz="Europe/Berlin")
    scheduler.every("0/20 0 10 * * ?", id="seconds", tenant="t", type="QUARTZ")
    scheduler.every("* * * * *", id="paused", tenant="t")
    scheduler.pause("paused", tenant="t")
    url = scheduler.bus.url
    found = forecasts.forecast(spark, scheduler, url=url, start=start, days=2, top=2, series=True)
    begin, end = (datetime.fromtimestamp(start / 1000 + days * 86_400, UTC) for days in (0, 2))
    expected = sum(
        len(list(parse(row.expression, row.type).occurrences(begin, end, Zone(row.tz))))
        for row in scheduler.crons()
        if not row.paused and row.tenant == "t"
    )
    assert (found.events, found.ticks) == (5, expected)
    assert [(row.minute, row.events, row.ticks) for row in found.busiest] == [
        (parse_time("2027-03-28T10:00Z"), 5, 4), (parse_time("2027-03-29T10:00Z"), 0, 4),
    ]  # fmt: skip
    assert sum(row.events + row.ticks for row in found.hours) == expected + 5
    forecasts.plot(found, tmp_path / "fires.png")
    assert (tmp_path / "fires.png").exists()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_million_requests_are_carried_out(scheduler, tmp_path):
    count = 1_000_000 // int(os.environ.get(STEP_VARIABLE, "1"))  # fewer in a soak run that is scaled down
    with (tmp_path / "r.jsonl").open("w") as file:
        for number in range(count):
            at = f"2097-0{1 + number % 9}-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00Z"
            file.write(json.dumps(line(f"e{number}", at, payload="x" * (number % 40))) + "\n")
    with spark_session() as session:
        loaded = take(session, scheduler, tmp_path / "r.jsonl")
    # Requests of a shard are carried out in order: these come after the file's in every shard
    scheduler.client.ask([Remove("t", f"none-{number}") for number in range(1000)], timeout=600)
    assert (loaded.accepted, loaded.rejected) == (count, 0)
    assert all(scheduler.client.find("t", f"e{number}") for number in range(0, count, 997))
