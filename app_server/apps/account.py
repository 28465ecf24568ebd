"""Ports for accounts and plugins; app_server/server connects them.

Source: docs/apps.md, "Accounts", "Plugins".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class AppsUnavailable(Exception):
    """Apps, or something about them, cannot be had now; the text says why and holds no secret."""


class PluginPort(Protocol):
    """Which plugins declare which connectors. Nothing here waits."""

    def revision(self) -> int:
        """Return a number that grows whenever `app_names` would say something else."""

    def app_names(
        self, config: Mapping[str, Any], thread_id: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        """Return display names by connector id, of the plugins that settings and thread have."""


class Credentials(Protocol):
    """A bearer token and the account that it belongs to."""

    @property
    def token(self) -> str:
        """The bearer token; never shown."""

    @property
    def account_id(self) -> str | None:
        """The account, if it is known."""

    @property
    def chatgpt_user_id(self) -> str | None:
        """The user, if it is known."""

    @property
    def is_workspace(self) -> bool:
        """Whether the account is one of several people."""

    @property
    def is_chatgpt(self) -> bool:
        """Whether the credentials are of a ChatGPT account; an API key has no apps."""


class AuthState(Protocol):
    """Credentials, and a number that grows with every sign-in and sign-out; read together."""

    @property
    def credentials(self) -> Credentials | None:
        """The credentials of the signed-in account; None while signed out."""

    @property
    def revision(self) -> int:
        """Grows with every change but another token of the same account."""


class AuthPort(Protocol):
    """A source of credentials, which a package above implements."""

    def current(self) -> AuthState:
        """Return the present state without waiting."""

    def subscribe(self, listener: Callable[[AuthState], None], /) -> Callable[[], None]:
        """Call a function at every change; returns the function that unsubscribes it."""

    @property
    def is_recent(self) -> bool:
        """Whether `look` would return the known state without reading the store."""

    async def look(self) -> AuthState:
        """Return the current state, with changes by other processes; sends no request."""

    async def fresh(self) -> AuthState:
        """Return the credentials, after renewing a token near its end if that can be done."""

    async def renewed(self, refused: str, /) -> AuthState:
        """Return the state after a server refused a token, with a refreshed one if possible.

        However many ask, the token is renewed once. It may be that somebody else is signed in then.
        """


class Signed:
    """The sign-in that something was built with; an AuthGuard."""

    def __init__(self, auth: AuthPort, revision: int) -> None:
        self._auth = auth
        self._revision = revision

    def holds(self) -> bool:
        """Whether they are still the current ones."""
        return self._auth.current().revision == self._revision

    async def settle(self) -> None:
        """Load changes of other processes, and refresh a token that is about to expire."""
        await self._auth.fresh()


@dataclass(frozen=True, slots=True)
class FixedAccount:
    """An AuthPort with one fixed account: no sign-in, no sign-out, no renewal."""

    token: str = field(repr=False)
    account_id: str | None
    chatgpt_user_id: str | None = None
    is_workspace: bool = False
    is_chatgpt: bool = True
    revision: int = 1

    @property
    def credentials(self) -> Credentials:
        """The account itself."""
        return self

    def current(self) -> AuthState:
        """Return the one state there is."""
        return self

    def subscribe(self, listener: Callable[[AuthState], None], /) -> Callable[[], None]:
        """Ignore the listener: there are no changes."""
        return lambda: None

    @property
    def is_recent(self) -> bool:
        """It always is."""
        return True

    async def look(self) -> AuthState:
        """Return the one state there is."""
        return self

    fresh = look

    async def renewed(self, refused: str) -> AuthState:
        """Return the one state there is: the token has no other."""
        return self
