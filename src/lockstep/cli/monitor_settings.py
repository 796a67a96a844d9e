"""`lockstep monitor validate`, and the settings of the other commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from lockstep.cli.output import Output, plural
from lockstep.errors import UsageError
from lockstep.monitor.settings.errors import SettingsInvalid, fault_line
from lockstep.monitor.settings.settings import Host, Settings, load, shown
from lockstep.monitor.settings.validation import CATEGORIES


def loaded(paths: Sequence[str], *, is_client: bool) -> Settings:
    """The settings at paths, with those of the environment."""
    return load([Path(path) for path in paths], os.environ, host=Host.here(), is_client=is_client)


def validate(options: argparse.Namespace, output: Output) -> int:
    """Say what is wrong with settings."""
    if not options.config:
        raise UsageError(reason="Name a folder or a file of settings with --config PATH.")
    try:
        settings = loaded(options.config, is_client=False)
    except SettingsInvalid as error:
        if not output.json:
            raise
        faults = [
            {"file": fault.file, "name": fault.name, "value": shown(fault), "sentence": fault.sentence,
             "line": fault_line(fault)} for fault in error.faults
        ]  # fmt: skip
        output.json_line({"valid": False, "faults": faults})
        return error.exit_code
    _tell(options, output, settings)
    return 0


def _tell(options: argparse.Namespace, output: Output, settings: Settings) -> None:
    from lockstep.monitor.settings.expressions import unreadable  # agents load this module, too, and have no filters

    warnings = unreadable(settings.document)
    counts = {category: len(settings[category]) for category in CATEGORIES}
    if options.shows:
        output.json_line(settings.redacted)
    elif output.json:
        told = [{"name": each.name, "value": shown(each), "sentence": each.sentence} for each in warnings]
        output.json_line(
            {"valid": True, "files": settings.files, "digest": settings.digest, "warnings": told, **counts}
        )
    else:
        listed = ", ".join(plural(count, category.removesuffix("s")) for category, count in counts.items() if count)
        output.facts({"valid": "yes", "files": len(settings.files), "holds": listed or "-", "digest": settings.digest})
        for each in warnings:
            output.warn(fault_line(each))
