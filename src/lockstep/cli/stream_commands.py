"""The verbs of `lockstep stream`."""

from __future__ import annotations

import argparse

from lockstep.cli import values as kinds
from lockstep.cli.parser import Arguments, Noun, Verb


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")


def _ls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--groups", action="store_true",
                        help="show the groups that read each stream; reads the log of every group")  # fmt: skip


def _create(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument("--capacity", type=kinds.capacity, default=argparse.SUPPRESS, metavar="N|none",
                        help="records kept; none keeps them all. Without any bound: 7 days")  # fmt: skip
    parser.add_argument("--retain-bytes", type=kinds.size, metavar="SIZE", help="stored bytes kept, for example 10GiB")
    parser.add_argument("--retain-age", type=kinds.span_s, metavar="SPAN", help="how long records are kept, as 7d")
    parser.add_argument("--protect", action="store_true", help="keep what a group has not confirmed")
    parser.add_argument("--compression", metavar="NAME", help="none, lz4, zstd, gzip or snappy (none)")
    parser.add_argument("--shards", type=kinds.positive, metavar="N", help="logs chosen by key; order within each (1)")
    parser.add_argument("--max-record-bytes", type=kinds.size, metavar="SIZE", help="largest record (8MiB)")
    parser.add_argument("--history", metavar="URL", help="store for records beyond the capacity, as lmdb:./archive")
    parser.add_argument("--sync-replicas", type=kinds.not_negative, metavar="N", help="copies wanted (0)")
    parser.add_argument("--config", metavar="FILE", help="settings from a .toml, .yaml or .json file; options go first")
    parser.add_argument("--new", action="store_true", help="fail if the stream exists")


def _alter(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    unset = argparse.SUPPRESS
    parser.add_argument("--capacity", type=kinds.capacity, default=unset, metavar="N|none", help="records kept")
    parser.add_argument("--retain-bytes", type=kinds.size_or_none, default=unset, metavar="SIZE|none",
                        help="stored bytes kept")  # fmt: skip
    parser.add_argument("--retain-age", dest="retain_age_s", type=kinds.span_or_none, default=unset,
                        metavar="SPAN|none", help="how long records are kept, as 7d")  # fmt: skip
    parser.add_argument("--protect", action=argparse.BooleanOptionalAction, default=unset,
                        help="keep what a group has not confirmed")  # fmt: skip
    parser.add_argument("--protect-bytes", type=kinds.size, default=unset, metavar="SIZE",
                        help="ceiling of a protected stream")  # fmt: skip
    parser.add_argument("--compression", default=unset, metavar="NAME", help="none, lz4, zstd, gzip or snappy")
    parser.add_argument("--max-record-bytes", type=kinds.size, default=unset, metavar="SIZE", help="largest record")
    for fixed in ("--shards", "--history"):
        parser.add_argument(fixed, default=unset, type=int if fixed == "--shards" else str, help=argparse.SUPPRESS)
    kinds.add_destructive(parser)


def _publish(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument("values", metavar="VALUE", nargs="*", default=[], help="records; stdin, one a line, if none")
    parser.add_argument("--file", metavar="FILE", help="read records from a file; - is stdin")
    parser.add_argument("--key", metavar="KEY", help="key of every record")
    parser.add_argument("--key-separator", metavar="SEP", help="every record is KEY SEP VALUE")
    parser.add_argument("-H", "--header", dest="headers", type=kinds.header, action="append", default=[],
                        metavar="NAME=VALUE", help="header of every record; may be repeated")  # fmt: skip
    parser.add_argument("--null", action="store_true", help="records end with a NUL byte, not a line end")
    as_json = 'every line is {"value": ..., "key": ..., "headers": {...}}, or what tail --json prints'
    parser.add_argument("--json-lines", action="store_true", help=as_json)
    parser.add_argument("--count", type=kinds.positive, metavar="N",
                        help="publish the VALUE N times; {n} in it counts from 1")  # fmt: skip
    parser.add_argument("--rate", type=kinds.above_zero, metavar="R", help="at most R records a second")
    parser.add_argument("--no-create", action="store_true", help="fail if the stream does not exist")


def _tail(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("-n", dest="last", type=kinds.not_negative, metavar="N", help="begin with the last N (10)")
    start.add_argument("-o", "--offset", type=kinds.not_negative, metavar="OFFSET", help="begin at an offset")
    start.add_argument("--since", type=kinds.moment_ns, metavar="TIME",
                       help="begin at a time: ISO 8601, seconds since 1970, or 5m (ago)")  # fmt: skip
    start.add_argument("--from-start", action="store_true", help="begin with the first readable record")
    parser.add_argument("--until", type=kinds.moment_ns, metavar="TIME", help="end at a time")
    parser.add_argument("--exit", action="store_true", help="end at the end of the stream; do not wait for more")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more; the default")
    parser.add_argument("--group", metavar="GROUP", help="read as a member of a group, and confirm what was printed")
    parser.add_argument("--format", metavar="FORMAT",
                        help=r"as '%%o %%k %%v\n': %%o offset %%k key %%v value %%h headers %%t create time "
                        r"%%T append time %%s stream %%x hex %%b base64")  # fmt: skip
    parser.add_argument("--max", type=kinds.positive, metavar="N", help="end after N records")


def _copy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET", help="made like the source if it is missing")
    parser.add_argument("--to-bus", metavar="URL", help="bus of the target; the same by default")
    parser.add_argument("--from", dest="start", type=kinds.position, default="earliest", metavar="WHERE",
                        help="where the first run begins: earliest, latest, OFFSET or a time (earliest)")  # fmt: skip
    parser.add_argument("--group", metavar="GROUP", help="group that remembers how far it is (copy.TARGET)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is published later")
    parser.add_argument("--dry-run", action="store_true", help="show how much would be copied, and copy nothing")


def _trim(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--before", type=kinds.not_negative, metavar="OFFSET", help="forget everything below an offset")
    where.add_argument("--keep", type=kinds.not_negative, metavar="N", help="forget all but the last N records")
    kinds.add_destructive(parser)


def _delete(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    kinds.add_destructive(parser)


def _verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="show faults of this stream only")


def _verb(name: str, purpose: str, module: str, arguments: Arguments, *examples: str) -> Verb:
    return Verb(name=name, purpose=purpose, run=f"lockstep.cli.{module}:{name}", arguments=arguments, examples=examples)


STREAM = Noun(
    name="stream",
    purpose="Streams of records: make, publish, read, copy, look after.",
    verbs=(
        _verb("create", "Make a stream; nothing happens if it exists with the same settings.", "stream_admin", _create,
              "lockstep stream create orders", "lockstep stream create audit --capacity none --retain-age 7d",
              "lockstep stream create events --shards 4 --compression zstd --new"),
        _verb("alter", "Change settings of a stream; shards and history are fixed when it is created.", "stream_admin",
              _alter, "lockstep stream alter orders --retain-age 30d --yes",
              "lockstep stream alter orders --capacity none --compression zstd"),
        _verb("ls", "List the streams.", "stream_admin", _ls, "lockstep stream ls", "lockstep stream ls --groups",
              "lockstep stream ls --json"),
        _verb("show", "Show a stream: settings, what is in it, what the bus promises, and its groups.",
              "stream_admin", _name, "lockstep stream show orders", "lockstep stream show orders --json"),
        _verb("publish", "Publish records from arguments, a file or stdin; print their offsets (or SHARD:OFFSET).",
              "stream_write", _publish, "lockstep stream publish orders 'first order' --key customer-7",
              "printf 'a:1\\nb:2\\n' | lockstep stream publish orders --key-separator :",
              "lockstep stream publish orders 'order {n}' --count 100 --rate 200"),
        _verb("tail", "Print the last records of a stream, and those that follow until Ctrl-C.", "stream_read", _tail,
              "lockstep stream tail orders", "lockstep stream tail orders --since 5m --exit --json",
              r"lockstep stream tail orders --from-start --max 10 --format '%o %k %v\n'"),
        _verb("copy", "Copy a stream, to another bus if wanted; a second run goes on where the first ended.",
              "stream_copy", _copy, "lockstep stream copy orders orders-copy",
              "lockstep stream copy orders orders --to-bus lmdb:./backup"),
        _verb("trim", "Forget the oldest records of a stream, for good.", "stream_admin", _trim,
              "lockstep stream trim orders --keep 1000 --dry-run", "lockstep stream trim orders --before 40 --yes"),
        _verb("delete", "Remove a stream and all its records.", "stream_admin", _delete,
              "lockstep stream delete orders --dry-run", "lockstep stream delete orders --yes"),
        _verb("verify", "Check every stored record of a folder that nobody writes to.", "bus", _verify,
              "lockstep stream verify", "lockstep stream verify orders --json"),
    ),
)  # fmt: skip
