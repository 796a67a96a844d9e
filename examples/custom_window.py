"""A window of your own: which hosts said nothing for three ticks. It is run with cuts, restarts and kills, and checked.

A model names such a class by module and name. Everything it keeps is in `state`, and what it answers follows from that
and from what it is called with; so any engine gives the same answer, killed or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.testing import check_window
from lockstep.windows import Change, Made, Notice, Window

SCRIPT = """
Heartbeats,I,N,1,web-1
Heartbeats,I,N,2,web-2

tick,10000000
Heartbeats,I,N,3,web-1
tick,20000000
tick,30000000,lagging
Heartbeats,I,N,4,web-1
tick,40000000
tick,50000000
Heartbeats,I,N,5,web-2
"""


class Silence(Window):
    """A row and a notice for each host that says nothing for `limit` ticks, and when it is back."""

    version = "1"

    def on_event(self, change: Change) -> Iterator[Made]:
        host = str(change["host"])
        if self.state.get(host, 0) is None:
            yield {"host": host, "silent": 0}
            yield Notice("mail", key=host, body=f"{host} is back".encode())
        self.state[host] = 0

    def on_tick(self, time_us: int, lagging: bool) -> Iterator[Made]:
        if lagging:  # what the host said may wait to be read: silence says nothing now
            return
        for host, ticks in self.state.items():
            if ticks is not None:
                self.state[host] = ticks + 1
                if ticks + 1 == int(self.setup.properties["limit"]):
                    self.state[host] = None
                    yield {"host": host, "silent": 1}
                    yield Notice("mail", key=host, body=f"{host} is silent".encode(), headers={"at": str(time_us)})


def main() -> None:
    report = check_window(
        Silence,
        SCRIPT,
        inputs={"Heartbeats": "id*:int64,host:string"},
        schema="host*:string,silent:int32",
        properties={"limit": "3"},
        tick="10 seconds",
    )
    for number, answer in enumerate(report.answers, 1):
        for what in ("window q/Silence", "notices of q/Silence"):
            for text in answer.get(what, []):
                print(f"block {number}, {what}: {text}")
    assert any("web-2 is back" in text for answer in report.answers for texts in answer.values() for text in texts)
    print(f"{report.runs} runs with {report.restarts} restarts and {report.kills} kills gave the same.")


if __name__ == "__main__":
    import custom_window  # by its name: in __main__ no engine would find the class

    custom_window.main()
