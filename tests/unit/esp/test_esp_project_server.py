"""A server that was started without a model: projects come by PUT and go by DELETE."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstep.errors import Conflict
from lockstep.esp import engine_process, xml_client, xml_server
from lockstep.esp.errors import EngineEnded
from lockstep.esp.project_server import Projects, make_server_app
from lockstep.server.errors import PathRefused
from lockstep.server.guard import HEALTH
from lockstep.server.serving import bind, serve_app

BASE = "/eventStreamProcessing/v1"
TOKEN = "of-the-server-0123456789"
MODEL = """<project name="NAME" pubsub="auto"><contqueries><contquery name="q"><windows>
<window-source name="S"><schema-string>id*:int32</schema-string></window-source></windows></contquery></contqueries>
</project>"""


class FakeEngine:
    """An engine's REST, in this process."""

    def __init__(self, name: str, file: Path) -> None:
        self.name, self.model, self.asked, self.ended = name, file.read_text(), [], None
        bound = bind("127.0.0.1", 0)
        self.port = bound.getsockname()[1]
        self._server = serve_app(self._app, bound, "127.0.0.1")

    async def _app(self, scope, _receive, send) -> None:
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        self.asked.append((scope["method"], scope["raw_path"].decode(), headers.get("authorization", "")))
        body = (
            b"ok" if scope["path"] == HEALTH else f'<windows><window-source name="{self.name}.S"/></windows>'.encode()
        )
        if headers.get("accept") == "application/json":
            body = json.dumps({"windows": [{"name": f"{self.name}.S"}]}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/xml")]})
        await send({"type": "http.response.body", "body": body})

    def token(self) -> str:
        return f"of-{self.name}"

    def exit_code(self) -> int | None:
        return self.ended

    def stop(self) -> None:
        self.ended = 143
        self._server.stop()


class Server:
    def __init__(self, folder: Path) -> None:
        self.engines: dict[str, FakeEngine] = {}
        self.projects = Projects(folder / "state", folder, self._start, ready_s=10)
        self._rest = serve_app(make_server_app(self.projects, TOKEN), bind("127.0.0.1", 0), "127.0.0.1")
        self._port = int(self._rest.url.rpartition(":")[2])

    def _start(self, name: str, file: Path) -> FakeEngine:
        self.engines[name] = FakeEngine(name, file)
        return self.engines[name]

    def __call__(self, method: str, path: str, body: str = "", token: str = TOKEN, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path if path.startswith("/v1") else BASE + path, body.encode() or None, headers)
        found = connection.getresponse()
        text = found.read().decode()
        connection.close()
        return found.status, text

    def close(self) -> None:
        self._rest.stop()
        self.projects.close()


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    with running(tmp_path) as made:
        yield made


def model(name: str) -> str:
    return MODEL.replace("NAME", name)


def test_a_project_is_loaded_asked_and_removed(server) -> None:
    assert server("GET", "/projects") == (200, '<?xml version="1.0" encoding="UTF-8"?>\n<projects/>\n')
    assert server("PUT", "/projects/one", model("one"))[0] == 200
    assert "name: one" in server.engines["one"].model
    assert server("PUT", "/projects/one/state?value=stopped")[0] == 200
    assert server.engines["one"].asked[-1] == ("PUT", f"{BASE}/projects/one/state", "Bearer of-one")
    assert server("DELETE", "/projects/one")[0] == 200
    assert server.engines["one"].ended == 143
    status, text = server("GET", "/projects/one")
    assert (status, "PUT projects/one with a model loads it" in text) == (404, True)


def test_several_projects_each_have_an_engine_and_lists_are_put_together(server) -> None:
    for name in ("one", "two"):
        assert server("PUT", f"/projects/{name}", model(name))[0] == 200
    text = server("GET", "/windows")[1]
    assert (text.index("one.S") < text.index("two.S")) is True
    found = json.loads(server("GET", "/windows", Accept="application/json")[1])
    assert found == {"windows": [{"name": "one.S"}, {"name": "two.S"}]}
    server("GET", "/events/two/q/S")
    assert server.engines["two"].asked[-1][1] == f"{BASE}/events/two/q/S"
    status, text = server("GET", "/v1/status")
    assert (status, "loaded are: one, two" in text) == (422, True)


def test_an_engine_that_has_ended_does_not_hide_the_others(server) -> None:
    for name in ("one", "two"):
        server("PUT", f"/projects/{name}", model(name))
    server.engines["two"].ended = 1
    status, text = server("GET", "/windows")
    assert (status, "one.S" in text, '<windows unavailable="two">' in text) == (200, True, True)
    found = json.loads(server("GET", "/windows", Accept="application/json")[1])
    assert found == {"windows": [{"name": "one.S"}], "unavailable": ["two"]}
    status, text = server("GET", "/projects/two")
    assert (status, "two" in text) == (503, True)


@pytest.mark.parametrize("path", ["/events/one/q/a%20b", "/events/one/q/%C3%A9", "/events/one/q/a%23b%3Fc%2Fd?x=%26"])
def test_a_path_is_passed_on_as_it_came(server, path) -> None:
    server("PUT", "/projects/one", model("one"))
    assert server("GET", path)[0] == 200
    assert server.engines["one"].asked[-1][1] == BASE + path.partition("?")[0]


def test_a_model_is_checked_whatever_is_loaded(server) -> None:
    for name in ("", "one", "two"):
        if name:
            server("PUT", f"/projects/{name}", model(name))
        status, text = server("POST", "/projectValidationResults", model("three"))
        assert (status, 'valid="true"' in text) == (200, True)


def test_an_engine_that_ends_while_it_is_loaded_leaves_no_open_files(tmp_path) -> None:
    def start(name: str, _file: Path) -> engine_process.EngineProcess:
        return engine_process.EngineProcess(["-bogus"], 1, tmp_path / name)

    projects, opened = Projects(tmp_path / "state", tmp_path, start, ready_s=60), []
    for _ in range(2):
        with pytest.raises(EngineEnded):
            projects.load("one", model("one").encode(), None)
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
    assert projects.names() == []
    assert opened[0] == opened[1]


def test_a_model_may_be_a_file_where_the_server_runs(server, tmp_path) -> None:
    (tmp_path / "model.xml").write_text(model("one"))
    assert server("PUT", "/projects/one?projectUrl=file://model.xml")[0] == 200
    assert server("PUT", "/projects/two?projectUrl=file:///etc/passwd.xml")[0] == 403


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/projects/one", model("two"), 409), ("/projects/one", "<x/>", 422), ("/projects/one", "", 422)],
)
def test_a_model_that_does_not_fit_is_refused(server, path, body, status) -> None:
    assert server("PUT", path, body)[0] == status
    assert server.engines == {}


