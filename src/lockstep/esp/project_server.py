"""A server without a model: projects are loaded and removed over REST, each in an engine process of its own."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

import lockstep
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.project import Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.xml_elements import Element, parse_element
from lockstep.errors import BadArgument, Conflict, LockstepError, NotFound, TimedOut
from lockstep.esp.errors import EngineEnded, EngineNotReady
from lockstep.runtime import ThreadRuntime
from lockstep.server.answers import answer, path_of, refusal, wants_json
from lockstep.server.app import BASE
from lockstep.server.guard import HEALTH, Guard, Limits
from lockstep.server.routes_change import ModelChecks, parse_model, read_model

_LISTS = ("projects", "runningProjects", "stoppedProjects", "windows", "windowXml")
_BY_NAME = ("projects", "runningProjects", "stoppedProjects", "events")
_PASSED = ("accept", "content-type")
_ANSWER_S, _LOOK_S = 60.0, 0.1
READY_S = 55.0
"""How long a request waits until the engine that it starts answers."""


class Running(Protocol):
    """An engine process with REST."""

    port: int

    def token(self) -> str:
        """What its REST wants to see before it changes something."""

    def exit_code(self) -> int | None:
        """None while it runs."""

    def stop(self) -> None:
        """End it in order, and return when it has ended."""


Start = Callable[[str, Path], Running]
"""Starts an engine for a project and the file of its model."""


class Projects:
    """The projects of a server. Loading and removing happens one at a time."""

    def __init__(self, folder: Path, root: Path, start: Start, ready_s: float = READY_S) -> None:
        self._folder, self._root, self._start, self._ready_s = folder, root, start, ready_s
        self._engines: dict[str, Running] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """All that are loaded."""
        return sorted(self._engines)

    def load(self, name: str, body: bytes, url: str | None) -> None:
        """Check a model and start an engine for it; returns when its REST answers."""
        project = self._model(name, body, url)
        with self._one_at_a_time():
            known = self._engines.get(name)
            if known is not None and known.exit_code() is None:
                how = f"PUT projects/{name}/state?value=modified changes its model"
                raise Conflict(reason=f"Project {name!r} is loaded already: {how}, DELETE projects/{name} removes it.")
            if known is not None:
                known.stop()  # it has ended: let go of what it held
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._folder / f"{name}.yaml"
            file.write_text(to_yaml(project))
            started = self._engines[name] = self._start(name, file)
        try:
            self._wait_until_ready(name)
        except EngineEnded:
            self._forget(name, started)
            raise

    def remove(self, name: str) -> None:
        """Stop the engine of a project, in order. Its streams and its state stay."""
        with self._one_at_a_time():
            self._engine(name).stop()
            del self._engines[name]

    def close(self) -> None:
        """Stop all of them."""
        with self._lock:
            for engine in self._engines.values():
                engine.stop()
            self._engines.clear()

    def _forget(self, name: str, ended: Running) -> None:
        """An engine that has ended, unless another has taken its place."""
        with self._one_at_a_time():
            if self._engines.get(name) is ended:
                del self._engines[name]
        ended.stop()

    def ask(
        self,
        name: str,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float = _ANSWER_S,
    ) -> tuple[int, str, bytes]:
        """Status, content type and body of the answer of a project's engine; the path as it is to be sent."""
        engine = self._engine(name)
        if (code := engine.exit_code()) is not None:
            raise EngineEnded(project=name, status=code)
        connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=timeout_s)
        try:
            own = {"Authorization": f"Bearer {engine.token()}"} if method != "GET" else {}
            connection.request(method, path, body or None, {**headers, **own})
            found = connection.getresponse()
            return found.status, found.headers.get("Content-Type", ""), found.read()
        except (OSError, http.client.HTTPException) as error:
            raise EngineNotReady(project=name, reason=str(error)) from error
        finally:
            connection.close()

    def _engine(self, name: str) -> Running:
        if name not in self._engines:
            error = NotFound(what="On this server project", name=name)
            error.add_note(f"Loaded: {', '.join(self.names()) or 'none'}. PUT projects/{name} with a model loads it.")
            raise error
        return self._engines[name]

    def _model(self, name: str, body: bytes, url: str | None) -> Project:
        if (url is None) == (not body):
            raise BadArgument(name="projectUrl", value=url or "", reason="give a body or projectUrl, and not both")
        project = parse_model(body) if url is None else read_model(url, self._root, Limits().body_bytes)
        compile_project(project)
        if project.name != name:
            raise Conflict(reason=f"The model is of project {project.name!r}, and {name!r} is to be loaded.")
        return project

    def _wait_until_ready(self, name: str) -> None:
        end = time.monotonic() + self._ready_s
        while (left := end - time.monotonic()) > 0:
            try:
                if self.ask(name, "GET", HEALTH, b"", {}, timeout_s=left)[0] == 200:
                    return
            except EngineNotReady:
                pass  # it starts
            time.sleep(_LOOK_S)
        raise TimedOut(what=f"Starting project {name!r}, which goes on,", seconds=self._ready_s)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=_ANSWER_S):
            raise TimedOut(what="Waiting for another project to be loaded or removed", seconds=_ANSWER_S)
        try:
            yield
        finally:
            self._lock.release()


