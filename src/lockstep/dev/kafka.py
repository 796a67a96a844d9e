"""The recipes for Kafka: one broker, or three that replicate to each other; KRaft, without ZooKeeper."""

from __future__ import annotations

from lockstep.dev import probes
from lockstep.dev.recipe import HOST, JAVA, LOG4J, Jars, Plan, Process, Recipe, Site, java
from lockstep.errors import BadArgument

JARS = Jars(name="kafka", group="org.apache.kafka", artifact="kafka_2.13", version="4.1.0")
_CLUSTER_ID = "bG9ja3N0ZXAtZGV2LTAwMQ"  # sixteen bytes in base64; every broker of a cluster is formatted with the same
_PORTS_EACH = 3
_SETTINGS = """\
process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners=CLIENT://{host}:{client},BROKER://{host}:{broker},CONTROLLER://{host}:{controller}
advertised.listeners=CLIENT://{advertised},BROKER://{host}:{broker}
listener.security.protocol.map=CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={folder}/data-{id}
auto.create.topics.enable=false
default.replication.factor={replicas}
min.insync.replicas={insync}
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor={replicas}
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={insync}
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={insync}
broker.heartbeat.interval.ms=1000
broker.session.timeout.ms=4000
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
background.threads=2
"""


def kafka(brokers: int = 1, advertised: tuple[str, ...] = ()) -> Recipe:
    """A Kafka cluster; `advertised` are the addresses given to clients, HOST:PORT for each broker."""
    if advertised and len(advertised) != brokers:
        raise BadArgument(name="advertised", value=advertised, reason=f"there must be {brokers}, one for each broker")

    def plan(site: Site) -> Plan:
        return _plan(site, brokers, advertised)

    name = "kafka" if brokers == 1 else f"kafka{brokers}"
    return Recipe(name=name, port_count=_PORTS_EACH * brokers, plan=plan, programs=(JAVA,), jars=JARS)


def _plan(site: Site, brokers: int, advertised: tuple[str, ...]) -> Plan:
    clients = site.ports[:brokers]
    told = advertised or tuple(f"{HOST}:{port}" for port in clients)
    settings = {f"broker-{number + 1}.properties": _settings(site, number, brokers, told) for number in range(brokers)}
    jvm = java(f"-Dlog4j2.configurationFile={site.folder}/log4j2.properties", "-cp", site.classpath, heap_mb=512)
    return Plan(
        url="kafka://" + ",".join(told),
        files={"log4j2.properties": LOG4J, **settings},
        prepare=tuple(
            (*jvm, "kafka.tools.StorageTool", "format", "-g", "-t", _CLUSTER_ID, "-c", str(site.folder / name))
            for name in settings
        ),
        processes=tuple(
            Process(
                name=name.removesuffix(".properties"),
                command=(*jvm, "kafka.Kafka", str(site.folder / name)),
                port=port,
                probe=probes.kafka,
            )
            for name, port in zip(settings, clients, strict=True)
        ),
    )


def _settings(site: Site, number: int, brokers: int, told: tuple[str, ...]) -> str:
    others, controllers = site.ports[brokers : 2 * brokers], site.ports[2 * brokers :]
    return _SETTINGS.format(
        id=number + 1,
        voters=",".join(f"{index + 1}@{HOST}:{port}" for index, port in enumerate(controllers)),
        host=HOST,
        client=site.ports[number],
        broker=others[number],
        controller=controllers[number],
        advertised=told[number],
        folder=site.folder,
        replicas=brokers,
        insync=max(1, brokers - 1),
    )
