"""First contentful paint of every page beside a large world, in a real Chromium.

python benchmarks/console_paint.py [--size X] [--json]

Needs chromium and chromedriver. `lockstep bench console` measures the first byte without them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import lockstep
from lockstep.bench.console.pages import PAGES
from lockstep.bench.console.processes import memory_mb, serve
from lockstep.bench.console.table import ConsoleBench
from lockstep.bench.console.world import make_world
from lockstep.bench.scratch import scratch_folder
from lockstep.drill import measure

sys.path.append(str(Path(__file__).parent.parent / "tests" / "console"))

from browser import Browser, is_there  # type: ignore[import-not-found]

_PAINT = """(performance.getEntriesByName("first-contentful-paint")[0] || {}).startTime"""
_FIRST_BYTE = """performance.getEntriesByType("navigation")[0].responseStart"""
ROUNDS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description="First contentful paint of every page beside a large world.")
    parser.add_argument("--size", type=float, default=1.0, help="of the world (1: 10,000 streams, groups, hosts)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    if not is_there():
        print("Chromium or chromedriver is missing: apt-get install chromium chromium-driver", file=sys.stderr)
        return 1
    found = painted(ConsoleBench(size=given.size))
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for path, (paint_s, first_byte_s) in found["pages"].items():
            print(f"{paint_s:7.3f} s  first byte {first_byte_s:7.3f} s  {path}")
        print(f"slowest {found['slowest_s']:.3f} s; others' cores {found['others_cores']}; {found['server_mb']} MB")
    return 0


def painted(options: ConsoleBench) -> dict[str, Any]:
    """Seconds until the first contentful paint and the first byte of each page: the median of some loads."""
    with scratch_folder() as folder:
        url = f"lmdb:{folder / 'bus'}"
        with lockstep.connect(url) as client:
            make_world(client, url, folder, options.world, lambda text: print(text, file=sys.stderr, flush=True))
        others = measure.Others()
        with serve(url, folder) as server:
            browser = Browser(folder / "chromium")
            try:
                pages = {path: _load(browser, server.url, path) for path in PAGES}
            finally:
                browser.close()
            memory = round(memory_mb(server.pid))
    slowest = max(paint_s for paint_s, _ in pages.values())
    return {"machine": measure.machine(), "world": options.world.text, "pages": pages, "slowest_s": slowest,
            "others_cores": others.cores(), "server_mb": memory}  # fmt: skip


def _load(browser: Browser, url: str, path: str) -> tuple[float, float]:
    found = []
    for _ in range(ROUNDS):
        browser.open("about:blank")
        browser.open(f"{url}{path}")
        browser._until(lambda: browser.script(_PAINT) is not None, what=f"{path} to be painted")
        found.append((browser.script(_PAINT) / 1000, browser.script(_FIRST_BYTE) / 1000))
    found.sort()
    return found[len(found) // 2]


if __name__ == "__main__":
    sys.exit(main())
