"""The URL of the hosted endpoint, and the headers of every request to it.

Source: docs/apps.md, "The hosted endpoint".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import SecretStr

if TYPE_CHECKING:
    from app_server.mcp_wire.http.authorized import CredentialSource

DEBUG_TOKEN_VARIABLE = "CODEX_CONNECTORS_TOKEN"
"""If it is set, its value takes the place of the account's token; nothing is kept on disk then."""

_CHATGPT = ("https://chatgpt.com", "https://chat.openai.com")


class BadDebugToken(Exception):
    """The debug token cannot be sent; the text does not repeat it."""


@dataclass(frozen=True, slots=True)
class UpstreamTarget:
    """One account at the endpoint, and our capabilities there."""

    url: str
    headers: Mapping[str, SecretStr] = field(repr=False)
    """Of every request."""
    elicitation: bool = False
    """Whether we declare that users can be asked, beyond `openai/form`."""
    tokens: "CredentialSource | None" = field(default=None, repr=False)
    """The source of bearer tokens, unless the headers hold one."""


def apps_endpoint(chatgpt_base_url: str) -> str:
    """Return the address of the endpoint's MCP server for the configured address of ChatGPT."""
    base = chatgpt_base_url.rstrip("/")
    if base.startswith(_CHATGPT) and "/backend-api" not in base:
        base += "/backend-api"
    if "/backend-api" not in base and "/api/codex" not in base:
        base += "/api/codex"
    return f"{base}/ps/mcp"


def upstream_target(
    chatgpt_base_url: str,
    token: "SecretStr | CredentialSource",
    *,
    account_id: str | None = None,
    sku: str | None = None,
    elicitation: bool = False,
) -> UpstreamTarget:
    """Describe an account at the endpoint; a blank `sku` counts as none.

    `token` is one that stays as it is, or where the one of the moment comes from.
    """
    headers: dict[str, SecretStr] = {}
    tokens: CredentialSource | None = None
    if isinstance(token, SecretStr):
        headers["Authorization"] = SecretStr(f"Bearer {token.get_secret_value()}")
    else:
        tokens = token
    if account_id:
        headers["ChatGPT-Account-ID"] = SecretStr(account_id)
    if sku is not None and sku.strip():
        headers["X-OpenAI-Product-Sku"] = SecretStr(sku.strip())
    return UpstreamTarget(apps_endpoint(chatgpt_base_url), headers, elicitation, tokens)


def debug_token(environ: Mapping[str, str]) -> SecretStr | None:
    """Read the debug token; None unless it is set to something.

    Raises:
        BadDebugToken: it is not valid Unicode.
    """
    token = environ.get(DEBUG_TOKEN_VARIABLE, "").strip()
    if not token:
        return None
    try:
        token.encode()
    except UnicodeEncodeError:
        raise BadDebugToken(f"{DEBUG_TOKEN_VARIABLE} is not valid Unicode") from None
    return SecretStr(token)
