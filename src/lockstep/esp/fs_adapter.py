"""dfesp_fs_adapter: a file to a source window, or what comes out of a window to a file."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli.connection import BUS_DEFAULT, BUS_VARIABLE, opened
from lockstep.connectors.names import WindowUrl, cluster_name, parse_window_url
from lockstep.connectors.properties import switch, words_of
from lockstep.errors import NotFound, UsageError
from lockstep.esp.command import Sections, flags, load_config, parsed, run_command
from lockstep.esp.places import Place, is_yes, place_of_file

if TYPE_CHECKING:
    from lockstep.cli.output import Output
    from lockstep.cli.parser import Parser

NAME = "dfesp_fs_adapter"
FILES = {"rabbitmq": "rabbitmq.cfg", "kafka": "kafka.cfg"}
REASONS = {
    "solace": "Solace is not supported. Use -l rabbitmq or -l kafka: the guarantees are the same",
    "tervela": "Tervela was ended by its vendor. Use -l rabbitmq or -l kafka",
}
EXAMPLES = (
    'dfesp_fs_adapter -k sub -h "dfESP://host:5555/trades/q/Totals?snapshot=false" -f out.csv -t csv -l rabbitmq',
    'dfesp_fs_adapter -k pub -h "dfESP://host:5555/trades/q/Source" -f trades.csv -t csv -l rabbitmq -b 64',
)
LOCAL = ("localhost", "127.0.0.1", "::1")
WAIT_S = 60.0
_LOOK_S = 0.25


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(NAME, _work, arguments)


def parser() -> Parser:
    """Its flags."""
    made = flags(
        NAME,
        "Publish a file to a source window, or write what comes out of a window to a file.",
        EXAMPLES,
    )
    made.add_argument("-k", choices=("pub", "sub"), help="publish or subscribe")
    made.add_argument("-h", dest="url", metavar="URL", help="dfESP://HOST:PORT/PROJECT/QUERY/WINDOW[?snapshot=false]")
    made.add_argument("-f", dest="file", metavar="FILE", help="what to read or write; - is standard input or output")
    made.add_argument("-t", dest="type", metavar="TYPE", help="csv, json or binary (csv)")
    made.add_argument("-l", dest="transport", metavar="BUS", help="rabbitmq, kafka or native (native)")
    made.add_argument("-b", dest="block", metavar="N", help="events in a block (1)")
    made.add_argument("-d", dest="date_format", metavar="FORMAT", help="of dates and stamps, as %%Y-%%m-%%d")
    made.add_argument("-C", dest="settings", action="append", default=[], metavar="KEY=VALUE,...",
                      help="the same by name: type, url, fsname, fstype, transport, ...")  # fmt: skip
    return made


def _work(given: Sequence[str]) -> int:
    from lockstep.cli.adapter_publish import publish
    from lockstep.cli.adapter_subscribe import subscribe
    from lockstep.cli.output import Output

    wish = wish_of(parsed(parser(), given))
    url = parse_window_url(wish.url)
    place, sections = find_place(wish, url, os.environ)
    os.environ.update(place.secrets)
    output = Output(json=False, quiet=False)
    for name in wish.ignored:
        output.note(f"{name} is taken, and means nothing here.")
    options = adapter_options(wish, url, place, sections)
    wait_for_window(place, url, subscribes=wish.kind == "sub", output=output)
    code = subscribe(options, output) if wish.kind == "sub" else publish(options, output)
    output.flush()
    return code


def find_place(wish: Wish, url: WindowUrl, environ: Mapping[str, str]) -> tuple[Place, Sections]:
    """The bus and the cluster, and what the client's file says besides."""
    if wish.transport in REASONS:
        raise UsageError(reason=f"{REASONS[wish.transport]}.")
    if wish.transport == "native":
        host, _, port = url.path.cluster.rpartition(":")
        cluster = f"127.0.0.1_{port}" if host in LOCAL else cluster_name(url.path.cluster)
        return Place(environ.get(BUS_VARIABLE) or BUS_DEFAULT, cluster), {}
    if wish.transport not in FILES:
        raise UsageError(reason=f"-l {wish.transport!r} is unknown: use rabbitmq, kafka or native.")
    path = Path(wish.config_file or FILES[wish.transport])
    sections = load_config(path)
    cluster = cluster_name(url.path.cluster)
    return place_of_file(wish.transport, sections, cluster, environ, path.name), sections


