"""Notification windows: a row for every message that is to be sent, a notice, and the text of both."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import Value
from lockstep.engine.language.faults import fault, suggestion
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import Channel, NotificationWindow, SmtpServer
from lockstep.engine.reference.function_language import (
    Function,
    FunctionSet,
    Names,
    compile_function,
    names_of,
    values_of,
)
from lockstep.engine.reference.function_special import Context
from lockstep.engine.reference.function_values import text, truth
from lockstep.engine.reference.operator import Moment, Notice, Operator, Tree

_LEAVING = frozenset({Opcode.DELETE, Opcode.SAFEDELETE})
_ONE_LINE = ("sender", "to", "subject", "shown_sender", "shown_to")
_TEXTS = (*_ONE_LINE, "body", "html", "image")


class NotificationOperator(Operator):
    """Decides which recipients get which message."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, NotificationWindow), "made by kind"
        declared = () if window.schema is None else window.schema.names
        names = Names((*names_of(node.inputs).fields, *declared))
        self._window = window
        self._declared = declared
        self._functions = FunctionSet(window.properties, window.functions, names)
        self._channels = [_Channel(place, channel, self._functions.names) for place, channel in _placed(window)]
        self._number = 0

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - only new rows tell something
        """Ask each channel whether to send something about a row."""
        if event.opcode in _LEAVING:
            return
        context = self._context(port, event, moment)
        self._functions.run(context)
        for channel in self._channels:
            if channel.wants(context):
                self._tell(channel, context, event, moment, out)
        for detail in context.complaints:
            self.refuse(event, "overflow", detail, moment)

    def on_tick(self, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - nothing is sent by the clock
        """Forget the recipients that may be notified again."""
        for channel in self._channels:
            channel.forget(moment.clock_us)

    def _context(self, port: int, event: Event, moment: Moment) -> Context:
        values: dict[str, Value] = dict.fromkeys(self._declared)
        return Context(
            values={**values, **values_of(self.node.inputs[port], event.values)},
            input=self.node.parents[port].name,
            window=self.node.path,
            opcode=event.opcode.letter,
            flags=event.flags.letters,
            clock_us=moment.clock_us,
            block=moment.block,
            counter=self._number + 1,
            number=1,
        )

    def _tell(self, channel: _Channel, context: Context, event: Event, moment: Moment, out: list[Event]) -> None:
        texts = channel.render(context.values)
        recipients = channel.recipients(texts["to"])
        if not recipients:
            self.refuse(event, "no-recipient", f"channel {channel.name} has nobody to tell", moment)
        for recipient in recipients:
            if channel.may_tell(recipient, moment.known_us):
                self._number += 1
                told = {**texts, "recipient": recipient, "channel": channel.name, "kind": channel.kind}
                out.append(Event(Opcode.INSERT, Flag.NORMAL, self._row(told, moment)))
                if not channel.is_test:
                    moment.notify(self._notice(told, channel, moment))

    def _row(self, told: dict[str, str], moment: Moment) -> Row:
        known: dict[str, Value] = {**told, "number": self._number, "time": moment.clock_us}
        return tuple([known.get(field.name) for field in self.node.schema])

    def _notice(self, told: dict[str, str], channel: _Channel, moment: Moment) -> Notice:
        content = {**told, **server_content(self._window.smtp), "number": str(self._number)}
        content["time_us"] = str(moment.clock_us)
        return Notice(moment.block, self.node.path, channel.kind, tuple(sorted(content.items())))

    def dump(self) -> Tree:
        """The number of the last message, and when each recipient was last notified."""
        return {"number": self._number, "told": [channel.dump() for channel in self._channels]}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._number = state["number"]
        for channel, told in zip(self._channels, state["told"], strict=True):
            channel.load(told)


class _Channel:
    """One delivery channel, with the times at which each recipient was notified."""

    def __init__(self, place: int, channel: Channel, names: Names) -> None:
        self.name = channel.name or f"{channel.kind}{place + 1}"
        self.kind = channel.kind
        self.is_test = channel.test
        self._channel = channel
        self._deliver: Function | None = compile_function(channel.deliver, names) if channel.deliver else None
        self._texts = {
            part: compile_message(getattr(channel, part), names.fields, channel.unresolved) for part in _TEXTS
        }
        self._told: dict[str, int | None] = {}
        """None: before the clock was known; that counts from its first value."""

    def wants(self, context: Context) -> bool:
        """Whether something is to be sent at all."""
        return self._deliver is None or truth(self._deliver.evaluate(context))

    def render(self, values: dict[str, Value]) -> dict[str, str]:
        """All texts; what stands in a header is one line."""
        made = {part: message.render(values) for part, message in self._texts.items()}
        return {part: " ".join(words.split()) if part in _ONE_LINE else words for part, words in made.items()}

    def recipients(self, to: str) -> list[str]:
        """The addresses that a text names, each once."""
        named = [part.strip() for part in to.replace(";", ",").split(",") if part.strip()]
        gateway = self._channel.gateway
        full = (f"{name}@{gateway}" if gateway and "@" not in name else name for name in named)
        return list(dict.fromkeys(full))

    def may_tell(self, recipient: str, now_us: int | None) -> bool:
        """Whether a recipient may be notified now; if so, it counts as notified."""
        throttle = self._channel.throttle_us
        if throttle is None:
            return True
        if recipient in self._told:
            last = self._told[recipient]
            if now_us is None or last is None or now_us - last < throttle:
                return False
        self._told[recipient] = now_us
        return True

    def forget(self, now_us: int) -> None:
        """Drop those whose interval has passed."""
        throttle = self._channel.throttle_us or 0
        times = {name: now_us if last is None else last for name, last in self._told.items()}
        self._told = {name: last for name, last in times.items() if now_us - last < throttle}

    def dump(self) -> Tree:
        """When each recipient was last notified."""
        return [[name, last] for name, last in self._told.items()]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._told = dict(state)


def server_content(smtp: SmtpServer) -> dict[str, str]:
    """The server in a notice; of the password only the name of the variable that holds it."""
    variable = smtp.password_variable or ""
    return {"host": smtp.host, "port": str(smtp.port), "user": smtp.user or "", "password_variable": variable}


def _placed(window: NotificationWindow) -> list[tuple[int, Channel]]:
    return list(enumerate(window.channels))


MAX_MESSAGE = 100_000

_MARK = re.compile(r"\$(?:\$|([A-Za-z_]\w*))", re.ASCII)


@dataclass(frozen=True, slots=True)
class Message:
    """A text with places for values; what has no value is `unresolved`."""

    written: str
    unresolved: str = ""

    def render(self, values: Mapping[str, Value]) -> str:
        """The text with the values in their places, cut off where it gets too long."""
        return _MARK.sub(lambda found: self._value(found, values), self.written)[:MAX_MESSAGE]

    def _value(self, found: re.Match[str], values: Mapping[str, Value]) -> str:
        if found[1] is None:
            return "$"
        value = values.get(found[1])
        return self.unresolved if value is None and found[1] not in values else text(value)


def compile_message(written: str, names: Collection[str], unresolved: str | None = None) -> Message:
    """A message; raises BadExpression for a name that is not known, unless `unresolved` stands in for it."""
    for found in _MARK.finditer(written):
        if found[1] is not None and found[1] not in names and unresolved is None:
            remedy = suggestion(found[1], names, "Write $$ for a dollar sign.")
            raise fault(written, found.start(), f"there is no field {found[1]!r}", remedy)
    return Message(written, unresolved or "")
