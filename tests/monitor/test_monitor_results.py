"""Results become events as in Sensu: occurrences, watermark, flapping, resolving, storing; golden vectors."""

from __future__ import annotations

import json

import pytest
from monitor_worlds import START_S, World, compact, result, results_of

from lockstep.monitor.core.results import is_flapping, total_state_change
from lockstep.monitor.core.rules import splay_delay_ms, splay_of

EVERY = {"handlers": {"default": {"type": "pipe"}}}


@pytest.fixture
def world():
    made = World(EVERY)
    made.keepalive()
    return made


def test_golden_splay():
    assert splay_of("check_http") == 18065634747101808247
    assert splay_delay_ms("check_http", 60, 1479577421000) == 7247


def alternating(count):
    """The newest `count` changes at the end of a quiet history."""
    history, status = [0] * (21 - count), 0
    for _ in range(count):
        status = 1 - status
        history.append(status)
    return history


@pytest.mark.parametrize(
    ("history", "percent"),
    [
        ([0, 1] * 10 + [0], 101),
        ([0] * 20 + [1], 6),
        ([1] + [0] * 20, 4),
        ([0, 2] + [0] * 19, 8),
        ([0, 1] * 10, 0),
        *zip([alternating(k) for k in range(1, 11)], [6, 11, 17, 23, 29, 34, 39, 45, 50, 55], strict=True),
    ],
)
def test_golden_state_change(history, percent):
    assert total_state_change(tuple(history)) == percent
    assert total_state_change(bytes(history)) == percent


def test_golden_actions_occurrences_and_watermarks(world):
    found = []
    for status in (0, 1, 1, 2, 2, 2, 1, 0, 0, 2):
        before = len(world.notices)
        world.result(status=status)
        for notice in world.notices[before:]:
            event = json.loads(notice.body)["event"]
            found.append((event["action"], event["occurrences"], event["occurrences_watermark"]))
        found += ["nothing"] * (len(world.notices) == before)
    assert found == [
        "nothing",
        ("create", 1, 1),
        ("create", 2, 2),
        ("create", 1, 2),
        ("create", 2, 2),
        ("create", 3, 3),
        ("create", 1, 3),
        ("resolve", 1, 3),
        "nothing",
        ("create", 1, 1),
    ]


@pytest.mark.parametrize(
    ("need", "told"),
    [(1, [1, 2, 3, 4, 5, 6, 7, 9]), (2, [2, 4, 5, 7])],
)
def test_golden_which_of_ten_results_are_handled(need, told):
    """0.26's own handlers: the results at these places are told."""
    world = World({"handlers": {"default": {"type": "pipe", "filter": "occurrences"}}})
    world.keepalive()
    found = []
    for place, status in enumerate((0, 1, 1, 2, 2, 2, 1, 0, 0, 2)):
        before = len(world.notices)
        world.result(status=status, occurrences=need, interval=60, refresh=60)
        if len(world.notices) > before:
            found.append(place)
    assert found == told


def test_flapping_begins_at_the_high_threshold_and_ends_at_the_low_one():
    check = {"low_flap_threshold": 20, "high_flap_threshold": 50}
    assert [is_flapping(check, flap, False) for flap in (49, 50)] == [False, True]
    assert [is_flapping(check, flap, True) for flap in (20, 21)] == [False, True]
    assert not is_flapping({"high_flap_threshold": 1}, 100, True)


def test_a_flapping_check_is_told_only_to_handlers_that_want_it_and_resolves(world):
    world.order(
        "settings",
        settings={"handlers": {"default": {"type": "pipe"}, "brave": {"type": "pipe", "handle_flapping": True}}},
        digest="2",
    )
    flags = {"low_flap_threshold": 5, "high_flap_threshold": 30, "handlers": ["default", "brave"]}
    for turn in range(24):
        world.result(status=turn % 2, **flags)
    assert world.event()["action"] == "flapping"
    assert {handler for handler, _, _, action in world.handled() if action == "flapping"} == {"brave"}
    for _ in range(21):
        world.result(status=0, **flags)
    assert world.event() is None
    assert world.handled()[-1][3] == "resolve"
    # And an order resolves one that flaps, which 0.26 does not
    for turn in range(24):
        world.result(status=turn % 2, **flags)
    assert world.event()["action"] == "flapping"
    assert world.order("resolve", client="web-1", check="disk")["status"] == 202
    assert world.event() is None


