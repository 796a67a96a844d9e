"""What a recipe for a server says: what it needs, what it writes into its folder, what is run, and when it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM, Signals

HOST = "127.0.0.1"

Probe = Callable[[int], int]
"""Asks a port in the server's own protocol; how many members of the cluster answer there, 0 if it is not ready."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program on the path, and the Debian package that has it; `path` if it lies elsewhere."""

    name: str
    package: str
    path: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Jars:
    """A Java library with everything it needs at run time, by its Maven coordinates."""

    name: str
    group: str
    artifact: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Where a server is put: its folder, its ports and its jars."""

    folder: Path
    ports: tuple[int, ...]
    jars: Path | None = None

    @property
    def classpath(self) -> str:
        """The jars as Java wants them named."""
        return f"{self.jars}/*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """One process of a server. A helper serves the others, and is neither killed nor paused with them."""

    name: str
    command: tuple[str, ...]
    port: int
    probe: Probe
    environment: Mapping[str, str] = field(default_factory=dict)
    is_helper: bool = False
    stop_signal: Signals = SIGTERM
    """Asks it to end in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that is done to start a server at a site; `prepare` is run once, when its folder is new."""

    url: str
    processes: tuple[Process, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How one kind of server is had and started."""

    name: str
    port_count: int
    plan: Callable[[Site], Plan]
    programs: tuple[Program, ...] = ()
    jars: Jars | None = None


JAVA = Program(name="java", package="default-jre-headless")
MAVEN = Program(name="mvn", package="maven")
LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""
"""Warnings only, on standard output: for servers that log with Log4j."""


def java(*options: str, heap_mb: int) -> tuple[str, ...]:
    """The beginning of a Java command, small enough that several run side by side on two cores."""
    threads = ("-XX:ParallelGCThreads=2", "-XX:ConcGCThreads=1", "-XX:CICompilerCount=2")
    return ("java", "-Xms64m", f"-Xmx{heap_mb}m", *threads, "-XX:-UsePerfData", "-Djava.awt.headless=true", *options)
