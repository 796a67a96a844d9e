"""Recipes: what is written, what is run, and where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.cli.dev import SERVERS
from lockstep.dev.home import ALL
from lockstep.dev.kafka import kafka
from lockstep.dev.rabbitmq import rabbitmq
from lockstep.dev.recipe import Site
from lockstep.dev.servers import RECIPES, own_environment
from lockstep.errors import BadArgument

FOLDER = Path("/srv/dev")


def planned(recipe):
    ports = tuple(range(20_000, 20_000 + recipe.port_count))
    return recipe.plan(Site(folder=FOLDER, ports=ports, jars=Path("/jars")))


def everything(plan):
    commands = [word for process in plan.processes for word in (*process.command, *process.environment.values())]
    return "\n".join([*plan.files.values(), *commands])


@pytest.mark.parametrize("name", RECIPES)
def test_a_server_listens_on_loopback_only(name):
    plan = planned(RECIPES[name]())
    assert not re.search(r"0\.0\.0\.0|::|\*:\d", everything(plan))
    assert re.search(r"127\.0\.0\.1", everything(plan))


@pytest.mark.parametrize("name", RECIPES)
def test_every_port_is_used_and_no_other(name):
    recipe = RECIPES[name]()
    used = {int(found) for found in re.findall(r"\b20\d{3}\b", everything(planned(recipe)))}
    assert used == set(range(20_000, 20_000 + recipe.port_count))


@pytest.mark.parametrize("name", RECIPES)
def test_files_lie_in_the_servers_folder(name):
    assert all(not Path(file).is_absolute() and ".." not in file for file in planned(RECIPES[name]()).files)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("kafka", "kafka://127.0.0.1:20000"),
        ("kafka3", "kafka://127.0.0.1:20000,127.0.0.1:20001,127.0.0.1:20002"),
        ("rabbitmq", "rabbitmq://guest:guest@127.0.0.1:20000?amqp_port=20001"),
        ("redis", "redis://127.0.0.1:20000"),
        ("hazelcast", "hazelcast://127.0.0.1:20000"),
        ("hazelcast3", "hazelcast://127.0.0.1:20000,127.0.0.1:20001,127.0.0.1:20002"),
        ("zookeeper", "127.0.0.1:20000"),
        ("spark", "spark://127.0.0.1:20000"),
        ("postgresql", "postgresql://lockstep@127.0.0.1:20000/postgres"),
        ("cassandra", "cassandra://127.0.0.1:20000/lockstep"),
    ],
)
def test_the_url_names_where_clients_connect(name, url):
    assert planned(RECIPES[name]()).url == url


def test_three_brokers_keep_three_copies_and_answer_when_two_have_it():
    plan = planned(kafka(brokers=3))
    for number in (1, 2, 3):
        text = plan.files[f"broker-{number}.properties"]
        assert f"node.id={number}\n" in text
        assert "default.replication.factor=3\n" in text
        assert "min.insync.replicas=2\n" in text


def test_clients_are_told_the_address_of_a_proxy():
    assert "CLIENT://127.0.0.1:7777" in planned(kafka(advertised=("127.0.0.1:7777",))).files["broker-1.properties"]
    assert "stream.advertised_port = 7777" in planned(rabbitmq(advertised="127.0.0.1:7777")).files["rabbitmq.conf"]


def test_every_broker_needs_its_own_address():
    with pytest.raises(BadArgument, match="there must be 3, one for each broker"):
        kafka(brokers=3, advertised=("127.0.0.1:7777",))


def test_the_command_line_knows_every_recipe():
    assert set(SERVERS) == set(RECIPES)
    assert set(ALL) <= set(RECIPES)


def test_settings_for_other_servers_are_not_passed_on():
    environ = {"PATH": "/bin", "RABBITMQ_NODE_PORT": "1", "HZ_CLUSTERNAME": "x", "JAVA_HOME": "/java", "HOME": "/root"}
    assert own_environment(environ) == {"PATH": "/java/bin:/bin", "JAVA_HOME": "/java", "HOME": "/root"}
