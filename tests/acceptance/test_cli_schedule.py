"""lockstep schedule, cron and tenant, as a user runs them, beside a node that works."""

from __future__ import annotations

import json
import threading

import pytest
from cli_command import InProcess, until

from lockstep.schedule.assembly import open_scheduler
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Register, StoreNamed
from lockstep.streams.client import connect

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
FAR = "2097-01-01T00:00Z"


class Outcomes:
    """A courier that answers as told, and delivers nothing before it is told to."""

    def __init__(self):
        self.waiting, self.outcome = [], None
        self._lock = threading.Lock()

    def check(self, tenant):
        """Any tenant will do."""

    def deliver(self, delivery, done):
        from lockstep.schedule.delivery.port import Result

        with self._lock:
            if self.outcome is None:
                self.waiting.append((delivery, done))
                return
        done(Result(delivery, self.outcome, "it answered 400"))

    def end(self, outcome):
        from lockstep.schedule.delivery.port import Result

        with self._lock:
            self.outcome, waiting, self.waiting = outcome, self.waiting, []
        for delivery, done in waiting:
            done(Result(delivery, outcome, "it answered 400"))

    def forget(self, tenant):
        """Nothing is kept."""

    def close(self):
        """Nothing is kept."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A node with a tenant for streams and one for deliveries, and the command in its folder."""
    folder = tmp_path_factory.mktemp("schedule")
    courier = Outcomes()
    with (
        connect(f"lmdb:{folder}/.lockstep") as bus,
        open_scheduler(bus, node_name="node-1", courier=courier) as scheduler,
    ):
        scheduler.register("calls", "HTTP", {"url": "http://localhost:1/", "headers": {"Authorization": "x"}})
        yield InProcess(folder), scheduler, courier


@pytest.fixture
def lockstep(world):
    return world[0]


def test_an_event_is_added_found_listed_and_cancelled(lockstep):
    made = lockstep("schedule", "add", "mail-7", "the body", "--at", FAR, "--json").object
    assert made["status"] == "WAITING"
    assert made["scheduled_for"] == FAR
    found = lockstep("schedule", "find", "mail-7", "--json").object
    assert (found["payload"], found["event_id"]) == ("the body", made["event_id"])
    listed = lockstep("schedule", "ls", "--from", "2096-01-01").lines
    assert listed[0].split("  ")[0] == "TENANT"
    assert "SCHEDULED FOR" in listed[0]
    assert "LATE BY" in listed[0]
    assert listed[1].split() == ["default", "mail-7", FAR, "-", "-", "WAITING", "0"]
    assert lockstep("schedule", "cancel", "mail-7").out == "The cancel won: mail-7 is gone.\n"
    assert lockstep("schedule", "cancel", "mail-7", "--json", code=3).object["won"] is None
    lockstep("schedule", "find", "mail-7", code=3)


def test_why_tells_state_owner_shard_history_and_who_won(lockstep):
    lockstep("schedule", "add", "w", "x", "--at", FAR)
    waiting = lockstep("schedule", "why", "w")
    assert waiting.lines[0].startswith(f"It waits for {FAR}, in ")
    assert "is owned by node node-1." in waiting.lines[1]
    lockstep("schedule", "cancel", "w")
    gone = lockstep("schedule", "why", "w")
    assert "The cancel won." in gone.lines[0]
    told = lockstep("schedule", "why", "w", "--json").object
    assert (told["won"], told["event"], told["history"][-1]["what"]) == ("cancel", None, "removed")
    assert lockstep("schedule", "why", "nobody", code=3).out.startswith("There is no such event")


def test_why_says_that_the_fire_won_also_when_the_event_was_removed_after_it(world):
    lockstep, scheduler, _ = world
    lockstep("schedule", "add", "gone", "--after", "0s")
    until(lambda: lockstep("schedule", "find", "gone", "--json").object["status"] == "DONE")
    lockstep("schedule", "cancel", "gone", code=4)
    told = lockstep("schedule", "why", "gone", "--json").object
    assert told["won"] == "fire"
    assert told["sentences"][0].startswith("It fired at ")
    assert told["sentences"][0].endswith("after that. The fire won.")
    scheduler.at("2090-01-01T00:00Z", id="gone")
    lockstep("schedule", "cancel", "gone")
    assert lockstep("schedule", "why", "gone", "--json").object["won"] == "cancel"


