"""Deliveries from the command line: a carrier with a ready-made handler, and a look at what became of items."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.output import Output, plural
from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.streams.carrier import Carrier, ItemHandler
    from lockstep.streams.client import Lockstep
    from lockstep.streams.deliveries import Deliveries

_HTTP_S, _COMMAND_S = 10.0, 60.0


def run(options: argparse.Namespace, output: Output) -> None:
    """Carry items out until asked to end, or until nothing is left."""
    from lockstep.streams.carrier import EVERY_KIND, Carrier, CarrierOptions

    settings = CarrierOptions(
        workers=options.workers, retries=options.retries, backoff_s=options.backoff, on_doubt=options.on_doubt
    )
    with ExitStack() as closing:
        client = closing.enter_context(opened(bus_url(options), lasting=True))
        client.config(options.outbox)  # one that is missing is said before anything is started
        handler = _handler(options, client, closing)
        carrier = closing.enter_context(Carrier(client, options.outbox, options.group, settings))
        for kind in options.kinds or [EVERY_KIND]:
            carrier.on(kind, handler)
        output.note(f"Carrying out the items of {options.outbox} as a member of group {options.group}.")
        if options.until_idle:
            carrier.start().wait_idle()
        else:
            carrier.run()
    _tell_end(carrier, output)


def _tell_end(carrier: Carrier, output: Output) -> None:
    counts = carrier.counts
    if output.json:
        output.json_line({"outbox": carrier.outbox, "group": carrier.group, **counts})
        return
    others = ", ".join(f"{count:,} {name}" for name, count in counts.items() if name != "done" and count)
    output.line(f"Carried out {plural(counts['done'], 'item')}{': ' if others else ''}{others}.")


def _handler(options: argparse.Namespace, client: Lockstep, closing: ExitStack) -> ItemHandler:
    if (options.headers or options.allow_loopback) and not options.http:
        raise UsageError(reason="--header and --allow-loopback belong to --http.")
    if options.to_bus and not options.stream:
        raise UsageError(reason="--to-bus belongs to --stream.")
    if options.http:
        from lockstep.carriers.http import HttpPost
        from lockstep.net.addresses import AddressRules

        headers = {name: value.decode() for name, value in options.headers}
        rules = AddressRules(allow_loopback=options.allow_loopback)
        return HttpPost(options.http, headers=headers, timeout_s=options.timeout or _HTTP_S, addresses=rules)
    if options.mail:
        from lockstep.carriers.mail import MailSender

        return MailSender(os.environ, timeout_s=options.timeout or _HTTP_S)
    if options.stream:
        from lockstep.carriers.stream import ToStream

        target = closing.enter_context(opened(options.to_bus, create=True)) if options.to_bus else client
        return ToStream(target, options.stream, name=f"{options.outbox}.{options.group}")
    return _command(options)


def _command(options: argparse.Namespace) -> ItemHandler:
    from lockstep.carriers.command import Command

    timeout_s = options.timeout or _COMMAND_S
    try:
        words = ["/bin/sh", "-c", options.shell] if options.shell else shlex.split(options.command)
    except ValueError as error:
        raise UsageError(reason=f"--command {options.command!r} can't be split into words: {error}.") from None
    return Command(words, environment=os.environ, timeout_s=timeout_s)


def ls(options: argparse.Namespace, output: Output) -> None:
    """List items."""
    with _looked_at(options) as deliveries:
        found = deliveries.items(unfinished=options.unfinished)
    _show(output, [asdict(one) for one in found], "No item is known to the ledger.")


def doubts(options: argparse.Namespace, output: Output) -> None:
    """List attempts in doubt."""
    with _looked_at(options) as deliveries:
        found = deliveries.doubts(unresolved=options.unresolved)
    _show(output, [asdict(one) for one in found], "Nothing is in doubt.")


def retry(options: argparse.Namespace, output: Output) -> None:
    """Have an item carried out after all."""
    with _looked_at(options) as deliveries:
        offset = deliveries.retry(options.id)
    if output.json:
        output.json_line({"id": options.id, "offset": offset})
    else:
        output.line(f"Item {options.id} is on {options.outbox} again, at offset {offset}.")


def skip(options: argparse.Namespace, output: Output) -> None:
    """Have an item not carried out."""
    with _looked_at(options) as deliveries:
        deliveries.skip(options.id)
    if output.json:
        output.json_line({"id": options.id, "skipped": True})
    else:
        output.line(f"Item {options.id} is skipped.")


@contextmanager
def _looked_at(options: argparse.Namespace) -> Iterator[Deliveries]:
    from lockstep.streams.deliveries import Deliveries

    with opened(bus_url(options)) as client:
        yield Deliveries(client, options.outbox, options.group)


def _show(output: Output, rows: list[dict[str, Any]], nothing: str) -> None:
    if output.json:
        for row in rows:
            output.json_line(row)
    elif not rows:
        output.note(nothing)
    else:
        cells = [[_cell(value) for value in row.values()] for row in rows]
        output.table([name.replace("_", " ") for name in rows[0]], cells)


def _cell(value: Any) -> Any:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
