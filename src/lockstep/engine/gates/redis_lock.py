"""A gate by Sensu's own election on Redis: a lock with the time of its last refresh, and who holds it.

`lock:leader` has milliseconds since 1970, `leader` the id of who leads; both stay where they are when it leaves. A
lock that was not refreshed for 30 seconds may be taken, and of several that see it so one gets it: the one whose GETSET
returns what it had read. Sensu's servers and ours may stand for election on the same keys.

Clocks of several machines are compared, so the lock can be had by two at once, or by nobody for longer than 30 seconds.
As with any gate that costs time, and never an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lockstep.engine.gates.port import Gate, needed
from lockstep.errors import ServerRefused, ServerUnreachable
from lockstep.log.network.address import Address
from lockstep.runtime import Runtime, logger

LOCK, LEADER = "lock:leader", "leader"
FIRST_S, EVERY_S, STALE_MS = 2.0, 10.0, 30_000
_OPEN_S = 10.0
_SOON_S = 2.0
"""Redis did not answer: it is asked again after so long."""
_NEVER = float("-inf")
Command = tuple[str, ...]
Try = Generator[Command, Any, bool]


def attempt(me: str, clock_ms: Callable[[], int]) -> Try:
    """Commands of one who does not lead, each answered before the next; whether it leads now."""
    if not (yield "SETNX", LOCK, str(clock_ms())):
        held = yield "GET", LOCK
        now = clock_ms()
        if now - number_of(held) < STALE_MS:
            return False
        if (yield "GETSET", LOCK, str(now)) != held:
            return False
    yield "SET", LEADER, me
    return True


def refresh(me: str, clock_ms: Callable[[], int]) -> Try:
    """Commands of one who leads; whether it still does."""
    if (yield "GET", LEADER) != me:
        return False
    yield "SET", LOCK, str(clock_ms())
    return True


def number_of(text: str | None) -> int:
    """The number that a text begins with, as Ruby's to_i reads it; 0 if there is none."""
    digits = ""
    for each in (text or "").strip()[:20]:
        if not (each.isascii() and each.isdigit()):
            break
        digits += each
    return int(digits or 0)


@dataclass(slots=True)
class Candidate:
    """Who stands for election: what it does next, and when. Times are those of its own monotonic clock."""

    me: str
    clock_ms: Callable[[], int]
    leads: bool = False
    due: float | None = None
    """When it tries or refreshes; None: it does not stand."""
    sure_until: float = _NEVER
    _asked_at: float = 0.0

    def stand(self, now: float) -> None:
        """Begin: the first try comes after two seconds."""
        if self.due is None:
            self.due = now + FIRST_S

    def resign(self) -> None:
        """Stop. The keys stay, and the lock grows old."""
        self.leads, self.due, self.sure_until = False, None, _NEVER

    def begin(self, now: float) -> Try:
        """The commands that are due; `end` takes what they came to."""
        self._asked_at = now
        return (refresh if self.leads else attempt)(self.me, self.clock_ms)

    def end(self, *, leads: bool) -> bool:
        """The commands were answered. Return whether it began or ceased to lead."""
        changes, self.leads = self.leads != leads, leads
        self.sure_until = self._asked_at + STALE_MS / 1000 if leads else _NEVER
        self.due = self._asked_at + EVERY_S
        return changes

    def fail(self, now: float) -> bool:
        """Redis did not answer. The engine that leads is believed to until the others may take the lock."""
        self.due = now + _SOON_S
        ceases = self.leads and now >= self.sure_until
        self.leads = self.leads and not ceases
        return ceases

    def may_lead(self, now: float) -> bool:
        """Whether it leads, and no other engine can have taken the lock since."""
        return self.leads and now < self.sure_until


