"""Validation of what is about the processes themselves: client, api, sensu, transport; with Sensu's sentences."""

from __future__ import annotations

from typing import Any

from lockstep.monitor.settings.aggregates import look_at_own
from lockstep.monitor.settings.checks import look_at_attributes, look_at_source
from lockstep.monitor.settings.rules import (
    Definition,
    Rule,
    are_texts,
    handler_names,
    if_list,
    if_set,
    is_bool,
    is_list,
    is_name,
    is_object,
    is_positive,
    is_set,
    is_text,
    is_whole,
)

_CLIENT = (
    ("name", is_text, "client name must be a string"),
    ("name", is_name, "client name cannot contain spaces or special characters"),
    ("address", is_text, "client address must be a string"),
    ("safe_mode", if_set(is_bool), "client safe_mode must be boolean"),
    ("subscriptions", is_list, "client subscriptions must be an array"),
    ("subscriptions", if_list(are_texts), "client subscriptions must each be a string"),
    ("keepalives", if_set(is_bool), "client keepalives must be boolean"),
    ("redact", if_set(is_list), "client redact must be an array"),
    ("redact", if_list(are_texts), "client redact keys must each be a string"),
    ("signature", if_set(is_text), "client signature must be a string"),
    ("socket", if_set(is_object), "client socket must be a hash"),
    ("http_socket", if_set(is_object), "client http_socket must be a hash"),
    ("keepalive", if_set(is_object), "client keepalive must be a hash"),
    ("registration", if_set(is_object), "client registration must be a hash"),
    ("deregistration", if_set(is_object), "client deregistration must be a hash"),
)
_SOCKET = (
    ("enabled", if_set(is_bool), "client socket enabled must be a boolean"),
    ("bind", if_set(is_text), "client socket bind must be a string"),
    ("port", if_set(is_whole), "client socket port must be an integer"),
)
_HTTP_SOCKET = (
    ("enabled", if_set(is_bool), "client http_socket enabled must be boolean"),
    ("bind", if_set(is_text), "client http_socket bind must be a string"),
    ("port", if_set(is_whole), "client http_socket port must be an integer"),
    ("protect_all_endpoints", if_set(is_bool), "client http_socket protect_all_endpoints must be boolean"),
)
_HTTP_LOGIN = (
    ("user", is_text, "client http_socket user must be a string"),
    ("password", is_text, "client http_socket password must be a string"),
)
_SENSU_SERVER = (
    ("results_pipe", if_set(is_text), "sensu server results_pipe must be a string"),
    ("keepalives_pipe", if_set(is_text), "sensu server keepalives_pipe must be a string"),
    ("max_message_size", if_set(is_whole), "sensu server max_message_size must be an integer"),
)
_TRANSPORT = (
    ("name", is_text, "transport name must be a string"),
    ("reconnect_on_error", if_set(is_bool), "transport reconnect_on_error must be boolean"),
)
_TESSEN = (
    ("enabled", if_set(is_bool), "tessen enabled must be boolean"),
    ("identity_key", if_set(is_text), "tessen identity_key must be a string"),
)
_API = (
    ("port", if_set(is_whole), "api port must be an integer"),
    ("bind", if_set(is_text), "api bind must be a string"),
)
_LOGIN = (
    ("user", is_text, "api user must be a string"),
    ("password", is_text, "api password must be a string"),
)


def _thresholds(scope: str) -> tuple[Rule, ...]:
    return (
        ("warning", if_set(is_whole), f"{scope} warning threshold must be an integer"),
        ("critical", if_set(is_whole), f"{scope} critical threshold must be an integer"),
    )


def look_at_client(settings: Definition) -> None:
    """Note what is wrong with the client."""
    client = settings.inner("client")
    if client is None:
        settings.wrong("client", "client must be a hash")
        return
    client.look(_CLIENT)
    _look_inside(client, "socket", _SOCKET)
    http = _look_inside(client, "http_socket", _HTTP_SOCKET)
    if http is not None and (http.get("user") is not None or http.get("password") is not None):
        http.look(_HTTP_LOGIN)
    for member in ("registration", "deregistration"):
        status: Rule = ("status", if_set(is_whole), f"client {member} status must be an integer")
        _look_inside(client, member, (*handler_names(f"client {member}"), status))
    _keepalive(client)


