"""Signatures of callbacks by the Standard Webhooks scheme, which receivers can check with that project's libraries."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from lockstep.errors import BadArgument

PREFIX = "whsec_"
ID_HEADER, TIME_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"


def signing_key(secret: object) -> bytes:
    """Return the key of a secret: base64 after `whsec_`, otherwise the text itself; BadArgument if it is neither."""
    if not isinstance(secret, str) or not secret:
        raise BadArgument(name="secret", value="***", reason="it must be text")
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise BadArgument(name="secret", value="***", reason=f"what follows {PREFIX} must be base64")
    return key


def signature_headers(key: bytes, event_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers that prove who sent a body, and when."""
    digest = hmac.new(key, f"{event_id}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return {
        ID_HEADER: event_id,
        TIME_HEADER: str(seconds),
        SIGNATURE_HEADER: f"v1,{base64.b64encode(digest).decode()}",
    }
