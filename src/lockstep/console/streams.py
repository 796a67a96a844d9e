"""Streams, groups and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep.console import records
from lockstep.console.errors import StreamReserved
from lockstep.console.ledger import is_own
from lockstep.console.pages import count_text, noun
from lockstep.console.port import (
    PAGED,
    Act,
    Asked,
    Kind,
    Parameter,
    Pillar,
    Problem,
    Site,
    Tree,
    Trend,
    View,
    paged,
    sorted_by,
)
from lockstep.console.sampler import GroupFacts, Sampler, elects, lag_of
from lockstep.errors import BadArgument, LockstepError
from lockstep.log.config import StreamConfig
from lockstep.log.offsets import records_between
from lockstep.log.port import Log
from lockstep.server.access import Role
from lockstep.streams import views
from lockstep.streams.admin import StreamProgress
from lockstep.streams.deadletters import SUFFIX, redrive
from lockstep.streams.shards import split_log

GROUPS_MAX = 200
"""Groups that a stream's page looks at; of more it says that it does not."""
SHOWN = 50
"""How many groups and dead-letter streams the home page lists; the rest are counted in one sentence."""
PUBLISHED_MAX = 16 << 20
"""Bytes that one request publishes at most."""
VALUE = Parameter(
    name="value", label="Value", kind=Kind.LONG, required=True, characters_max=1 << 20, help="the value, as text"
)
KEY = Parameter(name="key", label="Key", help="the key, as text; none if empty", option="--key")
HEADERS = Parameter(name="headers", label="Headers", kind=Kind.LONG, characters_max=1 << 16, option="-H",
                    help="NAME=VALUE, each in a line of its own; none if empty")  # fmt: skip
SORT_STREAMS = Parameter(name="sort", label="Sort by", kind=Kind.CHOICE, choices=("name", "-name", "rate"),
                         default="name", help="rate: most a second first, what is not measured last")  # fmt: skip
SORT_GROUPS = Parameter(name="sort", label="Sort by", kind=Kind.CHOICE, choices=("name", "-name", "lag"),
                        default="name", help="lag: most first; what is not measured is last")  # fmt: skip
COUNT = Parameter(
    name="count",
    label="How many",
    kind=Kind.WHOLE,
    default=1,
    least=1,
    most=1000,
    help="copies of the record",
    option="--count",
)
BEFORE = Parameter(
    name="before", label="Before offset", kind=Kind.WHOLE, required=True, help="records below it are removed"
)
STREAM = Parameter(name="stream", label="Stream", required=True, help="the stream, or one shard of it as orders/3")
TO = Parameter(
    name="to", label="To", required=True, help="earliest, latest, an offset, a time as 2027-01-01T00:00Z, or 1h (ago)"
)
FORCE = Parameter(name="force", label="Even while a member is at work", kind=Kind.FLAG, default=False,
                  help="the member loses the stream", option="--force")  # fmt: skip
DAYS = Parameter(
    name="days", label="Days to keep", kind=Kind.WHOLE, default=7, least=1, most=36_500, help="retention by age"
)
SHARDS = Parameter(name="shards", label="Shards", kind=Kind.WHOLE, default=1, least=1, most=256, help="chosen by key")
NAME = Parameter(name="name", label="Name", required=True, characters_max=128, help="letters, digits, dots, dashes")
LIMIT = Parameter(
    name="limit", label="At most", kind=Kind.WHOLE, default=100, least=1, most=10_000, help="letters to send back"
)


