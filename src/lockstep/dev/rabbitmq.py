"""The recipe for RabbitMQ with streams: everything in one folder, and an epmd of its own."""

from __future__ import annotations

from pathlib import Path

from lockstep.dev import probes
from lockstep.dev.recipe import HOST, Plan, Process, Program, Recipe, Site

_SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_SETTINGS = """\
listeners.tcp.1 = {host}:{amqp}
stream.listeners.tcp.1 = {host}:{stream}
stream.frame_max = 16777216
stream.advertised_host = {told_host}
stream.advertised_port = {told_port}
disk_free_limit.absolute = 50MB
log.file = false
log.console = true
log.console.level = warning
"""


def rabbitmq(advertised: str = "") -> Recipe:
    """One RabbitMQ; `advertised` is the HOST:PORT given to stream clients."""

    def plan(site: Site) -> Plan:
        return _plan(site, advertised)

    programs = (
        Program(name="rabbitmq-server", package="rabbitmq-server", path=_SERVER),
        Program(name="epmd", package="erlang-base"),
    )
    return Recipe(name="rabbitmq", port_count=4, plan=plan, programs=programs)


def _plan(site: Site, advertised: str) -> Plan:
    stream, amqp, distribution, epmd = site.ports
    told = advertised or f"{HOST}:{stream}"
    told_host, _, told_port = told.rpartition(":")
    settings = _SETTINGS.format(host=HOST, amqp=amqp, stream=stream, told_host=told_host, told_port=told_port)
    names = {"ERL_EPMD_PORT": str(epmd), "ERL_EPMD_ADDRESS": HOST}
    return Plan(
        url=f"rabbitmq://guest:guest@{told}?amqp_port={amqp}",
        files={"rabbitmq.conf": settings, "enabled_plugins": "[rabbitmq_stream].\n", "env.conf": ""},
        processes=(
            Process(name="epmd", command=("epmd",), port=epmd, probe=probes.listens, environment=names, is_helper=True),
            Process(
                name="rabbitmq",
                command=(_SERVER,),
                port=stream,
                probe=probes.rabbitmq_stream,
                environment={**names, **_environment(site.folder, distribution)},
            ),
        ),
    )


def _environment(folder: Path, distribution: int) -> dict[str, str]:
    return {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": "rabbit@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONFIG_FILES": str(folder / "conf.d"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),
        # Idle schedulers spin by default, which starves everyone else on a small machine.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
        ),
        "RUNNING_UNDER_SYSTEMD": "true",  # the script then becomes the server, so that its pid is the server's
    }
