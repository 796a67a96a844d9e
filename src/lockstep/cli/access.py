"""Tokens of the console: create, list, rotate and revoke them; and the audit log."""

from __future__ import annotations

import argparse
import getpass
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from lockstep.cli import values as kinds
from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output, confirm
from lockstep.cli.parser import Noun, Verb
from lockstep.cli.values import iso

if TYPE_CHECKING:
    from lockstep.console.credentials import CredentialStore
    from lockstep.server.access import Credential

OUTCOMES = ("begun", "done", "refused", "failed")
ROLES = ("viewer", "operator", "admin")
Note = Callable[[str, str, str], object]
LIFETIME_DEFAULT_S = 90 * 86_400.0


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="who uses the token")
    parser.add_argument("--role", choices=ROLES, default="viewer", help="viewer looks, operator changes what runs, "
                        "admin deletes and gives tokens (viewer)")  # fmt: skip
    parser.add_argument("--scope", metavar="AREAS", default="*", help="as streams,groups,projects (everywhere)")
    parser.add_argument("--expires", type=kinds.duration, default=LIFETIME_DEFAULT_S, metavar="TIME",
                        help="after how long it ends, as 12h or 90d (90d)")  # fmt: skip


def _token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="its id, or its name if no other has it")
    kinds.add_destructive(parser)


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="its id, or its name if no other has it")


def _audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--who", metavar="NAME", help="changes of this name only")
    parser.add_argument("--outcome", choices=OUTCOMES, help="changes with this outcome only")
    parser.add_argument("-n", "--last", type=kinds.positive, default=50, metavar="N", help="so many (50)")


