"""A bundle of facts for a report of a problem, without secrets and without the payload of any record."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output
from lockstep.cli.parser import Noun, Verb
from lockstep.errors import LockstepError
from lockstep.log.urls import without_secret

_OWNER_ONLY = 0o600


def _bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", metavar="FILE", default="lockstep-debug.tar.gz",
                        help="where to (lockstep-debug.tar.gz)")  # fmt: skip


DEBUG = Noun(
    name="debug",
    purpose="Facts for a report of a problem.",
    verbs=(
        Verb(
            name="bundle",
            purpose="Write versions, settings, streams, groups and models into one file: no records, no secrets.",
            run="lockstep.cli.debug:bundle",
            arguments=_bundle,
            examples=("lockstep debug bundle", "lockstep debug bundle -o report.tar.gz --bus kafka://127.0.0.1:9092"),
        ),
    ),
)


def bundle(options: argparse.Namespace, output: Output) -> None:
    """Write the file; what can't be found out is in it as an error."""
    from lockstep.cli.model_files import write_file
    from lockstep.console.bundle import bundle_of, bundle_of_program

    url = bus_url(options)
    try:
        with opened(url) as client:
            made = bundle_of(client, os.environ)
    except (LockstepError, OSError) as error:
        made = bundle_of_program(os.environ)
        made.parts["bus.json"] = {"bus": without_secret(url), "error": str(error)}
    write_file(Path(options.out), made.packed(), mode=_OWNER_ONLY)
    parts = sorted(made.parts)
    if output.json:
        output.json_line({"file": options.out, "parts": parts, "left_out": made.left_out})
        return
    output.line(f"Wrote {options.out}: {', '.join(parts)}.")
    for part, missing in made.left_out.items():
        output.warn(f"{part} lacks {missing}.")
