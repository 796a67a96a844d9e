"""The app: all routes, behind the guard, with errors as documents."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import lockstep
from lockstep.errors import LockstepError
from lockstep.server.answers import path_of, problem, refusal
from lockstep.server.guard import failure
from lockstep.server.routes_change import ChangeRoutes
from lockstep.server.routes_events import EventRoutes
from lockstep.server.routes_look import LookRoutes, OwnRoutes
from lockstep.server.site import Site

BASE = "/eventStreamProcessing/v1"
_ERRORS = {
    401: "no valid token", 403: "refused", 404: "not found", 409: "the state of the project says no",
    413: "too large", 422: "wrong parameters, or a model with faults", 503: "not now", 504: "no answer in time",
}  # fmt: skip


def make_app(site: Site) -> FastAPI:
    """All routes over one engine."""
    app = FastAPI(
        title="Lockstep", version=lockstep.__version__, docs_url=None, redoc_url=None, openapi_url="/openapi.json",
        summary="REST of an engine: ESP's routes, and the state of the failover group",
        responses={status: {"description": text} for status, text in _ERRORS.items()},
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False,
                   "auto_configure": False},
    )  # fmt: skip
    app.include_router(LookRoutes(site).router(), prefix=BASE)
    app.include_router(EventRoutes(site).router(), prefix=BASE)
    app.include_router(ChangeRoutes(site).router(), prefix=BASE)
    app.include_router(OwnRoutes(site).router())
    app.add_exception_handler(LockstepError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(Exception, lambda request, error: failure(request, error, site.runtime))
    return app


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, LockstepError)
    return refusal(request, error)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = [f"{'.'.join(map(str, item['loc'][1:])) or 'request'}: {item['msg']}" for item in error.errors()]
    return problem(request, 422, "USAGE", f"Parameters are wrong: {'; '.join(told)}.", "See /openapi.json.")


def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "NOT_FOUND" if error.status_code == HTTPStatus.NOT_FOUND else "USAGE"
    message = f"{request.method} {path_of(request)}: {HTTPStatus(error.status_code).phrase}."
    return problem(request, error.status_code, code, message, "See /openapi.json for the routes.", error.headers)
