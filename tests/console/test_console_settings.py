"""Settings and debug bundles: what they show, to whom, within which bounds, and what the audit log keeps of them."""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.cli.main import main
from lockstep.console.bundle import PARTS, BundleLimits, bundle_of
from lockstep.console.server import Console, ConsoleOptions
from lockstep.server.access import Role
from lockstep.streams.admin import Groups

SECRET = "tell-nobody"


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


def unpacked(data: bytes) -> dict[str, object]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {Path(each.name).name: json.load(archive.extractfile(each)) for each in archive}


def test_settings_say_how_the_server_runs_and_who_asks(world):
    tree = world.get("/api/v1/settings").tree
    assert (tree["me"]["name"], tree["me"]["role"], tree["me"]["token"]) == ("anonymous", "viewer", None)
    made, secret = world.credentials.issue("ada", Role.OPERATOR, ("settings", "streams"), 3600.0)
    me = world.get("/api/v1/settings", secret).tree["me"]
    assert (me["name"], me["role"], me["scope"]) == ("ada", "operator", ["settings", "streams"])
    assert (me["token"], me["token_expires_ms"], me["by"]) == (made.id, made.expires_ms, "a token")
    text = json.dumps(world.get("/api/v1/settings", secret).tree)
    assert secret not in text
    assert made.digest not in text


def test_settings_tell_when_a_session_ends(world):
    made, secret = world.credentials.issue("ada", Role.VIEWER, (), 3600.0)
    page = world.get("/settings", cookie=world.sign_in(secret), accept="text/html").text
    assert "session expires" in page
    assert "a session" in page
    assert made.id in page


def test_settings_link_to_access_and_audit_for_those_who_may(world):
    admin, viewer = world.token(Role.ADMIN), world.token(Role.VIEWER)
    pages = [world.get("/settings", token, accept="text/html").text for token in (admin, viewer)]
    assert [('href="/access"' in page, 'href="/audit"' in page) for page in pages] == [(True, True), (False, False)]


def test_settings_of_a_real_server_have_its_address_its_limits_and_what_is_missing(client, capfd, monkeypatch):
    options = ConsoleOptions(state="here", left_out=("Projects are left out.",))
    with Console(client, options) as console:
        monkeypatch.setenv("LOCKSTEP_TOKEN", console.credentials.issue("ada", Role.ADMIN)[1])
        assert main(["settings", "--server", console.url, "--json"]) == 0
        out = capfd.readouterr().out
        tree = json.loads(out)
        assert tree["server"]["listens on"] == console.url.removeprefix("http://")
        assert tree["server"]["state folder"] == "here"
        assert tree["left_out"] == ["Projects are left out."]
        assert tree["limits"]["bytes of a request"] == 16 << 20
        assert tree["me"]["name"] == "ada"
        assert {row["extra"] for row in tree["extras"]} >= {"engine", "monitor", "kafka"}
        assert main(["settings", "--server", console.url]) == 0
        shown = capfd.readouterr().out
        assert re.search(r"listens on +127\.0\.0\.1:", shown)
        monkeypatch.setenv("LOCKSTEP_TOKEN", "wrong")
        assert main(["settings", "--server", console.url]) == 5
        assert "SERVER_DENIED" in capfd.readouterr().err
    assert main(["settings", "--server", console.url]) == 6
    assert main(["settings", "--server", "somewhere"]) == 2


def test_only_admins_make_bundles_and_each_is_in_the_audit_log(world):
    path = "/api/v1/debug/bundle"
    assert [world.post(path, {}, world.token(role)).status for role in (Role.VIEWER, Role.OPERATOR)] == [403, 403]
    assert world.post(path, {}).status == 401
    answer = world.post(path, {}, world.token(Role.ADMIN))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/gzip"
    assert answer.headers["content-disposition"] == 'attachment; filename="lockstep-debug.tar.gz"'
    assert unpacked(answer.body).keys() == PARTS.keys()
    done, begun = world.audit.rows()[:2]
    assert (begun["what"], begun["outcome"], done["outcome"]) == ("Make a bundle", "begun", "done")
    assert done["more"]["bytes"] == len(answer.body)


def test_a_bundle_is_downloaded_with_the_form_of_its_page(world):
    cookie = world.sign_in(world.token(Role.ADMIN))
    page = world.get("/debug/bundle", cookie=cookie, accept="text/html").text
    form = re.search(r'name="_form" value="(\w+)"', page)[1]
    assert "nothing is changed" in world.form("/debug/bundle", {"_form": form}, cookie).text
    answer = world.form("/debug/bundle", {"_form": form, "_step": "run"}, cookie)
    assert "orders" in {row["name"] for row in unpacked(answer.body)["streams.json"]}
    assert 'href="/debug/bundle"' in world.get("/debug", cookie=cookie, accept="text/html").text


def test_a_bundle_has_no_secret_and_no_payload(client):
    with client.publisher("orders") as publisher:
        publisher.publish(SECRET.encode(), key=SECRET.encode(), headers={"h": SECRET.encode()}).result(10.0)
    environ = {"LOCKSTEP_TOKEN": SECRET, "LOCKSTEP_REDIS_PASSWORD": SECRET, "SPARK_CONF": SECRET, "OTHER": SECRET}
    made = bundle_of(client, {**environ, "LOCKSTEP_BUS": "memory:"})
    text = json.dumps(unpacked(made.packed()))
    assert SECRET not in text
    assert made.parts["environment.json"]["LOCKSTEP_BUS"] == "memory:"
    assert made.parts["streams.json"][0]["records"] == 1


def test_a_bundle_is_bounded_and_says_what_is_missing(client):
    client.create_many([f"s{number}" for number in range(20)])
    few = bundle_of(client, {}, BundleLimits(items=5))
    assert len(few.parts["streams.json"]) == 5
    assert unpacked(few.packed())["left-out.json"]["streams.json"] == "16 of 21: a bundle has 5 at most"
    late = bundle_of(client, {}, BundleLimits(seconds=0.0))
    assert late.parts["streams.json"] == []
    assert "within 0 s" in late.left_out["streams.json"]
    small = bundle_of(client, {}, BundleLimits(part_bytes=2000))
    kept = unpacked(small.packed())
    assert "streams.json" not in kept
    assert "at most 2,000" in kept["left-out.json"]["streams.json"]


def test_one_bundle_is_made_at_a_time(world, monkeypatch):
    admin, statuses = world.token(Role.ADMIN), []

    def names(_groups):
        if not statuses:
            statuses.append(None)
            statuses[0] = world.post("/api/v1/debug/bundle", {}, admin).status
        return []

    monkeypatch.setattr(Groups, "names", names)
    assert world.post("/api/v1/debug/bundle", {}, admin).status == 200
    assert statuses == [503]
    assert world.post("/api/v1/debug/bundle", {}, admin).status == 200, "the next one may be made"


def test_a_bundle_of_the_command_line_has_the_same_parts(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with lockstep.connect("lmdb:./bus", create=True) as client:
        client.create("orders")
    assert main(["debug", "bundle", "--bus", "lmdb:./bus", "--json"]) == 0
    assert sorted(PARTS) == json.loads(capfd.readouterr().out)["parts"]
    assert unpacked(Path("lockstep-debug.tar.gz").read_bytes()).keys() == PARTS.keys()
