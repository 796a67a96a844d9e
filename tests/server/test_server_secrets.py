"""What REST and the command line show of a model holds none of its secrets."""

from __future__ import annotations

import pytest

from lockstep.cli import engine_ask
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.parts import Connector
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.values import HIDDEN, is_secret, shown
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.model.xml_elements import render
from lockstep.server.site import model_element

SECRET = ("rmqpassword", "Password", "kafkaglobalconfig", "sslkey", "api_token", "clientSecret", "pass", "rmqsslkey",
          "smtppass", "db_pass", "sslpassphrase", "rmqpwd", "connectstring", "connection-string", "rmquserpw",
          "saslauth", "jaas.options")  # fmt: skip
PLAIN = ("kafkatopic", "rmqhost", "rmquserid", "fsname", "dateformat", "compass", "bypass")


def project(*names: str) -> Project:
    properties = tuple((name, f"value of {name}") for name in names)
    window = SourceWindow(
        name="in",
        schema=Schema.parse("id*:int32"),
        connectors=(Connector(kind="kafka", name="k", properties=properties),),
    )
    query = ContinuousQuery(name="q", windows=(window,))
    return Project(name="p", queries=(query,), metadata=(("api-token", "of the studio"),))


@pytest.mark.parametrize("name", SECRET)
def test_a_property_whose_name_contains_a_word_for_a_secret_is_hidden_everywhere(name):
    hidden, model = f"value of {name}", project(name, *PLAIN)
    text = render(model_element(model))
    shown = engine_ask._shown({"model": to_yaml(model)})["model"]
    for place in (text, shown, repr(model.queries[0].windows[0].connectors[0])):
        assert hidden not in place
        assert "of the studio" not in place
        assert HIDDEN in place
        assert "value of rmqhost" in place


@pytest.mark.parametrize("name", PLAIN)
def test_other_properties_are_shown(name):
    assert not is_secret(name)


HOLDING = {
    "amqp://me:hush@host:5672/v": "amqp://me@host:5672/v",
    "amqp://me:h@u/sh@host": "amqp://me@host",
    "broker=kafka://me:hush@host:9092 x": "broker=kafka://me@host:9092 x",
    "Server=db;Uid=me;Pwd=hush;Port=1": f"Server=db;Uid=me;Pwd={HIDDEN};Port=1",
    "dsn=x;password={hu;sh}": f"dsn=x;password={HIDDEN}",
    "jdbc:x://h/d?user=me&password=hush&a=1": f"jdbc:x://h/d?user=me&password={HIDDEN}&a=1",
    "-Xmx1g -Djavax.net.ssl.keyStorePassword=hush": f"-Xmx1g -Djavax.net.ssl.keyStorePassword={HIDDEN}",
}


@pytest.mark.parametrize(("value", "safe"), HOLDING.items())
def test_a_password_within_a_value_is_hidden_and_the_rest_is_shown(value, safe):
    assert shown("rmqurl", value) == safe


def test_a_model_is_shown_without_the_passwords_within_its_values():
    connector = Connector(kind="db", name="d", properties=(("url", "db://me:hush@host"), ("table", "orders")))
    window = SourceWindow(name="in", schema=Schema.parse("id*:int32"), connectors=(connector,))
    model = Project(name="p", queries=(ContinuousQuery(name="q", windows=(window,)),), metadata=(("x", "pwd=hush"),))
    told = engine_ask._shown({"model": to_yaml(model)})["model"]
    for place in (render(model_element(model)), told, repr(connector)):
        assert "hush" not in place
        assert "db://me@host" in place
