"""ESP's routes that change: the state of the engine or of the project, and models that are checked."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model.faults import Fault
from lockstep.engine.model.loading import parse_xml, parse_yaml, to_yaml
from lockstep.engine.model.project import Project
from lockstep.engine.model.validation import compile_project, faults
from lockstep.engine.model.xml_elements import Element
from lockstep.errors import BadArgument, Conflict
from lockstep.server.answers import answer, legal
from lockstep.server.errors import BodyTooLarge, PathRefused
from lockstep.server.openapi import FORM, InPath, ModelUrl, PersistPath
from lockstep.server.site import Site

ServerState = Literal["persisted", "reloaded", "stopped"]
ProjectState = Literal["running", "stopped", "persisted", "restored", "modified"]


class ModelChecks:
    """Finds the errors of models, one model at a time."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def validate(self, request: Request) -> Response:
        """XML or YAML. Nothing is run or kept; a model that can't be read has one fault, with its line and column."""
        body = await request.body()
        async with self._one_at_a_time:  # an engine may compute in the same process
            found = await run_in_threadpool(_faults, body)
        items = [{"place": fault.place, "problem": fault.problem, "remedy": fault.remedy} for fault in found]
        elements = [_fault_element(fault) for fault in found]
        head = {"valid": "false" if found else "true"}
        return answer(
            request,
            Element("project-validation-results", head, elements),
            {"project-validation-results": {"valid": not found, "faults": items}},
        )


class ChangeRoutes:
    """Routes that send a change to the project's active engine, and answer when it is done."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def router(self) -> APIRouter:
        """All of them."""
        router = APIRouter(tags=["change"], dependencies=[FORM])
        for method, path, route, summary in (
            ("PUT", "/server/state", self.server_state, "Persist, reload or stop"),
            ("PUT", "/projects/{name}/state", self.project_state, "Run, stop, persist, restore or change a project"),
            ("PUT", "/projects/{name}", self.load, "Refused: this engine runs one project"),
            ("DELETE", "/projects/{name}", self.remove, "Refused: it runs until its process is stopped"),
            ("POST", "/runningProjects/{name}", self.run, "As projects/NAME/state?value=running"),
            ("POST", "/stoppedProjects/{name}", self.stop, "As projects/NAME/state?value=stopped"),
            ("POST", "/projectValidationResults", ModelChecks().validate, "The faults of the model in the body"),
        ):
            router.add_api_route(path, route, methods=[method], summary=summary, response_class=Response)
        return router

    def server_state(
        self,
        request: Request,
        value: Annotated[ServerState, Query(description="what the engine is to do")],
        path: PersistPath = None,
    ) -> Response:
        """An engine runs one project: this is as `projects/NAME/state`, and all its engines follow."""
        if value == "persisted":
            return self._asked(request, "persist", self._persist(path), "was persisted")
        return self._asked(request, "state", {"value": value}, f"is {value}")

    async def project_state(
        self,
        request: Request,
        name: InPath,
        value: Annotated[ProjectState, Query(description="the state that is wanted")],
        path: PersistPath = None,
        url: ModelUrl = None,
    ) -> Response:
        """With `modified` the body is the new model, XML or YAML; every engine changes at the same block."""
        body = await request.body()
        return await run_in_threadpool(self._change, request, name, value, path, url, body)

    def load(self, name: InPath) -> Response:
        """Refuse: another project needs its own engine; `dfesp_xml_server` without -model starts one for each."""
        running = self._site.name
        how = f"PUT projects/{running}/state?value=modified changes its model"
        more = "start dfesp_xml_server without -model to load projects over REST"
        raise Conflict(reason=f"This engine was started for project {running!r}, not to load {name!r}: {how}; {more}.")

    def remove(self, name: InPath) -> Response:
        """Stop the process instead."""
        self._site.graph(name)
        how = f"stop the process, or PUT projects/{name}/state?value=stopped"
        raise Conflict(reason=f"This engine was started for project {name!r} and runs until it is stopped: {how}.")

    def run(self, request: Request, name: InPath) -> Response:
        """Nothing happens if it runs."""
        return self._change(request, name, "running")

    def stop(self, request: Request, name: InPath) -> Response:
        """Nothing happens if it is stopped."""
        return self._change(request, name, "stopped")

    def _change(
        self,
        request: Request,
        name: str,
        value: ProjectState,
        path: str | None = None,
        url: str | None = None,
        body: bytes = b"",
    ) -> Response:
        self._site.graph(name)
        if value == "persisted":
            return self._asked(request, "persist", self._persist(path), "was persisted")
        if value == "modified":
            return self._asked(request, "replace", {"model": self._model(name, url, body)}, "was modified")
        more = self._persist(path) if value == "restored" else {}
        return self._asked(request, "state", {"value": value, **more}, f"is {value}")

    def _persist(self, path: str | None) -> dict[str, Any]:
        return {"path": None if path is None else str(below(path, self._site.persist_root))}

    def _model(self, name: str, url: str | None, body: bytes) -> str:
        """The new model as YAML, checked: what can't run does not get as far as the bus."""
        if url is not None and body:
            raise BadArgument(name="projectUrl", value=url, reason="there is a body too")
        if url is None and not body:
            raise BadArgument(name="body", value="", reason="it must be the new model, or projectUrl must name one")
        limit = self._site.limits.body_bytes
        project = parse_model(body) if url is None else read_model(url, self._site.root, limit)
        _check(project, name)
        return to_yaml(project)

    def _asked(self, request: Request, kind: str, params: Mapping[str, Any], done: str) -> Response:
        reply = self._site.ask(kind, params)
        message = f"Project {self._site.name} {done}."
        told = [Element("property", {"name": name}, text=_text(value)) for name, value in reply.result.items()]
        element = Element("response", {"engine": reply.engine}, [Element("message", text=message), *told])
        tree = {"message": message, "engine": reply.engine, "result": dict(reply.result)}
        return answer(request, element, {"response": tree})