def test_an_event_keeps_its_id_until_it_resolves_and_revisions_count(world):
    world.result(status=1)
    first = world.event()
    world.result(status=2, output="full")
    second = world.event()
    assert first["id"] == second["id"]
    assert second["check"]["output"] == "full"
    assert second["check"]["history"] == ["1", "2"]
    assert [notice.id for notice in world.notices] == [f"{first['id']}.1.default", f"{first['id']}.2.default"]
    world.result()
    assert world.event() is None
    assert world.notices[-1].id == f"{first['id']}.3.default"
    world.result(status=1)
    assert world.event()["id"] != first["id"]
    assert [t["status"] for t in world.transitions] == [1, 2, 0, 1]


def test_last_ok_is_when_the_last_ok_result_was_executed(world):
    world.result(executed=START_S - 50)
    world.result(status=1)
    assert world.event()["last_ok"] == START_S - 50
    world.result(name="other", status=1)
    assert world.event("other")["last_ok"] is None


def test_without_auto_resolve_an_event_stays_until_it_is_forced(world):
    world.result(status=2, auto_resolve=False)
    told = len(world.notices)
    world.result(status=0, auto_resolve=False)
    assert world.event()["check"]["status"] == 2
    assert len(world.notices) == told
    world.order("resolve", client="web-1", check="disk")
    assert world.event() is None
    assert world.handled()[-1] == ("default", "disk", 0, "resolve")


def test_metrics_are_handled_and_stored_shortened_but_make_no_event(world):
    text = "a" * 300 + "\nb"
    world.result(name="cpu", type="metric", output=text)
    world.tick()
    assert world.handled() == [("default", "cpu", 0, "create")]
    assert world.event("cpu") is None
    (stored,) = world.table["results/web-1"]
    assert stored["output"] == "a" * 256 + "\n..."
    assert text.encode().replace(b"\n", b"\\n") in world.notices[0].body
    world.result(name="short", output=text, truncate_output=True, truncate_output_length=10)
    world.tick()
    assert world.table["results/web-1"][0]["output"] == "a" * 11 + "\n..."


def test_a_result_is_merged_with_its_definition_unless_it_is_a_standalone_one(world):
    settings = {**EVERY, "checks": {"disk": {"command": "df", "team": "base", "interval": 60, "subscribers": ["x"]}}}
    world.order("settings", settings=settings, digest="2")
    for turn in range(2):  # the first one in full, the second one on the fast path
        world.result(team="mine")
        world.result(name="cpu", standalone=True)
        world.tick()
        disk, cpu = world.table["results/web-1"]
        assert (disk["command"], disk["team"], disk["interval"], disk["type"]) == ("df", "mine", 60, "standard")
        assert disk["history"] == [0] * (turn + 1)
        assert "command" not in cpu


def test_a_definition_says_nothing_of_status_and_output(world):
    """What a result leaves out is not looked up in settings: a status there that is none would end every engine."""
    world.order("settings", settings={**EVERY, "checks": {"disk": {"status": "bad", "output": 7, "team": "a"}}})
    world.take(b"r:web-1", compact({"client": "web-1", "check": {"name": "disk"}}))
    (row,) = [row for row in world.tick().rows if row.kind == "results"]
    (check,) = results_of(row.body)
    assert (check["status"], check["output"], check["team"], check["history"]) == (0, "", "a", [0])


def test_results_of_a_second_are_one_row_for_each_client(world):
    for name in ("a", "b", "a"):
        world.result(name=name)
    world.keepalive("db-1")
    world.result("db-1", "a")
    rows = [row for row in world.tick().rows if row.kind == "results"]
    assert [row.id for row in rows] == ["results/db-1", "results/web-1"]
    assert [(each["name"], each["history"]) for each in world.table["results/web-1"]] == [("a", [0, 0]), ("b", [0])]
    assert not [row for row in world.tick().rows if row.kind == "results"]


