"""What a fleet has to say, restated: short, slow, with whole histories, and no code of the monitor's.

Everything that came is kept, and each question is answered by going through all of it again. It knows keepalives,
results with numbers and without, TTLs, silences by exact names, acknowledgements, orders to resolve, and ticks.
"""

from __future__ import annotations

import zlib

HANDLERS = {
    "default": {"type": "pipe"},
    "patient": {"type": "pipe", "filter": "occurrences", "severities": ["critical", "ok"]},
    "keepalive": {"type": "pipe"},
}
SEVERITIES = {0: "ok", 1: "warning", 2: "critical"}
DIGESTS_KEPT = 50
WARNING, CRITICAL, MINUTE_HALF = 120, 180, 30


def state_change(statuses):
    last = statuses[-21:]
    if len(last) < 21:
        return 0
    return int(sum(0.8 + 0.02 * place for place in range(1, 21) if last[place] != last[place - 1]) / 20 * 100 + 1e-9)


class Oracle:
    """Asked step by step; `told` is what handlers were told in the last one."""

    def __init__(self):
        self.results = {}  # (client, check): all results, each a dict with status, occurrences, flaps, ttl, forced
        self.ticks = []  # (second, lagging)
        self.heard = {}  # client: listened time of its last keepalive
        self.sent = {}  # result by (client, check): listened time
        self.numbers = {}  # (client, agent): all numbers taken
        self.unnumbered = {}  # (client, kind): all texts taken
        self.silences = {}  # id: (expires at or None, until resolved)
        self.copies = 0
        self.told = []
        self.looked_at = None

    # time

    @property
    def now(self):
        return max((second for second, _ in self.ticks), default=0)

    def listened(self):
        total, before = 0, None
        for second, lagging in self.ticks:
            if before is not None and not lagging:
                total += max(0, min(2, second - before))
            before = second if before is None else max(before, second)
        return total

    # what came before

    def is_copy(self, kind, client, agent, number, text, again):
        if agent is not None:
            taken = self.numbers.setdefault((client, agent), [])
            found = bool(taken) and number <= max(taken)
            taken += [] if found else [number]
        else:
            taken = self.unnumbered.setdefault((client, kind), [])
            found = again and text in taken[-DIGESTS_KEPT:]
            taken += [] if found else [text]
        self.copies += found
        return found

    # events

    def outcomes(self, key):
        """For each result of a check: whether handlers are told, and the event after it, or None."""
        event, made, statuses = None, [], []
        for result in self.results.get(key, []):
            status = result["status"]
            statuses.append(status)
            flaps = (
                result["flaps"]
                and not result["forced"]
                and (
                    state_change(statuses) > 20
                    if event and event["action"] == "flapping"
                    else state_change(statuses) >= 50
                )
            )
            action, before = "flapping" if flaps else "create", event
            new = {"occurrences": 1, "watermark": 1, "revision": 0} if before is None else dict(before)
            if status or flaps:
                if len(statuses) > 1 and statuses[-1] == statuses[-2]:
                    new["occurrences"] += 1
                    new["watermark"] = max(new["watermark"], new["occurrences"])
                else:
                    new["occurrences"] = 1
            elif before is not None:
                action = "resolve"
            new |= {"action": action, "status": status, "history": statuses[-21:], "result": result}
            if status == 0 and action == "create":
                made.append((False, None))
                continue
            new["revision"] += 1
            event = None if action == "resolve" else new
            made.append((True, new))
        return made

    def event(self, key):
        told = self.outcomes(key)
        last = told[-1][1] if told else None
        return None if last is None or last["action"] == "resolve" else last

    def add(self, client, check, result):
        key = (client, check)
        self.results.setdefault(key, []).append(result)
        passes, event = self.outcomes(key)[-1]
        if not passes:
            return
        silenced = self.silence(client, check, event["action"])
        for handler in result["handlers"]:
            if self.passes(handler, event, result, silenced):
                self.told.append(
                    (client, check, handler, event["status"], event["action"], event["occurrences"], event["revision"])
                )

    def silence(self, client, check, action):
        found = []
        own = ["linux", f"client:{client}"] if client in self.heard else [f"client:{client}"]
        for id_ in (*(f"{each}:{end}" for each in own for end in ("*", check)), f"*:{check}"):
            if id_ in self.silences:
                if self.silences[id_][1] and action == "resolve":
                    del self.silences[id_]
                else:
                    found.append(id_)
        return found

    def passes(self, handler, event, result, silenced):
        definition = HANDLERS[handler]
        if event["action"] == "flapping" or silenced:
            return False
        wanted = definition.get("severities")
        seen = event["history"] if event["action"] == "resolve" else [event["status"]]
        if wanted and not any(SEVERITIES[each] in wanted for each in seen):
            return False
        if definition.get("filter") != "occurrences":
            return True
        need, count = result["occurrences"], event["occurrences"]
        if event["action"] == "resolve" and event["watermark"] >= need:
            return True
        if count < need:
            return False
        return event["action"] == "resolve" or count <= need or (count - need) % (1800 // result["interval"]) == 0

    # steps

    def keepalive(self, client):
        self.heard[client] = self.listened()

    def result(self, client, check, status, *, need=1, flaps=False, ttl=0):
        made = {"status": status, "occurrences": need, "flaps": flaps, "ttl": ttl, "forced": False, "interval": 60}
        self.sent[client, check] = self.listened()
        self.add(client, check, {**made, "handlers": ["default", "patient"]})

    def resolve(self, client, check):
        event = self.event((client, check))
        if event is not None:
            self.add(client, check, {**event["result"], "status": 0, "forced": True})

    def tick(self, second, lagging):
        before = self.looked_at
        self.ticks.append((second, lagging))
        self.silences = {id_: one for id_, one in self.silences.items() if one[0] is None or one[0] > self.now}
        if before is None:
            self.looked_at = self.now
        elif not lagging:
            for turn in range(max(before, self.now - MINUTE_HALF) + 1, self.now + 1):
                for client in sorted(self.clients()):
                    if zlib.crc32(client.encode()) % MINUTE_HALF == turn % MINUTE_HALF:
                        self.look_at(client)
            self.looked_at = self.now

    def clients(self):
        return {*self.heard, *(client for client, _ in self.results)}

    def look_at(self, client):
        if client in self.heard:
            age = self.listened() - self.heard[client]
            status = 2 if age >= CRITICAL else 1 if age >= WARNING else 0
            made = {"status": status, "occurrences": 1, "flaps": False, "ttl": 0, "forced": False, "interval": 60}
            self.add(client, "keepalive", {**made, "handlers": ["keepalive"]})
        for name in sorted(check for owner, check in self.results if owner == client and check != "keepalive"):
            last = self.results[client, name][-1]
            age = self.listened() - self.sent[client, name]
            if last["ttl"] and not last["forced"] and age >= last["ttl"] and self.event((client, "keepalive")) is None:
                self.add(client, name, {**last, "status": 1, "interval": 30})
