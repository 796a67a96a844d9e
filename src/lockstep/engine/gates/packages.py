"""Clients of vendors, imported only where they are used."""

from __future__ import annotations

import importlib
from typing import Any

from lockstep.errors import ExtraMissing


def needed(module: str, extra: str) -> Any:
    """A module of a client library; if it is not installed, an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ExtraMissing(extra=extra, package=module.partition(".")[0]) from error
