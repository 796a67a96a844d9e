"""Sends the messages of notification windows: a carrier over the notices of a project, beside its engines.

It needs no engine that leads: carriers of all engines are one group, and the ledger says what was sent. An engine that
slept repeats nothing, and a mail server that does not answer holds up only what goes to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from lockstep.carriers.mail import MailSender
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.windows import NotificationWindow
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.streams.carrier import Carrier, CarrierOptions, CarrierSettings
from lockstep.streams.client import Lockstep
from lockstep.streams.options import GroupOptions

KINDS = ("email", "sms", "mms")
RETRIES, PAUSE_S, PAUSE_MAX_S = 1000, 5.0, 300.0
"""A mail server may be away for three days before messages go to the dead letters."""
_GROUP = GroupOptions(lease_s=2.0, beat_s=0.5)


class Mailer:
    """Starts sending when a model has a notification window; one that is replaced may get one later."""

    def __init__(
        self,
        client: Lockstep,
        streams: ProjectStreams,
        environment: Mapping[str, str],
        **options: Unpack[CarrierSettings],
    ) -> None:
        self._client, self._streams, self._environment = client, streams, environment
        usual = CarrierOptions(retries=RETRIES, backoff_s=PAUSE_S, backoff_max_s=PAUSE_MAX_S)
        self._options = replace(usual, **options)
        self.carrier: Carrier | None = None

    def look(self, graph: Graph) -> None:
        """Start if this model has windows that send messages."""
        if self.carrier is None and any(isinstance(node.window, NotificationWindow) for node in graph.nodes):
            self.start()
        if self.carrier is not None and self.carrier.error is not None:
            raise self.carrier.error

    def start(self) -> Carrier:
        """Join those that send the messages of this project."""
        carrier = Carrier(self._client, self._streams.notices, self._streams.mail_group, self._options, _GROUP)
        sender = MailSender(self._environment)
        for kind in KINDS:
            carrier.on(kind, sender)
        self.carrier = carrier
        return carrier.start()

    def wait_sent(self, timeout: float) -> bool:
        """Wait until all messages are sent, or given up; False if that takes longer."""
        return self.carrier is None or self.carrier.wait_idle(timeout)

    def stop(self) -> None:
        """Finish the work at hand, and stop."""
        if self.carrier is not None:
            self.carrier.close()
