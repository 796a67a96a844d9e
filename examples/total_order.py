"""Stream processing in total order: several publishers, several readers, one order that everybody sees.

A bank account is a fold over its movements, so every reader must apply them in the same order. Two publishers write
at the same time; how they interleave is decided once, by the log.
"""

from __future__ import annotations

import tempfile
import threading

import lockstep

MOVEMENTS = 500


def publish(url: str, name: str) -> None:
    with lockstep.connect(url) as bus, bus.publisher("movements", value=lockstep.JSON) as publisher:
        for number in range(MOVEMENTS):
            publisher.publish({"from": name, "number": number, "amount": number % 7 - 3})


def read_all(bus: lockstep.Lockstep) -> list[tuple[int, str, int, int]]:
    """Offset, publisher, number and balance after it, as one reader sees them."""
    balance = 0
    seen: list[tuple[int, str, int, int]] = []
    with bus.subscriber("movements", initial="earliest", value=lockstep.JSON) as subscriber:
        while len(seen) < 2 * MOVEMENTS:
            for record in subscriber.poll(timeout=1.0):
                balance += record.value["amount"]
                seen.append((record.offset, record.value["from"], record.value["number"], balance))
    return seen


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"lmdb:{folder}/bus"
        publishers = [threading.Thread(target=publish, args=(url, name)) for name in ("Anna", "Ben")]
        for thread in publishers:
            thread.start()
        with lockstep.connect(url) as bus:
            bus.create("movements")
            first, second = read_all(bus), read_all(bus)
        for thread in publishers:
            thread.join()

    print(f"Anna and Ben published {MOVEMENTS} movements each, at the same time.")
    assert first == second, "two readers saw different orders"
    print(f"Two readers saw the same {len(first)} records in the same order; both end at balance {first[-1][3]}.")
    offsets = [offset for offset, *_ in first]
    assert offsets == sorted(set(offsets)), "offsets must grow"
    for name in ("Anna", "Ben"):
        numbers = [number for _, author, number, _ in first if author == name]
        assert numbers == list(range(MOVEMENTS)), f"{name}'s records are out of order"
    print("Within it, Anna's records are in Anna's order, and Ben's in Ben's.")


if __name__ == "__main__":
    main()
