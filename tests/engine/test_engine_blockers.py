"""Everything that is in the way of a model at once, with lines; names between @ signs; what has no effect."""

from __future__ import annotations

import pytest

from lockstep.connectors.validation import connector_blockers
from lockstep.engine.errors import ModelUnreadable
from lockstep.engine.model.blockers import blockers, without_effect
from lockstep.engine.model.loading import load_model, read_model_file
from lockstep.engine.model.xml_reader import parse_xml, read_xml

HOSTILE = """<engine name="e" port="@port@">
 <http-servers><http-server port="1"/></http-servers>
 <projects>
  <project name="p" threads="4">
   <properties><property name="folder">/data</property></properties>
   <contqueries>
    <contquery name="q" trace="S Gone">
     <windows>
      <window-source name="S" insert-onyl="true">
       <schema><fields>
        <field name="id" type="int64" key="true"/>
        <field name="text" type="rstring"/>
       </fields></schema>
       <connectors>
        <connector class="url" name="web"/>
        <connector class="fs" name="file">
         <properties>
          <property name="type">pub</property>
          <property name="fsname">@folder@/@NOWHERE@.csv</property>
         </properties>
        </connector>
       </connectors>
      </window-source>
      <window-geofence name="G"/>
      <window-aggregate name="A">
       <schema-string>text*:string,n:int64,m:int64</schema-string>
       <output>
        <field-expr>ESP_aCount()</field-expr>
        <field-expr>ESP_aSum(nothing)</field-expr>
       </output>
      </window-aggregate>
      <window-copy name="Alone"/>
     </windows>
     <edges>
      <edge source="S" target="G A"/>
      <edge source="G" target="Nowhere"/>
     </edges>
    </contquery>
   </contqueries>
  </project>
 </projects>
</engine>
"""


def found_in(text, environ=None):
    reading = read_xml(text, "m.xml", variables=environ)
    return [*blockers(reading), *connector_blockers(reading, environ or {})]


def test_every_blocker_is_listed_with_its_line_its_kind_and_what_to_do():
    found = found_in(HOSTILE, {"port": "5555"})
    assert [(one.line, one.kind) for one in found] == [
        (9, "element"),
        (24, "window"),
        (29, "expression"),
        (32, "model"),
        (36, "model"),
        (15, "connector"),
        (16, "variable"),
    ]
    assert all(one.message and one.fix for one in found)
    assert "NOWHERE" in found[-1].message
    assert "environment variable NOWHERE" in found[-1].fix


def test_the_file_as_a_whole_raises_the_first_of_them_and_says_that_there_is_more():
    with pytest.raises(ModelUnreadable, match=r"line 9, .*insert-onyl") as raised:
        parse_xml(HOSTILE, variables={"port": "5555"})
    assert raised.value.__notes__ == ["There is more (1): lockstep model check lists all of it."]


def test_what_changes_nothing_is_told():
    told = {(item.line, item.what) for item in without_effect(read_xml(HOSTILE, "m.xml"))}
    assert told == {
        (2, "the element 'http-servers'"),
        (7, "the trace of 'Gone'"),
    }


def test_a_window_of_an_unknown_kind_causes_no_other_complaints():
    text = """<project name="p"><contqueries><contquery name="q"><windows>
     <window-source name="S"><schema-string>id*:int64</schema-string></window-source>
     <window-geofence name="G"/>
     <window-filter name="F"><expression>anything == 1</expression></window-filter>
     </windows><edges><edge source="S" target="G"/><edge source="G" target="F"/></edges>
     </contquery></contqueries></project>"""
    assert [(one.line, one.kind) for one in found_in(text)] == [(3, "window")]


def test_xml_that_is_none_is_one_blocker():
    [only] = found_in("<project name='p'>\n<contqueries>")
    assert (only.kind, only.line) == ("syntax", 2)


WITH_VARIABLES = """<project name="p">
 <properties><property name="query">first</property><property name="loop">@loop@</property></properties>
 <contqueries><contquery name="@query@"><windows>
  <window-source name="S" index="@INDEX@">
   <description>@LATER@ and @loop@</description>
   <schema-string>id*:int64,mail:string</schema-string>
   <connectors><connector class="fs" name="c"><properties>
    <property name="type">pub</property><property name="fsname">@SECRET@/@query@</property>
   </properties></connector></connectors>
  </window-source>
  <window-filter name="F"><expression>mail == '@SECRET@' or mail == 'a@b@c'</expression></window-filter>
 </windows><edges><edge source="S" target="F"/></edges></contquery></contqueries></project>"""


