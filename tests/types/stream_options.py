"""What a type checker must find, and what it must let pass. Checked by mypy, never run.

mypy reports an ignore that is not needed, so each of these lines must be an error of the kind it names.
"""

from __future__ import annotations

import lockstep


def wrong(bus: lockstep.Lockstep) -> None:
    bus.publisher("a", when_ful="raise")  # type: ignore[call-arg]
    bus.publisher("a", when_full="rise")  # type: ignore[arg-type]
    bus.subscriber("a", on_gap="fial")  # type: ignore[arg-type]
    bus.subscriber("a", initial="first")  # type: ignore[arg-type]
    bus.receive(bus.subscriber("a"), print, wrokers=3)  # type: ignore[call-arg]
    bus.alter("a", retain_age=3)  # type: ignore[call-arg]
    bus.publisher("a", value=lockstep.TEXT).publish(b"bytes")  # type: ignore[arg-type]
    for record in bus.subscriber("a", value=lockstep.TEXT):
        record.valeu  # type: ignore[attr-defined]  # noqa: B018
        record.value.decode()  # type: ignore[attr-defined]


async def wrong_async(url: str) -> None:
    async with lockstep.connect_async(url) as bus:
        await bus.publisher("a", when_ful="raise")  # type: ignore[call-arg]
        subscriber = await bus.subscriber("a", value=lockstep.TEXT)
        (await subscriber.poll())[0].value.decode()  # type: ignore[attr-defined]


def right(bus: lockstep.Lockstep) -> tuple[str, bytes, int]:
    with bus.publisher("a", when_full="raise", value=lockstep.TEXT) as publisher:
        offset = publisher.publish("text", key=b"k").result()
    text = bus.subscriber("a", value=lockstep.TEXT, on_gap="fail").poll()[0].value
    plain = bus.subscriber("a").poll().values()[0]
    return text, plain, offset
