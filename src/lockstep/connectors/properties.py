"""What may be said of a connector, by kind and direction: what is used, what is taken without effect. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from lockstep.connectors.adapters import REST, as_connector
from lockstep.connectors.errors import ConnectorRefused

PUBLISH, SUBSCRIBE = "pub", "sub"
CSV, JSON, BINARY, XML, OPAQUE = "csv", "json", "binary", "xml", "opaquestring"
FORMS = (CSV, JSON, BINARY, XML)
OPAQUE_KINDS = ("kafka", "rmq", "eventhubs")
"""Kinds whose messages may be texts that are taken as they are."""
FS, SOCK, KAFKA, RMQ, URL, WEBSOCKET, DB, TIMER = "fs", "sock", "kafka", "rmq", "url", "websocket", "db", "timer"
EVENTHUBS = "eventhubs"
KINDS = {
    "fs": FS, "sock": SOCK, "kafka": KAFKA, "rmq": RMQ, "rabbitmq": RMQ, "url": URL, "websocket": WEBSOCKET, "db": DB,
    "timer": TIMER, "eventhubs": EVENTHUBS, "rest": REST,
}  # fmt: skip
ENDED = ("tva", "tervela")
ELSEWHERE = ("sol", "solace")
CODE = ("lua", "python")
DEVICES = ("videocap", "uvc", "audio", "modbus", "opcua", "bacnet", "pylon")

_ALL = frozenset({"type", "urlhostport"})
_READS = frozenset({
    "transactional", "dateformat", "addcsvopcode", "addcsvflags", "publishwithupsert", "noautogenfield",
    "ignorecsvparseerrors", "csvfielddelimiter", "maxevents",
})  # fmt: skip
_WRITES = frozenset({"snapshot", "collapse", "rmretdel", "dateformat", "numbufferedmsgs", "hotfailover"})
_SERVER = {
    KAFKA: frozenset({
        "kafkahostport", "kafkatopic", "kafkapartition", "kafkatype", "kafkaglobalconfig",
    }),
    RMQ: frozenset({
        "rmqhost", "rmqport", "rmquserid", "rmqpassword", "rmqexchange", "rmqtopic", "rmqtype", "rmqvhost",
        "buspersistence", "rmqssl", "rmqsslcacert", "rmqsslcert", "rmqsslkey", "rmqpasswordencrypted",
    }),
    FS: frozenset({"fsname", "fstype"}),
    SOCK: frozenset({"fsname", "fstype", "socktype", "host", "port"}),
    URL: frozenset({"config", "configurl", "properties"}),
    WEBSOCKET: frozenset({"url", "config", "configurl", "properties"}),
    DB: frozenset({"connectstring", "pwdencrypted"}),
    TIMER: frozenset(),
    EVENTHUBS: frozenset({"eventhubsconnectionstring", "eventhubspath", "eventhubspartition", "eventhubsformat"}),
    REST: frozenset({"url", "resturl", "httpcontenttype", "httprequestproperties", "httpstatuscodes"}),
}  # fmt: skip
USED: Mapping[tuple[str, str], frozenset[str]] = {
    (FS, PUBLISH): _READS | {"blocksize", "header", "repeatcount", "growinginputfile", "rate"},
    (FS, SUBSCRIBE): _WRITES | {"header"},
    (SOCK, PUBLISH): _READS | {"blocksize", "header", "rate"},
    (SOCK, SUBSCRIBE): _WRITES | {"header"},
    (KAFKA, PUBLISH): _READS | {"kafkainitialoffset", "useclientmsgid", "useoffsetmsgid"},
    (KAFKA, SUBSCRIBE): _WRITES,
    (RMQ, PUBLISH): _READS | {"useclientmsgid", "buspersistencequeue"},
    (RMQ, SUBSCRIBE): _WRITES | {"rmqcontenttype", "rmqheaders"},
    (URL, PUBLISH): frozenset({"interval", "maxevents"}),
    (WEBSOCKET, PUBLISH): frozenset({"contenttype", "requestheaders", "maxevents"}),
    (DB, PUBLISH): frozenset({"selectstatement", "blocksize", "transactional", "publishwithupsert", "maxevents"}),
    (DB, SUBSCRIBE): frozenset({"desttablename", "ignoresqlerrors", "snapshot", "rmretdel"}),
    (TIMER, PUBLISH): frozenset(
        {
            "basetime",
            "timeformat",
            "interval",
            "unit",
            "label",
            "publishwithupsert",
            "maxevents",
        }
    ),
    (EVENTHUBS, PUBLISH): _READS | {"eventhubsinitialoffset"},
    (EVENTHUBS, SUBSCRIBE): _WRITES,
    (REST, SUBSCRIBE): frozenset(
        {
            "esprespurl",
            "opaquejson",
            "espopaquejson",
            "respopaquejson",
            "tokeneventfield",
            "ignorefailedhttpconnects",
            "snapshot",
            "rmretdel",
        }
    ),
}
"""What has an effect, besides what every connector of the kind has."""

USED_IF_BOUND = frozenset({
    "type", "urlhostport", "hotfailover", "numbufferedmsgs", "rmqhost", "rmquserid", "rmqpassword", "rmqtopic",
    "rmqpasswordencrypted", "rmqtype", "rmqvhost", "rmqssl", "rmqsslcacert", "rmqsslcert", "rmqsslkey", "rmqstreamport",
    "kafkahostport", "kafkatopic", "kafkatype", "kafkaglobalconfig", "zookeeperhostport",
})  # fmt: skip
"""What has an effect where the topic of a connector is a stream of the engine's own bus."""

