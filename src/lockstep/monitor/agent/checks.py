"""Checks of an agent: when standalone ones run, and how runs become results, with Sensu's rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from lockstep.cron import Zone, parse
from lockstep.monitor.agent.machine import Finished, Json, Machine, Timer
from lockstep.monitor.agent.processes import Commands
from lockstep.monitor.core.conditions import in_time_windows
from lockstep.monitor.core.documents import encode, substitute, substitute_all
from lockstep.runtime import logger

Extension = Callable[[Mapping[str, Any]], tuple[str, int]]
"""A check that is Python: gets the check, returns output and status."""
Publish = Callable[[Json], None]
SEVERITIES = ("ok", "warning", "critical", "unknown")
HOOK_TIMEOUT_S = 60.0
_UNKNOWN = 3
_NOT_LOCAL = "Check is not locally defined (safe mode)"


class Checks:
    """Runs the checks of one client."""

    def __init__(
        self,
        machine: Machine,
        commands: Commands,
        client: Mapping[str, Any],
        local: Mapping[str, Any],
        publish: Publish,
        find_extension: Callable[[str], Extension | None] = lambda _: None,
    ) -> None:
        self._machine, self._commands, self._client, self._local = machine, commands, client, local
        self._publish, self._find_extension = publish, find_extension
        self._safe = client.get("safe_mode", True) is not False
        self.in_progress: set[str] = set()

    def request(self, request: Mapping[str, Any]) -> None:
        """Run a check that was asked for, here or by a server; a local definition of its name wins."""
        name = request.get("name")
        if not isinstance(name, str) or not name:
            logger.warning("A check request without a name was dropped", extra={"action": "request_dropped"})
            return
        local = self._local.get(name)
        check = self._merged(request, local)
        if isinstance(check.get("command"), str):
            if self._safe and local is None:
                now = int(self._machine.now())
                self._publish({**check, "output": _NOT_LOCAL, "status": _UNKNOWN, "handle": False, "executed": now})
            else:
                self._begin(check, self._run_command)
        else:
            self._request_extension(check)

    def _merged(self, request: Mapping[str, Any], local: Mapping[str, Any] | None) -> Json:
        """The request with the local definition, unless it is one for many clients, which has its own attributes.

        In safe mode whatever is executed comes from the local definition alone.
        """
        check = dict(request)
        if local is not None and "proxy_requests" not in request:
            check |= local
        if self._safe and local is not None:
            for member in ("command", "hooks", "extension"):
                check.pop(member, None)
                if member in local:
                    check[member] = local[member]
        return check

    def _request_extension(self, check: Json) -> None:
        name = check.get("extension") or check["name"]
        extension = self._find_extension(name) if isinstance(name, str) else None
        if extension is None:
            logger.warning("unknown check extension: %s", name, extra={"action": "request_dropped"})
            return
        self._begin(check, lambda key, made: self._run_extension(key, made, extension))

    def _begin(self, check: Json, run: Callable[[str, Json], None]) -> None:
        source = check.get("source")
        key = f"{source}:{check['name']}" if isinstance(source, str) and source else check["name"]
        if key in self.in_progress:
            logger.warning("previous check command execution in progress: %s", key, extra={"action": "check_skipped"})
            return
        self.in_progress.add(key)
        run(key, check)

    def _finish(self, key: str, check: Json) -> None:
        self.in_progress.discard(key)
        self._publish(check)

    def _run_command(self, key: str, check: Json) -> None:
        """Fill in the tokens and run the command. What is published keeps the command and hooks as they were."""
        found, unmatched = substitute_all(check, self._client)
        kept = {name: check[name] for name in ("command", "hooks") if name in check}
        made = {**found, **kept, "executed": int(self._machine.now())}
        if unmatched:
            output = f"Unmatched client token(s): {', '.join(unmatched)}"
            self._finish(key, {**made, "output": output, "status": _UNKNOWN, "handle": False})
            return
        data = encode({"client": self._client, "check": made}) if check.get("stdin") is True else None
        if not self._commands.run(found["command"], data, _seconds(check.get("timeout")), self._ended(key, made)):
            self._too_many(key, made)

    def _run_extension(self, key: str, check: Json, extension: Extension) -> None:
        made = {**check, "executed": int(self._machine.now())}

        def work() -> Finished:
            output, status = extension(made)
            return Finished(str(output), int(status))

        if not self._commands.run_function(work, self._ended(key, made)):
            self._too_many(key, made)

    def _too_many(self, key: str, check: Json) -> None:
        output = "Unexpected error: too many commands wait to be run"
        self._finish(key, {**check, "output": output, "status": _UNKNOWN, "duration": 0.0})

    def _ended(self, key: str, check: Json) -> Callable[[Finished], None]:
        began = self._machine.now()

        def ended(finished: Finished) -> None:
            made = {**check, "duration": self._since(began), "output": finished.output, "status": finished.status}
            self._run_hook(key, made)

        return ended

    def _since(self, began: float) -> float:
        return round(max(self._machine.now() - began, 0.0), 3)

    # hooks

    def _run_hook(self, key: str, check: Json) -> None:
        """Run the hook of a status, if there is one, and put what it gave beside its definition."""
        hooks = check.get("hooks")
        chosen = chosen_hook(hooks, check["status"]) if isinstance(hooks, Mapping) else None
        if chosen is None or not isinstance(hooks, Mapping):
            self._finish(key, check)
            return
        hook = dict(hooks[chosen])
        began = self._machine.now()
        hook["executed"] = int(began)

        def finish() -> None:
            self._finish(key, {**check, "hooks": {**hooks, chosen: hook}})

        def ended(finished: Finished) -> None:
            hook.update(duration=self._since(began), output=finished.output, status=finished.status)
            finish()

        command, unmatched = substitute(hook["command"], self._client)
        if unmatched:
            hook.update(output=f"Unmatched client token(s): {', '.join(unmatched)}", status=_UNKNOWN)
            finish()
            return
        data = encode({"client": self._client, "check": check}) if hook.get("stdin") is True else None
        if not self._commands.run(command, data, _seconds(hook.get("timeout", HOOK_TIMEOUT_S)), ended):
            finish()


def chosen_hook(hooks: Mapping[str, Any], status: int) -> str | None:
    """Which hook runs after a status: that of the number, of the severity, or of all but 0."""
    severity = SEVERITIES[status] if 0 <= status < len(SEVERITIES) else "unknown"
    names: tuple[str, ...] = (str(status), severity, *(("non-zero",) if status else ()))
    for name in names:
        hook = hooks.get(name)
        if isinstance(hook, Mapping) and isinstance(hook.get("command"), str):
            return name
    return None


def _seconds(value: Any) -> float | None:
    """A time-out; None is none."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and value > 0 else None