class StreamViews:
    """What the console shows of streams and groups, and changes."""

    def __init__(self, site: Site, sampler: Sampler) -> None:
        self._site, self._client, self._sampler = site, site.client, sampler

    def pillar(self) -> Pillar:
        """All of it."""
        return Pillar(
            "streams", "Streams", self._views(), self._acts(), self.problems, self.figures, trends=self.trends
        )

    def _views(self) -> list[View]:
        return [
            View(path="/streams", title="Streams", summary="Streams with their records, sizes and rates",
                 load=self.streams, template="streams.html", parameters=(*PAGED, SORT_STREAMS),
                 cli="lockstep stream ls"),
            View(path="/streams/{stream}", title="Stream", summary="One stream: settings, shards, groups, rate",
                 load=self.stream, template="stream.html", cli="lockstep stream show {stream}"),
            View(path="/streams/{stream}/records", title="Records", summary="Records of a stream",
                 load=self.records, template="records.html", parameters=records.PARAMETERS,
                 cli="lockstep stream tail {stream} -n {count} --exit"),
            View(path="/groups", title="Groups", summary="Groups with their members, streams and lag",
                 load=self.groups, template="groups.html", parameters=(*PAGED, SORT_GROUPS), cli="lockstep group ls"),
            View(path="/groups/{group}", title="Group", summary="One group: members, owners, positions and lag",
                 load=self.group, template="group.html", cli="lockstep group show {group}"),
            View(path="/letters", title="Dead letters", summary="Streams of dead letters", load=self.letter_streams,
                 template="letters.html", parameters=PAGED, cli="lockstep dlq ls"),
            View(path="/letters/{stream}", title="Dead letters of a stream", load=self.letters,
                 summary="Dead letters and why they are there", template="letter.html", parameters=records.PARAMETERS,
                 cli="lockstep dlq ls {stream}"),
        ]  # fmt: skip

    def _acts(self) -> list[Act]:
        return [
            Act(path="/streams/create", title="Create a stream", summary="Make a stream", fields=(NAME, DAYS, SHARDS),
                run=self.create, preview=self._would_create,
                cli="lockstep stream create {name} --retain-age {days}d --shards {shards}", done="/streams"),
            Act(path="/streams/{stream}/publish", title="Publish", summary="Publish a record", run=self.publish,
                preview=self._would_publish, fields=(VALUE, KEY, HEADERS, COUNT),
                cli="lockstep stream publish {stream} {value}",
                done="/streams/{stream}/records"),
            Act(path="/streams/{stream}/retention", title="Change retention",
                summary="Change how long records are kept",
                run=self.alter, preview=self._would_alter, fields=(DAYS,), confirm="stream",
                cli="lockstep stream alter {stream} --retain-age {days}d", done="/streams/{stream}"),
            Act(path="/streams/{stream}/trim", title="Trim", summary="Remove old records, for good", run=self.trim,
                preview=self._would_trim, fields=(BEFORE,), role=Role.ADMIN, confirm="stream",
                cli="lockstep stream trim {stream} --before {before}", done="/streams/{stream}"),
            Act(path="/streams/{stream}/delete", title="Delete", summary="Remove a stream and all it holds",
                run=self.delete, preview=self._would_delete, role=Role.ADMIN, confirm="stream",
                cli="lockstep stream delete {stream}", done="/streams"),
            Act(path="/groups/{group}/reset", title="Reset offsets", summary="Have a group read from another position",
                run=self.reset, preview=self._would_reset, fields=(STREAM, TO, FORCE), confirm="group",
                cli="lockstep group reset {group} {stream} --to {to}", done="/groups/{group}"),
            Act(path="/groups/{group}/delete", title="Delete", summary="Forget a group and its positions",
                run=self.delete_group, preview=self._would_delete_group, fields=(FORCE,), role=Role.ADMIN,
                confirm="group", cli="lockstep group delete {group}", done="/groups"),
            Act(path="/letters/{stream}/redrive", title="Send back",
                summary="Publish dead letters to where they came from",
                run=self.redrive, preview=self._would_redrive, fields=(LIMIT,), confirm="stream",
                cli="lockstep dlq redrive {stream} --limit {limit}", done="/letters/{stream}"),
        ]  # fmt: skip

    # streams

    def streams(self, asked: Asked) -> Tree:
        """One page of streams; only those of the page are opened."""
        shown, page = paged(self._ordered(asked, self._site.names.streams(), self._sampler.last_rate), asked)
        return {"streams": [self._stream_row(name) for name in shown], "page": page}

    def _ordered(self, asked: Asked, names: Sequence[str], value: Callable[[str], float | None]) -> Sequence[str]:
        """Names in the order that is asked for; what was not measured yet comes last."""
        sort = asked.values["sort"]
        if sort == "name":
            return names
        if not sort.endswith("name"):
            self._sampler.look()
        return sorted_by(names, sort, value)

    def _stream_row(self, name: str) -> dict[str, Any]:
        try:
            found = views.stream_row(self._client, name, None)
        except LockstepError as error:  # deleted meanwhile, or not readable: the list goes on
            return {"name": name, "records": None, "shards": None, "rate": [], "error": error.code}
        return {"name": name, "records": found["records"], "shards": found["shards"],
                "rate": self._sampler.rates(name)[-30:], "error": None}  # fmt: skip

    def stream(self, asked: Asked) -> Tree:
        """Settings, shards, and who reads it; not asked of more groups than a page may."""
        name = asked.names["stream"]
        config = self._client.config(name).to_dict()
        self._sampler.look()
        groups = self._sampler.readers(name)
        known, unknown = groups[:GROUPS_MAX], self._sampler.not_looked_at()
        readers = [
            {"group": group, **views.progress_row(progress)}
            for group in known
            for progress in self._described(group)
            if name in (progress.stream, split_log(progress.stream)[0])
        ]
        return {
            "name": name, "config": config, "settings": _settings(config),
            "bounds": views.bounds(self._client, name), "groups": readers,
            "groups_left_out": len(groups) - len(known) + unknown, "promises": views.promises(self._client),
            "rate": self._sampler.rates(name), "rate_s": self._sampler.seconds,
            "rate_every_s": self._sampler.every_s, "rate_at_ms": self._sampler.at_ms,
            "letters": f"{name}{SUFFIX}" if f"{name}{SUFFIX}" in self._site.names.present() else None,
        }  # fmt: skip

    def _described(self, group: str) -> Any:
        try:
            return self._client.groups.describe(group).streams
        except LockstepError:  # deleted meanwhile
            return ()

    def records(self, asked: Asked) -> Tree:
        """Records from where the query says."""
        name = asked.names["stream"]
        return {"name": name, **records.read(self._client, name, asked)}

    def create(self, asked: Asked) -> Tree:
        """Make a stream."""
        name = asked.values["name"]
        config = StreamConfig(retain_age_s=asked.values["days"] * 86_400.0, shards=asked.values["shards"])
        made = self._client.create(name, config)
        self._site.names.forget()
        return {"name": name, "config": made.to_dict()}

    def _would_create(self, asked: Asked) -> Tree:
        days, shards = asked.values["days"], asked.values["shards"]
        _check_not_own(asked.values["name"])
        kept = f"{count_text(shards, 'shard')} and keeps records for {count_text(days, 'day')}"
        return {"effect": f"Stream {asked.values['name']} is made with {kept}."}

    def publish(self, asked: Asked) -> Tree:
        """Publish a record, or some copies of it."""
        key = asked.values["key"].encode() or None
        value, count = asked.values["value"].encode(), asked.values["count"]
        headers = _headers(asked.values["headers"])
        _check_room(value, count)
        with self._client.publisher(asked.names["stream"], create=False) as publisher:
            receipts = [publisher.publish(value, key=key, headers=headers) for _ in range(count)]
            offsets = [receipt.result(10.0) for receipt in receipts]
        return {"offsets": offsets}

    def _would_publish(self, asked: Asked) -> Tree:
        _check_not_own(asked.names["stream"])
        size = len(asked.values["value"].encode())
        _check_room(asked.values["value"].encode(), asked.values["count"])
        self._client.config(asked.names["stream"])
        count, headers = asked.values["count"], _headers(asked.values["headers"])
        many = f"{count_text(count, 'record')} of {count_text(size, 'byte')} {noun(count, 'is', 'are')}"
        rows = [{"key": asked.values["key"] or None, **{f"header {name}": value.decode() for name, value in headers}}]
        return {"effect": f"{many} appended to {asked.names['stream']}.", "rows": rows}

    def alter(self, asked: Asked) -> Tree:
        """Change how many days records are kept."""
        config = self._client.alter(asked.names["stream"], retain_age_s=asked.values["days"] * 86_400.0)
        return {"config": config.to_dict()}

    def _would_alter(self, asked: Asked) -> Tree:
        _check_not_own(asked.names["stream"])
        now = self._client.config(asked.names["stream"]).retain_age_s
        after = asked.values["days"] * 86_400.0
        rows = [{"setting": "retain_age_s", "before": now, "after": after}]
        return {"effect": "Records that are older go with the next append.", "rows": rows}

    def trim(self, asked: Asked) -> Tree:
        """Remove records below an offset."""
        self._client.trim(asked.names["stream"], asked.values["before"])
        return {"bounds": views.bounds(self._client, asked.names["stream"])}

    def _would_trim(self, asked: Asked) -> Tree:
        before = asked.values["before"]
        _check_not_own(asked.names["stream"])
        rows = [
            {
                "shard": one["shard"],
                "first before": one["first"],
                "first after": max(one["first"], min(before, one["next"])),
            }
            for one in views.bounds(self._client, asked.names["stream"])
        ]
        removed = sum(row["first after"] - row["first before"] for row in rows)
        return {"effect": f"About {removed:,} records are removed for good.", "rows": rows}

    def delete(self, asked: Asked) -> Tree:
        """Remove a stream."""
        self._client.delete(asked.names["stream"])
        self._site.names.forget()
        return {"deleted": asked.names["stream"]}

    def _would_delete(self, asked: Asked) -> Tree:
        _check_not_own(asked.names["stream"])
        held = sum(one["records"] for one in views.bounds(self._client, asked.names["stream"]))
        return {"effect": f"Stream {asked.names['stream']} and its {held:,} records are removed for good."}

    # groups

    def groups(self, asked: Asked) -> Tree:
        """One page of groups; only the logs of those are read."""
        shown, page = paged(self._ordered(asked, self._site.names.groups(), self._sampler.last_lag), asked)
        rows = []
        for name in shown:
            try:
                found = self._sampler.groups.describe(name).view
                row = {**views.group_row(found), "lag": lag_of(found), "elects": elects(found)}
            except LockstepError as error:
                row = {"name": name, "members": None, "silent": 0, "streams": [], "lag": None, "elects": False,
                       "error": error.code}  # fmt: skip
            rows.append({**row, "lags": self._sampler.lags(name)[-30:]})
        return {"groups": rows, "page": page}

    def group(self, asked: Asked) -> Tree:
        """Members, owners, positions and the lag of the last minutes."""
        name = asked.names["group"]
        presence = self._sampler.groups.describe(name)
        found = views.group_detail(presence.view)
        members = [{**row, "heard": presence.word(row["member"])} for row in found["members"]]
        return {**found, "members": members, "lag": lag_of(presence.view),
                "lags": self._sampler.lags(name), "lags_s": self._sampler.seconds,
                "lags_every_s": self._sampler.every_s, "lags_at_ms": self._sampler.at_ms}  # fmt: skip

    def reset(self, asked: Asked) -> Tree:
        """Move a group."""
        group, stream = asked.names["group"], asked.values["stream"]
        moved, to = {}, _target(asked.values["to"], self._site.now_ms)
        for log in self._client.logs(stream):
            moved[log.name] = self._client.groups.reset(group, log.name, to, force=asked.values["force"])
        return {"group": group, "positions": moved}

    def _would_reset(self, asked: Asked) -> Tree:
        group, stream = asked.names["group"], asked.values["stream"]
        now = {progress.stream: progress for progress in self._client.groups.describe(group).streams}
        to = _target(asked.values["to"], self._site.now_ms)
        rows = [_change(now.get(log.name), log, self._client.groups.target(log.name, to))
                for log in self._client.logs(stream)]  # fmt: skip
        again = sum(max(0, row["lag after"] - (row["lag before"] or 0)) for row in rows)
        passed = sum(max(0, (row["lag before"] or 0) - row["lag after"]) for row in rows)
        said = [f"Group {group} goes on from there: {again:,} records more are read, {passed:,} are passed by."]
        others = sorted({progress.stream for progress in now.values()} - {row["stream"] for row in rows})
        if others:
            said.append(f"Its positions on {', '.join(others[:5])} stay.")
        return {"effect": " ".join(said), "rows": rows}

    def delete_group(self, asked: Asked) -> Tree:
        """Forget a group."""
        self._client.groups.delete(asked.names["group"], force=asked.values["force"])
        self._site.names.forget()
        return {"deleted": asked.names["group"]}

    def _would_delete_group(self, asked: Asked) -> Tree:
        row = views.group_row(self._client.groups.describe(asked.names["group"]))
        on = ", ".join(row["streams"]) or "no stream"
        return {"effect": f"Group {row['name']} with {row['members']} members forgets its positions on {on}."}

    # dead letters

    def letter_streams(self, asked: Asked) -> Tree:
        """Streams with dead letters."""
        shown, page = paged(self._site.names.letters(), asked)
        return {"streams": [self._stream_row(name) for name in shown], "page": page}

    def letters(self, asked: Asked) -> Tree:
        """Letters with where they came from and why."""
        name = asked.names["stream"]
        found = records.read(self._client, name, asked)
        for row in found["records"]:
            facts = dict(row["headers"])
            row["from"] = facts.get("dlq-stream")
            row["from_offset"] = facts.get("dlq-offset")
            row["group"], row["reason"] = facts.get("dlq-group"), facts.get("dlq-reason")
            row["attempts"] = facts.get("dlq-attempts")
        return {"name": name, **found}

    def redrive(self, asked: Asked) -> Tree:
        """Send letters back."""
        return {"sent": redrive(self._client, asked.names["stream"], limit=asked.values["limit"])}

    def _would_redrive(self, asked: Asked) -> Tree:
        _check_not_own(asked.names["stream"])
        held = sum(one["records"] for one in views.bounds(self._client, asked.names["stream"]))
        count = min(held, asked.values["limit"])
        return {"effect": f"Up to {count:,} letters that were not sent back yet are published to where they came from."}

    # the home page

    def figures(self) -> list[tuple[str, str, str]]:
        """Counts of names: nothing is opened."""
        streams, groups = self._site.names.streams(), self._site.names.groups()
        return [
            (noun(len(streams), "stream"), f"{len(streams):,}", "/streams"),
            (noun(len(groups), "group"), f"{len(groups):,}", "/groups"),
        ]

    def trends(self) -> list[Trend]:
        """What was appended, and what waits for groups, over the last minutes."""
        sampler = self._sampler
        rates, lags = sampler.total_rates(), sampler.total_lags()
        return [
            Trend("Appended to all streams", "records/s", rates, sampler.every_s, sampler.at_ms, "/streams"),
            Trend("Lag of all groups", "records", lags, sampler.every_s, sampler.at_ms, "/groups"),
        ]

    def problems(self) -> list[Problem]:
        """Groups with silent members or without anybody while records wait, and dead letters.

        As the last rounds of the sampler saw them: nothing is read for it.
        """
        self._sampler.look()
        groups = sorted(self._sampler.wrong_groups(), key=lambda facts: (not facts.unheard, -facts.lag, facts.name))
        letters = sorted(self._sampler.letters().items(), key=lambda pair: (-pair[1], pair[0]))
        found = [_group_problem(facts) for facts in groups[:SHOWN]]
        if len(groups) > SHOWN:
            more = len(groups) - SHOWN
            title = f"{count_text(more, 'more group')} {noun(more, 'has', 'have')} no member, or silent ones"
            found.append(Problem(severity="warning", title=title, reason="The worst are told one by one.",
                                 link="/groups?sort=lag", command="lockstep group ls", area="groups"))  # fmt: skip
        found += [_letter_problem(stream, held) for stream, held in letters[:SHOWN]]
        if len(letters) > SHOWN:
            more = len(letters) - SHOWN
            title = f"{count_text(more, 'more stream')} {noun(more, 'holds', 'hold')} dead letters"
            found.append(Problem(severity="warning", title=title, reason="The fullest are told one by one.",
                                 link="/letters", command="lockstep dlq ls", area="letters"))  # fmt: skip
        return found


