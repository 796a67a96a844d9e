"""Time-out ticker: A asks B over a stream and expects an answer within a minute; an event checks that it came.

An answer cancels the check. If both come at the same moment, the cancel tells who won, so A never does both.
"""

from __future__ import annotations

import lockstep
from lockstep.testing import VirtualScheduler


def main() -> None:
    with VirtualScheduler() as scheduler:
        timed_out, answered = list[str](), list[str]()

        @scheduler.on()
        def check(event: lockstep.Fired) -> None:
            timed_out.append(event.value()["question"])

        def ask(question: str) -> None:
            scheduler.after("1m", {"question": question}, id=f"timeout-{question}")

        def answer(question: str) -> None:
            won = scheduler.cancel(f"timeout-{question}")
            if isinstance(won, lockstep.Cancelled):
                answered.append(question)

        for question in ("stock", "price", "weight"):
            ask(question)
        scheduler.clock.advance("20s")
        answer("stock")
        scheduler.clock.advance("39s")
        answer("price")  # a second before its time-out
        scheduler.clock.advance("1h")
        answer("weight")  # too late
        print(f"Answered: {', '.join(answered)}. Timed out: {', '.join(timed_out)}.")
        assert (answered, timed_out) == (["stock", "price"], ["weight"])
        waiting = scheduler.events(status=["WAITING"]).events
        assert waiting == [], "nothing is left to check"
        print("Every question was either answered or timed out, and none was both.")


if __name__ == "__main__":
    main()
