"""The kinds of windows, as the model describes them. What they do is in `lockstep.engine.reference`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model.parts import RETENTION_KINDS as RETENTION_KINDS
from lockstep.engine.model.parts import Connector as Connector
from lockstep.engine.model.parts import Initializer as Initializer
from lockstep.engine.model.parts import Retention as Retention
from lockstep.engine.model.parts import Splitter as Splitter
from lockstep.engine.model.parts import UserFunction as UserFunction

INDEXES = ("pi_HASH", "pi_RBTREE", "pi_LN_HASH", "pi_CL_HASH", "pi_FW_HASH", "pi_EMPTY")
JOIN_TYPES = ("leftouter", "rightouter", "inner", "fullouter")
REMOVABLE = ("updates", "deletes", "retentionUpdates", "retentionDeletes", "updateBlockDeletes")
EVENTS, RECORDS = "events", "records"
SOURCE_FORMS = (EVENTS, RECORDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """What every window can say about itself. `index` None takes the project's."""

    kind: ClassVar[str]

    name: str
    pubsub: bool | None = None
    index: str | None = None
    pubsub_index: str | None = None
    output_insert_only: bool = False
    collapse_updates: bool = False
    pulse_us: int | None = None
    splitter: Splitter | None = None
    connectors: tuple[Connector, ...] = ()
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadWindow(Window):
    """Stands for a window that could not be read, so that everything else of its model can be checked."""

    kind: ClassVar[str] = "unread"


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleWindow(Window):
    """Stands in the graph for a window that no edge leads to: it has a schema and connectors, and gives nothing."""

    kind: ClassVar[str] = "idle"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceWindow(Window):
    """Where events come in: frames on an input stream of its own, or, with form `records`, any stream of the bus.

    A record is a block with one event: its offset, key, value and time, or what its value says (`decode`).
    """

    kind: ClassVar[str] = "source"

    schema: Schema
    insert_only: bool = False
    autogen_key: bool = False
    retention: Retention | None = None
    form: str = EVENTS
    stream: str | None = None
    """The stream whose records are taken."""
    decode: str | None = None
    """What the value of a record is: json, csv or avro; None takes the record as it is."""
    avro_schema: str | None = None
    """The schema with which values were written, as JSON."""
    date_format: str | None = None
    """How dates and stamps are written in json and csv; None: as numbers."""
    upsert: bool = False
    """A record that names no opcode is an upsert, not an insert."""

    @property
    def takes_records(self) -> bool:
        """Whether it reads the records of a stream that other programs publish."""
        return self.form == RECORDS


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyWindow(Window):
    """Its parent's rows, as long as its retention keeps them."""

    kind: ClassVar[str] = "copy"

    retention: Retention | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldPlug:
    """A Python function that makes a field of an aggregate: f(rows) -> value, rows being the group's members in order.

    `fields` are what a row holds; none means all fields of the input.
    """

    module: str
    function: str
    fields: tuple[str, ...] = ()
    additive: bool | None = None
    additive_insert_only: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AggregateWindow(Window):
    """One row for each group. The group is the schema's key; `fields` make the others, in order.

    A field is an expression with aggregate functions, or a plug.
    """

    kind: ClassVar[str] = "aggregate"

    schema: Schema
    fields: tuple[str | FieldPlug, ...]
    initialize: Initializer | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterWindow(Window):
    """The rows for which an expression holds."""

    kind: ClassVar[str] = "filter"

    expression: str
    initialize: Initializer | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeWindow(Window):
    """For each row a row: key fields are copied, `fields` are the expressions of the others, in order."""

    kind: ClassVar[str] = "compute"

    schema: Schema
    fields: tuple[str, ...]
    initialize: Initializer | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinField:
    """A field of a join's output: `source` names an input field as l_NAME or r_NAME, else `expression` makes it."""

    name: str
    source: str | None = None
    expression: str | None = None
    type: FieldType | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinWindow(Window):
    """Rows of two windows put together where the condition's fields are equal; the key is the fact side's."""

    kind: ClassVar[str] = "join"

    type: str = "leftouter"
    conditions: tuple[tuple[str, str], ...]
    """Pairs of a left field and the right field that must be equal."""
    fields: tuple[JoinField, ...]
    no_regenerates: bool = False
    left_index: str | None = None
    right_index: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class UnionWindow(Window):
    """The rows of several windows with the same schema. Strict: a key may come from one of them only."""

    kind: ClassVar[str] = "union"

    strict: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternEvent:
    """An event that a pattern waits for: from window `source`, where `expression` holds. `v == field` binds v."""

    name: str
    source: str
    expression: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternOutput:
    """A field of the row that a match makes: `field` of event `node`, or an expression."""

    node: str | None = None
    field: str | None = None
    expression: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """What to look for. `logic` combines events by fby, and, or, not, notoccur and is, as in fby{1 hour}(a, b)."""

    name: str = ""
    events: tuple[PatternEvent, ...]
    logic: str
    output: tuple[PatternOutput, ...]
    """One for each field of the schema, in order."""
    index: tuple[str, ...] = ()
    time_fields: tuple[tuple[str, str], ...] = ()
    """Pairs of a field and the source window whose event time it is."""
    is_active: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternWindow(Window):
    """Rows made when events follow each other in a described way."""

    kind: ClassVar[str] = "pattern"

    schema: Schema
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextProperty:
    """A value made once for each event, that functions read as #name: kind xml, json, map, list, set or string.

    `outer` divides the items of a list, set or map, `inner` a name from its value in a map.
    """

    name: str
    kind: str
    text: str
    outer: str | None = None
    inner: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EventLoop:
    """Events made for each item found in the text `use` makes; `functions` fill their fields.

    `item` says what to find: a regular expression, an XPath or a path in JSON, by `kind` (regex, xml or json).
    Functions see the item found as $`data`; for a regular expression it is group `group`, 0 being the whole match.
    """

    name: str
    use: str
    item: str
    kind: str = "regex"
    functions: tuple[tuple[str, str], ...] = ()
    properties: tuple[ContextProperty, ...] = ()
    data: str = "data"
    group: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionalWindow(Window):
    """Rows whose fields are made by functions of the input fields, written $field."""

    kind: ClassVar[str] = "functional"

    schema: Schema
    functions: tuple[tuple[str, str], ...]
    """Pairs of a name and a function text; a schema field of that name takes its value."""
    generate: str | None = None
    """A function that says whether an event is made at all."""
    opcode: str | None = None
    loops: tuple[EventLoop, ...] = ()
    produces_only_inserts: bool = False
    properties: tuple[ContextProperty, ...] = ()
    expressions: tuple[tuple[str, str], ...] = ()
    """Pairs of a name and a regular expression that functions use by that name, as #name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterWindow(Window):
    """How many events came, in all and in the current interval, for each input window."""

    kind: ClassVar[str] = "counter"

    count_us: int | None = None
    clear_us: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TransposeWindow(Window):
    """Rows turned into columns (wide) or columns into rows (long)."""

    kind: ClassVar[str] = "transpose"

    mode: str
    tag_name: str
    tag_values: tuple[str, ...]
    tags_included: tuple[str, ...] = ()
    group_by: tuple[str, ...] = ()
    clear_us: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveStateWindow(Window):
    """Every event as an insert with a number of its own; what `remove` names is left out."""

    kind: ClassVar[str] = "remove-state"

    remove: tuple[str, ...] = ()
    add_log_fields: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SmtpServer:
    """Where notifications are handed over; the password is the name of an environment variable."""

    host: str
    port: int = 25
    user: str | None = None
    password_variable: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A message sent for an event: kind email, sms or mms; the texts may use $field and functions of the window.

    For sms and mms `to` is a phone number at the mail host `gateway`. `unresolved` stands in for a $field that does not
    exist. With `test` a message counts as sent but is not handed over.
    """

    kind: str
    sender: str
    to: str
    subject: str = ""
    body: str = ""
    deliver: str | None = None
    """A function that says whether to send."""
    throttle_us: int | None = None
    name: str = ""
    gateway: str = ""
    shown_sender: str = ""
    shown_to: str = ""
    html: str = ""
    image: str = ""
    unresolved: str | None = None
    test: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationWindow(Window):
    """Messages about events; its rows say what was sent."""

    kind: ClassVar[str] = "notification"

    smtp: SmtpServer
    channels: tuple[Channel, ...]
    functions: tuple[tuple[str, str], ...] = ()
    schema: Schema | None = None
    properties: tuple[ContextProperty, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProceduralWindow(Window):
    """A Python handler: module and name of a callable handler(event, state) -> events."""

    kind: ClassVar[str] = "procedural"

    schema: Schema
    module: str
    handler: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CustomWindow(Window):
    """A window class of the user's: module and name of a subclass of `lockstep.windows.Window`, and its version.

    With `tick_us` the class is called when the model's clock reaches a multiple of it.
    """

    kind: ClassVar[str] = "custom"

    schema: Schema
    module: str
    class_: str
    version: str
    properties: tuple[tuple[str, str], ...] = ()
    tick_us: int | None = None


AnyWindow = (
    SourceWindow
    | CopyWindow
    | AggregateWindow
    | FilterWindow
    | ComputeWindow
    | JoinWindow
    | UnionWindow
    | PatternWindow
    | FunctionalWindow
    | CounterWindow
    | TransposeWindow
    | RemoveStateWindow
    | NotificationWindow
    | ProceduralWindow
    | CustomWindow
)
