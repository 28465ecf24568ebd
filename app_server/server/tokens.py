"""The tokens that the listeners of a server accept, for as long as it runs.

Source: docs/listeners.md, "Tokens".
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app_server.runtime.blocking_context import in_worker
from app_server.runtime.loader import load
from app_server.transport.auth.capability import CapabilityToken, digest_of
from app_server.transport.auth.gate import TokenCheck, TokenGate
from app_server.transport.auth.token_file import token_file
from app_server.transport.guards import (
    CapabilityAuth,
    ListenerGuards,
    SignedAuth,
    WebSocketAuth,
)


@asynccontextmanager
async def token_gate(guards: ListenerGuards) -> AsyncIterator[TokenGate]:
    """Give what lets clients with a token in; the token file is there while this lasts.

    Raises:
        OSError: the token file cannot be made.
        LoadFailed: this installation lacks the library for signed tokens.
    """
    checks: list[TokenCheck] = []
    if guards.auth is not None:
        checks.append(await _check_of(guards.auth))
    if guards.token_file is None:
        yield TokenGate(checks)
        return
    async with in_worker(token_file(guards.token_file)) as token:
        yield TokenGate([*checks, CapabilityToken(digest_of(token))])


async def _check_of(auth: WebSocketAuth) -> TokenCheck:
    match auth:
        case CapabilityAuth():
            return CapabilityToken(auth.sha256)
        case SignedAuth():
            return (await load(_signed_token))(auth)


def _signed_token() -> Callable[[SignedAuth], TokenCheck]:
    # Few servers need the library, which brings much of cryptography.
    from app_server.transport.auth.signed import SignedToken

    return SignedToken