def test_a_payload_from_standard_input_may_be_bytes(lockstep):
    lockstep("schedule", "add", "piped", "-", "--at", FAR, given="ü".encode())
    assert lockstep("schedule", "find", "piped", "--json").object["payload"] == "ü"
    lockstep("schedule", "add", "piped", "-", "--at", FAR, given=b"\xff\x00")
    assert lockstep("schedule", "find", "piped", "--json").object["payload"] == "/wA="


def test_every_command_waits_as_long_as_it_is_told(lockstep, tmp_path):
    with connect(f"lmdb:{tmp_path}/quiet") as bus:
        open_scheduler(bus).close()
    short = ("--bus", f"lmdb:{tmp_path}/quiet", "--timeout", "1ms")
    calls = [
        ("schedule", "add", "x", "--after", "1h"), ("schedule", "cancel", "x"), ("schedule", "dryrun", "x"),
        ("schedule", "replay", "x"), ("cron", "add", "x", "* * * * *"), ("cron", "pause", "x"),
    ]  # fmt: skip
    for call in calls:
        refused = lockstep(*call, *short, code=6).err
        assert "within 0.001 s" in refused
        assert "lockstep schedule serve" in refused


def test_an_event_that_fired_says_when_and_how_late(lockstep):
    lockstep("schedule", "add", "now", "--after", "0s")
    until(lambda: lockstep("schedule", "find", "now", "--json").object["status"] == "DONE")
    found = lockstep("schedule", "find", "now", "--json").object
    assert found["fired_at"] >= found["scheduled_for"]
    assert 0 <= found["late_s"] < 10
    assert "The fire won." in lockstep("schedule", "why", "now").lines[0]
    again = lockstep("schedule", "add", "now", "--at", found["scheduled_for"])
    assert "is not fired again" in again.out


def test_a_cancel_that_comes_too_late_says_that_the_fire_won(world):
    lockstep, scheduler, courier = world
    courier.outcome = None
    lockstep("schedule", "add", "late", "--after", "0s", "--tenant", "calls")
    until(lambda: bool(courier.waiting))
    told = lockstep("schedule", "cancel", "late", "--tenant", "calls", "--json", code=4).object
    assert told["won"] == "fire"
    assert "being delivered" in lockstep("schedule", "why", "late", "--tenant", "calls").out
    assert "The fire won" in lockstep("schedule", "cancel", "late", "--tenant", "calls", code=4).out
    from lockstep.schedule.delivery.port import Outcome

    courier.end(Outcome.REFUSED)
    until(lambda: scheduler.find("late", tenant="calls").status == "FAILED")
    why = lockstep("schedule", "why", "late", "--tenant", "calls").out
    assert "failed for good" in why
    assert "it answered 400" in why
    courier.outcome = Outcome.TAKEN
    replayed = lockstep("schedule", "replay", "late", "--tenant", "calls", "--json").object
    assert replayed == {"tenant": "calls", "id": "late", "replayed": True, "status": "WAITING"}
    until(lambda: scheduler.find("late", tenant="calls").status == "DONE")
    assert "first tried" in lockstep("schedule", "why", "late", "--tenant", "calls").out
    assert lockstep("schedule", "replay", "late", "--tenant", "calls", code=4).err.startswith("Warning: late is DONE")
    lockstep("schedule", "replay", "nobody", code=3)
    lockstep("schedule", "replay", code=2)
    assert lockstep("schedule", "replay", "--failed", "--tenant", "calls").out == "0 events will fire again.\n"


