"""Routes that change: what the leader is asked to do, and what never gets so far."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from server_worlds import BASE, View, served

from lockstep.engine.errors import RequestRefused
from lockstep.engine.model.loading import parse_yaml, to_xml, to_yaml
from lockstep.engine.runtime.requests.channel import RequestClient
from lockstep.errors import BadArgument, DataError, Unavailable
from lockstep.runtime import ThreadRuntime
from lockstep.server.routes_change import below


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "engine"
    folder.mkdir()
    return folder


@pytest.fixture
def ask(view, root):
    with served(view, root=root) as client:
        yield client


def renamed(view: View, name: str):
    return replace(view.model.project, name=name)


# --- states ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["running", "stopped"])
def test_the_state_of_a_project(view, ask, value):
    found = ask.put(f"/projects/p/state?value={value}")
    assert found.status == 200
    assert found.json == {"response": {"message": f"Project p is {value}.", "engine": "leader", "result": {}}}
    assert ask.put(f"/{value}Projects/p", method="POST").status == 200
    assert view.asked == [("state", {"value": value})] * 2


@pytest.mark.parametrize(("path", "kind"), [("/projects/p/state", "persist"), ("/server/state", "persist")])
def test_persisting(view, ask, root, path, kind):
    view.reply = lambda _kind: {"path": "/snapshots/1", "block": 7}
    found = ask.put(f"{path}?value=persisted")
    assert found.json["response"]["result"] == {"path": "/snapshots/1", "block": 7}
    assert ask.put(f"{path}?value=persisted&path=daily/one").status == 200
    assert view.asked == [(kind, {"path": None}), (kind, {"path": str(root / "daily" / "one")})]


def test_restoring_names_its_folder(view, ask, root):
    assert ask.put("/projects/p/state?value=restored&path=one").status == 200
    assert ask.put("/projects/p/state?value=restored").status == 200
    assert view.asked == [
        ("state", {"value": "restored", "path": str(root / "one")}),
        ("state", {"value": "restored", "path": None}),
    ]


@pytest.mark.parametrize("value", ["reloaded", "stopped"])
def test_the_state_of_the_server_is_that_of_its_project(view, ask, value):
    assert ask.put(f"/server/state?value={value}").status == 200
    assert view.asked == [("state", {"value": value})]


def test_an_answer_as_xml(view, ask):
    view.reply = lambda _kind: {"path": "/a<b", "block": 7}
    text = ask("PUT", f"{BASE}/projects/p/state?value=persisted").text
    assert text.partition("\n")[2] == (
        '<response engine="leader">\n  <message>Project p was persisted.</message>\n'
        '  <property name="path">/a&lt;b</property>\n  <property name="block">7</property>\n</response>\n'
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/projects/p/state", 422),
        ("/projects/p/state?value=connected", 422),
        ("/server/state?value=running", 422),
        ("/projects/other/state?value=stopped", 404),
        ("/projects/p/state?value=modified", 422),
    ],
)
def test_what_can_not_be_is_not_asked(view, ask, path, status):
    assert ask.put(path).status == status
    assert view.asked == []


# --- what the leader says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestRefused(engine="b", kind="replace", reason="No."), 409),
        (BadArgument(name="value", value=1, reason="it is wrong"), 422),
        (Unavailable(reason="The disk is full."), 503),
        (DataError(reason="The log is damaged."), 500),
    ],
)
def test_the_leaders_error_is_passed_on(view, ask, error, status):
    def refuse(_kind):
        raise error

    view.reply = refuse
    found = ask.put("/projects/p/state?value=persisted")
    assert (found.status, found.code) == (status, error.code)
    assert found.json["error"]["message"] in str(error)
    assert found.headers.get("retry-after") == ("1" if status == 503 else None)


def test_nobody_answers(view, ask):
    asker = RequestClient(view.bus(), view.world.streams, ThreadRuntime())
    view.ask = lambda kind, params, _timeout_s: asker.ask(kind, params, timeout_s=0.01)
    found = ask.put("/projects/p/state?value=persisted")
    assert (found.status, found.code) == (504, "REQUEST_TIMED_OUT")
    assert "no engine has reported" in found.json["error"]["message"]


# --- models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [to_xml, to_yaml])
def test_a_model_in_the_body(view, ask, write):
    body = write(view.model.project).encode()
    assert ask.put("/projects/p/state?value=modified", body).status == 200
    [(kind, params)] = view.asked
    assert kind == "replace"
    assert parse_yaml(params["model"]) == view.model.project


@pytest.mark.parametrize(
    "url", ["file://new.xml", "file://models/../new.xml", "file://{root}/new.xml", "file://n%65w.xml"]
)
def test_a_model_in_a_file(view, ask, root, url):
    (root / "models").mkdir()
    (root / "new.xml").write_text(to_xml(view.model.project))
    assert ask.put(f"/projects/p/state?value=modified&projectUrl={url.format(root=root)}").status == 200
    assert view.asked[0][0] == "replace"


def test_files_that_may_not_be_named(view, ask, root, tmp_path):
    model = to_xml(view.model.project)
    for name in ("outside.xml", "engine/model.py", "engine/large.xml"):
        (tmp_path / name).write_text(model)
    (root / "large.xml").write_text(" " * ((10 << 20) + 1))
    (root / "link.xml").symlink_to(tmp_path / "outside.xml")
    (root / "folder.xml").mkdir()
    os.mkfifo(root / "pipe.xml")
    expected = {
        "file://../outside.xml": "not below",
        f"file://{tmp_path}/outside.xml": "not below",
        "file://link.xml": "not below",
        "file:///etc/passwd": "not below",
        "file://%2e%2e/outside.xml": "not below",
        "file://a%00.xml": "it is no path",
        "file://": "it is no path",
        "file://model.py": "does not end with",
        "file://missing.xml": "No such file",
        "file://folder.xml": "it is not a plain file",
        "file://pipe.xml": "it is not a plain file",
        "http://127.0.0.1/model.xml": "does not begin with file://",
        "new.xml": "does not begin with file://",
    }
    for url, words in expected.items():
        found = ask.put(f"/projects/p/state?value=modified&projectUrl={url.replace('%', '%25')}")
        assert (url, found.status, found.code) == (url, 403, "PATH_REFUSED")
        assert words in found.json["error"]["message"], url
    assert ask.put("/projects/p/state?value=modified&projectUrl=file://large.xml").status == 413
    assert view.asked == []


def test_a_folder_to_persist_to_is_checked_too(view, ask):
    assert ask.put("/server/state?value=persisted&path=../elsewhere").status == 403
    assert view.asked == []


def test_without_a_folder_no_file_can_be_named(view):
    with served(view) as ask:
        found = ask.put("/projects/p/state?value=persisted&path=x")
        assert (found.status, found.code) == (403, "PATH_REFUSED")


def test_a_path_through_a_link_that_goes_round(tmp_path):
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert below("plain", tmp_path) == tmp_path / "plain"


def test_a_model_with_faults_is_refused_with_all_of_them(view, ask):
    body = to_yaml(view.model.project).replace("ESP_aSum(price)", "ESP_aSum(prize)").encode()
    found = ask.put("/projects/p/state?value=modified", body)
    assert (found.status, found.code) == (422, "MODEL_INVALID")
    assert "prize" in found.json["error"]["message"]
    assert view.asked == []


def test_a_model_of_another_project_is_refused(view, ask):
    found = ask.put("/projects/p/state?value=modified", to_xml(renamed(view, "other")).encode())
    assert (found.status, found.code) == (409, "CONFLICT")
    assert "'other'" in found.json["error"]["message"]


def test_a_body_and_a_file_are_one_too_many(view, ask):
    found = ask.put("/projects/p/state?value=modified&projectUrl=file://x.xml", to_xml(view.model.project).encode())
    assert (found.status, found.code) == (422, "BAD_ARGUMENT")


# --- validation --------------------------------------------------------------------------------------------------


def validated(ask, body: bytes):
    return ask.put("/projectValidationResults", body, method="POST").json["project-validation-results"]


@pytest.mark.parametrize("write", [to_xml, to_yaml])
def test_a_sound_model(view, ask, write):
    assert validated(ask, write(view.model.project).encode()) == {"valid": True, "faults": []}


def test_all_faults_of_a_model(view, ask):
    body = to_yaml(view.model.project).replace("ESP_aSum(price)", "ESP_aSum(prize)").encode()
    found = validated(ask, body)
    assert found["valid"] is False
    assert [fault["place"] for fault in found["faults"]] == ["q/sums field total"]
    text = ask("POST", f"{BASE}/projectValidationResults", body).text
    assert '<project-validation-results valid="false">' in text
    assert "<problem>" in text


ENTITIES = b'<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b SYSTEM "file:///etc/passwd">]><project name="&a;&b;"/>'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (ENTITIES, "a document type is not allowed"),
        (b"<project", "unclosed token"),
        (b"\xff\xfe\x00", "it is not UTF-8"),
        (b"", ""),
        (b"project: [", ""),
    ],
)
def test_what_is_no_model_has_one_fault_with_its_place(ask, body, words):
    found = validated(ask, body)
    assert found["valid"] is False
    [fault] = found["faults"]
    assert re.fullmatch(r"line [12], column \d+", fault["place"])
    assert words in fault["problem"]
