"""REST on an engine: ESP's routes, and our own. Imported only by an engine that is told to serve it."""

from __future__ import annotations

from lockstep.server.serving import RestServer, bind, serve, serve_app
from lockstep.server.tokens import read_token
from lockstep.server.view import EngineView

__all__ = ["EngineView", "RestServer", "bind", "read_token", "serve", "serve_app"]