def _check(project: Project, name: str) -> None:
    compile_project(project)
    if project.name != name:
        raise Conflict(reason=f"The model is of project {project.name!r}, and {name!r} is to be changed.")


def _faults(body: bytes) -> list[Fault]:
    try:
        return faults(parse_model(body))
    except ModelUnreadable as error:
        told = error.params
        return [Fault(f"line {told['line']}, column {told['column']}", f"{told['reason']}.", str(told["remedy"]))]


def _fault_element(fault: Fault) -> Element:
    parts = [Element("problem", text=legal(fault.problem)), Element("remedy", text=legal(fault.remedy))]
    return Element("fault", {"place": legal(fault.place)}, parts)


def _text(value: Any) -> str:
    return legal(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


_FILE = "file://"
_ENDINGS = (".xml", ".yaml", ".yml")
_LENGTH_MAX = 4096


def parse_model(data: bytes, source: str = "the request") -> Project:
    """The project in some bytes; XML if they begin like it, else YAML."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return parse_xml(data, source)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelUnreadable(
            source=source, line=1, column=1, reason="it is not UTF-8", remedy="Send it as UTF-8."
        ) from None
    return parse_yaml(text, source)


def read_model(url: str, root: Path | None, limit: int) -> Project:
    """The project in a file of this machine below `root`, named as file://PATH."""
    if not url.startswith(_FILE):
        raise PathRefused(path=url, reason="it does not begin with file://")
    path = below(unquote(url.removeprefix(_FILE)), root)
    if path.suffix.lower() not in _ENDINGS:
        raise PathRefused(path=url, reason=f"it does not end with one of {', '.join(_ENDINGS)}")
    return parse_model(_content(path, limit), path.name)


def below(given: str, root: Path | None) -> Path:
    """A path that a client named, with links followed; PathRefused if it leads out of `root`."""
    if root is None:
        raise PathRefused(path=given, reason="this engine has no folder for files that clients name")
    if not given or len(given) > _LENGTH_MAX or not given.isprintable():
        raise PathRefused(path=given[:80], reason="it is no path")
    try:
        home = root.resolve()
        path = (home / given).resolve()
    except (OSError, RuntimeError):
        raise PathRefused(path=given, reason="it can't be followed") from None
    if not path.is_relative_to(home):
        raise PathRefused(path=given, reason="it is not below the folder of this engine")
    return path


def _content(path: Path, limit: int) -> bytes:
    """Read a plain file; a symbolic link created after the path was checked is not followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise PathRefused(path=path.name, reason=error.strerror or "it can't be read") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PathRefused(path=path.name, reason="it is not a plain file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise BodyTooLarge(limit=limit)
    return data
