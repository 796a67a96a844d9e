"""REST on an engine: ESP's routes, and our own; and the HTTP API of a scheduler, in `lockstep.server.schedule`.

Imported only by a process that is told to serve it. Names are loaded when they are first used, so that a scheduler does
not wait for the modules of an engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.server.access import read_token
    from lockstep.server.serving import RestServer, bind, serve, serve_app
    from lockstep.server.view import EngineView

_MODULES = {
    "EngineView": "view", "RestServer": "serving", "bind": "serving", "read_token": "access", "serve": "serving",
    "serve_app": "serving",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(name=name, obj=import_module(__name__))
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = ["EngineView", "RestServer", "bind", "read_token", "serve", "serve_app"]
