"""The recipe for Cassandra: one node, from the jars of its Maven artifact."""

from __future__ import annotations

from lockstep.dev import probes
from lockstep.dev.recipe import HOST, JAVA, Jars, Plan, Process, Recipe, Site, java

JARS = Jars(name="cassandra", group="org.apache.cassandra", artifact="cassandra-all", version="5.0.4")
KEYSPACE = "lockstep"
_SETTINGS = """\
cluster_name: lockstep
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
auto_bootstrap: false
listen_address: {host}
rpc_address: {host}
native_transport_port: {native}
storage_port: {storage}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "{host}:{storage}"
commitlog_sync: batch
commitlog_segment_size: 32MiB
concurrent_writes: 8
concurrent_reads: 8
write_request_timeout: 10s
cas_contention_timeout: 5s
paxos_variant: v2
data_file_directories:
  - {folder}/data
commitlog_directory: {folder}/commitlog
saved_caches_directory: {folder}/saved_caches
hints_directory: {folder}/hints
cdc_raw_directory: {folder}/cdc_raw
"""
_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level %logger: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
_EXPORTS = (
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql", "jdk.unsupported/sun.misc",
)  # fmt: skip
_OPENS = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.module",
    "java.base/java.lang.reflect", "java.base/java.net", "java.base/java.nio", "java.base/java.time",
    "java.base/java.util", "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader", "java.base/jdk.internal.math", "java.base/jdk.internal.misc",
    "java.base/jdk.internal.module", "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar", "java.base/sun.nio.ch", "jdk.management/com.sun.management.internal",
)  # fmt: skip
"""What Cassandra's own options for Java 17 name."""


def cassandra() -> Recipe:
    """One Cassandra."""
    return Recipe(name="cassandra", port_count=3, plan=_plan, programs=(JAVA,), jars=JARS)


def _plan(site: Site) -> Plan:
    native, storage, jmx = site.ports
    modules = [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS]
    modules += [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS]
    command = java(
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        *modules,
        f"-Dcassandra.config=file://{site.folder}/cassandra.yaml",
        f"-Dcassandra.storagedir={site.folder}",
        f"-Dcassandra.jmx.local.port={jmx}",
        "-Dcassandra-foreground=yes",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra.ring_delay_ms=100",
        "-Djdk.attach.allowAttachSelf=true",
        f"-Dlogback.configurationFile={site.folder}/logback.xml",
        "-cp",
        site.classpath,
        "org.apache.cassandra.service.CassandraDaemon",
        heap_mb=768,
    )
    return Plan(
        url=f"cassandra://{HOST}:{native}/{KEYSPACE}",
        files={
            "cassandra.yaml": _SETTINGS.format(host=HOST, native=native, storage=storage, folder=site.folder),
            "logback.xml": _LOGBACK,
        },
        processes=(Process(name="cassandra", command=command, port=native, probe=probes.cassandra),),
    )
