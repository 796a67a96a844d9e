"""ESP's routes that look: windows, server, projects, models, loggers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

import lockstep
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.xml_elements import Element, render
from lockstep.engine.model.xml_writer import window_element
from lockstep.engine.reference.operator import WindowCounts
from lockstep.engine.runtime.control.status import project_state, project_status
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.errors import NotFound
from lockstep.server.answers import answer, as_json
from lockstep.server.guard import HEALTH
from lockstep.server.openapi import FORM, InPath, ProjectName, QueryName, WindowKind
from lockstep.server.site import Site, model_element, without_secrets

_RUNNING = frozenset({"starting", "running", "draining"})
State = Literal["running", "stopped"]
OneWindow = Annotated[str | None, Query(description="only this window")]


class LookRoutes:
    """Routes that change nothing."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def router(self) -> APIRouter:
        """All of them."""
        router = APIRouter(tags=["look"], dependencies=[FORM])
        for path, route, summary in (
            ("/windows", self.windows, "The windows with the number of rows that each holds, in the order of names"),
            ("/windowXml", self.window_xml, "The model of one window, or of all that fit"),
            ("/server", self.server, "The engine, and whether it is the active one"),
            ("/projects", self.projects, "The project that this engine runs, with its model"),
            ("/projects/{name}", self.project, "The model of a project"),
            ("/projectXml", self.project_xml, "The model of a project"),
            ("/runningProjects", self.running, "The project, if it runs"),
            ("/runningProjects/{name}", self.running_one, "The project, if it runs; else 404"),
            ("/stoppedProjects", self.stopped, "The project, if it does not run"),
            ("/stoppedProjects/{name}", self.stopped_one, "The project, if it does not run; else 404"),
            ("/loggers", self.loggers, "The loggers and their levels"),
            ("/api-docs", self.api_docs, "This interface as OpenAPI"),
        ):
            router.add_api_route(path, route, methods=["GET"], summary=summary, response_class=Response)
        return router

    def windows(
        self,
        request: Request,
        project: ProjectName = None,
        contquery: QueryName = None,
        name: OneWindow = None,
        kind: WindowKind = None,
        count: Annotated[bool, Query(description="rows are always counted")] = True,  # noqa: ARG002
    ) -> Response:
        """As `lockstep status` counts them: rows that are there now, on this engine."""
        graph, counts = self._site.graph(project), self._site.counts()
        found = [
            (f"window-{node.window.kind}", _window_tree(graph, node, counts))
            for node in _chosen(graph, contquery, name, kind)
        ]
        elements = [Element(kind, {key: str(value) for key, value in tree.items()}) for kind, tree in found]
        trees = [{"type": kind, **tree} for kind, tree in found]
        return answer(request, Element("windows", {}, elements), {"windows": trees})

    def window_xml(
        self,
        request: Request,
        project: ProjectName = None,
        contquery: QueryName = None,
        name: OneWindow = None,
        kind: WindowKind = None,
    ) -> Response:
        """The elements that the model has for windows, in the order of their names."""
        graph = self._site.graph(project)
        if name is not None:
            self._site.window(project, contquery, name)
        elements = [without_secrets(window_element(node.window)) for node in _chosen(graph, contquery, name, kind)]
        tree = {"windows": [{"name": item.attributes["name"], "xml": render(item)} for item in elements]}
        return answer(request, Element("windows", {}, elements), tree)

    def server(self, request: Request) -> Response:
        """`primary-server` says whether this engine is the active one."""
        report, bus = self._site.view.report(), self._site.view.bus()
        facts = {
            "version": lockstep.__version__,
            "engine": report.engine,
            "analytics-license": "false",
            "primary-server": "true" if report.role == "active" else "false",
            "pubsub": bus.url.partition(":")[0],
            "http": str(request.scope["server"][1]),
        }
        return answer(request, Element("esp-server", facts), {"esp-server": facts})

    def projects(self, request: Request) -> Response:
        """An engine runs one project."""
        return self._listed(request, wanted=None)

    def project(self, request: Request, name: InPath) -> Response:
        """As XML, or within JSON with its state."""
        graph = self._site.graph(name)
        return answer(request, model_element(graph.project), self._project_tree(graph))

    def project_xml(
        self,
        request: Request,
        name: ProjectName = None,
    ) -> Response:
        """As `projects/NAME`."""
        graph = self._site.graph(name)
        return answer(request, model_element(graph.project), self._project_tree(graph))

    def running(self, request: Request) -> Response:
        """Empty if the engine is stopping."""
        return self._listed(request, wanted="running")

    def running_one(self, request: Request, name: InPath) -> Response:
        """As `projects/NAME`."""
        return self._one_in_state(request, name, "running")

    def stopped(self, request: Request) -> Response:
        """Empty if the engine runs."""
        return self._listed(request, wanted="stopped")

    def stopped_one(self, request: Request, name: InPath) -> Response:
        """As `projects/NAME`."""
        return self._one_in_state(request, name, "stopped")

    def loggers(self, request: Request) -> Response:
        """Those of Lockstep and the root."""
        own = sorted(name for name in logging.root.manager.loggerDict if name.split(".")[0] == "lockstep")
        levels = [("root", logging.root), *((name, logging.getLogger(name)) for name in own)]
        found = [{"name": name, "level": logging.getLevelName(item.getEffectiveLevel())} for name, item in levels]
        return answer(request, Element("loggers", {}, [Element("logger", item) for item in found]), {"loggers": found})

    def api_docs(self, request: Request) -> Response:
        """The same as /openapi.json."""
        return as_json(request.app.openapi())

    def _listed(self, request: Request, wanted: State | None) -> Response:
        graph = self._site.graph()
        found = [graph] if wanted in (None, self._state()) else []
        elements = [model_element(item.project) for item in found]
        tree = {"projects": [self._project_tree(item) for item in found]}
        return answer(request, Element("projects", {}, elements), tree)

    def _one_in_state(self, request: Request, name: str, wanted: State) -> Response:
        graph = self._site.graph(name)
        if self._state() != wanted:
            raise NotFound(what=f"A project that is {wanted} with name", name=name)
        return answer(request, model_element(graph.project), self._project_tree(graph))

    def _state(self) -> str:
        site = self._site
        if site.view.report().state not in _RUNNING:
            return "stopped"
        return project_state(last_beat(site.view.bus().open(site.streams.control)))

    def _project_tree(self, graph: Graph) -> dict[str, Any]:
        return {
            "name": graph.project.name,
            "state": self._state(),
            "fingerprint": graph.fingerprint,
            "windows": len(graph.nodes),
            "xml": render(model_element(graph.project)),
        }