def _nothing(_parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


ACCESS = Noun(
    name="access",
    purpose="Who may do what at the server of 'lockstep serve': tokens with roles, and the audit log.",
    verbs=(
        Verb(
            name="add",
            purpose="Make a token and print its secret, which is not stored and not shown again.",
            run="lockstep.cli.access:add",
            arguments=_add,
            examples=(
                "lockstep access add ada --role admin",
                "lockstep access add probe --scope streams --expires 12h",
            ),
        ),
        Verb(
            name="ls",
            purpose="List the tokens that are valid; no secrets.",
            run="lockstep.cli.access:ls",
            arguments=_nothing,
            examples=("lockstep access ls", "lockstep access ls --json"),
        ),
        Verb(
            name="show",
            purpose="Show one token; not its secret, which nobody can show.",
            run="lockstep.cli.access:show",
            arguments=_show,
            examples=("lockstep access show ada", "lockstep access show ada --json"),
        ),
        Verb(
            name="rotate",
            purpose="Give a token a new secret; the old one is refused from then on.",
            run="lockstep.cli.access:rotate",
            arguments=_token,
            examples=("lockstep access rotate ada", "lockstep access rotate ada --yes --json"),
        ),
        Verb(
            name="revoke",
            purpose="End a token, and the sessions that were begun with it.",
            run="lockstep.cli.access:revoke",
            arguments=_token,
            examples=("lockstep access revoke ada", "lockstep access revoke ada --yes"),
        ),
        Verb(
            name="audit",
            purpose="Show the last changes that were made at the server: who, what, from where.",
            run="lockstep.cli.access:audit",
            arguments=_audit,
            examples=("lockstep access audit", "lockstep access audit -n 500 --outcome done --json"),
        ),
    ),
)


@contextmanager
def _store(options: argparse.Namespace, *, create: bool = False) -> Iterator[tuple[CredentialStore, Note]]:
    """The tokens, and a function that notes a change in the audit log."""
    from lockstep.console.audit import AuditLog
    from lockstep.console.credentials import CredentialStore
    from lockstep.server.access import Principal, Role

    with opened(bus_url(options), create=create, lasting=create) as client, ExitStack() as closing:
        store = CredentialStore(client, client.runtime)
        closing.callback(store.close)
        log = AuditLog(client, client.runtime, socket.gethostname())
        closing.callback(log.close)
        user = Principal(f"{getpass.getuser()} (command line)", Role.ADMIN)
        yield store, lambda what, path, outcome: log.event(user, "", what, path, outcome)


def add(options: argparse.Namespace, output: Output) -> None:
    """Make a token."""
    from lockstep.server.access import Role

    scope = [part.strip() for part in options.scope.split(",") if part.strip()]
    with _store(options, create=True) as (store, note):
        note("New token", f"/access/{options.name}", "begun")
        made, secret = store.issue(options.name, Role.named(options.role), scope, options.expires)
        note("New token", f"/access/{made.id}", "done")
    if output.json:
        output.json_line({"id": made.id, "name": made.name, "role": made.role.label, "secret": secret})
        return
    output.note(f"Token {made.id} of {made.name}, {made.role.label}. Copy its secret now: it is not shown again.")
    output.line(secret)


def ls(options: argparse.Namespace, output: Output) -> None:
    """List tokens."""
    with _store(options) as (store, _):
        found = store.tokens()
    if output.json:
        for known in found:
            output.json_line(_row(known))
        return
    if not found:
        output.note("There are no tokens: 'lockstep access add NAME --role admin' makes one.")
        return
    rows = [[known.name, known.id, known.role.label, ", ".join(known.scope), _shown(known.created_ms),
             _shown(known.expires_ms)] for known in found]  # fmt: skip
    output.table(["name", "id", "role", "scope", "made", "expires"], rows)


def show(options: argparse.Namespace, output: Output) -> None:
    """Show one token."""
    with _store(options) as (store, _):
        known = store.found(options.token)
    if output.json:
        output.json_line(_row(known))
        return
    output.facts({
        "id": known.id, "name": known.name, "role": known.role.label, "scope": ", ".join(known.scope),
        "made": _shown(known.created_ms), "expires": _shown(known.expires_ms) or "never",
    })  # fmt: skip


def _row(known: Credential) -> dict[str, Any]:
    return {name: value for name, value in known.dump().items() if name not in ("digest", "token")}


def rotate(options: argparse.Namespace, output: Output) -> None:
    """Change a secret."""
    with _store(options) as (store, note):
        known = store.found(options.token)
        if options.dry_run:
            output.line(f"Would give the token of {known.name} a new secret, and end its sessions.")
            return
        confirm(options, known.name, f"end the secret of token {known.id} of {known.name}, and its sessions")
        note("New secret", f"/access/{known.id}", "begun")
        made, secret = store.rotate(known.id)
        note("New secret", f"/access/{known.id}", "done")
    if output.json:
        output.json_line({"id": made.id, "name": made.name, "secret": secret})
        return
    output.note(f"The new secret of {made.name}. Copy it now: it is not shown again.")
    output.line(secret)


def revoke(options: argparse.Namespace, output: Output) -> None:
    """End a token."""
    with _store(options) as (store, note):
        known = store.found(options.token)
        if not options.dry_run:
            confirm(options, known.name, f"end token {known.id} of {known.name}, and its sessions")
            note("Revoke", f"/access/{known.id}", "begun")
            store.revoke(known.id)
            note("Revoke", f"/access/{known.id}", "done")
    if output.json:
        output.json_line({"id": known.id, "name": known.name, "revoked": not options.dry_run})
        return
    output.line(f"{'Would revoke' if options.dry_run else 'Revoked'} the token of {known.name}.")


def audit(options: argparse.Namespace, output: Output) -> None:
    """Show the newest changes, oldest first."""
    from lockstep.console.audit import AuditLog

    with opened(bus_url(options)) as client:
        log = AuditLog(client, client.runtime, "")
        try:
            found = (row for row in log.rows() if options.who in (None, row["who"]))
            rows = [row for row in found if options.outcome in (None, row["outcome"])][: options.last][::-1]
        finally:
            log.close()
    if output.json:
        for row in rows:
            output.json_line(row)
        return
    if not rows:
        output.note("No change was noted that fits." if options.who or options.outcome
                    else "No change was made at a server of this bus yet.")  # fmt: skip
        return
    cells = [[_shown(row["at_ms"]), row["who"], row["role"], row["from"], row["what"], row["path"], row["outcome"]]
             for row in rows]  # fmt: skip
    output.table(["at", "who", "role", "from", "what", "where", "outcome"], cells)


def _shown(ms: int | None) -> str | None:
    return None if ms is None else f"{iso(ms * 10**6)[:19]}Z"
