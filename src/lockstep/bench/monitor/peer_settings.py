"""Settings of other monitors: passive services, and a notification for each change of state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def _object(kind: str, fields: Mapping[str, object]) -> str:
    return "\n".join([f"define {kind}{{", *(f" {name} {value}" for name, value in fields.items()), "}", ""])


def nagios_objects(folder: Path, services: Sequence[tuple[str, str]]) -> str:
    """Hosts, services, and a command that adds the output to a file."""
    tell = f'/bin/echo "$SERVICEOUTPUT$" >> {folder}/told'
    always = {"timeperiod_name": "always", "alias": "always", **dict.fromkeys(_DAYS, "00:00-24:00")}
    contact = {
        "contact_name": "sink", "service_notification_commands": "tell", "host_notification_commands": "none",
        "service_notification_period": "always", "host_notification_period": "always",
        "service_notification_options": "w,u,c", "host_notification_options": "n",
    }  # fmt: skip
    common = {
        "check_command": "none", "max_check_attempts": 1, "active_checks_enabled": 0, "check_period": "always",
        "contacts": "sink",
    }  # fmt: skip
    made = [
        _object("command", {"command_name": "none", "command_line": "/bin/true"}),
        _object("command", {"command_name": "tell", "command_line": tell}),
        _object("timeperiod", always),
        _object("contact", contact),
    ]
    made += [
        _object("host", {"host_name": host, "address": "127.0.0.1", "notifications_enabled": 0, **common})
        for host in dict.fromkeys(host for host, _ in services)
    ]
    own = {"notification_period": "always", "notification_interval": 0, "notification_options": "w,u,c"}
    made += [
        _object("service", {"host_name": host, "service_description": name, **common, **own}) for host, name in services
    ]
    return "".join(made)


def nagios_main(folder: Path) -> str:
    """As for a large site: nothing logged for each result, the spool looked at each second."""
    var = folder / "var"
    lines = {
        "log_file": var / "nagios.log", "cfg_file": folder / "objects.cfg", "object_cache_file": var / "objects.cache",
        "precached_object_file": var / "objects.precache", "status_file": var / "status.dat",
        "status_update_interval": 5, "nagios_user": "root", "nagios_group": "root", "check_external_commands": 0,
        "command_file": var / "nagios.cmd", "lock_file": var / "nagios.lock", "temp_file": var / "nagios.tmp",
        "temp_path": var, "log_rotation_method": "n", "log_archive_path": var, "use_syslog": 0, "log_notifications": 0,
        "log_service_retries": 0, "log_passive_checks": 0, "check_result_path": folder / "spool",
        "check_result_reaper_frequency": 1, "max_check_result_reaper_time": 10, "max_check_result_file_age": 3600,
        "state_retention_file": var / "retention.dat", "retain_state_information": 1, "retention_update_interval": 1,
        "enable_notifications": 1, "execute_service_checks": 0, "accept_passive_service_checks": 1,
        "execute_host_checks": 0, "enable_event_handlers": 0, "enable_flap_detection": 0, "check_for_updates": 0,
        "query_socket": var / "nagios.qh", "illegal_macro_output_chars": "`~$&|'\"<>",
    }  # fmt: skip
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def icinga(folder: Path, services: Sequence[tuple[str, str]]) -> str:
    """Hosts and services without active checks, and a command that adds the output to a file."""
    lines = [
        'const NodeName = "bench"',
        "include <itl>",
        'object CheckerComponent "checker" { }',
        'object NotificationComponent "notification" { }',
        f'object ExternalCommandListener "command" {{ command_path = "{folder}/run/icinga2.cmd" }}',
        'object NotificationCommand "tell" {',
        f'  command = [ "/bin/sh", "-c", "echo \\"$$TOLD\\" >> {folder}/told" ]',
        '  env.TOLD = "$service.output$"',
        "}",
        'object User "sink" { }',
        'object CheckCommand "none" { command = [ "/bin/true" ] }',
    ]
    lines += [
        f'object Host "{host}" {{ check_command = "none"; enable_active_checks = false }}'
        for host in dict.fromkeys(host for host, _ in services)
    ]
    for host, name in services:
        passive = 'check_command = "none"; enable_active_checks = false; max_check_attempts = 1'
        of = f'host_name = "{host}"'
        when = "interval = 0; states = [ Warning, Critical, Unknown ]; types = [ Problem ]"
        tell = f'service_name = "{name}"; command = "tell"; users = [ "sink" ]'
        lines += [
            f'object Service "{name}" {{ {of}; {passive}; enable_flapping = false }}',
            f'object Notification "tell-{name}" {{ {of}; {tell}; {when} }}',
        ]
    return "\n".join([*lines, ""])


def icinga_constants(folder: Path) -> dict[str, object]:
    """Where it keeps its files, and as whom it runs."""
    return {
        "RunAsUser": "root", "RunAsGroup": "root", "DataDir": folder / "data", "LogDir": folder / "log",
        "CacheDir": folder / "cache", "SpoolDir": folder / "spool", "InitRunDir": folder / "run", "ConfigDir": folder,
        "VarsPath": folder / "cache" / "vars", "ObjectsPath": folder / "cache" / "objects",
        "StatePath": folder / "data" / "state", "ModAttrPath": folder / "data" / "modattr",
        "PidPath": folder / "run" / "pid",
    }  # fmt: skip


def alertmanager(url: str) -> str:
    """Each alert is a group of its own and is sent at once."""
    return f"""route:
  receiver: sink
  group_by: ['...']
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 4h
receivers:
- name: sink
  webhook_configs:
  - url: {url}
    send_resolved: false
"""
