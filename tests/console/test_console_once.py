"""A confirmation that is sent twice is carried out once, whichever servers it goes to."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.console import audit
from lockstep.console.audit import STREAM, AuditLog
from lockstep.server.access import Role


@pytest.fixture
def client():
    with lockstep.connect("memory:") as client:
        client.create("orders")
        yield client


@pytest.fixture
def servers(client):
    made = [ConsoleWorld(client), ConsoleWorld(client)]
    yield made
    for each in made:
        each.close()


def hidden(page: str) -> dict[str, str]:
    """The fields of a form that its page filled in."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


def previewed(server: ConsoleWorld, cookie: str, path: str, **fields: str) -> dict[str, str]:
    form = hidden(server.ask("GET", path, headers={"cookie": cookie, "accept": "text/html"}).text)
    page = server.form(path, {**form, **fields}, cookie)
    assert page.status == 200, page.text
    return {**hidden(page.text), **fields}


def test_what_one_server_previewed_another_one_carries_out_once(client, servers):
    first, second = servers
    cookie = first.sign_in(first.token(Role.OPERATOR))
    fields = previewed(first, cookie, "/streams/orders/publish", value="x", count="2")
    for server in (second, second, first):
        answer = server.form("/streams/orders/publish", fields, cookie)
        assert (answer.status, answer.headers["location"]) == (303, "/streams/orders/records")
    assert client.bounds("orders").next == 2
    again = previewed(second, cookie, "/streams/orders/publish", value="x", count="2")
    assert second.form("/streams/orders/publish", again, cookie).status == 303
    assert client.bounds("orders").next == 4, "a new preview is another act"


def test_two_confirmations_at_the_same_moment_are_one(client, servers):
    cookie = servers[0].sign_in(servers[0].token(Role.OPERATOR))
    fields = previewed(servers[0], cookie, "/streams/orders/publish", value="x", count="1")
    together = threading.Barrier(4)
    statuses = []

    def confirm(server: ConsoleWorld) -> None:
        together.wait(10)
        statuses.append(server.form("/streams/orders/publish", fields, cookie).status)

    threads = [threading.Thread(target=confirm, args=(server,)) for server in servers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert client.bounds("orders").next == 1
    assert set(statuses) <= {303, 409}, "done, or begun by another and not ended yet"
    assert statuses.count(303) >= 1


def test_a_stream_that_is_deleted_twice_leads_to_the_same_page(client, servers):
    cookie = servers[0].sign_in(servers[0].token(Role.ADMIN))
    fields = {**previewed(servers[0], cookie, "/streams/orders/delete"), "confirm": "orders"}
    for server in servers:
        answer = server.form("/streams/orders/delete", fields, cookie)
        assert (answer.status, answer.headers.get("location")) == (303, "/streams")


def test_rest_has_the_same_with_an_idempotency_key(client, servers):
    token = servers[0].token(Role.OPERATOR)
    other = servers[0].token(Role.OPERATOR)

    def publish(server, key, bearer):
        return server.ask("POST", "/api/v1/streams/orders/publish", token=bearer, body=b'{"value": "x"}',
                          headers={"idempotency-key": key})  # fmt: skip

    assert publish(servers[0], "k1", token).status == 200
    refused = publish(servers[1], "k1", token)
    assert (refused.status, refused.tree["error"]["code"]) == (409, "ACT_REPEATED")
    assert "done" in refused.tree["error"]["message"]
    assert publish(servers[1], "k2", token).status == 200
    assert publish(servers[1], "k1", other).status == 200, "keys of another caller are others"
    assert client.bounds("orders").next == 3


def test_a_file_may_be_made_again_with_the_same_form(servers):
    cookie = servers[0].sign_in(servers[0].token(Role.ADMIN))
    fields = previewed(servers[0], cookie, "/debug/bundle")
    for server in servers:
        made = server.form("/debug/bundle", fields, cookie)
        assert (made.status, made.headers["content-type"]) == (200, "application/gzip")


def test_what_a_killed_server_began_is_not_done_again(client, servers, monkeypatch):
    token = servers[0].token(Role.OPERATOR)
    monkeypatch.setattr(AuditLog, "ended", lambda *_: None)  # it ends before it can tell

    def publish(server):
        return server.ask("POST", "/api/v1/streams/orders/publish", token=token, body=b'{"value": "x"}',
                          headers={"idempotency-key": "k"})  # fmt: skip

    publish(servers[0])
    refused = publish(servers[1])
    assert refused.status == 409
    assert "not known yet" in refused.tree["error"]["message"]
    assert client.bounds("orders").next == 1


def test_a_server_that_starts_reads_the_newest_records_of_the_audit_log_alone(client, servers, monkeypatch):
    monkeypatch.setattr(audit, "KEPT_ROWS", 20)
    token = servers[0].token(Role.OPERATOR)
    for number in range(30):
        servers[0].post("/api/v1/streams/orders/publish", {"value": f"v{number}"}, token)
    taken = []
    take = AuditLog._take
    monkeypatch.setattr(AuditLog, "_take", lambda log, record: (taken.append(record), take(log, record)))
    late = AuditLog(client, client.runtime, "late")
    rows = late.rows()
    assert len(taken) <= 20
    assert client.bounds(STREAM).next >= 60
    assert len(rows) == 20
    assert rows[0]["outcome"] == "done"
    late.close()


def test_a_session_that_one_server_has_just_begun_is_known_to_the_other(client, servers):
    first, second = servers
    token = first.token(Role.OPERATOR)
    assert second.get("/api/v1/streams", token).status == 200  # it has just read what there is
    cookie = first.sign_in(token)
    page = second.ask("GET", "/streams/orders/publish", headers={"cookie": cookie, "accept": "text/html"})
    assert page.status == 200
    late = first.token(Role.OPERATOR)
    assert second.get("/api/v1/streams", late).status == 200
