"""Stream processing in partial order: one stream cut into shards by key, and a group that shares the shards.

Orders of one customer must stay in order; orders of different customers need not. So the stream has six shards, each
ordered, and three members of a group work on two of them each.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict

import lockstep

CUSTOMERS, ORDERS, SHARDS, MEMBERS = 30, 20, 6, 3


def wait_until_balanced(members: list[lockstep.Subscriber]) -> None:
    """A subscriber takes part in its group while it is polled; nothing is published yet, so nothing is read here."""
    until = time.monotonic() + 10
    while [len(member.assigned) for member in members] != [SHARDS // MEMBERS] * MEMBERS:
        assert time.monotonic() < until, "the group did not balance"
        for member in members:
            assert not member.poll(timeout=0.01)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lockstep.connect(f"lmdb:{folder}/bus") as bus:
        bus.create("orders", lockstep.StreamConfig(shards=SHARDS))
        members = [bus.subscriber("orders", group="billing") for _ in range(MEMBERS)]
        wait_until_balanced(members)
        print(f"{SHARDS} shards, {MEMBERS} members: each owns {SHARDS // MEMBERS}.")

        with bus.publisher("orders") as publisher:
            for number in range(ORDERS):
                for customer in range(CUSTOMERS):
                    publisher.publish(str(number).encode(), key=f"customer-{customer}".encode())

        orders_of: dict[bytes, list[int]] = defaultdict(list)
        workers_of: dict[bytes, set[int]] = defaultdict(set)
        handled = [0] * MEMBERS
        while sum(handled) < CUSTOMERS * ORDERS:
            for index, member in enumerate(members):
                batch = member.poll(timeout=0.05)
                for record in batch:
                    customer_key = record.key or b""
                    orders_of[customer_key].append(int(record.value))
                    workers_of[customer_key].add(index)
                handled[index] += len(batch)
                if batch:
                    member.confirm(batch.last())

        print(f"They handled {handled} records.")
        assert all(handled), "a member had nothing to do"
        assert all(numbers == list(range(ORDERS)) for numbers in orders_of.values())
        print(f"For each of {CUSTOMERS} customers the orders came in order.")
        assert all(len(workers) == 1 for workers in workers_of.values())
        print("Each customer was served by one member.")


if __name__ == "__main__":
    main()
