"""mcpServer/oauth/login: signing in to an MCP server in the user's browser."""

import logging
from dataclasses import dataclass, field

import anyio
import anyio.abc

from app_server.handlers.errors import config_failures, loaded_thread
from app_server.handlers.services import Services
from app_server.mcp.catalog.catalog import ServerCatalog
from app_server.mcp.catalog.config import HttpTransport, ServerConfig, ServerUnavailable
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.oauth import login
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.login import Login, LoginWishes
from app_server.mcp.oauth.target import SignInTarget
from app_server.observability.log_context import bind_request
from app_server.rpc.context import RequestContext, Routes
from protocol.integrations.mcp import (
    McpServerOauthLoginCompletedNotification,
    McpServerOauthLoginParams,
    McpServerOauthLoginResponse,
)
from protocol.jsonrpc.errors import internal_error, invalid_request, overloaded

logger = logging.getLogger(__name__)

MAX_LOGINS = 32
"""Sign-ins that wait for their browsers at the same time."""

SUPERSEDED = "another sign-in to this server took its place"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One sign-in that somebody asked for."""

    id: str
    key: str
    params: McpServerOauthLoginParams
    login: Login
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    answered: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)


class OAuthHandlers:
    """Sign-ins to MCP servers; at most one for a server at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._attempts: dict[str, _Attempt] = {}
        self.routes: Routes = {"mcpServer/oauth/login": self.login}

    async def login(
        self, context: RequestContext, params: McpServerOauthLoginParams
    ) -> McpServerOauthLoginResponse:
        """Begin a sign-in and answer with the address for the browser."""
        config = await self._server(params)
        transport = config.transport
        if not isinstance(transport, HttpTransport):
            raise invalid_request(
                "OAuth login is only supported for streamable HTTP servers.",
                "oauthNotSupported",
                name=params.name,
            )
        if len(self._attempts) >= MAX_LOGINS:
            raise overloaded()
        home = transport.oauth.home
        if transport.auth != "oauth" or home is None:
            raise invalid_request(
                f"MCP server '{params.name}' does not sign in with OAuth.",
                "oauthNotSupported",
                name=params.name,
            )
        store = CredentialStore(home, transport.oauth.store)
        target = SignInTarget.of(config, transport, self._services.environments)
        sign_in = Login(target, store, _wishes(params))
        attempt = _Attempt(self._services.clock.new_id(), target.key, params, sign_in)
        context.after_answer(attempt.answered.set)
        try:
            url: str = await self._services.tasks.start(self._run, attempt)
        except (OAuthFailed, ServerUnavailable) as exc:
            raise internal_error(
                f"failed to login to MCP server '{params.name}': {exc}",
                "oauthLoginFailed",
                name=params.name,
            ) from exc
        return McpServerOauthLoginResponse(authorization_url=url, login_id=attempt.id)

    async def _server(self, params: McpServerOauthLoginParams) -> ServerConfig:
        if params.thread_id is not None:
            servers = loaded_thread(self._services.sessions, params.thread_id).servers.servers
            config = servers[params.name].config if params.name in servers else None
        else:
            with config_failures():
                settings = await self._services.configuration.read()
                configured = read_mcp_settings(settings)
            catalog = ServerCatalog(self._services.extensions)
            config = catalog.resolve(configured, settings, "current").servers.get(params.name)
        if config is None or config.is_registered:
            raise invalid_request(
                f"No MCP server named '{params.name}' found.", "unknownMcpServer", name=params.name
            )
        if not config.allowed:
            raise internal_error(
                "failed to resolve MCP server runtime: the MCP server is disabled by managed "
                "requirements",
                "mcpServerNotAllowed",
                name=params.name,
            )
        return config

    async def _run(self, attempt: _Attempt, *, task_status: anyio.abc.TaskStatus[str]) -> None:
        older = self._attempts.get(attempt.key)
        self._attempts[attempt.key] = attempt
        shown, error = False, SUPERSEDED

        def show(url: str) -> None:
            nonlocal shown
            shown = True
            task_status.started(url)
            # What follows goes on long after the answer.
            bind_request(None)

        try:
            with attempt.scope:
                if older is not None:
                    # It may hold the port that this one needs.
                    older.scope.cancel()
                    await older.ended.wait()
                await attempt.login.run(show)
        except (OAuthFailed, ServerUnavailable) as exc:
            if not shown:
                raise
            error = str(exc)
        except Exception as exc:  # noqa: BLE001
            # Its text might hold what the servers said to each other.
            logger.error("sign-in to %s broke: %s", attempt.params.name, type(exc).__name__)
            error = "the sign-in broke"
            if not shown:
                raise OAuthFailed(error) from None
        finally:
            if self._attempts.get(attempt.key) is attempt:
                del self._attempts[attempt.key]
            attempt.ended.set()
        if not shown:
            raise OAuthFailed(error)
        await self._notify(attempt, None if attempt.login.succeeded else error)

    async def _notify(self, attempt: _Attempt, error: str | None) -> None:
        await attempt.answered.wait()
        self._services.hub.broadcast(
            McpServerOauthLoginCompletedNotification(
                name=attempt.params.name,
                thread_id=attempt.params.thread_id,
                login_id=attempt.id,
                success=error is None,
                error=error,
            )
        )
        if error is None:
            for session in self._services.sessions:
                session.servers.signed_in(attempt.params.name)


def _wishes(params: McpServerOauthLoginParams) -> LoginWishes:
    timeout_s = login.DEFAULT_TIMEOUT_S if params.timeout_secs is None else params.timeout_secs
    return LoginWishes(
        registration=params.client_registration or "auto",
        scopes=params.scopes,
        timeout_s=min(max(timeout_s, login.MIN_TIMEOUT_S), login.MAX_TIMEOUT_S),
    )
