"""What REST and the command line show of a model holds none of its secrets."""

from __future__ import annotations

import pytest

from lockstep.cli import engine_ask
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.parts import HIDDEN, Connector, is_secret
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.model.xml_common import render
from lockstep.server.site import model_element

SECRET = ("rmqpassword", "Password", "kafkaglobalconfig", "sslkey", "api_token", "clientSecret", "pass", "rmqsslkey")
PLAIN = ("kafkatopic", "rmqhost", "rmquserid", "fsname", "dateformat", "compass")


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
