"""Starting the client: within a time, and although a member hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hazelcast.client import HazelcastClient
from hazelcast.errors import HazelcastError
from hazelcast.future import Future, combine_futures

from lockstep.errors import ServerUnreachable
from lockstep.log.hazelcast.errors import meaning
from lockstep.log.hazelcast.mending import refuse_pickle
from lockstep.log.network.address import Address

_GIVEN_UP_S = 1.0
_FOR_OTHERS = 0.5
"""The part of the time-out that members which do not answer may cost."""


class PatientClient(HazelcastClient):
    """A client that knows every member that answers when it has started, and waits so long for those that do not.

    It could be told to start in the background, but then it connects to the others a second later only, and until then
    no copy that they make is acknowledged.
    """

    def __init__(self, config: Any, others_s: float, server: str) -> None:
        self._others_s, self._server = others_s, server
        super().__init__(config)

    def _start(self) -> None:
        refuse_pickle(getattr(self, "_serialization_service", None), self._server)
        bound_connecting(self._connection_manager, self.cluster_service.get_members, self._others_s)
        start: Any = super()._start  # which has no hints
        start()


def bound_connecting(manager: Any, members: Callable[[], list[Any]], within_s: float) -> None:
    """Have the client's start wait for all members at once, and not for ever; it goes on trying by itself.

    A version whose parts have other names is left as it is.
    """
    if not all(hasattr(manager, part) for part in ("_get_or_connect_to_member", "_start_connect_all_members_timer")):
        return

    def connect(sync_start: bool) -> None:
        del sync_start
        settled(combine_futures([manager._get_or_connect_to_member(member) for member in members()]), within_s)
        manager._start_connect_all_members_timer()

    manager.connect_to_all_cluster_members = connect


def settled(future: Future[Any], within_s: float) -> bool:
    """Whether a future of the client is done within some time; its own wait has no bound."""
    if future.done():
        return True
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    return done.wait(max(within_s, 0.0))


def started(config: Any, address: Address) -> HazelcastClient:
    """A client that is connected; its constructor has no bound, so it runs on a thread."""
    client = PatientClient.__new__(PatientClient)
    problems: list[BaseException] = []
    given_up = threading.Event()

    def build() -> None:
        try:
            PatientClient.__init__(client, config, address.timeout_s * _FOR_OTHERS, address.safe_url)
            if given_up.is_set():
                client.shutdown()
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for it
            problems.append(error)

    thread = threading.Thread(target=build, name="lockstep-hazelcast-opening", daemon=True)
    thread.start()
    thread.join(address.timeout_s)
    if thread.is_alive():
        given_up.set()
        with suppress(AttributeError):  # so early that there is nothing to end yet
            client.shutdown()
        thread.join(_GIVEN_UP_S)
        reason = f"the client could not connect within {address.timeout_s:g} s"
        raise ServerUnreachable(server=address.safe_url, reason=reason)
    if problems:
        raise _start_problem(problems[0], address) from problems[0]
    return client


def _start_problem(error: BaseException, address: Address) -> BaseException:
    if isinstance(error, HazelcastError | OSError):
        return meaning(error, address.safe_url, "")
    return error
