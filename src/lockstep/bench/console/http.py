"""Connections of HTTP 1.1 that cost little: many viewers are played by one process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

LINE_MAX = 1 << 24


class Refused(Exception):
    """An answer that was not 200, or none."""


@dataclass(slots=True)
class Connected:
    """A connection that stays open between requests."""

    host: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, url: str) -> Connected:
        """Connect to the server of a URL."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=LINE_MAX)
        return cls(parts.netloc, reader, writer)

    async def ask(self, path: str) -> dict[bytes, bytes]:
        """Send a request and read the head of its answer; Refused unless it is 200."""
        self.writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nAccept: text/html,text/event-stream\r\n\r\n".encode()
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        if head[0].split(b" ")[1] != b"200":
            raise Refused(head[0].decode(errors="replace"))
        pairs = (line.partition(b":") for line in head[1:] if line)
        return {name.lower(): value.strip() for name, _, value in pairs}

    async def get(self, path: str) -> bytes:
        """The body of a page."""
        headers = await self.ask(path)
        return await self.reader.readexactly(int(headers[b"content-length"]))

    def close(self) -> None:
        """End it at once."""
        self.writer.transport.abort()
