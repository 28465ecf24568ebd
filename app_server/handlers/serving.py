"""Binds functions to methods, and finds the function of a method.

A method is declared in protocol/contract/methods.py, with its types, its order and who may use it.
The function that serves it stands in the module of this package with the name of the module of its
types: the types of `turn/start` are in protocol/turns/requests.py, so the function is in
app_server/handlers/turns/requests.py. That module is imported with the first request to it.
Source: docs/architecture.md, "The way of a request".
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from app_server.handlers.services import Services
from app_server.rpc import context
from protocol.contract.methods import METHODS

RequestContext: TypeAlias = context.RequestContext[Services]
"""One request's caller, the services of the server, and what should follow the answer."""

Serving = TypeVar("Serving", bound=Callable[..., Awaitable[Any]])

_SERVED: dict[str, context.Handler] = {}


def serves(method: str) -> Callable[[Serving], Serving]:
    """Bind `async def (context, params) -> response` to a method.

    Raises:
        ValueError: no method has the name, another function serves it, or the function is in a
            module that is not that of the types.
    """
    if method not in METHODS:
        raise ValueError(f"no method of the contract: {method}")

    def bind(handler: Serving) -> Serving:
        if handler.__module__ != _module_of(method):
            raise ValueError(f"{method} is served in {_module_of(method)}")
        served = _SERVED.get(method)
        # A module whose import failed further down is executed anew with the next request.
        if served is not None and served.__qualname__ != handler.__qualname__:
            raise ValueError(f"{method} is served twice")
        _SERVED[method] = handler
        return handler

    return bind


def find_handler(method: str) -> context.Handler | None:
    """Import the module that serves a method and return the function; None: nothing serves it.

    Called on the importer's thread.

    Raises:
        ImportError: the module cannot be imported now.
    """
    import_module(_module_of(method))
    return _SERVED.get(method)


def _module_of(method: str) -> str:
    return f"{__package__}.{METHODS[method].area}"