def test_pages_filters_and_buckets(lockstep):
    for number in range(7):
        lockstep("schedule", "add", f"p{number}", "--at", f"2095-01-01T00:0{number // 4}:0{number}Z")
    first = lockstep("schedule", "ls", "--from", "2095-01-01", "--to", "2095-01-02", "--limit", "3", "--json").objects
    assert [row["id"] for row in first[:-1]] == ["p0", "p1", "p2"]
    cursor = first[-1]["next"]
    chosen = ("--from", "2095-01-01", "--to", "2095-01-02")
    rest = lockstep("schedule", "ls", *chosen, "--limit", "3", "--cursor", cursor, "--json").objects
    assert [row["id"] for row in rest[:3]] == ["p3", "p4", "p5"]
    every = lockstep("schedule", "ls", *chosen, "--limit", "2", "--all", "--json").objects
    assert [row["id"] for row in every] == [f"p{number}" for number in range(7)]
    assert lockstep("schedule", "ls", *chosen, "--status", "failed").err == "There are no such events.\n"
    assert "Unknown status" in lockstep("schedule", "ls", "--status", "x", code=2).err
    counted = lockstep("schedule", "buckets", *chosen, "--json").objects
    assert [(row["minute"], row["total"], row["WAITING"]) for row in counted] == [
        ("2095-01-01T00:00Z", 4, 4), ("2095-01-01T00:01Z", 3, 3),
    ]  # fmt: skip
    assert lockstep("schedule", "buckets", *chosen, "--limit", "1").lines[1].split() == [
        "2095-01-01T00:00Z", "4", "4", "0", "0", "0", "0",
    ]  # fmt: skip


def test_a_dry_run_delivers_and_changes_nothing(world):
    lockstep, scheduler, _ = world
    lockstep("schedule", "add", "dry", "x", "--at", FAR)
    assert lockstep("schedule", "dryrun", "dry").out == "dry is being delivered as a dry run; it stays WAITING.\n"
    lockstep("schedule", "dryrun", "nobody", code=3)
    assert scheduler.find("dry").status == "WAITING"


def test_tenants_are_registered_paused_and_removed(lockstep):
    made = lockstep("tenant", "add", "orders", "--stream", "orders.due", "--rate", "5", "--json").object
    assert made == {
        "tenant": "orders", "type": "MESSAGING", "props": {"topic": "orders.due"}, "rate": 5.0, "paused": False,
        "replaced": False,
    }  # fmt: skip
    listed = {row["tenant"]: row for row in lockstep("tenant", "ls", "--json").objects}
    assert listed["calls"]["props"]["headers"] == {"Authorization": "***"}
    lockstep("tenant", "pause", "orders")
    lockstep("schedule", "add", "o1", "--after", "0s", "--tenant", "orders")
    assert "is paused, so its events wait" in lockstep("schedule", "why", "o1", "--tenant", "orders").out
    lockstep("tenant", "resume", "orders")
    until(lambda: lockstep("schedule", "find", "o1", "--tenant", "orders", "--json").object["status"] == "DONE")
    one = lockstep("tenant", "show", "orders", "--json").object
    assert (one["tenant"], one["rate"], one["due"]) == ("orders", 5.0, 0)
    lockstep("tenant", "show", "nobody", code=3)
    cards = lockstep("schedule", "nodes", "--json").objects
    assert cards[-1] == {"unowned": []}
    assert len(cards) > 1
    refused = lockstep("tenant", "rm", "orders", code=2)
    assert "add --yes to do it" in refused.err
    assert lockstep("tenant", "rm", "orders", "--dry-run").out == "Would remove tenant orders.\n"
    assert lockstep("tenant", "rm", "orders", "--yes").out == "Removed tenant orders.\n"
    assert "Did you mean 'calls'?" in lockstep("tenant", "pause", "call", code=3).err
    assert "--topic needs --prop bootstrap.servers" in lockstep("tenant", "add", "k", "--topic", "x", code=2).err
    kafka = ("--stream", "x", "--prop", "bootstrap.servers=localhost:1")
    assert "use --topic" in lockstep("tenant", "add", "k", *kafka, code=2).err
    header = lockstep("tenant", "add", "k", "--stream", "x", "--header", "A=b", code=2)
    assert "are for tenants with --url" in header.err
    assert "k" not in {row["tenant"] for row in lockstep("tenant", "ls", "--json").objects}
    assert "not registered" in lockstep("schedule", "add", "o2", "--after", "1s", "--tenant", "orders", code=2).err


