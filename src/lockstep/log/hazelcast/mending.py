"""What is missing in the client, from outside. A version whose parts have other names is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hazelcast.errors import HazelcastSerializationError
from hazelcast.serialization.serializer import PythonObjectSerializer

from lockstep.errors import ServerUnfit


class NoPickle(PythonObjectSerializer):
    """What the client uses for objects that it would pickle: nothing is loaded, and nothing is written."""

    def read(self, inp: Any) -> Any:
        """Refuse."""
        del inp
        reason = "it is a pickled object, which would run code of whoever wrote it; it is not loaded"
        raise HazelcastSerializationError(reason)

    def write(self, out: Any, obj: Any) -> None:
        """Refuse."""
        del out
        reason = f"a {type(obj).__name__} would be pickled"
        raise HazelcastSerializationError(reason)


def refuse_pickle(serialization: Any, server: str) -> None:
    """Have a client load no pickled objects; ServerUnfit if its version can't be told so."""
    refusing: Any = NoPickle()
    registry: Any = getattr(serialization, "_registry", None)
    if not all(hasattr(registry, part) for part in ("_id_dict", "_python_serializer", "serializer_by_type_id")):
        reason = "the installed client loads pickled objects, and can't be told not to"
        raise ServerUnfit(server=server, reason=reason, setting="the version of hazelcast-python-client")
    registry._id_dict[refusing.get_type_id()] = registry._python_serializer = refusing


def mend_waking(client: Any) -> None:
    """Have the client's thread woken for each call that is sent.

    The client wakes its thread only if it thinks that it is not awake. If a call comes while the thread goes through
    its wake-ups, the mark stays and nobody wakes it again: from then on every call waits for the thread to look by
    itself, which costs 10 ms.
    """
    waker = getattr(getattr(getattr(client, "_reactor", None), "_loop", None), "waker", None)
    if waker is None:
        return
    wake = waker.wake

    def always() -> None:
        waker.awake = False
        wake()

    waker.wake = always


def hear_of_lost_connections(client: Any, lost: Callable[[object], None]) -> None:
    """Have something called when a connection is gone: before the client asks again elsewhere, or hears of members."""
    manager: Any = getattr(client, "_connection_manager", None)
    if hasattr(manager, "add_listener"):
        manager.add_listener(None, lost)
