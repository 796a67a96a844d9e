"""What Spark's workers do for a scheduler, called without Spark: lines checked, requests written, ticks counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.agenda import Remove
from lockstep.cron import Zone, parse
from lockstep.engine.spark.sources import this_host
from lockstep.errors import BadArgument, PathMissing
from lockstep.runtime import ThreadRuntime
from lockstep.schedule import requests
from lockstep.schedule.assembly import open_scheduler
from lockstep.schedule.requests import PAYLOAD_BYTES_MAX
from lockstep.schedule.rows import CronRow
from lockstep.schedule.spark.forecast import EventCount, TickCount, _plain, forecast
from lockstep.schedule.spark.ingest import IDENTITY, identity_of, run_of
from lockstep.schedule.spark.load import Files, _header
from lockstep.schedule.spark.requests import LineCheck, RequestWriter
from lockstep.schedule.spark.session import reason_of
from lockstep.schedule.times import parse_time
from lockstep.streams.client import connect
from lockstep.streams.shards import shard_of

AT = "2097-01-31T04:00Z"
SHARDS = 32


@pytest.fixture
def scheduler(tmp_path):
    with connect(f"lmdb:{tmp_path}/bus") as bus, open_scheduler(bus, "jobs") as made:
        made.register("t", "MESSAGING", {"topic": "out"})
        yield made


def line(name, at=AT, **more):
    return {"id": name, "eventTime": at, "tenant": "t", **more}


def checking(tenants=("t",), run=b"run", **more):
    return LineCheck(tenants=frozenset(tenants), shards=SHARDS, partitioner="crc32", run=run, **more)


def checked(check, lines, place="f", start=0):
    """The rows that a worker makes of lines."""
    count = len(lines)
    batch = pa.record_batch({
        "value": pa.array(lines, pa.binary()), "place": [place] * count, "start": pa.array([start] * count, pa.int64()),
        "row": pa.array([None] * count, pa.int64()),
    })  # fmt: skip
    [found] = check(iter([batch]))
    return found


def reasons(check, *lines):
    return checked(check, list(lines)).column("reason").to_pylist()


def written(scheduler, rows, run):
    """Have a worker write rows; what it told."""
    ordered = pa.Table.from_batches([rows]).sort_by(
        [("shard", "ascending"), ("key", "ascending"), ("row", "ascending")]
    )
    writer = RequestWriter(url=scheduler.bus.url, host=this_host(), stream="jobs.requests", run=run)
    [told] = writer(iter(ordered.to_batches()))
    return {row["kind"]: row["count"] for row in told.to_pylist() if row["count"]}


def ends(scheduler):
    return [log.bounds().next for log in scheduler.bus.logs("jobs.requests")]


def settle(scheduler):
    """Wait until the node has carried out all requests: it answers one that comes after them, in every shard."""
    names = {scheduler.client.shard_of("t", f"none-{number}"): f"none-{number}" for number in range(1000)}
    scheduler.client.ask([Remove("t", name) for name in names.values()])


def test_lines_of_json_are_checked_as_the_api_checks_them():
    assert reasons(
        checking(), b"\xef\xbb\xbf" + json.dumps(line("a")).encode(), b"{", b"", b"  \r", b"[]", b"\xff\xfe",
        b'{"id":"x"}', json.dumps(line("x", "tomorrow")).encode(), json.dumps({**line("x"), "tenant": "u"}).encode(),
        json.dumps({**line("x"), "colour": 1}).encode(), json.dumps(line("x", payload={"a": 1})).encode(),
        json.dumps(line("\ud800")).encode(), b"[" * 100_000, json.dumps(line("x" * 1025)).encode(),
        json.dumps(line("x", payload="y" * (PAYLOAD_BYTES_MAX + 1))).encode(),
    ) == [
        None,
        "the line is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "an event must be a JSON object",
        "the line is not UTF-8",
        "tenant not present",
        "event time can not be parsed. Must be in ISO 8601 format.",
        "tenant not registered / unknown tenant: u",
        "unknown property: colour",
        "payload must be text",
        "id must be valid Unicode",
        "the line is not JSON: maximum recursion depth exceeded while decoding a JSON array from a unicode string",
        "id must be text of 1 to 1024 bytes",
        "payload must have at most 4194304 bytes",
    ]  # fmt: skip


def test_lines_of_csv_may_have_payloads_as_large_as_the_api_takes():
    check = checking(headers={"f": ["id", "tenant", "eventTime", "payload"]})
    found = checked(check, [
        b"id,tenant,eventTime,payload", f'c1,t,{AT},"one, ""two"""\r'.encode(), f"c2,t,{AT},".encode(),
        f'c3,t,{AT},"open'.encode(), b"c4,t", f"c5,t,{AT},{'y' * 200_000}".encode(),
        f"c6,t,{AT},{'y' * (PAYLOAD_BYTES_MAX + 1)}".encode(),
    ])  # fmt: skip
    assert found.column("reason").to_pylist() == [
        None, None, "the line is not CSV: a quoted value must end on the same line",
        "the line has 2 values, and the header 4", None, "payload must have at most 4194304 bytes",
    ]  # fmt: skip
    payloads = [json.loads(value).get("payload") for value in found.column("value").to_pylist()[:2]]
    assert payloads == ['one, "two"', None]
    assert found.column("row").to_pylist() == [1, 2, 3, 4, 5, 6]


