"""Schemas of the answers of views and acts, for the OpenAPI document; tests hold them against what is answered.

They are written in short: after a name comes what it holds, `$` a text, `#` a number, `?` true or false, `[...]` rows
with these properties, `{...}` an object with these. Nothing after a name means that it can be anything. All but rows
may be null, where nothing is known.
"""

from __future__ import annotations

import re
from typing import Any

Schema = dict[str, Any]
_WORD = re.compile(r"(\w+)([$#?\[{]?)|([\]}])")
_KINDS = {"$": "string", "#": "number", "?": "boolean"}

VIEWS: dict[str, str] = {
    "/": (
        "problems[severity$ title$ reason$ link$ command$ area$ since_ms#] left_out# counts{critical# warning#} "
        "figures[label$ value$ link$ part$] trends[label$ unit$ values[] every_s# at_ms# link$]"
    ),
    "/streams": "streams[name$ records# shards# rate[] error] page{page# pages# size# total# all#}",
    "/streams/{stream}": (
        "name$ config{} bounds[shard first# next# records#] groups[group$ stream$ shard owner$ epoch# "
        "confirmed# next# end# lag# lag_s#] groups_left_out# promises{} rate[] rate_s# rate_every_s# rate_at_ms# "
        "letters$ settings[setting$ value default is_own?]"
    ),
    "/streams/{stream}/records": (
        "name$ records[offset# appended_ms# created_ms# key$ value$ form$ bytes# is_cut? headers[]] "
        "shard# shards# first# next# older newer"
    ),
    "/groups": "groups[name$ members# silent# streams[] lag# elects? lags[]] page{page# pages# size# total# all#}",
    "/groups/{group}": (
        "name$ members[member$ streams[] silent? heard$] streams[stream$ shard owner$ epoch# confirmed# next# "
        "end# lag# lag_s#] lag# lags[] lags_s# lags_every_s# lags_at_ms#"
    ),
    "/letters": "streams[name$ records# shards# rate[] error] page{page# pages# size# total# all#}",
    "/letters/{stream}": (
        "name$ records[offset# appended_ms# created_ms# key value$ form$ bytes# is_cut? headers[] from$ "
        "from_offset$ group reason$ attempts] shard# shards# first# next# older newer"
    ),
    "/settings": (
        "server{} started_ms# limits{} rates[of$ per_s# at_once#] left_out[] extras[extra$ gives$ missing[] command$] "
        "me{name$ role$ scope[] by$ token$ token_expires_ms# session_expires_ms#}"
    ),
    "/debug": "file$ parts[part$ holds$] limits{}",
    "/projects": (
        "projects[name$ error state$ active epoch# published# sequenced# takeovers# rate engines# lag_s "
        "lag_blocks problems[]] page{page# pages# size# total# all#}"
    ),
    "/projects/{project}": (
        "cluster$ project$ state$ active epoch# sequenced# published# events# snapshot_block# "
        "snapshot_age_s takeovers# counts_equal? engines[engine$ role$ said$ state$ epoch# incarnation$ "
        "host$ pid# http$ block# events# lag_blocks# lag_s# buffer_blocks# buffer_bytes# buffer_percent# "
        "buffer_peak_blocks# snapshot_block# snapshot_age_s report_age_s# takeovers# model$ counts_equal? "
        "election$ state_files# state_bytes# snapshots_bytes# trims?] problems[severity$ title$ reason$ "
        "link$ command$ area$ since_ms#] streams[stream$ records# bytes# trimmed_by$ is_trimmed?] ok? "
        "name$ rate# has_standby? leads[epoch# engine$ incarnation$ host$ at_ms# is_now? now$] "
        "leads_left_out#"
    ),
    "/projects/{project}/graph": (
        "name$ epoch# state$ model$ rate_s# limit{at$ sentence$ window} nodes[id$ label$ kind$ note$ "
        "state$ link$ rows# is_published? bad#] edges[from$ to$ rate# label$] sources[window$ waiting# "
        "rate#]"
    ),
    "/projects/{project}/windows": (
        "name$ windows[window$ kind$ schema$ link$ is_published? rows# in# out# bad{} in_rate# out_rate#] "
        "page{page# pages# size# total# all#}"
    ),
    "/projects/{project}/windows/{query}/{window}": (
        "name$ window$ kind$ schema$ link$ is_published? rows# in# out# bad{} in_rate# out_rate# block# "
        "fields[name$ type$ key?] parents[] input output$ connectors[] held{why command block# rows[] "
        "page{page# pages# size# total# all#}} bad_stream$ bad_records[]"
    ),
    "/schedules": (
        "schedulers[] scheduler$ events[tenant$ id$ cron status$ state$ scheduled_ms# fired_ms ended_ms "
        "late_s attempt# next_try_ms error] next from_ms to_ms"
    ),
    "/schedules/{tenant}/{id}": (
        "scheduler$ tenant$ id$ shard# node$ winner sentences[] event{tenant$ id$ cron status$ state$ "
        "scheduled_ms# fired_ms ended_ms late_s attempt# next_try_ms error event_id$ delivery$ lapsed? "
        "due_ms# payload$ payload_is_cut?} history[] scanned#"
    ),
    "/tenants": (
        "schedulers[] scheduler$ tenants[name$ type$ properties{} paused? rate stream$] page{page# pages# "
        "size# total# all#}"
    ),
    "/tenants/{tenant}": (
        "name$ type$ properties{} paused? rate# stream$ scheduler$ due# due_has_more? soon# soon_has_more?"
    ),
    "/nodes": (
        "schedulers[] scheduler$ nodes[node$ host$ port# is_master? shards[] under_way# clock_ms#] "
        "shards# unowned[] skew"
    ),
    "/crons": (
        "schedulers[] scheduler$ crons[tenant$ id$ type$ expression$ zone$ next_ms# last_ms paused? "
        "overlap$] page{page# pages# size# total# all#} is_complete?"
    ),
    "/crons/try": "expression$ type$ tz$ dst$ is_valid? reason description$ next[at_ms# local$] notes[]",
    "/crons/{tenant}/{id}": (
        "scheduler$ tenant$ id$ scanned# tenant_is_paused? node$ crons[tenant$ id$ type$ expression$ "
        "zone$ next_ms# last_ms paused? overlap$ description$ next[at_ms# local$] notes[] misfire$ "
        "grace_s# catch_up_s# jitter_s# dst$ running updated_ms# log payload$ ticks[] ticks_left_out# "
        "runs[]]"
    ),
    "/fleet": (
        "monitors[] monitor$ as_of_ms# stale counts{critical# unknown# warning# silenced#} groups[check$ "
        "critical# unknown# warning# silenced# hosts# severity$ since_ms# occurrences# output$ "
        "is_flapping?] groups_left_out# page{page# pages# size# total# all#} left_out# events[client$ "
        "check$ severity$ status# is_flapping? occurrences# since_ms# output$ runbook silences[]]"
    ),
    "/fleet/hosts": (
        "monitors[] monitor$ as_of_ms# stale page{page# pages# size# total# all#} hosts[name$ address$ "
        "version subscriptions[] heard_ms# is_watched? is_proxy? events# worst$ is_hidden?]"
    ),
    "/fleet/hosts/{host}": (
        "monitors[] monitor$ as_of_ms# stale name$ address$ version subscriptions[] heard_ms# is_watched? "
        "is_proxy? events[client$ check$ severity$ status# is_flapping? occurrences# since_ms# output$ "
        "runbook silences[]] worst$ is_hidden? facts{} results[check$ status# severity$ executed_ms# "
        "duration_s output$ history[]] results_left_out# history[at_ms# check$ severity$ action$ "
        "occurrences# output$ silenced? told[handler$ is_told? gate$]]"
    ),
    "/fleet/checks": (
        "monitors[] monitor$ as_of_ms# stale page{page# pages# size# total# all#} checks[name$ command$ "
        "interval_s# cron subscribers[] handlers[] is_standalone? critical# unknown# warning# silenced#]"
    ),
    "/fleet/checks/{check}": (
        "monitors[] monitor$ as_of_ms# stale name$ command$ interval_s# cron subscribers[] handlers[] "
        "is_standalone? critical# unknown# warning# silenced# definition{} requested_ms requested "
        "events[client$ check$ severity$ status# is_flapping? occurrences# since_ms# output$ runbook "
        "silences[]] events_left_out#"
    ),
    "/fleet/silences": (
        "monitors[] monitor$ as_of_ms# stale silences[id$ subscription$ check$ match reason$ creator "
        "begins_ms ends_ms until_resolved? is_acknowledgement? is_planned? when hides#] page{page# pages# "
        "size# total# all#}"
    ),
    "/fleet/silences/{id}": (
        "monitors[] monitor$ as_of_ms# stale id$ subscription$ check$ match reason$ creator begins_ms "
        "ends_ms until_resolved? is_acknowledgement? is_planned? when hides# events[]"
    ),
    "/fleet/why/{client}/{check}": (
        "monitors[] monitor$ as_of_ms# stale client$ check$ event{client$ check$ severity$ status# "
        "is_flapping? occurrences# since_ms# output$ runbook silences[]} result{check$ status# severity$ "
        "executed_ms# duration_s output$ history[]} verdicts[handler$ is_told? gates[gate$ passed? "
        "reason$]] decided_ms# history[at_ms# check$ severity$ action$ occurrences# output$ silenced? "
        "told[handler$ is_told? gate$]]"
    ),
    "/access": "tokens[id$ name$ role$ scope[] created_ms# expires_ms]",
    "/access/{id}": "id$ name$ role$ scope[] created_ms# expires_ms",
    "/audit": (
        "changes[id$ at_ms# who$ role$ credential$ from$ what$ path$ outcome$ server$ once$ more{}] page{page# "
        "pages# size# total# all#}"
    ),
}
ACTS: dict[str, str] = {
    "/streams/create": "name$ config{}",
    "/streams/{stream}/publish": "offsets[]",
    "/streams/{stream}/retention": "config{}",
    "/streams/{stream}/trim": "bounds[shard first# next# records#]",
    "/streams/{stream}/delete": "deleted$",
    "/groups/{group}/reset": "group$ positions{}",
    "/groups/{group}/delete": "deleted$",
    "/letters/{stream}/redrive": "sent#",
    "/schedules/{tenant}/{id}/cancel": "won$ event_id$ fired_ms#",
    "/schedules/{tenant}/{id}/replay": "replayed?",
    "/tenants/{tenant}/pause": "paused?",
    "/tenants/{tenant}/resume": "paused?",
    "/fleet/silences/{id}/end": "ended$",
    "/access/add": "id$ name$ message$ shown_once$",
    "/access/{id}/rotate": "id$ name$ message$ shown_once$",
    "/access/{id}/revoke": "revoked$",
}


