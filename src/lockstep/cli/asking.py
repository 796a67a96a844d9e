"""Asking before something is destroyed."""

from __future__ import annotations

import argparse
import sys

from lockstep.errors import UsageError


def confirm(options: argparse.Namespace, name: str, action: str) -> None:
    """Return if the user wants it: --yes, or the name typed at a terminal. UsageError if not; nothing has happened."""
    if options.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        reason = f"This would {action}. Nothing was changed: add --yes to do it, or --dry-run to see what it would do."
        raise UsageError(reason=reason)
    sys.stderr.write(f"This will {action}. Type the name {name} to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise UsageError(reason=f"Nothing was changed: what was typed is not {name!r}.")
