"""After a failed run: what failed beside real servers and processes is run once more, alone. All else has failed.

On a busy machine such a test may lack time. One that fails twice, or that needs no other process, is a fault.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
BESIDE_OTHERS = ("tests/acceptance/", "tests/servers/", "tests/integration/", "tests/streams/")


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not failed or not all(name.startswith(BESIDE_OTHERS) for name in failed):
        return 1
    print("Once more, alone, as they may have lacked time:", *failed, sep="\n  ", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", "--last-failed"])


if __name__ == "__main__":
    sys.exit(main())
