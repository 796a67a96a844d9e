"""Orders and clients: registration, signatures, copies, deletion, settings, stashes; answers as of Sensu's API."""

from __future__ import annotations

import json

import pytest
from monitor_worlds import START_S, World, compact, keepalive, result

from lockstep.monitor.core.copies import DIGESTS_KEPT, redelivered

EVERY = {"handlers": {"default": {"type": "pipe"}, "registration": {"type": "pipe"}}}


@pytest.fixture
def world():
    return World(EVERY)


def answer(world, document):
    world.take(b"o:", compact(document))
    return world.table.get(f"answer/{document.get('id')}")


# Clients


def test_the_first_keepalive_is_a_registration(world):
    world.keepalive(registration={"team": "web", "status": 2, "name": "other"})
    world.keepalive()
    ((handler, check, status, action),) = world.handled()
    assert (handler, check, status, action) == ("registration", "registration", 2, "create")
    event = json.loads(world.notices[0].body)["event"]
    assert (event["check"]["output"], event["check"]["team"]) == ("new client registration", "web")
    assert (event["occurrences"], event["check"]["history"]) == (1, ["2"])
    assert world.event("registration") is None
    assert world.table["client/web-1"]["subscriptions"] == ["linux", "client:web-1"]
    assert world.table["client/web-1"]["_heard"] == START_S


def test_without_a_handler_for_it_a_registration_is_told_only_if_the_client_wants_it():
    world = World({"handlers": {"default": {"type": "pipe"}}})
    world.keepalive()
    world.keepalive("own-1", registration={"handler": "default"})
    assert [(handler, check) for handler, check, _, _ in world.handled()] == [("default", "registration")]


def test_messages_with_another_signature_are_refused(world):
    world.keepalive()
    world.keepalive(signature="s1")  # one without may begin to have one
    world.result(status=1, head={"signature": "s1"})
    assert world.event() is not None
    world.result(status=2, head={"signature": "s2"})
    world.result(status=2)
    assert world.event()["check"]["status"] == 1
    world.take(b"k:web-1", keepalive("web-1", address="9.9.9.9", signature="x"))
    assert world.table["client/web-1"]["address"] == "10.0.0.1"
    assert len(world.refused()) == 3
    assert all("signature" in each for each in world.refused())


def test_signatures_count_on_the_fast_path_too(world):
    world.keepalive(signature="s1")
    for number, signature in enumerate(("s1", "s1", "s2", "s1", ""), 1):
        world.result(head={"signature": signature, "_agent": "a", "_n": number})
    assert world.fleet.state.clients["web-1"].checks["disk"].history == bytes(3)
    assert len(world.refused()) == 2


def test_a_deleted_client_resolves_its_events_and_registers_again(world):
    world.keepalive()
    world.result(status=2, aggregate="web")
    world.result(name="cpu")
    world.tick()
    assert world.order("client-delete", client="web-1")["status"] == 202
    assert world.handled()[-1] == ("default", "disk", 0, "resolve")
    world.tick()
    left = [id_ for id_ in world.table if "web" in id_ and not id_.startswith(("why/", "transition/"))]
    assert left == []
    assert world.order("client-delete", client="web-1")["status"] == 404
    world.keepalive()
    assert [check for _, check, _, _ in world.handled()].count("registration") == 2
    assert world.fleet.state.clients["web-1"].checks == {}


def test_an_invalidated_client_is_ignored_until_its_time_is_over(world):
    world.keepalive()
    world.order("client-delete", client="web-1", invalidate=True, expire=60)
    world.keepalive()
    world.result()
    assert "client/web-1" not in world.table
    assert len(world.refused()) == 2
    world.wait(60)
    world.keepalive()
    assert "client/web-1" in world.table


def test_a_client_that_deregisters_is_deleted_unless_a_handler_does_that(world):
    world.keepalive()
    world.result(name="deregistration", status=1, handler="deregistration", output="client initiated deregistration")
    assert "client/web-1" not in world.table
    own = World({"handlers": {"deregistration": {"type": "pipe"}}})
    own.keepalive()
    own.result(name="deregistration", status=1, handler="deregistration")
    assert "client/web-1" in own.table
    assert [handler for handler, *_ in own.handled()] == ["deregistration"]


