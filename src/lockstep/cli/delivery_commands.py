"""The verbs of `lockstep delivery`."""

from __future__ import annotations

import argparse

from lockstep.cli import arguments as kinds
from lockstep.cli.parser import Arguments, Noun, Verb


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