def test_a_header_that_can_not_be_read_is_refused(tmp_path):
    for name, data in (
        ("e.csv", b""), ("b.csv", b"\xff\xfe\n"), ("g.csv.gz", b"no gzip"), ("c.csv", b"id,colour\n"),
        ("d.csv", b"id,id\n"), ("mac.csv", b"id,tenant,eventTime\rx,t,2097-01-01T00:00Z\r"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadArgument, match="header"):
            _header(str(tmp_path / name))


def test_files_that_spark_would_pass_over_are_refused_and_folders_searched_without_them(tmp_path):
    def put(name):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        return str(tmp_path / name)

    for name, reason in (("_a.jsonl", "passes over"), (".a.csv", "passes over"), ("a:b.jsonl", "a colon")):
        with pytest.raises(BadArgument, match=reason):
            Files.found([put(name)])
    with pytest.raises(PathMissing):
        Files.found([str(tmp_path / "missing.jsonl")])
    with pytest.raises(BadArgument, match="must end in"):
        Files.found([put("x.txt")])
    put("empty/x.txt")
    with pytest.raises(BadArgument, match="has no file"):
        Files.found([str(tmp_path / "empty")])
    kept = [put("in/a.jsonl"), put("in/sub/b.json.gz"), put("in/c.parquet")]
    put("in/_temporary/d.jsonl")
    put("in/.a.jsonl")
    found = Files.found([str(tmp_path / "in"), kept[0]]).by_format
    assert found == {"json": kept[:2], "parquet": kept[2:]}


def test_a_task_that_runs_again_adds_nothing(scheduler):
    lines = [json.dumps(line(f"e{n}")).encode() for n in range(50)] + [json.dumps(line("e7")).encode(), b"bad"]
    rows = checked(checking(), lines)
    after = []
    for _ in range(2):
        assert written(scheduler, rows, b"run") == {"written": 50, "replaced": 1, "rejected": 1}
        after.append(ends(scheduler))
    assert after[0] == after[1]
    key, _ = requests.encode(requests.DryRun("t", "e0"))
    assert rows.column("shard").to_pylist()[0] == shard_of(key, SHARDS, "crc32")


def test_a_batch_that_runs_again_loses_nothing_when_a_tenant_was_registered_since(scheduler):
    lines = [json.dumps({**line(f"e{n}"), "tenant": "tu"[n % 2]}).encode() for n in range(200)]
    scheduler.register("u", "MESSAGING", {"topic": "out"})
    for tenants in ({"t"}, {"t", "u"}):  # the second time another task wrote half of the batch before it was killed
        run = run_of(b"checkpoint", 0, frozenset(tenants))
        written(scheduler, checked(checking(tenants, run), lines), run)
    settle(scheduler)
    assert len(scheduler.events(limit=1000).events) == 200
    assert run_of(b"checkpoint", 0, frozenset("tu")) == run_of(b"checkpoint", 0, frozenset("ut"))


def test_a_checkpoint_has_one_id_and_a_damaged_one_is_refused(tmp_path):
    runtime = ThreadRuntime()
    made = identity_of(tmp_path / "a", runtime.new_id)
    assert identity_of(tmp_path / "a", runtime.new_id) == made
    assert identity_of(tmp_path / "b", runtime.new_id) != made
    assert [path.name for path in (tmp_path / "a").iterdir()] == [IDENTITY]
    (tmp_path / "a" / IDENTITY).write_text("")
    with pytest.raises(BadArgument, match="name another folder"):
        identity_of(tmp_path / "a", runtime.new_id)


def test_why_spark_failed_is_one_line():
    java = (
        "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: [FAILED_READ_FILE]"
        " reading file:///a.gz\n\tat org.apache.spark.X\nCaused by: java.io.IOException: no gzip\n\tat x"
    )
    first, cause = (
        "org.apache.spark.SparkException: [FAILED_READ_FILE] reading file:///a.gz",
        "java.io.IOException: no gzip",
    )
    assert reason_of(Exception(java)) == f"{first}; {cause}"
    python = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\nValueError: bad.\n"
    assert reason_of(Exception(python)) == "ValueError: bad"
    assert reason_of(ValueError()) == "ValueError"


EXPRESSIONS = [
    ("UNIX", "*/15 * * * *"), ("UNIX", "30 2 * * *"), ("UNIX", "0 0 1 * *"), ("QUARTZ", "0/20 0 10 * * ?"),
    ("QUARTZ", "30 59 23 * * ?"), ("CRON4J", "0 0 L * *"), ("UNIX", "0 0 30 2 *"),
    ("QUARTZ", "0/7 */9 1-4 ? * MON-FRI"), ("SPRING", "0/7 */9 1-4 * * ?"),
]  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(EXPRESSIONS), st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
                       st.sampled_from(["once", "literal"])), min_size=1, max_size=4),
    st.datetimes(datetime(2027, 3, 13), datetime(2027, 3, 29)), st.integers(1, 100_000),  # noqa: DTZ001
)  # fmt: skip
def test_ticks_are_counted_as_each_cron_lists_them(crons, begin, seconds):
    start = int(begin.replace(tzinfo=UTC).timestamp())
    rows = [
        CronRow(tenant="t", id=str(number), type=kind, expression=expression, tz=tz, dst=dst)
        for number, ((kind, expression), tz, dst) in enumerate(crons)
    ]
    given_rows = pa.record_batch({"cron": [json.dumps(_plain(row)) for row in rows]})
    [found] = TickCount(start, start + seconds)(iter([given_rows]))
    expected: dict[int, int] = {}
    for row in rows:
        cron, zone = parse(row.expression, row.type), Zone(row.tz, row.dst)
        before, end = (datetime.fromtimestamp(second, UTC) for second in (start - 1, start + seconds - 1))
        for at in cron.occurrences(before, end, zone):
            minute = int(at.timestamp()) // 60
            expected[minute] = expected.get(minute, 0) + 1
    assert dict(zip(found.column("minute").to_pylist(), found.column("count").to_pylist(), strict=True)) == expected


