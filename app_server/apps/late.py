"""The Apps service, loaded when somebody with apps is signed in. Light: imports none of the rest.

The rest of this room brings the MCP SDK and a web server; most processes never need them.
Source: docs/apps.md, "The service".
"""

import importlib
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.abc
import anyio.to_thread

from app_server.apps.account import AuthPort, AuthState
from app_server.extension.hooks import Presentation, ToolCall
from app_server.extension.registration import ContributionContext, Registration
from protocol.items import UserInput

if TYPE_CHECKING:
    from app_server.apps.service import AppsService
    from app_server.apps.turn_hooks import AppsHooks

logger = logging.getLogger(__name__)


class LateApps:
    """A Contributor and TurnHooks that do nothing until there is a reason to."""

    id = "codex_apps"

    def __init__(self, home: Path, instance_of: Callable[[str], str | None]) -> None:
        """`instance_of` says which instance an environment is now."""
        self._home = home
        self._instance_of = instance_of
        self._wanted = anyio.Event()
        self._loaded = anyio.Event()
        self._service: AppsService | None = None
        self._hooks: AppsHooks | None = None

    async def run(self, auth: AuthPort, base_url: str | None = None) -> None:
        """Wait for the first reason, then serve until cancelled; cancelling ends everything.

        `base_url` stands over the configured address.
        """
        unsubscribe = auth.subscribe(self._signed_in_or_out)
        self._signed_in_or_out(auth.current())
        try:
            await self._wanted.wait()
        finally:
            unsubscribe()
        try:
            make = await anyio.to_thread.run_sync(_load)
            service, hooks = make(self._home, auth, base_url, self._instance_of)
        except Exception:
            logger.exception("the apps cannot be served")
            return
        async with anyio.create_task_group() as tasks:
            await tasks.start(service.run)
            self._service, self._hooks = service, hooks
            self._loaded.set()
            try:
                await anyio.sleep_forever()
            finally:
                service.begin_shutdown()

    def _signed_in_or_out(self, state: AuthState) -> None:
        if state.credentials is not None and state.credentials.is_chatgpt:
            self._wanted.set()

    async def service(self) -> "AppsService":
        """Return the service, loading it if need be."""
        self._wanted.set()
        await self._loaded.wait()
        assert self._service is not None
        return self._service

    def revision(self) -> int:
        """Return the service's; see Contributor."""
        return 0 if self._service is None else 1 + self._service.revision()

    def contribute(self, context: ContributionContext) -> Sequence[Registration]:
        """Return the servers there are now; see Contributor."""
        return [] if self._service is None else self._service.contribute(context)

    async def refresh(self, context: ContributionContext) -> None:
        """Look anew; see Contributor."""
        if self._service is not None:
            await self._service.refresh(context)

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> str | None:
        """See TurnHooks."""
        return None if self._hooks is None else self._hooks.instructions(context, tools)

    def present(self, call: ToolCall) -> Presentation | None:
        """See TurnHooks."""
        return None if self._hooks is None else self._hooks.present(call)

    def input_taken(self, thread_id: str, turn_id: str, content: Sequence[UserInput]) -> None:
        """See TurnHooks."""
        if self._hooks is not None:
            self._hooks.input_taken(thread_id, turn_id, content)

    def call_ended(self, call: ToolCall, status: Literal["completed", "failed"]) -> None:
        """See TurnHooks."""
        if self._hooks is not None:
            self._hooks.call_ended(call, status)

    def turn_ended(self, thread_id: str, turn_id: str) -> None:
        """See TurnHooks."""
        if self._hooks is not None:
            self._hooks.turn_ended(thread_id, turn_id)


def _load() -> Callable[..., tuple[Any, Any]]:
    service = importlib.import_module("app_server.apps.service")
    turn_hooks = importlib.import_module("app_server.apps.turn_hooks")
    local_files = importlib.import_module("app_server.apps.local_files")

    def make(
        home: Path,
        auth: AuthPort,
        base_url: str | None,
        instance_of: Callable[[str], str | None],
    ) -> tuple[Any, Any]:
        files = local_files.LocalFiles(instance_of)
        made = service.AppsService(home, auth, files=files, base_url=base_url)
        return made, turn_hooks.AppsHooks(made)

    return make
