"""Delayed execution: a job that runs later, and one that is cancelled in time; on disk, with a node in this process."""

from __future__ import annotations

import tempfile
import threading

import lockstep


def main() -> None:
    done = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        lockstep.connect(f"lmdb:{folder}/events") as bus,
        bus.scheduler("jobs") as scheduler,
    ):

        @scheduler.on()
        def run(event: lockstep.Fired) -> None:
            print(f"Running {event.id}: {event.value()}")
            done.set()

        soon = scheduler.after("300ms", {"resize": "cat.png"}, id="resize-1")
        later = scheduler.after("30m", {"resize": "dog.png"}, id="resize-2")
        assert soon.status == later.status == "WAITING"
        won = scheduler.cancel("resize-2")
        print(f"Cancelled resize-2: {type(won).__name__}.")
        assert isinstance(won, lockstep.Cancelled)
        assert done.wait(30)
        fired = scheduler.find("resize-1")
        assert fired is not None
        assert fired.triggered_at is not None
        assert fired.triggered_at >= fired.at, "never before its time"
        late = (fired.triggered_at - fired.at).total_seconds()
        assert late < 10
        assert scheduler.cancel("resize-3") == lockstep.Unknown()
        print("One job ran once, after its delay; the cancelled one never will.")


if __name__ == "__main__":
    main()