def answer_of(method: str, path: str) -> Schema:
    """What a view gives, or an act that was carried out; of others that it is an object."""
    words = (VIEWS if method == "GET" else ACTS).get(path, "")
    properties = _properties(_WORD.finditer(words))
    return {"type": "object", "properties": properties, "required": list(properties)} if words else {"type": "object"}


def _properties(words: Any) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for word in words:
        name, kind, end = word.groups()
        if end:
            return found
        found[name] = _property(kind, words)
    return found


def _property(kind: str, words: Any) -> Schema:
    if kind in _KINDS:
        return {"type": [_KINDS[kind], "null"]}
    if not kind:
        return {}
    inner = {"properties": found} if (found := _properties(words)) else {}
    if kind == "{":
        return {"type": ["object", "null"], **inner}
    return {"type": ["array", "null"], **({"items": {"type": "object", **inner}} if inner else {})}


def _object(**properties: Schema) -> Schema:
    """An object that has all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT: Schema = {"type": "string"}
_STATUS = {"type": "string", "enum": ["ok", "away"]}
_PARTS: Schema = {"type": "array", "items": {"type": "object", "properties": _properties(
    _WORD.finditer("kind$ name$ role$ leader$ epoch# reason$"))}}  # fmt: skip
OWN: dict[str, Schema] = {
    "health": _object(status={"const": "ok"}),
    "ready": {**_object(status=_STATUS, role={"const": "console"}),
              "properties": {"status": _STATUS, "role": _TEXT, "epoch": {}, "parts": _PARTS}},
    "not_ready": _object(status=_STATUS, role={"const": "console"}, reason=_TEXT),
}  # fmt: skip
SCHEMAS: dict[str, Schema] = {
    "Error": _object(error=_object(code=_TEXT, message=_TEXT, advice=_TEXT)),
    "Message": _object(message=_TEXT),
    "SensuError": _object(error=_TEXT),
    "Preview": _object(dry_run={"const": True}, effect=_TEXT),
}
