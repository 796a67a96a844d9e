"""Groups: look at them, move them, forget them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import bus_url, label, opened
from lockstep.cli.output import Output, confirm, plural
from lockstep.cli.values import span
from lockstep.streams import views
from lockstep.streams.shards import split_log

if TYPE_CHECKING:
    from lockstep.log.port import Log
    from lockstep.streams.client import Lockstep


def ls(options: argparse.Namespace, output: Output) -> None:
    """List the groups."""
    with opened(bus_url(options)) as client:
        rows = [views.group_row(group) for group in views.heard_views(client, views.group_views(client))]
    if output.json:
        for row in rows:
            output.json_line(row)
        return
    if not rows:
        output.note("There are no groups. One begins with its first member.")
        return
    cells = [[row["name"], _counted(row), ", ".join(row["streams"]) or None, row["lag"]] for row in rows]
    output.table(["name", "members", "streams", "lag"], cells)


def _counted(row: dict[str, Any]) -> str | int:
    """Return the number of members; those not heard from within their lease are counted separately."""
    return f"{row['members']} ({row['silent']} silent)" if row["silent"] else row["members"]


def show(options: argparse.Namespace, output: Output) -> None:
    """Show a group."""
    with opened(bus_url(options)) as client:
        (found,) = views.heard_views(client, [client.groups.describe(options.group)])
    detail = views.group_detail(found)
    if output.json:
        output.json_line(detail)
        return
    output.facts({"group": detail["name"], "members": len(detail["members"])})
    if detail["members"]:
        output.heading("members")
        output.table(["member", "streams", ""], [_member_cells(row) for row in detail["members"]])
    output.heading("streams")
    if not detail["streams"]:
        output.line("none")
        return
    names = ("owner", "epoch", "confirmed", "next", "end", "lag")
    rows = [[label(row), *(row[name] for name in names), span(row["lag_s"])] for row in detail["streams"]]
    output.table(["stream", *names, "behind"], rows)


def _member_cells(row: dict[str, Any]) -> list[str | None]:
    return [row["member"], ", ".join(row["streams"]), "silent" if row["silent"] else ""]


def reset(options: argparse.Namespace, output: Output) -> None:
    """Move a group to another position on a stream."""
    with opened(bus_url(options)) as client:
        view = client.groups.describe(options.group)
        now = {progress.stream: progress for progress in view.streams}
        logs = client.logs(options.name)
        changes = [_change(client, log, now.get(log.name), options.to) for log in logs]
        if not output.json:
            _show_changes(output, changes)
            output.flush()
        if not options.dry_run:
            confirm(options, options.group, f"move group {options.group} on stream {options.name} as shown")
            for log, change in zip(logs, changes, strict=True):
                client.groups.reset(options.group, log.name, change["after"], force=options.force)
    if output.json:
        output.json_line({"group": options.group, "applied": not options.dry_run, "changes": changes})
    elif not options.dry_run:
        output.note(f"Group {options.group} reads stream {options.name} from there on.")


def _change(client: Lockstep, log: Log, progress: Any, to: str | int) -> dict[str, Any]:
    after, end = client.groups.target(log.name, to), log.bounds().next
    stream, shard = split_log(log.name)
    return {
        "stream": stream,
        "shard": shard,
        "before": None if progress is None else progress.next,
        "after": after,
        "lag_before": None if progress is None else progress.lag,
        "lag_after": end - after,
    }


def _show_changes(output: Output, changes: list[dict[str, Any]]) -> None:
    names = ("before", "after", "lag_before", "lag_after")
    rows = [[label(change), *(change[name] for name in names)] for change in changes]
    output.table(["stream", "next before", "next after", "lag before", "lag after"], rows)


def delete(options: argparse.Namespace, output: Output) -> None:
    """Forget a group."""
    with opened(bus_url(options)) as client:
        row = views.group_row(client.groups.describe(options.group))
        if not options.dry_run:
            where = f" on {', '.join(row['streams'])}" if row["streams"] else ""
            confirm(options, options.group, f"delete group {options.group} and forget its positions{where}")
            client.groups.delete(options.group, force=options.force)
    if output.json:
        output.json_line({"group": options.group, "streams": row["streams"], "deleted": not options.dry_run})
        return
    output.line(f"{'Would delete' if options.dry_run else 'Deleted'} group {options.group}.")


def mirror(options: argparse.Namespace, output: Output) -> None:
    """Copy the positions of a group to the server's own group of that name."""
    from lockstep.errors import UsageError

    with opened(bus_url(options)) as client:
        tell = getattr(client.bus, "mirror_group", None)
        if tell is None:
            raise UsageError(
                reason=f"A group is mirrored to the server of a kafka: bus; {client.url} has no groups of its own."
            )
        while True:
            found = client.groups.describe(options.group).streams
            positions = {progress.stream: progress.next for progress in found if progress.next is not None}
            tell(options.group, positions)
            if output.json:
                output.json_line({"group": options.group, "positions": positions})
            else:
                output.line(
                    f"Wrote {plural(len(positions), 'position')} of group {options.group} for the server's tools."
                )
            output.flush()
            if options.every is None:
                return
            client.runtime.waiter().wait(options.every)
