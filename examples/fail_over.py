"""Fail-over: a worker process is killed with kill -9, and the next member of the group goes on where it was.

Nothing is lost: what the dead worker had not confirmed is delivered again. So a record may be handled twice, and
a handler must not mind that.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time

import lockstep

JOBS = 40
KILL_AFTER = 10


def work(url: str) -> None:
    """The child process: handle one job after the other, and confirm every second one."""
    with lockstep.connect(url) as bus, bus.subscriber("jobs", group="workers") as subscriber:
        while True:
            for record in subscriber.poll(timeout=1.0, max_records=2):
                print(record.offset, flush=True)
                time.sleep(0.01)
            subscriber.confirm(sync=True)


def run_until_killed(url: str) -> list[int]:
    """Start a worker, let it handle some jobs, kill it without warning; returns what it handled."""
    command = [sys.executable, __file__, "work", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603 - this very file
        assert child.stdout is not None
        handled = [int(child.stdout.readline()) for _ in range(KILL_AFTER)]
        child.send_signal(signal.SIGKILL)
        handled += [int(line) for line in child.stdout]
    assert child.returncode == -signal.SIGKILL
    return handled


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lockstep.connect(f"lmdb:{folder}/bus") as bus:
        with bus.publisher("jobs") as publisher:
            publisher.publish_many([f"job {number}".encode() for number in range(JOBS)]).wait()

        first = run_until_killed(bus.url)
        killed_at = time.monotonic()
        print(f"Worker 1 handled jobs {first[0]} to {first[-1]} and was killed with -9.")

        second: list[int] = []
        with bus.subscriber("jobs", group="workers") as subscriber:
            while not second or second[-1] < JOBS - 1:
                batch = subscriber.poll(timeout=5.0)
                assert batch, "nobody took over"
                if not second:
                    waited = time.monotonic() - killed_at
                    print(f"Worker 2 took over {waited:.1f} s later, at job {batch.first_offset}.")
                second += [record.offset for record in batch]
                subscriber.confirm(sync=True)

        assert second == list(range(second[0], JOBS)), "worker 2 skipped or mixed up jobs"
        assert set(first) | set(second) == set(range(JOBS)), "a job was lost"
        again = sorted(set(first) & set(second))
        assert len(again) <= 2, "more was repeated than worker 1 had left unconfirmed"
        print(f"All {JOBS} jobs were handled, in order; handled twice: {again or 'none'}.")


if __name__ == "__main__":
    work(sys.argv[2]) if sys.argv[1:2] == ["work"] else main()