def open_redis_lock(address: Address, runtime: Runtime) -> RedisLockGate:
    """Connect; the engine does not stand for election yet."""
    redis = needed("redis", "redis")
    tls: dict[str, Any] = {}
    if address.tls is not None:
        tls = {"ssl": True, "ssl_ca_certs": address.tls.ca, "ssl_certfile": address.tls.cert}
        tls["ssl_keyfile"] = address.tls.key
    host, port = address.hosts[0]
    client = redis.Redis(
        host=host, port=port, db=int(address.path or 0), username=address.user,
        password=address.password.reveal() if address.password else None, decode_responses=True,
        socket_timeout=address.timeout_s, socket_connect_timeout=_OPEN_S, **tls,
        # A command that was sent again would lose against itself.
        retry=needed("redis.retry", "redis").Retry(needed("redis.backoff", "redis").NoBackoff(), 0),
    )  # fmt: skip
    gate = RedisLockGate(client, (redis.RedisError, OSError), address.safe_url, runtime)
    gate.connect((redis.AuthenticationError, redis.ResponseError))
    return gate


class RedisLockGate(Gate):
    """Sensu's lock in Redis, as one engine sees it."""

    def __init__(self, client: Any, trouble: tuple[type[Exception], ...], shown: str, runtime: Runtime) -> None:
        self._client, self._trouble, self._shown, self._runtime = client, trouble, shown, runtime
        me = str(UUID(bytes=runtime.new_id()))
        self._candidate = Candidate(me, lambda: runtime.wall_ns() // 1_000_000)
        self._wanted = False
        self._crash: BaseException | None = None
        self._waiter = runtime.waiter()

    def connect(self, refusals: tuple[type[Exception], ...]) -> None:
        """Begin; an error if the server can't be reached or used."""
        try:
            self._client.get(LEADER)
        except refusals as error:
            raise ServerRefused(server=self._shown, reason=str(error)) from error
        except self._trouble as error:
            raise ServerUnreachable(
                server=self._shown, reason=str(error).rstrip(".") or type(error).__name__
            ) from error
        self._task = self._runtime.spawn("lockstep-gate", self._step, self._waiter, self._crashed)

    def enter(self) -> None:
        """Stand in line, at its end; one that stands there stays where it is."""
        if not self._wanted:
            self._wanted = True
            self._waiter.wake()

    def leave(self) -> None:
        """Leave the line, so that the next may try; `enter` begins at its end."""
        if self._wanted:
            self._wanted = False
            self._waiter.wake()

    def may_lead(self) -> bool:
        """Whether this engine may try to lead; False while that is not sure."""
        return self._wanted and self._candidate.may_lead(self._runtime.monotonic())

    def state(self) -> str:
        """Where it stands, for people; no secrets."""
        if not self._wanted:
            return f"{self._shown}: not standing for election"
        if self.may_lead():
            return f"{self._shown}: active as {self._candidate.me}"
        return f"{self._shown}: {'unsure' if self._candidate.leads else 'standby'} as {self._candidate.me}"

    def check(self) -> None:
        """Raise what ended it, if anything did."""
        if self._crash is not None:
            raise self._crash

    def close(self) -> None:
        """Leave for good and let go of the connection."""
        self._wanted = False
        self._task.stop()
        with suppress(*self._trouble):
            self._client.close()

    def _step(self) -> float:
        """Do what is due, and return how long it is until something is."""
        candidate, now = self._candidate, self._runtime.monotonic()
        if not self._wanted:
            if candidate.leads:
                logger.info("Redis lock is left to grow old", extra={"action": "gate"})
            candidate.resign()
            return EVERY_S
        candidate.stand(now)
        if candidate.due is not None and candidate.due <= now:
            self._work(now)
        return max(0.0, (candidate.due or now) - self._runtime.monotonic())

    def _work(self, now: float) -> None:
        candidate = self._candidate
        try:
            changes = candidate.end(leads=self._answered(candidate.begin(now)))
        except self._trouble as error:
            changes = candidate.fail(self._runtime.monotonic())
            logger.debug("Redis did not answer: %r", error, extra={"action": "gate_retry"})
        if changes:
            words = "taken" if candidate.leads else "lost to another one"
            logger.info("Redis lock is %s: %s", words, self.state(), extra={"action": "gate"})

    def _answered(self, tried: Try) -> bool:
        """Send commands one after the other."""
        try:
            command = next(tried)
            while True:
                command = tried.send(self._client.execute_command(*command))
        except StopIteration as end:
            return bool(end.value)

    def _crashed(self, error: BaseException) -> None:
        self._crash = error
        self._candidate.resign()
