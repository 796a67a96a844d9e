"""Our own routes: how the project stands, and whether the server answers."""

from __future__ import annotations

from fastapi import APIRouter, Response

from lockstep.engine.runtime.control.status import project_status
from lockstep.server.answers import as_json
from lockstep.server.guard import HEALTH
from lockstep.server.site import Site


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
