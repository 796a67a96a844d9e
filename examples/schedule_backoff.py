"""Retries with back-off: service B is down, so A tries again after 1 minute, 10 minutes, 1 hour and 12 hours.

Each try schedules the next one, so any process may be killed in between. Half a day passes in virtual time.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate

import lockstep
from lockstep.testing import VirtualScheduler

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DELAYS = (MINUTE, 10 * MINUTE, HOUR, 12 * HOUR)
UP_AGAIN_AFTER = 4
"""B fails so often."""


def main() -> None:
    with VirtualScheduler() as scheduler:
        begun, calls = scheduler.clock.now, list[timedelta]()

        def call_b(order: int, attempt: int) -> None:
            calls.append(scheduler.clock.now - begun)
            if attempt < UP_AGAIN_AFTER:
                print(f"Try {attempt + 1} of order {order} failed; next in {DELAYS[attempt]}.")
                retry = {"order": order, "attempt": attempt + 1}
                # The id is that of the order: a second request for it would change this retry, not add one.
                scheduler.after(DELAYS[attempt], retry, id=f"retry-{order}")
            else:
                print(f"Try {attempt + 1} of order {order} succeeded.")

        @scheduler.on()
        def retry(event: lockstep.Fired) -> None:
            call_b(**event.value())

        call_b(order=7, attempt=0)
        scheduler.clock.advance("1 day")
        print("Called after", ", ".join(map(str, calls)))
        assert calls == list(accumulate(DELAYS, initial=timedelta(0)))
        print("B was called 5 times: at once, and 1m, 10m, 1h and 12h after the try before.")


if __name__ == "__main__":
    main()