def _chosen(graph: Graph, query: str | None, name: str | None, kind: str | None) -> list[Node]:
    """The windows that fit, in the order of their names."""
    found = [
        node
        for node in graph.nodes
        if query in (None, node.query)
        and name in (None, node.window.name, node.path)
        and kind in (None, node.window.kind, f"window-{node.window.kind}")
    ]
    return sorted(found, key=lambda node: (node.window.name, node.query))


def _window_tree(graph: Graph, node: Node, counts: Mapping[str, WindowCounts]) -> dict[str, Any]:
    rows = counts[node.path].rows if node.path in counts else 0
    return {"contquery": node.query, "count": rows, "name": node.window.name, "project": graph.project.name}


class OwnRoutes:
    """Routes that ESP has not."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def router(self) -> APIRouter:
        """Both of them."""
        router = APIRouter(tags=["own"])
        summary = "Every engine of the project: role, epoch, lag, buffer, last snapshot"
        router.add_api_route("/v1/status", self.status, methods=["GET"], summary=summary, response_class=Response)
        router.add_api_route(HEALTH, self.health, methods=["GET"], summary="Whether the server answers")
        return router

    def status(self) -> Response:
        """As `lockstep status --json`, with name and role of the engine that was asked."""
        view, report, now_ns = self._site.view, self._site.view.report(), self._site.runtime.wall_ns()
        found = project_status(view.bus(), view.cluster, self._site.name, now_ns, heard=view.heard())
        return as_json({"engine": view.engine, "role": report.role, **found.tree()})

    async def health(self) -> dict[str, str]:
        """Needs no token, and says nothing else."""
        return {"status": "ok"}
