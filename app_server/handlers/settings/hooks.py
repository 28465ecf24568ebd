"""hooks/list: the hooks of some folders, and whether they run.

Source: docs/hooks.md.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread

from app_server.config.values import Config
from app_server.extensions.hooks.definition import WIRE, Hook
from app_server.extensions.hooks.plugins import HookedPlugin
from app_server.extensions.hooks.source import hooks_of
from app_server.extensions.plugins.hooks import hooked_plugins
from app_server.handlers.errors import config_failures, loaded_thread
from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from protocol.integrations.skills import (
    CommandHookMetadata,
    HookErrorInfo,
    HookMetadata,
    HooksListEntry,
    HooksListParams,
    HooksListResponse,
    HookTrustStatus,
)
from protocol.jsonrpc.errors import invalid_params, invalid_request

MAX_FOLDERS = 100
"""That one request may ask about."""


class HookHandlers:
    """The method hooks/list."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._sessions = services.sessions
        self._home = services.home
        self._plugins = services.plugins
        self.routes: Routes = {"hooks/list": self.list_hooks}

    async def list_hooks(
        self, context: RequestContext, params: HooksListParams
    ) -> HooksListResponse:
        """List the hooks for each folder, or for the folder of a loaded thread."""
        if len(params.cwds) > MAX_FOLDERS:
            raise invalid_params(f"cwds accepts at most {MAX_FOLDERS} entries", field="cwds")
        with config_failures():
            if params.thread_id is None:
                config = await self._configuration.read()
                folders = params.cwds or [self._configuration.resolve(None)]
            else:
                if params.cwds:
                    raise invalid_request("specify either threadId or cwds", "invalidParams")
                session = loaded_thread(self._sessions, params.thread_id)
                config, folders = session.config, [session.thread.state.settings.cwd]
        resolved = [Path(self._configuration.resolve(folder)) for folder in folders]
        home = self._home.absolute()
        plugins = hooked_plugins(self._plugins, home, config.document, params.thread_id)
        return HooksListResponse(
            data=await anyio.to_thread.run_sync(_entries, config, home, plugins, folders, resolved)
        )


def _entries(
    config: Config,
    home: Path,
    plugins: Sequence[HookedPlugin],
    names: list[str],
    folders: list[Path],
) -> list[HooksListEntry]:
    entries = []
    for name, folder in zip(names, folders, strict=True):
        found = hooks_of(config, home, folder, plugins)
        errors = [HookErrorInfo(path=str(file), message=text) for file, text in found.errors]
        hooks: list[HookMetadata] = [_shown(hook) for hook in found.hooks]
        entries.append(
            HooksListEntry(cwd=name, hooks=hooks, warnings=found.warnings, errors=errors)
        )
    return entries


def _shown(hook: Hook) -> CommandHookMetadata:
    return CommandHookMetadata(
        key=hook.key,
        event_name=WIRE[hook.event],
        command=hook.command,
        matcher=hook.matcher,
        timeout_sec=hook.timeout_s,
        status_message=hook.status_message,
        source_path=str(hook.file),
        source=hook.source,
        plugin_id=None if hook.origin is None else hook.origin.plugin_id,
        display_order=hook.order,
        enabled=hook.is_enabled,
        is_managed=False,
        current_hash=hook.hash,
        trust_status=_trust(hook),
    )


def _trust(hook: Hook) -> HookTrustStatus:
    if hook.trusted_hash is None:
        return "untrusted"
    return "trusted" if hook.trusted_hash == hook.hash else "modified"