def test_nothing_is_left_of_a_deleted_client_after_an_hour(world):
    world.keepalive()
    world.order("client-delete", client="web-1")
    world.wait(30)
    assert "web-1" in world.fleet.state.clients
    world.fleet.state.clock.listened_us += 3600 * 1_000_000
    world.wait(31)
    assert "web-1" not in world.fleet.state.clients
    world.snapshot()
    assert "c/web-1" not in world.pages


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (b"k:web-1", keepalive("web-2"), "the name of the client is 'web-2'"),
        (b"k:web 1", keepalive("web 1"), "client in the key"),
        (b"k:", keepalive(""), "client in the key"),
        (b"k:web-1", compact({"name": "web-1", "subscriptions": "linux"}), "subscriptions must be a list"),
        (b"k:web-1", compact({"name": "web-1", "subscriptions": [1]}), "subscriptions must be a list"),
        (b"k:web-1", compact({"name": "web-1", "signature": 7}), "signature must be a text"),
        (b"x:web-1", b"{}", "the key must begin with"),
        (b"", b"{}", "the key must begin with"),
        (b"\xff\xfe", b"{}", "the key must begin with"),
        (b"o:", b'{"order":"silence"}', "an order needs an id"),
        (b"o:", b"null", "not an object"),
    ],
)
def test_bad_messages(world, key, value, words):
    out = world.take(key, value)
    assert [row.kind for row in out.rows] == ["refused"]
    assert words in world.refused()[0]


def test_what_was_refused_is_kept_for_a_thousand(world):
    for _ in range(1005):
        world.take(b"x", b"{}")
    assert len(world.refused()) == 1000
    assert world.fleet.state.counters["refused"] == 1005


# Copies


def test_copies_are_known_by_the_number_of_their_agent_also_after_a_restart(world):
    world.keepalive()
    for number in (1, 2, 2, 1, 3):
        world.result(head={"_agent": "a", "_n": number})
        world.restart()
    world.result(head={"_agent": "b", "_n": 1})  # the agent was started again
    world.result(status=1, head={"_agent": "a", "_n": 2})
    world.result(status=1, head={"_agent": "a", "_n": 4})
    world.tick()
    assert world.fleet.state.counters["copies"] == 3
    assert world.table["results/web-1"][0]["history"] == [0, 0, 0, 0, 1]
    assert world.event()["occurrences"] == 1


def test_an_agent_that_many_others_came_after_is_begun_anew(world):
    world.keepalive()
    for number in (1, 2, 3):
        world.result(head={"_agent": "first", "_n": number})
    for number in range(20):
        world.result(head={"_agent": f"a{number}", "_n": 1})
    world.result(head={"_agent": "first", "_n": 4})
    world.result(head={"_agent": "first", "_n": 4})
    assert world.fleet.state.counters["copies"] == 1
    assert len(world.fleet.state.clients["web-1"].agents) == 16


def test_numbers_that_are_not_written_as_agents_write_them_are_no_numbers(world):
    world.keepalive()
    for number in (1, 2):
        world.result(head={"_agent": "a", "_n": number})
    for text in ("03", "1_0", " 3", "3.0", "+3"):
        value = result(head={"_agent": "a", "_n": 1}).replace(b'"_n":1', b'"_n":' + text.encode())
        world.take(b"r:web-1", value)
    assert world.fleet.state.clients["web-1"].agents == {"a": 3}  # " 3" is JSON


def test_messages_without_numbers_are_copies_if_they_were_delivered_again_and_are_among_the_last(world):
    world.keepalive()
    first = result()
    world.take(b"r:web-1", first)
    world.take(b"r:web-1", first)  # the same again, and not marked: two results may be equal
    world.take(b"r:web-1", redelivered(first))
    world.take(b"r:web-1", compact({**json.loads(first), "_redelivered": True}))
    assert world.fleet.state.counters["copies"] == 2
    for number in range(DIGESTS_KEPT + 1):
        world.result(output=str(number))
    world.take(b"r:web-1", redelivered(first))
    assert world.fleet.state.counters["copies"] == 2
    world.take(b"k:web-1", redelivered(keepalive()))
    world.take(b"k:web-1", redelivered(keepalive()))
    assert world.fleet.state.counters["copies"] == 3


def test_all_that_a_killed_server_had_in_its_hands_of_a_client_counts_once(world):
    in_hands = [result(output=str(number)) for number in range(DIGESTS_KEPT)]
    for value in in_hands:
        world.take(b"r:web-1", value)
    world.restart()
    for value in in_hands:
        world.take(b"r:web-1", redelivered(value))
    assert world.fleet.state.counters["copies"] == DIGESTS_KEPT


