"""The exceptions of MCP servers, with their texts."""

from app_server.mcp.catalog.config import LOCAL, ServerConfig
from app_server.mcp_wire.errors import McpError, NoCredential


class UnknownServer(McpError):
    """No enabled server has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown MCP server '{name}'")


class StartupFailed(McpError):
    """A server did not start; the text says why.

    A transient failure may pass by itself. With `is_away` its environment was out of reach. With
    `is_refusal` the server answered, and wants no sign-in.
    """

    def __init__(
        self,
        reason: str,
        *,
        transient: bool = False,
        is_away: bool = False,
        is_refusal: bool = False,
    ) -> None:
        super().__init__(f"MCP startup failed: {reason}")
        self.last_lines = ""
        """Of stderr, if it is a process; the text may have the last one."""
        self.transient = transient
        self.is_refusal = is_refusal
        self.is_away = is_away


class StartupTimedOut(StartupFailed):
    """A server did not become ready in time."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"timed out after {timeout_s:g} seconds")
        self.timeout_s = timeout_s


class NotLoggedIn(StartupFailed):
    """The server wants a sign-in first, or a new one where there has been one (`again`)."""

    def __init__(self, *, again: bool = False) -> None:
        super().__init__("the server wants a sign-in")
        self.again = again


def text_for_people(config: ServerConfig, failure: StartupFailed) -> str:
    """Say why a server did not start, and what can be done about it."""
    name = config.name
    match failure:
        case StartupTimedOut():
            return (
                f"MCP client for `{name}` timed out after {failure.timeout_s:g} seconds. Add or "
                f"adjust `startup_timeout_sec` in your config.toml:\n"
                f"[mcp_servers.{name}]\nstartup_timeout_sec = XX"
            )
        case NotLoggedIn() if config.environment_id != LOCAL:
            # The command line knows no environments.
            return f"The {name} MCP server is not logged in. Sign in with `mcpServer/oauth/login`."
        case NotLoggedIn():
            return f"The {name} MCP server is not logged in. Run `codex mcp login {name}`."
    return f"MCP client for `{name}` failed to start: {failure}"


class OAuthFailed(NoCredential):
    """A sign-in, or the renewal of a token, did not work out; the text holds no secret."""


class OAuthUnavailable(OAuthFailed):
    """A server did not answer, or is not well; this may pass by itself."""


class GrantRefused(OAuthFailed):
    """The authorization server will never give a token for this."""


class HeaderCommandFailed(NoCredential):
    """The command that prints a server's headers failed; the text holds nothing that it wrote."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"MCP HTTP headers helper {reason}")


class RequiredServersFailed(McpError):
    """A thread cannot start without servers that did not start."""


class ClientUnavailable(McpError):
    """A call reached a server that is not connected; the text says why."""


class ToolDisabled(McpError):
    """The server's filters leave the tool out."""

    def __init__(self, server: str, tool: str) -> None:
        super().__init__(f"tool '{tool}' is disabled for MCP server '{server}'")


class BadArguments(McpError):
    """Arguments or metadata that MCP does not allow."""