def test_crons_are_set_up_listed_paused_triggered_and_removed(lockstep):
    made = lockstep("cron", "add", "report", "0 9 * * MON-FRI", "--tz", "Europe/Berlin", "--json").object
    assert (made["type"], made["tz"], made["paused"]) == ("UNIX", "Europe/Berlin", False)
    assert made["description"].startswith("at 09:00")
    assert lockstep("cron", "ls").lines[0].split() == ["TENANT", "ID", "TYPE", "EXPRESSION", "ZONE", "LAST", "NEXT"]
    lockstep("cron", "pause", "report")
    assert lockstep("cron", "ls", "--json").object["paused"] is True
    lockstep("cron", "resume", "report")
    lockstep("cron", "trigger", "report")
    until(lambda: any(row["status"] == "fired" for row in lockstep("cron", "runs", "report", "--json").objects))
    assert lockstep("cron", "runs", "report").lines[0].split("  ")[0] == "SCHEDULED FOR"
    tried = lockstep("cron", "backfill", "report", "--from", "2026-11-02", "--to", "2026-11-07", "--dry-run", "--json")
    assert (tried.object["ticks"], tried.object["applied"]) == (5, False)
    filled = ("cron", "backfill", "report", "--from", "2026-11-02", "--to", "2026-11-07")
    assert lockstep(*filled).out.startswith("Cron report fires for its 5 ticks from 2026-11-02T00:00Z")
    reversed_ = ("cron", "backfill", "report", "--from", "2026-11-07", "--to", "2026-11-02")
    assert "must be before --to" in lockstep(*reversed_, code=2).err
    lockstep("cron", "add", "often", "* * * * * ?", "--type", "QUARTZ")
    many = lockstep("cron", "backfill", "often", "--from", "2026-01-01", code=2)
    assert "more than 10,000 ticks" in many.err
    assert "add --yes to do it" in lockstep("cron", "rm", "often", code=2).err
    assert lockstep("cron", "rm", "often", "--dry-run").out == "Would remove cron often of tenant default (QUARTZ).\n"
    assert "often" in {row["id"] for row in lockstep("cron", "ls", "--json").objects}
    lockstep("cron", "rm", "often", "--yes")
    assert "often" not in {row["id"] for row in lockstep("cron", "ls", "--json").objects}
    wanted = [f"2026-11-0{day}T08:00Z" for day in range(2, 7)]

    def fired():
        rows = lockstep("cron", "runs", "report", "--json").objects
        return [row["scheduled_for"] for row in rows if row["status"] == "fired"]

    until(lambda: set(wanted) <= set(fired()))
    assert sorted(fired())[:5] == wanted
    assert "is a cron" in lockstep("schedule", "why", "report").out
    told = lockstep("schedule", "why", "report", "--json").object
    assert told["crons"] == ["UNIX"]
    assert "is a cron" in told["sentences"][0]
    missing = lockstep("cron", "rm", "report", "--type", "QUARTZ", code=3)
    assert "QUARTZ cron 'report' of tenant 'default' does not exist" in missing.err
    assert lockstep("cron", "rm", "report", "--yes").out == "Cron report is removed.\n"
    lockstep("cron", "runs", "report", code=3)
    assert "Cron expression" in lockstep("cron", "add", "bad", "0 9 * *", code=2).err


def test_commands_without_a_scheduler_say_how_to_start_one(lockstep):
    refused = lockstep("schedule", "ls", "--name", "other", code=3)
    assert "lockstep schedule serve --name other" in refused.err
    as_json = lockstep("schedule", "ls", "--name", "other", "--json", code=3)
    assert json.loads(as_json.err)["error"]["code"] == "SCHEDULER_NOT_FOUND"


def test_a_command_that_forgets_the_store_says_which_it_is(lockstep, world):
    bus = world[1].bus
    SchedulerStreams("elsewhere").create(bus)
    known = StoreNamed("d2f1", "postgresql://db.example:5432/jobs")
    Register(bus.logs("elsewhere.control")[0]).append(known, bus.runtime)
    for command in (("schedule", "ls"), ("cron", "ls"), ("schedule", "add", "mail-7", "--after", "1s")):
        refused = lockstep(*command, "--name", "elsewhere", code=4)
        assert "keeps its rows in postgresql://db.example:5432/jobs" in refused.err
        assert "was given the bus itself" in refused.err
