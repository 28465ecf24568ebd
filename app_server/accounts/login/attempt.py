"""The one sign-in that may wait for its user; a new one takes the place of an older one."""

import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import anyio
import anyio.abc

from app_server.accounts.errors import AccountError
from app_server.accounts.issuer import Issuer
from app_server.accounts.record import Tokens
from app_server.config.values import ConfigError
from app_server.observability.log_context import start_apart
from protocol.server.account import LoginAccountResponse

logger = logging.getLogger(__name__)

NOT_COMPLETED = "Login was not completed"


Keep: TypeAlias = Callable[[Tokens, Issuer], Awaitable[None]]
"""Signs in with tokens; raises AccountError."""


@dataclass(frozen=True, slots=True)
class BrowserWishes:
    """What one sign-in is asked to be like."""

    originator: str
    """Who wants it, for the issuer."""
    workspaces: tuple[str, ...] = ()
    """Workspaces that may be signed in to; none means any."""
    hosted_page: str | None = None
    """Brand of the page of the service that the browser ends on; None: a page of ours."""


class Flow(Protocol):
    """One way to sign in that waits for the user."""

    prefix: str
    """Begins the text that clients get about a failure."""

    def response(self, login_id: str) -> LoginAccountResponse:
        """Say what the user has to do."""

    async def run(self, keep: Keep) -> None:
        """Wait for the user and sign in; raises AccountError."""

    async def aclose(self) -> None:
        """Let go of ports and connections."""


@dataclass(slots=True)
class Attempt:
    """One sign-in."""

    flow: Flow
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    answered: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    has_tokens: bool = False
    """From here on the sign-in is carried through, and cannot be given up."""


class LoginAttempts:
    """Runs attempts, and reports how they ended."""

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        sign_in: Keep,
        report: Callable[[str, str | None], None],
    ) -> None:
        """`report` takes the id of a sign-in and why it failed."""
        self._tasks = tasks
        self._sign_in = sign_in
        self._report = report
        self._active: Attempt | None = None
        self._starting = anyio.Lock()

    async def give_up(self) -> None:
        """End the sign-in that waits, if there is one; returns when it has ended."""
        if (active := self._active) is not None:
            if not active.has_tokens:
                active.scope.cancel()
            await active.ended.wait()

    async def cancel(
        self, login_id: str, after_answer: Callable[[Callable[[], None]], None]
    ) -> bool:
        """End one sign-in; False when it does not wait for its user any more.

        How it ended is announced once the answer is on its way.
        """
        active = self._active
        if active is None or active.id != login_id or active.has_tokens:
            return False
        active.answered = anyio.Event()
        after_answer(active.answered.set)
        active.scope.cancel()
        await active.ended.wait()
        return True

    async def start(self, open_flow: Callable[[], Awaitable[Flow]]) -> Attempt:
        """Let a sign-in wait in the place of an older one.

        How it ends is announced once `answered` is set. Raises what `open_flow` does.
        """
        async with self._starting:
            await self.give_up()
            attempt = self._active = Attempt(await open_flow())
            start_apart(self._tasks, self._run, attempt)
        return attempt

    async def _run(self, attempt: Attempt) -> None:
        error: str | None = attempt.flow.prefix + NOT_COMPLETED

        async def keep(tokens: Tokens, issuer: Issuer) -> None:
            nonlocal error
            attempt.has_tokens = True
            with anyio.CancelScope(shield=True):
                await self._sign_in(tokens, issuer)
                error = None

        try:
            with attempt.scope:
                try:
                    await attempt.flow.run(keep)
                finally:
                    with anyio.CancelScope(shield=True):
                        await attempt.flow.aclose()
        except (AccountError, ConfigError) as exc:
            error = f"{attempt.flow.prefix}{exc}"
        except Exception as exc:  # noqa: BLE001
            # Its text might hold what the issuer said.
            logger.error("a sign-in broke: %s", type(exc).__name__)
            error = f"{attempt.flow.prefix}the sign-in broke"
        finally:
            if self._active is attempt:
                self._active = None
            attempt.ended.set()
        await attempt.answered.wait()
        self._report(attempt.id, error)
