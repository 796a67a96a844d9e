"""A RabbitMQ of three nodes on one machine: a recipe for each node, started one after the other, with one epmd."""

from __future__ import annotations

from dataclasses import replace

from lockstep.dev.rabbitmq import rabbitmq

NODES = 3
COOKIE = "lockstep-test"
_JOIN = "cluster_formation.peer_discovery_backend = classic_config\n" + "".join(
    f"cluster_formation.classic_config.nodes.{number} = node{number}@localhost\n" for number in range(1, NODES + 1)
)


def cluster_node(number, epmd_port=None):
    """Node `number` from 1 on; all but the first join that one, over the epmd that it has started."""
    recipe = rabbitmq()

    def plan(site):
        made = recipe.plan(site)
        epmd, server = made.processes
        names = {} if epmd_port is None else {"ERL_EPMD_PORT": str(epmd_port)}
        arguments = server.environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
        environment = {
            **server.environment, **names,
            "RABBITMQ_NODENAME": f"node{number}@localhost",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{arguments} -setcookie {COOKIE}",
        }  # fmt: skip
        files = dict(made.files)
        if epmd_port is not None:
            files["rabbitmq.conf"] += _JOIN
        processes = (replace(server, environment=environment),)
        return replace(made, files=files, processes=(epmd, *processes) if epmd_port is None else processes)

    return replace(recipe, name=f"rabbitmq-node{number}", plan=plan)


def start_cluster(start_server):
    """The nodes, and the URL of all of them."""
    nodes = [start_server(cluster_node(1))]
    epmd_port = nodes[0].ports[3]
    nodes += [start_server(cluster_node(number, epmd_port)) for number in range(2, NODES + 1)]
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    return nodes, f"rabbitmq://guest:guest@{hosts}"


def leader_of(nodes, bus, stream):
    """The node that leads a stream."""
    links = bus.driver._client
    (_, port), _ = links.topology(bus.open(stream).topic._stream, links.deadline())
    [node] = [node for node in nodes if node.port == port]
    return node
