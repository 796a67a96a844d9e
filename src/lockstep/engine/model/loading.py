"""Models in any of their forms, chosen by the ending of the file: .xml, .yaml, .yml or .py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lockstep.engine.errors import FileMissing, ModelUnreadable, ModelUnwritable
from lockstep.engine.model.project import Project
from lockstep.engine.model.python_form import run_model, to_python
from lockstep.engine.model.variables import with_home
from lockstep.engine.model.xml_cursor import Notes
from lockstep.engine.model.xml_reader import Reading, parse_xml, read_xml
from lockstep.engine.model.xml_writer import to_xml
from lockstep.engine.model.yaml_form import SIZE_MAX, parse_yaml, to_yaml
from lockstep.errors import from_os_error

__all__ = ["load_model", "parse_model", "parse_xml", "parse_yaml", "to_python", "to_xml", "to_yaml", "write_model"]

_WRITERS = {".xml": to_xml, ".yaml": to_yaml, ".yml": to_yaml, ".py": to_python}


def load_model(path: str | Path, environ: Mapping[str, str] | None = None) -> Project:
    """The project in a file. XML and YAML are read as data; a Python file is run, and its `project` taken.

    FILE.xml#NAME is one of several projects in a file. With `environ`, names between @ signs in XML take its values.
    """
    return read_model_file(path, environ).sound()


def read_model_file(path: str | Path, environ: Mapping[str, str] | None = None) -> Reading:
    """A model's file with everything that is wrong in its text; raises if there is no such file."""
    path, name = _divided(Path(path))
    suffix = path.suffix.lower()
    if path.is_dir():
        raise FileMissing(path=str(path), reason="it is a folder")
    if suffix not in _WRITERS:
        remedy = f"Name it with one of {', '.join(_WRITERS)}."
        reason = f"its ending {path.suffix!r} does not say what it is"
        raise ModelUnreadable(source=str(path), line=1, column=1, reason=reason, remedy=remedy)
    data, notes = _content(path), Notes()
    if suffix == ".xml":
        known = None if environ is None else with_home(environ, path)
        return read_xml(data, str(path), variables=known, name=name)
    try:
        if suffix == ".py":
            return Reading(run_model(path), notes)
        return Reading(parse_yaml(_decoded(data, path), str(path), lines=notes.lines), notes)
    except ModelUnreadable as error:
        notes.unread.append(error)
        return Reading(None, notes)


def _divided(path: Path) -> tuple[Path, str | None]:
    """A file, and the name of the project after a # sign; None if there is none."""
    file, sign, name = path.name.rpartition("#")
    return (path.with_name(file), name) if sign and file.lower().endswith(".xml") else (path, None)


def parse_model(text: str, source: str) -> Project:
    """The project in a text, which is XML if it begins like it, else YAML."""
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return parse_xml(text.encode(), source)
    return parse_yaml(text, source)


def write_model(project: Project, form: str) -> str:
    """The project in the form of a file with this ending."""
    writer = _WRITERS.get(f".{form.lstrip('.').lower()}")
    if writer is None:
        known = ", ".join(_WRITERS)
        raise ModelUnwritable(form=form, reason=f"there is no such form; there are {known}")
    return writer(project)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SIZE_MAX + 1)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise from_os_error(error, str(path)) from None
        raise FileMissing(path=str(path), reason=error.strerror or str(error)) from None


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise ModelUnreadable(
            source=str(path), line=line, column=column, reason="it is not UTF-8", remedy="Save it as UTF-8."
        ) from None
