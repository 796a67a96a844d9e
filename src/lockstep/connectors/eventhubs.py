"""Azure Event Hubs are read and written as Kafka, which they speak on port 9093. Pure.

A connection string is Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY;EntityPath=HUB. It is the
password of the client, and its name $ConnectionString, as Microsoft describes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from lockstep.connectors.properties import EVENTHUBS, KAFKA, Properties

_PORT, _EMULATOR_PORT = 9093, 9092
_NAMES = {
    "eventhubspartition": "kafkapartition",
    "eventhubsformat": "kafkatype",
    "eventhubsinitialoffset": "kafkainitialoffset",
}


def as_kafka(properties: Properties, environ: Mapping[str, str]) -> Properties:
    """The properties of a connector, those of Event Hubs under the names that Kafka's have."""
    if properties.kind != EVENTHUBS:
        return properties
    properties = _connected(properties, environ)
    parts = _parts(properties)
    hub = properties.text("eventhubspath") or parts.get("entitypath", "")
    if not hub:
        raise properties.refused(reason="it names no hub", remedy="Give it the property eventhubspath.")
    values = {_NAMES.get(name, name): text for name, text in properties.values.items()}
    if not properties.publishes:
        values.setdefault("kafkapartition", "-1")
    endpoint = urlsplit(parts["endpoint"])
    is_emulator = parts.get("usedevelopmentemulator", "").lower() == "true"
    port = (endpoint.port or _EMULATOR_PORT) if is_emulator else _PORT
    values |= {"kafkahostport": f"{endpoint.hostname}:{port}", "kafkatopic": hub}
    return Properties(properties.connector, KAFKA, properties.direction, values, properties.ignored)


def login(properties: Properties) -> Mapping[str, str]:
    """The settings of the client with which a hub lets it in; none for a topic of Kafka."""
    text = properties.text("eventhubsconnectionstring")
    if not text:
        return {}
    is_emulator = "usedevelopmentemulator=true" in text.lower()
    return {
        "security.protocol": "SASL_PLAINTEXT" if is_emulator else "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": text,
    }


def variable_of(hub: str) -> str:
    """The environment variable that has the connection string of a hub, so that a model need not."""
    return f"LOCKSTEP_EVENTHUBS_{re.sub(r'[^A-Z0-9]', '_', hub.upper())}"


def _connected(properties: Properties, environ: Mapping[str, str]) -> Properties:
    known = environ.get(variable_of(properties.text("eventhubspath")))
    if known is None or not properties.text("eventhubspath"):
        return properties
    return replace(properties, values={**properties.values, "eventhubsconnectionstring": known})


def _parts(properties: Properties) -> dict[str, str]:
    text = properties.text("eventhubsconnectionstring")
    pairs = (part.partition("=") for part in text.split(";"))
    found = {name.strip().lower(): value.strip() for name, sign, value in pairs if sign}
    if urlsplit(found.get("endpoint", "")).hostname is None or not found["endpoint"].lower().startswith("sb://"):
        reason = "its eventhubsconnectionstring has no endpoint"
        remedy = "Copy it from the portal: Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY."
        if hub := properties.text("eventhubspath"):
            remedy += f" It may stand in the environment variable {variable_of(hub)} instead."
        raise properties.refused(reason=reason, remedy=remedy)
    return found
