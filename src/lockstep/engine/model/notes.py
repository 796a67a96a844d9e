"""What a model says that changes nothing here, so that nobody has to guess."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.engine.model.blockers import line_of
from lockstep.engine.model.checks_edges import sources_of_inserts
from lockstep.engine.model.checks_survey import survey
from lockstep.engine.model.project import Project
from lockstep.engine.model.xml_reading import Reading
from lockstep.engine.model.xml_reading_cursor import Unused


def without_effect(reading: Reading) -> list[Unused]:
    """Elements and names without an effect, in the order of their lines."""
    project = reading.project
    found = [] if project is None else [
        Unused(line_of(place, reading.notes.lines) or 0, what, why) for place, what, why in _of(project)
    ]  # fmt: skip
    return sorted([*reading.notes.unused, *found], key=lambda item: item.line)


def _of(project: Project) -> Iterator[tuple[str, str, str]]:
    seen = survey(project)
    paths = {placed.index: placed.path for placed in seen.windows}
    for index, reader in sources_of_inserts(seen).items():
        why = f"{paths[index]} has no index (pi_EMPTY) to say what they replace, and {reader} must know"
        yield paths[index], f"an event that is no insert, to {paths[index]},", f"it is refused, as {why}"
    for query in project.queries:
        names = {window.name for window in query.windows}
        for name in query.trace:
            if name not in names:
                yield f"query {query.name}", f"the trace of {name!r}", "there is no such window"
