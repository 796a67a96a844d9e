"""`python -m lockstep`: the `lockstep` command."""

from __future__ import annotations

import sys

from lockstep.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
