"""The recipes for Hazelcast: one member, or three."""

from __future__ import annotations

from lockstep.dev import probes
from lockstep.dev.recipe import HOST, JAVA, Jars, Plan, Process, Recipe, Site, java

JARS = Jars(name="hazelcast", group="com.hazelcast", artifact="hazelcast", version="5.5.0")
_OPENED = (
    "java.base/java.lang", "java.base/sun.nio.ch", "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)  # fmt: skip
_PROPERTIES = (
    "hazelcast.phone.home.enabled=false", "hazelcast.logging.type=jdk", "hazelcast.io.thread.count=2",
    "hazelcast.operation.thread.count=2", "hazelcast.operation.generic.thread.count=2",
    "hazelcast.partition.count=31", "hazelcast.heartbeat.interval.seconds=1",
    "hazelcast.max.no.heartbeat.seconds=10", "hazelcast.wait.seconds.before.join=1",
    "hazelcast.merge.first.run.delay.seconds=10", "hazelcast.merge.next.run.delay.seconds=10",
)  # fmt: skip
_SETTINGS = """\
hazelcast:
  cluster-name: dev
  network:
    public-address: {host}:{port}
    port:
      port: {port}
      auto-increment: false
    interfaces:
      enabled: true
      interfaces: [{host}]
    rest-api:
      enabled: true
      endpoint-groups:
        HEALTH_CHECK:
          enabled: true
    join:
      auto-detection:
        enabled: false
      multicast:
        enabled: false
      tcp-ip:
        enabled: true
        member-list: [{members}]
  ringbuffer:
    default:
      capacity: 100000
      backup-count: 1
      time-to-live-seconds: 0
"""


def hazelcast(members: int = 1) -> Recipe:
    """So many members of one cluster, which is called dev."""

    def plan(site: Site) -> Plan:
        return _plan(site, members)

    name = "hazelcast" if members == 1 else f"hazelcast{members}"
    return Recipe(name=name, port_count=members, plan=plan, programs=(JAVA,), jars=JARS)


def _plan(site: Site, members: int) -> Plan:
    listed = [f"{HOST}:{port}" for port in site.ports]
    files = {
        f"member-{number + 1}.yaml": _SETTINGS.format(host=HOST, port=port, members=", ".join(listed))
        for number, port in enumerate(site.ports[:members])
    }
    return Plan(
        url="hazelcast://" + ",".join(listed),
        files=files,
        processes=tuple(
            Process(
                name=name.removesuffix(".yaml"),
                command=_command(site, name),
                port=port,
                probe=probes.hazelcast,
            )
            for name, port in zip(files, site.ports, strict=True)
        ),
    )


def _command(site: Site, settings: str) -> tuple[str, ...]:
    return java(
        "--add-modules", "java.se",
        "--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED",
        *(word for package in _OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")),
        *(f"-D{setting}" for setting in _PROPERTIES),
        f"-Dhazelcast.config={site.folder / settings}",
        "-cp", site.classpath,
        "com.hazelcast.core.server.HazelcastMemberStarter",
        heap_mb=384,
    )  # fmt: skip
