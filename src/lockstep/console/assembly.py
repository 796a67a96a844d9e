"""The pillars of a bus: each is there if the packages that it needs are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockstep.console.apis import MonitorApis, ScheduleApis
from lockstep.console.figures import FleetFigures, ProjectFigures, ScheduleFigures, StreamFigures
from lockstep.console.fleet import FleetViews
from lockstep.console.fleets import Fleets, lacking
from lockstep.console.mounts import Mount
from lockstep.console.names import FRESH_S
from lockstep.console.port import Pillar, Site
from lockstep.console.projects import project_views
from lockstep.console.sampler import Sampler
from lockstep.console.schedules import ScheduleViews
from lockstep.console.streams import StreamViews
from lockstep.errors import ExtraMissing
from lockstep.streams.client import Lockstep


@dataclass(slots=True)
class Parts:
    """The parts of a console."""

    pillars: list[Pillar] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Sentences about parts that are not there, and why."""


@contextmanager
def opened_parts(client: Lockstep, cluster: str, state: Path) -> Iterator[Parts]:
    """Everything that can be looked at on a bus, while the block runs; views of fleets are kept below `state`."""
    site, parts = Site(client, client.runtime, cluster, FRESH_S), Parts()
    with ExitStack() as closing:
        sampler = Sampler(site)
        closing.callback(sampler.close)
        sampler.start()
        figures = StreamFigures(client, sampler)
        parts.pillars.append(replace(StreamViews(site, sampler).pillar(), metrics=figures.families))
        _add_projects(site, parts, closing)
        _add_schedules(site, parts, closing)
        _add_fleet(site, parts, closing, state)
        yield parts


def _add_projects(site: Site, parts: Parts, closing: ExitStack) -> None:
    try:
        views = project_views(site)
    except ExtraMissing as error:
        parts.left_out.append(f"Projects are left out. {error}")
        return
    closing.callback(views.close)
    views.start()
    figures = ProjectFigures(views.watch)
    parts.pillars.append(replace(views.pillar(), metrics=figures.families, parts=figures.parts))


def _add_schedules(site: Site, parts: Parts, closing: ExitStack) -> None:
    views = ScheduleViews(site)
    closing.callback(views.close)
    figures = ScheduleFigures(views.schedulers)
    parts.pillars.append(replace(views.pillar(), metrics=figures.families, parts=figures.parts))
    apis = ScheduleApis(views.schedulers)
    closing.callback(apis.close)
    parts.mounts.append(apis.mount())


def _add_fleet(site: Site, parts: Parts, closing: ExitStack, state: Path) -> None:
    sentence = lacking()
    if sentence is not None:
        parts.left_out.append(sentence)
        return
    add_fleets(site, Fleets(site, state), parts, closing)


def add_fleets(site: Site, fleets: Fleets, parts: Parts, closing: ExitStack) -> None:
    """The pages, figures and APIs of monitors."""
    views = FleetViews(site, fleets)
    closing.callback(views.close)
    figures = FleetFigures(fleets)
    parts.pillars.append(replace(views.pillar(), metrics=figures.families, parts=figures.parts))
    apis = MonitorApis(fleets)
    closing.callback(apis.close)
    parts.mounts.append(apis.mount())
