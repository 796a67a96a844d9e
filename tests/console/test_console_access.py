"""Who may do what: roles, scopes, expiry, rotation, revocation, sessions, forged forms, and the audit log."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.console.credentials import SESSIONS, TOKENS, CredentialStore
from lockstep.console.errors import CredentialNotFound
from lockstep.console.limits import CHANGES, SIGN_INS, RateLimits
from lockstep.server.access import EVERYWHERE, Credential, Credentials, Principal, Role, digest

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN


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


def form_token(world: ConsoleWorld, path: str, cookie: str) -> str:
    page = world.get(path, cookie=cookie, accept="text/html")
    return re.search(r'name="_form" value="(\w+)"', page.text)[1]


def codes(world: ConsoleWorld, token: str | None) -> list[int]:
    """Of looking, of a change, and of something that destroys."""
    delete = {"confirm": "orders", "dry_run": True}
    return [
        world.get("/api/v1/streams", token).status,
        world.post("/api/v1/streams/orders/publish", {"value": "x"}, token).status,
        world.post("/api/v1/streams/orders/delete", delete, token).status,
    ]


def test_a_role_may_do_what_it_says_and_no_more(world):
    assert codes(world, None) == [200, 401, 401]
    assert codes(world, world.token(VIEWER)) == [200, 403, 403]
    assert codes(world, world.token(OPERATOR)) == [200, 200, 403]
    assert codes(world, world.token(ADMIN)) == [200, 200, 200]
    assert codes(world, "lockstep_wrong") == [401, 401, 401]


def test_a_scope_bounds_a_token_to_its_areas(world):
    assert codes(world, world.token(ADMIN, "groups")) == [403, 403, 403]
    assert codes(world, world.token(ADMIN, "groups", "streams")) == [200, 200, 200]


def test_off_loopback_nobody_looks_without_a_token(client):
    world = ConsoleWorld(client, anonymous=False)
    assert codes(world, None) == [401, 401, 401]
    assert world.get("/streams", accept="text/html").headers["location"] == "/sign-in"
    assert codes(world, world.token(VIEWER))[0] == 200
    world.close()


def test_a_token_that_is_revoked_or_rotated_is_refused_by_every_server(world, client):
    other = ConsoleWorld(client)
    token = world.token(OPERATOR)
    [id_] = world.secrets
    assert other.get("/api/v1/streams", token).status == 200
    _, secret = world.credentials.rotate(id_)
    other.credentials._followed = float("-inf")  # half a second later
    assert (other.get("/api/v1/streams", token).status, other.get("/api/v1/streams", secret).status) == (401, 200)
    world.credentials.revoke(id_)
    other.credentials._followed = float("-inf")
    assert other.get("/api/v1/streams", secret).status == 401
    with pytest.raises(CredentialNotFound):
        world.credentials.revoke(id_)
    other.close()


def test_a_token_ends_when_it_expires(client):
    world = ConsoleWorld(client)
    _, secret = world.credentials.issue("short", VIEWER, lifetime_s=0.0)
    assert world.get("/api/v1/streams", secret).status == 401
    world.close()


def test_no_secret_is_on_the_bus_nor_in_an_answer(world, client):
    token, session = world.token(ADMIN), None
    session = world.sign_in(token).partition("=")[2]
    stored = b"".join(
        value for name in (TOKENS, SESSIONS) for batch in [read_all(client, name)] for value in batch
    )  # fmt: skip
    assert digest(token).encode() in stored
    assert token.encode() not in stored
    assert session.encode() not in stored
    assert digest(token) not in world.get("/api/v1/access", token).text


def read_all(client, name: str) -> list[bytes]:
    with client.subscriber(name, initial="earliest", create=False) as subscriber:
        return subscriber.poll(1.0).values()


def test_a_session_changes_with_the_forms_of_its_pages_alone(world):
    cookie = world.sign_in(world.token(ADMIN))
    path, fields = "/streams/orders/publish", {"value": "hello", "_step": "run"}
    assert world.form(path, fields, cookie).status == 403, "a form of somebody else"
    assert world.form(path, {**fields, "_form": "0" * 64}, cookie).status == 403
    assert world.post("/api/v1/streams/orders/publish", {"value": "x"}).status == 401
    forged = world.ask("POST", "/api/v1/streams/orders/publish", headers={"cookie": cookie}, body=b'{"value": "x"}')
    assert forged.status == 401, "a request that a page of somebody else had the browser send"
    own = {**fields, "_form": form_token(world, path, cookie)}
    assert world.form(path, own, cookie).headers["location"] == "/streams/orders/records"
    assert world.client.bounds("orders").next == 1


def test_what_destroys_is_previewed_and_confirmed_by_name(world):
    cookie = world.sign_in(world.token(ADMIN))
    path = "/streams/orders/delete"
    token = form_token(world, path, cookie)
    preview = world.form(path, {"_form": token, "_step": "preview"}, cookie)
    assert "0 records are removed for good" in preview.text
    assert world.form(path, {"_form": token, "_step": "run", "confirm": "order"}, cookie).status == 422
    assert "orders" in world.client.streams()
    assert world.form(path, {"_form": token, "_step": "run", "confirm": "orders"}, cookie).status == 303
    assert "orders" not in world.client.streams()


def test_a_session_ends_by_signing_out_and_with_its_token(world):
    token = world.token(OPERATOR)
    [id_] = world.secrets
    first, second = world.sign_in(token), world.sign_in(token)
    assert "operator-0" in world.get("/streams", cookie=first, accept="text/html").text
    world.form("/sign-out", {"_form": form_token(world, "/streams/orders/publish", first)}, first)
    assert "operator-0" not in world.get("/streams", cookie=first, accept="text/html").text
    world.credentials.revoke(id_)
    assert "operator-0" not in world.get("/streams", cookie=second, accept="text/html").text


def test_each_change_is_noted_before_and_after_it(world):
    token = world.token(OPERATOR)
    world.post("/api/v1/streams/orders/publish", {"value": "hello"}, token)
    world.post("/api/v1/streams/gone/publish", {"value": "hello"}, token)
    world.post("/api/v1/streams/orders/delete", {"confirm": "orders"}, token)
    rows = world.audit.rows()[::-1]
    told = [(row["what"], row["path"], row["outcome"]) for row in rows]
    assert told == [
        ("Publish", "/streams/orders/publish", "begun"),
        ("Publish", "/streams/orders/publish", "done"),
        ("Publish", "/streams/gone/publish", "refused"),
        ("POST", "/api/v1/streams/orders/delete", "refused"),
    ]
    assert {row["who"] for row in rows} == {"operator-0"}
    assert {row["from"] for row in rows} == {"127.0.0.1"}
    assert rows[1]["more"] == {"offsets": [0]}


def test_secrets_of_fields_are_not_in_the_audit_log(world):
    token = world.token(ADMIN)
    made = world.post("/api/v1/access/add", {"name": "bob", "role": "viewer"}, token).tree
    assert world.get("/api/v1/streams", made["shown_once"]).status == 200
    assert made["shown_once"] not in str(world.audit.rows())


def test_who_asks_too_often_is_told_to_wait(world, monkeypatch):
    clock_stands_still = RateLimits(lambda: 0.0)  # a slow machine would give new permits while it asks
    monkeypatch.setattr(world.app._callers, "_limits", clock_stands_still)
    token = world.token(VIEWER)
    statuses = [world.post("/api/v1/streams/orders/publish", {}, token).status for _ in range(CHANGES.burst + 5)]
    assert 429 in statuses
    assert world.get("/api/v1/streams", world.token(VIEWER)).status == 200, "others go on"
    tries = [world.form("/sign-in", {"token": "x"}).status for _ in range(SIGN_INS.burst + 2)]
    assert tries[-1] == 429


def test_a_credential_survives_being_stored():
    known = Credential(id="1", name="ada", role=ADMIN, digest="d", created_ms=1, expires_ms=2, scope=("streams",))
    assert Credential.load(known.dump()) == known
    assert not known.is_valid(2)
    assert known.is_valid(1)
    credentials = Credentials()
    credentials.put(known)
    credentials.drop_expired(2)
    assert credentials.by_id == {}


def test_everywhere_is_everywhere():
    assert Principal("ada", ADMIN, (EVERYWHERE,)).may(ADMIN, "streams")
    assert not Principal("ada", VIEWER, (EVERYWHERE,)).may(OPERATOR, "streams")


def test_tokens_are_bounded_in_number(client, monkeypatch):
    monkeypatch.setattr("lockstep.console.credentials.TOKENS_MAX", 2)
    store = CredentialStore(client, client.runtime)
    store.issue("a", VIEWER)
    store.issue("b", VIEWER)
    with pytest.raises(lockstep.errors.BadArgument):
        store.issue("c", VIEWER)
    store.close()