def adapter_options(wish: Wish, url: WindowUrl, place: Place, sections: Sections) -> argparse.Namespace:
    """As if it had been started with `lockstep adapter publish` or `subscribe`."""
    from lockstep import __version__
    from lockstep.cli.commands import NOUNS
    from lockstep.cli.parser import build, parse

    path = url.path
    words = ["--bus", place.url, "--cluster", place.cluster, "--project", path.project,
             "--window", f"{path.query}/{path.window}", "--type", wish.type]  # fmt: skip
    date_format = wish.date_format or sections.get("sas", {}).get("dateformat")
    words += ["--date-format", date_format] if date_format else []
    if wish.kind == "sub":
        is_snapshot = is_yes(wish.flags.get("snapshot", url.options.get("snapshot")))
        words = ["adapter", "subscribe", *words, "-o", wish.file, *(["--snapshot"] if is_snapshot else [])]
        words += [] if "--resume" in wish.words else ["--overwrite"]  # as the document's own adapter does
    else:
        words = ["adapter", "publish", wish.file, *words, "--block", str(wish.block), *_failover(sections)]
    return parse(build(NOUNS, __version__), [*words, *wish.words])


def _failover(sections: Sections) -> list[str]:
    """Publishers that stand in for each other, if the client's file asks for it."""
    settings = sections.get("sas", {})
    if not is_yes(settings.get("hotfailover")):
        return []
    group = settings.get("failovergroup", "")
    if not group:
        raise UsageError(reason="hotfailover needs a failovergroup in the section sas, the same for all that stand in.")
    buffered = settings.get("numbufferedmsgs")
    return ["--failover", group, *(["--buffered", buffered] if buffered else [])]


def wait_for_window(place: Place, url: WindowUrl, *, subscribes: bool, output: Output) -> None:
    """Until an engine has the project: scripts start everything at once. After a minute the error is what it is."""
    from lockstep.engine.errors import WindowNotFound
    from lockstep.events.connection import Events

    end, is_told, window = time.monotonic() + WAIT_S, False, f"{url.path.query}/{url.path.window}"
    while True:
        try:
            with opened(place.url) as client:
                project = Events(client, place.cluster).project(url.path.project)
                _ = project.output(window) if subscribes else project.source(window)
                return
        except WindowNotFound:
            raise
        except NotFound:
            if time.monotonic() >= end:
                raise
        if not is_told:
            is_told = True
            output.note(f"Waiting for an engine with project {url.path.project} in cluster {place.cluster} ...")
        time.sleep(_LOOK_S)


TYPES = ("csv", "json", "binary")
_PART = re.compile(r"""\s*(\w+)\s*=\s*("[^"]*"|'[^']*'|.*?)\s*(?:,(?=\s*\w+\s*=)|$)""", re.DOTALL)

_FLAGS = {
    "pub": {
        "transactional": "--transactional",
        "growinginputfile": "--growing",
        "addcsvopcode": "--add-opcode",
        "addcsvflags": "--add-flags",
        "publishwithupsert": "--upsert",
        "noautogenfield": "--no-key",
        "ignorecsvparseerrors": "--ignore-parse-errors",
    },
    "sub": {"collapse": "--collapse", "rmretdel": "--rmretdel"},
}
_VALUES = {
    "pub": {
        "rate": "--rate",
        "repeatcount": "--repeat",
        "maxevents": "--max-events",
        "header": "--header",
        "csvfielddelimiter": "--delimiter",
    },
    "sub": {},
}
_IGNORED_ALWAYS = ("loglevel", "prebuffer", "unbufferedoutputstreams", "logconfigfile", "configfilesection",
                   "buffersize", "maxfilesize", "periodicity")  # fmt: skip
