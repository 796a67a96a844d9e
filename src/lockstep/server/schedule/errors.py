"""Errors of the scheduler's API, in the tree of lockstep.errors.

NotFound                                           exit 3
  EventNotFound CronNotFound TenantNotFound
Conflict                                           exit 4
  EventNotFailed
"""

from __future__ import annotations

from lockstep.errors import Conflict, NotFound


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
