"""Names between two @ signs in a model: replaced by properties of the project, else by environment variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PROJECT_HOME = "ESP_PROJECT_HOME"
"""The folder of the model's file, unless the environment says otherwise."""

_VARIABLE = re.compile(r"@([A-Za-z_][A-Za-z0-9_]{0,127})@")


def expanded(text: str, values: Mapping[str, str]) -> str:
    """The text with every name that has a value replaced by it, once: values are not looked into again."""
    if "@" not in text:
        return text
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def unreplaced(text: str) -> tuple[str, ...]:
    """The names that stand in the text, each once."""
    return tuple(dict.fromkeys(_VARIABLE.findall(text)))


def remedy_for(name: str) -> str:
    """What to do about a name without a value."""
    return f"Set the environment variable {name}, or give the project a property of that name."


def with_home(environ: Mapping[str, str], model: str | Path) -> dict[str, str]:
    """The environment, and where the model lies if it does not say that itself."""
    return {PROJECT_HOME: str(Path(model).resolve().parent), **environ}
