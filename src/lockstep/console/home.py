"""The first page: what is wrong now, and where to go from there."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.console.port import Asked, Pillar, Problem, Tree, View
from lockstep.errors import LockstepError

SHOWN = 100
_ORDER = {"critical": 0, "warning": 1}


class HomeView:
    """Asks every pillar for its problems; one that does not answer is a problem itself."""

    def __init__(self, pillars: Sequence[Pillar]) -> None:
        self._pillars = pillars

    def pillar(self) -> Pillar:
        """The page."""
        view = View(path="/", title="Home", summary="What is wrong now, in all parts", load=self.home,
                    template="home.html", cli="lockstep top")  # fmt: skip
        return Pillar("home", "Home", (view,))

    def home(self, asked: Asked) -> Tree:
        """Problems, the worst first, and figures of each pillar."""
        problems = [problem for pillar in self._pillars for problem in _problems(pillar)
                    if asked.principal.may(asked.principal.role, problem.area)]  # fmt: skip
        problems.sort(key=lambda problem: (_ORDER[problem.severity], problem.title))
        figures = [(pillar.title, *figure) for pillar in self._pillars for figure in _figures(pillar)]
        return {
            "problems": [problem.tree() for problem in problems[:SHOWN]],
            "left_out": max(0, len(problems) - SHOWN),
            "counts": {name: sum(problem.severity == name for problem in problems) for name in _ORDER},
            "figures": [{"label": label, "value": value, "link": link, "part": part}
                        for part, label, value, link in figures],
            "trends": [trend.tree() for pillar in self._pillars for trend in pillar.trends()],
        }  # fmt: skip


def _problems(pillar: Pillar) -> Sequence[Problem]:
    try:
        return pillar.problems()
    except LockstepError as error:
        return [Problem(severity="critical", title=f"{pillar.title} can't be read", reason=str(error), link="/",
                        command="lockstep bus check", area=pillar.name)]  # fmt: skip


def _figures(pillar: Pillar) -> Sequence[tuple[str, str, str]]:
    try:
        return pillar.figures()
    except LockstepError:
        return [(pillar.title.lower(), "unknown", "/")]
