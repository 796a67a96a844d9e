"""`lockstep tenant`: register, list, remove, pause and resume the tenants of a scheduler."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import closest
from lockstep.cli.output import Output, confirm
from lockstep.cli.schedule_events import opened_scheduler
from lockstep.errors import NotFound, UsageError

if TYPE_CHECKING:
    from lockstep.schedule.scheduler import Scheduler
    from lockstep.schedule.tenants import Tenant

DUE_MAX = 1000


def add(options: argparse.Namespace, output: Output) -> None:
    """Register a tenant."""
    kind, props = _props(options)
    with opened_scheduler(options) as scheduler:
        known = scheduler.tenants().get(options.tenant)
        scheduler.register(options.tenant, kind, props, rate=options.rate)
        made = scheduler.tenants()[options.tenant]
    if output.json:
        output.json_line({**_row(made), "replaced": known is not None})
    else:
        verb = "is registered" if known is None else "has new settings"
        output.line(f"Tenant {options.tenant} {verb}: {_where(made)}.")


def _props(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    _check_options(options)
    props: dict[str, Any] = {name: value.decode() for name, value in options.prop}
    if options.secret_file is not None:
        props["secret"] = Path(options.secret_file).read_text().strip()
    if options.url is not None:
        headers = {name: value.decode() for name, value in options.header}
        return "HTTP", {"url": options.url, **({"headers": headers} if headers else {}), **props}
    if options.processor is not None:
        return "CUSTOM_CLASS", {"eventProcessorClass": options.processor, **props}
    return "MESSAGING", {"topic": options.stream or options.topic, **props}


def _check_options(options: argparse.Namespace) -> None:
    """Refuse options that would count for nothing."""
    has_servers = any(name == "bootstrap.servers" for name, _ in options.prop)
    if options.topic is not None and not has_servers:
        raise UsageError(
            reason="--topic needs --prop bootstrap.servers=HOST:PORT; for a stream of the bus use --stream."
        )
    if options.stream is not None and has_servers:
        raise UsageError(reason="--stream is a stream of the bus: with --prop bootstrap.servers use --topic.")
    if options.url is None and (options.header or options.secret_file is not None):
        raise UsageError(reason="--header and --secret-file are for tenants with --url.")


def ls(options: argparse.Namespace, output: Output) -> None:
    """List the tenants."""
    with opened_scheduler(options) as scheduler:
        found = [tenant for _, tenant in sorted(scheduler.tenants().items())]
    if output.json:
        for tenant in found:
            output.json_line(_row(tenant))
    elif not found:
        output.note("There are no tenants. Register one: lockstep tenant add NAME --stream STREAM")
    else:
        rows = [[tenant.tenant, tenant.type.value, _where(tenant), _rate(tenant), _state(tenant)] for tenant in found]
        output.table(["tenant", "type", "events go to", "rate", "state"], rows)


def show(options: argparse.Namespace, output: Output) -> None:
    """Show one tenant."""
    with opened_scheduler(options) as scheduler:
        _known(scheduler, options.tenant)
        tenant = scheduler.tenants()[options.tenant]
        due = _due(scheduler, options.tenant)
    if output.json:
        output.json_line({**_row(tenant), "due": due})
        return
    output.facts({
        "tenant": tenant.tenant, "type": tenant.type.value, "events go to": _where(tenant),
        "rate": _rate(tenant) or "no limit", "state": _state(tenant),
        "due now": f"more than {DUE_MAX:,}" if due > DUE_MAX else due,
    })  # fmt: skip


def _due(scheduler: Scheduler, tenant: str) -> int:
    """Unfired events that are due by now, counted up to one more than DUE_MAX."""
    from lockstep.schedule.times import FIRST_MS

    now, count = scheduler.bus.runtime.wall_ns() // 10**6, 0
    for shard in range(len(scheduler.bus.logs(scheduler.streams.requests))):
        count += len(scheduler.store.due(shard, tenant, FIRST_MS, now, DUE_MAX + 1 - count))
        if count > DUE_MAX:
            break
    return count


def rm(options: argparse.Namespace, output: Output) -> None:
    """Remove a tenant."""
    with opened_scheduler(options) as scheduler:
        _known(scheduler, options.tenant)
        if not options.dry_run:
            effect = f"remove tenant {options.tenant}: its events wait, and are FAILED when they are too old"
            confirm(options, options.tenant, effect)
            scheduler.remove_tenant(options.tenant)
    if output.json:
        output.json_line({"tenant": options.tenant, "removed": not options.dry_run})
    elif options.dry_run:
        output.line(f"Would remove tenant {options.tenant}.")
    else:
        output.line(f"Removed tenant {options.tenant}.")


def pause(options: argparse.Namespace, output: Output) -> None:
    """Have a tenant's events wait."""
    with opened_scheduler(options) as scheduler:
        _known(scheduler, options.tenant)
        scheduler.pause_tenant(options.tenant)
    _say(output, options.tenant, paused=True)


def resume(options: argparse.Namespace, output: Output) -> None:
    """Let a tenant's events fire."""
    with opened_scheduler(options) as scheduler:
        _known(scheduler, options.tenant)
        scheduler.resume_tenant(options.tenant)
    _say(output, options.tenant, paused=False)


def _known(scheduler: Scheduler, name: str) -> None:
    tenants = scheduler.tenants()
    if name not in tenants:
        error = NotFound(what="Tenant", name=name)
        if meant := closest(name, tenants):
            error.add_note(f"Did you mean {meant!r}?")
        raise error


def _say(output: Output, name: str, *, paused: bool) -> None:
    if output.json:
        output.json_line({"tenant": name, "paused": paused})
    else:
        output.line(f"The events of tenant {name} {'wait' if paused else 'fire again'}.")


def _row(tenant: Tenant) -> dict[str, Any]:
    return {**tenant.masked(), "rate": tenant.rate, "paused": tenant.paused}


def _where(tenant: Tenant) -> str:
    if tenant.stream is not None:
        return f"stream {tenant.stream}"
    masked = tenant.masked()["props"]
    if tenant.type.value == "HTTP":
        return str(masked["url"])
    return f"topic {masked['topic']}" if "topic" in masked else str(masked.get("eventProcessorClass"))


def _rate(tenant: Tenant) -> str | None:
    return None if tenant.rate is None else f"{tenant.rate:g}/s"


def _state(tenant: Tenant) -> str:
    return "paused" if tenant.paused else "fires"