def make_server_app(projects: Projects, change_token: str | None) -> Guard:
    """REST over all projects: lists are put together, everything else goes to the engine of its project."""
    app = FastAPI(title="Lockstep", version=lockstep.__version__, docs_url=None, redoc_url=None, openapi_url=None,
                  telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False,
                             "auto_configure": False})  # fmt: skip
    routes = _Routes(projects)
    app.add_api_route(HEALTH, routes.health, methods=["GET"])
    app.add_api_route(f"{BASE}/server", routes.server, methods=["GET"])
    app.add_api_route(f"{BASE}/projects/{{name}}", routes.load, methods=["PUT"])
    app.add_api_route(f"{BASE}/projects/{{name}}", routes.remove, methods=["DELETE"])
    app.add_api_route(f"{BASE}/projectValidationResults", ModelChecks().validate, methods=["POST"])
    app.add_api_route("/{path:path}", routes.forward, methods=["GET", "PUT", "POST", "DELETE"])
    app.add_exception_handler(LockstepError, _refused)
    return Guard(app, token=None, change_token=change_token, runtime=ThreadRuntime(), limits=Limits())


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, LockstepError)
    return refusal(request, error)


class _Routes:
    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def health(self) -> dict[str, str]:
        return {"status": "ok"}

    def server(self, request: Request) -> Response:
        facts = {"version": lockstep.__version__, "projects": str(len(self._projects.names())),
                 "http": str(request.scope["server"][1])}  # fmt: skip
        return answer(request, Element("esp-server", facts), {"esp-server": facts})

    async def load(self, request: Request, name: str) -> Response:
        body, url = await request.body(), request.query_params.get("projectUrl")
        await run_in_threadpool(self._projects.load, name, body, url)
        return _done(request, f"Project {name} is loaded.")

    def remove(self, request: Request, name: str) -> Response:
        self._projects.remove(name)
        return _done(request, f"Project {name} is removed.")

    async def forward(self, request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(self._forward, request, body)

    def _forward(self, request: Request, body: bytes) -> Response:
        path = [unquote(part) for part in _raw_path(request).removeprefix(BASE).strip("/").split("/")]
        name = _project_of(path, request.query_params)
        if name is None and path[0] in _LISTS and len(path) == 1 and request.method == "GET":
            return self._listed(request)
        if name is None:
            name = self._only(request)
        return Response(*_parts(self._ask(name, request, body)))

    def _ask(self, name: str, request: Request, body: bytes = b"") -> tuple[int, str, bytes]:
        query = f"?{request.url.query}" if request.url.query else ""  # as it came, like the path
        headers = {key: value for key, value in request.headers.items() if key in _PASSED}
        return self._projects.ask(name, request.method, f"{_raw_path(request)}{query}", body, headers)

    def _listed(self, request: Request) -> Response:
        """What all projects list, one after the other; those whose engine does not answer are named beside it."""
        as_json, tag = wants_json(request), "windows" if "indow" in path_of(request) else "projects"
        elements: list[Element] = []
        trees: list[Any] = []
        unavailable: list[str] = []
        for name in self._projects.names():
            found = self._listed_by(name, request)
            if found is None:
                unavailable.append(name)
                continue
            status, kind, body = found
            if status != HTTPStatus.OK:
                return Response(body, status, media_type=kind)
            if as_json:
                trees += json.loads(body)[tag]
            else:
                elements += parse_element(body, "the answer").children
        down = {"unavailable": " ".join(unavailable)} if unavailable else {}
        more = {"unavailable": unavailable} if unavailable else {}
        return answer(request, Element(tag, down, elements), {tag: trees, **more})

    def _listed_by(self, name: str, request: Request) -> tuple[int, str, bytes] | None:
        """The answer of one engine; None if it has ended or can't answer now."""
        try:
            found = self._ask(name, request)
        except (EngineEnded, EngineNotReady, NotFound):
            return None
        return None if found[0] >= HTTPStatus.INTERNAL_SERVER_ERROR else found

    def _only(self, request: Request) -> str:
        names = self._projects.names()
        if len(names) != 1:
            known = ", ".join(names) or "none"
            raise BadArgument(name="project", value="", reason=f"{path_of(request)} needs one, and loaded are: {known}")
        return names[0]


def _raw_path(request: Request) -> str:
    """The path as the client wrote it: unquoted and quoted again, it could mean something else."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("ascii")


def _project_of(path: list[str], query: Mapping[str, str]) -> str | None:
    """The project that a request names, in its path or as a parameter."""
    if len(path) > 1 and path[0] in _BY_NAME:
        return path[1]
    return query.get("project") or (query.get("name") if path[0] == "projectXml" else None)


def _parts(found: tuple[int, str, bytes]) -> tuple[bytes, int, dict[str, str]]:
    status, kind, body = found
    return body, status, {"Content-Type": kind or "application/xml", "Cache-Control": "no-store"}


def _done(request: Request, message: str) -> Response:
    return answer(
        request, Element("response", {}, [Element("message", text=message)]), {"response": {"message": message}}
    )
