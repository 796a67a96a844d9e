"""Dead letters: a record that can't be handled is put aside with the reason, and sent back once the fault is fixed.

Without a policy a receiver stops at such a record, so that nothing is skipped unseen. Here it tries three times, then
moves the record to another stream and goes on.
"""

from __future__ import annotations

import tempfile
import threading

import lockstep

ORDERS = [b"3", b"5", b"four", b"2"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lockstep.connect(f"lmdb:{folder}/bus") as bus:
        handled: list[int] = []
        attempts: list[bytes] = []
        finished = threading.Event()
        words = {b"four": 4}
        understands_words = threading.Event()

        def handle(record: lockstep.Record) -> None:
            attempts.append(record.value)
            number = words.get(record.value) if understands_words.is_set() else None
            handled.append(int(record.value) if number is None else number)
            if len(handled) in (len(ORDERS) - 1, len(ORDERS)):
                finished.set()

        policy = lockstep.OnFailure(retries=2, backoff_s=0.01, then="dead-letter")
        receiver = bus.receive(bus.subscriber("orders", group="billing"), handle, on_failure=policy)
        with bus.publisher("orders") as publisher:
            publisher.publish_many(ORDERS).wait()
        assert finished.wait(timeout=10)

        print(f"Handled {handled}; the record after the bad one was not held up.")
        assert handled == [3, 5, 2]
        assert attempts.count(b"four") == 3
        (letter,) = lockstep.dead_letters(bus, "orders.dlq")
        print(f"Put aside: offset {letter.offset} of {letter.stream}, {letter.attempts} attempts, {letter.reason}")
        assert (letter.stream, letter.offset, letter.record.value) == ("orders", 2, b"four")

        finished.clear()
        understands_words.set()  # somebody fixed the handler
        sent_back = lockstep.redrive(bus, "orders.dlq")
        assert finished.wait(timeout=10)
        print(f"The handler was fixed and {sent_back} letter sent back: handled {handled}.")
        assert handled == [3, 5, 2, 4]
        assert lockstep.redrive(bus, "orders.dlq") == 0, "a letter is sent back once"
        receiver.close()


if __name__ == "__main__":
    main()