_IGNORED_ALL = frozenset({"configfilesection", "protofile", "protomsg"})
_IGNORED: Mapping[str, frozenset[str]] = {
    FS: frozenset({"prebuffer", "cefsyslogprefix", "maxfilesize", "periodicity", "unbufferedoutputstreams", "rate",
                   "snapshot", "buffersize", "stripnullsfromcsv"}),
    SOCK: frozenset({"prebuffer", "unbufferedoutputstreams", "rate", "snapshot", "buffersize", "growinginputfile"}),
    KAFKA: frozenset({"blocksize", "kafkatopicconfig", "kafkaconsumergroupid", "csvincludeschema", "csvmsgperevent",
                      "csvmsgpereventblock", "useclientmsgid", "avroschemaregistryurl", "avroschemadefinition",
                      "avroschemaname", "avroschemanoopcode", "hotfailover", "zookeeperhostport"}),
    RMQ: frozenset({"blocksize", "ackwindow", "acktimer", "csvincludeschema", "csvmsgperevent", "csvmsgpereventblock",
                    "useclientmsgid", "rmqstreamport", "hotfailover"}),
    DB: frozenset({"commitrows", "commitsecs", "maxcolbinding", "maxsqlretries"}),
    REST: frozenset({"maxnumthreads", "httpretries", "loglevel", "logconfigfile", "gdconfig", "restartonerror"}),
    EVENTHUBS: frozenset({"eventhubsconsumergroup", "eventhubsincludeindex", "blocksize", "hotfailover"}),
}  # fmt: skip
"""Properties that are accepted for compatibility and ignored."""
_FORM_NAMES: Mapping[str, tuple[str, ...]] = {
    FS: ("fstype",), SOCK: ("socktype", "fstype"), KAFKA: ("kafkatype",), RMQ: ("rmqtype",),
    EVENTHUBS: ("eventhubsformat",),
}  # fmt: skip
_REQUIRED = {
    FS: ("fsname",), KAFKA: ("kafkahostport",), RMQ: ("rmqhost", "rmqexchange"), WEBSOCKET: ("url",),
    DB: ("connectstring",), TIMER: ("interval",), EVENTHUBS: ("eventhubsconnectionstring",), REST: ("resturl",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of one connector, checked."""

    connector: str
    """Its path: query/window/name."""
    kind: str
    direction: str
    values: Mapping[str, str] = field(repr=False)
    ignored: tuple[str, ...] = ()

    @property
    def publishes(self) -> bool:
        """Whether it brings events in."""
        return self.direction == PUBLISH

    def text(self, name: str, default: str = "") -> str:
        """A property as it stands there."""
        return self.values.get(name) or default

    def flag(self, name: str) -> bool:
        """A property that is on or off."""
        found = switch(name, self.text(name))
        if found is None:
            raise self.refused(reason=f"its {name} is {self.text(name)!r}", remedy=f"Write {words_of(name)}.")
        return found

    def number(self, name: str, default: int, least: int = 0) -> int:
        """A property that is a whole number."""
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise self.refused(reason=f"its {name} is {text!r}", remedy=f"Write a whole number from {least} on.")
        return int(text)

    @property
    def form(self) -> str:
        """How events are written: csv, json or binary."""
        names = _FORM_NAMES.get(self.kind, ("format",))
        name = next((one for one in names if self.text(one)), names[0])
        form = self.text(name, CSV).lower()
        form = OPAQUE if form == "opaque" else form
        forms = (*FORMS, OPAQUE) if self.publishes and self.kind in OPAQUE_KINDS else FORMS
        if form not in forms:
            reason = f"its {name} is {form!r}, which is not supported"
            raise self.refused(reason=reason, remedy=f"Choose {', '.join(forms)}.")
        return form

    def refused(self, *, reason: str, remedy: str) -> ConnectorRefused:
        """The error that names this connector."""
        return ConnectorRefused(connector=self.connector, reason=reason, remedy=remedy)


def read_properties(connector: str, kind: str, direction: str, given: Mapping[str, str]) -> Properties:
    """The properties, checked; ConnectorRefused names what is missing, unknown or not supported."""
    kind, given = as_connector(connector, kind, given)
    known_kind = KINDS.get(kind)
    if known_kind is None:
        raise _unknown_kind(connector, kind)
    values = {name.strip().lower(): value.strip() for name, value in given.items()}
    if (known_kind, direction) not in USED:
        reason = f"a connector of class {known_kind} can't {_DOES[direction]}"
        other = PUBLISH if direction == SUBSCRIBE else SUBSCRIBE
        remedy = f"Write type {other}, or choose another class."
        raise ConnectorRefused(connector=connector, reason=reason, remedy=remedy)
    used = _ALL | _SERVER[known_kind] | USED[known_kind, direction]
    taken = (_IGNORED_ALL | _IGNORED.get(known_kind, frozenset()) | _SERVER_OTHER[direction]) - used
    made = Properties(connector, known_kind, direction, values, tuple(sorted(name for name in values if name in taken)))
    for name in values:
        if name not in used and name not in taken:
            meant = get_close_matches(name, sorted(used), n=1)
            remedy = f"Did you mean {meant[0]!r}?" if meant else f"There are: {', '.join(sorted(used))}."
            raise made.refused(
                reason=f"a {direction} connector of class {known_kind} has no property {name!r}", remedy=remedy
            )
    _check(made)
    return made


_DOES = {PUBLISH: "bring events in", SUBSCRIBE: "take events out"}
_SERVER_OTHER = {
    PUBLISH: frozenset({"numbufferedmsgs", "snapshot"}),
    SUBSCRIBE: frozenset({"transactional", "blocksize"}),
}
"""What only the other direction needs, and public models give to both."""


def _check(made: Properties) -> None:
    for name in _REQUIRED.get(made.kind, ()):
        if not made.text(name):
            raise made.refused(reason=f"it has no {name}", remedy=f"Give it the property {name}.")
    if made.text("addcsvflags").lower() == "partialupdate":
        raise made.refused(reason="its addcsvflags is 'partialupdate', which is not supported", remedy="Write normal.")
    if made.flag("rmqpasswordencrypted"):
        raise made.refused(
            reason="its rmqpassword is encrypted (rmqpasswordencrypted), and only its maker's software can read that",
            remedy="Give the password itself, or set LOCKSTEP_RABBITMQ_PASSWORD.",
        )
    if made.text("numbufferedmsgs"):
        made.number("numbufferedmsgs", 0)
    _ = made.form
    if made.kind in (KAFKA, RMQ) and not (made.text(f"{made.kind}topic") or made.text("urlhostport")):
        raise made.refused(
            reason="it names no topic", remedy=f"Give it {made.kind}topic, or urlhostport, of which one is made."
        )


def _unknown_kind(connector: str, kind: str) -> ConnectorRefused:
    if kind in ENDED:
        reason = "its class is Tervela's, whose vendor ended the product: no server and no client can be had"
        remedy = "Use class rmq or kafka; the guarantees are the same."
    elif kind in ELSEWHERE:
        reason = "there is no connector for Solace"
        remedy = ("Use class rmq: an exclusive queue (--election rabbitmq-queue://...) and last-value queues do there "
                  "what Solace's do.")  # fmt: skip
    elif kind in CODE:
        reason = f"its class is {kind}, which runs what the model says, and nothing in a model is run"
        remedy = "Have a program of your own publish, with lockstep.events or 'lockstep adapter publish'."
    elif kind in DEVICES:
        reason = f"its class is {kind}, and there is no connector for devices"
        remedy = "Have a program beside the device publish, with lockstep.events or 'lockstep adapter publish'."
    else:
        reason, remedy = f"its class {kind!r} is unknown", f"Choose {', '.join(sorted(set(KINDS.values())))}."
    return ConnectorRefused(connector=connector, reason=reason, remedy=remedy)


_ON = ("true", "1", "yes", "enabled")
_OFF = ("false", "0", "no", "disabled", "")
_WORDS = {
    "transactional": {"transactional": True, "normal": False},
    "addcsvopcode": {"insert": True, "upsert": True},
    "addcsvflags": {"normal": True},
    "buspersistence": {"persistent": True, "nonpersistent": False},
}
"""Words that only one property has: what is `normal` for one is on for another."""


def switch(name: str, text: str) -> bool | None:
    """Whether a property is on; None for a word that it does not have."""
    word = text.strip().lower()
    if word in _ON or word in _OFF:
        return word in _ON
    return _WORDS.get(name, {}).get(word)


def words_of(name: str) -> str:
    """The words to choose from, for people."""
    return " or ".join(["true", "false", *_WORDS.get(name, ())])
