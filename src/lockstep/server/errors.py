"""Errors of HTTP servers, in the tree of lockstep.errors.

UsageError                                         exit 2
  TokenNeeded TokenFileUnusable BodyTooLarge BadBody MethodNotAllowed
NotFound                                           exit 3
  WindowNotPublished RouteNotFound
Conflict                                           exit 4
  RowsUnknown
Forbidden                                          exit 5
  TokenWrong ChangeNeedsToken OriginRefused PathRefused
Unavailable                                        exit 6
  PortUnusable TooManyRequests RowsNotReady
"""

from __future__ import annotations

from lockstep.errors import Conflict, Forbidden, NotFound, Unavailable, UsageError


class TokenNeeded(UsageError):
    """REST that others than this machine can reach, without a token."""

    code = "TOKEN_NEEDED"
    template = "REST on {host} can be reached from other machines, and there is no token."
    advice = "Give one with --token-file, or listen on 127.0.0.1."


class LoginNeeded(TokenNeeded):
    """The API of a monitor that others than this machine can reach, without a user and a password."""

    code = "LOGIN_NEEDED"
    template = "The monitor's API on {host} could be reached from other machines by everybody."
    advice = "Set api.user and api.password in the settings, or listen on 127.0.0.1."


class TokenFileUnusable(UsageError):
    """A file that holds no token, or that others can read."""

    code = "TOKEN_FILE_UNUSABLE"
    template = "The token file {path!r} can't be used: {reason}."
    advice = "Write one line of 16 to 1024 printable characters into a file with mode 0600."


class BodyTooLarge(UsageError):
    """A request with more data than is taken."""

    code = "BODY_TOO_LARGE"
    template = "The request has more than {limit} bytes."
    advice = "Send less at once, or publish events on the bus."


class WindowNotPublished(NotFound):
    """A window whose events do not leave the engine."""

    code = "WINDOW_NOT_PUBLISHED"
    template = "Window {window} is not published, so its rows can't be read."
    advice = "Start the engines with --publish {window}, or set pubsub in the model. Published: {known}."


class RowsUnknown(Conflict):
    """A window whose rows can't be told from what it published."""

    code = "ROWS_UNKNOWN"
    template = "The rows of window {window} can't be told: {reason}."
    advice = "Subscribe to its stream instead: 'lockstep engine subscribe'."


class TokenWrong(Forbidden):
    """A request without the token, or with another one."""

    code = "TOKEN_WRONG"
    template = "The request does not carry the token of this server."
    advice = "Send the header 'Authorization: Bearer TOKEN'."


class LoginWrong(TokenWrong):
    """A request to a monitor without the user and password, or with others."""

    code = "LOGIN_WRONG"
    template = "The request does not carry the user and the password of this monitor."
    advice = "Send them by HTTP Basic: 'curl -u USER:PASSWORD', or --user and --password-file of 'lockstep monitor'."


class ChangeNeedsToken(Forbidden):
    """A change, or the check of a model, without the token that an engine made for its own user."""

    code = "CHANGE_NEEDS_TOKEN"
    template = "Everybody on this machine may look; changes and checks of models need the token of this server."
    advice = "Send the header 'Authorization: Bearer TOKEN'. An engine keeps it in http.token of its state folder."


class OriginRefused(Forbidden):
    """A request that a page of somebody else had a browser send."""

    code = "ORIGIN_REFUSED"
    template = "Requests for host {host!r} from {origin!r} are refused."
    advice = "Ask by the address that the engine listens on, and not from a page of another site."


class PathRefused(Forbidden):
    """A path of this machine that a client may not name."""

    code = "PATH_REFUSED"
    template = "The path {path!r} is refused: {reason}."
    advice = "Send the model as the body, or name a file below the engine's own folder."


class PortUnusable(Unavailable):
    """No server can be started on this address."""

    code = "PORT_UNUSABLE"
    template = "{what} can't listen on {host}, port {port}: {reason}."
    advice = "Choose another port; for --http 0 takes any that is free."


class TooManyRequests(Unavailable):
    """As many requests as are worked on at a time."""

    code = "TOO_MANY_REQUESTS"
    template = "This server works on {limit} requests already."
    advice = "Ask again in a second."


class RowsNotReady(Unavailable):
    """The rows of a window are still being read from its stream."""

    code = "ROWS_NOT_READY"
    template = "The rows of window {window} are being read: {done} of {total} records so far."
    advice = "Ask again in a second; reading goes on from there."


class BadBody(UsageError, ValueError):
    """A request whose body can't be used."""

    code = "BAD_BODY"
    template = "The body can't be used: {reason}."
    advice = "See /openapi.json for an example."


class MethodNotAllowed(UsageError):
    """A path that has other methods."""

    code = "METHOD_NOT_ALLOWED"
    template = "{method} {path} does not exist."
    advice = "Allowed: {allowed}. See /openapi.json for the routes."


class RouteNotFound(NotFound):
    """A path that has no methods at all."""

    code = "ROUTE_NOT_FOUND"
    template = "The path {path} does not exist."
    advice = "See /openapi.json for the routes; write a slash in a tenant or id as %2F."
