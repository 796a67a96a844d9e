"""Other schedulers beside ours: each in an environment of its own below the cache folder, made on request only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from lockstep.bench.compare_servers import Served, Shares
from lockstep.bench.scratch import scratch_folder
from lockstep.dev.supply import cache_folder
from lockstep.errors import Unavailable

Say = Callable[[str], None]
APSCHEDULER, PROCRASTINATE, CELERY, CRONITER = "APScheduler", "procrastinate", "Celery", "croniter"
DB_SCHEDULER = "db-scheduler"
PACKAGES: Mapping[str, tuple[str, ...]] = {
    APSCHEDULER: ("APScheduler==3.11.3", "SQLAlchemy==2.1.8", "psycopg[binary]==3.3.9"),
    PROCRASTINATE: ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"),
    CELERY: ("celery[redis]==5.7.0",),
    CRONITER: ("croniter==6.2.4",),
}
"""What pip installs for each."""
JARS = (
    ("com.github.kagkarlsson", "db-scheduler", "16.0.0"),
    ("org.postgresql", "postgresql", "42.7.7"),
    ("com.zaxxer", "HikariCP", "6.3.0"),
)
"""What Maven fetches for db-scheduler."""
PROGRAMS = {
    APSCHEDULER: "apscheduler_jobs.py", PROCRASTINATE: "procrastinate_jobs.py", CELERY: "celery_jobs.py",
    CRONITER: "croniter_loop.py", DB_SCHEDULER: "DbSchedulerJobs.java",
}  # fmt: skip
_INSTALL_S, _RUN_S = 900.0, 1500.0
_LINES = 5
_JAVA_START_MS = 6000
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lockstep.bench</groupId>
  <artifactId>peers</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


class PeerMissing(Unavailable):
    """Another scheduler can't be had on this machine."""

    code = "BENCH_PEER_MISSING"
    template = "{name} was not measured: {reason}."
    advice = "See that pip, Maven and javac work here, or leave --peers out."


@dataclass(frozen=True, slots=True)
class Peers:
    """The folder that keeps the environments."""

    folder: Path
    say: Say

    @classmethod
    def in_cache(cls, say: Say) -> Peers:
        """Those of this user."""
        return cls(cache_folder(os.environ) / "bench", say)

    def python(self, name: str) -> Path:
        """The Python of an environment with a peer, made if it is not there."""
        version = PACKAGES[name][0].partition("==")[2]
        kept = self.folder / f"{name.lower()}-{version}"
        python = kept / "bin" / "python"
        if not (kept / "complete").exists():
            self.say(f"installing {', '.join(PACKAGES[name])} into {kept}")
            shutil.rmtree(kept, ignore_errors=True)
            _run(name, (sys.executable, "-m", "venv", str(kept)), "python -m venv failed", _INSTALL_S)
            command = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[name])
            _run(name, command, "pip could not install it", _INSTALL_S)
            (kept / "complete").touch()
        return python

    def classes(self) -> str:
        """The class path of db-scheduler with our program, fetched and compiled if it is not there."""
        kept = self.folder / f"db-scheduler-{JARS[0][2]}"
        for program in ("java", "javac", "mvn"):
            if shutil.which(program) is None:
                raise PeerMissing(name=DB_SCHEDULER, reason=f"{program} is not installed")
        if not kept.is_dir():
            self.say(f"fetching {':'.join(JARS[0])} with Maven into {kept}")
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".fetch-") as made:
                _fetch(Path(made))
                Path(made, "jars").rename(kept)
        return f"{kept}/*"

    def run_python(self, name: str, *arguments: str) -> dict[str, Any]:
        """What a peer's program prints."""
        python = self.python(name)
        with as_file(files(f"{__package__}.programs")) as folder:
            program = folder / PROGRAMS[name]
            return _result(name, _run(name, (str(python), str(program), *arguments), "it failed", _RUN_S))

    def run_db_scheduler(
        self, url: str, events: int, over_ms: int, setting: str, nodes: int = 1, *, kill_after_s: float | None = None
    ) -> dict[str, Any]:
        """Run db-scheduler in one process, or in several that share the work; the last of them may be killed (-9)."""
        jars = self.classes()
        with as_file(files(f"{__package__}.programs")) as folder, scratch_folder() as classes:
            source = str(folder / PROGRAMS[DB_SCHEDULER])
            _run(DB_SCHEDULER, ("javac", "-cp", jars, "-d", str(classes), source), "javac failed", _INSTALL_S)
            begin_ms = time.time_ns() // 10**6 + _JAVA_START_MS + events // 10
            java = ("java", "-Xms64m", "-Xmx512m", "-cp", f"{classes}:{jars}", "DbSchedulerJobs")
            words = (jdbc(url), str(events), str(over_ms), setting)
            running = [_started((*java, *words, str(node), str(begin_ms), str(nodes))) for node in range(nodes)]
            if kill_after_s is not None:
                time.sleep(max(begin_ms / 1000 - time.time(), 0) + kill_after_s)
                killed = running.pop()
                killed.kill()
                killed.communicate()
            return joined(events, [_ended(DB_SCHEDULER, one) for one in running])


