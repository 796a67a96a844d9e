"""What goes wrong while somebody looks or acts: streams vanish, tokens expire, roles may not, values are odd."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from urllib.parse import urlencode

import msgpack
import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.console.assembly import opened_parts
from lockstep.console.credentials import FRESH_S, CredentialStore
from lockstep.console.records import value_text
from lockstep.server.access import Role

DAY_MS = 86_400_000


@pytest.fixture
def client():
    with lockstep.connect("memory:") as client:
        client.create("orders")
        yield client


@pytest.fixture
def world(client):
    world = ConsoleWorld(client)
    yield world
    world.close()


def form_of(world: ConsoleWorld, path: str, cookie: str) -> str:
    return re.search(r'name="_form" value="(\w+)"', world.get(path, cookie=cookie, accept="text/html").text)[1]


def a_day_later(monkeypatch, world: ConsoleWorld) -> None:
    later = world.credentials.now_ms + DAY_MS
    monkeypatch.setattr(CredentialStore, "now_ms", property(lambda _store: later))
    world.credentials._followed -= FRESH_S


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_token_that_expires_between_preview_and_confirmation_changes_nothing(client, monkeypatch, anonymous):
    world = ConsoleWorld(client, anonymous=anonymous)
    secret = world.credentials.issue("ada", Role.ADMIN, (), 3600.0)[1]
    cookie, path = world.sign_in(secret), "/streams/orders/delete"
    form = form_of(world, path, cookie)
    assert world.form(path, {"_form": form, "_step": "preview"}, cookie).status == 200
    a_day_later(monkeypatch, world)
    answer = world.form(path, {"_form": form, "_step": "run", "confirm": "orders"}, cookie)
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in")
    assert world.post(f"/api/v1{path}", {"confirm": "orders"}, secret).status == 401
    assert "orders" in client.streams()
    assert "begun" not in {row["outcome"] for row in world.audit.rows() if row["what"] == "Delete"}
    world.close()


def test_a_token_that_is_revoked_between_preview_and_confirmation_changes_nothing(world, client):
    made, secret = world.credentials.issue("ada", Role.ADMIN)
    cookie, path = world.sign_in(secret), "/streams/orders/delete"
    form = form_of(world, path, cookie)
    world.credentials.revoke(made.id)
    assert world.form(path, {"_form": form, "_step": "run", "confirm": "orders"}, cookie).status == 303
    assert "orders" in client.streams()


def test_a_stream_that_vanishes_between_preview_and_confirmation_is_not_found_and_noted(world, client):
    cookie, path = world.sign_in(world.token(Role.ADMIN)), "/streams/orders/trim"
    form = form_of(world, path, cookie)
    assert world.form(path, {"_form": form, "before": "1"}, cookie).status == 200
    client.delete("orders")
    answer = world.form(path, {"_form": form, "before": "1", "_step": "run", "confirm": "orders"}, cookie)
    assert (answer.status, "STREAM_NOT_FOUND" in answer.text) == (404, True)
    assert (world.audit.rows()[0]["what"], world.audit.rows()[0]["outcome"]) == ("Trim", "refused")


async def live_events(world: ConsoleWorld, path: str, between) -> list[str]:
    """The first event of a page, and the next one after something was done in between."""
    world.app.live._every_s = 0.01
    found: list[str] = []
    done = asyncio.Event()

    async def receive():
        if waiting:
            return waiting.pop()
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        text = message.get("body", b"").decode()
        if text and "event: same" not in text:
            found.append(text)
            if len(found) == 1:
                await asyncio.to_thread(between)
            else:
                done.set()

    waiting = [{"type": "http.request", "body": b"", "more_body": False}]
    scope = {"type": "http", "method": "GET", "path": "/live", "raw_path": b"/live", "client": ("127.0.0.1", 1),
             "query_string": urlencode({"path": path}).encode(), "headers": [(b"host", b"127.0.0.1")]}  # fmt: skip
    async with asyncio.timeout(20):
        await world.app(scope, receive, send)
    return found


@pytest.mark.parametrize("path", ["/streams/orders", "/streams/orders/records"])
def test_a_stream_that_is_deleted_while_its_page_is_live_is_told_on_the_page(world, client, path):
    first, second = asyncio.run(live_events(world, path, lambda: client.delete("orders")))
    assert "event: content" in first
    assert "event: stale" in second
    assert "STREAM_NOT_FOUND" in second


def test_a_stream_that_is_deleted_while_a_list_is_live_leaves_the_list(world, client):
    first, second = asyncio.run(live_events(world, "/streams", lambda: client.delete("orders")))
    assert ("/streams/orders" in first, "/streams/orders" in second) == (True, False)
    assert "event: content" in second


@pytest.mark.slow
def test_no_act_is_done_for_a_role_that_may_not(client, tmp_path):
    with opened_parts(client, "local", tmp_path) as parts:
        pillars = [pillar for pillar in parts.pillars if pillar.name != "streams"]
        world = ConsoleWorld(client, pillars=pillars)
        for act in world.app._acts.values():
            path = re.sub(r"\{\w+\}", "orders", act.path)
            lower = Role(act.role - 1)
            elsewhere = world.token(Role.ADMIN, "nowhere")
            asked = [world.post(f"/api/v1{path}", {}, token).status for token in (None, world.token(lower), elsewhere)]
            assert asked == [401, 403, 403], act.path
            world.app._callers._limits._buckets.clear()
        assert {row["outcome"] for row in world.audit.rows()} == {"refused"}
        world.close()


@pytest.mark.parametrize(
    "value", [{b"a": 1}, {None: 1, True: 2, 1.5: 3}, {msgpack.Timestamp(1, 2): msgpack.ExtType(5, b"x")}, [b"\xff"]]
)
def test_msgpack_of_any_keys_is_shown(value):
    text, form = value_text(msgpack.packb(value), "auto")
    assert (form, bool(text)) == ("msgpack", True)


def test_a_record_that_no_form_fits_is_shown_as_bytes_and_the_page_goes_on(world, client):
    odd = (b"\x91" * 600 + b"\x01", b"[" * 900 + b"]" * 900, rb'"\ud800"', b"9" * 6000, b"\xc1", b"", b"\xef\xbb\xbf{}")
    with client.publisher("orders") as publisher:
        publisher.publish_many([*odd, msgpack.packb({b"\xff": [{b"\xfe": 1}]})])
    for form in ("auto", "json", "msgpack", "text", "hex"):
        for path in ("/streams/orders/records", "/api/v1/streams/orders/records"):
            assert world.get(f"{path}?form={form}", accept="text/html").status == 200


def test_one_request_publishes_a_bounded_number_of_bytes(world, client):
    fields = {"value": "x" * (1 << 20), "count": 17}
    answer = world.post("/api/v1/streams/orders/publish", fields, world.token(Role.OPERATOR))
    assert (answer.status, "16,777,216" in answer.text) == (422, True)
    assert client.bounds("orders").next == 0


@pytest.mark.parametrize("given", ["ä", "\ud800", "0" * 10_000, "💥", ""])
def test_a_form_with_an_odd_token_is_refused(world, given):
    cookie = world.sign_in(world.token(Role.ADMIN))
    fields = {"_form": given.encode("utf-8", "replace").decode(), "_step": "run", "value": "x"}
    assert world.form("/streams/orders/publish", fields, cookie).status == 403