def look_at_processes(settings: Definition) -> None:
    """Note what is wrong with `sensu` and `transport`."""
    sensu = settings.inner("sensu")
    if sensu is None:
        settings.wrong("sensu", "sensu must be a hash")
    else:
        _sensu(sensu)
    if _look_inside(settings, "transport", _TRANSPORT) is None:
        settings.wrong("transport", "transport must be a hash")


def look_at_api(settings: Definition) -> None:
    """Note what is wrong with `api` and `tessen`, which need not be there."""
    settings.look(
        (
            ("api", if_set(is_object), "api must be a hash"),
            ("tessen", if_set(is_object), "tessen must be a hash"),
        )
    )
    _look_inside(settings, "tessen", _TESSEN)
    api = _look_inside(settings, "api", _API)
    if api is None:
        return
    if api.get("user") is not None or api.get("password") is not None:
        api.look(_LOGIN)
    if api.has("endpoints") and not is_list(api.get("endpoints")):
        api.wrong("endpoints", "api endpoints must be an array")
    for endpoint in api.get("endpoints") if is_list(api.get("endpoints")) else ():
        _endpoint(api, endpoint)


def _endpoint(api: Definition, endpoint: Any) -> None:
    if not is_object(endpoint):
        api.wrong("endpoints", "api endpoints must each be a hash")
        return
    rules: tuple[Rule, ...] = (
        ("host", is_text, "api endpoint host must be a string"),
        ("port", is_whole, "api endpoint port must be an integer"),
        ("ssl", if_set(is_bool), "api endpoint ssl must be a boolean"),
    )
    if is_set(endpoint.get("url")):
        rules = (("url", is_text, "api endpoint url must be a string"),)
    for member, holds, sentence in rules:
        if not holds(endpoint.get(member)):
            api.wrong("endpoints", sentence)


def _look_inside(definition: Definition, member: str, rules: tuple[Rule, ...]) -> Definition | None:
    """Look at the object in a member, if it is one, and return it."""
    inner = definition.inner(member)
    if inner is not None:
        inner.look(rules)
    return inner


def _keepalive(client: Definition) -> None:
    keepalive = client.inner("keepalive")
    if keepalive is None:
        return
    thresholds: Rule = ("thresholds", if_set(is_object), "client keepalive thresholds must be a hash")
    keepalive.look((*handler_names("client keepalive"), thresholds))
    _look_inside(keepalive, "thresholds", _thresholds("client keepalive"))
    look_at_source(keepalive)
    look_at_attributes(keepalive)


def _sensu(sensu: Definition) -> None:
    spawn, keepalives = sensu.inner("spawn"), sensu.inner("keepalives")
    if spawn is None:
        sensu.wrong("spawn", "sensu spawn must be a hash")
    elif not is_whole(spawn.get("limit")):
        spawn.wrong("limit", "sensu spawn limit must be an integer")
    elif not is_positive(spawn.get("limit")):
        spawn.wrong("limit", "sensu spawn limit must be greater than 0")
    if keepalives is None:
        sensu.wrong("keepalives", "sensu keepalives must be a hash")
    else:
        thresholds: Rule = ("thresholds", if_set(is_object), "sensu keepalives thresholds must be a hash")
        keepalives.look((thresholds, *handler_names("sensu keepalives")))
        _look_inside(keepalives, "thresholds", _thresholds("sensu keepalives"))
    if _look_inside(sensu, "server", _SENSU_SERVER) is None and sensu.has("server"):
        sensu.wrong("server", "sensu server must be a hash")
    error_handler: Rule = ("global_error_handler", if_set(is_bool), "sensu global_error_handler must be boolean")
    sensu.look((error_handler,))
    look_at_own(sensu)
