"""Our own routes for tenants."""

from __future__ import annotations

from typing import Any

from lockstep.errors import BadArgument
from lockstep.schedule.tenants import Tenant
from lockstep.server.access import Role
from lockstep.server.bodies import Reply, reply
from lockstep.server.routes import Call, Route, Work
from lockstep.server.schedule import examples
from lockstep.server.schedule.documents import TenantNotFound, parse_object
from lockstep.server.schedule.site import ScheduleSite
from lockstep.server.schedule.views import tenant_view

PATH = "/v2/tenants/{tenant}"
TENANT_FIELDS = frozenset({"tenant", "type", "props", "rate"})
OK = {"status": "OK"}


class TenantRoutes:
    """The routes for tenants."""

    def __init__(self, site: ScheduleSite) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """All of them."""
        missing = {404: examples.ERROR}
        return [
            Route(method="GET", path="/v2/tenants", handle=self.all, tag="tenants",
                  summary="All tenants, without their secrets", answers={200: {"tenants": [examples.TENANT_SHOWN]}}),
            Route(method="GET", path=PATH, handle=self.get, tag="tenants", summary="One tenant, without its secrets",
                  answers={200: examples.TENANT_SHOWN, **missing}),
            Route(method="PUT", path=PATH, handle=self.put, work=Work.CHANGE, tag="tenants", body=examples.TENANT_PUT,
                  summary="Register a tenant, or give it other settings; `rate` is events in a second at most",
                  role=Role.ADMIN,
                  answers={200: {**examples.TENANT_SHOWN, "rate": 50.0}}),
            Route(method="DELETE", path=PATH, handle=self.delete, work=Work.CHANGE, tag="tenants",
                  summary="Remove a tenant; its events wait until it is registered again", role=Role.ADMIN,
                  answers={200: OK, **missing}),
            Route(method="POST", path=f"{PATH}/pause", handle=self.pause, work=Work.CHANGE, tag="tenants",
                  summary="Have a tenant's events wait", answers={200: examples.TENANT_SHOWN, **missing}),
            Route(method="POST", path=f"{PATH}/resume", handle=self.resume, work=Work.CHANGE, tag="tenants",
                  summary="Let a tenant's events fire again", answers={200: examples.TENANT_SHOWN, **missing}),
        ]  # fmt: skip

    def all(self, _call: Call) -> Reply:
        """In the order of their registration."""
        return reply({"tenants": [tenant_view(tenant) for tenant in self._site.client.tenants().values()]})

    def get(self, call: Call) -> Reply:
        """404 if there is none."""
        return reply(tenant_view(self._tenant(call)))

    def put(self, call: Call) -> Reply:
        """The settings replace those before, also a secret that is left out."""
        name = call.names["tenant"]
        fields = parse_object(call.body, TENANT_FIELDS)
        if fields.get("tenant", name) != name:
            raise BadArgument(name="tenant", value=fields["tenant"], reason="it is another one than in the path")
        props: Any = fields.get("props")
        self._site.scheduler.register(name, fields.get("type"), props, rate=fields.get("rate"))  # type: ignore[arg-type]
        return self.get(call)

    def delete(self, call: Call) -> Reply:
        """404 if there was none."""
        self._site.scheduler.remove_tenant(self._tenant(call).tenant)
        return reply(OK)

    def pause(self, call: Call) -> Reply:
        """Also if it was paused."""
        self._site.scheduler.pause_tenant(self._tenant(call).tenant)
        return self.get(call)

    def resume(self, call: Call) -> Reply:
        """Also if it was not paused."""
        self._site.scheduler.resume_tenant(self._tenant(call).tenant)
        return self.get(call)

    def _tenant(self, call: Call) -> Tenant:
        found = self._site.client.tenants().get(call.names["tenant"])
        if found is None:
            raise TenantNotFound(tenant=call.names["tenant"])
        return found