def test_a_project_that_is_loaded_is_not_loaded_again_unless_its_engine_has_ended(server) -> None:
    server("PUT", "/projects/one", model("one"))
    status, text = server("PUT", "/projects/one", model("one"))
    assert (status, "value=modified" in text) == (409, True)
    server.engines["one"].stop()
    assert server("GET", "/projects/one")[0] == 503
    assert server("PUT", "/projects/one", model("one"))[0] == 200


def test_everybody_may_look_and_only_bearers_of_the_token_may_change(server) -> None:
    assert server("GET", "/projects", token="")[0] == 200
    for token in ("", "another"):
        status, text = server("PUT", "/projects/one", model("one"), token=token)
        assert (status, "CHANGE_NEEDS_TOKEN" in text) == (401, True)


def test_a_file_that_a_client_names_is_looked_for_where_the_server_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.xml").write_text(MODEL.replace("NAME", "one"))
    projects = engine_process.projects_in(tmp_path / "state", [])
    with pytest.raises(Conflict, match="The model is of project 'one'"):  # it was read; an engine is not started
        projects.load("two", b"", "file://model.xml")
    with pytest.raises(PathRefused):
        projects.load("two", b"", "file:///etc/hostname.xml")


def test_without_a_model_and_without_a_port_it_says_what_is_missing(capsys) -> None:
    assert xml_server.main(["-pubsub", "5555"]) == 2
    assert "-model is missing" in capsys.readouterr().err


def test_the_engines_have_the_flags_of_the_server() -> None:
    given = ["-http", "8181", "-pubsub", "5555", "-state", "x", "-engine", "lease=1"]
    assert engine_process._without_own(given) == ["-pubsub", "5555", "-engine", "lease=1"]


def test_the_client_finds_the_token_of_a_server_of_the_same_user(tmp_path, monkeypatch) -> None:
    from lockstep.cli.engine_services import kept_token, token_of_port
    from lockstep.esp.command import parsed

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def sent(url: str) -> str | None:
        return xml_client.request(parsed(xml_client.parser(), ["-url", url, "-put"])).get_header("Authorization")

    with kept_token(TOKEN, tmp_path / "state", 8181):
        assert sent("http://localhost:8181/x") == f"Bearer {TOKEN}"
        assert sent("http://example.org:8181/x") is None
        assert token_of_port(8181).stat().st_mode & 0o077 == 0
        assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    assert sent("http://localhost:8181/x") is None


def test_a_user_without_a_home_finds_the_token_in_the_state_folder(tmp_path, monkeypatch) -> None:
    from lockstep.cli.engine_services import TOKEN_NAME, kept_token

    def no_home() -> Path:
        message = "Could not determine home directory."
        raise RuntimeError(message)

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with kept_token(TOKEN, tmp_path / "state", 8181):
        assert (tmp_path / "state" / TOKEN_NAME).read_text() == f"{TOKEN}\n"
