"""The recipe for ZooKeeper, as Debian has it."""

from __future__ import annotations

from lockstep.dev import probes
from lockstep.dev.recipe import HOST, JAVA, Plan, Process, Program, Recipe, Site, java

_JAR = "/usr/share/java/zookeeper.jar"
_SETTINGS = """\
tickTime=500
dataDir={folder}/data
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
4lw.commands.whitelist=srvr
maxClientCnxns=0
"""


def zookeeper() -> Recipe:
    """One ZooKeeper."""
    package = Program(name="zookeeper", package="zookeeper", path=_JAR)
    return Recipe(name="zookeeper", port_count=1, plan=_plan, programs=(JAVA, package))


def _plan(site: Site) -> Plan:
    (port,) = site.ports
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = java("-XX:+UseSerialGC", "-cp", "/usr/share/java/*", main, str(site.folder / "zoo.cfg"), heap_mb=384)
    return Plan(
        url=f"{HOST}:{port}",
        files={"zoo.cfg": _SETTINGS.format(folder=site.folder, port=port, host=HOST)},
        processes=(Process(name="zookeeper", command=command, port=port, probe=probes.zookeeper),),
    )
