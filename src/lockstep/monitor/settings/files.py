"""Files and folders of settings: JSON as Sensu has it, and YAML."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.monitor.core.documents import DEPTH_LIMIT, parse
from lockstep.monitor.settings.rules import Fault

SUFFIXES = (".json", ".yaml", ".yml")
FILE_BYTES = 16 << 20
_NODES = 1_000_000
_BOM = b"\xef\xbb\xbf"


class Unreadable(ValueError):
    """A file that holds no settings, with the fault to tell."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(fault.sentence)


def files_in(folder: Path) -> list[Path]:
    """All files of settings in a folder and those inside it, in the order of their paths."""
    if not os.access(folder, os.R_OK | os.X_OK) or not folder.is_dir():
        raise Unreadable(Fault("insufficient permissions for loading", (), file=str(folder)))
    return sorted(path for path in _all_files(folder, set()) if path.suffix in SUFFIXES)


def _all_files(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """Files below a folder; one that links lead to again is not entered twice."""
    state = folder.stat()
    if (state.st_dev, state.st_ino) in seen:
        return
    seen.add((state.st_dev, state.st_ino))
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise Unreadable(Fault("insufficient permissions for loading", (), file=str(folder))) from error
    for path in entries:
        if path.name.startswith("."):
            continue  # as a shell's pattern does
        if path.is_dir():
            yield from _all_files(path, seen)
        elif path.is_file():
            yield path


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a file; an empty one has none."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise Unreadable(Fault("config file does not exist or is not readable", (), file=str(path))) from error
    if len(data) > FILE_BYTES:
        raise Unreadable(Fault(f"config file is larger than {FILE_BYTES} bytes", (), file=str(path)))
    kind = "json" if path.suffix == ".json" else "yaml"
    try:
        document = _document(data.removeprefix(_BOM).strip(), kind)
    except (ValueError, RecursionError) as error:
        sentence = f"config file must be valid {kind}: {_reason(error)}"
        raise Unreadable(Fault(sentence, (), file=str(path))) from error
    return document


def _document(data: bytes, kind: str) -> dict[str, Any]:
    if not data:
        return {}
    found = parse(data) if kind == "json" else _yaml(data)
    if found is None:
        return {}
    if not isinstance(found, dict):
        reason = "it must be an object with members such as checks and handlers"
        raise ValueError(reason)
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return str(error)


def _yaml(data: bytes) -> Any:
    import yaml  # only for those who have such files: it takes memory and time to start

    try:
        return _plain(yaml.load(data, Loader=_loader(yaml)), 0, [_NODES])  # noqa: S506 - a safe loader without dates
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ValueError(reason) from error


def _loader(yaml: Any) -> Any:
    """PyYAML's safe loader; what looks like a date stays a text, as JSON has no dates."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    """The value as JSON has it: names are texts, references are copies; neither too deep nor too many of them."""
    left[0] -= 1
    if depth > DEPTH_LIMIT or left[0] < 0:
        reason = "it is nested too deeply, or its references make it too large"
        raise ValueError(reason)
    if isinstance(value, dict):
        return {_key(name): _plain(item, depth + 1, left) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1, left) for item in value]
    if value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and value - value == 0):
        return value
    reason = f"{value!r} has no form in JSON"
    raise ValueError(reason)


def _key(name: Any) -> str:
    if isinstance(name, bool):
        return "true" if name else "false"
    if isinstance(name, (str, int)):
        return str(name)
    reason = f"the name {name!r} is not a text"
    raise ValueError(reason)
