"""Validation of the monitor's settings: each of Sensu's sentences, with its file, name and value, all at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import lockstep.monitor.settings as settings_package
from lockstep.monitor.settings.checks import look_at_result
from lockstep.monitor.settings.errors import SettingsInvalid
from lockstep.monitor.settings.settings import Host, defaults, load
from lockstep.monitor.settings.validation import faults_of, look_at

CHECK = {"command": "true", "interval": 60, "subscribers": ["all"]}
PIPE = {"type": "pipe", "command": "cat"}
HOST = Host("web-1", "10.0.0.1")


def check(**members):
    return {"checks": {"c": {name: value for name, value in {**CHECK, **members}.items() if value is not ...}}}


def handler(**members):
    return {"handlers": {"h": {**PIPE, **members}}}


def subdue(days):
    return check(subdue={"days": days})


def client(**members):
    return {"client": {"name": "web-1", "address": "10.0.0.1", "subscriptions": ["all"], **members}}


def sensu(**members):
    return {"sensu": {"spawn": {"limit": 12}, "keepalives": {}, **members}}


def aggregate(**members):
    return {"aggregates": {"a": members}}


BAD = [
    ({"sensu": 1}, "sensu must be a hash"),
    (sensu(spawn=1), "sensu spawn must be a hash"),
    (sensu(spawn={"limit": "12"}), "sensu spawn limit must be an integer"),
    (sensu(spawn={"limit": 0}), "sensu spawn limit must be greater than 0"),
    (sensu(keepalives=1), "sensu keepalives must be a hash"),
    (sensu(keepalives={"thresholds": 1}), "sensu keepalives thresholds must be a hash"),
    (sensu(keepalives={"thresholds": {"warning": "1"}}), "sensu keepalives warning threshold must be an integer"),
    (sensu(keepalives={"thresholds": {"critical": 1.5}}), "sensu keepalives critical threshold must be an integer"),
    (sensu(keepalives={"handler": 1}), "sensu keepalives handler must be a string"),
    (sensu(keepalives={"handlers": "x"}), "sensu keepalives handlers must be an array"),
    (sensu(keepalives={"handlers": [1]}), "sensu keepalives handlers must each be a string"),
    (sensu(server=1), "sensu server must be a hash"),
    (sensu(server={"results_pipe": 1}), "sensu server results_pipe must be a string"),
    (sensu(server={"keepalives_pipe": 1}), "sensu server keepalives_pipe must be a string"),
    (sensu(server={"max_message_size": "1"}), "sensu server max_message_size must be an integer"),
    (sensu(global_error_handler=1), "sensu global_error_handler must be boolean"),
    ({"transport": []}, "transport must be a hash"),
    ({"transport": {"name": 1}}, "transport name must be a string"),
    ({"transport": {"name": "x", "reconnect_on_error": "yes"}}, "transport reconnect_on_error must be boolean"),
    ({"tessen": 1}, "tessen must be a hash"),
    ({"tessen": {"enabled": 1}}, "tessen enabled must be boolean"),
    ({"tessen": {"identity_key": 1}}, "tessen identity_key must be a string"),
    ({"api": 1}, "api must be a hash"),
    ({"api": {"port": "4567"}}, "api port must be an integer"),
    ({"api": {"bind": 1}}, "api bind must be a string"),
    ({"api": {"user": 1, "password": "x"}}, "api user must be a string"),
    ({"api": {"user": "x"}}, "api password must be a string"),
    ({"api": {"endpoints": {}}}, "api endpoints must be an array"),
    ({"api": {"endpoints": [1]}}, "api endpoints must each be a hash"),
    ({"api": {"endpoints": [{"url": 1}]}}, "api endpoint url must be a string"),
    ({"api": {"endpoints": [{"port": 1}]}}, "api endpoint host must be a string"),
    ({"api": {"endpoints": [{"host": "h"}]}}, "api endpoint port must be an integer"),
    ({"api": {"endpoints": [{"host": "h", "port": 1, "ssl": 1}]}}, "api endpoint ssl must be a boolean"),
    ({"checks": []}, "checks must be a hash"),
    ({"filters": 1}, "filters must be a hash"),
    ({"mutators": 1}, "mutators must be a hash"),
    ({"handlers": 1}, "handlers must be a hash"),
    ({"extensions": 1}, "extensions must be a hash"),
    ({"checks": {"c": 1}}, "check must be a hash"),
    ({"filters": {"f": 1}}, "filter must be a hash"),
    ({"mutators": {"m": 1}}, "mutator must be a hash"),
    ({"handlers": {"h": 1}}, "handler must be a hash"),
    ({"extensions": {"e": 1}}, "extension must be a hash"),
    ({"checks": {"a check": CHECK}}, "check name cannot contain spaces or special characters"),
    ({"checks": {"new\nline": CHECK}}, "check name cannot contain spaces or special characters"),
    ({"checks": {"größe": CHECK}}, "check name cannot contain spaces or special characters"),
    (check(command=1), "check command must be a string"),
    (check(command=..., extension=1), "check extension must be a string"),
    (check(command=...), "either check command or extension must be set"),
    (check(extension="x"), "either check command or extension must be set"),
    (check(timeout="10"), "check timeout must be numeric"),
    (check(timeout=True), "check timeout must be numeric"),
    (check(stdin=1), "check stdin must be boolean"),
    (check(source=1), "check source must be a string"),
    (check(source="a b"), "check source cannot contain spaces, special characters, or invalid tokens"),
    (check(publish=1), "check publish must be boolean"),
    (check(interval="60"), "check interval must be an integer greater than 0"),
    (check(interval=0), "check interval must be an integer greater than 0"),
    (check(interval=True), "check interval must be an integer greater than 0"),
    (check(interval=...), "check interval must be an integer greater than 0"),
    (check(cron=1), "check cron must be a string"),
    (check(cron="every day"), "check cron string must use the cron syntax"),
    (check(standalone=1), "check standalone must be boolean"),
    (check(subscribers=...), "check subscribers must be an array"),
    (check(subscribers=["a", ""]), "check subscribers must each be a string"),
    (check(proxy_requests=1), "check proxy_requests must be a hash"),
    (check(proxy_requests={}), "check proxy_requests client_attributes must be a hash"),
    (check(proxy_requests={"client_attributes": {}, "splay": 1}), "check proxy_requests splay must be boolean"),
    (
        check(proxy_requests={"client_attributes": {}, "splay_coverage": 100}),
        "check proxy_requests splay_coverage must be an integer greater than 0 and less than 100",
    ),
    (check(handler=1), "check handler must be a string"),
    (check(handlers="x"), "check handlers must be an array"),
    (check(handlers=[1]), "check handlers must each be a string"),
    (check(ttl="30"), "check ttl must be an integer"),
    (check(ttl=-1), "check ttl must be greater than 0"),
    (check(ttl=30, ttl_status="1"), "check ttl_status must be an integer"),
    (check(aggregates="x"), "check aggregates must be an array"),
    (
        check(aggregates=["a b"]),
        "check aggregates items must be strings without spaces or special characters",
    ),
    (check(aggregate="a b"), "check aggregate cannot contain spaces or special characters"),
    (check(aggregate=1), "check aggregate must be a string (name) or boolean"),
    (check(high_flap_threshold=60), "check low flap threshold must be an integer"),
    (check(low_flap_threshold=20, high_flap_threshold="60"), "check high flap threshold must be an integer"),
    (check(hooks=1), "check hooks must be a hash"),
    (check(hooks={"256": {"command": "x"}}), "check hook key must be a severity, status, or 'non-zero'"),
    (check(hooks={"ok": 1}), "check hook must be a hash"),
    (check(hooks={"ok": {}}), "check hook command must be a string"),
    (check(hooks={"ok": {"command": "x", "timeout": "1"}}), "check hook timeout must be numeric"),
    (check(hooks={"ok": {"command": "x", "stdin": 1}}), "check hook stdin must be boolean"),
    (check(truncate_output=1), "check truncate_output must be boolean"),
    (check(truncate_output_length=0), "check truncate_output_length must be an integer greater than 0"),
    (check(subdue=1), "check subdue must be a hash"),
    (check(subdue={}), "check subdue days must be a hash"),
    (subdue({}), "check subdue days must include at least one day of the week or 'all'"),
    (subdue({"funday": []}), "check subdue days must be valid days of the week or 'all'"),
    (subdue({"all": {}}), "check subdue days all must be in an array"),
    (subdue({"monday": []}), "check subdue days monday must include at least one time window"),
    (subdue({"all": [1]}), "check subdue day time window must be a hash"),
    (subdue({"all": [{"begin": "9:00"}]}), "check subdue day time window begin and end times must be valid"),
    (
        subdue({"all": [{"begin": "9:00", "end": "soon"}]}),
        "check subdue day time window begin and end times must be valid",
    ),
    ({"filters": {"f": {"attributes": {}, "negate": 1}}}, "filter negate must be boolean"),
    ({"filters": {"f": {}}}, "filter attributes must be a hash"),
    ({"filters": {"f": {"attributes": {}, "when": 1}}}, "filter when must be a hash"),
    ({"filters": {"f": {"attributes": {}, "when": {"days": 1}}}}, "filter when days must be a hash"),
    ({"mutators": {"m": {}}}, "mutator command must be a string"),
    ({"mutators": {"m": {"command": "x", "timeout": "1"}}}, "mutator timeout must be numeric"),
    ({"extensions": {"e": {"gem": 1}}}, "extension gem must be a string"),
    ({"extensions": {"e": {"version": 1}}}, "extension version must be a string"),
    (handler(type=1), "handler type must be a string"),
    (handler(type="pigeon"), "unknown handler type"),
    (handler(command=1), "handler command must be a string"),
    (handler(type="tcp"), "handler socket must be a hash"),
    (handler(type="udp", socket={"port": 1}), "handler host must be a string"),
    (handler(type="tcp", socket={"host": "h", "port": "1"}), "handler port must be an integer"),
    (handler(type="transport"), "handler transport pipe must be a hash"),
    (handler(type="transport", pipe={"name": "p"}), "handler transport pipe type must be a string"),
    (handler(type="transport", pipe={"name": "p", "type": "x"}), "handler transport pipe type is invalid"),
    (handler(type="transport", pipe={"type": "topic"}), "handler transport pipe name must be a string"),
    (
        handler(type="transport", pipe={"type": "topic", "name": "p", "options": 1}),
        "handler transport pipe options must be a hash",
    ),
    (handler(type="set"), "handler set handlers must be an array"),
    (handler(type="set", handlers=[1]), "handler set handlers must each be a string"),
    (handler(type="http"), "handler url must be a string"),
    (handler(type="stream"), "handler stream must be a string"),
    (handler(type="mail"), "handler to must be a string or an array"),
    (handler(type="python"), "handler function must be a string"),
    (handler(filters="x"), "handler filters must be an array"),
    (handler(filters=[1]), "handler filters items must be strings"),
    (handler(filter=1), "handler filter must be a string"),
    (handler(severities="ok"), "handler severities must be an array"),
    (handler(severities=["fatal"]), "handler severities are invalid"),
    (handler(timeout="1"), "handler timeout must be numeric"),
    (handler(mutator=1), "handler mutator must be a string"),
    (handler(handle_flapping=1), "handler handle_flapping must be boolean"),
    (handler(handle_silenced=1), "handler handle_silenced must be boolean"),
    (handler(notify="never"), "handler notify must be each or change"),
    ({"client": 1}, "client must be a hash"),
    (client(name=1), "client name must be a string"),
    (client(name="web 1"), "client name cannot contain spaces or special characters"),
    (client(address=None), "client address must be a string"),
    (client(safe_mode="on"), "client safe_mode must be boolean"),
    (client(subscriptions="all"), "client subscriptions must be an array"),
    (client(subscriptions=["all", ""]), "client subscriptions must each be a string"),
    (client(keepalives=1), "client keepalives must be boolean"),
    (client(redact="x"), "client redact must be an array"),
    (client(redact=[1]), "client redact keys must each be a string"),
    (client(signature=1), "client signature must be a string"),
    (client(socket=1), "client socket must be a hash"),
    (client(socket={"enabled": 1}), "client socket enabled must be a boolean"),
    (client(socket={"bind": 1}), "client socket bind must be a string"),
    (client(socket={"port": "3030"}), "client socket port must be an integer"),
    (client(http_socket=1), "client http_socket must be a hash"),
    (client(http_socket={"enabled": 1}), "client http_socket enabled must be boolean"),
    (client(http_socket={"bind": 1}), "client http_socket bind must be a string"),
    (client(http_socket={"port": "1"}), "client http_socket port must be an integer"),
    (client(http_socket={"password": "x"}), "client http_socket user must be a string"),
    (client(http_socket={"user": "x"}), "client http_socket password must be a string"),
    (client(http_socket={"protect_all_endpoints": 1}), "client http_socket protect_all_endpoints must be boolean"),
    (client(keepalive=1), "client keepalive must be a hash"),
    (client(keepalive={"handler": 1}), "client keepalive handler must be a string"),
    (client(keepalive={"handlers": "x"}), "client keepalive handlers must be an array"),
    (client(keepalive={"handlers": [1]}), "client keepalive handlers must each be a string"),
    (client(keepalive={"thresholds": 1}), "client keepalive thresholds must be a hash"),
    (client(keepalive={"thresholds": {"warning": "1"}}), "client keepalive warning threshold must be an integer"),
    (client(keepalive={"thresholds": {"critical": "1"}}), "client keepalive critical threshold must be an integer"),
    (client(keepalive={"source": 1}), "check source must be a string"),
    (client(registration=1), "client registration must be a hash"),
    (client(registration={"handler": 1}), "client registration handler must be a string"),
    (client(registration={"handlers": "x"}), "client registration handlers must be an array"),
    (client(registration={"handlers": [1]}), "client registration handlers must each be a string"),
    (client(registration={"status": "1"}), "client registration status must be an integer"),
    (client(deregistration=1), "client deregistration must be a hash"),
    (client(deregistration={"handler": 1}), "client deregistration handler must be a string"),
    (client(deregistration={"handlers": "x"}), "client deregistration handlers must be an array"),
    (client(deregistration={"handlers": [1]}), "client deregistration handlers must each be a string"),
    (client(deregistration={"status": "1"}), "client deregistration status must be an integer"),
]
OWN = [
    ({"aggregates": []}, "aggregates must be a hash"),
    ({"aggregates": {"a": 1}}, "aggregate must be a hash"),
    ({"aggregates": {"a b": {}}}, "aggregate name cannot contain spaces or special characters"),
    (aggregate(warning=1), "aggregate warning must be a comparison such as '>= 1' or '>= 50%'"),
    (aggregate(critical=">= 50 percent"), "aggregate critical must be a comparison such as '>= 1' or '>= 50%'"),
    (aggregate(severities="ok"), "aggregate severities must be an array"),
    (aggregate(severities=["bad"]), "aggregate severities are invalid"),
    (aggregate(interval=0), "aggregate interval must be an integer greater than 0"),
    (aggregate(max_age="1"), "aggregate max_age must be an integer greater than 0"),
    (aggregate(handler=1), "aggregate handler must be a string"),
    (aggregate(handlers="x"), "aggregate handlers must be an array"),
    (aggregate(handlers=[1]), "aggregate handlers must each be a string"),
    (sensu(notify="changes"), "sensu notify must be each or change"),
    (sensu(timezone="Europe/Nowhere"), "sensu timezone must be the name of a time zone"),
]
"""What Sensu does not have."""
BAD_RESULTS = [
    ({"output": 1, "status": 0, "executed": 1, "name": "a"}, "check output must be a string"),
    ({"output": "", "status": "0", "executed": 1, "name": "a"}, "check status must be an integer"),
    ({"output": "", "status": 0, "executed": "1", "name": "a"}, "check executed timestamp must be an integer"),
    ({"output": "", "status": 0, "executed": 1}, "check name must be a string"),
]


def found(document):
    return [fault.sentence for fault in faults_of({**defaults(), **document}, with_client="client" in document)]


@pytest.mark.parametrize(("document", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_a_sentence_of_sensu(document, sentence):
    assert sentence in found(document)


@pytest.mark.parametrize(("document", "sentence"), OWN, ids=[sentence for _, sentence in OWN])
def test_a_sentence_of_ours(document, sentence):
    assert found(document) == [sentence]


@pytest.mark.parametrize(("result", "sentence"), BAD_RESULTS, ids=[sentence for _, sentence in BAD_RESULTS])
def test_a_sentence_about_a_result(result, sentence):
    assert [fault.sentence for fault in look_at(look_at_result, result)][:1] == [sentence]


def test_every_sentence_of_the_code_is_one_of_those_above():
    folder = Path(settings_package.__file__).parent
    code = "".join(
        (folder / f"{name}.py").read_text() for name in ("checks", "handlers", "services", "validation", "aggregates")
    )
    scopes = "check|client|handler|mutator|filter|extension|api|sensu|transport|tessen|either|aggregate|unknown"
    written = set(re.findall(rf'"((?:{scopes})[a-z_()\' ,0-9]* (?:must|cannot|are|is|type)[^"{{}}]*)"', code))
    known = {sentence for _, sentence in (*BAD, *OWN, *BAD_RESULTS)}
    assert len(written) > 110
    assert written - known == set()


@pytest.mark.parametrize(
    "document",
    [
        check(),
        check(command=..., extension="x"),
        check(interval=..., cron="*/5 * * * *"),
        check(interval=..., publish=False),
        check(subscribers=..., standalone=True),
        check(source="router-:::site|a:::"),
        check(aggregate=True, aggregates=["a:b|c"]),
        check(hooks={"0": {"command": "x"}, "255": {"command": "x"}, "non-zero": {"command": "x", "timeout": 1}}),
        check(ttl=None, low_flap_threshold=20, high_flap_threshold=60),
        subdue({"all": [{"begin": "05:00 PM", "end": "09:00 AM"}], "sunday": [{"begin": "00:00", "end": "23:59:59"}]}),
        subdue({"all": [{"begin": "5 PM EST", "end": "21:00 +0200"}]}),
        handler(severities=[], filters=[]),
        handler(type="transport", pipe={"type": "topic", "name": "p", "options": {"durable": True}}),
        handler(type="mail", to=["a@b", "c@d"]),
        {"filters": {"f": {"attributes": {"a": 1}, "negate": True}}},
        aggregate(warning=">= 1", critical="> 33.3 %", severities=["critical"], interval=5, max_age=60, handlers=["x"]),
        aggregate(max_age=60),
        sensu(notify="change", timezone="Europe/Paris"),
        check(notify="the team", timezone="of the team"),
        client(),
        client(keepalive={"thresholds": {"warning": 1}}, redact=["x"], socket={}, http_socket={"enabled": False}),
    ],
    ids=str,
)
def test_what_is_valid(document):
    assert found(document) == []


def test_all_faults_come_at_once_each_with_file_name_and_value(tmp_path):
    # Given two files with faults, and one that is no JSON
    (tmp_path / "a.json").write_text(json.dumps(check(interval="60", command=1)))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.json").write_text(json.dumps({"handlers": {"h": {"type": "pigeon", "password": "geheim"}}}))
    (tmp_path / "c.json").write_text('{"checks": ')
    # When they are loaded
    with pytest.raises(SettingsInvalid) as error:
        load([tmp_path], {}, host=HOST, is_client=False)
    # Then each fault is a line, and the exit code is 2
    lines = str(error.value).splitlines()
    assert error.value.exit_code == 2
    assert f'  {tmp_path}/a.json: checks.c.interval = "60": check interval must be an integer greater than 0' in lines
    assert f"  {tmp_path}/a.json: checks.c.command = 1: check command must be a string" in lines
    assert f'  {tmp_path}/sub/b.json: handlers.h.type = "pigeon": unknown handler type' in lines
    assert any(f"{tmp_path}/c.json: config file must be valid json" in line for line in lines)
    assert "geheim" not in str(error.value)


def test_the_last_file_that_gave_a_value_is_named(tmp_path):
    (tmp_path / "1.json").write_text(json.dumps(check()))
    (tmp_path / "2.json").write_text(json.dumps({"checks": {"c": {"interval": -1}}}))
    with pytest.raises(SettingsInvalid) as error:
        load([tmp_path], {}, host=HOST, is_client=False)
    assert [(fault.file, fault.name, fault.value) for fault in error.value.faults] == [
        (str(tmp_path / "2.json"), "checks.c.interval", -1)
    ]


def test_a_missing_value_is_named_with_the_file_of_its_definition(tmp_path):
    (tmp_path / "1.json").write_text(json.dumps(check(interval=...)))
    with pytest.raises(SettingsInvalid) as error:
        load([tmp_path], {}, host=HOST, is_client=False)
    assert "1.json: checks.c.interval = (not set): check interval must be" in str(error.value)