def test_an_order_that_comes_again_is_left_alone(world):
    order = {"order": "silence", "id": "one", "entry": {"subscription": "linux"}}
    assert answer(world, order)["status"] == 201
    world.order("silence-clear", entry={"id": "linux:*"})
    world.restart()
    world.take(b"o:", compact(order))
    assert "silence/linux:*" not in world.table


# Other orders


@pytest.mark.parametrize(
    ("order", "status"),
    [
        ({"order": "dance"}, 400),
        ({"order": 7}, 400),
        ({"order": "settings", "settings": 1}, 400),
        ({"order": "settings", "settings": {"checks": []}}, 400),
        ({"order": "settings", "settings": {"handlers": {"a": 1}}}, 400),
        ({"order": "silence"}, 400),
        ({"order": "silence", "entry": {}}, 400),
        ({"order": "silence", "entry": {"check": "a", "expire": 0}}, 400),
        ({"order": "silence", "entry": {"check": "a", "expire": "5"}}, 400),
        ({"order": "silence", "entry": {"check": "a", "reason": 5}}, 400),
        ({"order": "silence", "entry": {"match": {"a": 1}, "id": "x"}}, 400),
        ({"order": "silence", "entry": {"match": {"a": "b"}}}, 400),
        ({"order": "silence", "entry": {"check": "a", "planned": 1}}, 400),
        ({"order": "silence-clear"}, 400),
        ({"order": "silence-clear", "entry": {}}, 400),
        ({"order": "silence-clear", "entry": {"id": 7}}, 404),
        ({"order": "silence-clear", "entry": {"id": "no"}}, 404),
        ({"order": "silence-clear", "entry": {"subscription": "no", "check": "no"}}, 404),
        ({"order": "resolve", "client": "web-1"}, 400),
        ({"order": "resolve", "client": "web-1", "check": "disk"}, 404),
        ({"order": "client", "client": {"name": "a b", "subscriptions": []}}, 400),
        ({"order": "client", "client": {"name": "a"}}, 400),
        ({"order": "client", "client": {"name": "a", "subscriptions": ["x"]}}, 201),
        ({"order": "client-delete", "client": "no"}, 404),
        ({"order": "result-delete", "client": "web-1", "check": "disk"}, 404),
        ({"order": "aggregate-delete"}, 400),
        ({"order": "check-delete", "check": "no"}, 404),
        ({"order": "request", "check": "no"}, 404),
        ({"order": "request", "check": "no", "subscribers": "x"}, 400),
        ({"order": "stash", "path": "a/b", "content": {"x": 1}}, 201),
        ({"order": "stash", "path": "", "content": {}}, 400),
        ({"order": "stash", "path": "a", "content": 1}, 400),
        ({"order": "stash", "path": "a", "content": {}, "expire": -1}, 400),
        ({"order": "stash-delete", "path": "no"}, 404),
        ({"order": "health", "check": {"name": "dead-letters", "status": 1, "output": "3 dead letters"}}, 202),
        ({"order": "health", "check": {"name": 1}}, 400),
    ],
)
def test_answers(world, order, status):
    found = answer(world, {**order, "id": "one"})
    assert found["status"] == status
    assert ("error" in (found["body"] or {})) is (status == 400)


def test_settings_in_force_are_told_without_secrets(world):
    settings = {"handlers": {"default": {"type": "pipe"}}, "checks": {"c": {"command": "x", "password": "s3cret"}}}
    world.order("settings", settings=settings, digest="d2", by="ann")
    told = world.table["settings"]
    assert (told["digest"], told["by"], told["settings"]["checks"]["c"]["password"]) == ("d2", "ann", "REDACTED")


def test_settings_change_what_a_result_gets_from_the_next_one_on(world):
    world.keepalive()
    checks = {"disk": {"team": "a", "command": "x"}}
    for team in ("a", "b"):
        checks["disk"]["team"] = team
        world.order("settings", settings={**EVERY, "checks": checks}, digest=team)
        for _ in range(2):
            world.result()
        world.restart()
        world.tick()
        assert world.table["results/web-1"][0]["team"] == team


def test_a_client_by_order_sends_no_keepalives(world):
    world.order("client", client={"name": "router-1", "subscriptions": ["net"], "address": "10.1.1.1"})
    row = world.table["client/router-1"]
    assert (row["keepalives"], row["version"], row["timestamp"]) == (False, "0.26.5", START_S)


