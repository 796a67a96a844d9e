"""Web servers of tests, on loopback."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Pages(ThreadingHTTPServer):
    """Answers each path with what `pages` has for it: status, headers and body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.posted: list[tuple[str, dict[str, str], bytes]] = []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def put(self, path: str, body: str | bytes, status: int = 200, **headers: str) -> None:
        self.pages[path] = status, headers, body.encode() if isinstance(body, str) else body

    def answer(self, path: str, _body: bytes) -> tuple[int, dict[str, str], bytes]:
        """To a POST; tests that want more set another one."""
        return self.pages.get(path, (404, {}, b""))

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        status, headers, body = self.server.pages.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.posted.append((self.path, dict(self.headers), body))
        status, headers, body = self.server.answer(self.path, body)
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Sockets:
    """A web socket server: what is put is sent to the one that is connected; `drop` ends the connection."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._links: asyncio.Queue = asyncio.Queue()
        self._ready = threading.Event()
        self.port = 0

    def __enter__(self):
        threading.Thread(target=self._run, daemon=True).start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self):
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self):
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/feed", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def _serve(self, request):
        from aiohttp import web

        self.headers.append(dict(request.headers))
        link = web.WebSocketResponse()
        await link.prepare(request)
        await self._links.put(link)
        async for _ in link:
            pass
        return link

    def send(self, *texts: str | bytes, drop: bool = False) -> None:
        """To whoever is connected, or connects next."""

        async def give():
            link = await self._links.get()
            for text in texts:
                await (link.send_str(text) if isinstance(text, str) else link.send_bytes(text))
            if drop:
                await link.close()
            else:
                await self._links.put(link)

        asyncio.run_coroutine_threadsafe(give(), self._loop).result(30)