def _group_problem(facts: GroupFacts) -> Problem:
    link, command = f"/groups/{facts.name}", f"lockstep group show {facts.name}"
    unheard = facts.unheard
    if not unheard:
        return Problem(severity="warning", title=f"Group {facts.name} has no member", link=link, command=command,
                       reason=f"{facts.lag:,} records wait, and nobody reads them.", area="groups")  # fmt: skip
    title, silent = f"Group {facts.name}: {len(unheard)} of {facts.members} members are silent", ", ".join(unheard[:3])
    reason = f"{silent} did not report within the lease: killed or paused."
    if not facts.silent:
        reason = f"{silent} did not report lately, by the time stamps of the bus; this server listens to be sure."
    return Problem(severity="warning", title=title, reason=reason, link=link, command=command, area="groups")


def _letter_problem(stream: str, held: int) -> Problem:
    reason = "A handler gave up on it." if held == 1 else "A handler gave up on them."
    return Problem(severity="warning", title=f"{count_text(held, 'dead letter')} in {stream}", reason=reason,
                   link=f"/letters/{stream}", command=f"lockstep dlq ls {stream}", area="letters")  # fmt: skip


def _check_room(value: bytes, count: int) -> None:
    """BadArgument for more than one request may publish."""
    if len(value) * count > PUBLISHED_MAX:
        reason = f"{count:,} copies of {len(value):,} bytes are more than {PUBLISHED_MAX:,} bytes"
        raise BadArgument(name="count", value=count, reason=reason)