@pytest.mark.parametrize("status", [0, 2])
@pytest.mark.parametrize("text", ["x", "\n", "\x01", "ü", "😀"])
def test_what_a_check_wrote_is_cut_if_its_result_is_too_long(world, status, text):
    """As it was, an OK result of 200 kB counted, and a critical one was refused: nobody was told."""
    for number, hook in enumerate((None, {"output": text * 150_000, "status": 1})):
        more = {} if hook is None else {"hooks": {"non-zero": {"command": "ps", **hook}, "ok": 7}}
        name = f"check-{number}"
        value = result(name=name, status=status, output=text * 200_000, **more)
        world.take(b"r:web-1", value)
        (row,) = [row for row in world.tick().rows if row.kind == "results"]
        (check,) = results_of(row.body)
        assert check["output"].endswith("\n(cut, as the result was too long)")
        assert 90_000 < len(row.body.encode()) < 99_000
        assert check["history"] == [status]
        assert (world.event(name) is not None) is bool(status)
    assert world.refused() == []
    assert world.fleet.state.counters["cut"] == 2


def test_many_long_results_of_a_tick_are_several_rows(world):
    """An event that is larger than a record may be would end every engine that publishes it."""
    for number in range(40):
        world.result(name=f"check-{number}", output="x" * 90_000)
    rows = [row for row in world.tick().rows if row.kind == "results"]
    assert max(len(row.body) for row in rows) < 1_100_000
    assert [each["name"] for row in rows for each in results_of(row.body)] == [f"check-{n}" for n in range(40)]


@pytest.mark.parametrize("status", [0, 1])
def test_a_client_has_a_bounded_number_of_checks(world, status, monkeypatch):
    for module in ("results", "fast"):
        monkeypatch.setattr(f"lockstep.monitor.core.{module}.CHECKS_MAX", 3)
    for number in range(5):
        world.result(name=f"check-{number % 4}", status=status)
    assert sorted(world.fleet.state.clients["web-1"].checks) == ["check-0", "check-1", "check-2"]
    assert [each.endswith("and check-3 is another one") for each in world.refused()] == [True]
    assert world.fleet.state.clients["web-1"].checks["check-0"].history == bytes((status, status))
    world.wait(30)
    assert "keepalive" in world.fleet.state.clients["web-1"].checks


def test_unknown_clients_and_sources_become_clients(world):
    world.result("new-1", source="switch-7", status=1)
    assert world.table["client/switch-7"] == {
        "name": "switch-7",
        "address": "unknown",
        "subscriptions": ["client:switch-7"],
        "keepalives": False,
        "version": "0.26.5",
        "timestamp": START_S,
        "type": "proxy",
        "_heard": START_S,
    }
    assert "client/new-1" not in world.table
    assert world.event("disk", "switch-7")["check"]["origin"] == "new-1"
    world.result("new-1")
    assert "type" not in world.table["client/new-1"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not an object"),
        (b'{"client":"web-1"}', "check must be an object"),
        (b'{"client":"web-1","check":{"name":"a b","status":0}}', "letters, digits"),
        (b'{"client":"web-1","check":{"name":"disk","status":"0"}}', "status '0' of check disk must be a whole number"),
        (b'{"client":"web-1","check":{"name":"disk","status":true}}', "must be a whole number"),
        (b'{"client":"web-1","check":{"name":"disk","status":0,"output":7}}', "output of check disk must be a text"),
        (b'{"client":"web-1","check":{"name":"disk","status":1e999}}', "too large"),
        (b'{"client":"web-1","check":{"name":"disk","status":NaN}}', "not JSON"),
        (b'{"client":7,"check":{"name":"disk","status":0}}', "client must be a name"),
        (b'{"client":"web-1","check":' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper"),
        (compact({"client": "web-1", "check": {"name": "disk", "extra": "x" * 100_000}}), "at most 98304 are taken"),
    ],
)
def test_what_can_not_be_taken_is_told_and_changes_nothing(world, value, words):
    world.result()
    before = world.fleet.dump_page("c/web-1")
    out = world.take(b"r:web-1", value)
    assert [row.kind for row in out.rows] == ["refused"]
    assert words in world.refused()[0]
    assert world.fleet.state.clients["web-1"].checks["disk"].history == b"\0"
    assert before is not None


@pytest.mark.parametrize("status", [0, 2])
@pytest.mark.parametrize(("text", "told"), [("\\ud800 full", "\ufffd full"), ("\\uD83D\\uDE00", "😀")])
def test_halves_of_surrogate_pairs_are_replaced(world, status, text, told):
    head = f'{{"client":"web-1","check":{{"name":"disk","status":{status},"executed":1,"output":"'
    world.take(b"r:web-1", f'{head}{text}"}}}}'.encode())
    (row,) = [row for row in world.tick().rows if row.kind == "results"]
    assert results_of(row.body)[0]["output"] == told
    assert status == 0 or world.event()["check"]["output"] == told
