from __future__ import annotations

import forms_strategies as forms
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import ModelUnreadable, ModelUnwritable
from lockstep.engine.model.windows import (
    Channel,
    ContextProperty,
    FieldPlug,
    FilterWindow,
    NotificationWindow,
    PatternOutput,
    RemoveStateWindow,
    SmtpServer,
    UnionWindow,
)
from lockstep.engine.model.xml_reader import parse_xml
from lockstep.engine.model.xml_writer import to_xml

# Projects are large: finding a smaller one that fails too takes longer than reading the first.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
RANDOM = settings(max_examples=30, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("kind", forms.BODIES, ids=lambda kind: kind.kind)
@settings(RANDOM, max_examples=15)
@given(data=st.data())
def test_every_kind_of_window_comes_back_from_xml_as_it_was(kind, data):
    project = forms.project_of(data.draw(forms.windows_of(kind)))
    assert parse_xml(to_xml(project)) == project


@pytest.mark.slow
@RANDOM
@given(project=forms.projects)
def test_projects_come_back_from_xml_as_they_were(project):
    assert parse_xml(to_xml(project)) == project


def model(windows="", edges="", project=""):
    return (
        f"<project name='p'{project}>\n<contqueries>\n<contquery name='q'>\n<windows>\n{windows}\n</windows>\n"
        f"<edges>{edges}</edges>\n</contquery>\n</contqueries>\n</project>\n"
    )


def refused(text):
    with pytest.raises(ModelUnreadable) as caught:
        parse_xml(text, "m.xml")
    params = caught.value.params
    return params["line"], params["column"], params["reason"], params["remedy"]


def only(text):
    (window,) = parse_xml(model(text)).queries[0].windows
    return window


@pytest.mark.parametrize(
    ("text", "line", "column", "reason", "remedy"),
    [
        (model("  <window-sorce name='a'/>"), 5, 3, "the element 'window-sorce' is not known", "window-source"),
        (model("<window-copy name='a'>\n <retain/></window-copy>"), 6, 2, "'retain' is not known", "retention"),
        (model("<window-copy nane='a'/>"), 5, 1, "the attribute 'nane' of window-copy is not known", "name"),
        (model("<window-copy/>"), 5, 1, "window-copy has no attribute 'name'", "Add name="),
        (model("<window-copy name='a'>words</window-copy>"), 5, 1, "a text that belongs nowhere", "Remove"),
        (model("<window-union name='a' strict='maybe'/>"), 5, 1, "'maybe' is neither true nor false", "Write true"),
        (model("<window-source name='a'/>"), 5, 1, "window-source has no schema", "schema-string"),
        (
            model("<window-source name='a'>\n  <schema-string>x:int</schema-string></window-source>"),
            6,
            3,
            "'x:int' must be NAME:TYPE",
            "Write NAME:TYPE",
        ),
        (
            model("<window-copy name='a'>\n<retention type='bytime_sliding'>soon</retention></window-copy>"),
            6,
            1,
            "'soon' is not a duration",
            "Write a number and a unit",
        ),
        (model("<window-geofence name='g'/>"), 5, 1, "'window-geofence' is not supported", "compute window"),
        (model("<window-textcategory name='g'/>"), 5, 1, "'window-textcategory' is not supported", "Python handler"),
        (model("<window-score name='g'/>"), 5, 1, "'window-score' is not supported", "Python handler"),
        (model(edges="\n  <edge source='a'/>"), 8, 3, "edge has no attribute 'target'", "Add target"),
        ("<model/>", 1, 1, "the root element 'model' is not known", "engine or a project"),
        ("<engine><projects/></engine>", 1, 1, "the engine has no project", "Put a project"),
        ("<project name='p'>", 1, 19, "no element found", "Fix the XML"),
        ("", 1, 1, "no element found", "Fix the XML"),
        ("<a>&undefined;</a>", 1, 4, "undefined entity", "Fix the XML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_a_remedy(text, line, column, reason, remedy):
    found = refused(text)
    assert found[:2] == (line, column)
    assert reason in found[2]
    assert remedy in found[3]


def test_columns_count_letters_not_bytes():
    assert refused("<project name='äöü€'><x/></project>")[:2] == (1, 22)


BOMB = "<!DOCTYPE a [<!ENTITY x 'ha'><!ENTITY y '&x;&x;&x;'>]>\n<project name='&y;'/>"
OUTSIDE = "<!DOCTYPE project SYSTEM 'file:///etc/passwd'>\n<project name='p'/>"
READER = (
    "<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>\n<project name='p'><description>&x;</description></project>"
)


@pytest.mark.parametrize(
    "text", [BOMB, OUTSIDE, READER, BOMB.encode("utf-16")], ids=["bomb", "outside", "reader", "utf-16"]
)
def test_document_types_and_entities_are_refused(text):
    assert "a document type is not allowed" in refused(text)[2]


def test_deep_and_large_files_are_refused():
    assert "deeper than 64" in refused("<a>" * 100_000)[2]
    assert "larger than" in refused(b" " * (16 * 1024 * 1024 + 1))[2]


def test_a_model_of_allowed_depth_and_any_encoding_is_read():
    text = "<?xml version='1.0' encoding='ISO-8859-1'?><project name='p'><description>é</description></project>"
    assert parse_xml(text.encode("latin-1")).description == "é"
    assert parse_xml(text).description == "é"


def test_an_engine_around_the_project_gives_it_a_port():
    project = parse_xml(f"<engine port='5555'><description>One</description><projects>{model()}</projects></engine>")
    assert (project.port, project.description, project.name) == (5555, "One", "p")
    assert to_xml(project).startswith('<?xml version="1.0" encoding="UTF-8"?>\n<engine port="5555">')
    assert "<engine" not in to_xml(parse_xml(model()))


def test_several_names_in_an_edge_are_several_edges():
    edges = "<edge source='a b' target='c d' slot='1' role='data'/><edge source='a' target='e'/>"
    found = parse_xml(model(edges=edges)).queries[0].edges
    assert [(edge.source, edge.target, edge.slot, edge.role) for edge in found] == [
        ("a", "c", 1, "data"),
        ("a", "d", 1, "data"),
        ("b", "c", 1, "data"),
        ("b", "d", 1, "data"),
        ("a", "e", -1, None),
    ]


def test_descriptions_lose_the_indentation_of_the_file_and_nothing_else():
    text = "<window-union name='u'>\n  <description>\n    One\n      two\n  </description></window-union>"
    assert only(text).description == "One\n  two"


def test_a_join_may_select_fields_of_a_side_by_name():
    window = only(
        "<window-join name='j'><join type='inner' left-index='pi_EMPTY'><conditions><fields left='a' right='b'/>"
        "</conditions></join><output><left-select>x, y</left-select><right-select>z</right-select>"
        "<field-expr name='s' type='double'>l_x + r_z</field-expr></output></window-join>"
    )
    made = [(field.name, field.source, field.expression) for field in window.fields]
    assert made == [("x", "l_x", None), ("y", "l_y", None), ("z", "r_z", None), ("s", None, "l_x + r_z")]
    assert (window.type, window.conditions, window.left_index) == ("inner", (("a", "b"),), "pi_EMPTY")


def test_aggregates_keep_the_order_of_expressions_and_plugs():
    window = only(
        "<window-aggregate name='a'><schema-string>k*:int32,x:int32,y:int32</schema-string><output>"
        "<field-plug plugin='mine' function='f' additive='true'/><field-expr><![CDATA[ESP_aSum(a) < 3]]></field-expr>"
        "</output></window-aggregate>"
    )
    assert window.fields == (FieldPlug(module="mine", function="f", additive=True), "ESP_aSum(a) < 3")


def test_a_character_that_xml_can_not_hold_is_refused_when_writing():
    with pytest.raises(ModelUnwritable, match="no place for the character"):
        to_xml(forms.project_of(UnionWindow(name="u", description="\x00")))


def test_a_name_that_would_fall_apart_in_a_list_is_refused_when_writing():
    with pytest.raises(ModelUnwritable, match="can't stand in a list"):
        to_xml(forms.project_of(RemoveStateWindow(name="r", remove=("a b",))))


def test_a_password_does_not_belong_into_a_model():
    smtp = "<window-notification name='n'><smtp host='h' password='s3cret'/><delivery-channels/></window-notification>"
    window = only(smtp)
    assert window.smtp.password_variable == "LOCKSTEP_SMTP_PASSWORD"
    assert "s3cret" not in repr(window)
    named = only(smtp.replace("password='s3cret'", "password='s3cret' password-variable='MINE'"))
    assert named.smtp.password_variable == "MINE"


SCHEMAS = """<window-source name='a'><schema-string>id*:int64,x:rstring</schema-string></window-source>
 <window-functional name='b'><schema copy='a'/></window-functional>
 <window-functional name='c'><schema copy='b' copy-keys='false'><fields><field name='k' type='string' key='true'/>
  <field name='x' type='int32'/></fields></schema></window-functional>"""


def test_a_schema_may_be_that_of_another_window_and_more():
    _, b, c = parse_xml(model(SCHEMAS)).queries[0].windows
    assert str(b.schema) == "id*:int64,x:string"
    assert str(c.schema) == "id:int64,k*:string,x:int32"


@pytest.mark.parametrize("origin", ["nobody", "c", "d"])
def test_a_schema_that_can_not_be_copied_is_told(origin):
    text = SCHEMAS.replace("copy='b'", f"copy='{origin}'") + "<window-copy name='d'/>"
    assert "can't be copied" in refused(model(text))[2]


def test_schemas_that_copy_each_other_in_a_long_chain_or_a_circle_are_told_and_do_no_harm():
    chain = "".join(
        f"<window-functional name='w{n}'><schema copy='w{n + 1}'/></window-functional>" for n in range(3_000)
    )
    assert "can't be copied" in refused(model(chain))[2]
    circle = chain.replace("copy='w3000'", "copy='w0'")
    assert "can't be copied" in refused(model(circle))[2]


def test_a_project_without_a_name_has_that_of_its_file():
    text = model(SCHEMAS).replace(" name='p'", "", 1)
    assert parse_xml(text, "/some/where/my trades.xml").name == "my_trades"


def test_the_unit_of_a_lookback_may_stand_alone():
    text = "<window-copy name='c'><retention type='bytime_jumping_lookback' unit='{}'>1 day</retention></window-copy>"
    assert only(text.format("hour")).retention == only(text.format("60 minutes")).retention


def test_a_pattern_is_read_with_its_events_logic_output_and_times():
    window = only(
        """<window-pattern name='twice'>
        <schema><fields><field name='n' type='int64' key='true'/><field name='a' type='int32'/></fields></schema>
        <patterns><pattern name='one' index='symbol, venue' active='false'>
         <events>
          <event source='s' name='e1'>v == symbol and price &gt; 5</event>
          <event source='s' name='e2'>v == symbol</event>
         </events>
         <logic> fby{1 hour}(fby{1 hour}(e1,e2),e3) </logic>
         <output><field-selection name='ID' node='e1'/><field-expr node='e2'>price*2</field-expr></output>
         <timefields><timefield field='time' source='s'/></timefields>
        </pattern></patterns></window-pattern>"""
    )
    (pattern,) = window.patterns
    assert (pattern.name, pattern.index, pattern.is_active) == ("one", ("symbol", "venue"), False)
    assert [event.expression for event in pattern.events] == ["v == symbol and price > 5", "v == symbol"]
    assert pattern.logic == "fby{1 hour}(fby{1 hour}(e1,e2),e3)"
    assert pattern.output == (PatternOutput(node="e1", field="ID"), PatternOutput(node="e2", expression="price*2"))
    assert pattern.time_fields == (("time", "s"),)


def test_a_functional_window_is_read_with_its_context_and_loops():
    window = only(
        """<window-functional name='f' produces-only-inserts='true'>
        <schema-string>id*:string,data:string</schema-string>
        <opcode>insert</opcode><generate>1</generate>
        <function-context>
         <properties><property-map name='m' outer=';' inner='='>$data</property-map></properties>
         <functions><function name='id'>string($id)</function><function name='data'/></functions>
        </function-context>
        <event-loops><event-loop-xml name='items' data='item'><use-xml>#xml</use-xml><xpath>//a</xpath>
         <function-context><functions><function name='id'>$item</function></functions></function-context>
        </event-loop-xml></event-loops></window-functional>"""
    )
    assert (window.opcode, window.generate, window.produces_only_inserts) == ("insert", "1", True)
    assert window.functions == (("id", "string($id)"), ("data", ""))
    assert window.properties == (ContextProperty(name="m", kind="map", text="$data", outer=";", inner="="),)
    (loop,) = window.loops
    assert (loop.kind, loop.use, loop.item, loop.data, loop.functions) == (
        "xml",
        "#xml",
        "//a",
        "item",
        (("id", "$item"),),
    )


def test_a_notification_is_read_with_its_server_and_channels():
    window = only(
        """<window-notification name='n'><smtp host='mail' port='587' user='me' password-variable='MAIL'/>
        <delivery-channels><sms throttle-interval='1 hour' test='true'><deliver>gt($a,1)</deliver>
         <sms-info><sender>me@x</sender><subject>Look</subject><from>me</from><gateway>txt.x</gateway>
          <phone>123</phone></sms-info>
         <sms-contents><text-content name='t'>One</text-content><text-content name='u'>Two</text-content></sms-contents>
        </sms></delivery-channels></window-notification>"""
    )
    assert window.smtp == SmtpServer(host="mail", port=587, user="me", password_variable="MAIL")
    assert window.channels == (
        Channel(
            kind="sms",
            sender="me@x",
            to="123",
            subject="Look",
            body="One\nTwo",
            deliver="gt($a,1)",
            throttle_us=3_600_000_000,
            gateway="txt.x",
            shown_sender="me",
            test=True,
        ),
    )


def test_a_kind_that_esp_does_not_have_is_refused_when_writing():
    channel = Channel(kind="fax", sender="a", to="b")
    window = NotificationWindow(name="n", smtp=SmtpServer(host="h"), channels=(channel,))
    with pytest.raises(ModelUnwritable, match="no channel of kind 'fax'"):
        to_xml(forms.project_of(window))


@pytest.mark.parametrize("text", [" x", "x\n", "\n", "\t", "a\r\nb", "  one\n  two", "&lt;<![CDATA[x]]>"])
def test_blanks_and_signs_in_texts_are_kept(text):
    project = forms.project_of(FilterWindow(name="f", expression=text, description=text))
    assert parse_xml(to_xml(project)) == project
