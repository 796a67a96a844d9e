"""Opening the bus a command works on."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lockstep.cli.names import closest
from lockstep.errors import GroupNotFound, NotFound, StreamNotFound, UsageError

if TYPE_CHECKING:
    from lockstep.streams.client import Lockstep

BUS_DEFAULT = "lmdb:.lockstep"
BUS_VARIABLE = "LOCKSTEP_BUS"


def bus_url(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> str:
    """--bus, else the environment, else the profile, else a folder in the current one."""
    given: str | None = getattr(options, "bus", None)
    settings: Mapping[str, str] = getattr(options, "settings", {})
    return given or environ.get(BUS_VARIABLE) or settings.get("bus") or BUS_DEFAULT


@contextmanager
def opened(url: str, *, create: bool = False, lasting: bool = False) -> Iterator[Lockstep]:
    """The bus at a URL; a name that is not found there is answered with the one that was probably meant.

    `lasting`: what the command stores is meant to stay, so a bus that ends with the process is refused.
    """
    from lockstep.streams.client import connect

    with connect(url, create=create) as client:
        if lasting and client.promises.opened_by == "process":
            reason = f"The bus {client.url} is in the memory of this command, and would be gone when it ends."
            raise UsageError(reason=f"{reason} Use lmdb:FOLDER or the URL of a server.")
        try:
            yield client
        except StreamNotFound as error:
            _suggest(error, client.streams())
            raise
        except GroupNotFound as error:
            _suggest(error, client.groups.names())
            raise


def _suggest(error: NotFound, known: Iterable[str]) -> None:
    meant = closest(str(error.params["name"]), known)
    if meant is not None:
        error.add_note(f"Did you mean {meant!r}?")
