"""Errors of the scheduler's API, in the tree of lockstep.errors.

UsageError                                         exit 2
  BadBody MethodNotAllowed
NotFound                                           exit 3
  RouteNotFound EventNotFound CronNotFound TenantNotFound
Conflict                                           exit 4
  EventNotFailed
"""

from __future__ import annotations

from lockstep.errors import Conflict, NotFound, UsageError


class BadBody(UsageError, ValueError):
    """A request whose body can't be used."""

    code = "BAD_BODY"
    template = "The body can't be used: {reason}."
    advice = "See /openapi.json for an example."


class MethodNotAllowed(UsageError):
    """A path that has other methods."""

    code = "METHOD_NOT_ALLOWED"
    template = "{method} {path} does not exist."
    advice = "Allowed: {allowed}. See /openapi.json for the routes."


class RouteNotFound(NotFound):
    """A path that has no methods at all."""

    code = "ROUTE_NOT_FOUND"
    template = "The path {path} does not exist."
    advice = "See /openapi.json for the routes; write a slash in a tenant or id as %2F."


class EventNotFound(NotFound):
    """No event of this tenant and id."""

    code = "EVENT_NOT_FOUND"
    template = "Tenant {tenant!r} has no event {id!r}."
    advice = "It was never scheduled, was removed, or ended longer ago than events are kept."


class CronNotFound(NotFound):
    """No cron of this tenant, id and type."""

    code = "CRON_NOT_FOUND"
    template = "Tenant {tenant!r} has no cron {id!r} of type {type}."
    advice = "GET /v2/crons lists all crons."


class TenantNotFound(NotFound):
    """No tenant of this name."""

    code = "TENANT_NOT_FOUND"
    template = "Tenant {tenant!r} is not registered."
    advice = "GET /v2/tenants lists all tenants."


class EventNotFailed(Conflict):
    """A replay of an event that has not failed."""

    code = "EVENT_NOT_FAILED"
    template = "The event {id!r} of tenant {tenant!r} can't be replayed: {reason}."
    advice = "Only events with status FAILED can."
