"""Examples for the OpenAPI document; tests send them."""

from __future__ import annotations

from typing import Any

CLUSTER = {"[127.0.0.1]:8080": "Master", "[127.0.0.1]:8081": "Slave"}
TENANT: dict[str, Any] = {
    "tenant": "mail",
    "type": "HTTP",
    "props": {
        "url": "http://127.0.0.1:9000/fired",
        "headers": {"header1": "value1"},
        "secret": "whsec_c2VjcmV0LXRleHQ=",
    },
}
TENANT_MASKED: dict[str, Any] = {**TENANT, "props": {**TENANT["props"], "secret": "***"}}
TENANT_SHOWN: dict[str, Any] = {**TENANT_MASKED, "rate": None, "paused": False}
NO_TENANT = {"message": "tenant must not be null"}
EVENT: dict[str, Any] = {"id": "mail-7", "eventTime": "2027-01-01T00:00Z", "tenant": "mail", "payload": "hello"}
ACCEPTED: dict[str, Any] = {
    **EVENT, "mode": "UPSERT", "deliveryOption": "FULL_EVENT", "eventId": "6f7a4c1e-6f5b-4b0b-9b9b-0d1f2a3b4c5d",
    "triggeredAt": None, "eventStatus": "ACCEPTED", "error": None,
}  # fmt: skip
REJECTED: dict[str, Any] = {
    **ACCEPTED, "tenant": "male", "eventId": None, "eventStatus": "REJECTED",
    "error": {"code": 400, "message": "tenant not registered / unknown tenant: male"},
}  # fmt: skip
FOUND: dict[str, Any] = {**ACCEPTED, "eventStatus": "UN_PROCESSED"}
GENERATION = {"offset": "PT1H", "period": "PT2M", "numEvents": 10, "tenant": "mail"}
CRON: dict[str, Any] = {
    "id": "report", "expression": "*/5 * * * * ? *", "type": "QUARTZ", "tenant": "mail", "logGranularity": "MINUTES",
    "retention": 2, "retentionUnits": "MINUTES",
}  # fmt: skip
EVENT_PUT: dict[str, Any] = {"eventTime": "2027-01-01T00:00Z", "payload": {"mail": 7}}
EVENT_STORED: dict[str, Any] = {
    "tenant": "mail", "id": "mail-7", "eventId": "6f7a4c1e-6f5b-4b0b-9b9b-0d1f2a3b4c5d",
    "eventTime": "2027-01-01T00:00Z", "status": "WAITING", "payload": {"mail": 7}, "payloadForm": "json",
    "deliveryOption": "FULL_EVENT", "lapsed": False, "attempt": 0, "nextTryAt": "2027-01-01T00:00Z",
    "triggeredAt": None, "endedAt": None, "error": None,
}  # fmt: skip
PUT_ANSWER: dict[str, Any] = {
    "verdict": "ACCEPTED", "eventId": "6f7a4c1e-6f5b-4b0b-9b9b-0d1f2a3b4c5d", "eventTime": "2027-01-01T00:00Z",
    "triggeredAt": None, "error": None,
}  # fmt: skip
EVENT_ID = "6f7a4c1e-6f5b-4b0b-9b9b-0d1f2a3b4c5d"
REPLAYED = {"verdict": "UPDATED", "eventId": EVENT_ID, "eventTime": "2027-01-01T00:00Z"}
CANCELLED = {"won": "cancel", "eventId": EVENT_ID}
TOO_LATE = {"won": "fire", "triggeredAt": "2027-01-01T00:00:00.012Z", "eventId": EVENT_ID, "removed": False}
PAGE = {"events": [EVENT_STORED], "next": None}
CRON_PUT: dict[str, Any] = {"expression": "0 9 * * MON-FRI", "type": "UNIX", "tz": "Europe/Berlin"}
CRON_SHOWN: dict[str, Any] = {
    "tenant": "mail", "id": "report", "type": "UNIX", "expression": "0 9 * * MON-FRI",
    "description": "at 09:00 every day between Monday and Friday", "tz": "Europe/Berlin", "dst": "once",
    "misfire": "once", "grace": 60, "catchUp": 86400, "jitter": 0, "overlap": "allow", "paused": False, "payload": None,
    "payloadForm": "text",
    "logGranularity": None, "retention": 0, "retentionUnits": "DAYS", "lastUpdated": "2026-12-31T23:58:07.250Z",
    "lastExecutionTime": None,
}  # fmt: skip
CRON_NEXT = {"crons": [{"type": "UNIX", "next": ["2027-01-01T08:00Z", "2027-01-04T08:00Z"]}]}
CRON_CHECK = {"expression": "0 0/5 14,18 * * ?", "type": "QUARTZ", "from": "2027-01-01T00:00Z", "count": 2}
CRON_CHECKED = {
    "valid": True, "description": "every 5 minutes at 14 and 18 hours",
    "next": ["2027-01-01T14:00Z", "2027-01-01T14:05Z"],
}  # fmt: skip
BACKFILL = {"from": "2026-01-01T08:00Z", "to": "2026-01-01T09:00Z"}
RUN = {"cron": "mail/report/UNIX", "bucket": "2027-01-01T00:00Z", "executionTime": "2027-01-01T08:00Z", "event": FOUND}
TENANT_PUT: dict[str, Any] = {"type": "HTTP", "props": TENANT["props"], "rate": 50}
BUCKETS = {"buckets": [{"minute": "2027-01-01T00:00Z", "total": 3, "WAITING": 3}], "complete": True}
NODES = {"nodes": [{"node": "host-7", "host": "127.0.0.1", "port": 8080, "master": True, "shards": [0, 1],
                    "underWay": 0, "wall": "2027-01-01T00:00Z"}]}  # fmt: skip
SHARDS = {"shards": [{"shard": 0, "node": "host-7"}, {"shard": 1, "node": None}]}
ERROR = {"error": {"code": "EVENT_NOT_FOUND", "message": "Tenant 'mail' has no event 'mail-7'.", "advice": "..."}}
