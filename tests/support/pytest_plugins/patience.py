"""The server waits for what it can do without for a minute, where tests run it.

A user is not kept waiting for a disk, a list or a lock that hangs: the server goes on without it,
or refuses. On a machine that is busy, a worker thread or a process may come late without hanging,
and what a test compares would lack something. A test of such a bound sets it itself.
"""

import sys
from types import ModuleType
from typing import Any

PATIENCE_S = 60

WAITS = {
    "app_server.accounts.accounts": (
        "IssuerAccess.answer_s",
        "IssuerAccess.revoke_s",
        "REFRESH_S",
    ),
    "app_server.accounts.login": ("CallbackPorts.cancel_s",),
    "app_server.accounts.store": ("AuthStore.lock_wait_s", "AuthStore.write_wait_s"),
    "app_server.accounts.web": ("REQUEST_S", "AccountWeb.request_s"),
    "app_server.apps.routes.backing": ("RouteBounds.close_s", "RouteBounds.delivery_s"),
    "app_server.apps.routes.generation": ("CLOSE_S",),
    "app_server.apps.service": ("END_S",),
    "app_server.apps.upstream.backend": ("BackendBounds.setting_s",),
    "app_server.cli.checks.machine": ("CONNECT_S",),
    "app_server.cli.checks.catalogue": ("CLOSE_S",),
    "app_server.clients.coder.plan": ("Plan.probe_s",),
    "app_server.clients.coder.session": ("SEARCH_S", "START_S"),
    "app_server.clients.receiver.agent.surface": ("CONNECT_S",),
    "app_server.config.editing.file": ("LOCK_S",),
    "app_server.handlers.host.client_programs": ("DEFAULT_TIMEOUT_S",),
    "app_server.handlers.server.account": ("SUPPLY_S",),
    "app_server.handlers.server.config": ("EDIT_S",),
    "app_server.host.commands.local_commands": ("CLOSE_S", "GONE_S", "SEND_S", "START_S"),
    "app_server.host.exec.client.address": ("DEFAULT_CONNECT_S",),
    "app_server.host.exec.client.client": ("END_S",),
    "app_server.host.folder_reads": ("FolderReads.read_s",),
    "app_server.host.repository": ("TIMEOUT_S",),
    "app_server.host.processes": ("KILL_S",),
    "app_server.host.reaper": ("CLOSE_S",),
    "app_server.host.sandbox.wrapped_command": ("PROBE_S",),
    "app_server.mcp.catalog.tables": ("DEFAULT_GRACE_MS",),
    "app_server.mcp.oauth.credentials": ("LOCK_WAIT_S",),
    "app_server.mcp.oauth.tokens": ("ANSWER_S", "REFRESH_S"),
    "app_server.mcp.oauth.web": ("REQUEST_S",),
    "app_server.mcp.servers.skills": ("ANSWER_S",),
    "app_server.mcp.servers.status": ("CONNECTED_DISCOVERY_S", "DISCOVERY_S"),
    "app_server.mcp.servers.waits": ("REFRESH_S",),
    "app_server.mcp.stdio": ("LAST_WORDS_S",),
    "app_server.mcp_wire.http.loopback": ("CONNECT_S",),
    "app_server.mcp_wire.http.transport": ("END_SESSION_S", "ONE_WAY_S"),
    "app_server.mcp_wire.json_rpc_client": ("GIVE_UP_S",),
    "app_server.models.catalogue.models": ("ModelLists.fetch_s",),
    "app_server.models.client": ("CONNECT_S",),
    "app_server.observability.log": ("LogHandler.flush_s",),
    "app_server.observability.telemetry.exporting": ("FLUSH_S",),
    "app_server.permissions.sandbox.roots": ("PinnedRootsFile.lock_s",),
    "app_server.permissions.rules": ("LOCK_S",),
    "app_server.runtime.http.callback_port": ("HEAD_S",),
    "app_server.runtime.http.peer_user": ("LOOK_S",),
    "app_server.sessions.environment_messages": ("ASK_S",),
    "app_server.threads.files.filing": ("LOCK_WAIT_S",),
    "app_server.threads.files.locks": ("SHORT_S",),
    "app_server.threads.postgresql.records": ("ANSWER_S",),
}
"""Names of seconds, or of milliseconds (`_MS`), by module.

`Class.setting` is a keyword of its constructor.

Left out is what tests reach unpatched, and what paces something.
"""


def pytest_collection_finish() -> None:
    """Raise the waits where tests run: with all tests, all that they need has been imported."""
    be_patient()


def be_patient() -> None:
    """Raise the waits of what this process has imported."""
    for module, names in WAITS.items():
        if module in sys.modules:
            for name in names:
                waits, key = wait_in(sys.modules[module], name)
                patience = PATIENCE_S * 1000 if name.endswith("_MS") else PATIENCE_S
                waits[key] = max(waits[key], patience)


def wait_in(module: ModuleType, name: str) -> tuple[dict[str, Any], str]:
    """Return the mapping that has a wait, and its key there; KeyError or AttributeError: none."""
    owner, _, setting = name.rpartition(".")
    waits = getattr(module, owner).__init__.__kwdefaults__ if owner else vars(module)
    waits[setting]
    return waits, setting
