"""The bus that a command works on: options, environment, profiles, and the names of streams."""

from __future__ import annotations

import argparse
import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.output import Output
from lockstep.errors import (
    BadConfig,
    GroupNotFound,
    NotFound,
    ProfileNotFound,
    StreamNotFound,
    UsageError,
    from_os_error,
)
from lockstep.log.urls import password_variable, split_url, without_secret
from lockstep.streams.shards import shard_name

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


VARIABLE = "LOCKSTEP_PROFILE"
SETTINGS = ("bus", "cluster")
_PATHS = ("password_file", "ca", "cert", "key", "replica", "async_replica")
"""Options of a bus that name files."""


def config_file(environ: Mapping[str, str]) -> Path:
    """XDG_CONFIG_HOME/lockstep/config.toml, unless that is relative; else ~/.config/lockstep/config.toml."""
    base = Path(environ.get("XDG_CONFIG_HOME") or "")
    if not base.is_absolute():
        base = Path(environ.get("HOME") or Path.home()).absolute() / ".config"
    return base / "lockstep" / "config.toml"


def chosen(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of the profile that is chosen; none if there is none. ProfileNotFound if it does not exist."""
    name = getattr(options, "profile", None) or environ.get(VARIABLE)
    return {} if not name else _settings(name, config_file(environ))


def warn_if_overridden(options: argparse.Namespace, environ: Mapping[str, str], output: Output) -> None:
    """Say that the bus of the profile named on the command line is not used, because LOCKSTEP_BUS goes first."""
    named, wanted, used = getattr(options, "profile", None), options.settings.get("bus"), environ.get(BUS_VARIABLE)
    if named and wanted and used and used != wanted and not getattr(options, "bus", None):
        output.warn(
            f"LOCKSTEP_BUS is set, and goes before the bus of profile {named!r}. Unset it to use the profile's."
        )


def _settings(name: str, path: Path) -> dict[str, str]:
    profiles = _profiles(path)
    if name not in profiles:
        raise _unknown(name, path, sorted(profiles))
    found = profiles[name]
    if not isinstance(found, dict):
        raise BadConfig(field=f"profiles.{name}", value=found, reason=f"in {path}, write a table [profiles.{name}]")
    for setting, value in found.items():
        _check(name, setting, value, path)
    return found


def _profiles(path: Path) -> Mapping[str, Any]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(reason=f"{path} is not valid TOML: {error}.") from error
    profiles = tree.get("profiles", {})
    if not isinstance(profiles, dict):
        raise BadConfig(field="profiles", value=profiles, reason=f"in {path}, write tables [profiles.NAME]")
    return profiles


def _unknown(name: str, path: Path, known: list[str]) -> ProfileNotFound:
    error = ProfileNotFound(name=name, path=path, known=", ".join(known) or "none")
    if (meant := closest(name, known)) is not None:
        error.add_note(f"Did you mean {meant!r}?")
    return error


def _check(profile: str, setting: str, value: object, path: Path) -> None:
    field = f"profiles.{profile}.{setting}"
    if setting not in SETTINGS:
        known = f"there is no such setting; there are {', '.join(SETTINGS)} (in {path})"
        raise BadConfig(field=field, value=value, reason=known)
    if not isinstance(value, str) or not value:
        raise BadConfig(field=field, value=value, reason=f"it must be a text that is not empty (in {path})")
    if setting == "bus":
        _check_bus(field, value, path)


def _check_bus(field: str, url: str, path: Path) -> None:
    shown = without_secret(url)
    scheme, target, options = split_url(url)
    if password_variable(url) is not None:
        reason = f"it holds a password: write user=NAME&password_file=FILE instead (in {path})"
        raise BadConfig(field=field, value=shown, reason=reason)
    named = [options[name] for name in _PATHS if name in options] + ([target] if scheme == "lmdb" else [])
    relative = [each for each in named if not Path(each).expanduser().is_absolute()]
    if relative:
        reason = f"the path {relative[0]!r} must be absolute, because a profile is used in any folder (in {path})"
        raise BadConfig(field=field, value=shown, reason=reason)


def label(row: Mapping[str, Any]) -> str:
    """The log that a row of data is about: orders, or orders/2 for a shard of it."""
    stream, shard = row["stream"], row["shard"]
    return str(stream) if shard is None else shard_name(stream, shard)


def closest(word: str, known: Iterable[str]) -> str | None:
    """What was probably meant."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None