_IGNORED = {"pub": _IGNORED_ALWAYS, "sub": (*_IGNORED_ALWAYS, "rate")}
_PLAIN = ("type", "url", "fsname", "fstype", "transport", "transportconfigfile", "dateformat", "blocksize", "snapshot",
          "header")  # fmt: skip
_BY_FLAG = {
    "type": "k",
    "url": "url",
    "fsname": "file",
    "fstype": "type",
    "transport": "transport",
    "blocksize": "block",
    "dateformat": "date_format",
}
_HEADERS = {"true": "names", "full": "full", "false": "none"}


@dataclass(frozen=True, slots=True)
class Wish:
    """The work to do, from the command line."""

    kind: str
    url: str
    file: str
    type: str = "csv"
    transport: str = "native"
    config_file: str = ""
    block: int = 1
    date_format: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """Further options of the adapter's own command."""
    ignored: tuple[str, ...] = ()


def wish_of(options: argparse.Namespace) -> Wish:
    """The flags and -C together; UsageError for what is missing, unknown, or given twice."""
    named = _settings(options.settings)
    for name, flag in _BY_FLAG.items():
        value = getattr(options, flag)
        if value is not None:
            if name in named:
                raise UsageError(reason=f"{name} is given twice: by its flag and by -C.")
            named[name] = value
    for name, flag in (("type", "-k"), ("url", "-h"), ("fsname", "-f")):
        if not named.get(name):
            raise UsageError(reason=f"{flag} is missing (or -C {name}=...). See 'dfesp_fs_adapter --help'.")
    kind = named["type"].lower()
    if kind not in _FLAGS:
        raise UsageError(reason=f"type={named['type']} is unknown: pub or sub.")
    return Wish(
        kind,
        named["url"],
        named["fsname"],
        _type(named.get("fstype", "csv")),
        named.get("transport", "native").lower(),
        named.get("transportconfigfile", ""),
        _number("blocksize", named.get("blocksize", "1")),
        named.get("dateformat", ""),
        {"snapshot": named["snapshot"]} if "snapshot" in named else {},
        tuple(_words(kind, named)),
        tuple(name for name in named if name in _IGNORED[kind]),
    )


def _settings(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        at = 0
        while at < len(text):
            part = _PART.match(text, at)
            if part is None:
                raise UsageError(reason=f"-C {text[at:]!r} is not KEY=VALUE,...")
            name, value = part[1].lower(), part[2]
            if name in found:
                raise UsageError(reason=f"-C gives {name} twice.")
            found[name] = value[1:-1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else value
            at = part.end()
    return found


def _words(kind: str, named: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for name, value in named.items():
        if name in _FLAGS[kind]:
            words += [_FLAGS[kind][name]] if _is_on(name, value) else []
        elif name in _VALUES[kind]:
            words += [_VALUES[kind][name], _value(name, value)]
        elif name == "header":
            words += ["--header", _HEADERS.get(value.lower(), value)]
        elif name not in (*_PLAIN, *_IGNORED[kind]):
            known = ", ".join(sorted({*_PLAIN, *_FLAGS[kind], *_VALUES[kind], *_IGNORED[kind]}))
            raise UsageError(reason=f"-C {name} is unknown for {kind}; there are {known}.")
    return words


def _value(name: str, text: str) -> str:
    if name == "repeatcount":  # it says how often the file is read again, and --repeat how often it is read
        return str(_number(name, text, least=0) + 1)
    return {"true": "1", "false": "0"}.get(text.lower(), text)


def _is_on(name: str, value: str) -> bool:
    found = switch(name, value)
    if found is None:
        raise UsageError(reason=f"{name}={value} is unknown: write {words_of(name)}.")
    return found


def _type(text: str) -> str:
    if text.lower() not in TYPES:
        raise UsageError(reason=f"The type {text!r} is not supported: use {', '.join(TYPES)}.")
    return text.lower()


def _number(name: str, text: str, *, least: int = 1) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UsageError(reason=f"{name} {text!r} must be a whole number from {least} on.")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
