"""Settings, tokens, the audit log and debug bundles."""

from __future__ import annotations

from lockstep.console.audit import AuditLog
from lockstep.console.credentials import CredentialStore
from lockstep.console.port import PAGED, Act, Asked, Kind, Parameter, Pillar, Site, Tree, View
from lockstep.console.settings import ServerFacts, SettingsViews
from lockstep.server.access import EVERYWHERE, Role

NAME = Parameter(name="name", label="Name", required=True, characters_max=128, help="who uses it")
ROLE = Parameter(name="role", label="Role", kind=Kind.CHOICE, choices=tuple(role.label for role in Role),
                 default=Role.VIEWER.label, help="viewer, operator or admin")  # fmt: skip
SCOPE = Parameter(name="scope", label="Scope", default=EVERYWHERE,
                  help="areas as streams,groups,projects; * is everywhere")  # fmt: skip
DAYS = Parameter(name="days", label="Days until it expires", kind=Kind.WHOLE, default=90, least=1, most=3650,
                 help="at most ten years")  # fmt: skip
WHO = Parameter(name="who", label="Who", help="changes of this name only", option="--who")
SINCE_LABELS = ("begun", "done", "refused", "failed")
OUTCOME = Parameter(name="outcome", label="Outcome", kind=Kind.CHOICE, choices=("", *SINCE_LABELS), help="all if empty",
                    option="--outcome")  # fmt: skip


class AdministrationViews:
    """Who may do what, and who did what."""

    def __init__(self, site: Site, credentials: CredentialStore, audit: AuditLog, facts: ServerFacts) -> None:
        self._credentials, self._audit = credentials, audit
        self._settings = SettingsViews(site, credentials, facts)

    def pillar(self) -> Pillar:
        """All of it."""
        token = "/access/{id}"  # noqa: S105 - a path
        settings, bundle = self._settings.views()
        return Pillar(
            "settings", "Settings",
            (settings,
             View(path="/access", title="Access", summary="Tokens with their roles; no secret is shown",
                  load=self.tokens, template="access.html", role=Role.ADMIN, cli="lockstep access ls"),
             View(path=token, title="Token", summary="One token", load=self.token, template="token.html",
                  role=Role.ADMIN, cli="lockstep access show {id}", is_live=False),
             View(path="/audit", title="Audit", summary="Every change: who, what, from where, before and after",
                  load=self.changes, template="audit.html", role=Role.ADMIN, parameters=(*PAGED, WHO, OUTCOME),
                  cli="lockstep access audit"), bundle),
            (*self._settings.acts(),
             Act(path="/access/add", title="New token", summary="Make a token; its secret is shown once",
                 run=self.add,
                 preview=self._would_add, fields=(NAME, ROLE, SCOPE, DAYS), role=Role.ADMIN,
                 cli="lockstep access add {name} --role {role} --scope {scope} --expires {days}d", done="/access"),
             Act(path=f"{token}/rotate", title="New secret",
                 summary="Give the token a new secret; the old one ends now",
                 run=self.rotate, preview=self._would_rotate, role=Role.ADMIN, confirm="id",
                 cli="lockstep access rotate {id}", done="/access"),
             Act(path=f"{token}/revoke", title="Revoke", summary="End the token and its sessions", run=self.revoke,
                 preview=self._would_revoke, role=Role.ADMIN, confirm="id", cli="lockstep access revoke {id}",
                 done="/access")),
        )  # fmt: skip

    def tokens(self, _asked: Asked) -> Tree:
        """All that are valid."""
        rows = [known.dump() for known in self._credentials.tokens()]
        for row in rows:
            del row["digest"], row["token"]
        return {"tokens": rows}

    def token(self, asked: Asked) -> Tree:
        """One of them."""
        row = self._credentials.found(asked.names["id"]).dump()
        del row["digest"], row["token"]
        return row

    def changes(self, asked: Asked) -> Tree:
        """The newest changes first."""
        values = asked.values
        found = [
            row
            for row in self._audit.rows()
            if values["who"] in ("", row["who"]) and values["outcome"] in ("", row["outcome"])
            and values["q"].lower() in f"{row['what']} {row['path']}".lower()
        ]  # fmt: skip
        size, pages = values["size"], max(1, -(-len(found) // values["size"]))
        page = min(values["page"], pages)
        about = {"page": page, "pages": pages, "size": size, "total": len(found), "all": len(found)}
        return {"changes": found[(page - 1) * size : page * size], "page": about}

    def add(self, asked: Asked) -> Tree:
        """Make a token."""
        values = asked.values
        made, secret = self._credentials.issue(
            values["name"], Role.named(values["role"]), _areas(values["scope"]), values["days"] * 86_400.0
        )
        return {"id": made.id, "name": made.name, "message": "Copy the secret now: it is not shown again.",
                "shown_once": secret}  # fmt: skip

    def _would_add(self, asked: Asked) -> Tree:
        values = asked.values
        where = ", ".join(_areas(values["scope"]))
        return {"effect": f"{values['name']} gets a token as {values['role']} for {where}, for {values['days']} days."}

    def rotate(self, asked: Asked) -> Tree:
        """Change its secret."""
        made, secret = self._credentials.rotate(asked.names["id"])
        return {"id": made.id, "name": made.name, "message": "Copy the secret now: it is not shown again.",
                "shown_once": secret}  # fmt: skip

    def _would_rotate(self, asked: Asked) -> Tree:
        known = self._credentials.found(asked.names["id"])
        return {"effect": f"The secret of {known.name} is refused from now on, and its sessions end."}

    def revoke(self, asked: Asked) -> Tree:
        """End it."""
        return {"revoked": self._credentials.revoke(asked.names["id"]).name}

    def _would_revoke(self, asked: Asked) -> Tree:
        known = self._credentials.found(asked.names["id"])
        return {"effect": f"The token of {known.name} ({known.role.label}) ends now, and so do its sessions."}


def _areas(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) or (EVERYWHERE,)