def test_events_are_counted_by_minute_for_tenants_that_fire(scheduler):
    scheduler.register("u", "MESSAGING", {"topic": "out"})
    for number in range(6):
        scheduler.at(f"2097-03-28T10:0{number // 3}:0{number}Z", id=f"e{number}", tenant="tu"[number % 2])
    scheduler.at("2098-01-01T00:00Z", id="later", tenant="t")
    begin, end = parse_time("2097-03-28T10:00:01Z"), parse_time("2097-03-29T00:00Z")

    def counts(*tenants):
        count = EventCount(
            url=scheduler.bus.url, host=this_host(), name="jobs", store=None, start=begin, stop=end,
            tenants=frozenset(tenants),
        )  # fmt: skip
        [found] = count(iter([pa.record_batch({"shard": [str(shard) for shard in range(SHARDS)]})]))
        return dict(zip(found.column("minute").to_pylist(), found.column("count").to_pylist(), strict=True))

    minute = parse_time("2097-03-28T10:00Z") // 60_000
    assert counts("t", "u") == {minute: 2, minute + 1: 3}
    assert counts("t") == {minute: 1, minute + 1: 1}
    for days in (0, -1, 3661, float("inf"), float("nan")):
        with pytest.raises(BadArgument, match="at most 3,660"):
            forecast(None, scheduler, url="", start=0, days=days)
