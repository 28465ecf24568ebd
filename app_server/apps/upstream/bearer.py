"""The token of one sign-in at the moment of its use.

Source: docs/apps.md, "Accounts".
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import httpx

from app_server.apps.account import AuthPort, AuthState
from app_server.mcp_wire.errors import NoCredential
from app_server.mcp_wire.http.authorized import CredentialSource

SIGN_IN_CHANGED = "the sign-in has changed"


class Bearer:
    """Tokens of one sign-in: each that is given holds for a while, if such a one can be had.

    Once somebody else is signed in, or nobody, there is none any more.
    """

    def __init__(self, auth: AuthPort, revision: int) -> None:
        """Take the sign-in of `revision`."""
        self._auth = auth
        self._revision = revision

    async def current(self) -> str:
        """Return the token to send; see CredentialSource.

        Raises:
            NoCredential: the sign-in has changed.
        """
        return self._token_of(await self._auth.fresh())

    async def replace(self, refused: str | None) -> str | None:
        """Return another token than was refused, or the same when there is none.

        Raises:
            NoCredential: the sign-in has changed.
        """
        return None if refused is None else self._token_of(await self._auth.renewed(refused))

    async def widen(self, refused: str | None, scopes: Sequence[str]) -> str | None:
        """Return None: an account's sign-in has the scopes that it has."""
        return None

    def stored(self) -> str | None:
        """Return the token as it is; see CredentialSource."""
        state = self._auth.current()
        return None if state.revision != self._revision else self._token_of(state)

    def headers(self, credential: str) -> Mapping[str, str]:
        """Return the header that a token makes; see CredentialSource."""
        return {"authorization": f"Bearer {credential}"}

    def _token_of(self, state: AuthState) -> str:
        if state.credentials is None or state.revision != self._revision:
            raise NoCredential(SIGN_IN_CHANGED)
        return state.credentials.token


async def send_signed(
    tokens: CredentialSource | None, send: Callable[[Mapping[str, str]], Awaitable[httpx.Response]]
) -> httpx.Response:
    """Send a request with a token, and after a 401 once more, if there is another token.

    `send` takes the headers that make the difference; without `tokens` there are none.

    Raises:
        NoCredential: the sign-in has changed.
    """
    token = None if tokens is None else await tokens.current()
    if tokens is None or token is None:
        return await send({})
    response = await send(tokens.headers(token))
    if response.status_code != 401:
        return response
    await response.aclose()
    other = await tokens.replace(token)
    if other is None or other == token:
        return response
    return await send(tokens.headers(other))
