"""The parameters that routes have in common, with their words for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Path, Query

ProjectName = Annotated[str | None, Query(description="the project; the one of this engine by default")]
QueryName = Annotated[str | None, Query(description="the continuous query")]
WindowName = Annotated[str, Query(description="the window, or QUERY/WINDOW")]
WindowKind = Annotated[str | None, Query(alias="type", description="only windows of this kind, as window-copy")]
InPath = Annotated[str, Path(max_length=128)]
PersistPath = Annotated[
    str | None, Query(description="a folder below the engine's own; where --persist-to says by default")
]
ModelUrl = Annotated[
    str | None,
    Query(alias="projectUrl", description="with modified: file://MODEL below the engine's folder, instead of a body"),
]


def _form(
    _form: Annotated[
        Literal["xml", "json"] | None, Query(alias="format", description="xml, or json; Accept too")
    ] = None,
) -> None:
    """Checked here for every route; the answer looks it up."""


FORM = Depends(_form)
