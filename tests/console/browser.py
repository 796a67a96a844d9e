"""A real Chromium, driven by chromedriver over its HTTP protocol (W3C WebDriver)."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"ctrl": "\ue009", "enter": "\ue007", "escape": "\ue00c", "tab": "\ue004", "up": "\ue013", "down": "\ue015"}


def is_there() -> bool:
    return shutil.which("chromedriver") is not None and shutil.which("chromium") is not None


class Browser:
    """One session; close it."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={self._port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options = {"args": [*ARGUMENTS, f"--user-data-dir={folder}"], "binary": shutil.which("chromium")}
        self._until(self._answers)
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
        self._session = f"/session/{made['sessionId']}"

    def close(self) -> None:
        self._ask("DELETE", self._session)
        self._driver.terminate()
        self._driver.wait(10)

    def open(self, url: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": url})

    def script(self, text: str) -> Any:
        return self._ask("POST", f"{self._session}/execute/sync", {"script": f"return {text}", "args": []})

    def text(self, css: str = "body") -> str:
        return str(self.script(f"document.querySelector({json.dumps(css)}).innerText"))

    def click(self, css: str) -> None:
        self._ask("POST", f"{self._session}/element/{self._find(css)}/click", {})

    def write(self, css: str, text: str) -> None:
        self._ask("POST", f"{self._session}/element/{self._find(css)}/value", {"text": text})

    def press(self, *keys: str) -> None:
        down = [{"type": "keyDown", "value": KEYS.get(key, key)} for key in keys]
        up = [{"type": "keyUp", "value": KEYS.get(key, key)} for key in reversed(keys)]
        self._ask("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "k", "actions": down + up}]})

    def see(self, text: str, seconds: float = 20.0) -> None:
        """Wait until the page shows a text."""
        self._until(lambda: text in self.text(), seconds, f"{text!r} to be shown")

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))

    def resize(self, width: int, height: int) -> None:
        """The size of the page, in CSS pixels; a phone has a width of about 390."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)

    def prefer(self, scheme: str) -> None:
        """Light or dark, as the system would say it."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def whole_picture(self, width: int, height_max: int) -> bytes:
        """The page from its top, at most so high, as PNG."""
        height = min(height_max, int(self.script("document.documentElement.scrollHeight")))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self.devtools("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def settle(self) -> None:
        """Wait until a page is drawn, and is live if it follows changes."""
        self._until(lambda: self.script("document.readyState") == "complete", what="the page")
        is_heard = "!document.body.dataset.live || document.querySelector('#live').dataset.heard === 'yes'"
        self._until(lambda: self.script(is_heard), what="the first message of a live page")

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self._ask("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _find(self, css: str) -> str:
        return str(self._ask("POST", f"{self._session}/element", {"using": "css selector", "value": css})[_ELEMENT])

    def _answers(self) -> bool:
        try:
            return bool(self._ask("GET", "/status")["ready"])
        except OSError:
            return False

    def _until(self, is_so: Any, seconds: float = 20.0, what: str = "chromedriver") -> None:
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, f"waited {seconds} s for {what}: {self.text()[:2000]}"
            time.sleep(0.05)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(answer["message"])
        return answer