def _headers(text: str) -> list[tuple[str, bytes]]:
    """The headers of a record; BadArgument for a line that is none."""
    found = []
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and not (name.strip() and equals):
            raise BadArgument(name="headers", value=line[:80], reason="each line must be NAME=VALUE")
        if line.strip():
            found.append((name.strip(), value.encode()))
    return found


def _settings(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each setting beside its default."""
    defaults = StreamConfig().to_dict()
    return [{"setting": name, "value": value, "default": defaults.get(name), "is_own": value != defaults.get(name)}
            for name, value in config.items()]  # fmt: skip


def _target(text: str, now_ms: int) -> str | int:
    """A position as groups take it; BadArgument for what is none."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        return f"time:{records.time_ns(text, now_ms, 'to')}"
    except BadArgument:
        reason = "it must be earliest, latest, an offset, a time as 2027-01-01T00:00Z, or 1h (ago)"
        raise BadArgument(name="to", value=text, reason=reason) from None


def _change(progress: StreamProgress | None, log: Log, after: int) -> dict[str, Any]:
    """A row of the preview of a reset."""
    bounds = log.bounds()
    return {
        "stream": log.name, "next before": None if progress is None else progress.next, "next after": after,
        "lag before": None if progress is None else progress.lag, "lag after": records_between(log, after, bounds.next),
    }  # fmt: skip


def _check_not_own(stream: str) -> None:
    """Changing the server's own records could make a user an admin, or remove entries from the audit log."""
    if is_own(stream):
        raise StreamReserved(stream=stream)
