"""Deliveries from the command line: a carrier with a ready-made handler, and a look at what became of items."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lockstep.cli import values as kinds
from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output, plural
from lockstep.cli.parser import Arguments, Noun, Verb
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


def _outbox(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("outbox", metavar="OUTBOX", help="the stream whose items are carried out")
    parser.add_argument("--group", metavar="GROUP", default="carriers", help="the group of carriers (carriers)")


def _run(parser: argparse.ArgumentParser) -> None:
    _outbox(parser)
    parser.add_argument("--kind", dest="kinds", action="append", metavar="KIND",
                        help="carry out items of this kind only; may be repeated (all)")  # fmt: skip
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--http", metavar="URL", help="POST each item; its id is the Idempotency-Key")
    way.add_argument("--command", metavar="CMD",
                     help="run a command for each item: words as in a shell, but no shell reads them")  # fmt: skip
    way.add_argument("--shell", metavar="TEXT", help="as --command, read by /bin/sh")
    way.add_argument("--stream", metavar="STREAM", help="publish each item to a stream")
    way.add_argument("--mail", action="store_true", help="send each item by SMTP: a JSON object of texts")
    parser.add_argument("--to-bus", metavar="URL", help="bus of --stream; the same by default")
    parser.add_argument("-H", "--header", dest="headers", type=kinds.header, action="append", default=[],
                        metavar="NAME=VALUE", help="header of each request; may be repeated")  # fmt: skip
    parser.add_argument("--allow-loopback", action="store_true", help="let --http call this machine")
    parser.add_argument("--timeout", type=kinds.duration, metavar="TIME", help="of one attempt (10s; commands 60s)")
    parser.add_argument("--workers", type=kinds.positive, default=8, metavar="N", help="items at a time (8)")
    parser.add_argument("--retries", type=kinds.not_negative, default=10, metavar="N",
                        help="tries after the first that failed; then the dead letters (10)")  # fmt: skip
    parser.add_argument("--backoff", type=kinds.duration, default=1.0, metavar="TIME",
                        help="pause before the first retry; doubles with each, up to 5m (1s)")  # fmt: skip
    parser.add_argument("--on-doubt", choices=("again", "skip"), default="again",
                        help="what to do with an item that was begun and not said to be done (again)")  # fmt: skip
    parser.add_argument("--until-idle", action="store_true", help="end when everything is carried out")


def _ls(parser: argparse.ArgumentParser) -> None:
    _outbox(parser)
    parser.add_argument("--unfinished", action="store_true", help="only what is not finished with")


def _doubts(parser: argparse.ArgumentParser) -> None:
    _outbox(parser)
    parser.add_argument("--unresolved", action="store_true", help="only those of which nothing is known since")


def _item(parser: argparse.ArgumentParser) -> None:
    _outbox(parser)
    parser.add_argument("id", metavar="ID", help="as 'delivery ls' shows it")


def _verb(name: str, purpose: str, arguments: Arguments, *examples: str) -> Verb:
    return Verb(
        name=name, purpose=purpose, run=f"lockstep.cli.deliveries:{name}", arguments=arguments, examples=examples
    )


DELIVERY = Noun(
    name="delivery",
    purpose="Deliveries: carry out the items of a stream, each once, and see what is in doubt.",
    verbs=(
        _verb("run", "Carry out the items of an outbox until Ctrl-C, sharing them with the others of the group.", _run,
              "lockstep delivery run outbox --http https://example.com/hook",
              "lockstep delivery run outbox --kind page --command './page.sh --now' --until-idle",
              "lockstep delivery run local.alarms.N --group local.alarms.mail --mail"),
        _verb("ls", "List items: those that are begun or wait for their next try, and the last that are finished.",
              _ls, "lockstep delivery ls outbox", "lockstep delivery ls outbox --unfinished --json"),
        _verb("doubts", "List attempts that were begun and whose carrier did not say how they ended.", _doubts,
              "lockstep delivery doubts outbox", "lockstep delivery doubts outbox --unresolved --json"),
        _verb("retry", "Put an item on the outbox again that was given up or skipped.", _item,
              "lockstep delivery retry outbox invoice-7"),
        _verb("skip", "Have an item not carried out, or not tried again.", _item,
              "lockstep delivery skip outbox invoice-7"),
    ),
)  # fmt: skip