def test_properties_come_before_the_environment_and_connectors_wait_for_their_engine():
    environ = {"query": "other", "INDEX": "pi_EMPTY", "SECRET": "s3"}
    project = parse_xml(WITH_VARIABLES, variables=environ)
    [query] = project.queries
    source, chosen = query.windows
    assert (query.name, source.index) == ("first", "pi_EMPTY")
    assert source.description == "@LATER@ and @loop@"
    assert chosen.expression == "mail == 's3' or mail == 'a@b@c'"
    # What an environment holds for a connector does not get into the model, which is on the bus for all to read
    assert dict(source.connectors[0].properties)["fsname"] == "@SECRET@/first"


def test_a_name_without_a_value_in_an_attribute_is_a_fault_once_the_environment_is_known():
    assert [(one.line, one.kind) for one in blockers(read_xml(WITH_VARIABLES, "m", variables={}))][:1] == [
        (4, "variable")
    ]
    with pytest.raises(ModelUnreadable, match="index has @INDEX@, which has no value"):
        parse_xml(WITH_VARIABLES, variables={})
    # Who only reads or converts a model keeps such names
    assert parse_xml(WITH_VARIABLES).queries[0].windows[0].index == "@INDEX@"


def test_values_are_not_looked_into_again_and_passwords_may_have_at_signs():
    password = '<property name="rmqpassword">a@b@c</property><property name="rmqhost">@SECRET@</property>'
    text = WITH_VARIABLES.replace('class="fs"', 'class="rmq"').replace('index="@INDEX@"', 'pubsub-index="@INDEX@"')
    text = text.replace('<property name="fsname">@SECRET@/@query@</property>', password)
    environ = {"SECRET": "x@y@z", "INDEX": "@pi@"}
    reading = read_xml(text, "m", variables=environ)
    found = [*blockers(reading), *connector_blockers(reading, environ)]
    assert [one.kind for one in found] == ["model", "connector"], "an index that is none, an exchange that is missing"


def test_the_home_of_a_project_is_the_folder_of_its_file(tmp_path):
    text = WITH_VARIABLES.replace("@INDEX@", "@ESP_PROJECT_HOME@")
    (tmp_path / "m.xml").write_text(text)
    assert load_model(tmp_path / "m.xml", {}).queries[0].windows[0].index == str(tmp_path)
    given = {"ESP_PROJECT_HOME": "/elsewhere"}
    assert load_model(tmp_path / "m.xml", given).queries[0].windows[0].index == "/elsewhere"


ONE = """<project name="{0}"><contqueries><contquery name="q"><windows>
 <window-source name="{1}"><schema-string>id*:int64</schema-string></window-source>
</windows></contquery></contqueries></project>"""
TWO = f"<engine><projects>{ONE.format('one', 'S')}{ONE.format('two', 'T')}</projects></engine>"


def test_one_of_several_projects_is_named_behind_the_file(tmp_path):
    path = tmp_path / "two.xml"
    path.write_text(TWO)
    assert load_model(f"{path}#two").queries[0].windows[0].name == "T"
    with pytest.raises(ModelUnreadable, match=r"2 projects \(one, two\)") as raised:
        load_model(path)
    assert "two.xml#NAME" in str(raised.value)
    with pytest.raises(ModelUnreadable):
        load_model(f"{path}#three")


def test_faults_of_yaml_have_lines_too(tmp_path):
    (tmp_path / "m.yaml").write_text(
        "name: p\nqueries:\n  - name: q\n    windows:\n      - {kind: source, name: S, schema: 'id*:int64'}\n"
        "      - {kind: filter, name: F, expression: 'x == 1'}\n    edges: [S -> F]\n"
    )
    [only] = blockers(read_model_file(tmp_path / "m.yaml"))
    assert (only.line, only.kind, only.place) == (6, "expression", "q/F expression")


def test_a_port_of_a_project_is_taken_and_told():
    found = read_xml(
        "<project name='p' port='9901'><contqueries><contquery name='q'><windows><window-source name='S'>"
        "<schema-string>id*:int64</schema-string></window-source></windows></contquery></contqueries></project>",
        "m.xml",
    )
    assert blockers(found) == []
    assert [(item.line, item.what) for item in without_effect(found)] == [(1, "the attribute 'port' of project")]