def joined(events: int, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What several processes ran together."""
    if len(parts) == 1:
        return dict(parts[0])
    ran, counts = sum(part["ran"] for part in parts), {f"node-{at}": part["ran"] for at, part in enumerate(parts)}
    seconds = max(part["seconds"] for part in parts)
    return {
        "events": events, "ran": ran, "seconds": seconds, "per_s": round(ran / seconds, 1),
        "lost": max(events - ran, 0),
        "duplicated": max(ran - events, 0) + sum(part["duplicated"] for part in parts),
        "early": sum(part["early"] for part in parts), "by_node": counts,
        "late_ms": {name: max(part["late_ms"][name] for part in parts) for name in ("p50", "p99", "max")},
    }  # fmt: skip


def jdbc(url: str) -> str:
    """A PostgreSQL URL as Java wants it: the user as an option."""
    rest = url.partition("://")[2]
    user, at, place = rest.rpartition("@")
    if not at:
        return f"jdbc:postgresql://{rest}"
    name, _, password = user.partition(":")
    return f"jdbc:postgresql://{place}?user={name}" + (f"&password={password}" if password else "")


def sqlalchemy_url(url: str) -> str:
    """A PostgreSQL URL as SQLAlchemy wants it."""
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def measured(server: Served, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a peer did, and what else the machine did meanwhile."""
    shares, server_s = Shares(server), server.cpu_s()
    found = work()
    server_s = server.cpu_s() - server_s
    return {**found, "server_us_per_event": round(server_s / max(found["events"], 1) * 1e6, 1), **shares.cores()}


def _fetch(folder: Path) -> None:
    lines = [
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in JARS
    ]
    (folder / "pom.xml").write_text(_POM.format(dependencies="\n".join(lines)))
    command = ("mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies",
               "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}")  # fmt: skip
    _run(DB_SCHEDULER, command, "Maven could not fetch it", _INSTALL_S)


def _run(name: str, command: Sequence[str], reason: str, timeout: float) -> str:
    running = _started(command)
    try:
        out, said = running.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()
        raise PeerMissing(name=name, reason=f"{reason}: not done after {timeout:g} s") from None
    if running.returncode != 0:
        last = " / ".join((out + said).strip().splitlines()[-_LINES:])
        raise PeerMissing(name=name, reason=f"{reason}: {last}")
    return out


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - programs of ours and of the peers
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )


def _ended(name: str, running: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, said = running.communicate(timeout=_RUN_S)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()
        raise PeerMissing(name=name, reason=f"not done after {_RUN_S:g} s") from None
    if running.returncode != 0:
        raise PeerMissing(name=name, reason=f"it failed: {' / '.join(said.strip().splitlines()[-_LINES:])}")
    return _result(name, out)


def _result(name: str, out: str) -> dict[str, Any]:
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if not lines:
        raise PeerMissing(name=name, reason="it printed no result")
    found: dict[str, Any] = json.loads(lines[-1])
    return found
