"""The tokens that the listeners of a server accept, for as long as it runs.

Source: docs/listeners.md, "Tokens".
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from app_server.runtime.loader import load
from app_server.server.blocking_context import in_worker
from app_server.transport.guards import (
    CapabilityAuth,
    ListenerGuards,
    SignedAuth,
    WebSocketAuth,
    read_shared_secret,
    read_token_digest,
)
from app_server.transport.tokens import (
    CapabilityToken,
    RotatedCheck,
    TokenCheck,
    TokenGate,
    digest_of,
    token_file,
)


@asynccontextmanager
async def token_gate(guards: ListenerGuards) -> AsyncIterator[TokenGate]:
    """Give what lets clients with a token in; the token file is there while this lasts.

    Raises:
        OSError: the token file cannot be made.
        LoadFailed: this installation lacks the library for signed tokens.
    """
    checks: list[TokenCheck] = []
    changing: list[RotatedCheck] = []
    if (auth := guards.auth) is not None:
        make = await _maker(auth)
        check = make(None)
        if auth.file is None or not await anyio.to_thread.run_sync(auth.file.is_file):
            # A pipe is read once: what it had is gone.
            checks.append(check)
        else:
            changing.append(RotatedCheck(auth.file, check, make))
    if guards.token_file is None:
        yield TokenGate(checks, changing)
        return
    async with in_worker(token_file(guards.token_file)) as token:
        yield TokenGate([*checks, CapabilityToken(digest_of(token))], changing)


async def _maker(auth: WebSocketAuth) -> Callable[[Path | None], TokenCheck]:
    """Return what makes the check of the settings, or the one of a file that was read anew."""
    match auth:
        case CapabilityAuth():
            return lambda file: CapabilityToken(
                auth.sha256 if file is None else read_token_digest(file)
            )
        case SignedAuth():
            signed = await load(_signed_token)
            return lambda file: signed(
                auth if file is None else replace(auth, secret=read_shared_secret(file))
            )


def _signed_token() -> Callable[[SignedAuth], TokenCheck]:
    # Few servers need the library, which brings much of cryptography.
    from app_server.transport.signed_tokens import SignedToken

    return SignedToken
