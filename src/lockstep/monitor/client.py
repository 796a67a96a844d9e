"""A client of a monitor's HTTP API, for programs and for the command line.

fleet = MonitorClient("http://127.0.0.1:4567")
for event in fleet.events():
    print(event["client"]["name"], event["check"]["name"], event["check"]["output"])
fleet.silence(subscription="client:web-1", check="disk", expire=3600, reason="new disk")
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from lockstep.errors import BadArgument, Conflict, Forbidden, LockstepError, NotFound, Unavailable, UsageError

DEFAULT_URL = "http://127.0.0.1:4567"
TIMEOUT_S = 15.0
_ANSWER_BYTES_MAX = 256 << 20


class MonitorUnreachable(Unavailable):
    """No server of a monitor answers."""

    code = "MONITOR_UNREACHABLE"
    template = "The monitor at {url} does not answer: {reason}."
    advice = "Start a server with 'lockstep monitor server --config DIR', or name another one with --url."


class MonitorRefused(Forbidden):
    """A server of a monitor does not take a request of this user."""

    code = "MONITOR_REFUSED"
    template = "The monitor at {url} refuses: {reason}"
    advice = ""


class NotInFleet(NotFound):
    """A client, check, event or silence that the fleet does not have."""

    code = "NOT_IN_FLEET"
    template = "{what}."
    advice = "'lockstep monitor events', 'clients', 'checks' and 'silence' list what there is."


class MonitorClient:
    """Asks one server of a monitor. `user` and `password` are those of its settings, where it has them.

    `token` is for a monitor that is asked through `lockstep serve`, at /apis/monitor/NAME.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadArgument(name="url", value=url, reason="it must be http://HOST:PORT or https://HOST:PORT")
        self._url, self._host, self._is_tls, self._timeout_s = url, parts.hostname, parts.scheme == "https", timeout_s
        self._port = parts.port or (443 if self._is_tls else 80)
        self._base = parts.path.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if user is not None:
            login = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        elif token:
            self._headers["Authorization"] = f"Bearer {token}"

    def events(self, client: str | None = None) -> list[dict[str, Any]]:
        """The open events, of the fleet or of a client."""
        found: list[dict[str, Any]] = self.get("events", *([client] if client else []))
        return found

    def event(self, client: str, check: str) -> dict[str, Any]:
        """An open event; NotFound if there is none."""
        found: dict[str, Any] = self.get("events", client, check, missing=_no_event(client, check))
        return found

    def clients(self) -> list[dict[str, Any]]:
        """All clients."""
        found: list[dict[str, Any]] = self.get("clients")
        return found

    def client(self, name: str) -> dict[str, Any]:
        """A client; NotFound if it is not registered."""
        found: dict[str, Any] = self.get("clients", name, missing=f"There is no client {name}")
        return found

    def delete_client(self, name: str, *, invalidate: bool = False) -> None:
        """Resolve the events of a client and forget it; `invalidate` has what it sends from then on ignored."""
        query = {"invalidate": "true"} if invalidate else None
        self.send("DELETE", "clients", name, query=query, missing=f"There is no client {name}")

    def results(self, client: str | None = None) -> list[dict[str, Any]]:
        """The last results, of the fleet or of a client."""
        found: list[dict[str, Any]] = self.get("results", *([client] if client else []))
        return found

    def result(self, client: str, check: str) -> dict[str, Any]:
        """The last result of a check; NotFound if there is none."""
        found: dict[str, Any] = self.get(
            "results", client, check, missing=f"There is no result of the check {check} on the client {client}"
        )
        return found

    def checks(self) -> list[dict[str, Any]]:
        """The checks that are published."""
        found: list[dict[str, Any]] = self.get("checks")
        return found

    def why(self, client: str, check: str) -> dict[str, Any]:
        """What each gate said of the last event of a check, handler by handler."""
        found: dict[str, Any] = self.get(
            "why", client, check, missing=f"No event of the check {check} on the client {client} is known"
        )
        return found

    def history(self, client: str | None = None, check: str | None = None, *, limit: int = 100) -> list[dict[str, Any]]:
        """The newest transitions first."""
        names = [name for name in (client, check) if name]
        found: list[dict[str, Any]] = self.get("history", *names, query={"limit": limit})
        return found

    def silences(self) -> list[dict[str, Any]]:
        """The silences."""
        found: list[dict[str, Any]] = self.get("silenced")
        return found

    def silence(self, **entry: Any) -> dict[str, Any]:
        """Silence a subscription, a check or both: subscription, check, expire, reason, creator, expire_on_resolve."""
        found: dict[str, Any] = self.send("POST", "silenced", body=entry)
        return found

    def end_silence(self, id: str) -> None:  # noqa: A002 - what it is called
        """End a silence; NotFound if there is none."""
        self.send("POST", "silenced", "clear", body={"id": id}, missing=f"There is no silence {id}")

    def acknowledge(self, client: str, check: str, *, by: str = "", reason: str = "") -> None:
        """Silence an event until it is resolved."""
        body = {"client": client, "check": check, "by": by, "reason": reason}
        self.send("POST", "ack", body=body, missing=_no_event(client, check))

    def resolve(self, client: str, check: str) -> None:
        """Resolve an event."""
        self.send("POST", "resolve", body={"client": client, "check": check}, missing=_no_event(client, check))

    def request(self, check: str, subscribers: list[str] | None = None, **more: str) -> None:
        """Have a check run now, by its subscribers or by these."""
        asked = {"check": check, **({"subscribers": subscribers} if subscribers else {}), **more}
        self.send("POST", "request", body=asked, missing=f"No check {check} is published")

    def send_result(self, name: str, output: str, status: int = 0, **more: Any) -> None:
        """Send a result; `source` says of which client."""
        self.send("POST", "results", body={"name": name, "output": output, "status": status, **more})

    def info(self) -> dict[str, Any]:
        """Version, transport and servers."""
        found: dict[str, Any] = self.get("info")
        return found

    def get(self, *path: str, query: dict[str, Any] | None = None, missing: str = "") -> Any:
        """What a route answers to GET."""
        return self.send("GET", *path, query=query, missing=missing)

    def send(
        self, method: str, *path: str, body: Any = None, query: dict[str, Any] | None = None, missing: str = ""
    ) -> Any:
        """What a route answers; an error of the tree for anything but 2xx. `missing` is what a 404 means."""
        route = "/".join(quote(part, safe="") for part in path)
        target = f"{self._base}/{route}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        status, answer = self._exchange(method, target, data)
        tree = _parsed(answer)
        if 200 <= status < 300:
            return tree
        reason = str(tree["error"]) if isinstance(tree, dict) and "error" in tree else f"HTTP {status}"
        raise self._error(status, reason, missing or f"The monitor has no {'/'.join(path)}")

    def _error(self, status: int, reason: str, missing: str) -> LockstepError:
        if status == 404:
            return NotInFleet(what=missing)
        if status in (400, 405, 422):
            return UsageError(reason=reason)
        if status == 409:
            return Conflict(reason=reason)
        if status in (401, 403):
            return MonitorRefused(url=self._url, reason=reason)
        return MonitorUnreachable(url=self._url, reason=reason)

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)

    def _exchange(self, method: str, target: str, data: bytes | None) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            headers = {**self._headers, **({"Content-Type": "application/json"} if data is not None else {})}
            connection.request(method, target, body=data, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise MonitorUnreachable(url=self._url, reason=reason) from None
        finally:
            connection.close()


def _parsed(answer: bytes) -> Any:
    try:
        return json.loads(answer) if answer else None
    except ValueError:
        return None


def _no_event(client: str, check: str) -> str:
    return f"There is no open event of the check {check} on the client {client}"
