"""Deadlines, and the one way in which all buses on servers try again.

A call on a bus has two times, both options of its URL. `timeout_s` bounds one try; `patience_s` bounds the call, from
the first failure on. So there are two loops and no more, each with one deadline that everything inside it shares:

| loop                      | until        | tries again after                                                         |
| ------------------------- | ------------ | ------------------------------------------------------------------------- |
| NetworkBus.with_retries   | `patience_s` | ServerUnreachable: the driver is sure that nothing was stored             |
| RedisClient, each command | `patience_s` | a refusal that passes; a lost answer only if the command may be run twice |
| Kafka: questions, reads   | `timeout_s`  | transient errors; a topic that seems to be gone is asked for again        |
| RabbitMQ: all requests    | `timeout_s`  | a stream without a leader; once after a lost connection                   |
| Hazelcast: all calls      | `timeout_s`  | a call that was not sent, because there was no connection                 |

What may have been stored is never sent again by these loops. It raises AppendUncertain, and the publisher sends the
same batch again, so that the bus or its readers can drop the copy.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.runtime import Runtime


class Deadline:
    """A time by which something must have ended: so many seconds from now on."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock, self._begun, self._end = clock, clock(), clock() + seconds

    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(self._end - self._clock(), 0.0)

    def passed(self) -> float:
        """Seconds since it was set."""
        return self._clock() - self._begun

    def part(self, share: float) -> Deadline:
        """A deadline after a share of what is left."""
        return Deadline(self._clock, self.left() * share)


class Retry:
    """The tries of one call: pauses between them, until a deadline."""

    def __init__(
        self, runtime: Runtime, deadline: Deadline, *, pause_s: float, pause_most_s: float | None = None
    ) -> None:
        """Pauses are `pause_s` long; they double each time up to `pause_most_s`, if that is given."""
        self.deadline = deadline
        self._runtime = runtime
        self._pause_s, self._pause_most_s = pause_s, pause_most_s or pause_s

    def again(self, *, limit_s: float | None = None) -> bool:
        """Pause and return True if there is time for another try; else return False at once.

        `limit_s` is for a failure that is believed earlier: no more tries so long after the deadline was set.
        """
        left = self.deadline.left()
        if limit_s is not None:
            left = min(left, limit_s - self.deadline.passed())
        if left <= 0:
            return False
        self._runtime.waiter().wait(min(self._pause_s, left))
        self._pause_s = min(2 * self._pause_s, self._pause_most_s)
        return True
