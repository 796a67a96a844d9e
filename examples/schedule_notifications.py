"""Notification engine: channels are tenants; quiet hours, a rate, a weekly digest, and a channel that fails."""

from __future__ import annotations

from lockstep.testing import VirtualScheduler


def main() -> None:
    with VirtualScheduler(start="2026-05-01T20:00Z") as scheduler:
        scheduler.register("mail", "HTTP", {"url": "https://mail.example/send"})
        scheduler.register("push", "HTTP", {"url": "https://push.example/send"}, rate=2)
        scheduler.answers("mail", 503, 503, 503, 503, 200)  # down for the tries of the first seconds

        scheduler.at("2026-05-01T22:00Z", "Your parcel is on its way", id="parcel-1", tenant="mail", payload_only=True)
        for user in range(6):
            scheduler.at("2026-05-01T21:00Z", f"Sale ends soon, user {user}", id=f"sale-{user}", tenant="push")
        scheduler.every("0 8 * * SUN", "Your week in review", id="digest", tenant="mail", tz="America/New_York")

        scheduler.pause_tenant("push")  # quiet hours: nothing is lost, it waits
        scheduler.clock.advance_to("2026-05-02T07:00Z")
        assert scheduler.fired("push") == []
        scheduler.resume_tenant("push")
        scheduler.clock.advance("10s")
        pushed = scheduler.fired("push")
        print(f"After the quiet hours {len(pushed)} pushes went out, 2 a second at most.")
        assert len(pushed) == 6
        span = max(event.triggered_at for event in pushed if event.triggered_at) - min(
            event.triggered_at for event in pushed if event.triggered_at
        )
        assert span.total_seconds() >= 2

        parcel = scheduler.find("parcel-1", tenant="mail")
        assert parcel is not None
        tries = [event for event in scheduler.courier.delivered if event.id == "parcel-1"]
        assert (parcel.status, len(tries)) == ("DONE", 5)
        assert len({event.event_id for event in tries}) == 1, "each try has the same Idempotency-Key"
        print(f"The mail about the parcel was tried {len(tries)} times, under one idempotency key.")

        scheduler.clock.advance_to("2026-05-04T00:00Z")
        [digest] = [event for event in scheduler.fired("mail") if event.value() == "Your week in review"]
        print(f"The digest went out at {digest.at:%A %H:%M} UTC, eight o'clock in New York.")
        assert f"{digest.at:%A %H:%M}" == "Sunday 12:00"


if __name__ == "__main__":
    main()