LOOK_S = 60.0
"""A timer sleeps at most so long, then looks at the clock again: that may have been set."""
_EARLY_S = 0.05


def splay(key: str, now_ms: int, interval_s: int) -> float:
    """Seconds until the next run of a key: runs are at times that the key chooses within the interval."""
    chosen = int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:8], "little")
    return (chosen - now_ms) % (interval_s * 1000) / 1000


class Schedule:
    """Runs a client's standalone checks."""

    def __init__(self, machine: Machine, client: str, run: Callable[[Json], None], zone: Zone) -> None:
        self._machine, self._client, self._run, self._zone = machine, client, run, zone
        self._timers: dict[str, Timer] = {}
        self._due: dict[str, float] = {}

    def start(self, checks: Mapping[str, Any]) -> None:
        """Begin with those that are standalone and may be published."""
        for name, check in checks.items():
            if is_standalone(check):
                self._plan({**check, "name": name}, self._machine.now())

    def stop(self) -> None:
        """Run nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def next_time(self, check: Mapping[str, Any], after: float) -> float | None:
        """When a check is due first after a time; a cron may never be."""
        if isinstance(check.get("cron"), str):
            moment = datetime.fromtimestamp(after, UTC)
            found = parse(check["cron"], "UNIX").next(moment, self._zone)
            return None if found is None else found.timestamp()
        now_ms = int(after * 1000) + 1
        return now_ms / 1000 + splay(f"{self._client}:{check['name']}", now_ms, check["interval"])

    def _plan(self, check: Json, after: float) -> None:
        due = self.next_time(check, after)
        if due is not None:
            self._due[check["name"]] = due
            self._sleep(check)

    def _sleep(self, check: Json) -> None:
        name = check["name"]
        left = max(self._due[name] - self._machine.now(), 0.0)
        self._timers[name] = self._machine.call_later(min(left, LOOK_S), lambda: self._woken(check))

    def _woken(self, check: Json) -> None:
        """Run the check if it is due. A clock that was set back plans anew, one that jumped ahead runs it once."""
        name, now = check["name"], self._machine.now()
        due = self._due[name]
        if now < due - _EARLY_S:
            planned = self.next_time(check, now)
            if planned is not None and planned < due:
                self._due[name] = planned
            self._sleep(check)
            return
        self._plan(check, max(now, due))
        if in_time_windows(check.get("subdue"), self._machine.local(now)):
            logger.info("check execution was subdued: %s", name, extra={"action": "check_subdued"})
            return
        self._run({**check, "issued": int(now)})


def is_standalone(check: Mapping[str, Any]) -> bool:
    """Whether the agent itself runs a check."""
    interval = check.get("interval")
    is_timed = isinstance(check.get("cron"), str) or (isinstance(interval, int) and not isinstance(interval, bool))
    return bool(check.get("standalone")) and check.get("publish") is not False and is_timed
