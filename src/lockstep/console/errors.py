"""Errors of the console, in the tree of lockstep.errors.

UsageError                                         exit 2
  NotConfirmed FormInvalid TlsNeeded
NotFound                                           exit 3
  CredentialNotFound
Forbidden                                          exit 5
  SignInNeeded RoleNeeded FormForged StreamReserved
Conflict                                           exit 4
  ActRepeated
Unavailable                                        exit 6
  TooFast BundleBusy
"""

from __future__ import annotations

from lockstep.errors import Conflict, Forbidden, NotFound, Unavailable, UsageError


class NotConfirmed(UsageError):
    """A destructive change whose name was not repeated."""

    code = "NOT_CONFIRMED"
    template = "{what} is destructive, and was not confirmed."
    advice = "Send confirm={name!r} to carry it out, or dry_run=true to see what it would do."


class FormInvalid(UsageError):
    """Fields of a request that can't be taken."""

    code = "FORM_INVALID"
    template = "{faults}."
    advice = "Correct the fields and send them again; nothing was changed."


class TlsNeeded(UsageError):
    """A console that other machines can reach, without encryption."""

    code = "TLS_NEEDED"
    template = "The console on {host} can be reached from other machines, and there is no TLS."
    advice = "Give --tls-cert and --tls-key, or --behind-proxy if a proxy in front of it does TLS; or use 127.0.0.1."


class CredentialNotFound(NotFound):
    """A token that does not exist, or was revoked."""

    code = "CREDENTIAL_NOT_FOUND"
    template = "There is no token {name!r}."
    advice = "See 'lockstep access ls'."


class SignInNeeded(Forbidden):
    """A request without a credential where one is needed."""

    code = "SIGN_IN_NEEDED"
    template = "The request carries no valid token or session."
    advice = "Send the header 'Authorization: Bearer TOKEN', or sign in at /sign-in. 'lockstep access add' makes one."


class RoleNeeded(Forbidden):
    """A request that needs another role, or another scope."""

    code = "ROLE_NEEDED"
    template = "This needs the role {role} for {area}; {name} has the role {own} for {scope}."
    advice = "Ask an admin for a token with that role: 'lockstep access add NAME --role {role}'."


class StreamReserved(Forbidden):
    """A stream on which the server keeps tokens, sessions or the audit log."""

    code = "STREAM_RESERVED"
    template = "The stream {stream!r} holds the server's own records."
    advice = "Only the server writes it, and only an admin reads it: use the pages Access and Audit."


class FormForged(Forbidden):
    """A form that did not come from a page of this session."""

    code = "FORM_FORGED"
    template = "The form was not sent from a page of this session."
    advice = "Load the page again and send the form from there."


class ActRepeated(Conflict):
    """A confirmation that was sent twice: what it asks for was begun by the first one, and is not done again."""

    code = "ACT_REPEATED"
    template = "{what} was confirmed before, and is not done again. What became of it: {outcome}."
    advice = "Look at the page, or at the audit log. To do it again, begin with a new preview."


class TooFast(Unavailable):
    """More requests than a caller may send."""

    code = "TOO_FAST"
    template = "{name} sends more than {rate} requests a second to this route."
    advice = "Wait {seconds:.1f} s and try again."


class BundleBusy(Unavailable):
    """A debug bundle, while another one is being made."""

    code = "BUNDLE_BUSY"
    template = "A debug bundle is being made for somebody else."
    advice = "Try again in a minute."
