"""Polling: a cron polls service B every five minutes in working hours; ticks that are missed are accounted for."""

from __future__ import annotations

import json

import lockstep
from lockstep.testing import VirtualScheduler


def main() -> None:
    with VirtualScheduler(start="2026-03-27T08:00Z") as scheduler:  # a Friday
        polled = list[str]()

        @scheduler.on()
        def poll(event: lockstep.Fired) -> None:
            polled.append(event.at.strftime("%a %H:%M"))

        said = scheduler.every("0 0/5 9-17 ? * MON-FRI", id="poll-b", type="QUARTZ", tz="Europe/Berlin")
        print(f"poll-b fires {said}.")
        scheduler.clock.advance("1 hour")
        print(f"In the first hour B was polled {len(polled)} times, at {polled[0]} UTC first.")
        assert len(polled) == 12

        scheduler.pause("poll-b")
        scheduler.clock.advance("30 minutes")
        scheduler.resume("poll-b")
        scheduler.clock.advance("3 days")  # over a weekend, in which the clocks of Berlin are changed
        monday = [at for at in polled if at.startswith("Mon")]
        print(f"On Monday the first poll is at {monday[0]} UTC: it is summer time in Berlin.")
        assert monday[0] == "Mon 07:00"
        assert not [at for at in polled if at.startswith(("Sat", "Sun"))]

        with scheduler.bus.subscriber(scheduler.streams.history, initial="earliest") as history:
            records = [json.loads(record.value) for record in history.poll(timeout=1)]
        skipped = [record for record in records if record["what"] == "skipped"]
        assert len([record for record in records if record["what"] == "fired"]) == len(polled)
        assert {record["reason"] for record in skipped} == {"paused"}
        print(f"{len(polled)} ticks fired once each, {len(skipped)} were skipped because the cron was paused.")


if __name__ == "__main__":
    main()
