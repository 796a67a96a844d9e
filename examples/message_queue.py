"""A message queue: workers share the jobs, each job is done by one of them, and what is done stays done.

A group is a queue: it begins with the oldest record and remembers what is confirmed. Two streams let two workers work
at the same time; a second group gets all of it again, because reading uses nothing up.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter

import lockstep

QUEUES = ("jobs.europe", "jobs.america")
JOBS = 100


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lockstep.connect(f"lmdb:{folder}/bus") as bus:
        for queue in QUEUES:
            with bus.publisher(queue, value=lockstep.TEXT) as publisher:
                for number in range(JOBS):
                    publisher.publish(f"{queue} #{number}")
        print(f"{len(QUEUES) * JOBS} jobs are waiting; no worker is there yet.")

        done: Counter[str] = Counter()
        by_worker: Counter[str] = Counter()
        all_done = threading.Event()

        def start_worker(name: str) -> lockstep.Receiver:
            def work(record: lockstep.Record[str]) -> None:
                time.sleep(0.002)
                done[record.value] += 1
                by_worker[name] += 1
                if len(done) == len(QUEUES) * JOBS:
                    all_done.set()

            subscriber = bus.subscriber(*QUEUES, group="workers", value=lockstep.TEXT)
            return bus.receive(subscriber, work, prefetch=10)

        workers = [start_worker("Anna"), start_worker("Ben")]
        assert all_done.wait(timeout=10)
        for worker in workers:
            worker.close()  # finishes and confirms what is at hand
        print(f"Done by {dict(by_worker)}.")
        assert set(done.values()) == {1}, "a job was done twice"
        assert len(by_worker) == 2, "one worker did it all"

        with bus.subscriber(*QUEUES, group="workers") as later:
            while not later.is_assigned:
                time.sleep(0.01)
            assert not later.poll(timeout=0.2)
        print("A worker that comes later finds nothing to do.")

        with bus.subscriber(*QUEUES, group="audit") as audit:
            audited = sum(1 for _ in audit.records(idle_s=0.5))
        print(f"Another group, audit, reads all {audited} jobs for itself.")
        assert audited == len(QUEUES) * JOBS


if __name__ == "__main__":
    main()
