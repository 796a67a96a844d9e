"""From a planned connector to what does its work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.connectors.adapters import REST
from lockstep.connectors.databases import Query, Table, TableSource, TableTarget
from lockstep.connectors.files import FileSource, FileTarget
from lockstep.connectors.forms import OnBad, ReadForm, WriteForm
from lockstep.connectors.plan import Planned
from lockstep.connectors.port import Notes, Pace, Source, Target
from lockstep.connectors.properties import DB, FS, KAFKA, RMQ, SOCK, TIMER, URL, WEBSOCKET
from lockstep.connectors.publisher import Feeding, FeedOptions
from lockstep.connectors.rest import RestTarget
from lockstep.connectors.rest import Wanted as RestWanted
from lockstep.connectors.sockets import Links, SocketSource, SocketTarget, address_of, is_address
from lockstep.connectors.subscriber import Sending, SendOptions
from lockstep.connectors.timers import TimerSource, Timetable
from lockstep.connectors.urls import UrlSource
from lockstep.connectors.urls import Wanted as UrlWanted
from lockstep.engine.events.csv_reader import BadLine
from lockstep.engine.model.windows import SourceWindow
from lockstep.events.connection import ProjectEvents
from lockstep.runtime import logger

_BAD_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all connectors of an engine need."""

    project: ProjectEvents
    environ: Mapping[str, str]

    def notes(self, planned: Planned) -> Notes:
        """Where a connector notes how far it is."""
        connection = self.project.connection
        return Notes(connection.bus, self.project.streams, planned.path, connection.runtime)

    def has_end(self, planned: Planned) -> bool:
        """Whether it brings events in from a source that has an end."""
        properties = planned.properties
        if not properties.publishes or properties.kind not in (FS, SOCK, DB) or properties.flag("growinginputfile"):
            return False
        is_socket = properties.kind == SOCK or (properties.kind == FS and is_address(properties.text("fsname")))
        return not is_socket or bool(address_of(properties)[0])

    def check(self, planned: Planned) -> None:
        """Refuse what can't be run, before anything is started; nothing is connected."""
        pace = Pace(lambda: False, lambda _: None, lambda: 0.0)
        if planned.properties.publishes:
            self._source(planned, pace)
        else:
            self._target(planned, pace)

    def work(self, planned: Planned, pace: Pace) -> Feeding | Sending:
        """A connector, open and in its place."""
        if planned.properties.publishes:
            return self._feeding(planned, pace)
        return self._sending(planned, pace)

    def _feeding(self, planned: Planned, pace: Pace) -> Feeding:
        properties, source = planned.properties, self._source(planned, pace)
        options = FeedOptions(
            rate=properties.number("rate", 0) if properties.text("rate").isdecimal() else 0,
            max_events=0 if isinstance(source, FileSource) else properties.number("maxevents", 0),
        )
        try:
            return Feeding(self.project, planned.node, planned.path, source, self.notes(planned), pace, options)
        except BaseException:
            source.close()
            raise

    def _sending(self, planned: Planned, pace: Pace) -> Sending:
        properties, target = planned.properties, self._target(planned, pace)
        buffered = properties.number("numbufferedmsgs", 0) if properties.text("numbufferedmsgs") else None
        options = SendOptions(
            planned.node.path,
            properties.flag("snapshot"),
            properties.flag("collapse")
            or properties.kind in (DB, REST),  # they have no use for the row before an update
            properties.flag("rmretdel"),
            buffered,
        )
        try:
            return Sending(self.project, planned.path, target, self.notes(planned), pace, options)
        except BaseException:
            target.close()
            raise

    def _source(self, planned: Planned, pace: Pace) -> Source:
        properties, bad = planned.properties, _told(planned.path)
        window = planned.node.window
        makes_keys = isinstance(window, SourceWindow) and window.autogen_key
        form = ReadForm.of(properties, planned.node.schema, planned.path, makes_keys=makes_keys)
        keeps_ids = properties.flag("useclientmsgid") and form.form == "binary"
        if properties.kind in (URL, WEBSOCKET, TIMER):
            return self._timed_source(planned, pace, bad)
        if properties.kind == DB:
            return TableSource(Query.of(properties, self.environ), planned.node.schema, pace, bad)
        if properties.kind == KAFKA:
            from lockstep.connectors import kafka

            initial = properties.text("kafkainitialoffset", "smallest").lower()
            if initial not in ("smallest", "earliest", "largest", "latest") and not initial.isdecimal():
                raise properties.refused(
                    reason=f"its kafkainitialoffset is {initial!r}", remedy="Write smallest, largest or a number."
                )
            place = kafka.Place.of(planned)
            return kafka.KafkaSource(place, form, pace, bad, initial=initial, keeps_ids=keeps_ids)
        if properties.kind == RMQ:
            from lockstep.connectors import rabbitmq

            where = rabbitmq.Place.of(planned, self.environ)
            queue = properties.text("buspersistencequeue")
            return rabbitmq.RabbitSource(where, form, pace, bad, queue=queue, keeps_ids=keeps_ids)
        if properties.kind == FS and not is_address(properties.text("fsname")):
            return _file_source(planned, form, pace, bad)
        return SocketSource(Links(address_of(properties), planned.path, pace), form, pace, bad)

    def _timed_source(self, planned: Planned, pace: Pace, bad: OnBad) -> Source:
        properties, schema, runtime = planned.properties, planned.node.schema, self.project.connection.runtime

        def wall_us() -> int:
            return runtime.wall_ns() // 1_000

        if properties.kind == TIMER:
            return TimerSource(Timetable.of(properties), schema, properties, pace, wall_us)
        if properties.kind == URL:
            return UrlSource(UrlWanted.of(properties, self.environ), schema, pace, bad, wall_us)
        from lockstep.connectors import websockets

        wanted = websockets.Wanted.of(properties, self.environ)
        return websockets.WebSocketSource(wanted, schema, pace, bad, wall_us)

    def _target(self, planned: Planned, pace: Pace) -> Target:
        properties, streams = planned.properties, self.project.streams
        if properties.kind == DB:
            return TableTarget(Table.of(properties, self.environ), planned.node.schema, planned.path)
        if properties.kind == REST:
            return RestTarget(RestWanted.of(properties), planned.node, self.project, pace)
        form = WriteForm.of(properties, planned.node.schema)
        if properties.kind == KAFKA:
            from lockstep.connectors import kafka

            writer = f"lockstep.{streams.cluster}.{streams.project}.{planned.path}"
            return kafka.KafkaTarget(kafka.Place.of(planned), form, writer)
        if properties.kind == RMQ:
            from lockstep.connectors import rabbitmq

            where = rabbitmq.Place.of(planned, self.environ)
            content_type, headers = properties.text("rmqcontenttype"), properties.text("rmqheaders")
            return rabbitmq.RabbitTarget(where, form, content_type=content_type, headers=headers)
        if properties.kind == FS and not is_address(properties.text("fsname")):
            return FileTarget(Path(properties.text("fsname")), form, planned.path)
        return SocketTarget(Links(address_of(properties), planned.path, pace), form)


def _file_source(planned: Planned, form: ReadForm, pace: Pace, bad: OnBad) -> FileSource:
    properties = planned.properties
    return FileSource(
        Path(properties.text("fsname")),
        form,
        pace,
        bad,
        rounds=1 + properties.number("repeatcount", 0),
        grows=properties.flag("growinginputfile"),
        most=properties.number("maxevents", 0) or None,
        slow=bool(properties.number("rate", 0)),
    )


def _told(connector: str) -> OnBad:
    """Log input that is not an event, the first few with the reason; all of it is skipped."""
    seen = 0

    def bad(line: BadLine) -> None:
        nonlocal seen
        seen += 1
        if seen <= _BAD_SHOWN:
            words = "Connector %s left out line %d: %s, %s"
            logger.warning(words, connector, line.line, line.reason, line.detail, extra={"action": "connector"})

    return bad
