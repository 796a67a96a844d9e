"""A publish-subscribe topic: everybody who listens gets every record; who comes later gets what comes later.

Subscribers without a group read independently. They start at the end of the stream unless told otherwise, and
reading takes nothing away from the others.
"""

from __future__ import annotations

import tempfile

import lockstep


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lockstep.connect(f"lmdb:{folder}/bus") as bus:
        publisher = bus.publisher("prices", value=lockstep.TEXT)
        publisher.publish("EUR 1.08").result()  # before anybody listens

        screen = bus.subscriber("prices", value=lockstep.TEXT)
        logbook = bus.subscriber("prices", value=lockstep.TEXT)
        publisher.publish("EUR 1.09").result()
        publisher.publish("EUR 1.10").result()
        seen = screen.poll(timeout=1.0).values()
        written = logbook.poll(timeout=1.0).values()
        print(f"The screen saw {seen}, the logbook {written}.")
        assert seen == written == ["EUR 1.09", "EUR 1.10"]

        screen.close()
        publisher.publish("EUR 1.11").result()
        screen = bus.subscriber("prices", value=lockstep.TEXT)  # no group: its old position is gone
        publisher.publish("EUR 1.12").result()
        seen = screen.poll(timeout=1.0).values()
        print(f"The screen was switched off for a while; now it sees {seen}.")
        assert seen == ["EUR 1.12"]
        assert logbook.poll(timeout=1.0).values() == ["EUR 1.11", "EUR 1.12"]

        newcomer = bus.subscriber("prices", initial="earliest", value=lockstep.TEXT)
        history = newcomer.poll(timeout=1.0).values()
        print(f"Nothing was used up: a newcomer that asks for it reads all {len(history)} prices.")
        assert history == ["EUR 1.08", "EUR 1.09", "EUR 1.10", "EUR 1.11", "EUR 1.12"]


if __name__ == "__main__":
    main()
