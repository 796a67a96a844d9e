"""The agent: one client of a monitor, with everything it does put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lockstep.cron import Zone
from lockstep.errors import LockstepError, UsageError
from lockstep.monitor import SENSU_VERSION
from lockstep.monitor.agent.checks import Checks, Extension, Schedule
from lockstep.monitor.agent.machine import Json, Machine, Timer
from lockstep.monitor.agent.processes import Commands
from lockstep.monitor.agent.sender import Sender
from lockstep.monitor.agent.sockets import results_of
from lockstep.monitor.core.documents import MESSAGE_MAX, deep_merge, fitted, parse_object, redact
from lockstep.monitor.settings.settings import Settings, redacted_keys
from lockstep.monitor.transport.port import DIRECT, FANOUT, KEEPALIVES, RESULTS, Message, Transport
from lockstep.runtime import logger

KEEPALIVE_S = 20.0
STOP_S = 30.0
RESULT_MAX = MESSAGE_MAX - 512
"""Bytes of a result without its number: servers take no longer ones, so what a check wrote is cut here."""
_LOOK_S = 0.1
_KEPT = ("name", "issued", "executed", "duration", "source", "handlers", "handler")


def subscribe_to(subscription: str, own_queue: str) -> tuple[str, str, str]:
    """Kind of pipe, pipe and funnel of a subscription: a shared queue, or a copy for each client."""
    if subscription.partition(":")[0] in ("direct", "roundrobin") and ":" in subscription:
        return DIRECT, subscription, subscription
    return FANOUT, subscription, own_queue


class Agent:
    """Publishes keepalives, runs checks on request and on schedule, and takes results from sockets.

    All of its methods are called on one thread, that of its machine. `post` hands a call to that thread.
    """

    def __init__(
        self,
        settings: Settings,
        machine: Machine,
        transport: Transport,
        sender: Sender,
        post: Callable[[Callable[[], None]], None],
        *,
        zone: Zone | None = None,
        find_extension: Callable[[str], Extension | None] = lambda _: None,
    ) -> None:
        self._settings, self._machine, self._transport, self._sender = settings, machine, transport, sender
        self._post = post
        self.client: Mapping[str, Any] = settings.client
        self.queue = f"{self.client['name']}-{SENSU_VERSION}-{int(machine.now())}"
        """The name of its own queue at a broker."""
        commands = Commands(machine, settings.spawn_limit)
        checks = settings.document["checks"]
        self.checks = Checks(machine, commands, self.client, checks, self._publish, find_extension)
        self._schedule = Schedule(machine, self.client["name"], self.checks.request, zone or Zone())
        self._keepalive_timer: Timer | None = None
        self._running = False

    def start(self) -> None:
        """Register, and begin with everything."""
        self._running = True
        self._transport.after_reconnect = partial(self._post, self._is_back)
        self._keep_alive()
        for subscription in self.client["subscriptions"]:
            self._subscribe(subscription)
        self._schedule.start(self._settings.document["checks"])

    def stop(self, done: Callable[[], None]) -> None:
        """Start no more checks, let running ones end, deregister if configured, and call back."""
        was_running, self._running = self._running, False
        self._schedule.stop()
        if self._keepalive_timer is not None:
            self._keepalive_timer.cancel()
        try:
            self._transport.unsubscribe()
        except LockstepError as error:
            logger.warning("Subscriptions end with the connection: %s", error, extra={"action": "agent_stops"})
        leaves = was_running and self.client.get("deregister") is True
        self._wait_for_checks(self._machine.now() + STOP_S, leaves, done)

    def take(self, document: Any) -> None:
        """Take a result, or a list of them, from another program; UsageError if one can't be a result."""
        made = [self._result(check) for check in results_of(document, int(self._machine.now()))]
        if None in made:
            raise UsageError(reason=f"a check result must have at most {RESULT_MAX} bytes besides its output")
        for result in filter(None, made):
            self._sender.result(result)

    def info(self) -> Json:
        """What the agent is and whether it is connected. May wait for the transport."""
        stats = {queue: self._stats(queue) for queue in (KEEPALIVES, RESULTS)}
        transport = {"name": self._transport.name, **stats, "connected": self._transport.connected}
        spool = {"waiting": self._sender.waiting, "dropped": self._sender.dropped}
        return {"sensu": {"version": SENSU_VERSION}, "transport": transport, "spool": spool}

    def shown_settings(self, redacted: bool) -> Mapping[str, Any]:
        """Its settings, with or without secrets."""
        return self._settings.redacted if redacted else self._settings.document

    # keepalives

    def _keep_alive(self) -> None:
        if not self._running:
            return
        self._keepalive_timer = self._machine.call_later(KEEPALIVE_S, self._keep_alive)
        self._send_keepalive()

    def _send_keepalive(self) -> None:
        document = {**self.client, "version": SENSU_VERSION, "timestamp": int(self._machine.now())}
        if self._sender.dropped:
            document["results_dropped"] = self._sender.dropped
        self._sender.keepalive(redact(document, redacted_keys(self.client)))

    def _is_back(self) -> None:
        """The transport is connected again: servers hear of it at once."""
        if self._running:
            self._send_keepalive()
        self._sender.hurry()

    # requests

    def _subscribe(self, subscription: str) -> None:
        kind, pipe, funnel = subscribe_to(subscription, self.queue)
        try:
            self._transport.subscribe(kind, pipe, funnel, self._came)
        except LockstepError as error:
            logger.error("Subscription %s failed: %s", subscription, error, extra={"action": "subscription_failed"})

    def _came(self, message: Message) -> None:
        """A request, on a thread of the transport."""
        try:
            request = parse_object(message.body)
        except ValueError as error:
            logger.error("failed to parse the check request payload: %s", error, extra={"action": "request_dropped"})
            return
        self._post(partial(self._requested, request))

    def _requested(self, request: Json) -> None:
        if self._running:
            self.checks.request(request)

    # results

    def _publish(self, check: Json) -> None:
        result = self._result(check)
        if result is None:
            logger.error("The result of %s is too large", check.get("name"), extra={"action": "result_dropped"})
            kept = {name: check[name] for name in _KEPT if name in check}
            result = self._result({**kept, "output": "The result is too large to be sent", "status": 3})
        if result is not None:
            self._sender.result(result)

    def _result(self, check: Json) -> Json | None:
        """The message of a result, with what was written cut if it is too long; None if that is not enough."""
        if check.get("source") == "":
            check = {name: value for name, value in check.items() if name != "source"}
        document: Json = {"client": self.client["name"], "check": check}
        if self.client.get("signature"):
            document["signature"] = self.client["signature"]
        return fitted(document, RESULT_MAX)

    def _stats(self, queue: str) -> Json:
        try:
            found = self._transport.stats(queue)
        except LockstepError:
            return {"messages": None, "consumers": None}  # as Sensu tells what it does not know
        return {"messages": found.messages, "consumers": found.consumers}

    # the end

    def _wait_for_checks(self, end: float, leaves: bool, done: Callable[[], None]) -> None:
        if self.checks.in_progress and self._machine.now() < end:
            self._machine.call_later(_LOOK_S, partial(self._wait_for_checks, end, leaves, done))
            return
        if leaves:
            self._publish(deregistration(self.client, int(self._machine.now())))
        done()


def deregistration(client: Mapping[str, Any], now: int) -> Json:
    """The result by which a client takes its leave."""
    own = client.get("deregistration")
    check = deep_merge({"handler": "deregistration", "status": 1}, own if isinstance(own, Mapping) else {})
    fixed = {"name": "deregistration", "output": "client initiated deregistration", "issued": now, "executed": now}
    return {**check, **fixed}
