"""Models that clients send or name. They are data: XML or YAML, never Python."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote

from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model.loading import parse_xml, parse_yaml
from lockstep.engine.model.project import Project
from lockstep.server.errors import BodyTooLarge, PathRefused

_FILE = "file://"
_ENDINGS = (".xml", ".yaml", ".yml")
_LENGTH_MAX = 4096


def parse_model(data: bytes, source: str = "the request") -> Project:
    """The project in some bytes; XML if they begin like it, else YAML."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return parse_xml(data, source)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelUnreadable(
            source=source, line=1, column=1, reason="it is not UTF-8", remedy="Send it as UTF-8."
        ) from None
    return parse_yaml(text, source)


def read_model(url: str, root: Path | None, limit: int) -> Project:
    """The project in a file of this machine below `root`, named as file://PATH."""
    if not url.startswith(_FILE):
        raise PathRefused(path=url, reason="it does not begin with file://")
    path = below(unquote(url.removeprefix(_FILE)), root)
    if path.suffix.lower() not in _ENDINGS:
        raise PathRefused(path=url, reason=f"it does not end with one of {', '.join(_ENDINGS)}")
    return parse_model(_content(path, limit), path.name)


def below(given: str, root: Path | None) -> Path:
    """A path that a client named, with links followed; PathRefused if it leads out of `root`."""
    if root is None:
        raise PathRefused(path=given, reason="this engine has no folder for files that clients name")
    if not given or len(given) > _LENGTH_MAX or not given.isprintable():
        raise PathRefused(path=given[:80], reason="it is no path")
    try:
        home = root.resolve()
        path = (home / given).resolve()
    except (OSError, RuntimeError):
        raise PathRefused(path=given, reason="it can't be followed") from None
    if not path.is_relative_to(home):
        raise PathRefused(path=given, reason="it is not below the folder of this engine")
    return path


def _content(path: Path, limit: int) -> bytes:
    """What is in a plain file. A link that came there after the path was checked is not followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise PathRefused(path=path.name, reason=error.strerror or "it can't be read") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PathRefused(path=path.name, reason="it is not a plain file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise BodyTooLarge(limit=limit)
    return data
