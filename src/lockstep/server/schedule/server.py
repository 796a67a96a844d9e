"""The server of a scheduler's API: uvicorn in a thread, beside the node."""

from __future__ import annotations

import socket
from types import TracebackType

from lockstep.schedule.client import ANSWER_S
from lockstep.schedule.scheduler import Scheduler
from lockstep.server.access import check_host
from lockstep.server.guard import Guard, Limits
from lockstep.server.schedule.app import OPEN_PATHS, Pools, ScheduleApp, Timing
from lockstep.server.schedule.documents import refusal
from lockstep.server.schedule.site import ScheduleSite
from lockstep.server.serving import RestServer, bind

LIMITS = Limits(requests=128, bodies=64, body_bytes=16 << 20, body_s=30.0)


class ScheduleServer:
    """Serves a scheduler's API from when it is made until it is closed; `url` is where. Port 0 takes any free port.

    A host that other machines can reach needs a token. Without one everybody on this machine may look, and with
    `change_token` only its bearers may change something. `bound` is a socket from `bind`: with it, the port is known
    before the scheduler is opened, so that its card can name it. The scheduler is the caller's to close, afterwards.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        change_token: str | None = None,
        bound: socket.socket | None = None,
        limits: Limits = LIMITS,
        answer_s: float = ANSWER_S,
    ) -> None:
        check_host(host, token)
        runtime = scheduler.bus.runtime
        node = scheduler.node.name if scheduler.node is not None else socket.gethostname()
        self._pools = Pools.open()
        self.app = ScheduleApp(ScheduleSite(scheduler, answer_s), self._pools, node)
        guard = Guard(
            self.app, token=token, change_token=change_token, runtime=runtime, limits=limits, open_paths=OPEN_PATHS,
            refuse=refusal,
        )  # fmt: skip
        timing = Timing(guard, runtime, node, self.app.operation.requests)
        try:
            self._server = RestServer(timing, bound or bind(host, port, "The scheduler's API"), host)
        except BaseException:
            self._pools.close()
            raise
        self.url = self._server.url

    def close(self) -> None:
        """Take no more requests; those at work have two seconds. May be called again."""
        self._pools.close()
        self._server.stop()

    def __enter__(self) -> ScheduleServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