def test_a_request_by_order_goes_to_the_subscribers_it_names_and_says_who_asked():
    world = World({**EVERY, "checks": {"disk": {"command": "df", "subscribers": ["linux"], "interval": 3600}}})
    assert world.order("request", check="disk", subscribers=["client:a"], creator="ann", reason="why")["status"] == 202
    assert world.order("request", check="disk")["status"] == 202
    (key, request), (other, _) = world.requests()
    assert (key, other) == ("client:a", "linux")
    assert request["api_requested"] == {"reason": "why", "creator": "ann"}
    assert len({notice.id for notice in world.notices}) == 2


@pytest.mark.parametrize("flags", [{"interval": 3600}, {"publish": False}])
def test_a_request_by_order_of_a_check_with_proxies_goes_out_for_each_at_once(flags):
    proxy = {"client_attributes": {"kind": "switch"}, "splay": True}
    check = {"command": "ping :::address:::", "subscribers": ["net"], "proxy_requests": proxy, **flags}
    world = World({**EVERY, "checks": {"ping": check}})
    for number in (1, 2):
        world.keepalive(f"sw-{number}", kind="switch", address=f"10.1.0.{number}")
    for subscribers in (None, ["client:a"]):
        world.order("request", check="ping", subscribers=subscribers, creator="ann", reason=":::none:::")
    found = [(key, made["source"], made["command"]) for key, made in world.requests()]
    assert found == [
        ("net", "sw-1", "ping 10.1.0.1"),
        ("net", "sw-2", "ping 10.1.0.2"),
        ("client:a", "sw-1", "ping 10.1.0.1"),
        ("client:a", "sw-2", "ping 10.1.0.2"),
    ]
    assert all(made["api_requested"] == {"creator": "ann", "reason": ":::none:::"} for _, made in world.requests())
    assert len({notice.id for notice in world.notices if notice.kind == "request"}) == 4


def test_check_delete_takes_all_results_and_events_of_a_check(world):
    for name in ("a-1", "b-1"):
        world.keepalive(name)
        world.result(name, status=2)
        world.result(name, "cpu")
    assert world.order("check-delete", check="disk")["status"] == 202
    world.tick()
    assert world.event("disk", "a-1") is None
    assert {"name": "disk", "_deleted": True} in world.table["results/a-1"]
    assert world.fleet.state.open == {}


def test_stashes_expire(world):
    world.order("stash", path="a", content={"x": 1}, expire=5)
    world.order("stash", path="b", content={"x": 2})
    world.wait(5)
    assert [id_ for id_ in world.table if id_.startswith("stash/")] == ["stash/b"]
    assert world.order("stash-delete", path="b")["status"] == 204
    assert "stash/b" not in world.table


def test_a_servers_health_is_an_event_of_the_monitors_own_client(world):
    world.order("health", check={"name": "dead-letters", "status": 2, "output": "3 dead letters"})
    assert world.event("dead-letters", "lockstep")["check"]["output"] == "3 dead letters"
    world.order("health", check={"name": "dead-letters"})
    assert world.event("dead-letters", "lockstep") is None


def test_an_event_that_is_too_large_for_a_notice_is_shortened():
    world = World(EVERY)
    world.keepalive(note="n" * 90_000)
    world.take(b"r:web-1", result(status=2, output="\x01" * 12_000, note="ü" * 5_000))
    world.order("settings", settings={**EVERY, "checks": {"big": {"note": "x" * 200_000}}}, digest="2")
    world.take(b"r:web-1", result(name="big", status=2, output="o" * 50_000))
    assert all(len(notice.body) < 250_000 for notice in world.notices)
    body = json.loads(world.notices[-1].body)
    assert body["event"]["shortened"]
    assert body["event"]["check"]["output"] == "o" * 10_000


def test_names_that_no_bus_takes_as_an_id_are_told_by_their_digest():
    handler = "h" * 600
    world = World({"handlers": {handler: {"type": "pipe"}, "a\nb": {"type": "pipe"}}})
    world.result(status=1, handlers=[handler, "a\nb"])
    assert [len(notice.id) for notice in world.notices] == [32, 32]
    assert all(len(notice.key.encode()) <= 512 for notice in world.notices)


def test_a_request_that_is_too_large_for_a_notice_is_refused_and_stops_nothing():
    check = {"command": "x" * 300_000, "subscribers": ["linux"], "interval": 3600}
    world = World({**EVERY, "checks": {"big": check, "small": {**check, "command": "x"}}})
    assert world.order("request", check="big")["status"] == 202
    world.order("request", check="small")
    assert [request["name"] for _, request in world.requests()] == ["small"]
    assert "too large to be carried out" in world.refused()[0]
