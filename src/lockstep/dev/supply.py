"""Where servers come from: Debian packages, and jars through Maven that are kept in a cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lockstep.dev.errors import ServerNotAvailable
from lockstep.dev.recipe import MAVEN, Jars, Program, Recipe

Tell = Callable[[str], None]
_FETCH_S = 900.0
_LINES = 5
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lockstep.dev</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where downloads and servers are kept: XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep."""
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "lockstep"


class Supply:
    """Fetches what a recipe needs and is not there yet."""

    def __init__(self, environ: Mapping[str, str], tell: Tell, *, may_install: bool | None = None) -> None:
        self._environ, self._tell = environ, tell
        self._may_install = os.geteuid() == 0 if may_install is None else may_install

    def packages(self, recipes: Iterable[Recipe]) -> list[str]:
        """The Debian packages that `provide` would install for these; none if this user may not install any."""
        if not self._can_install():
            return []
        missing = [program for recipe in recipes for program in self._needed(recipe) if not self._has(program)]
        return list(dict.fromkeys(program.package for program in missing))

    def provide(self, recipe: Recipe) -> Path | None:
        """Install and fetch what is missing; return the folder of the recipe's jars, if it has any."""
        if self._is_complete(recipe):
            return self._jars_folder(recipe)
        with self._one_process_at_a_time():
            self._provide_programs(recipe.name, recipe.programs)
            if recipe.jars is not None:
                self._provide_jars(recipe.name, recipe.jars)
        return self._jars_folder(recipe)

    def _is_complete(self, recipe: Recipe) -> bool:
        folder = self._jars_folder(recipe)
        return all(map(self._has, recipe.programs)) and (folder is None or folder.is_dir())

    def _jars_folder(self, recipe: Recipe) -> Path | None:
        return None if recipe.jars is None else self._kept(recipe.jars)

    @contextmanager
    def _one_process_at_a_time(self) -> Iterator[None]:
        """Hold the lock of the cache folder.

        Two runs of `apt-get update` fail each other, and two of Maven can damage its repository. The holder ends each
        of its commands in bounded time, and the lock ends with its process.
        """
        folder = cache_folder(self._environ)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "fetch.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _needed(self, recipe: Recipe) -> Sequence[Program]:
        """The programs of a recipe, and Maven if its jars have to be fetched."""
        fetches = recipe.jars is not None and not self._kept(recipe.jars).is_dir()
        return (*recipe.programs, MAVEN) if fetches else recipe.programs

    def _can_install(self) -> bool:
        return self._may_install and shutil.which("apt-get", path=self._environ.get("PATH")) is not None

    def _kept(self, jars: Jars) -> Path:
        return cache_folder(self._environ) / "jars" / f"{jars.name}-{jars.version}"

    def _provide_programs(self, name: str, programs: Sequence[Program]) -> None:
        missing = [program for program in programs if not self._has(program)]
        if not missing:
            return
        packages = list(dict.fromkeys(program.package for program in missing))
        remedy = f"Install it with 'apt-get install {' '.join(packages)}', then try again."
        reason = f"{', '.join(program.name for program in missing)} is missing"
        if not self._can_install():
            raise ServerNotAvailable(name=name, reason=reason, remedy=remedy)
        self._tell(f"Installing {', '.join(packages)} with apt-get")
        apt = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300")
        self._run((*apt, "update"), name, f"{reason}, and apt-get update failed", remedy)
        self._run(
            (*apt, "install", "--no-install-recommends", *packages), name, f"{reason}, and apt-get failed", remedy
        )

    def _has(self, program: Program) -> bool:
        if program.path is not None:
            return Path(program.path).exists()
        return shutil.which(program.name, path=self._environ.get("PATH")) is not None

    def _provide_jars(self, name: str, jars: Jars) -> None:
        kept = self._kept(jars)
        if kept.is_dir():
            return
        self._provide_programs(name, (MAVEN,))
        coordinates = f"{jars.group}:{jars.artifact}:{jars.version}"
        self._tell(f"Fetching {coordinates} with Maven into {kept}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetch-") as folder:
            self._fetch(name, jars, coordinates, Path(folder))
            _keep(Path(folder) / "jars", kept)

    def _fetch(self, name: str, jars: Jars, coordinates: str, folder: Path) -> None:
        text = _POM.format(name=jars.name, group=jars.group, artifact=jars.artifact, version=jars.version)
        (folder / "pom.xml").write_text(text)
        command = ("mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies",
                   "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}")  # fmt: skip
        remedy = (
            "See that Maven reaches its repository (a proxy or mirror is set in ~/.m2/settings.xml), then try again."
        )
        self._run(command, name, f"Maven could not fetch {coordinates}", remedy)

    def _run(self, command: Sequence[str], name: str, reason: str, remedy: str) -> None:
        environ = {**self._environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            ended = subprocess.run(  # noqa: S603 - a fixed command
                command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=_FETCH_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            late = f"{reason}: not done after {_FETCH_S:g} s"
            raise ServerNotAvailable(name=name, reason=late, remedy=remedy) from error
        if ended.returncode != 0:
            said = " / ".join((ended.stdout + ended.stderr).strip().splitlines()[-_LINES:])
            raise ServerNotAvailable(name=name, reason=f"{reason}: {said}", remedy=remedy)


def _keep(fetched: Path, kept: Path) -> None:
    """Move a complete folder to its place at once, so that half of it is never seen."""
    try:
        fetched.rename(kept)
    except OSError:
        if not kept.is_dir():
            raise
        # Another process was faster, and what it put there is the same.
